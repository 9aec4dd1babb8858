"""Unfinished work of a cycle: how it is stored, read, and restored onto a fresh clone."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Strict, TypeAdapter

from orchestrator.bot.cycle.tasks import REBASE_LABEL, TaskKind
from orchestrator.bot.git.base import Packed
from orchestrator.bot.journal.records import UnknownRecord, decode_event, encode_event
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import JournalError, PeoplesCommitsError
from orchestrator.core.events import (
    Compacted,
    InputReceived,
    LoopDetected,
    MessageAdded,
    ReplyReceived,
    SteeringInjected,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
)
from orchestrator.core.messages import Image
from orchestrator.engine.session.history import ending_of, history_of, ran_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.coordination.saved_work import UnfinishedWork
    from orchestrator.bot.cycle.tasks import Remark, Task
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.base import AppliedWork, BranchState
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.run_facts import RunFacts
    from orchestrator.core.events import Event
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.session.history import Turn

MOST_ATTEMPTS = 3
"""After this many cycles that end by a limit or an error, a task waits until a person says something."""

STATE_PAGE = "state.json"

SESSION_PAGE = "session.jsonl"

_WORK_PAGE = "work.json"

_PACK = "work.pack"

_MOST_CHARACTERS = 4_000_000
"""Longest stored conversation; a longer one loses its middle."""

_MOST_MESSAGES = 100

_Messages = Annotated[tuple[str, ...], AfterValidator(lambda texts: texts[-_MOST_MESSAGES:])]


@dataclass(frozen=True, slots=True)
class BegunProposal:
    """A pull request that a cycle started to create, without seeing the result.

    Attributes:
        title, body: its text, without the parts that the host adds.
        branch: the branch of its commit.
        commit: the commit; it is unknown whether the remote has it. Empty if the tests refused the change before.
    """

    title: str
    body: str
    branch: str
    commit: str


@dataclass(frozen=True, slots=True)
class UnfinishedState:
    """The state of an unfinished cycle, apart from files and conversation.

    Attributes:
        why: why it stopped: `limit`, `failed`, `tests_fail`, `interrupted`, `question`, `paused` or `crashed`.
        model, contract, profile: of its conversation; with others the conversation is not continued.
        messages: messages of the model's commits that are not proposed, oldest first.
        shell_used: whether commands ran, so that every changed file counts.
        question: the question to a person; `question_url` is its address, empty if it was not posted.
        attempts: number of cycles on this task so far that produced no pull request.
        files_lost: whether the machine lost the changed files, which the conversation still mentions.
        tip: the last known commit of the task's branch; empty if there was no branch; None if unknown.
        proposal: a pull request that only has to be created; this needs no model.
        status_marker: see `Task`.
        said: messages of people who worked on the task with the model, oldest first.
    """

    run: str
    why: str
    model: str
    contract: str
    profile: str
    touched: tuple[str, ...] = ()
    messages: _Messages = ()
    shell_used: Annotated[bool, Strict()] = False
    question: str = ""
    question_url: str = ""
    attempts: Annotated[int, Strict()] = 1
    files_lost: Annotated[bool, Strict()] = False
    tip: str | None = None
    proposal: BegunProposal | None = None
    status_marker: str = ""
    said: _Messages = ()

    @property
    def waits_for_answer(self) -> bool:
        """Whether a question was posted where a person can see it."""
        return bool(self.question and self.question_url)

    def knows(self, tip: str) -> bool:
        """Return whether the cycle knew this commit of the branch, or was about to push it."""
        begun = self.proposal
        return self.tip is None or tip in {self.tip, begun.commit if begun else ""}


_STATE: TypeAdapter[UnfinishedState] = TypeAdapter(UnfinishedState)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An unfinished cycle on the task that is now claimed.

    Attributes:
        work: the commit with its changes, or None if there are none.
        base: the parent of that commit.
        reference: the hidden ref from which the remote serves it.
        commit: the commit of that ref, which the next save replaces; None without a ref.
        answer: a person's answer to its question.
        objects: the work itself, if it is on this machine and no ref leads to it.
        branch: a pushed branch of the task without a pull request.
    """

    state: UnfinishedState
    work: str | None
    reference: str
    commit: str | None
    base: str = ""
    events: tuple[Event, ...] = ()
    answer: Remark | None = None
    objects: Packed | None = None
    branch: str = ""

    def knows(self, tip: str) -> bool:
        """Return whether this cycle knew the branch's commit, or was about to push it.

        Every cycle starts with what the previous one left, so later commits of ours contain it.
        """
        return self.state.knows(tip)

    def begun_for(self, task: Task) -> BegunProposal | None:
        """Return the pull request that only has to be created for this task; None if a model is needed."""
        begun = self.state.proposal
        if begun is None or not task.has_branch(begun.branch):
            return None
        return begun if self.is_about(task) else None

    def unasked(self, task: Task) -> str:
        """Return the question that could not be posted; empty if there is none."""
        # A cycle that ended by its question had no place to post it, if it has no address.
        was_asked = self.state.question_url or self.state.why == "question"
        return "" if was_asked or not self.is_about(task) else self.state.question

    def is_about(self, task: Task) -> bool:
        """Return whether it was about the same comments or the same failed checks."""
        if task.kind in {TaskKind.NEW, TaskKind.UNFINISHED}:
            return True
        return bool(task.status_marker) and task.status_marker == self.state.status_marker

    def has_shown(self, task: Task) -> bool:
        """Return whether its conversation holds what is asked now, and all that people said about it."""
        texts = [event.message.text for event in self.events if isinstance(event, MessageAdded)]
        said = "\n".join((*texts, self.answer.text if self.answer else ""))
        return self.is_about(task) and all(remark.text.strip() in said for remark in task.remarks)

    def turns(self, model: str, contract: str, profile: str, at: datetime) -> list[Turn]:
        """Return the conversation to continue; empty if its model, contract or profile was another."""
        same = (model, contract, profile) == (self.state.model, self.state.contract, self.state.profile)
        return history_of(self.events, at) if same else []


