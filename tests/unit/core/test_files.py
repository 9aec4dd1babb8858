from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [(None, None, 0o600), (0o640, None, 0o640), (None, 0o755, 0o755), (0o600, 0o644, 0o644)],
)
def test_the_content_and_the_permissions(
    before: int | None, asked: int | None, after: int, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    if before is not None:
        path.write_bytes(b"the old content, which is longer")
        path.chmod(before)
    replace_file(path, b"new", asked)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == after
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_replaced_is_unchanged_and_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "settings.toml"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(folder, b"new")
    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == [folder / "inside"]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "absent" / "file", b"new")
