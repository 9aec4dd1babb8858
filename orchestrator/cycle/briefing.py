"""The first message of a session: the task, the repository's map, and the files most likely concerned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.contracts.fence import fenced, one_line
from orchestrator.core.errors import ToolError
from orchestrator.core.prompts import render
from orchestrator.cycle.documents import (
    LARGEST_SHOWN_BYTES,
    may_show,
    repository_map,
    size_words,
    text_of,
)
from orchestrator.cycle.relevance import named_files, path_overlap, query_of, word_scores
from orchestrator.profiles.base import UNIVERSAL_DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.cycle.documents import TrackedFile

INSTRUCTIONS_BYTES = 32 * 1024
_MAP_CHARS = 8_000
_TASK_CHARS = 20_000
_LEAST_TASK_CHARS = 2_000
_SUBJECT_CHARS = 100
_TITLE_CHARS = 300
_CANDIDATES = 300
_CANDIDATE_CHARS = 1_000_000
_NAMES = "the names of files"
_HEADING_CHARS = 20
"""What the template writes around a file's path and text, at most."""
_WORTH_SHOWING = 0.25
"""A file that matches the task's words less than this part of the best one is left out."""
_FOR_SOURCE = 1_000.0
"""More than the words and the name of any other file are worth."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class TaskWords(Protocol):
    """What a task says."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def body(self) -> str:
        """The rest, other people's words; may be empty."""

    @property
    def source(self) -> str:
        """`issue`, `text`, or the path of the file that lists the task."""

    @property
    def number(self) -> int | None:
        """The issue's number, if it is one."""

    @property
    def remarks(self) -> Sequence[RemarkWords]:
        """What people said about it, oldest first."""


