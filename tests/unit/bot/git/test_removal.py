from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from orchestrator.bot.git.folders import remove_folder

if TYPE_CHECKING:
    from pathlib import Path

_AS_ANYONE = """
import os, sys
from pathlib import Path
from orchestrator.bot.git.folders import remove_folder
if os.geteuid() == 0:
    os.setuid(65534)
folder = Path(sys.argv[1], "mine")
(folder / "closed" / "inner").mkdir(parents=True)
(folder / "closed" / "inner" / "file").write_text("x")
(folder / "closed" / "inner" / "file").chmod(0o400)
(folder / "closed" / "inner").chmod(0o000)
(folder / "closed").chmod(0o500)
folder.chmod(0o500)
remove_folder(folder)
"""


def test_read_only_folders(tmp_path: Path) -> None:
    # Root may remove anything, so another user has to try.
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.owner() == tmp_path.owner() and folder.stat().st_mode & 0o11 != 0o11:
            folder.chmod(folder.stat().st_mode | 0o11)
    tmp_path.chmod(0o755)
    subprocess.run([sys.executable, "-c", _AS_ANYONE, str(shared)], check=True, cwd="/")
    assert list(shared.iterdir()) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "link").symlink_to(tmp_path / "outside")
    remove_folder(tmp_path / "clone")
    assert (tmp_path / "outside" / "kept").exists()
    assert not (tmp_path / "clone").exists()


def test_very_deep_folders(tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    remove_folder(folder)
    assert not folder.exists()


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    remove_folder(tmp_path / "never")
