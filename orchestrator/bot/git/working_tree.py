"""The files of a folder where somebody else may write, as objects of a git directory that only this program writes.

Git opens none of them, and no `.gitignore` or `.gitattributes` among them: a named pipe would stop it, and a link would
lead it elsewhere. One walk by descriptors says what is there. The contents of new and changed files go to git as copies.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import stat
import struct
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Self

from orchestrator.bot.git.hostgit import decode_paths, encode_paths, storage_errors
from orchestrator.bot.git.objects import Difference, TreeEntry, change_index, look_up, write_tree
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.confined import ConfinedFolder, UnsuitableFileError, entry_at, open_regular
from orchestrator.engine.environments.patterns import IGNORE_FILE, MAX_RULES_BYTES, IgnoreRules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.core.confined import Entry

LARGEST_BYTES = 100 * 1024 * 1024
"""The largest file that becomes an object. GitHub refuses larger ones:
https://docs.github.com/en/repositories/working-with-files/managing-large-files"""

_SEEING = "cannot see what changed"
_READING = "cannot read what changed"
_REPOSITORY = ".git"
_ATTRIBUTES = ".gitattributes"
_MOST_ATTRIBUTES_BYTES = 1_000_000
_MOST_INDEX_BYTES = 1_000_000_000
_MOST_MODULE_INDEX_BYTES = 100_000_000
_MOST_POINTER_BYTES = 4_096
_STAGED = re.compile(rb"TREE.{4}\0-1 ", re.DOTALL)
"""In an index whose root is not a known tree since something was staged: "cache tree" in git's index-format."""
_CACHES = re.compile(
    r"\..*cache|__pycache__|.*\.py[co]|node_modules|\.?venv|\.tox|\.nox|\.gradle|.*\.egg-info|\.coverage"
)
"""Names of what programs make anew whenever they need it."""
_BATCH_BYTES = 32_000_000
_BATCH_FILES = 10_000
_CHUNK_BYTES = 1_048_576
_SHORT_DIGITS = 40
_FAST = 1
_READ_ONLY = 0o444
# How coarse the times of a file on another disk may be.
_OTHER_DISK_NS = 2_000_000_000
# Reasons why a folder could not be listed because it is none any more.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EAGAIN})

Signature = tuple[int, int, int, int, str | None]
"""The times of the last change of a file's status and content, its inode and its size, as git's index has them; and
its mode."""


@cache
def mode_of(mode: int) -> str | None:
    """Return git's mode of a file or a link from that of its status; None for anything else."""
    if stat.S_ISLNK(mode):
        return LINK_MODE
    if not stat.S_ISREG(mode):
        return None
    return "100755" if mode & stat.S_IXUSR else "100644"


def _signature(status: os.stat_result) -> Signature:
    return (
        status.st_ctime_ns,
        status.st_mtime_ns,
        status.st_ino & 0xFFFFFFFF,
        status.st_size & 0xFFFFFFFF,
        mode_of(status.st_mode),
    )


