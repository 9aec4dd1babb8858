"""Reads calls that a model writes into its text, in the forms that known models are trained on.

===============================  ==============================================================
written by                       form
===============================  ==============================================================
Qwen, Hermes, Granite, Hunyuan   `<tool_call>{"name": …, "arguments": …}</tool_call>`, `<tools>`
Qwen3-Coder, Seed-OSS            `<function=NAME><parameter=KEY>…</parameter></function>`
Mistral                          `[TOOL_CALLS][{…}]`, `[TOOL_CALLS]NAME[ARGS]{…}`
DeepSeek                         `<|tool_call_begin|>NAME<|tool_sep|>{…}`, `<|DSML|invoke …>`
GLM                              `<tool_call>NAME<arg_key>…</arg_key><arg_value>…</arg_value>`
Kimi                             `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}`
Gemma, Gemini                    a block of code `tool_code` with `NAME(key="…")`
Llama                            `<|python_tag|>` and JSON or `NAME.call(…)`; `[NAME(key="…")]` alone
Claude, MiniMax                  `<invoke name="NAME"><parameter name="KEY">…</parameter></invoke>`
Phi, Granite, Command R          `<|tool_call|>[…]`, `functools[…]`, `<|START_ACTION|>[…]`
Nemotron, InternLM, LFM          `<TOOLCALL>[…]`, `<|action_start|>…`, `<|tool_call_start|>[…]`
LongCat, Functionary, OLMo       `<longcat_tool_call>…`, `>>>NAME` and JSON, `<function_calls>NAME(key="…")`
gpt-oss                          `<|channel|>commentary to=functions.NAME …<|message|>{…}<|call|>`
any                              JSON alone, or in the only fenced block
===============================  ==============================================================

A model also writes such text when it quotes a file or explains something. So a call counts only if the reply ends
with it, outside of code and quotations, and if everything from its first mark on is calls of offered tools. JSON in
a block may have prose after it. The session further refuses a call that stands in what the model has read.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.messages import ToolCall
from orchestrator.engine.contracts.base import THOUGHTS
from orchestrator.engine.contracts.json_plan import plan_of
from orchestrator.engine.contracts.plan_json import BrokenJsonError, flaws, parse_json_at
from orchestrator.engine.contracts.whole_file import fenced_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator.core.messages import ToolDefinition

WRITTEN = "written_"
"""Prefix of the ids of calls that were written as text.