class RemarkWords(Protocol):
    """A comment on a task."""

    @property
    def author(self) -> str:
        """Who wrote it."""

    @property
    def text(self) -> str:
        """Their words."""

    @property
    def trusted(self) -> bool:
        """Whether they may write to the repository."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """The first message, and the files whose whole text is in it or empty."""

    text: str
    shown: set[str]


@dataclass(frozen=True, slots=True)
class _Page:
    """A file as the template shows it."""

    path: str
    block: str

    @property
    def chars(self) -> int:
        return len(self.path) + len(self.block) + _HEADING_CHARS


async def first_message(  # noqa: PLR0913  all by name
    *,
    task: TaskWords,
    files: Sequence[TrackedFile],
    read: Callable[[str, int], Awaitable[bytes]],
    commits: Sequence[tuple[str, str]],
    budget: int,
    documents: Sequence[str] = (UNIVERSAL_DOCUMENT,),
    visible: Callable[[str, str], str] = lambda _path, text: text,
    looks_only: bool = False,
    brought: Sequence[str] = (),
    conflicts: Sequence[str] = (),
) -> Briefing:
    """Write the first message.

    Args:
        task: what is to be done.
        files: all files that git tracks.
        read: gives a file's content, at most so many bytes; raises `ToolError`.
        commits: short id and subject of recent commits, newest first.
        budget: most characters of file text. The map may have up to 8,000 more, the project's
            instructions 32 KB, the task 20,000; each of them less where the budget is small.
        documents: the names of instruction files, by path below a folder; in one folder in this order.
        visible: gives the text of a file, by path and text, as the model may see it; also the names of all.
        looks_only: no tool changes a file.
        brought: files that differ from the base already, by an earlier cycle on this task. None of them
            counts as instructions: a model wrote them.
        conflicts: those of them with conflict markers.
    """
    library = _Library(
        [file for file in files if not _instructs(file, documents, brought)], read, documents, visible
    )
    everything = sum(file.size + len(file.path) + _HEADING_CHARS for file in library.files.values()) <= budget
    order = sorted(library.files) if everything else await _most_likely(task, library)
    pages = await _pages(library, order, budget)
    folders = {folder for page in pages for folder in _folders_above(page.path)}
    instructions_bytes = min(INSTRUCTIONS_BYTES, budget)
    instructions, whole, cut = await _instructions(library, folders, instructions_bytes)
    map_text, unlisted = repository_map(files, min(_MAP_CHARS, max(budget // 4, 500)))
    text = render(
        "cycle/first",
        task=task,
        remarks=[
            (one_line(said.author, limit=_SUBJECT_CHARS), said.trusted, fenced(said.text))
            for said in task.remarks
        ],
        task_block=fenced(_task_text(task, min(_TASK_CHARS, max(budget, _LEAST_TASK_CHARS)))),
        instructions=instructions,
        cut_at=(_instructions_limit(instructions_bytes) if cut else None),
        file_count=len(files),
        map_block=fenced(visible(_NAMES, map_text)),
        unlisted=unlisted,
        commits=fenced(
            "\n".join(f"{name} {one_line(said, limit=_SUBJECT_CHARS, keep='`')}" for name, said in commits)
        )
        if commits
        else "",
        pages=pages,
        everything=everything,
        looks_only=looks_only,
        brought=_listed(brought, visible),
        conflicts=_listed(conflicts, visible),
    )
    empty = {file.path for file in files if file.kind == "file" and file.size == 0}
    return Briefing(text, {page.path for page in pages} | whole | empty)


def _instructs(file: TrackedFile, documents: Sequence[str], brought: Sequence[str]) -> bool:
    """Whether it would be a file of instructions, and an earlier cycle wrote it."""
    return file.path in brought and f"/{file.path}".endswith(tuple(f"/{name}" for name in documents))


def _listed(paths: Sequence[str], visible: Callable[[str, str], str]) -> list[str]:
    """Names as the model may see them, each as code on one line."""
    return [f"`{one_line(visible(_NAMES, path), limit=_TITLE_CHARS)}`" for path in paths]


class _Library:
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
    seen = visible(_NAMES, "\n".join(names)).split("\n")
    if len(seen) != len(names):
        return []
    return [file for file, name in zip(files, seen, strict=True) if file.path == name]


async def _most_likely(task: TaskWords, library: _Library) -> list[str]:
    """The files that the task names, then those that match its words best."""
    query = query_of(task.title, task.body)
    scores = named_files(query, list(library.files))
    if task.source in library.files:
        scores[task.source] = _FOR_SOURCE
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


async def _pages(library: _Library, order: Sequence[str], budget: int) -> list[_Page]:
    """As many whole files as fit, in this order."""
    pages: list[_Page] = []
    left = budget
    for path in order:
        if library.files[path].size > 4 * left:  # UTF-8 has at most four bytes a character
            continue
        text = await library.page(path)
        if text is None:
            continue
        page = _Page(path, fenced(text))
        if page.chars <= left:
            pages.append(page)
            left -= page.chars
    return pages


def _folders_above(path: str) -> list[str]:
    """The folders that a file is in, the root (empty) first, each other one with its `/`."""
    steps = path.split("/")[:-1]
    return ["".join(f"{step}/" for step in steps[:depth]) for depth in range(len(steps) + 1)]


async def _instructions(
    library: _Library, folders: set[str], limit_bytes: int
) -> tuple[list[_Page], set[str], bool]:
    """The instructions of these folders and the root, the root's first, up to a limit.

    Returns:
        The pages, which files are whole, and whether something was cut.
    """
    pages: list[_Page] = []
    whole: set[str] = set()
    left = limit_bytes
    from_the_root = sorted({"", *folders}, key=lambda folder: (folder.count("/"), folder))
    chain = [folder + name for folder in from_the_root for name in library.documents]
    for path in (path for path in chain if path in library.instructions):
        text = await library.page(path)
        if text is None:
            continue
        content = text.encode()
        kept = content[:left].decode(errors="ignore")
        if kept:
            pages.append(_Page(path, fenced(kept)))
        if len(content) > left:
            return pages, whole, True
        whole.add(path)
        left -= len(content)
    return pages, whole, False


def _instructions_limit(limit_bytes: int) -> str:
    return "32KB" if limit_bytes == INSTRUCTIONS_BYTES else size_words(limit_bytes)


def _task_text(task: TaskWords, limit: int) -> str:
    title = one_line(task.title, limit=_TITLE_CHARS, keep="`")
    body = _CONTROL.sub("", task.body.replace("\r\n", "\n")).strip()
    text = title if not body or body == task.title.strip() else f"{title}\n\n{body}"
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters are not shown]"


if TYPE_CHECKING:
    from orchestrator.cycle.tasks import Task

    def _conforms(task: Task) -> TaskWords:
        return task
