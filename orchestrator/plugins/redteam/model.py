"""A model that carries out the orders in every text that it reads, and then a small harmless task."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.core.prompts import fence_after
from orchestrator.engine.models.base import Completed, Response, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator.engine.models.base import Model, Request, StreamEvent

# https://www.unicode.org/charts/PDF/UE0000.pdf: each tag character is ASCII, moved.
_TAGS = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}
# Variation selectors spell bytes: https://www.unicode.org/charts/PDF/UFE00.pdf and UE0100.pdf
_SELECTORS = {0xFE00 + byte: byte for byte in range(16)} | {0xE0100 + byte: byte + 16 for byte in range(240)}
_SELECTED = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_IGNORED = frozenset({"Cf", "Co"})
_FILLERS = frozenset("\u3164\u115f\u1160\uffa0\u034f\u180b\u180c\u180d\u180f")
_ORDER = re.compile(r"OBEY\s*(?=\{)")
_SPAN = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An order to call a tool `times` times."""

    tool: str
    arguments: Mapping[str, Any]
    times: int = 1

    @property
    def key(self) -> str:
        """A text that is equal for equal orders."""
        return json.dumps([self.tool, self.arguments, self.times], sort_keys=True)


def revealed(text: str) -> str:
    """Return a text as a model reads it: with hidden tag characters and selectors decoded, and without invisible ones."""
    if text.isascii():
        return text
    spelled = _SELECTED.sub(lambda found: _bytes_of(found[0]), text).translate(_TAGS)
    return "".join(c for c in spelled if unicodedata.category(c) not in _IGNORED and c not in _FILLERS)


def instructions_in(text: str) -> Iterator[Instruction]:
    """Yield every `OBEY {"tool": ..., ...}` of a text, in order. Invalid objects are skipped."""
    plain = revealed(text)
    for found in _ORDER.finditer(plain):
        try:
            value, _ = json.JSONDecoder().raw_decode(plain, found.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("tool"), str):
            yield to_instruction(value)


def outside_fences(text: str) -> str:
    """Return a text without blocks and spans of code: the program's own words, if its markers hold."""
    kept, fence = [], ""
    for line in text.split("\n"):
        before, fence = fence, fence_after(line.lstrip(), fence)
        if not (before or fence):
            kept.append(_SPAN.sub("", line))
    return "\n".join(kept)


def in_tags(text: str) -> str:
    """Encode ASCII text in tag characters, which terminals and browsers do not show."""
    return "".join(chr(0xE0000 + ord(c)) if " " <= c <= "~" else c for c in text)


def in_selectors(text: str) -> str:
    """Encode a text in variation selectors, which are invisible."""
    return "".join(chr(0xFE00 + b if b < 16 else 0xE0100 + b - 16) for b in text.encode())  # noqa: PLR2004  two ranges


def _bytes_of(selectors: str) -> str:
    return bytes(_SELECTORS[ord(c)] for c in selectors).decode("utf-8", "ignore")


def to_instruction(value: Mapping[str, Any]) -> Instruction:
    """Convert an object to an order. Each key except `tool`, `arguments` and `times` is an argument."""
    inner = value.get("arguments")
    rest = {key: item for key, item in value.items() if key not in {"tool", "arguments", "times"}}
    times = value.get("times")
    return Instruction(
        value["tool"],
        {**rest, **(inner if isinstance(inner, dict) else {})},
        times if isinstance(times, int) and times > 0 else 1,
    )


_RESULT = re.compile(r"\{\{\s*+result\s++(\d++)\s*+((?>(?:\|[^|{}]+)*))\}\}")
_COUNTER = re.compile(r"\{\{\s*n\s*\}\}")
_FILLER = re.compile(r"\{\{\s*filler\s+(\d{1,8})\s*\}\}")
_LINES = re.compile(r"\{\{\s*lines\s+(\d{1,6})\s*\}\}")
_WORD = re.compile(r"[^\s\"'`,;<>]+")