Their results are sent as text, because vendors do not know the ids.
"""

_LONGEST_CHARS = 200_000
_MOST_CALLS = 200
_MOST_PARAMETERS = 50
_FAMILIES = {
    "tool_call": r"</?tool_calls?>",
    "tools": r"</?tools?>",
    "functions": r"</?(?:\uff5cDSML\uff5c|antml:|steptml:)?(?:function_calls?|tool_calls|toolcall)>",
    "spaced": r"</?(?:minimax|seed):tool_call>|</?longcat_tool_call>|</?tool_use>",
    "capital": r"</?TOOLCALL>",
    "mistral": r"\[/?TOOL_CALLS\]",
    "bars": r"<\|/?tool_calls?\|>",
    "deepseek": r"<\uff5ctool\u2581(?:calls?|outputs?)\u2581(?:begin|end)\uff5c>|<\uff5cend\u2581of\u2581sentence\uff5c>",
    "kimi": r"<\|tool_calls?_(?:section_)?(?:begin|end|start)\|>",
    "llama": r"<\|python_tag\|>|<\|eo[mt]_id\|>",
    "action": r"<\|(?:START|END)_ACTION\|>",
    "plugin": r"<\|(?:action_start|plugin|action_end)\|>",
    "phi": r"functools(?=\[)",
    "harmony": r"<\|start\|>assistant(?=<\|channel\|>| to=)|<\|call\|>",
    "functionary": r">>>(?=[A-Za-z_][\w.-]{0,99}\n\s{0,9}\{)",
    "code": r"```tool_code[ \t]{0,9}\n|```(?=\s{0,9}\Z)",
    "bare": r"</(?:tool_call|function_calls)>",
}
"""The marks around the calls of each form; those of other forms are no marks there."""
_BETWEEN = r";|</s>|<\|(?:im_end|eot_id|endoftext|end)\|>"
"""What may stand between and after the calls of every form: a semicolon, and marks with which a reply ends."""
_MARKS = {name: re.compile(rf"(?>(?:\s{{1,99}}|{marks}|{_BETWEEN})*)") for name, marks in _FAMILIES.items()}
_OPENING = re.compile(
    "|".join(
        f"(?P<{name}>{marks})" for name, marks in _FAMILIES.items() if name not in {"bare", "harmony", "code"}
    )
    + r"|(?P<harmony><\|start\|>assistant(?=<\|channel\|>| to=)|(?=<\|channel\|>[a-z ]{0,20}to=))"
    + r"|(?P<code>```tool_code[ \t]{0,9}\n)"
    + r"|(?P<bare>(?=<function[= ])|(?=<(?:antml:)?invoke[ >]))"
)
_FUNCTION = re.compile(r'<function(?:=| name=)"?([\w.-]{1,100})"?\s{0,9}>\s{0,9}')
_INVOKE = re.compile(r'<(?:\uff5cDSML\uff5c|antml:|steptml:)?invoke name="([\w.-]{1,100})"\s{0,9}>\s{0,9}')
_PARAMETER = re.compile(
    r'<(?:\uff5cDSML\uff5c|antml:|steptml:)?parameter(?:=([\w.-]{1,100})| name="([\w.-]{1,100})"[^<>]{0,100})>'
)
_END_OF_PARAMETER = re.compile(r"</(?:\uff5cDSML\uff5c|antml:|steptml:)?parameter>\s{0,9}")
_END = re.compile(r"</(?:\uff5cDSML\uff5c|antml:|steptml:)?(?:function|invoke)>")
_NAMED = re.compile(
    r"(?:function<\uff5ctool\u2581sep\uff5c>|<\|channel\|>[a-z ]{0,20}to=|to=)?(?:functions?\.)?([A-Za-z_][\w-]{0,99})(?::\d{1,4})?"
    r"(?:\[CALL_ID\]\w{1,40})?(?:\[ARGS\]|<\uff5ctool\u2581sep\uff5c>|<\|tool_call_argument_begin\|>"
    r"|(?:<\|channel\|>)?[a-z ]{0,20}(?:<\|constrain\|>\w{1,20})?<\|message\|>)?\s{0,9}(?:```json\s{0,9})?"
)
_AFTER_NAMED = re.compile(r"\s{0,9}```(?=<\uff5ctool\u2581call\u2581end\uff5c>)")
_KEY = re.compile(r"\s{0,9}<arg_key>([^<]{1,100})</arg_key>\s{0,9}<arg_value>")
_SEPARATORS = re.compile(rf"(?>(?:\s{{1,99}}|{_BETWEEN})*)")
_FENCE_LINE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_WRAPPERS = {"print", "default_api", "functions", "api"}

_Found: TypeAlias = "list[tuple[str, dict[str, Any]]]"


@dataclass(frozen=True, slots=True)
class WrittenCalls:
    """The calls in a text.

    Attributes:
        text: the part of the text that is the calls.
        is_doubtful: whether there is no call, but a part that may have been meant as one.
    """

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    is_doubtful: bool = False


def written_calls(text: str, tools: Iterable[ToolDefinition], round_number: int) -> WrittenCalls:
    """Return the calls in a text, if nothing else in it could be a call."""
    if len(text) > _LONGEST_CHARS:
        return WrittenCalls()
    offered = {tool.name: tool for tool in tools}
    thoughts = THOUGHTS.match(text)
    answer = text[thoughts.end() :] if thoughts else text
    found, part, is_marked = _marked_calls(answer, offered)
    if not is_marked:
        found, part = _json_alone(answer)
    if not found or any(name not in offered for name, _ in found):
        doubtful = is_marked or _names_a_call(text, answer, offered) or _resembles_a_call(answer, offered)
        return WrittenCalls(is_doubtful=doubtful)
    calls = [
        ToolCall(f"{WRITTEN}r{round_number}c{number}", name, arguments)
        for number, (name, arguments) in enumerate(found, 1)
    ]
    return WrittenCalls(tuple(calls), part)


_NOISE = re.compile(
    rf"\s|{_BETWEEN}|^[ \t]{{0,9}}\d{{1,9}} \| |{'|'.join(marks for name, marks in _FAMILIES.items() if name != 'bare')}",
    re.MULTILINE,
)
"""Blanks, numbers of lines in front of them, and the marks around calls."""


def is_quotation(written: str, texts: Iterable[str]) -> bool:
    """Return whether a call that a model wrote stands in one of these texts, with any marks around it."""
    bare = _NOISE.sub("", written)
    return bool(bare) and any(bare in _NOISE.sub("", text) for text in texts)


def _names_a_call(text: str, answer: str, offered: Mapping[str, ToolDefinition]) -> bool:
    """Return whether calls are in the thoughts of a reply that says nothing else."""
    return not answer.strip() and bool(_marked_calls(text.partition(">")[2], offered)[0])


_MOST_AFTER_NAME = 2_000


def _resembles_a_call(text: str, offered: Mapping[str, ToolDefinition]) -> bool:
    """Return whether a text has a call in a form that is not known: a tool's name, and all that it needs as keys.

    A tool that needs nothing counts only as the value of a key for names.
    """
    for name, tool in offered.items():
        keys = [str(key) for key in tool.parameters.get("required", ())]
        for end in _ends_of(name, text):
            after = text[end : end + _MOST_AFTER_NAME]
            if keys and all(
                any(_AFTER_KEY.match(after, place) for place in _ends_of(key, after)) for key in keys
            ):
                return True
            if not keys and _KEY_FOR_NAMES.search(text[max(0, end - len(name) - 20) : end - len(name)]):
                return True
    return False


_KEY_FOR_NAMES = re.compile(r"[\"'](?:tool|name|function|tool_name)[\"']\s{0,4}:\s{0,4}[\"']\Z")
_AFTER_KEY = re.compile(r"[\"'`*]{0,3}\s{0,4}[:=>]")
_IN_NAME = re.compile(r"[\w.-]")


def _ends_of(word: str, text: str) -> Iterator[int]:
    """Yield the places in a text after a word that stands alone."""
    end = 0
    for _ in range(_MOST_CALLS):
        start = text.find(word, end)
        if start < 0:
            return
        end = start + len(word)
        if not _IN_NAME.match(text[start - 1 : start]) and not _IN_NAME.match(text, end):
            yield end


def _json_alone(text: str) -> tuple[_Found, str]:
    """Return the calls that are the whole text, or the only fenced block in it."""
    blocks = [block.text for block in fenced_blocks(text)[1] if block.is_closed]
    if len(blocks) > 1:
        return [], ""
    part = (blocks[0] if blocks else text).strip()
    if part.startswith("[") and part.endswith(")]") and not blocks:
        return _python_calls(part), part
    if not part.startswith(("{", "[")):
        return [], ""
    found: _Found = []
    end = 0
    for _ in range(_MOST_CALLS):
        calls, after = _json_calls(part, end)
        if not calls:
            return [], ""
        found += calls
        end = _end_of(_SEPARATORS, part, after)
        if end == len(part):
            return found, part
    return [], ""


def _marked_calls(text: str, offered: Mapping[str, ToolDefinition]) -> tuple[_Found, str, bool]:
    """Return the calls at the end of a text that marks begin, that part, and whether there are marks of a call."""
    begin = next((match for match in _OPENING.finditer(text) if not match[0].startswith("</")), None)
    if begin is None or not any(name in text[begin.start() :] for name in offered):
        return [], "", False
    part = text[begin.start() :]
    if _is_quoted(text, begin.start()):
        return [], "", True
    marks = _MARKS[begin.lastgroup or "bare"]
    found: _Found = []
    place = _end_of(marks, text, begin.end())
    for _ in range(_MOST_CALLS):
        if place >= len(text):
            return found, part, True
        calls, place = _calls_at(text, place, offered)
        if not calls:
            return [], "", True
        found += calls
        place = _end_of(marks, text, place)
    return [], "", True


def _end_of(marks: re.Pattern[str], text: str, place: int) -> int:
    match = marks.match(text, place)
    return match.end() if match else place


def _is_quoted(text: str, place: int) -> bool:
    """Return whether a place is in a fenced block, in inline code, or in a quotation."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    fences = sum(1 for _ in _FENCE_LINE.finditer(text, 0, place))
    return fences % 2 == 1 or line.count("`") % 2 == 1 or line.lstrip().startswith(">")