@dataclass(slots=True)
class Scan:
    """What differs between a folder and an index.

    Attributes:
        index: the entries of the index by path.
        modified: files and links that are in the index, and are not known to be the same; with their status.
        new: files and links that are not in the index and not ignored.
        removed: paths of the index at which there is no file any more.
        odd: what cannot be an entry of a tree: a repository, a named pipe in place of a file, and a folder that
            cannot be listed; and each submodule whose files are not those of its commit.
        ignored: files, and folders with a `/` at their end, that are not in the index and that ignore rules exclude,
            without caches and installed packages.
    """

    index: Mapping[str, TreeEntry]
    modified: dict[str, os.stat_result] = field(default_factory=dict)
    new: dict[str, os.stat_result] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Listing:
    """The entries of an index.

    Attributes:
        entries: by path.
        folders: the folders above them.
        same: the signatures that files have while they are the same as their entries; None until it is asked for.
    """

    entries: dict[str, TreeEntry]
    folders: frozenset[str]
    same: dict[str, Signature] | None = None

    def with_changes(self, wanted: Sequence[Difference]) -> _Listing:
        """Return the listing with the new entry of each difference."""
        entries = dict(self.entries)
        for found in wanted:
            if found.new is None:
                entries.pop(found.path, None)
            else:
                entries[found.path] = found.new
        # A folder of which the last file was removed is none of them any more.
        is_smaller = any(found.new is None for found in wanted)
        folders = (
            _folders_above(entries)
            if is_smaller
            else self.folders | _folders_above(found.path for found in wanted)
        )
        return _Listing(entries, folders, None if self.same is None else dict(self.same))

    def learn(self, path: str, known: tuple[Signature, str] | None) -> None:
        """Take up with which signature a file has which object."""
        if self.same is None:
            return
        entry = self.entries.get(path)
        if known is not None and entry == TreeEntry(known[0][-1] or "", known[1]):
            self.same[path] = known[0]
        else:
            self.same.pop(path, None)


def _folders_above(paths: Iterable[str]) -> frozenset[str]:
    folders: set[str] = set()
    for path in paths:
        above = path
        while (above := above.rpartition("/")[0]) and above not in folders:
            folders.add(above)
    return frozenset(folders)


