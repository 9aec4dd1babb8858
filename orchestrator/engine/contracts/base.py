"""The protocol of a contract: it shapes the request, reads the reply, and formats the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from orchestrator.core.messages import Message, ToolCall, ToolDefinition, ToolResult
    from orchestrator.engine.models.base import Request, Response


THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
"""The thoughts that some models write at the beginning of a reply."""


@dataclass(frozen=True, slots=True)
class Actions:
    """The content of a valid reply.

    Attributes:
        plan: the model's stated plan, possibly empty.
        calls: to be run as the contract says.
        withheld: calls of a truncated reply that must not run, because they may be incomplete; they get a
            result that says so.
        repaired: whether the reply had to be repaired before it could be read.
        cut_off: whether the reply ended in the middle.
    """

    plan: str
    calls: tuple[ToolCall, ...]
    withheld: tuple[ToolCall, ...] = ()
    repaired: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """An unreadable reply. Each problem names the exact path and what is wrong there."""

    problems: tuple[str, ...]


ReadReply: TypeAlias = Actions | Malformed


class Running(StrEnum):
    """How the calls of one reply run."""

    IN_ORDER = "in_order"
    """One after the other, until one fails."""
    TOGETHER = "together"
    """Concurrently, as far as each tool's `Order` and the profile allow."""
    FIRST_ONLY = "first_only"
    """Only the first one; the others are answered as not executed."""


class Contract(Protocol):
    """The form of requests and replies. No other code needs to know which contract is used."""

    @property
    def name(self) -> str:
        """`json_plan`, `native`, `single_step` or `whole_file`."""

    @property
    def running(self) -> Running:
        """How the calls of one reply run."""

    @property
    def has_own_form(self) -> bool:
        """Whether `describe` teaches a form of this program's; else the vendor's function calling is used."""

    @property
    def text_ends(self) -> bool:
        """Whether a reply without calls ends the model's work; else the model is asked to go on."""

    @property
    def prunes(self) -> bool:
        """Whether the oldest part of a conversation is dropped when it becomes too long for the model."""

    @property
    def forgets(self) -> bool:
        """Whether a request has only the user messages and the last reply with its answer."""

    @property
    def leaves_out_reply(self) -> bool:
        """Whether the next request of a contract that `forgets` omits the last reply, too."""

    @property
    def writes_whole_files(self) -> bool:
        """Whether a reply is just a changed file: the model needs to see only the files of its task."""

    @property
    def go_on(self) -> str:
        """The message that asks a model that called nothing to go on."""

    @property
    def wrap_up(self) -> str:
        """The message to the model before its last turn; empty uses the default one."""

    def learn(self, *, title: str, path: str, tests: str) -> None:
        """Store facts about the session's task, before its first request.

        Args:
            title: of the task.
            path: of the file that the task is most likely about; may be empty.
            tests: a text about the tests that fail without a change; may be empty.
        """

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with what this contract needs: tool definitions, or an output schema."""

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the part of the system prompt that explains the form and lists the tools; may be empty."""

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Convert a reply to calls. Call ids are unique within the session."""

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the message with the results; `note` is a message of the program to the model."""

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the message that requests the reply again and names its problems."""
