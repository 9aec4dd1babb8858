"""The repository inside the work tree, for the model's own git commands. Host git never runs on it.

Its files are whatever the model made of them: references are read as plain files, and objects through
our own git directory.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.names import is_branch_name, is_commit_id
from orchestrator.workspace.selection import link_stays

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from orchestrator.workspace.base import Identity
    from orchestrator.workspace.hostgit import HostGit

_READING = "they cannot be read"
_MISPLACED = "their objects are not where git puts them"
_NO_HEAD = "HEAD names no commit"
_MOST_COMMITS = 100
_MOST_REFERENCE_BYTES = 4_000_000
_MOST_IMPORTED_BYTES = 50_000_000
_MOST_LINK_BYTES = 4096
_HEAD_PREFIX = "ref: refs/heads/"
_FILE_MODES = {"100644", "100755"}
_LINK_MODE = "120000"
_GONE_MODE = "000000"
_OBJECT_FOLDER = re.compile(r"[0-9a-f]{2}|pack|info")

_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[user]
\tname = {name}
\temail = {email}
"""


@dataclass(frozen=True, slots=True)
class ModelCommit:
    """A commit that the model made, as changes to its first parent.

    Attributes:
        message: the model's words.
        index_lines: input of `git update-index -z --index-info`.
    """

    message: str
    index_lines: bytes


@dataclass(frozen=True, slots=True)
class _Change:
    mode: str
    blob: str
    path: bytes

    @property
    def index_line(self) -> bytes:
        return f"{self.mode} {self.blob}\t".encode("ascii") + self.path + b"\0"


def create_model_repository(host: Path, tree: Path, branch: str, commit: str, identity: Identity) -> None:
    """Make `tree/.git` with the history of the clone, and without any remote, URL or credential."""
    own = tree / ".git"
    own.mkdir()
    # Copies and not hard links: the model may write into its own files, and ours must stay as they are.
    shutil.copytree(host / "objects", own / "objects")
    for name in ("index", "shallow"):
        if (host / name).exists():
            shutil.copyfile(host / name, own / name)
    reference = own / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True)
    reference.write_text(f"{commit}\n", "ascii")
    (own / "HEAD").write_bytes(os.fsencode(f"{_HEAD_PREFIX}{branch}\n"))
    sha256 = len(commit) > 40  # noqa: PLR2004  digits of a SHA-1
    text = _CONFIGURATION.format(
        version=1 if sha256 else 0, name=_quoted(identity.name), email=_quoted(identity.email)
    )
    (own / "config").write_text(text + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""), "utf-8")


