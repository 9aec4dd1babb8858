"""What a contract is: it shapes the request, reads the reply, and words the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from orchestrator.core.messages import Message, ToolCall, ToolDefinition, ToolResult
    from orchestrator.engine.models.base import Request, Response


THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
"""What a model thinks aloud at the beginning of a reply."""


@dataclass(frozen=True, slots=True)
class Actions:
    """A reply in good form.

    Attributes:
        plan: what the model says it intends, possibly empty.
        calls: to be run as the contract says.
        withheld: calls of a reply that was cut off which must not run, because they may be
            incomplete; they get a result that says so.
        repaired: the reply was mended before it could be read.
        cut_off: the reply ended in the middle.
    """

    plan: str
    calls: tuple[ToolCall, ...]
    withheld: tuple[ToolCall, ...] = ()
    repaired: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """A reply that cannot be read. Each problem names the exact path and what is wrong there."""

    problems: tuple[str, ...]


ReadReply: TypeAlias = Actions | Malformed


class Running(StrEnum):
    """How the calls of one reply run."""

    IN_ORDER = "in_order"
    """One after the other, until one fails."""
    TOGETHER = "together"
    """At the same time, as far as each tool's `Order` and the profile allow."""
    FIRST_ONLY = "first_only"
    """Only the first one; the others are answered as not executed."""


class Contract(Protocol):
    """A form that requests and replies have. No other code needs to know which one it is."""

    @property
    def name(self) -> str:
        """`json_plan`, `native`, `single_step` or `whole_file`."""

    @property
    def running(self) -> Running:
        """How the calls of one reply run."""

    @property
    def has_own_form(self) -> bool:
        """Whether `describe` teaches the model a form of this program's; else it is the vendor's function calling."""

    @property
    def text_ends(self) -> bool:
        """Whether a reply without calls ends the model's work; else it is asked to go on."""

    @property
    def prunes(self) -> bool:
        """Whether the oldest part of a conversation is dropped when the model cannot read it any more."""

    @property
    def forgets(self) -> bool:
        """Whether a request has only what users said and the last reply with its answer, not the whole conversation."""

    @property
    def leaves_out_reply(self) -> bool:
        """Whether the next request of a contract that `forgets` has not even the last reply."""

    @property
    def writes_whole_files(self) -> bool:
        """Whether a reply is a changed file and nothing else: the model needs to see only the files of its task."""

    @property
    def go_on(self) -> str:
        """The words by which a model that called nothing is asked to go on."""

    @property
    def wrap_up(self) -> str:
        """What the model is told before its last turn; empty takes the usual words."""

    def learn(self, *, title: str, path: str, tests: str) -> None:
        """Take in what the session is about, before its first request.

        Args:
            title: of the task.
            path: of the file that the task is most likely about; may be empty.
            tests: what is said of the tests that fail without a change; may be empty.
        """

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """The request with what this contract needs: tool definitions, or an output schema."""

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """The part of the system prompt that explains the form and lists the tools; may be empty."""

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Turn a reply into calls. Call ids are unique within the session."""

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """The message that carries results back; `note` is a message of the program to the model."""

    def complain(self, problems: tuple[str, ...]) -> Message:
        """The message that asks for the reply again and names what was wrong."""
