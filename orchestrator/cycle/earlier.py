"""What an unfinished cycle leaves for the next one on its task: pages beside the work, and back again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.agent.earlier import history_of
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    InputReceived,
    LoopDetected,
    MessageAdded,
    ReplyReceived,
    SteeringInjected,
    ToolCallEnded,
)
from orchestrator.journal.codec import UnknownRecord, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from orchestrator.agent.history import Turn
    from orchestrator.core.events import Event
    from orchestrator.cycle.tasks import Remark

STATE_PAGE = "state.json"
SESSION_PAGE = "session.jsonl"
_MOST_CHARACTERS = 4_000_000
"""Of a conversation that is stored; a longer one loses its middle."""
_MOST_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class State:
    """What is known of an unfinished cycle, beside its work and its conversation.

    Attributes:
        run: which cycle it was.
        why: why it stopped: `limit`, `failed`, `interrupted`, `question`, `paused` or `crashed`.
        model, contract, profile: whose conversation it is; another's is not gone on with.
        touched: paths that tools wrote.
        messages: of commits that the model made and that are not proposed, oldest first.
        shell_used: commands ran, so that every change in the files counts.
        question: what a person was asked, and where.
        attempts: cycles on this task so far that came to no pull request.
        files_lost: the machine lost what the cycle had changed; the conversation tells of files that are gone.
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
        commit: that ref's commit, which the next one replaces.
        events: its conversation.
        answer: a person's words on its question.
    """

    state: State
    work: str | None
    reference: str
    commit: str
    base: str = ""
    events: tuple[Event, ...] = ()
    answer: Remark | None = None

    def turns(self, model: str, contract: str, profile: str, at: datetime) -> list[Turn]:
        """The conversation to go on with; empty where it was another model's, or in another form."""
        same = (model, contract, profile) == (self.state.model, self.state.contract, self.state.profile)
        return history_of(self.events, at) if same else []


def conversation(events: Iterable[Event]) -> list[Event]:
    """What is said between program and model, of all that happened.

    The results of calls are in the messages; that there were some is told by the calls' ends.
    """
    said: list[Event] = []
    for event in events:
        match event:
            case ToolCallEnded():
                said.append(replace(event, output=""))
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


def pages_of(state: State, events: Iterable[Event], redact: Callable[[str], str]) -> dict[str, bytes]:
    """The files to store, without secrets."""
    lines = [json.dumps(encode(event, redact), ensure_ascii=True) for event in events]
    fields = {name: getattr(state, name) for name in State.__slots__}
    told = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
    told["messages"] = [redact(message) for message in state.messages]
    return {
        STATE_PAGE: json.dumps(told, ensure_ascii=True).encode(),
        SESSION_PAGE: "".join(f"{line}\n" for line in lines).encode(),
    }


def read_pages(pages: Mapping[str, bytes]) -> tuple[State, tuple[Event, ...]] | None:
    """State and conversation. Whoever may push may have written them: what is not in form is not used."""
    try:
        state = _state(json.loads(pages.get(STATE_PAGE, b"")))
        events = tuple(conversation(_events(pages.get(SESSION_PAGE, b""))))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, JournalError, RecursionError):
        return None
    return state, events


def _state(data: Any) -> State:
    texts = {name: data[name] for name in ("run", "why", "model", "contract", "profile")}
    texts |= {name: data.get(name, "") for name in ("question", "question_url")}
    touched, attempts = tuple(data.get("touched", ())), data.get("attempts", 1)
    messages = tuple(data.get("messages", ()))[:_MOST_MESSAGES]
    if (
        not all(isinstance(text, str) for text in (*texts.values(), *touched, *messages))
        or type(attempts) is not int
    ):
        raise TypeError
    return State(
        **texts,
        touched=touched,
        messages=messages,
        shell_used=data.get("shell_used") is True,
        attempts=attempts,
        files_lost=data.get("files_lost") is True,
    )


def _events(page: bytes) -> Iterable[Event]:
    for line in page.decode().splitlines():
        event = decode(json.loads(line))
        if not isinstance(event, UnknownRecord):
            yield event
