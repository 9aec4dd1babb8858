"""What a model is shown of a repository: which files can be shown, their text, and the map of all files."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from orchestrator.engine.contracts.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LARGEST_SHOWN_BYTES = 200_000
_LONGEST_LINE_CHARS = 5_000
_LONGEST_PATH_CHARS = 300
_KILO = 1_000
# Names of files that hold no text, or text that no person wrote.
_UNREADABLE_NAME = re.compile(
    r"(?:\.(?:7z|a|avif|bin|bmp|bz2|class|db|dll|dylib|eot|exe|gif|gz|ico|jar|jpeg|jpg|lib|mo|mov|mp[34]|npy|o|ogg"
    r"|onnx|otf|parquet|pdf|pkl|png|pyc|so|sqlite|svgz|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|whl|woff2?|xlsx?|xz|zip|zst"
    r"|lock|lockb|lockfile|min\.(?:js|mjs|css)|map)"
    r"|^(?:go\.sum|npm-shrinkwrap\.json|(?:package-lock|packages\.lock)\.json|pnpm-lock\.yaml))$"
)


class TrackedFile(Protocol):
    """A file that git tracks. `size` in bytes; `kind` is `file`, `link` or `submodule`."""

    @property
    def path(self) -> str:
        """Relative, with `/`; bytes that are not UTF-8 as surrogates."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def kind(self) -> str:
        """`file`, `link` or `submodule`."""


def shown_path(path: str) -> str:
    """The path in one line, what cannot be seen escaped. A model can name the file if nothing changed."""
    return one_line(path, limit=_LONGEST_PATH_CHARS)


def may_show(file: TrackedFile) -> bool:
    """Whether the file's name and size promise text that somebody wrote."""
    name = file.path.rpartition("/")[2].lower()
    return (
        file.kind == "file"
        and 0 < file.size <= LARGEST_SHOWN_BYTES
        and not _UNREADABLE_NAME.search(name)
        and shown_path(file.path) == file.path
    )


def text_of(content: bytes) -> str | None:
    """The text of a file as it is shown, or None where it is not UTF-8, binary, or made by a program."""
    if b"\0" in content:
        return None
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return None if max(map(len, text.split("\n"))) > _LONGEST_LINE_CHARS else text


def size_words(size: int) -> str:
    """A size in bytes as a person says it."""
    if size < _KILO:
        return f"{size} B"
    return f"{size / _KILO:.1f} kB" if size < _KILO * _KILO else f"{size / _KILO / _KILO:.1f} MB"


def repository_map(files: Sequence[TrackedFile], limit_chars: int) -> tuple[str, int]:
    """All files with their sizes, a line each; folders that do not fit are one line.

    Returns:
        The lines, at most `limit_chars` long together, and how many files have no line.
    """
    tree = _Tree(files)
    page = _MapPage(limit_chars)
    # Folders near the root are opened first, and of those the ones with the fewest files.
    waiting = [(0, 0, "")]
    too_large: list[str] = []
    while waiting:
        _, _, folder = heapq.heappop(waiting)
        if not page.replace(folder, tree.opened(folder)):
            too_large.append(folder)
            continue
        for child in tree.folders[folder]:
            heapq.heappush(waiting, (child.count("/"), tree.count[child], child))
    for folder in too_large:
        page.fill(tree.opened(folder))
    return page.text(), len(files) - page.files


class _MapPage:
    """The lines of a map, by path, and how many characters are left."""

    def __init__(self, limit_chars: int) -> None:
        self.files = 0
        self._lines: dict[str, str] = {}
        self._left = limit_chars

    def replace(self, folder: str, opened: dict[str, str]) -> bool:
        """Put a folder's content in the place of its own line, if all of it fits."""
        own = len(self._lines.get(folder, "")) + 1 if folder in self._lines else 0
        cost = sum(len(line) + 1 for line in opened.values()) - own
        if cost > self._left:
            return False
        self._lines.pop(folder, None)
        self._left -= cost
        self._lines.update(opened)
        self.files += sum(not path.endswith("/") for path in opened)
        return True

    def fill(self, opened: dict[str, str]) -> None:
        """Add as much of a folder's content as fits, below the folder's own line."""
        for path, line in opened.items():
            if len(line) + 1 > self._left:
                return
            self._lines[path] = line
            self._left -= len(line) + 1
            self.files += not path.endswith("/")

    def text(self) -> str:
        """The lines, sorted by path."""
        return "\n".join(self._lines[path] for path in sorted(self._lines))


class _Tree:
    """Folders by path (the root is empty, others end with `/`): their files' lines, subfolders and totals."""

    def __init__(self, files: Iterable[TrackedFile]) -> None:
        self.file_lines: dict[str, dict[str, str]] = defaultdict(dict)
        self.folders: dict[str, dict[str, None]] = defaultdict(dict)
        self.count: dict[str, int] = defaultdict(int)
        self._size: dict[str, int] = defaultdict(int)
        for file in files:
            self._add(file)

    def _add(self, file: TrackedFile) -> None:
        cut = file.path.rfind("/") + 1
        folder = file.path[:cut]
        note = size_words(file.size) if file.kind == "file" else file.kind
        self.file_lines[folder][file.path] = f"{shown_path(file.path)} ({note})"
        while folder:
            self.count[folder] += 1
            self._size[folder] += file.size
            above = folder[: folder.rfind("/", 0, -1) + 1]
            self.folders[above][folder] = None
            folder = above

    def opened(self, folder: str) -> dict[str, str]:
        """A line for each file of a folder, and one for each of its folders."""
        return {**self.file_lines[folder], **{child: self._line(child) for child in self.folders[folder]}}

    def _line(self, folder: str) -> str:
        files = "1 file" if self.count[folder] == 1 else f"{self.count[folder]} files"
        return f"{shown_path(folder)} ({files}, {size_words(self._size[folder])})"
