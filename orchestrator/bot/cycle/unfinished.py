"""Unfinished work: what a cycle leaves for the next one on its task and where it is kept."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.unfinished import drop_wip, save_wip, wip_subject
from orchestrator.bot.cycle.result import Outcome, outcome_of
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.git.base import Packed
from orchestrator.bot.journal.records import UnknownRecord, decode_event, encode_event
from orchestrator.bot.policy.change_checks import places_of_secrets
from orchestrator.core.cycle_events import Proposed, Proposing, WorkSaved
from orchestrator.core.errors import ClaimLostError, JournalError, WorkspaceError
from orchestrator.core.events import (
    Compacted,
    InputReceived,
    LoopDetected,
    MessageAdded,
    ReplyReceived,
    SteeringInjected,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.engine.session.history import ending_of, history_of, ran_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.act import Act
    from orchestrator.bot.cycle.claim import Choice
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.cycle.tasks import Remark, Task
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.core.events import Event
    from orchestrator.engine.session.history import Turn


MOST_ATTEMPTS = 3
"""Cycles on one task that a limit or an error ended, until a person has to say something."""
STATE_PAGE = "state.json"
SESSION_PAGE = "session.jsonl"
QUESTION = "question"
"""Why a cycle stopped that has asked a person."""
_WORK_PAGE = "work.json"
_PACK = "work.pack"
_MOST_CHARACTERS = 4_000_000
"""Of a conversation that is stored; a longer one loses its middle."""
_MOST_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class BegunProposal:
    """A pull request that a cycle began to make, and did not come to read back.

    Attributes:
        title, body: its words, without what the host adds.
        branch: where its commit was to go.
        commit: that commit; whether the remote has it is not known.
    """

    title: str
    body: str
    branch: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class UnfinishedState:
    """What is known of an unfinished cycle, beside its work and its conversation.

    Attributes:
        run: which cycle it was.
        why: why it stopped: `limit`, `failed`, `interrupted`, `question`, `paused` or `crashed`.
        model, contract, profile: whose conversation it is; another's is not gone on with.
        touched: paths that tools wrote.
        messages: of commits that the model made and that are not proposed, oldest first.
        shell_used: commands ran, so that every change in the files counts.
        question: what a person was asked, and where; without a place it could not be asked yet, unless that
            is why the cycle stopped.
        attempts: cycles on this task so far that came to no pull request.
        files_lost: the machine lost what the cycle had changed; the conversation tells of files that are gone.
        tip: the last commit that the task's branch was known to have, empty where there was no branch;
            None where this is not known.
        proposal: what only has to be proposed; no model is needed for it.
        status_marker: of the task that it was about: see `Task`.
    """

    run: str
    why: str
    model: str
    contract: str
    profile: str
    touched: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    shell_used: bool = False
    question: str = ""
    question_url: str = ""
    attempts: int = 1
    files_lost: bool = False
    tip: str | None = None
    proposal: BegunProposal | None = None
    status_marker: str = ""

    @property
    def waits_for_answer(self) -> bool:
        """Whether a person was asked, and can see it."""
        return bool(self.question and self.question_url)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An unfinished cycle on the task that is taken now.

    Attributes:
        work: the commit with its changes, or None where there were none.
        base: the commit that it is on top of.
        reference: the hidden ref by which the remote gives it.
        commit: that ref's commit, which the next one replaces; None where there is no such ref.
        events: its conversation.
        answer: a person's words on its question.
        objects: the work itself, where this machine has it and no reference leads to it.
        branch: a branch of the task that was pushed and has no pull request.
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
        """Whether the branch's commit is one that was there when this was left, or that it was about to push.

        Every cycle begins with what the one before it left. So a commit of ours that came later has it.
        """
        begun = self.state.proposal
        return self.state.tip is None or tip in {self.state.tip, begun.commit if begun else ""}

    def begun_for(self, task: Task) -> BegunProposal | None:
        """What only has to be proposed to do this task; None where a model has to look at it again."""
        begun = self.state.proposal
        if begun is None or not task.has_branch(begun.branch):
            return None
        return begun if self._is_about(task) else None

    def unasked(self, task: Task) -> str:
        """The question that was to be put to a person, and could not be; empty if there is none."""
        asked = self.state.question_url or self.state.why == QUESTION
        return "" if asked or not self._is_about(task) else self.state.question

    def _is_about(self, task: Task) -> bool:
        """Whether it was the same words of people, or the same failed checks."""
        if task.kind in {TaskKind.NEW, TaskKind.UNFINISHED}:
            return True
        return bool(task.status_marker) and task.status_marker == self.state.status_marker

    def turns(self, model: str, contract: str, profile: str, at: datetime) -> list[Turn]:
        """The conversation to go on with; empty where it was another model's, or in another form."""
        same = (model, contract, profile) == (self.state.model, self.state.contract, self.state.profile)
        return history_of(self.events, at) if same else []