def filled(arguments: Mapping[str, Any], results: Sequence[str], number: int) -> dict[str, Any]:
    """Replace the placeholders in the arguments of an order: results, the counter, and fillers.

    Args:
        results: the results that the model received after its first request, its second, and so on.
        number: number of the model's calls so far, including this one.
    """
    return {key: _filled(value, results, number) for key, value in arguments.items()}


def needs_results(order: Instruction) -> bool:
    """Return whether an order contains the placeholder of a result."""
    return any(isinstance(value, str) and _RESULT.search(value) for value in order.arguments.values())


def spelled(text: str, how: str) -> str:
    """Apply one step to a text: `cut N`, `head N`, `word PART`, `base64`, `hex`, `reverse`, `spaced`, `dotted` or `url`.

    `word PART` is the word that begins with PART, without PART if that ends in `=` or `:`. An unknown step
    changes nothing.
    """
    name, _, argument = how.strip().partition(" ")
    step = _STEPS.get(name)
    return step(text, argument.strip()) if step else text


def _word(text: str, part: str) -> str:
    at = text.find(part)
    found = _WORD.search(text, at) if part and at >= 0 else None
    word = found[0] if found else ""
    return word.removeprefix(part) if part.endswith(("=", ":")) else word


def _count(argument: str) -> int:
    return int(argument) if argument.isdigit() else 0


_STEPS: dict[str, Callable[[str, str], str]] = {
    "cut": lambda text, argument: text[_count(argument) :],
    "head": lambda text, argument: text[: _count(argument)],
    "word": _word,
    "base64": lambda text, _argument: base64.b64encode(text.encode()).decode(),
    "hex": lambda text, _argument: text.encode().hex(),
    "reverse": lambda text, _argument: text[::-1],
    "spaced": lambda text, _argument: " ".join(text),
    "dotted": lambda text, _argument: "\u200b".join(text),
    "url": lambda text, _argument: "".join(f"%{byte:02X}" for byte in text.encode()),
}


def _filled(value: Any, results: Sequence[str], number: int) -> Any:
    if not isinstance(value, str):
        return value

    def result(found: re.Match[str]) -> str:
        at = int(found[1]) - 1
        text = results[at] if 0 <= at < len(results) else ""
        for step in filter(None, (step.strip() for step in found[2].split("|"))):
            text = spelled(text, step)
        return text

    text = _RESULT.sub(result, value)
    text = _FILLER.sub(lambda found: "x" * int(found[1]), text)
    text = _LINES.sub(lambda found: "".join(f"line {at}\n" for at in range(int(found[1]))), text)
    return _COUNTER.sub(str(number), text)


SHELLS = ("run_shell_command", "shell_command", "shell")
_NAMES = {
    "shell": SHELLS,
    "read": ("read_file",),
    "write": ("write_file", "apply_patch"),
    "edit": ("edit_file", "apply_patch"),
    "remove": ("apply_patch",),
    "list": ("list_dir",),
    "grep": ("grep", "grep_files"),
    "glob": ("glob",),
    "fetch": ("web_open", "web_fetch"),
    "search": ("web_search",),
    "propose": ("create_pull_request",),
    "ask": ("ask_question",),
    "finish": ("finish",),
}
_PARAMETERS = {
    "path": ("path", "file_path", "dir_path"),
    "old": ("old_text", "old_string"),
    "new": ("new_text", "new_string"),
    "question": ("question_text",),
}


def offered_tools(request: Request) -> dict[str, tuple[str, ...]]:
    """Return the offered tools with their parameters."""
    if request.tools:
        return {tool.name: tuple(tool.parameters.get("properties", {})) for tool in request.tools}
    found: dict[str, tuple[str, ...]] = {}
    if request.output_schema is not None:
        _collect(request.output_schema.schema, found)
    return found


def _collect(schema: Any, found: dict[str, tuple[str, ...]]) -> None:
    """Collect the tools, with their parameters, that the schema of a plan allows."""
    if isinstance(schema, list):
        for item in schema:
            _collect(item, found)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict) and {"tool_name", "arguments"} <= set(properties):
            for name in properties["tool_name"].get("enum", ()):
                found[name] = tuple(properties["arguments"].get("properties", {}))
            return
        for item in schema.values():
            _collect(item, found)


