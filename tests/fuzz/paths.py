"""Fuzz target: the path resolver, on a real folder full of traps. Nothing outside is read, changed or made."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

from orchestrator.bot.git.folders import remove_folder
from orchestrator.core.errors import PathRefusedError, ToolError
from orchestrator.core.repositories import is_git_name
from orchestrator.engine.environments.files import ConfinedTree, collision_key, quoted, shown, split_path
from tests.fuzz.target import Target, pieces, text_of

INSIDE = b"inside "
OUTSIDE = b"outside "
CALLS_A_TREE = 300
MAX_BYTES = 10_000
DEEPEST_WRITTEN = 60
"""Folders; what lies deeper takes long to remove again, and is only looked at."""


class Traps:
    """A folder with links to everywhere, a `.git` and others, and a folder beside it."""

    def __init__(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="paths-"))
        self.outside = self.top / "outside"
        self.root = self.top / "root"
        for folder in (self.outside, self.root / "a" / "b", self.root / ".git", self.root / "sub" / ".git"):
            folder.mkdir(parents=True)
        for path in (
            self.outside / "secret",
            self.root / ".git" / "config",
            self.root / "sub" / ".git" / "config",
        ):
            path.write_bytes(OUTSIDE)
        for name in ("a/b/c", "a/x", "sub/y", "Case", "\u00e9", " ", "C:x"):
            (self.root / name).write_bytes(INSIDE)
        links = {"up": "..", "out": "../outside", "a/s": "../../outside/secret", "top": "/", "etc": "/etc/passwd",
                 "loop": "loop", "in": "a", "git": ".git", "zero": "/dev/zero", "self": "/proc/self"}  # fmt: skip
        for name, aim in links.items():
            (self.root / name).symlink_to(aim)
        os.mkfifo(self.root / "fifo")
        self.tree = ConfinedTree(self.root, submodules=("module",))
        self.before = self.seen()

    def seen(self) -> list[tuple[str, bytes]]:
        """All that no tool may change."""
        kept = (self.outside, self.root / ".git", self.root / "sub" / ".git")
        files = sorted(path for folder in kept for path in folder.rglob("*"))
        beside = [(name, b"") for name in sorted(path.name for path in self.top.iterdir())]
        return [*beside, *((str(path), path.read_bytes()) for path in files)]

    def close(self) -> None:
        self.tree.close()
        remove_folder(self.top)


class _Stage:
    """The traps, set up anew now and then."""

    traps: Traps | None = None
    calls = 0

    def get(self) -> Traps:
        self.calls += 1
        if self.traps is None or self.calls % CALLS_A_TREE == 0:
            self.clear()
            self.traps = Traps()
        return self.traps

    def clear(self) -> None:
        if self.traps is not None:
            self.traps.close()
        self.traps = None


STAGE = _Stage()
atexit.register(STAGE.clear)


def run(data: bytes) -> None:
    traps = STAGE.get()
    path = text_of(data).replace("ROOT", str(traps.root))
    _spelling(path)
    try:
        names = traps.tree.split(path)
    except PathRefusedError as error:
        _is_line(error)
        names = None
    _reads(traps, path, names)
    _writes(traps, path, names)
    assert traps.seen() == traps.before, f"{path!r} changed what is outside"


def _spelling(path: str) -> None:
    for text in (shown(path), quoted(path)):
        assert text.isprintable()
    assert collision_key(collision_key(path)) == collision_key(path)
    try:
        names = split_path(path)
    except PathRefusedError:
        return
    for name in names:
        assert name not in {"", ".", ".."}
        assert "/" not in name
        assert not is_git_name(name)
        assert not is_git_name(collision_key(name)), "a name that another file system takes for .git"
    normal = "/".join(("", *names))[1:]
    if normal.strip():
        assert split_path(normal) == names, "the normal form is another path"


def _reads(traps: Traps, path: str, names: tuple[str, ...] | None) -> None:
    try:
        content = traps.tree.read(path, max_bytes=MAX_BYTES)
    except ToolError as error:
        _is_line(error)
    else:
        assert names is not None
        assert content.startswith(INSIDE), f"{path!r} was read"
    traps_exists = _exists(traps, path)
    assert names is not None or not traps_exists
    if names is None:
        return
    try:
        entries = traps.tree.entries(names)
    except ToolError:
        return
    assert all(not is_git_name(entry.name) for entry in entries)
    assert "secret" not in {entry.name for entry in entries}


def _is_line(error: ToolError) -> None:
    assert "\n" not in str(error)


def _exists(traps: Traps, path: str) -> bool:
    try:
        return traps.tree.exists(path)
    except ToolError:
        return False


def _writes(traps: Traps, path: str, names: tuple[str, ...] | None) -> None:
    if names is not None and len(names) > DEEPEST_WRITTEN:
        return
    known = _exists(traps, path)
    try:
        traps.tree.write(path, INSIDE + b"new")
    except ToolError as error:
        _is_line(error)
        return
    assert names, f"{path!r} was written"
    real = os.path.realpath(traps.root.joinpath(*names))
    assert real == str(traps.root.resolve().joinpath(*names)), "through a link"
    assert traps.tree.read(path, max_bytes=MAX_BYTES) == INSIDE + b"new"
    if not known:
        traps.tree.remove(path)


TARGET = Target(
    run,
    pieces(
        "a/b/c", "./a//b/../x", "ROOT/a/x", "ROOT/../outside/secret", "out/secret", "up/outside/secret", "a/s", "in/x",
        "top/etc/passwd", "etc", "loop/x", "self/environ", "zero", "fifo", ".git/config", "sub/.git/config", "sub/y",
        "a/../.GIT/config", "GIT~1/config", "a/.g\u200cit/x", ".git::$INDEX_ALLOCATION/x", ".git. /x", "~/x", "C:x",
        "./C:x", "./C:/Windows", "c:/x", "\\\\server\\x", "case", "e\u0301", "\u00c9", "x" * 256, "d/" * 1500 + "x", "",
        " ", "./ ", "/", ".", "..", "module/x", "new/\u0130/x", "a\x00b", "a\nb", "a\u2028b", "\udc80", "\ufb01le",
        ".\u0261it/config", "./.g\u0131t/x",
    ),
    pieces(
        *"./\\~: \x00\n\x7f\u200b\u200c\u202e\u0301\u0130\u0131\u017f\ufb01\u2024\uff0e\u3164", "..", "../", "./", "//",
        "ROOT/", "a/", "b/", "up/", "out/", "in/", "top/", ".git", ".GIT", "git~1", "sub/", "module/", "secret", "C:",
        "config", "self/", "zero", "fifo", "\udc80", "g", "i", "t", "x",
    ),
)  # fmt: skip