def begun_proposal(facts: RunFacts, before: BegunProposal | None = None) -> BegunProposal | None:
    """Return what was about to be proposed when a cycle stopped, or None.

    Args:
        facts: what happened in the cycle.
        before: the proposal that the continued cycle had left.
    """
    begun = facts.begun
    if begun is not None:
        return BegunProposal(begun.title, begun.body, begun.branch, begun.commit)
    return before if facts.pull is None else None


def conversation(events: Iterable[Event]) -> list[Event]:
    """Filter events to the conversation between program and model.

    The outputs of calls are left out, because messages contain them. The end of a command's output is kept for
    a later compaction. Of the todo list the last state is kept, at the end.
    """
    kept: list[Event] = []
    todos: list[Event] = []
    commands: set[str] = set()
    for event in events:
        match event:
            case ToolCallStarted(call_id, name, arguments) if ran_command(name, arguments, "", ok=True):
                commands.add(call_id)
                kept.append(event)
            case ToolCallEnded(call_id, output=output):
                kept.append(replace(event, output=ending_of(output) if call_id in commands else ""))
                commands.discard(call_id)
            case MessageAdded() if not kept:
                # A journal leaves out the input that the first message contains.
                kept += [InputReceived(""), event]
            case MessageAdded() | InputReceived() | ReplyReceived():
                kept.append(event)
            case SteeringInjected() | LoopDetected() | Compacted():
                kept.append(event)
            case TodosChanged():
                todos = [event]
            case _:
                pass
    return [*kept, *todos]


def trimmed_events(events: Sequence[Event], most: int = _MOST_CHARACTERS) -> list[Event]:
    """Cut the middle of a conversation that is too large to store: the first message and the newest stay.

    If the conversation was compacted, the message in place of its middle stays, too. If the first message is
    too large, its images are dropped: the host downloads those of the task again.
    """
    sizes = list(map(_stored_size, events))
    if sum(sizes) <= most:
        return list(events)
    first = list(events[:2])
    if sum(sizes[:2]) > most // 2:
        first = [_without_images(event) for event in first]
    last_compacted = max((at for at, event in enumerate(events) if isinstance(event, Compacted)), default=0)
    room = most - sum(map(_stored_size, first)) - (sizes[last_compacted] if last_compacted else 0)
    start = len(events)
    for index in range(len(events) - 1, 1, -1):
        room -= 0 if index == last_compacted else sizes[index]
        if room < 0:
            break
        if isinstance(events[index], ReplyReceived):
            start = index
    newest = list(events[start:])
    compacted = events[last_compacted]
    if isinstance(compacted, Compacted) and last_compacted >= start:
        turns = sum(isinstance(event, MessageAdded | ReplyReceived) for event in events[start:last_compacted])
        newest[last_compacted - start] = replace(compacted, turns=min(compacted.turns, turns))
    elif isinstance(compacted, Compacted) and last_compacted > 1:
        newest.insert(0, replace(compacted, turns=0))
    return [*first, *newest]


def _stored_size(event: Event) -> int:
    return len(json.dumps(encode_event(event)))


def _without_images(event: Event) -> Event:
    if not isinstance(event, MessageAdded):
        return event
    parts = tuple(part for part in event.message.parts if not isinstance(part, Image))
    return replace(event, message=replace(event.message, parts=parts))


