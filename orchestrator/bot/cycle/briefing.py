"""What a session's model is given at its start: the task, its attachments, relevant files, and a map."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

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
from orchestrator.core.errors import ForgeError, ToolError
from orchestrator.core.events import Defence, Guarded, ReplyReceived, Warned
from orchestrator.core.messages import Image, Message, Role, Text
from orchestrator.core.prompts import fence_after, fenced, one_line, render, shown_path
from orchestrator.engine.profiles.base import OTHER_DOCUMENTS, UNIVERSAL_DOCUMENT
from orchestrator.engine.tools.base import Order
from orchestrator.engine.tools.files import MAX_IMAGE_BYTES
from orchestrator.engine.tools.textfile import decode_text, image_type, is_pdf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from orchestrator.bot.cycle.attempt import Attempt
    from orchestrator.bot.cycle.earlier import Earlier, RestoredWork
    from orchestrator.bot.cycle.parts import Download, Sanitizer
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import AttachmentPlace, Forge
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.bot.git.clone import Clone
    from orchestrator.core.events import Emit
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
_SAID_CHARS = 2_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Briefing:
    """The first message of a session.

    Attributes:
        shown: the files that it shows completely, including empty ones.
        subject: the file that the task is most likely about; empty if none is shown.
        subject_block: its content, in a fenced block.
        task: the part about the task.
        instructions: the project's instructions.
        unread: instruction files that cannot be shown.
        nested: instructions of folders of which no file is shown, as Markdown, by folder with a `/` at its end.
    """

    text: str
    shown: set[str]
    subject: str
    task: str
    instructions: str
    subject_block: str = ""
    unread: tuple[str, ...] = ()
    nested: Mapping[str, str] = field(default_factory=dict)


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
    restored: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
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
        budget: most characters of file text. The map may have up to 8,000 more, the project's instructions
            32 KB, the task 20,000; each of them less if the budget is small.
        documents: names of instruction files; within a folder in this order.
        visible: returns the text of a file (path, text) in the form that the model may see; also used for
            names.
        looks_only: whether no tool can change files.
        restored: files that an earlier cycle on this task already changed. They never count as instructions,
            because a model wrote them.
        links: see `Library`.
        brief: for a small model, which is easily distracted: no commits, no map if every file is shown, and
            at most 12,000 characters of file text.
        whole_file: the reply has to be a changed file, so only the files of the task are shown. Tests are not
            mentioned: a small model that sees them fail copies the file unchanged.
        attached: files attached to the task.
    """
    budget = min(budget, _BRIEF_CHARS) if brief else budget
    library = Library(files, read, documents, visible, restored, links)
    pages, everything = await _pages(task, library, budget, whole_file=whole_file)
    instructions, whole, cut_at, unread = await _instructions(library, pages, min(INSTRUCTIONS_BYTES, budget))
    map_text, unlisted = repository_map(files, min(_MAP_CHARS, max(budget // 4, 500)))
    subject = pages[0].path if pages and not everything else ""
    about: dict[str, Any] = {
        "task": task,
        "remarks": [
            (one_line(remark.author, limit=_SUBJECT_CHARS), remark.trusted, fenced(remark.text))
            for remark in task.remarks
        ],
        "task_block": fenced(_task_text(task, min(_TASK_CHARS, max(budget, _LEAST_TASK_CHARS)))),
    }
    lines = [f"{commit} {one_line(subject, limit=_SUBJECT_CHARS, keep='`')}" for commit, subject in commits]
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
        commits=fenced("\n".join(lines)) if lines and not brief else "",
        pages=pages,
        everything=everything,
        looks_only=looks_only,
        brought=_listed(restored, visible),
        conflicts=_listed(conflicts, visible),
        tests=tests,
        attached=attached,
    )
    empty = {file.path for file in files if file.kind == "file" and file.size == 0}
    about_task = render("cycle/task", **about, attached=attached)
    about_task += f"\n\n{render('cycle/task_end', looks_only=looks_only)}"
    rules = "\n\n".join(f"`{page.path}`:\n{page.block}" for page in instructions)
    shown = {page.path for page in pages} | whole | empty
    block = pages[0].block if subject else ""
    nested = {} if whole_file else await _nested(library, {page.path for page in instructions})
    return Briefing(text, shown, subject, about_task, rules, block, tuple(unread), nested)


_MOST_NESTED = 50
_NESTED_BYTES = 8 * 1024


async def _nested(library: Library, shown: Collection[str]) -> dict[str, str]:
    """Return the instructions of the other folders, each cut at 8 KB."""
    found: dict[str, str] = {}
    for name, path in sorted(library.instructions.items())[:_MOST_NESTED]:
        folder = next(
            (name.removesuffix(one) for one in library.documents if f"/{name}".endswith(f"/{one}")), ""
        )
        text = await library.page(path) if folder and path not in shown else None
        if text is not None:
            kept = text.encode()[:_NESTED_BYTES].decode(errors="ignore")
            found[folder] = found.get(folder, "") + f"`{path}`:\n{fenced(kept)}\n"
    return found


async def _pages(
    task: Task, library: Library, budget: int, *, whole_file: bool
) -> tuple[list[ShownFile], bool]:
    """Return the files that are shown completely, and whether these are all: otherwise the most relevant first."""
    if not whole_file and sum(file.size for file in library.files.values()) <= budget:
        pages = await pages_within(library, sorted(library.files), budget)
        left_out = library.files.keys() - {page.path for page in pages}
        if all([await library.text(path) is None for path in left_out]):
            return pages, True
    likely = await most_likely(task.title, task.body, task.source, library)
    order = _subjects(task, likely or sorted(library.files)) if whole_file else likely
    return await pages_within(library, order, budget, languages=whole_file), False


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


UNREAD = "it is too large, generated, or in an encoding that is not sure"
_MOST_HOPS = 5


def document_links(clone: Clone, files: Sequence[TrackedFile]) -> dict[str, str]:
    """Return the links of the base with the name of an instruction file, each with the file of it that it leads to."""
    names = {name.rpartition("/")[2] for name in (UNIVERSAL_DOCUMENT, *OTHER_DOCUMENTS)}
    kinds = {file.path: file.kind for file in files}
    found = {}
    for link in (path for path, kind in kinds.items() if kind == "link" and path.rpartition("/")[2] in names):
        place = link
        for _ in range(_MOST_HOPS):
            if kinds.get(place) != "link":
                break
            target = clone.trees.link_target(clone.base_commit, place)
            place = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if kinds.get(place) == "file":
            found[link] = place
    return found


class _Instructions(NamedTuple):
    """Instruction files as they are shown.

    Attributes:
        whole: the files that are complete.
        cut_at: the limit in words if something was cut.
        unread: those that cannot be shown.
    """

    pages: list[ShownFile]
    whole: set[str]
    cut_at: str
    unread: list[str]


async def _instructions(library: Library, shown: Sequence[ShownFile], limit_bytes: int) -> _Instructions:
    """Return the instruction files of the folders above shown files with what they import, the root's first."""
    pages: list[ShownFile] = []
    whole: set[str] = set()
    left = limit_bytes
    folders = {"", *(folder for page in shown for folder in _folders_above(page.path))}
    ordered = sorted(folders, key=lambda folder: (folder.count("/"), folder))
    places = [folder + name for folder in ordered for name in library.documents]
    waiting = deque((library.instructions[place], 0) for place in places if place in library.instructions)
    unread: list[str] = []
    seen: set[str] = set()
    while waiting:
        path, depth = waiting.popleft()
        if path in seen:
            continue
        seen.add(path)
        text = await library.page(path)
        if text is None:
            unread.append(path)
            continue
        if depth < _MOST_IMPORTS_DEEP:
            waiting.extendleft((one, depth + 1) for one in reversed(imports_of(path, text, library.known)))
        content = text.encode()
        kept = content[:left].decode(errors="ignore")
        if kept:
            pages.append(ShownFile(path, fenced(kept)))
        if len(content) > left:
            limit = "32KB" if limit_bytes == INSTRUCTIONS_BYTES else size_words(limit_bytes)
            return _Instructions(pages, whole, limit, unread)
        whole.add(path)
        left -= len(content)
    return _Instructions(pages, whole, "", unread)


async def instruction_files(
    files: Sequence[TrackedFile],
    read: Callable[[str, int], Awaitable[bytes]],
    links: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """Return the instruction files of all folders that models are shown, and those that cannot be shown.

    Args:
        read: see `first_message`.
        links: see `Library`.
    """
    library = Library(files, read, (UNIVERSAL_DOCUMENT,), lambda _path, text: text, links=links)
    every = [ShownFile(path, "") for path in library.instructions.values()]
    found = await _instructions(library, every, INSTRUCTIONS_BYTES * _MOST_NESTED)
    return [page.path for page in found.pages], found.unread


_MOST_IMPORTS_DEEP = 5
_POINTER_CHARS = 300
_IMPORT = re.compile(r"(?<![\w@/.-])@([\w./-]++)")
_INLINE_CODE = re.compile(r"`[^`\n]*`")


def imports_of(path: str, text: str, known: Collection[str]) -> list[str]:
    """Return the files that an instruction file imports by `@path`, outside of code, relative to its folder or the top.

    A short file that only names another program's file stands for it. It may be a link that became a text, as Windows
    checks links out.
    """
    found: dict[str, None] = {}
    if len(text) <= _POINTER_CHARS:
        folder = posixpath.dirname(path)
        words = {
            word.strip("`*\"'()[]<>@").rstrip("`*\"')]>.,:;").removeprefix("./")
            for word in re.split(r"[\s(\[]", text)
        }
        named = (
            posixpath.normpath(posixpath.join(folder, name)) for name in OTHER_DOCUMENTS if name in words
        )
        found |= dict.fromkeys(target for target in named if target in known and target != path)
    fence = ""
    for line in text.split("\n"):
        before, fence = fence, fence_after(line.lstrip(), fence)
        for name in () if before or fence else _IMPORT.findall(_INLINE_CODE.sub("", line)):
            for folder in dict.fromkeys((posixpath.dirname(path), "")):
                target = posixpath.normpath(posixpath.join(folder, name.rstrip(".")))
                if target in known:
                    found[target] = None
                    break
    return list(found)


def _task_text(task: Task, limit: int) -> str:
    title = one_line(task.title, limit=_TITLE_CHARS, keep="`")
    body = _CONTROL.sub("", task.body.replace("\r\n", "\n")).strip()
    text = title if not body or body == task.title.strip() else f"{title}\n\n{body}"
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters are not shown]"


MOST_FILES = 5
MAX_FILE_BYTES = 10_000_000
MAX_TEXT_CHARACTERS = 20_000
"""Most characters of all files together."""

_LEAST_CHARACTERS = 500
_NAME_CHARACTERS = 100
_ADDRESS = re.compile(r"https?://[^\s<>\"'()\[\]`\\]+")


@dataclass(frozen=True, slots=True)
class Attached:
    """A file attached to a task.

    Attributes:
        name: the last part of its address, on one line.
        block: its text between markers; empty if it has none.
        image: the image, if it is one.
        remark: why it is not shown; empty if it is.
    """

    name: str
    block: str = ""
    image: Image | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class TaskAttachments:
    """Downloads the files that people attached to a task, and determines their types by their content.

    Only links in the task and in comments of trusted people are followed, and only to the forge's own hosts.
    The content is untrusted: hidden characters are made visible, as in all files.

    Attributes:
        download: None downloads nothing.
        shows_images: whether the model accepts images.
        characters: most characters of all texts together.
    """

    forge: Forge
    download: Download | None
    sanitizer: Sanitizer
    emit: Emit
    shows_images: bool
    characters: int = MAX_TEXT_CHARACTERS

    async def of(self, task: Task, why_not: str = "") -> list[Attached]:
        """Download the attachments of a task, in order and without duplicates. A failed one carries a remark.

        Args:
            why_not: the remark of each attachment if none may be downloaded; empty downloads them.
        """
        places = await asyncio.to_thread(lambda: list(self._places(task)))  # may renew a token
        if why_not:
            return [Attached(self._name(url), remark=why_not) for url, _ in places[:MOST_FILES]]
        attached: list[Attached] = []
        left = self.characters
        for url, place in places[:MOST_FILES]:
            name = self._name(url)
            try:
                one = await self._shown(name, await self._downloaded(place, task.number), left)
            except (ToolError, ForgeError) as error:
                why = one_line(str(error), limit=300)
                self.emit(Warned(f"the attachment {name} is not shown to the model: {why}"))
                one = Attached(name, remark=self.sanitizer.line(why))
            left -= len(one.block)
            attached.append(one)
        if len(places) > MOST_FILES:
            name = self._name(places[MOST_FILES][0])
            attached.append(Attached(name, remark=f"only {MOST_FILES} of {len(places)} files are fetched"))
        return attached

    def _name(self, url: str) -> str:
        return self.sanitizer.line(one_line(url.rstrip("/").rpartition("/")[2], limit=_NAME_CHARACTERS))

    def _places(self, task: Task) -> Iterator[tuple[str, AttachmentPlace]]:
        texts = [task.body, *(remark.text for remark in task.remarks if remark.trusted)]
        found = dict.fromkeys(url.rstrip(".,;:!?") for text in texts for url in _ADDRESS.findall(text))
        for url in found:
            place = self.forge.attachment(url)
            if place is not None:
                yield url, place

    async def _downloaded(self, place: AttachmentPlace, number: int | None) -> bytes:
        """Download a file. The credential is sent only if the forge does not serve the file publicly."""
        if self.download is None:
            raise ToolError("nothing is fetched here")
        status, data = await self.download(place, "", MAX_FILE_BYTES)
        if status != HTTPStatus.OK and place.credential:
            status, data = await self.download(place, place.credential, MAX_FILE_BYTES)
        if status != HTTPStatus.OK and number is not None:
            signed = await asyncio.to_thread(self.forge.signed_image, number, place.url)
            if signed is not None:
                status, data = await self.download(signed, "", MAX_FILE_BYTES)
        if status != HTTPStatus.OK:
            raise ToolError(f"the forge did not give it out (HTTP {status})")
        return data

    async def _shown(self, name: str, data: bytes, room: int) -> Attached:
        from orchestrator.engine.tools.pdf import PageRange, read_pdf, shown_pages

        if media_type := image_type(data):
            return self._image(name, data, media_type)
        if room < _LEAST_CHARACTERS:
            return Attached(name, remark="not shown: there is no room for its text")
        if is_pdf(data):
            found = await read_pdf(name, data, PageRange(characters=room))
            return Attached(name, self._block(name, shown_pages(found), room))
        return Attached(name, self._block(name, decode_text(name, data).text, room))

    def _image(self, name: str, data: bytes, media_type: str) -> Attached:
        if len(data) > MAX_IMAGE_BYTES:
            return Attached(name, remark=f"an image of {len(data):,} bytes, too large to be shown")
        if not self.shows_images:
            return Attached(name, remark="an image, and you are not known to read images")
        return Attached(name, image=Image(data, media_type))

    def _block(self, name: str, text: str, room: int) -> str:
        shown = self.sanitizer.text(f"the attachment {name}", text)
        if len(shown) > room:
            shown = f"{shown[:room]}\n[{len(shown) - room:,} more characters are not shown]"
        return fenced(shown)


_RECENT_COMMITS = 8
_NOT_DOWNLOADED = "nothing is fetched for replies that are whole files"
_OTHER_BASE = "instruction files count from the default branch only, so those of this branch are plain files"


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """Composes the first messages of one session."""

    attempt: Attempt
    files: Sequence[TrackedFile]
    environment: ExecutionEnvironment

    async def brief(
        self, profile: Profile, restored: RestoredWork, tests: str, *, whole_file: bool = False
    ) -> tuple[Message, Briefing]:
        """Compose the message for a model without any context. Return it as a message and in its parts.

        Args:
            restored: earlier work that was restored.
            whole_file: whether the reply has to be a changed file.
        """
        parts = self.attempt.parts
        commits = await asyncio.to_thread(self.attempt.clone.recent_commits, _RECENT_COMMITS)
        attachments = self._attachments(profile)
        attached = await attachments.of(self.attempt.task, _NOT_DOWNLOADED if whole_file else "")
        briefing = await first_message(
            task=self.attempt.task,
            files=self.files,
            read=lambda path, limit: self.environment.read_file(path, max_bytes=limit),
            visible=self.attempt.sanitizer.text,
            commits=[(line.commit[:8], self.attempt.sanitizer.line(line.subject)) for line in commits],
            budget=parts.options.context_characters,
            documents=await self._documents(profile, restored),
            looks_only=parts.worker is None
            and not any(
                parts.guards.shows(tool) and (tool.dangerous or tool.order is Order.ALONE)
                for tool in profile.tools
            ),
            restored=restored.paths,
            links=await asyncio.to_thread(document_links, self.attempt.clone, self.files),
            conflicts=restored.conflicts,
            tests=tests,
            brief=profile.is_brief,
            whole_file=whole_file,
            attached=attached,
        )
        for path in briefing.unread:
            self.attempt.emit(Warned(f"{shown_path(path)} is not shown to the model: {UNREAD}"))
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

    def resume(self, earlier: Earlier, restored: RestoredWork, task: str) -> Message:
        """Compose the message for a continued conversation: what has changed since then.

        Args:
            task: as it is now; empty if the conversation holds it.
        """
        answer = earlier.answer
        text = render(
            "cycle/resumed",
            why=earlier.state.why,
            answer=answer,
            answer_block=fenced(answer.text) if answer else "",
            paths=[f"`{path}`" for path in self.attempt.sanitizer.paths(restored.paths)],
            conflicts=[f"`{path}`" for path in self.attempt.sanitizer.paths(restored.conflicts)],
            base_moved=restored.base_moved,
            files_lost=earlier.state.files_lost,
            task=task,
        )
        return Message.user(text)

    def take_over(self, earlier: Earlier) -> str:
        """Return what is known of earlier work whose conversation is not continued; empty if there was none."""
        state, answer = earlier.state, earlier.answer
        if not state.run:  # a branch alone
            return ""
        replies = [event.message.text for event in earlier.events if isinstance(event, ReplyReceived)]
        said = next((text.strip() for text in reversed(replies) if text.strip()), "")
        clean = self.attempt.sanitizer.text("what was said before", said[-_SAID_CHARS:])
        return render(
            "cycle/taken_over",
            why=state.why,
            said=fenced(clean) if clean else "",
            question=fenced(state.question) if state.question else "",
            answer=fenced(answer.text) if answer else "",
            author=answer.author if answer else "",
        )

    async def is_default(self, restored: RestoredWork) -> bool:
        """Return whether the clone started from the default branch. Instructions on other branches are unreviewed."""
        parts = self.attempt.parts
        if restored.joined or not parts.options.other_base:
            return not restored.joined
        repository = await asyncio.to_thread(parts.forge.repository)
        return repository.default_branch == self.attempt.clone.base_branch

    async def _documents(self, profile: Profile, restored: RestoredWork) -> Sequence[str]:
        """Return the names of instruction files; none if the clone did not start from the default branch."""
        if not await self.is_default(restored):
            self.attempt.emit(Guarded(Defence.INSTRUCTIONS, _OTHER_BASE))
            return ()
        return profile.documents
