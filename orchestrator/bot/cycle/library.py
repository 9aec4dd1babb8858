"""Which files the first message shows whole, and the map of all files."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.guards import shown_path
from orchestrator.bot.cycle.relevance import named_files, path_overlap, query_of, word_scores
from orchestrator.core.errors import ToolError
from orchestrator.core.fence import fenced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from orchestrator.bot.git.base import TrackedFile


NAMES = "the names of files"
"""What is looked at where no file's text is."""
_CANDIDATES = 300
_CANDIDATE_CHARS = 1_000_000
_HEADING_CHARS = 20
"""What the template writes around a file's path and text, at most."""
_WORTH_SHOWING = 0.25
"""A file that matches the task's words less than this part of the best one is left out."""
_LANGUAGES = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "rb": "ruby",
    "rs": "rust",
    "md": "markdown",
}
_FOR_SOURCE = 1_000.0
"""More than the words and the name of any other file are worth."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file as the template shows it."""

    path: str
    block: str

    @property
    def chars(self) -> int:
        """How much of the message it takes."""
        return len(self.path) + len(self.block) + _HEADING_CHARS


class Library:
    """The files that can be shown, each read once."""

    def __init__(
        self,
        files: Sequence[TrackedFile],
        read: Callable[[str, int], Awaitable[bytes]],
        documents: Sequence[str],
        visible: Callable[[str, str], str],
    ) -> None:
        shown = _plainly_named([file for file in files if may_show(file)], visible)
        suffixes = tuple(f"/{name}" for name in documents)
        self.documents = documents
        self.instructions = {file.path for file in shown if f"/{file.path}".endswith(suffixes)}
        self.files = {file.path: file for file in shown if file.path not in self.instructions}
        self._read, self._visible = read, visible
        self._texts: dict[str, str | None] = {}

    def fits(self, budget: int) -> bool:
        """Whether all of them can be shown in so many characters."""
        return sum(file.size + len(file.path) + _HEADING_CHARS for file in self.files.values()) <= budget

    async def text(self, path: str) -> str | None:
        """The file's text, or None where it cannot be shown."""
        if path not in self._texts:
            try:
                self._texts[path] = shown_text(await self._read(path, LARGEST_SHOWN_BYTES))
            except ToolError:
                self._texts[path] = None
        return self._texts[path]

    async def page(self, path: str) -> str | None:
        """The file's text as the model may see it, or None where it cannot be shown."""
        text = await self.text(path)
        return None if text is None else self._visible(path, text)


def _plainly_named(files: Sequence[TrackedFile], visible: Callable[[str, str], str]) -> list[TrackedFile]:
    """Those whose names the model may see as they are. The others are in the map only."""
    names = [file.path for file in files]
    seen = visible(NAMES, "\n".join(names)).split("\n")
    if len(seen) != len(names):
        return []
    return [file for file, name in zip(files, seen, strict=True) if file.path == name]


async def most_likely(title: str, body: str, source: str, library: Library) -> list[str]:
    """The files that a task names, then those that match its words best. `source` may be the file that lists it."""
    query = query_of(title, body)
    scores = named_files(query, list(library.files))
    if source in library.files:
        scores[source] = _FOR_SOURCE
    texts: dict[str, str] = {}
    left = _CANDIDATE_CHARS
    by_name = sorted(
        library.files, key=lambda path: (-scores.get(path, 0.0), -path_overlap(query, path), path)
    )
    for path in by_name[:_CANDIDATES]:
        if left <= 0:
            break
        if (text := await library.text(path)) is not None:
            texts[path] = text
            left -= len(text)
    by_words = word_scores(query, texts)
    least = max(by_words.values(), default=0.0) * _WORTH_SHOWING
    total = {
        path: scores.get(path, 0.0) + score for path, score in by_words.items() if score or path in scores
    }
    likely = [path for path in total if path in scores or by_words[path] >= least]
    return sorted(likely, key=lambda path: (-total[path], path))


def _language(path: str) -> str:
    """What Markdown calls the language of a file; its suffix where that does as well."""
    suffix = path.rpartition("/")[2].rpartition(".")[2]
    return _LANGUAGES.get(suffix, suffix if suffix.isalnum() and suffix.isascii() else "")


async def pages_within(
    library: Library, order: Sequence[str], budget: int, *, languages: bool = False
) -> list[ShownFile]:
    """As many whole files as fit, in this order; with `languages`, each fence names that of its file."""
    pages: list[ShownFile] = []
    left = budget
    for path in order:
        if library.files[path].size > 4 * left:  # UTF-8 has at most four bytes a character
            continue
        text = await library.page(path)
        if text is None:
            continue
        page = ShownFile(path, fenced(text, _language(path) if languages else ""))
        if page.chars <= left:
            pages.append(page)
            left -= page.chars
    return pages


LARGEST_SHOWN_BYTES = 200_000
_LONGEST_LINE_CHARS = 5_000
_KILO = 1_000
# Names of files that hold no text, or text that no person wrote.
_UNREADABLE_NAME = re.compile(
    r"(?:\.(?:7z|a|avif|bin|bmp|bz2|class|db|dll|dylib|eot|exe|gif|gz|ico|jar|jpeg|jpg|lib|mo|mov|mp[34]|npy|o|ogg"
    r"|onnx|otf|parquet|pdf|pkl|png|pyc|so|sqlite|svgz|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|whl|woff2?|xlsx?|xz|zip|zst"
    r"|lock|lockb|lockfile|min\.(?:js|mjs|css)|map)"
    r"|^(?:go\.sum|npm-shrinkwrap\.json|(?:package-lock|packages\.lock)\.json|pnpm-lock\.yaml))$"
)


def may_show(file: TrackedFile) -> bool:
    """Whether the file's name and size promise text that somebody wrote."""
    name = file.path.rpartition("/")[2].lower()
    return (
        file.kind == "file"
        and 0 < file.size <= LARGEST_SHOWN_BYTES
        and not _UNREADABLE_NAME.search(name)
        and shown_path(file.path) == file.path
    )


def shown_text(content: bytes) -> str | None:
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