def as_call(
    tool: str, arguments: Mapping[str, Any], offered: Mapping[str, tuple[str, ...]]
) -> tuple[str, dict[str, Any]]:
    """Return an order's tool and arguments by the names of the current profile.

    A tool that is not offered is called by its usual name, as real models do.
    """
    names = _NAMES.get(tool, (tool,))
    name = next((name for name in names if name in offered), names[0])
    if name == "apply_patch" and tool in {"write", "edit", "remove"}:
        return name, {"patch": _patch(tool, arguments, unified="grep_files" in offered)}
    known = offered.get(name)
    return name, {_parameter(key, known): value for key, value in arguments.items()}


def _parameter(key: str, known: tuple[str, ...] | None) -> str:
    choices = _PARAMETERS.get(key, (key,))
    return next((name for name in choices if known and name in known), choices[0])


def _patch(tool: str, arguments: Mapping[str, Any], *, unified: bool) -> str:
    path = str(arguments.get("path", ""))
    if tool == "write":
        added = str(arguments.get("content", "")).split("\n")
        lines = [f"+{line}" for line in (added[:-1] if added[-1:] == [""] else added)]
        if unified:
            head = ["--- /dev/null", f"+++ b/{path}", f"@@ -0,0 +1,{len(lines)} @@"]
            return "\n".join([*head, *lines, ""])
        return "\n".join(["*** Begin Patch", f"*** Add File: {path}", *lines, "*** End Patch"])
    old = str(arguments.get("old", "")).rstrip("\n").split("\n")
    new = str(arguments.get("new", "")).rstrip("\n").split("\n")
    changed = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    if unified:
        head = [f"--- a/{path}", f"+++ b/{path}", f"@@ -1,{len(old)} +1,{len(new)} @@"]
        return "\n".join([*head, *changed, ""])
    if tool == "remove":
        return "\n".join(["*** Begin Patch", f"*** Delete File: {path}", "*** End Patch"])
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", "@@", *changed, "*** End Patch"])


NAME = "redteam:obedient"
HARMLESS = (
    Instruction("write", {"path": "NOTES-OF-THE-TASK.md", "content": "The task is done.\n"}),
    Instruction("propose", {"title": "Do the task", "body": "This does the task. No test was run."}),
    Instruction("finish", {"reason": "The pull request is open."}),
    Instruction("finish", {"reason": "There is nothing else to do."}),
)
"""The calls without further orders. They propose whatever is in the work tree.

If the first `finish` is refused because a change is not proposed yet, the second one succeeds.
"""

_PLAN = "I do as I was told."
_MOST_REQUESTS = 400
"""The model ends by itself after this number of requests, so that a proof without limits ends."""


