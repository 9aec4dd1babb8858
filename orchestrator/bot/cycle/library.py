"""Which files the first message shows whole: those that the task names, then those that match its words best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.documents import LARGEST_SHOWN_BYTES, may_show, text_of
from orchestrator.bot.cycle.relevance import named_files, path_overlap, query_of, word_scores
from orchestrator.core.errors import ToolError
from orchestrator.engine.contracts.fence import fenced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.bot.cycle.documents import TrackedFile

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
class Page:
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
                self._texts[path] = text_of(await self._read(path, LARGEST_SHOWN_BYTES))
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
) -> list[Page]:
    """As many whole files as fit, in this order; with `languages`, each fence names that of its file."""
    pages: list[Page] = []
    left = budget
    for path in order:
        if library.files[path].size > 4 * left:  # UTF-8 has at most four bytes a character
            continue
        text = await library.page(path)
        if text is None:
            continue
        page = Page(path, fenced(text, _language(path) if languages else ""))
        if page.chars <= left:
            pages.append(page)
            left -= page.chars
    return pages