def begun_proposal(events: Sequence[Event], before: BegunProposal | None = None) -> BegunProposal | None:
    """What was about to be proposed when a cycle stopped, if anything was.

    Args:
        events: of the cycle, oldest first.
        before: what the cycle that it goes on with had left to propose.
    """
    begun = before
    for event in events:
        match event:
            case Proposing():
                begun = BegunProposal(event.title, event.body, event.branch, event.commit)
            case Proposed():
                begun = None
            case _:
                pass
    return begun


def conversation(events: Iterable[Event]) -> list[Event]:
    """What is said between program and model, of all that happened.

    The results of calls are in the messages; that there were some is told by the calls' ends. Of commands the end of
    the output stays, which a conversation that is made shorter later has to tell.
    """
    said: list[Event] = []
    commands: set[str] = set()
    for event in events:
        match event:
            case ToolCallStarted(call_id, name, arguments) if ran_command(name, arguments, "", ok=True):
                commands.add(call_id)
                said.append(event)
            case ToolCallEnded(call_id, output=output):
                said.append(replace(event, output=ending_of(output) if call_id in commands else ""))
                commands.discard(call_id)
            case Compacted():
                said.append(event)
            case MessageAdded():
                if not said:  # a journal leaves out what somebody asked, because this message has it
                    said.append(InputReceived(""))
                said.append(event)
            case InputReceived() | ReplyReceived() | SteeringInjected() | LoopDetected():
                said.append(event)
            case _:
                pass
    return said


def trimmed_events(said: Sequence[Event]) -> list[Event]:
    """A conversation without its middle, if it is too large to be stored: the first message and the newest."""
    sizes = [len(repr(event)) for event in said]
    room = _MOST_CHARACTERS - sum(sizes[:2])
    start = len(said)
    for index in range(len(said) - 1, 1, -1):
        room -= sizes[index]
        if room < 0:
            return [*said[:2], *said[start:]]
        if isinstance(said[index], ReplyReceived):
            start = index
    return list(said)


def pages_of(
    state: UnfinishedState, events: Iterable[Event], redact: Callable[[str], str]
) -> dict[str, bytes]:
    """The files to store, without secrets."""
    lines = [json.dumps(encode_event(event, redact), ensure_ascii=True) for event in events]
    told = _redacted(asdict(state), redact)
    told["messages"] = [redact(message) for message in state.messages]
    return {
        STATE_PAGE: json.dumps(told, ensure_ascii=True).encode(),
        SESSION_PAGE: "".join(f"{line}\n" for line in lines).encode(),
    }