def _calls_at(text: str, place: int, offered: Mapping[str, ToolDefinition]) -> tuple[_Found, int]:
    """Return the calls that begin at a place, and where they end; no calls if there are none."""
    if text[place] in "{[":
        found, end = _json_calls(text, place)
        return (found, end) if found else _python_at(text, place)
    for begin in (_FUNCTION, _INVOKE):
        if match := begin.match(text, place):
            return _element(text, match, offered)
    match = _NAMED.match(text, place)
    if match is None:
        return [], place
    name, end = match[1].removeprefix("functions."), match.end()
    if text.startswith("{", end):
        value, end = _json_at(text, end)
        after = _AFTER_NAMED.match(text, end)
        return ([(name, value)] if isinstance(value, dict) else []), after.end() if after else end
    if text[end : end + 1] in {"(", "."}:
        return _python_at(text, place)
    return _keys_and_values(text, name, end, offered)


def _element(text: str, begin: re.Match[str], offered: Mapping[str, ToolDefinition]) -> tuple[_Found, int]:
    name, place = begin[1], begin.end()
    arguments: dict[str, Any] = {}
    if text.startswith("{", place):
        value, place = _json_at(text, place)
        arguments = value if isinstance(value, dict) else {}
        place = _end_of(_MARKS["bare"], text, place)
    for _ in range(_MOST_PARAMETERS):
        parameter = _PARAMETER.match(text, place)
        if parameter is None:
            break
        end = _END_OF_PARAMETER.search(text, parameter.end())
        key = parameter[1] or parameter[2]
        if end is None or key in arguments:
            return [], place
        arguments[key] = _typed(text[parameter.end() : end.start()], name, key, offered)
        place = end.end()
    closing = _END.match(text, place)
    return ([(name, arguments)], closing.end()) if closing else ([], place)