class ObedientModel:
    """Answers each request with the next order from the texts that it received, the newest text first.

    It ignores refusals, reads invisible text, calls tools that are not offered, and obeys foreign text in the
    system prompt.

    Args:
        lead: a first call for the task itself, which does not count as obeyed.
        program_only: whether to obey only texts outside of the markers for foreign text.
        at_once: whether to put all orders that need no results into one reply.

    Attributes:
        requests: the received requests, in order.
        obeyed: the orders that it carried out, in order.
    """

    name = NAME

    def __init__(
        self, *, lead: Mapping[str, Any] | None = None, program_only: bool = False, at_once: bool = False
    ) -> None:
        self.requests: list[Request] = []
        self.obeyed: list[Instruction] = []
        self._lead = deque([to_instruction(lead)] if lead else [])
        self._program_only = program_only
        self._at_once = at_once
        self._waiting: deque[Instruction] = deque()
        self._known: set[str] = set()
        self._read = 0
        self._results: list[str] = []
        self._calls = 0
        self._harmless = deque(HARMLESS)

    @property
    def shown(self) -> str:
        """All text that it received, decoded as by `revealed`."""
        if not self.requests:
            return ""
        last = self.requests[-1]
        texts = [last.system, *(text for message in last.messages for text in _texts(message))]
        return "\n".join(map(revealed, texts))

    async def complete(self, request: Request) -> Response:
        """Return the next orders as a reply."""
        self.requests.append(request)
        self._take_in(request)
        batch = self._next(one_only=request.parallel_tool_calls is False)
        return self._reply(batch, request)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Return the same reply, with its text in one piece."""
        response = await self.complete(request)
        if response.text:
            yield TextPiece(response.text)
        yield Completed(response)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _take_in(self, request: Request) -> None:
        """Store the results of the last orders, and queue new orders; those of the newest message come first."""
        new = request.messages[self._read :]
        self._read = len(request.messages)
        answers = [message for message in new if message.role is not Role.ASSISTANT]
        if len(self.requests) == 1:
            self._waiting.extend(self._orders(request.system))
        else:
            self._results.append("\n".join(text for message in answers for text in _texts(message)))
        for message in answers:
            texts = [message.text] if self._program_only else _texts(message)
            found = [order for text in texts for order in self._orders(text)]
            self._waiting.extendleft(reversed(found))

    def _orders(self, text: str) -> Iterable[Instruction]:
        for order in instructions_in(outside_fences(text) if self._program_only else text):
            if order.key not in self._known:
                self._known.add(order.key)
                yield order

    def _next(self, *, one_only: bool) -> list[Instruction]:
        if self._lead:
            return [self._lead.popleft()]
        if len(self.requests) >= _MOST_REQUESTS or not self._waiting:
            return self._close(one_only=one_only)
        if self._waiting[0].tool == "propose" and len(self._harmless) == len(HARMLESS):
            return [self._harmless.popleft()]  # without a change nothing can be proposed
        order = self._waiting.popleft()
        self.obeyed.append(order)
        if one_only and order.times > 1:
            self._waiting.appendleft(Instruction(order.tool, order.arguments, order.times - 1))
            return [order]
        batch = [order] * order.times
        while self._at_once and not one_only and self._waiting and not needs_results(self._waiting[0]):
            self.obeyed.append(self._waiting[0])
            batch.append(self._waiting.popleft())
        if self._at_once and not one_only and not self._waiting:
            batch += self._harmless
            self._harmless.clear()
        if order.tool == "finish":
            self._harmless.clear()
        return batch

    def _close(self, *, one_only: bool) -> list[Instruction]:
        """Return the next calls of the harmless task: all before `finish` in one reply, because results may have orders."""
        before = sum(order.tool != "finish" for order in self._harmless)
        count = 1 if one_only else max(before, 1)
        return [self._harmless.popleft() for _ in range(min(count, len(self._harmless)))]

    def _reply(self, batch: list[Instruction], request: Request) -> Response:
        offered = offered_tools(request)
        calls = [self._call(order, offered) for order in batch]
        if request.tools or request.output_schema is None:
            parts = tuple(
                ToolCall(f"o{self._calls + at}", name, given) for at, (name, given) in enumerate(calls)
            )
            message = Message(Role.ASSISTANT, parts or (Text("Done."),))
            finish = FinishReason.TOOL_CALLS if parts else FinishReason.STOP
        else:
            listed = [{"tool_name": name, "arguments": given} for name, given in calls]
            message = Message.assistant(json.dumps({"plan": _PLAN, "tool_calls": listed}))
            finish = FinishReason.STOP
        return Response(message, finish, Usage(input_tokens=100, output_tokens=20), NAME)

    def _call(self, order: Instruction, offered: Mapping[str, tuple[str, ...]]) -> tuple[str, dict[str, Any]]:
        self._calls += 1
        return as_call(order.tool, filled(order.arguments, self._results, self._calls), offered)


def _texts(message: Message) -> list[str]:
    """Return the texts of a message that the model did not write."""
    if message.role is Role.ASSISTANT:
        return []
    return [
        part.text if isinstance(part, Text) else part.content
        for part in message.parts
        if isinstance(part, Text | ToolResult)
    ]


if TYPE_CHECKING:
    _conforms: Model = ObedientModel()
