"""The first message of a session: the task, the relevant files, and a map of all files."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.attachments import MAX_TEXT_CHARACTERS, TaskAttachments
from orchestrator.bot.cycle.relevance import (
    NAMES,
    Library,
    ShownFile,
    most_likely,
    pages_within,
    query_of,
    repository_map,
    size_words,
)
from orchestrator.core.changes import is_test_path
from orchestrator.core.events import Defence, Guarded
from orchestrator.core.fence import fenced, one_line
from orchestrator.core.messages import Message, Role, Text
from orchestrator.core.prompts import render
from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT
from orchestrator.engine.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.bot.cycle.attachments import Attached
    from orchestrator.bot.cycle.earlier import Earlier, RestoredWork
    from orchestrator.bot.cycle.parts import Attempt
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import Profile


INSTRUCTIONS_BYTES = 32 * 1024
_MAP_CHARS = 8_000
_BRIEF_CHARS = 12_000
_TASK_CHARS = 20_000
_LEAST_TASK_CHARS = 2_000
_SUBJECT_CHARS = 100
_TITLE_CHARS = 300
_MOST_SUBJECTS = 3
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Briefing:
    """The first message of a session.

    Attributes:
        shown: the files that it shows completely, including empty ones.
        subject: the file that the task is most likely about; empty if none is shown.
        task: the part about the task.
        instructions: the project's instructions.
    """

    text: str
    shown: set[str]
    subject: str
    task: str
    instructions: str


async def first_message(  # noqa: PLR0913  all by name
    *,
    task: Task,
    files: Sequence[TrackedFile],
    read: Callable[[str, int], Awaitable[bytes]],
    commits: Sequence[tuple[str, str]],
    budget: int,
    documents: Sequence[str] = (UNIVERSAL_DOCUMENT,),
    visible: Callable[[str, str], str] = lambda _path, text: text,
    looks_only: bool = False,
    brought: Sequence[str] = (),
    conflicts: Sequence[str] = (),
    tests: str = "",
    brief: bool = False,
    whole_file: bool = False,
    attached: Sequence[Attached] = (),
) -> Briefing:
    """Compose the first message.

    Args:
        read: returns at most so many bytes of a file; raises `ToolError`.
        commits: short id and subject of recent commits, newest first.
        budget: most characters of file text. The map may have up to 8,000 more, the project's instructions 32
            KB, the task 20,000; each of them less if the budget is small.
        documents: names of instruction files; within a folder in this order.
        visible: returns the text of a file (path, text) in the form that the model may see; also used for
            names.
        looks_only: whether no tool can change files.
        brought: files that an earlier cycle on this task already changed. They never count as instructions,
            because a model wrote them.
        brief: for a small model, which is easily distracted: no commits, no map if every file is shown, and
            at most 12,000 characters of file text.
        whole_file: the reply has to be a changed file, so only the files of the task are shown. Tests are not
            mentioned: a small model that sees them fail copies the file unchanged.
        attached: files attached to the task.
    """
    budget = min(budget, _BRIEF_CHARS) if brief else budget
    library = Library(files, read, documents, visible, brought)
    everything = library.fits(budget) and not whole_file
    pages = await _pages(task, library, budget, everything=everything, whole_file=whole_file)
    folders = {folder for page in pages for folder in _folders_above(page.path)}
    instructions, whole, cut_at = await _instructions(library, folders, min(INSTRUCTIONS_BYTES, budget))
    map_text, unlisted = repository_map(files, min(_MAP_CHARS, max(budget // 4, 500)))
    subject = pages[0].path if pages and not everything else ""
    about: dict[str, Any] = {
        "task": task,
        "remarks": [
            (one_line(said.author, limit=_SUBJECT_CHARS), said.trusted, fenced(said.text))
            for said in task.remarks
        ],
        "task_block": fenced(_task_text(task, min(_TASK_CHARS, max(budget, _LEAST_TASK_CHARS)))),
    }
    text = render(
        "cycle/first_whole_file" if whole_file else "cycle/first",
        **about,
        subject=subject,
        paths=[page.path for page in pages],
        instructions=instructions,
        cut_at=cut_at,
        file_count=len(files),
        map_block="" if brief and everything and pages else fenced(visible(NAMES, map_text)),
        unlisted=unlisted,
        commits="" if brief else _commits_block(commits),
        pages=pages,
        everything=everything,
        looks_only=looks_only,
        brought=_listed(brought, visible),
        conflicts=_listed(conflicts, visible),
        tests=tests,
        attached=attached,
    )
    empty = {file.path for file in files if file.kind == "file" and file.size == 0}
    told = f"{render('cycle/task', **about, attached=attached)}\n\n{render('cycle/task_end', looks_only=looks_only)}"
    rules = "\n\n".join(f"`{page.path}`:\n{page.block}" for page in instructions)
    return Briefing(text, {page.path for page in pages} | whole | empty, subject, told, rules)


def _commits_block(commits: Sequence[tuple[str, str]]) -> str:
    lines = (f"{name} {one_line(said, limit=_SUBJECT_CHARS, keep='`')}" for name, said in commits)
    return fenced("\n".join(lines)) if commits else ""


async def _pages(
    task: Task, library: Library, budget: int, *, everything: bool, whole_file: bool
) -> list[ShownFile]:
    """Return the files that are shown completely: all of them, or the most relevant first."""
    likely = () if everything else await most_likely(task.title, task.body, task.source, library)
    order = sorted(library.files) if everything else likely
    if whole_file:
        order = _subjects(task, likely or sorted(library.files))
    return await pages_within(library, order, budget, languages=whole_file)


def _subjects(task: Task, likely: Sequence[str]) -> list[str]:
    """Return the files to be changed, the most likely first: those that the task names, without tests.

    If the task names only tests, they follow the most likely programs. The checklist that contains the task
    comes last.
    """
    files = [path for path in likely if path != task.source]
    mentioned = query_of(task.title, task.body).mentions
    named = [path for path in files if path in mentioned or path.rpartition("/")[2] in mentioned]
    tests = [path for path in named if is_test_path(path)]
    programs = [path for path in named if path not in tests]
    if not programs:
        likeliest = [path for path in files if not is_test_path(path)] or files
        programs = list(dict.fromkeys([*likeliest[:_MOST_SUBJECTS], *tests]))
    return [*programs, *(path for path in likely if path == task.source)]


def _listed(paths: Sequence[str], visible: Callable[[str, str], str]) -> list[str]:
    """Return names in the form that the model may see, each as code on one line."""
    return [f"`{one_line(visible(NAMES, path), limit=_TITLE_CHARS)}`" for path in paths]


def _folders_above(path: str) -> list[str]:
    """Return the folders that contain a file, the root (empty) first, all others with a trailing `/`."""
    steps = path.split("/")[:-1]
    return ["".join(f"{step}/" for step in steps[:depth]) for depth in range(len(steps) + 1)]


async def _instructions(
    library: Library, folders: set[str], limit_bytes: int
) -> tuple[list[ShownFile], set[str], str]:
    """Return the instruction files of these folders and the root, the root's first, up to a limit.

    Returns:
        The pages, the files that are complete, and the limit in words if something was cut.
    """
    pages: list[ShownFile] = []
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
            pages.append(ShownFile(path, fenced(kept)))
        if len(content) > left:
            return pages, whole, "32KB" if limit_bytes == INSTRUCTIONS_BYTES else size_words(limit_bytes)
        whole.add(path)
        left -= len(content)
    return pages, whole, ""


def _task_text(task: Task, limit: int) -> str:
    title = one_line(task.title, limit=_TITLE_CHARS, keep="`")
    body = _CONTROL.sub("", task.body.replace("\r\n", "\n")).strip()
    text = title if not body or body == task.title.strip() else f"{title}\n\n{body}"
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters are not shown]"


_RECENT_COMMITS = 8
_UNFETCHED = "nothing is fetched for replies that are whole files"
_OTHER_BASE = "instruction files count from the default branch only, so those of this branch are plain files"


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """Composes the first messages of one session."""

    attempt: Attempt
    files: Sequence[TrackedFile]
    environment: ExecutionEnvironment

    async def brief(
        self, profile: Profile, brought: RestoredWork, tests: str, *, whole_file: bool = False
    ) -> tuple[Message, Briefing]:
        """Compose the message for a model without any context. Return it as a message and in its parts.

        Args:
            brought: earlier work that was restored.
            whole_file: whether the reply has to be a changed file.

        Raises:
            PullwrightError: the forge or git failed.
        """
        parts = self.attempt.parts
        commits = await asyncio.to_thread(self.attempt.clone.recent_commits, _RECENT_COMMITS)
        attachments, task = self._attachments(profile), self.attempt.task
        attached = await (attachments.unfetched(task, _UNFETCHED) if whole_file else attachments.of(task))
        briefing = await first_message(
            task=task,
            files=self.files,
            read=lambda path, limit: self.environment.read_file(path, max_bytes=limit),
            visible=self.attempt.sanitizer.text,
            commits=[(line.commit[:8], self.attempt.sanitizer.words(line.subject)) for line in commits],
            budget=parts.options.context_characters,
            documents=await self._documents(profile, brought),
            looks_only=not any(
                parts.guards.shows(tool) and (tool.dangerous or tool.order is Order.ALONE)
                for tool in profile.tools
            ),
            brought=brought.paths,
            conflicts=brought.conflicts,
            tests=tests,
            brief=profile.is_brief,
            whole_file=whole_file,
            attached=attached,
        )
        text = briefing.text
        if parts.limits.rounds == 1 and not whole_file:
            text = f"{text}\n\n{render('agent/last_round')}"
        images = [one.image for one in attached if one.image is not None]
        return Message(Role.USER, (Text(text), *images)), briefing

    def _attachments(self, profile: Profile) -> TaskAttachments:
        parts, attempt = self.attempt.parts, self.attempt
        room = min(MAX_TEXT_CHARACTERS, parts.options.context_characters)
        return TaskAttachments(
            parts.forge,
            parts.download,
            attempt.sanitizer,
            attempt.emit,
            profile.supports_images,
            min(room, _BRIEF_CHARS) if profile.is_brief else room,
        )

    def go_on(self, earlier: Earlier, brought: RestoredWork) -> Message:
        """Compose the message for a continued conversation: what has changed since then."""
        answer = earlier.answer
        text = render(
            "cycle/resumed",
            why=earlier.state.why,
            answer=answer,
            answer_block=fenced(answer.text) if answer else "",
            paths=[f"`{path}`" for path in self.attempt.sanitizer.paths(brought.paths)],
            conflicts=[f"`{path}`" for path in self.attempt.sanitizer.paths(brought.conflicts)],
            base_moved=brought.base_moved,
            files_lost=earlier.state.files_lost,
        )
        return Message.user(text)

    async def is_default(self, brought: RestoredWork) -> bool:
        """Return whether the clone started from the default branch. Instructions on other branches are unreviewed."""
        parts = self.attempt.parts
        if brought.joined or not parts.options.other_base:
            return not brought.joined
        repository = await asyncio.to_thread(parts.forge.repository)
        return repository.default_branch == self.attempt.clone.base_branch

    async def _documents(self, profile: Profile, brought: RestoredWork) -> Sequence[str]:
        """Return the names of instruction files; none if the clone did not start from the default branch."""
        if not await self.is_default(brought):
            self.attempt.emit(Guarded(Defence.INSTRUCTIONS, _OTHER_BASE))
            return ()
        return profile.documents