@dataclass(frozen=True, slots=True)
class Stored:
    """Files that have become objects, and the reasons why others have not."""

    entries: Mapping[str, TreeEntry]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file or link as it was read."""

    path: str
    mode: str
    content: bytes


class WorkingTree:
    """The files of a folder where somebody else may write. It is not thread-safe.

    Attributes:
        pointers: the object that stands for another one in an index, by the other's id: what belongs into Git LFS.
        ignored_there: see `Scan.ignored`; of the last look at the whole folder.

    Args:
        git: has the objects, and a folder of ours for copies; without a working tree.
        root: the folder. Nobody else may write in the folders above it.
        times: an index whose times of unchanged files are trusted, so that these are not read again.
        converts: whether the `.gitattributes` of the folder apply, as in a commit; else every byte is kept.
        rules: contents of further files of ignore rules, the most important first.
    """

    def __init__(
        self,
        git: HostGit,
        root: Path,
        *,
        times: Path | None = None,
        converts: bool = True,
        rules: Sequence[bytes] = (),
    ) -> None:
        self._git, self.root, self._converts, self._rules = git, root, converts, rules
        self.pointers: dict[str, str] = {}
        self.ignored_there: list[str] = []
        self._times = times
        self._known: dict[str, tuple[Signature, str]] = {}
        self._unwatched: frozenset[str] = frozenset()
        # What each index had when it was read or written last, and its checksum then.
        self._listings: dict[Path, tuple[bytes, _Listing]] = {}

    def trust(self, times: Path) -> None:
        """Trust the times of another index, which git wrote when it wrote all files."""
        self._times, self._known = times, {}
        self._forget_same()

    @contextmanager
    def opened(self) -> Iterator[ConfinedFolder]:
        """Open the folder, and convert errors of the file system."""
        with storage_errors(_SEEING), ConfinedFolder(self.root) as folder:
            yield folder

    def index(self, index: Path) -> Mapping[str, TreeEntry]:
        """Return the entries of an index by path. One that is in conflict has no mode and no object."""
        return self._read_index(index).entries

    def change(self, index: Path, wanted: Sequence[Difference], *, doing: str) -> None:
        """Write the new entry of each difference into an index, as `change_index` does. It is not listed again."""
        if wanted:
            listing = self._read_index(index)
            change_index(self._git, index, wanted, doing=doing)
            changed = listing.with_changes(wanted)
            for one in wanted:
                changed.learn(one.path, self._known.get(one.path))
            self._listings[index] = self._checksum(index), changed

    def tree(self, index: Path, *, doing: str) -> str:
        """Return the tree id of an index, as `write_tree` does. Git notes it in the index, which keeps its entries."""
        listing = self._known_listing(self._checksum(index))
        tree = write_tree(self._git, index, doing=doing)
        if listing is not None:
            self._listings[index] = self._checksum(index), listing
        return tree

    def changed(self, index: Path, among: Collection[str] | None = None) -> set[str]:
        """Return the paths that differ from an index, and new ones that are not ignored.

        Args:
            among: the only paths to look at; by default the whole folder.
        """
        found = self.scan(index, among)
        entries = self.store(found.modified, index).entries
        modified = {
            path for path in found.modified if not self._is_same(entries.get(path), found.index[path])
        }
        every = {*modified, *found.new, *found.removed, *found.odd}
        return every if among is None else every & set(among)

    def _is_same(self, there: TreeEntry | None, known: TreeEntry) -> bool:
        if there is None or there == known:
            return there == known
        return there.mode == known.mode and self.pointers.get(there.object_id) == known.object_id

    def scan(self, index: Path, among: Collection[str] | None = None) -> Scan:
        """Compare the folder with an index, without reading a file. `among` is as for `changed`."""
        listing = self._read_index(index)
        self._load_times()
        found = Scan(listing.entries)
        with self.opened() as folder:
            looking = _Looking(
                found, folder, self._ignore_rules(folder), listing.folders, self._unchanged(listing)
            )
            if among is None:
                looking.at_everything()
                self.ignored_there = sorted(found.ignored)
            else:
                looking.at_paths(among)
        there = listing.entries.keys()
        missing = (there if among is None else there & set(among)) - looking.seen
        found.removed += [path for path in missing if looking.is_removed(path)]
        for path in self._unwatched:
            found.modified.pop(path, None)
        found.removed = sorted(set(found.removed) - self._unwatched)
        return found

    def ignored(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of files that ignore rules exclude."""
        with self.opened() as folder:
            rules = self._ignore_rules(folder)
            return {path for path in paths if rules.ignored(_names(path), is_dir=False)}

    def _ignore_rules(self, folder: ConfinedFolder) -> IgnoreRules:
        def read(names: tuple[str, ...]) -> bytes:
            try:
                return folder.read("/".join((*names, IGNORE_FILE)), MAX_RULES_BYTES)
            except OSError:
                return b""

        return IgnoreRules(read, self._rules)

    # -- from files to objects ---------------------------------------------------------------------------------------

    def store(self, paths: Collection[str], index: Path) -> Stored:
        """Make objects of files and links as they are now. None is left half done by an error.

        Args:
            index: what the paths are tracked as, on which conversions of line ends depend.
        """
        if not paths:
            return Stored({}, {})
        tracked = self._read_index(index).entries
        self._load_times()
        entries: dict[str, TreeEntry] = {}
        refused: dict[str, str] = {}
        with self.opened() as folder:
            attributes = self._attributes(folder, paths, index) if self._converts else {}
            signatures: dict[str, Signature] = {}
            with _Clock(self._git.folder) as clock:
                for batch in self._batches(folder, paths, entries, refused, signatures, clock):
                    converted = [one for one in batch if attributes and one.mode != LINK_MODE]
                    plain = [one for one in batch if not attributes or one.mode == LINK_MODE]
                    objects = {
                        **self._stored_plain(plain, tracked),
                        **self._stored_converted(converted, attributes, index),
                    }
                    for one in batch:
                        if one.path in objects:
                            entries[one.path] = TreeEntry(one.mode, objects[one.path])
                        else:
                            refused[one.path] = "git does not accept this path"
        for path, signature in signatures.items():
            if path in entries:
                self._known[path] = signature, entries[path].object_id
                for _, listing in self._listings.values():
                    listing.learn(path, self._known[path])
        return Stored(entries, refused)

    def _batches(  # noqa: PLR0913, PLR0917  it fills what its only caller collects
        self,
        folder: ConfinedFolder,
        paths: Collection[str],
        entries: dict[str, TreeEntry],
        refused: dict[str, str],
        signatures: dict[str, Signature],
        clock: _Clock,
    ) -> Iterator[list[_Copy]]:
        """Read files, some at once. Those whose object is known are not read, but added to `entries`."""
        batch: list[_Copy] = []
        size = 0
        places = sorted((os.path.dirname(path), os.path.basename(path)) for path in paths)  # noqa: PTH119, PTH120  names
        for above, group in groupby(places, key=lambda place: place[0]):
            names = [name for _, name in group]
            try:
                with folder.opened(above) as handle:
                    for name in names:
                        path = f"{above}/{name}" if above else name
                        try:
                            found = self._read(handle, name, path, entries, signatures, clock)
                        except OSError as error:
                            refused[path] = _reason(error)
                            continue
                        if found is not None:
                            batch.append(found)
                            size += len(found.content)
                        if size > _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                            yield batch
                            batch, size = [], 0
            except OSError as error:
                refused |= {f"{above}/{name}": _reason(error) for name in names}
        if batch:
            yield batch

    def _read(  # noqa: PLR0913, PLR0917  see `_batches`
        self,
        folder: int,
        name: str,
        path: str,
        entries: dict[str, TreeEntry],
        signatures: dict[str, Signature],
        clock: _Clock,
    ) -> _Copy | None:
        """Read a file or link, at most as many bytes as it has when it is opened; None if its object is known."""
        status = entry_at(folder, name).status
        if stat.S_ISLNK(status.st_mode):
            return _Copy(path, LINK_MODE, os.fsencode(os.readlink(name, dir_fd=folder)))
        with os.fdopen(open_regular(folder, name), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            mode = mode_of(status.st_mode) or ""
            known = self._known.get(path)
            if known is not None and known[0] == _signature(status):
                entries[path] = TreeEntry(mode, known[1])
                return None
            if status.st_size > LARGEST_BYTES:
                raise UnsuitableFileError(errno.EFBIG, f"is too large ({status.st_size:,} bytes)", path)
            content = _read_up_to(file.fileno(), status.st_size)
            if _signature(os.fstat(file.fileno())) == _signature(status) and clock.is_after(status):
                signatures[path] = _signature(status)
        return _Copy(path, mode, content)

    def _stored_plain(self, copies: Sequence[_Copy], tracked: Mapping[str, TreeEntry]) -> dict[str, str]:
        """Store contents unchanged. Return the objects by path."""
        objects = self._git.git_dir / "objects"
        ids = {one.path: self._object_id(one.content) for one in copies}
        # Only these are likely to be there already; one more copy of another does no harm.
        likely = {ids[path] for path in ids if path in tracked and tracked[path].object_id == ids[path]}
        there = look_up(self._git, sorted(likely), doing=_READING)
        for object_id, content in {ids[one.path]: one.content for one in copies}.items():
            if object_id not in there:
                _write_object(objects, object_id, content)
        return ids

    def _object_id(self, content: bytes) -> str:
        # Git's ids of objects, not a defence: https://git-scm.com/docs/hash-function-transition
        digest = hashlib.sha256() if self._has_long_ids else hashlib.sha1(usedforsecurity=False)
        digest.update(_header(content))
        digest.update(content)
        return digest.hexdigest()

    @cached_property
    def _has_long_ids(self) -> bool:
        for _, listing in self._listings.values():
            for one in listing.entries.values():
                if one.object_id:
                    return len(one.object_id) > _SHORT_DIGITS
        return self._git.run("rev-parse", "--show-object-format", doing=_READING).strip() == b"sha256"

    def _attributes(
        self, folder: ConfinedFolder, paths: Collection[str], index: Path
    ) -> dict[str, bytes | None]:
        """Return the attribute files that apply to paths; None for one that is only in the index."""
        places = {""}
        for path in paths:
            while (path := path.rpartition("/")[0]) and path not in places:
                places.add(path)
        entries = self.index(index)
        found: dict[str, bytes | None] = {}
        for place in places:
            path = f"{place}/{_ATTRIBUTES}" if place else _ATTRIBUTES
            if path in entries:
                found[path] = None
            with suppress(OSError):  # missing, a link, or too large: it does not apply
                found[path] = folder.read(path, _MOST_ATTRIBUTES_BYTES)
        return found

    def _stored_converted(
        self, copies: Sequence[_Copy], attributes: Mapping[str, bytes | None], index: Path
    ) -> dict[str, str]:
        """Store contents as git would under attributes: on copies, in a folder and an index of ours."""
        if not copies:
            return {}
        entries = self.index(index)
        paths = [one.path for one in copies]
        tracked = [path for path in {*attributes, *paths} if path in entries and entries[path].mode]
        with storage_errors(_READING), TemporaryDirectory(dir=self._git.folder, prefix="copies-") as place:
            root, scratch = Path(place) / "tree", Path(place) / "index"
            root.mkdir()
            with ConfinedFolder(root) as target:
                files = {path: content for path, content in attributes.items() if content is not None}
                for path, content in (files | {one.path: one.content for one in copies}).items():
                    with suppress(
                        FileExistsError, NotADirectoryError
                    ):  # a file, and below it another, read later
                        target.make_folder(os.path.dirname(path))  # noqa: PTH120  a name of git's
                        target.write(path, content)
            change_index(
                self._git,
                scratch,
                [Difference(path, None, entries[path]) for path in tracked],
                doing=_READING,
            )
            self._add(self._git.on(root), scratch, paths)
            added = self._list(scratch)
        return {path: added[path].object_id for path in paths if path in added}

    def _add(self, git: HostGit, index: Path, paths: Sequence[str]) -> None:
        """Add copies to an index. A run that fails changes nothing: halving finds the paths that git does not take."""
        words = ("update-index", "-z", "--add", "--replace", "--stdin")
        done = git.attempt(*words, doing=_READING, stdin=encode_paths(paths), index=index)
        if done.status != 0 and len(paths) > 1:
            half = len(paths) // 2
            self._add(git, index, paths[:half])
            self._add(git, index, paths[half:])

    def _unchanged(self, listing: _Listing) -> Mapping[str, Signature]:
        """Return the signatures of files that are known to be as a listing has them."""
        if listing.same is None:
            entries = listing.entries
            listing.same = {
                path: signature
                for path, (signature, object_id) in self._known.items()
                if (entry := entries.get(path)) is not None
                and entry.object_id == object_id
                and entry.mode == signature[-1]
            }
        return listing.same

    def _forget_same(self) -> None:
        for _, listing in self._listings.values():
            listing.same = None

    # -- the index ---------------------------------------------------------------------------------------------------

    def _read_index(self, index: Path) -> _Listing:
        """Return what is in an index. One that was read or written here before, or a copy of it, is not read again."""
        name = self._checksum(index)
        listing = self._known_listing(name)
        if listing is None:
            entries = self._list(index) if name else {}
            listing = _Listing(entries, _folders_above(entries))
        self._listings[index] = name, listing
        return listing

    def _known_listing(self, name: bytes) -> _Listing | None:
        return next((listing for known, listing in self._listings.values() if name and known == name), None)

    def _checksum(self, index: Path) -> bytes:
        with storage_errors(_READING):
            return _checksum(index)

    def _list(self, index: Path) -> dict[str, TreeEntry]:
        """Read an index, from lines `<mode> <object> <stage>TAB<path>`."""
        entries = {}
        output = self._git.run("ls-files", "-z", "--stage", doing=_READING, index=index)
        for line in decode_paths(output):
            fields, _, path = line.partition("\t")
            mode, object_id, stage = fields.split(" ")
            entries[path] = TreeEntry(mode, object_id) if stage == "0" else TreeEntry("", "")
        return entries

    def _load_times(self) -> None:
        """Take over which files are unchanged since an index was written, once."""
        times, self._times = self._times, None
        if times is None:
            return
        self._forget_same()
        with storage_errors(_READING), suppress(FileNotFoundError), times.open("rb") as file:
            written_ns = os.fstat(file.fileno()).st_mtime_ns
            known, unwatched = parse_times(file.read(_MOST_INDEX_BYTES), 32 if self._has_long_ids else 20)
            self._unwatched = frozenset(unwatched)
            # Git's own rule: what changed at the time of the write may have changed after it, too.
            self._known |= {
                path: found for path, found in known.items() if max(found[0][0], found[0][1]) < written_ns
            }


@dataclass(slots=True)
class _Looking:
    """One walk over a folder, which compares it with an index.

    Attributes:
        found: receives what differs.
        folder: the open folder.
        rules: its ignore rules.
        tracked: the folders with files that are in the index.
        unchanged: the signatures that files of the index have while they are the same.
        seen: paths of the index at which there is something.
        hidden: folders that could not be listed, each with a `/` at its end.
    """

    found: Scan
    folder: ConfinedFolder
    rules: IgnoreRules
    tracked: Collection[str]
    unchanged: Mapping[str, Signature]
    seen: set[str] = field(default_factory=set)
    hidden: list[str] = field(default_factory=list)

    def at_everything(self) -> None:
        """Walk over the folder."""
        # A folder may have very many files: each is looked at with as few calls as possible.
        unchanged, see = self.unchanged.get, self.seen.add
        for path, entry in self.folder.walk(enters=self._enters, on_error=self._skip):
            if unchanged(path) == _signature(entry.status):
                see(path)
            elif not entry.is_dir and entry.name != _REPOSITORY:
                self._note(path, entry)

    def at_paths(self, paths: Iterable[str]) -> None:
        """Look at those of the paths that the walk would come to."""
        for path in paths:
            entry = self.folder.find(path)
            if entry is None or entry.is_dir:
                continue
            if self.unchanged.get(path) == _signature(entry.status):
                self.seen.add(path)
            elif path in self.found.index or self._is_reached(path):
                self._note(path, entry)

    def _is_reached(self, path: str) -> bool:
        """Return whether the walk goes into each folder above a path."""
        names = _names(path)
        above = ("/".join(names[:count]) for count in range(1, len(names)))
        folders = ((folder, self.folder.find(folder)) for folder in above)
        return names[-1] != _REPOSITORY and all(
            entry is not None and entry.is_dir and self._enters(folder, entry) for folder, entry in folders
        )

    def _note(self, path: str, entry: Entry) -> None:
        """Take up a file that is not known to be the same."""
        if path in self.found.index:
            self.seen.add(path)
            if mode_of(entry.mode) is None:
                self.found.odd.append(path)
            else:
                self.found.modified[path] = entry.status
        elif (entry.is_file or entry.is_link) and not self.rules.ignored(_names(path), is_dir=False):
            self.found.new[path] = entry.status
        elif entry.is_file and not _CACHES.fullmatch(entry.name):
            self.found.ignored.append(path)

    def is_removed(self, path: str) -> bool:
        """Return whether a path of the index that was not seen has no file any more."""
        is_hidden = bool(self.hidden) and path.startswith(tuple(self.hidden))
        return not is_hidden and self.found.index[path].mode != SUBMODULE_MODE

    def _enters(self, path: str, entry: Entry) -> bool:
        """Return whether the walk goes into a folder: never into a repository, or what is ignored as a whole."""
        if path in self.tracked:
            return True
        known = self.found.index.get(path)
        is_submodule = known is not None and known.mode == SUBMODULE_MODE
        if is_submodule and known is not None and self._is_changed(path, known.object_id):
            self.found.odd.append(path)
        if entry.name == _REPOSITORY or is_submodule:
            return False
        if self.rules.ignored(_names(path), is_dir=True):
            if not _CACHES.fullmatch(entry.name):
                self.found.ignored.append(f"{path}/")
            return False
        is_repository = self.folder.exists(f"{path}/{_REPOSITORY}")
        if is_repository:
            self.found.odd.append(path)
        return not is_repository

    def _is_changed(self, path: str, commit: str) -> bool:
        """Return whether a submodule's folder, which a clone leaves empty, has other files than those of its commit.

        A command may have checked it out. Its own repository says which files are as they were then; git is not run in it.
        """
        try:
            names = {entry.name for entry in self.folder.entries(path)}
            if not names:
                return False
            place = self._repository_of(path) if _REPOSITORY in names else None
            if place is None or self._checked_out(place) != commit:
                return True
            content = self.folder.read(f"{place}/index", _MOST_MODULE_INDEX_BYTES)
            known, _ = parse_times(content, len(commit) // 2)
            if _STAGED.search(content):
                return True
            with self.folder.folder(path) as inner:
                return _differs(inner, {name: found[0] for name, found in known.items()})
        except (OSError, ValueError):
            return True

    def _repository_of(self, path: str) -> str | None:
        """Return the path of a submodule's git directory; None if it is not inside the folder."""
        place = f"{path}/{_REPOSITORY}"
        if self.folder.is_folder(place):
            return place
        words = self.folder.read(place, _MOST_POINTER_BYTES).decode("utf-8")
        target = posixpath.normpath(posixpath.join(path, words.removeprefix("gitdir:").strip()))
        return None if target.startswith(("/", "..")) else target

    def _checked_out(self, place: str) -> str:
        """Return the commit that is checked out in a git directory; empty if that is not plain to see."""
        head = self.folder.read(f"{place}/HEAD", _MOST_POINTER_BYTES).decode("ascii").strip()
        if head.startswith("ref: refs/") and ".." not in head:
            return self.folder.read(f"{place}/{head[5:]}", _MOST_POINTER_BYTES).decode("ascii").strip()
        return head

    def _skip(self, path: str, error: OSError) -> None:
        if error.errno not in _GONE:
            self.hidden.append(f"{path}/")
            self.found.odd.append(path)


def _differs(folder: ConfinedFolder, known: Mapping[str, Signature]) -> bool:
    """Return whether a folder has a changed, new or removed file. A file that its own rules ignore is none."""

    def read(names: tuple[str, ...]) -> bytes:
        try:
            return folder.read("/".join((*names, IGNORE_FILE)), MAX_RULES_BYTES)
        except OSError:
            return b""

    rules = IgnoreRules(read)
    seen = 0
    walked = folder.walk(
        enters=lambda path, entry: entry.name != _REPOSITORY and not rules.ignored(_names(path), is_dir=True),
        on_error=lambda _path, _error: None,
    )
    for path, entry in walked:
        if entry.is_dir or path == _REPOSITORY:
            continue
        if path in known:
            seen += 1
            if known[path] != _signature(entry.status):
                return True
        elif not rules.ignored(_names(path), is_dir=False):
            return True
    return seen < len(known)


def _names(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


class _Clock:
    """Tells whether a file changed at a time that is over, by the clock of the file system.

    Args:
        folder: of ours, on any disk of this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._place = TemporaryDirectory(dir=folder, prefix="clock-")
        self._made = Path(self._place.name).stat()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.cleanup()

    def is_after(self, status: os.stat_result) -> bool:
        """Return whether no later change can leave the file with these times."""
        is_same_disk = status.st_dev == self._made.st_dev
        now_ns = self._made.st_mtime_ns - (0 if is_same_disk else _OTHER_DISK_NS)
        return max(status.st_ctime_ns, status.st_mtime_ns) < now_ns


def _header(content: bytes) -> bytes:
    return b"blob %d\0" % len(content)


def _write_object(objects: Path, object_id: str, content: bytes) -> None:
    """Write a blob as git does, if it is no loose object yet: https://git-scm.com/docs/gitformat-loose.

    A process for each would take longer.
    """
    place = objects / object_id[:2]
    if os.path.lexists(place / object_id[2:]):
        return
    place.mkdir(exist_ok=True)
    # Git, and opening a clone again, remove what has such a name and was left by a process that was killed.
    with NamedTemporaryFile(dir=place, prefix="tmp_obj_", delete=False) as file:
        scratch = Path(file.name)
        packing = zlib.compressobj(_FAST)
        try:
            file.write(packing.compress(_header(content)) + packing.compress(content) + packing.flush())
            os.fchmod(file.fileno(), _READ_ONLY)
        except OSError:
            scratch.unlink()
            raise
    scratch.rename(place / object_id[2:])


def _read_up_to(file: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(file, min(size, _CHUNK_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _reason(error: OSError) -> str:
    """Return why a file was not read, for a person."""
    if isinstance(error, UnsuitableFileError):
        return f"it {error.strerror}"
    return f"it cannot be read: {'no permission' if isinstance(error, PermissionError) else error.strerror}"


def _checksum(index: Path) -> bytes:
    """Return what identifies an index's content: its size and the digest at its end. Empty if there is no index."""
    try:
        with index.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 32))
            return b"%d %b" % (size, file.read())
    except FileNotFoundError:
        return b""


_HEADER = struct.Struct(">4sII")
_STATUS = struct.Struct(">10I")
_FLAGS = struct.Struct(">H")
_UNWATCHED, _EXTENDED, _STAGE = 0x8000, 0x4000, 0x3000
_SKIPPED = 0x4000
_COMPRESSED = 4
_PADDED_TO = 8


def parse_times(content: bytes, id_bytes: int) -> tuple[dict[str, tuple[Signature, str]], set[str]]:
    """Read the times of the files from an index.

    Format: https://git-scm.com/docs/index-format, versions 2 to 4.

    Args:
        id_bytes: the length of an object's id.

    Returns:
        Signature and object of each file, by path; and the paths that git does not compare with the files (`git
        update-index --assume-unchanged`, sparse checkouts). Both are empty for content of another form.
    """
    try:
        return _parsed_times(content, id_bytes)
    except (struct.error, ValueError, IndexError):
        return {}, set()


def _parsed_times(content: bytes, id_bytes: int) -> tuple[dict[str, tuple[Signature, str]], set[str]]:
    magic, version, count = _HEADER.unpack_from(content)
    if magic != b"DIRC" or version not in {2, 3, _COMPRESSED}:
        raise ValueError(version)
    known: dict[str, tuple[Signature, str]] = {}
    unwatched: set[str] = set()
    position, name = _HEADER.size, b""
    for _ in range(count):
        start = position
        c_s, c_ns, m_s, m_ns, _, inode, mode, _, _, size = _STATUS.unpack_from(content, position)
        position += _STATUS.size
        object_id = content[position : position + id_bytes].hex()
        position += id_bytes
        (flags,) = _FLAGS.unpack_from(content, position)
        position += _FLAGS.size
        is_unwatched = bool(flags & _UNWATCHED)
        if flags & _EXTENDED:
            is_unwatched |= bool(_FLAGS.unpack_from(content, position)[0] & _SKIPPED)
            position += _FLAGS.size
        if version == _COMPRESSED:
            kept, position = _varint(content, position)
            end = content.index(b"\0", position)
            name = name[: len(name) - kept] + content[position:end]
            position = end + 1
        else:
            end = content.index(b"\0", position)
            name = content[position:end]
            position = start + (end - start) // _PADDED_TO * _PADDED_TO + _PADDED_TO
        if not stat.S_IFMT(mode) or flags & _STAGE:
            continue
        path = os.fsdecode(name)
        if is_unwatched:
            unwatched.add(path)
        signature = c_s * 10**9 + c_ns, m_s * 10**9 + m_ns, inode, size, mode_of(mode)
        known[path] = signature, object_id
    return known, unwatched


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Read a number of variable length; see `decode_varint` in git's `varint.c`. Return it and where it ends."""
    byte = content[position]
    value = byte & 127
    while byte & 128:
        position += 1
        byte = content[position]
        value = ((value + 1) << 7) | (byte & 127)
    return value, position + 1