def _keys_and_values(
    text: str, name: str, place: int, offered: Mapping[str, ToolDefinition]
) -> tuple[_Found, int]:
    arguments: dict[str, Any] = {}
    for _ in range(_MOST_PARAMETERS):
        key = _KEY.match(text, place)
        if key is None:
            break
        end = text.find("</arg_value>", key.end())
        if end < 0 or key[1] in arguments:
            return [], place
        arguments[key[1]] = _typed(text[key.end() : end], name, key[1], offered)
        place = end + len("</arg_value>")
    is_call = bool(arguments) or text[place:].lstrip().startswith("</tool_call>")
    return ([(name, arguments)], place) if is_call else ([], place)


def _typed(text: str, name: str, key: str, offered: Mapping[str, ToolDefinition]) -> Any:
    """Return a parameter's value: text where the tool takes text, else what its JSON says."""
    if text.startswith("\n") and text.endswith("\n") and len(text) > 1:
        text = text[1:-1]
    tool = offered.get(name)
    schema = tool.parameters.get("properties", {}).get(key, {}) if tool else {}
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if kind == "string" or "string" in kind:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_at(text: str, place: int) -> tuple[Any, int]:
    try:
        value, end = parse_json_at(text, place)
    except BrokenJsonError:
        return None, place
    return (None, place) if flaws(value) else (value, end)


def _json_calls(text: str, place: int) -> tuple[_Found, int]:
    value, end = _json_at(text, place)
    value = plan_of(value)
    calls = value.get("tool_calls") if isinstance(value, dict) and not flaws(value) else None
    if not isinstance(calls, list):
        return [], place
    is_valid = all(
        isinstance(call, dict)
        and isinstance(call.get("tool_name"), str)
        and isinstance(call.get("arguments"), dict)
        for call in calls
    )
    return ([(call["tool_name"], call["arguments"]) for call in calls], end) if is_valid else ([], place)


def _python_at(text: str, place: int) -> tuple[_Found, int]:
    """Return the calls in Python's form up to the end of their block or of the text."""
    ends = [text.find(mark, place) for mark in ("\n```", "<|", "\n</function_calls>")]
    end = min((at for at in ends if at >= 0), default=len(text))
    return _python_calls(text[place:end]), end


def _python_calls(text: str) -> _Found:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: _Found = []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        for item in value.elts if isinstance(value, ast.List) else [value]:
            call = _python_call(item)
            if call is None:
                return []
            found.append(call)
    return found


def _python_call(node: ast.expr | None) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1:
        return _python_call(node.args[0])
    name, owner = (
        (node.func.attr, node.func.value) if isinstance(node.func, ast.Attribute) else (node.func, None)
    )
    if isinstance(owner, ast.Name) and name == "call":
        name = owner.id
    elif isinstance(owner, ast.Name) and owner.id not in _WRAPPERS:
        return None
    elif isinstance(name, ast.Name):
        name = name.id
    if not isinstance(name, str) or node.args or any(word.arg is None for word in node.keywords):
        return None
    try:
        return name, {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    except (ValueError, RecursionError):
        return None
