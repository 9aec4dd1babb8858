"""The base class of contracts: a contract shapes the request, reads the reply, and formats the answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.messages import Message, Role, Text
from orchestrator.core.prompts import fenced_unless_blank, one_line, render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import ToolCall, ToolDefinition, ToolResult
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
        note: what the model should know about its reply; it comes with the results. Without calls: why a call that
            is in the text did not run.
        written: the part of the text that is the calls, if they were written as text.
        ways: the positions in `calls` at which another way to do the same begins. It runs only if a call of the way
            before it failed.
    """

    plan: str
    calls: tuple[ToolCall, ...]
    withheld: tuple[ToolCall, ...] = ()
    repaired: bool = False
    cut_off: bool = False
    note: str = ""
    written: str = ""
    ways: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Malformed:
    """An unreadable reply. Each problem names the exact path and what is wrong there."""

    problems: tuple[str, ...]


ReadReply: TypeAlias = Actions | Malformed


class Running(StrEnum):
    """How the calls of one reply run."""

    IN_ORDER = "in_order"
    """One after the other, until one fails; then those of the next way, see `Actions.ways`."""
    TOGETHER = "together"
    """Concurrently, as far as each tool's `Order` and the profile allow."""
    FIRST_ONLY = "first_only"
    """Only the first one; the others are answered as not executed."""


class Contract(ABC):
    """The form of requests and replies. No other code needs to know which contract is used.

    Attributes:
        name: `json_plan`, `native`, `single_step` or `whole_file`.
        running: how the calls of one reply run.
        has_own_form: whether `describe` teaches a form of this program's; else the vendor's function calling is
            used.
        text_ends: whether a reply without calls ends the model's work; else the model is asked to go on.
        prunes: whether the oldest part of a conversation is dropped when it becomes too long for the model.
        forgets: whether a request has only the user messages and the last reply with its answer.
        leaves_out_reply: whether the next request of a contract that `forgets` omits the last reply, too.
        guesses: whether the last question asks for a guess, of which the host tries each part: one that does not do all
            that the task's tests ask for is not proposed. The question stands for the first message, which is omitted.
        asks_anew: whether the last question was not asked before, so that its most likely reply was not given yet.
        writes_whole_files: whether a reply is just a changed file: the model needs to see only the files of its
            task.
        tells_tools: whether the model is told of the tools; else no message may name one.
        wrap_up: the message to the model before its last turn; empty uses the default one.
    """

    name: str
    running: Running
    has_own_form = False
    text_ends = False
    prunes = False
    forgets = False
    writes_whole_files = False
    tells_tools = True

    @property
    def leaves_out_reply(self) -> bool:
        """See the class."""
        return False

    @property
    def guesses(self) -> bool:
        """See the class."""
        return False

    @property
    def asks_anew(self) -> bool:
        """See the class."""
        return False

    @property
    def wrap_up(self) -> str:
        """See the class."""
        return ""

    @abstractmethod
    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the message that asks a model that called nothing to go on."""

    def learn(  # noqa: B027  the first message has these facts
        self, *, title: str, path: str, tests: str, block: str = "", names_failing: bool = False
    ) -> None:
        """Store facts about the session's task before its first request, if the contract needs them.

        Args:
            title: of the task.
            path: of the file that the task is most likely about; may be empty.
            tests: a text about the tests that fail without a change; may be empty.
            block: the content of the file at `path`, in a fenced block; may be empty.
            names_failing: whether the task names tests that fail without a change and that the host runs.
        """

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with what this contract needs: tool definitions, an output schema, or nothing."""
        del tools
        return request

    @abstractmethod
    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the part of the system prompt that explains the form and lists the tools; may be empty."""

    @abstractmethod
    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Convert a reply to calls. Call ids are unique within the session."""

    @abstractmethod
    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the message with the results; `note` is a message of the program to the model."""

    @abstractmethod
    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the message that requests the reply again and names its problems."""


_NAME_CHARS = 80
_PROBLEM_CHARS = 400


def problem_lines(problems: Iterable[str]) -> list[str]:
    """Return each problem as one line of limited length."""
    return [one_line(problem, limit=_PROBLEM_CHARS, keep="`") for problem in problems]


def text_with_results(template: str, results: tuple[ToolResult, ...], note: str) -> Message:
    """Return results as a text, each in a fence that its text cannot close; their images follow."""
    shown = [
        {
            "name": one_line(result.name, limit=_NAME_CHARS),
            "is_error": result.is_error,
            "block": fenced_unless_blank(result.content),
        }
        for result in results
    ]
    failed = any(result.is_error for result in results)
    text = render(template, results=shown, failed=failed, note=note)
    return Message(Role.USER, (Text(text), *(image for result in results for image in result.images)))