def _quoted(text: str) -> str:
    """A value in git's configuration syntax."""
    plain = "".join(letter for letter in text if letter.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


class ModelRepository:
    """Reads what the model committed since it was last asked.

    Args:
        git: git on our objects.
        tree: the work tree.
        base: the commit at which the model's repository began.
    """

    def __init__(self, git: HostGit, tree: Path, base: str) -> None:
        self._git = git
        self._tree = tree
        self._seen = base
        self._head: str | None = None

    def new_commits(self, limit_bytes: int) -> list[ModelCommit]:
        """The commits since the last `settle`, oldest first; their files' contents are then in our objects.

        Raises:
            WorkspaceError: they cannot be kept; the message says why.
        """
        self._head = None
        self._head = head = read_head(self._tree)
        if head == self._seen:
            return []
        self._require_plain_objects()
        commits = self._chain(head)
        changes = [self._changes(parent, commit) for parent, commit in commits]
        self._import_blobs({change for made in changes for change in made}, limit_bytes)
        return [
            ModelCommit(self._message(commit), b"".join(change.index_line for change in made))
            for (_, commit), made in zip(commits, changes, strict=True)
        ]

    def settle(self) -> None:
        """What `new_commits` found is dealt with: the next call begins after it."""
        if self._head is not None:
            self._seen = self._head

    def _read(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git on our directory with the model's objects within reach."""
        objects = str(self._tree / ".git" / "objects").replace("\\", "\\\\").replace('"', '\\"')
        variables = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"'}
        return self._git.run(*arguments, doing=_READING, stdin=stdin, variables=variables)

    def _require_plain_objects(self) -> None:
        """Refuse links and alternates: they would make this program read objects from elsewhere."""
        objects = self._tree / ".git" / "objects"
        try:
            if objects.is_symlink():
                raise WorkspaceError(_MISPLACED)
            for entry in _entries(objects):
                if not entry.is_dir(follow_symlinks=False) or not _OBJECT_FOLDER.fullmatch(entry.name):
                    raise WorkspaceError(_MISPLACED)
                names = {inner.name for inner in _plain_files(entry.path)}
                if entry.name == "info" and names & {"alternates", "http-alternates"}:
                    raise WorkspaceError("their objects are in another repository")
        except OSError as error:
            raise WorkspaceError(_READING) from error

    def _chain(self, head: str) -> list[tuple[str, str]]:
        """Pairs of first parent and commit, oldest first, beginning at what was seen last."""
        output = self._read(
            *("rev-list", "--first-parent", "--parents", f"--max-count={_MOST_COMMITS + 1}"),
            *(head, f"^{self._seen}", "--"),
        )
        rows = [line.split() for line in output.decode("ascii").splitlines()]
        if len(rows) > _MOST_COMMITS:
            message = f"there are more than {_MOST_COMMITS}"
            raise WorkspaceError(message)
        if not rows or len(rows[-1]) < 2 or rows[-1][1] != self._seen:  # noqa: PLR2004  commit and parent
            raise WorkspaceError("they do not follow the commit that the work began with")
        return [(row[1], row[0]) for row in reversed(rows)]

    def _changes(self, parent: str, commit: str) -> list[_Change]:
        """What a commit changed, from `:<old mode> <mode> <old blob> <blob> <status>NUL<path>NUL`."""
        output = self._read("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", parent, commit)
        pieces = output.split(b"\0")[:-1]
        changes = []
        for header, path in zip(pieces[::2], pieces[1::2], strict=True):
            _, mode, _, blob, _ = header.decode("ascii").removeprefix(":").split()
            if mode not in _FILE_MODES | {_LINK_MODE, _GONE_MODE}:
                raise WorkspaceError("one changes a submodule or a nested repository")
            changes.append(_Change(mode, blob, path))
        # Removals first: a file may have made way for a folder of its name.
        return sorted(changes, key=lambda change: change.mode != _GONE_MODE)

    def _import_blobs(self, changes: set[_Change], limit_bytes: int) -> None:
        """Check the contents and copy them into our objects; git computes their ids anew."""
        kept = [change for change in changes if change.mode != _GONE_MODE]
        blobs = sorted({change.blob for change in kept})
        if not blobs:
            return
        stdin = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
        sizes = {}
        for line in self._read("cat-file", "--batch-check", stdin=stdin).decode("ascii").splitlines():
            blob, _, about = line.partition(" ")
            kind, _, size = about.partition(" ")
            if kind != "blob":
                raise WorkspaceError("a file in them is missing")
            sizes[blob] = int(size)
        if max(sizes.values()) > limit_bytes:
            message = f"one has a file of more than {limit_bytes:,} bytes"
            raise WorkspaceError(message)
        if sum(sizes.values()) > _MOST_IMPORTED_BYTES:
            message = f"they have more than {_MOST_IMPORTED_BYTES:,} bytes"
            raise WorkspaceError(message)
        self._require_links_inside(kept, sizes)
        pack = self._read("pack-objects", "--quiet", "--stdout", stdin=stdin)
        self._git.run("index-pack", "--stdin", doing=_READING, stdin=pack)

    def _require_links_inside(self, changes: Iterable[_Change], sizes: dict[str, int]) -> None:
        for change in changes:
            if change.mode != _LINK_MODE:
                continue
            target = b"/"
            if sizes[change.blob] <= _MOST_LINK_BYTES:
                target = self._read("cat-file", "blob", change.blob)
            if not link_stays(os.fsdecode(change.path), os.fsdecode(target)):
                raise WorkspaceError("one has a symbolic link that leaves the repository")

    def _message(self, commit: str) -> str:
        output = self._read("log", "-1", "--encoding=UTF-8", "--format=%B", commit, "--")
        return output.decode("utf-8", "replace")


def read_head(tree: Path) -> str:
    """The commit that the model's HEAD names, from the files of `tree/.git`, no link followed.

    Raises:
        WorkspaceError: there is none, it is detached, or the files are damaged.
    """
    head = os.fsdecode(_read_plain(tree, ".git", "HEAD")).strip()
    branch = head.removeprefix(_HEAD_PREFIX)
    if is_commit_id(head):
        raise WorkspaceError("HEAD is detached")
    if branch == head or not is_branch_name(branch):
        raise WorkspaceError(_NO_HEAD)
    try:
        found = (
            _read_plain(tree, ".git", "refs", "heads", *branch.split("/")).decode("ascii", "replace").strip()
        )
    except WorkspaceError:
        found = _packed(_read_plain(tree, ".git", "packed-refs"), f"refs/heads/{branch}")
    if not is_commit_id(found):
        raise WorkspaceError(_NO_HEAD)
    return found


def _packed(content: bytes, reference: str) -> str:
    """Look a reference up in `packed-refs`: lines of `<object> <reference>`."""
    for line in content.split(b"\n"):
        commit, _, name = line.partition(b" ")
        if os.fsdecode(name) == reference:
            return commit.decode("ascii", "replace")
    return ""


def _read_plain(root: Path, *parts: str) -> bytes:
    """Read a regular file, walking down without following a link."""
    folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    opened: list[int] = []
    try:
        opened.append(os.open(root, folder_flags))
        for part in parts[:-1]:
            opened.append(os.open(part, folder_flags, dir_fd=opened[-1]))
        # Without O_NONBLOCK, opening a named pipe would wait for ever.
        opened.append(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        about = os.fstat(opened[-1])
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_REFERENCE_BYTES:
            raise WorkspaceError(_NO_HEAD)
        with os.fdopen(os.dup(opened[-1]), "rb") as file:
            return file.read(_MOST_REFERENCE_BYTES)
    except OSError as error:
        raise WorkspaceError(_NO_HEAD) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _plain_files(folder: str) -> list[os.DirEntry[str]]:
    entries = _entries(folder)
    if not all(entry.is_file(follow_symlinks=False) for entry in entries):
        raise WorkspaceError(_MISPLACED)
    return entries