def _redacted(fields: Mapping[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The texts without secrets. What lists paths stays as it is: nothing else would name the files."""
    told: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            told[name] = _redacted(value, redact)
        else:
            told[name] = redact(value) if isinstance(value, str) else value
    return told


def files_to_keep(packed: Packed, pages: Mapping[str, bytes], replaces: str | None) -> dict[str, bytes]:
    """What is kept on this machine of work that the remote did not take: the same pages, and the work.

    Args:
        packed: the work.
        pages: as `pages_of` makes them.
        replaces: the commit of the hidden ref that the cycle went on with, if there is one.
    """
    facts = {"work": packed.work, "base": packed.base, "onto": packed.onto, "replaces": replaces}
    return {**pages, _WORK_PAGE: json.dumps(facts).encode(), _PACK: packed.pack}


def read_kept(files: Mapping[str, bytes] | None) -> tuple[Earlier, str | None] | None:
    """What `files_to_keep` made, and what it replaces; None where there is nothing, or it is not in form."""
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


def read_state_pages(pages: Mapping[str, bytes]) -> tuple[UnfinishedState, tuple[Event, ...]] | None:
    """State and conversation. Whoever may push may have written them: what is not in form is not used."""
    try:
        state = _state(json.loads(pages.get(STATE_PAGE, b"")))
        events = tuple(conversation(_events(pages.get(SESSION_PAGE, b""))))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, JournalError, RecursionError):
        return None
    return state, events


def _state(data: Any) -> UnfinishedState:
    texts = {name: data[name] for name in ("run", "why", "model", "contract", "profile")}
    texts |= {name: data.get(name, "") for name in ("question", "question_url", "status_marker")}
    touched, attempts = tuple(data.get("touched", ())), data.get("attempts", 1)
    messages = tuple(data.get("messages", ()))[:_MOST_MESSAGES]
    if (
        not all(isinstance(text, str) for text in (*texts.values(), *touched, *messages))
        or type(attempts) is not int
    ):
        raise TypeError
    tip, begun = data.get("tip"), data.get("proposal")
    if not isinstance(tip, str | None):
        raise TypeError
    return UnfinishedState(
        **texts,
        touched=touched,
        messages=messages,
        shell_used=data.get("shell_used") is True,
        attempts=attempts,
        files_lost=data.get("files_lost") is True,
        tip=tip,
        proposal=None if begun is None else _begun(begun),
    )


def _begun(data: Any) -> BegunProposal:
    texts = [data[name] for name in ("title", "body", "branch", "commit")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return BegunProposal(*texts)


def _events(page: bytes) -> Iterable[Event]:
    for line in page.decode().splitlines():
        event = decode_event(json.loads(line))
        if not isinstance(event, UnknownRecord):
            yield event


PATCH_NAME = "changes.patch"


def save_unfinished(parts: CycleParts, choice: Choice, act: Act, result: CycleResult) -> None:
    """Keep what was done and is not proposed, on every way out of a session; it does not raise.

    It goes to a hidden ref of the remote, from which the next cycle on the task goes on. What the remote
    does not take is kept in the same form on this machine, for the next cycle here. For people it is a
    patch in the run's folder, or the temporary one if that is full. Where nothing can be written, the clone
    is kept and named. A cycle that came to its end leaves nothing, and what an earlier one left is dropped.
    """
    try:
        _keep_somewhere(parts, choice, act, result)
    except BaseException:  # a defect here must not cost the work: the clone would be removed now
        _keep(parts, act, "the changes could not be saved")
        raise


def _keep_somewhere(parts: CycleParts, choice: Choice, act: Act, result: CycleResult) -> None:
    error = sys.exception()
    outcome = result.outcome if error is None else outcome_of(error)
    try:
        # What waits for a person is in the patch and in our comment, and no work that somebody goes on with.
        paths, patch = act.left()
    except WorkspaceError as failure:
        _keep(parts, act, f"the changes could not be read ({failure})")
        return
    if choice.lease is not None and parts.kept is not None:
        is_ours = not isinstance(error, ClaimLostError)
        saving = _Saving(
            parts, choice.lease, parts.kept, choice.earlier, act, result, outcome, is_ours=is_ours
        )
        with parts.stop.saving():
            if outcome in {Outcome.PROPOSED, Outcome.NO_TASK, Outcome.PLANNED} and not paths:
                saving.drop()
            elif patch or act.conversation:
                saving.save()
    if patch:
        _keep_as_patch(parts, act, result, patch)
    if result.patch or result.saved:
        parts.emit(WorkSaved(result.patch or "", result.saved or ""))


@dataclass(frozen=True, slots=True)
class _Saving:
    """What a cycle had of its task, on its way to the remote, or else to the state of this machine.

    Attributes:
        is_ours: the claim was not seen to be somebody else's.
    """

    parts: CycleParts
    lease: Lease
    kept: KeptWork
    earlier: Earlier | None
    act: Act
    result: CycleResult
    outcome: Outcome
    is_ours: bool

    @property
    def _key(self) -> str:
        return self.lease.record.task

    def drop(self) -> None:
        """The task came to its end: drop what an earlier cycle left of it. A warning if that fails."""
        result, earlier, records = self.result, self.earlier, self.parts.records
        if self.outcome is Outcome.NO_TASK and not (result.rounds or result.commit):
            return  # nobody went on with it
        if not self.is_ours:
            return
        self.kept.remove(self._key)
        if earlier is None or earlier.commit is None or records is None:
            return
        try:
            drop_wip(records, self._key, earlier.commit, self.lease)
        except WorkspaceError as failure:
            self.parts.emit(Warned(f"saved work that is proposed by now could not be removed: {failure}"))

    def save(self) -> None:
        """Push the work and the conversation; where that fails, keep both on this machine."""
        act, parts = self.act, self.parts
        pages = pages_of(act.state(self.outcome), trimmed_events(act.conversation), parts.guards.redact)
        if self.is_ours:
            try:
                self._push(pages)
            except WorkspaceError as failure:
                parts.emit(Warned(f"the work could not be saved on the remote: {failure}"))
            else:
                self.kept.remove(self._key)
                return
        try:
            made = act.clone.snapshot(
                set(act.ledger.touched),
                wip_subject(self._key),
                include_commands=act.ledger.shell_used,
                find_secrets=self._secrets,
            )
            replaces = self.earlier.commit if self.earlier else None
            self.kept.write(self._key, files_to_keep(act.clone.pack(made), pages, replaces))
        except (JournalError, WorkspaceError) as failure:
            parts.emit(Warned(f"the next cycle will not go on with the work: {failure}"))
        else:
            parts.emit(Warned(f"the next cycle on {self._key} on this machine goes on with the work"))

    def _push(self, pages: Mapping[str, bytes]) -> None:
        act, parts = self.act, self.parts
        saved = save_wip(
            act.clone,
            self._key,
            pages,
            touched=set(act.ledger.touched),
            include_commands=act.ledger.shell_used,
            expected=self.earlier.commit if self.earlier else None,
            saved_at=parts.clock.now(),
            stamp=parts.run,
            find_secrets=self._secrets,
            lease=self.lease,
        )
        self.result.saved = saved.ref
        for item in saved.left_out:
            parts.emit(Warned(f"{item.path} is not in the saved work: {item.reason}"))

    def _secrets(self, diff: str) -> list[str]:
        return places_of_secrets(diff, self.parts.guards.holds_secret)


def _keep_as_patch(parts: CycleParts, act: Act, result: CycleResult, patch: bytes) -> None:
    for folder in (parts.folder, Path(tempfile.gettempdir())):
        target = folder / (PATCH_NAME if folder == parts.folder else f"pullwright-{parts.run}.patch")
        try:
            write_private(target, patch)
        except OSError:
            continue
        result.patch = str(target)
        if parts.guards.holds_secret(patch.decode("utf-8", "replace")):
            parts.emit(Warned("the saved patch holds what looks like a secret: do not publish it"))
        return
    _keep(parts, act, "no space to save the changes")


def write_private(target: Path, patch: bytes) -> None:
    """Write a new file that nobody else may read. A link that somebody put there is not followed."""
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(patch)


def _keep(parts: CycleParts, act: Act, why: str) -> None:
    """Leave the files where they are, without what git would run there for a person who looks at them."""
    warning = ""
    try:
        act.clone.keep()
    except WorkspaceError as error:
        warning = f"; run no git there: {error}"
    parts.emit(Warned(f"{why}; the clone is kept at {act.clone.tree}{warning}"))
