"""Which names stand for git's own folder and files; git itself is asked. And a command that messages suggest."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.bot.git.work import invalid_entries
from orchestrator.bot.policy.change_checks import PathPolicy
from orchestrator.bot.suggestions import install_command
from orchestrator.core.changes import LINK_MODE, FileChange, FileVersion
from orchestrator.core.repositories import MODULES_FILE, folded_name, is_git_name
from orchestrator.engine.environments.files import split_path
from orchestrator.engine.policy.program_options import stays_inside
from tests.tables import table
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]

GIT = [
    *(
        ".git",
        ".GIT",
        ".gIt",
        ".git.",
        ".git ",
        ".git. .",
        ".git...",
        ".git:",
        ".git::$INDEX_ALLOCATION",
        ".git :x",
    ),
    *(
        "git~1",
        "GIT~1",
        "GiT~2",
        "git~1 ",
        "git~1.",
        "git~1:x",
        "git~99",
        "gi1f3a~1",
        "a\\.git",
        "a\\GIT~1",
        ".git\\x",
    ),
    *(
        ".g\u200cit",
        ".gi\u200dt",
        "\ufeff.git",
        ".git\u200e",
        ".\u202egit",
        ".g\u2060it",
        ".git\u206f",
        ".gi\u0307t",
    ),
    *(
        ".g\u0131t",
        ".g\u0130t",
        "\uff0egit",
        ".\uff47\uff49\uff54",
        ".\u24d6\u24d8\u24e3",
        ".git\u3164",
        " .git",
        ".g\0it",
    ),
    *(
        ".g\u00adit",
        ".git\ufe0f",
        ".git\uff1ax",
        "git\uff5e1",
        ".git\udcff",
        ".git\udcffabc",
        ".git\udc80.",
        ".gi\u20dft",
    ),
]
OTHERS = [
    *(
        "git",
        "gitx",
        ".gitx",
        ".github",
        ".gitignore",
        ".gitmodules",
        ".gitattributes",
        "..git",
        "x.git",
        "git~",
        "git~a",
    ),
    *(
        ".got",
        "\u0433it",
        ".git-x",
        ".gitkeep",
        "agit~1",
        "",
        ".",
        " ",
        "...",
        "legit",
        "a:.git",
        "~1",
        "gitmod~1",
    ),
]
MODULES = [
    *(
        ".gitmodules",
        ".GITMODULES",
        ".gitmodules ",
        ".gitmodules:x",
        ".gitmodules.",
        ".git\u200cmodules",
        "gitmod~1",
    ),
    *(
        "GITMOD~4",
        "gi7eba~1",
        "gi7eb~10",
        "gi7e~100",
        "~1000000",
        "a\\.gitmodules",
        "gitmod~1:$DATA",
        ".gitmodules\udcff",
    ),
]


@table("name", GIT, ids=ascii)
def test_every_part_of_the_program_refuses_a_name_of_gits_folder(name: str) -> None:
    assert is_git_name(name)
    assert PathPolicy()(_change(name)) == "inside .git"
    assert not stays_inside(f"docs/{name}/config")
    assert invalid_entries([("100644", f"docs/{name}")])
    with pytest.raises(Exception, match="is refused"):
        split_path(f"docs/{name}/config")


@table("name", OTHERS, ids=ascii)
def test_another_name_is_another_name(name: str) -> None:
    assert not is_git_name(name)


@table("name", MODULES, ids=ascii)
def test_a_list_of_submodules_waits_for_a_person_and_is_no_link(name: str) -> None:
    assert is_git_name(name, MODULES_FILE)
    assert PathPolicy()(_change(name)) is not None
    assert (name, "is a link in place of .gitmodules") in invalid_entries([(LINK_MODE, name)])
    assert not invalid_entries([("100644", name)])


@table(
    ("name", "own"),
    [
        ("gitatt~1", ".gitattributes"),
        ("GI7D29~1", ".gitattributes"),
        ("gitign~2", ".gitignore"),
        ("maba30~1", ".mailmap"),
    ],
)
def test_a_short_name_is_read_as_the_long_one(name: str, own: str) -> None:
    assert folded_name(name) == own


PIECES = st.sampled_from(
    [
        *".gGiItT~123 :\\x",
        ".git",
        "git~1",
        "GIT~",
        "modules",
        "MODULES",
        "gitmod",
        "gi7eba",
        "gi7e",
        "attributes",
        "$DATA",
        *"\u200c\u200d\u200e\u200f\u202a\u202e\u206a\u206f\ufeff",
        "\u0131",
        "\u0130",
        "\u0307",
        "\udcff",
        "\uff47",
        "\t",
    ]
)
NAMES = st.lists(PIECES, min_size=1, max_size=8).map("".join).filter(lambda name: name not in {".", ".."})


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=st.lists(NAMES, min_size=150, max_size=300))
def test_what_git_refuses_is_refused(drawn: list[str], tmp_path: Path) -> None:
    names = [*GIT, *MODULES, *OTHERS, *drawn]
    asked = [
        os.fsdecode(os.fsencode(name)) for name in names if name and "\0" not in name and "/" not in name
    ]
    for name, complaints in _complaints(tmp_path, asked):
        if "hasDotgit" in complaints:
            assert is_git_name(name), ascii(name)
        if "gitmodulesSymlink" in complaints:
            assert is_git_name(name, MODULES_FILE), ascii(name)


def test_git_refuses_what_it_is_known_to(tmp_path: Path) -> None:
    found = dict(_complaints(tmp_path, [*GIT[:13], *MODULES, *OTHERS[:10]]))
    assert [name for name in GIT[:13] if "hasDotgit" not in found[name]] == ["GiT~2"]
    assert all("gitmodulesSymlink" in found[name] for name in MODULES)
    assert not any("hasDotgit" in found[name] for name in OTHERS[:10])


@given(NAMES)
def test_what_is_left_out_of_a_name_twice_is_left_out_once(name: str) -> None:
    assert folded_name(folded_name(name)) == folded_name(name)


def _change(name: str) -> FileChange:
    return FileChange(f"docs/{name}", None, FileVersion("100644", b"x", 1))


def _complaints(folder: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    """What git's check of objects says against a tree with a link of each name; it knows every system's rules."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=b"x")
    listed = b"\0".join(f"120000 blob {blob}\t".encode() + os.fsencode(name) + b"\0" for name in names)
    trees = git(folder, "mktree", "-z", "--batch", stdin=listed + b"\0").split()
    assert len(trees) == len(names)
    checked = subprocess.run(["git", "-C", str(folder), "fsck"], capture_output=True, check=False)
    said: dict[str, str] = defaultdict(str)
    for line in checked.stderr.decode().splitlines():
        if match := re.search(r"in tree ([0-9a-f]+): (\w+)", line):
            said[match[1]] += f"{match[2]} "
    yield from zip(names, (said[tree] for tree in trees), strict=True)


def test_an_extra_is_installed_from_the_source_tree_into_this_environment() -> None:
    command = install_command("fleet")
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", f"{ROOT}[fleet]"]