def pages_of(state: UnfinishedState, events: Iterable[Event], redactor: Redactor) -> dict[str, bytes]:
    """Return the files to store, without secrets."""
    lines = [json.dumps(encode_event(redactor.redact_value(event))) for event in events]
    fields = _redacted(asdict(state), redactor.redact)
    fields |= {name: redactor.redact_value(getattr(state, name)) for name in ("messages", "said")}
    return {
        STATE_PAGE: json.dumps(fields).encode(),
        SESSION_PAGE: "".join(f"{line}\n" for line in lines).encode(),
    }


def _redacted(fields: Mapping[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """Remove secrets from the texts. Lists stay unchanged, because a redacted path would name no file."""
    redacted: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            redacted[name] = _redacted(value, redact)
        else:
            redacted[name] = redact(value) if isinstance(value, str) else value
    return redacted


def files_to_keep(packed: Packed, pages: Mapping[str, bytes], replaces: str | None) -> dict[str, bytes]:
    """Return the files to store on this machine if the remote refused the work: the same pages, and the work.

    Args:
        pages: as returned by `pages_of`.
        replaces: the commit of the hidden ref that the cycle continued, if there is one.
    """
    facts = {"work": packed.work, "base": packed.base, "onto": packed.onto, "replaces": replaces}
    return {**pages, _WORK_PAGE: json.dumps(facts).encode(), _PACK: packed.pack}


def read_kept(files: Mapping[str, bytes] | None) -> tuple[Earlier, str | None] | None:
    """Read the files of `files_to_keep`. Return them and the commit they replace, or None if they are invalid."""
    if files is None:
        return None
    pages = read_state_pages(files)
    try:
        facts = json.loads(files.get(_WORK_PAGE, b""))
        work, base, onto, replaces = (facts[name] for name in ("work", "base", "onto", "replaces"))
    except (ValueError, TypeError, KeyError):
        return None
    if pages is None or not all(isinstance(text, str) for text in (base, onto)):
        return None
    packed = Packed(work, base, onto, files.get(_PACK, b""))
    return Earlier(pages[0], work, "", None, base, pages[1], objects=packed), replaces


def is_newest_kept(kept: tuple[Earlier, str | None], saved: str | None, tip: str) -> bool:
    """Return whether no other cycle continued without the work that only this machine has.

    Args:
        kept: as returned by `read_kept`.
        saved: the commit of the unfinished work on the remote; None if there is none.
        tip: the commit of the task's branch; empty if there is none.
    """
    found, replaces = kept
    return saved in {None, replaces} and (not tip or found.knows(tip))


def read_saved(work: UnfinishedWork | None) -> tuple[UnfinishedState, tuple[Event, ...]] | None:
    """Read state and conversation of work saved on the remote; None if there is none or it cannot be read."""
    return read_state_pages(work.pages) if work is not None and work.fault is None else None


def read_state_pages(pages: Mapping[str, bytes]) -> tuple[UnfinishedState, tuple[Event, ...]] | None:
    """Read state and conversation. Anyone with push access may have written them, so invalid ones are ignored."""
    try:
        # Not by pydantic's own parser, which refuses names of files that are not UTF-8.
        state = _STATE.validate_python(json.loads(pages.get(STATE_PAGE, b"")))
        events = tuple(conversation(_events(pages.get(SESSION_PAGE, b""))))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, JournalError, RecursionError):
        return None
    return state, events


def _events(page: bytes) -> Iterable[Event]:
    for line in page.decode().splitlines():
        event = decode_event(json.loads(line))
        if not isinstance(event, UnknownRecord):
            yield event


@dataclass(frozen=True, slots=True)
class RestoredWork:
    """The work that was restored onto the clone.

    Attributes:
        paths: paths that differ from the base, sorted.
        base_moved: whether the work was based on another commit of the repository.
        tip: the commit that the task's branch should have at the push; None if there is no branch yet.
        joined: whether the next commit merges people's branch and the base, even if no file changes.
        fingerprints: a fingerprint of each file that the pull request already contains in this version.
        message: of a pushed commit without a pull request, whose title and body only this message has.
        is_over: whether a later cycle proposed this work.
    """

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_moved: bool = False
    tip: str | None = None
    joined: bool = False
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    is_over: bool = False

    @property
    def is_proposed(self) -> bool:
        """Whether the pull request contains all of it, and nothing is an unfinished cycle's."""
        return bool(self.joined or self.fingerprints)

    @property
    def replays(self) -> bool:
        """Whether a commit alone puts the pull request onto its base."""
        return self.is_proposed and not self.conflicts


def restore_work(
    clone: Clone, task: Task, earlier: Earlier | None, author_email: str, pushed_base: str = ""
) -> RestoredWork | str:
    """Restore earlier work onto the clone. People's commits on the branch are never replaced.

    Args:
        clone: at the base's present commit, unchanged.
        task: with its pull request, if it is about one.
        earlier: the unfinished cycle; it includes the pull request's change.
        author_email: the author of our commits.
        pushed_base: the base's commit on which the task's branch was pushed; empty if unknown. If the base was rewritten
            since, it is not a person's commit on the branch.

    Returns:
        The restored work, or why the task is not continued.

    Raises:
        PeoplesCommitsError: the branch of a task without a pull request has commits of people.
        WorkspaceError: git failed.
    """
    found_branch, found_base = ("", "") if earlier is None else (earlier.branch, earlier.base)
    branch = found_branch if task.pull is None else task.pull.branch
    known = [base for base in (found_base, pushed_base) if base]
    state = clone.branch_state(branch, author_email, known_bases=known) if branch else None
    if task.pull is not None:
        return _restore_pull(clone, task, task.pull, earlier, state)
    if earlier is None:
        return RestoredWork()
    if state is not None:
        return _restore_branch(clone, earlier, state, author_email)
    return _as_restored(_applied(clone, earlier), None) if earlier.work is not None else RestoredWork()


def _restore_pull(
    clone: Clone, task: Task, pull: PullRequest, earlier: Earlier | None, state: BranchState | None
) -> RestoredWork | str:
    """Restore work as `restore_work` does, for a task about a pull request."""
    if state is None:
        return f"the branch {pull.branch} of pull request #{pull.number} is gone"
    all_ours = state.has_only_ours
    if not all_ours and REBASE_LABEL not in {label.lower() for label in pull.labels}:
        return f"{pull.address} has commits of people, so it is left to them; the label {REBASE_LABEL} takes it up again"
    if task.kind is TaskKind.UNFINISHED and earlier is not None and all_ours and not earlier.knows(state.tip):
        return RestoredWork(tip=state.tip, is_over=True)
    # A later cycle's push contains the work that an earlier one saved.
    saved = earlier if earlier is not None and earlier.work and earlier.knows(state.tip) else None
    # Several commits of ours come from a cycle that updated its pull request: they are continued.
    if not state.is_ours and not (all_ours and saved is not None):
        joined = clone.continue_branch(pull.branch)
        return replace(_as_proposed(clone, joined, joined.tip), joined=True)
    if saved is not None:
        return _as_restored(_applied(clone, saved), state.tip)
    applied = clone.apply_work(state.tip, reference=f"refs/heads/{pull.branch}")
    return _as_proposed(clone, applied, state.tip)


def _restore_branch(clone: Clone, earlier: Earlier, state: BranchState, author_email: str) -> RestoredWork:
    """Restore work as `restore_work` does, if a cycle pushed its branch and opened no pull request."""
    branch = earlier.branch
    if state.complete and not state.commits_since_base:  # somebody merged it
        merged = RestoredWork(tip=state.tip)
        return _as_restored(_applied(clone, earlier), state.tip) if earlier.work is not None else merged
    if not state.has_only_ours:
        theirs = (one for one in state.commits_since_base if one.committer_email != author_email)
        whose = next((f"a commit by {one.committer_name}" for one in theirs), "commits of people")
        raise PeoplesCommitsError(
            f"branch {branch} has {whose}, which is not replaced; merge or delete the branch first"
        )
    if earlier.work is not None and earlier.knows(state.tip):
        return _as_restored(_applied(clone, earlier), state.tip)
    # A later cycle's push contains the work that an earlier one saved.
    message = clone.message_of(state.tip)
    if state.is_ours:
        applied = clone.apply_work(state.tip, reference=f"refs/heads/{branch}")
    else:
        applied = clone.continue_branch(branch)
    return replace(_as_restored(applied, state.tip), message=message, joined=not state.is_ours)


def _applied(clone: Clone, earlier: Earlier) -> AppliedWork:
    return clone.apply_work(earlier.work or "", reference=earlier.reference or None, packed=earlier.objects)


def _as_restored(applied: AppliedWork, tip: str | None) -> RestoredWork:
    return RestoredWork(
        tuple(sorted(applied.paths)), tuple(sorted(applied.conflicts)), applied.base_moved, tip
    )


def _as_proposed(clone: Clone, applied: AppliedWork, tip: str) -> RestoredWork:
    return replace(_as_restored(applied, tip), fingerprints=fingerprints(clone.tree, applied.paths))


def fingerprints(tree: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return a fingerprint of each file. Links are not followed, and nothing but files is opened."""
    with ConfinedFolder(tree) as folder:
        return {path: _fingerprint(folder, path) for path in paths}


def _fingerprint(folder: ConfinedFolder, path: str) -> str:
    try:
        found = folder.stat(path)
        if found.is_link:
            return f"link {folder.link_target(path)}"
        if not found.is_file:
            return "no file"
    except OSError:
        return "no file"
    try:
        return f"{found.mode & stat.S_IXUSR} {folder.digest(path)}"
    except OSError:
        return f"unread {found.size} {found.status.st_ctime_ns}"
