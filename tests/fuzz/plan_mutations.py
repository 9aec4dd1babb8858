"""Breaks valid plans in the ways that models break them, and counts what the program then runs.

Run: python -m tests.fuzz.plan_mutations [--number N] [--seed N]. It prints a table by kind of mutation and
ends with 1 where a call runs that the plan does not have at that place.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.contracts.base import Actions
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.base import Response
from tests.fuzz.plans import tool

if TYPE_CHECKING:
    from collections.abc import Callable

Called: TypeAlias = "list[tuple[str, dict[str, Any]]]"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|\s+')
_CONSTANTS = {"true": ("True", "TRUE"), "false": ("False", "FALSE"), "null": ("None", "undefined", "NULL")}
_SMART = "“”„\u2018\u2019"

CONTENTS = (
    "print('x')\n",
    'if a == "":\n    b()\n',
    'rm -rf ./"build"/x',
    'print("hello, world")\nprint("a", "b")\n',
    'x = {"a": {"b": "c"}}\n',
    '[{"a": "b"}]',
    '{"x": [{"a": {"b": "c"}}]}',
    '{"plan": "p", "tool_calls": [{"tool_name": "finish", "arguments": {"reason": "no"}}]}',
    'README\n```json\n{"tool_calls": [{"tool_name": "finish", "arguments": {}}]}\n```\nend\n',
    '```python\nprint("a")\n```\n',
    '", "',
    '"}',
    '"}}]}',
    'a "}}, {"tool_name": "finish", "arguments": {}}] b',
    'a", "path": "b.py',
    'x"}}]} and more text',
    '"quoted"',
    "'single'",
    "it's, isn't it: 'a', 'b'",
    "d = {'a': 'b', 'c': [1, 2]}\n",
    "// a comment, not one\nx = 1 // 2\n# other\n",
    "see https://example.org/a?b=c&d=%22e%22#f",
    r're.sub(r"\bfoo\d+\\(.*?)\"", "\\1", text)',
    r"C:\new\table\u0041",
    "say “no”, or „ja“, or \u2018maybe\u2019",
    "naïve café 日本語 😀 \u2028\n",
    "one\r\ntwo\r\n\tthree\r\n",
    "a" + '\\"' * 5,
    '<div class="a">{{ x }}</div>\n</script>',
    'const a = {type: "b", c: 1}; // d\nreturn `x ${a["type"]}`\n',
    'def f():\n    """Doc."""\n    return f"{x!r}: {y}"\n',
    'key: "value"\nlist: ["a", "b"]\nempty: ""\n',
    'echo "a" "b": c',
    "/* block */ a */ b /*",
    "",
    "}", "]", ",", ":", "\\", "null", "True", "17", "[1, 2]",
    "a}}, b]} c",
    '{"a": 1, // one\n "b": None,}',
    'SELECT "a" FROM b WHERE c = \'d\'\'e\';',
    "<tool_call>{}</tool_call></think>",
)  # fmt: skip
PLANS = (
    "Fix it.",
    'I change "a" to "b", then finish.',
    'Send {"tool_calls": [{"tool_name": "finish", "arguments": {}}]} later.',
    "First: look.\nThen: don't stop.",
    "",
)
LAYOUTS: tuple[dict[str, Any], ...] = ({}, {}, {"indent": 2}, {"separators": (",", ":")})
PATHS = ("a.py", "src/b c.md", "x/y.json", "it's.txt")


_TEXT = {"type": "string"}
TOOLS = (
    tool("write_file", {"path": _TEXT, "content": _TEXT, "append": {"type": "boolean"}}, "path", "content"),
    tool("edit_file", {"path": _TEXT, "old_text": _TEXT, "new_text": _TEXT}, "path", "old_text", "new_text"),
    tool("read_file", {"path": _TEXT, "offset": {"type": ["integer", "null"]}, "limit": {"type": "integer"}}, "path"),
    tool("run_shell_command", {"command": _TEXT, "arguments": {"type": "array", "items": _TEXT}}, "command"),
    tool("finish", {"reason": _TEXT}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and what the model wrote as far as anyone can tell.

    Attributes:
        calls: of the last text that was valid JSON.
        harmless: every string is still whole, and what was meant is plain.
    """

    text: str
    calls: Called
    finish: FinishReason = FinishReason.STOP
    harmless: bool = True


def read(text: str, finish: FinishReason = FinishReason.STOP) -> Called | None:
    """The calls that run; None where the model is asked again."""
    reading = JsonPlan().read(
        Response(Message.assistant(text), finish, Usage(), "test"), TOOLS, round_number=1
    )
    return (
        [(call.name, dict(call.arguments)) for call in reading.calls]
        if isinstance(reading, Actions)
        else None
    )


def valid_reply(random: Random) -> Reply:
    """A plan of one to four calls, in one of the ways to write it."""
    calls = [_call(random) for _ in range(random.randint(1, 4))]
    words = random.choice(PLANS) if random.random() < 0.8 else _content(random)
    layout = random.choice(LAYOUTS)
    text = json.dumps({"plan": words, "tool_calls": calls}, ensure_ascii=random.random() < 0.3, **layout)
    called = read(text)
    assert called is not None, text
    assert [name for name, _ in called] == [call["tool_name"] for call in calls]
    return Reply(text, called)


def _content(random: Random) -> str:
    parts = random.choices(CONTENTS, k=random.choice((1, 1, 2, 3)))
    return random.choice(("", "\n", " ")).join(parts)


def _call(random: Random) -> dict[str, Any]:
    path = random.choice(PATHS)
    name = random.choice([tool.name for tool in TOOLS])
    choices: dict[str, dict[str, Any]] = {
        "write_file": {"path": path, "content": _content(random)},
        "edit_file": {"path": path, "old_text": _content(random), "new_text": _content(random)},
        "read_file": {"path": path, "offset": random.choice((None, 0, 120)), "limit": 17},
        "run_shell_command": {"command": _content(random)},
        "finish": {"reason": _content(random)},
    }
    arguments = choices[name]
    if name == "write_file" and random.random() < 0.5:
        arguments["append"] = random.random() < 0.5
    if name == "run_shell_command" and random.random() < 0.5:
        arguments["arguments"] = [_content(random) for _ in range(random.randint(0, 3))]
    return {"tool_name": name, "arguments": arguments}


# What follows breaks a text. Each function returns it, and whether that was harmless; None where it has
# nothing to break.
Broken: TypeAlias = "tuple[str, bool] | None"


def _tokens(text: str) -> list[str]:
    """The text cut up; of one that is broken already, as well as that goes."""
    found: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() > end:
            found.append(text[end : match.start()])
        found.append(match[0])
        end = match.end()
    return [*found, text[end:]] if end < len(text) else found


def _strings(tokens: list[str]) -> list[int]:
    return [i for i, token in enumerate(tokens) if len(token) > 1 and token[0] == token[-1] == '"']


def _string(random: Random, tokens: list[str], test: Callable[[str], object] = bool) -> int | None:
    places = [i for i in _strings(tokens) if test(tokens[i])]
    return random.choice(places) if places else None


def _swapped(tokens: list[str], place: int, new: str) -> str:
    return "".join([*tokens[:place], new, *tokens[place + 1 :]])


def _gap(random: Random, tokens: list[str]) -> int:
    """A place between two tokens, inside the outermost bracket."""
    return random.randint(1, max(1, len(tokens) - 1))


def unescape_one(random: Random, text: str) -> Broken:
    places = [match.start() for match in re.finditer(r'(?<!\\)(?:\\\\)*\\"', text)]
    if not places:
        return None
    place = text.index('\\"', random.choice(places))
    return text[:place] + text[place + 1 :], False


def unescape_string(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens, lambda token: '\\"' in token)
    return None if place is None else (_swapped(tokens, place, tokens[place].replace('\\"', '"')), False)


def unescape_all(_random: Random, text: str) -> Broken:
    return (text.replace('\\"', '"'), False) if '\\"' in text else None


def drop_delimiter(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens)
    if place is None:
        return None
    token = tokens[place]
    return _swapped(tokens, place, random.choice((token[1:], token[:-1], token[1:-1]))), False


def add_quote(random: Random, text: str) -> Broken:
    place = random.randint(0, len(text))
    return text[:place] + '"' + text[place:], False


def add_other_quote(random: Random, text: str) -> Broken:
    place = random.randint(0, len(text))
    return text[:place] + random.choice("'`“”") + text[place:], False


def escape_delimiter(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens)
    if place is None:
        return None
    token = tokens[place]
    return _swapped(tokens, place, random.choice((f"\\{token}", f'{token[:-1]}\\"'))), False


def drop_backslash(random: Random, text: str) -> Broken:
    places = [match.start() for match in re.finditer(r"\\", text)]
    if not places:
        return None
    place = random.choice(places)
    return text[:place] + text[place + 1 :], False


def add_backslash(random: Random, text: str) -> Broken:
    place = random.randint(0, len(text))
    return text[:place] + "\\" + text[place:], False


def _no_smart(text: str) -> bool:
    return not any(quote in text for quote in _SMART)


def one_smart_quote(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens)
    if place is None:
        return None
    token = tokens[place]
    new = random.choice((f"“{token[1:]}", f"{token[:-1]}”"))
    return _swapped(tokens, place, new), _no_smart(token)


def smart_string(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens)
    return (
        None
        if place is None
        else (_swapped(tokens, place, f"“{tokens[place][1:-1]}”"), _no_smart(tokens[place]))
    )


def all_smart(_random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    for place in _strings(tokens):
        tokens[place] = f"“{tokens[place][1:-1]}”"
    return "".join(tokens), _no_smart(text)


def smart_inside(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens, lambda token: '\\"' in token)
    if place is None:
        return None
    return _swapped(tokens, place, tokens[place].replace('\\"', random.choice(("“", "”", "\\”")))), False


def single_string(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens)
    if place is None:
        return None
    body = tokens[place][1:-1]
    body = random.choice((body, body.replace("'", "\\'"), body.replace('\\"', '"')))
    good = not re.search(r"(?<!\\)'", body) and "\\/" not in body
    # A value like this in other JSON may also be a text that has lost its quotation marks.
    good = good and tokens[place + 1 : place + 2] == [":"]
    return _swapped(tokens, place, f"'{body}'"), good


def all_single(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    escaped = random.random() < 0.5
    for place in _strings(tokens):
        body = tokens[place][1:-1]
        tokens[place] = "'{}'".format(body.replace("'", "\\'") if escaped else body)
    return "".join(tokens), escaped or "'" not in text


def python_dictionary(_random: Random, text: str) -> Broken:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    written = repr(value)
    return written, not re.search(r"\\[xU]", written) and written.isascii()


def comment(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    words = random.choice(("note", "first, this", "it's done: now", "x = 1", "TODO(me) see above!"))
    form = random.choice(("// {}\n", "# {}\n", "/* {} */", "/* {}\n * more\n */", "//{}\n"))
    place = _gap(random, tokens)
    return "".join([*tokens[:place], form.format(words), *tokens[place:]]), True


def comment_with_json(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    form = random.choice(('// "a": 1,\n', '# say "this"\n', '/* {"b": 2} */', "// [x], {y}\n"))
    place = _gap(random, tokens)
    return "".join([*tokens[:place], form, *tokens[place:]]), False


def endless_comment(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _gap(random, tokens)
    form = random.choice(("// note ", "# note ", "/* note ", "//", "#"))
    return "".join([*tokens[:place], form, *tokens[place:]]), False


def commented_out(random: Random, text: str) -> Broken:
    """The tokens between two places, or the lines, become a comment."""
    tokens = _tokens(text)
    first, last = sorted((_gap(random, tokens), _gap(random, tokens)))
    inner = "".join(tokens[first:last])
    return "".join([*tokens[:first], f"/* {inner} */", *tokens[last:]]), False


def constants(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token in _CONSTANTS]
    if not places:
        return None
    for place in places if random.random() < 0.5 else [random.choice(places)]:
        tokens[place] = random.choice(_CONSTANTS[tokens[place]])
    return "".join(tokens), True


def trailing_comma(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token in "}]" and i and tokens[i - 1] not in "{[,"]
    if not places:
        return None
    place = random.choice(places)
    return "".join([*tokens[:place], ",", *tokens[place:]]), True


def missing_comma(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token == ","]
    if not places:
        return None
    place = random.choice(places)
    value, behind = tokens[place - 1], tokens[place + 1 : place + 4]
    # Two strings in a list that follow one another are what Python joins, and so is `""`.
    whole = value in "}]" or (bool(behind) and behind[0].isspace() and behind[2:3] == [":"])
    return _swapped(tokens, place, random.choice(("", " "))), whole


def double_comma(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token == ","]
    return (_swapped(tokens, random.choice(places), random.choice((",,", ", ,"))), True) if places else None


def leading_comma(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens[:-1]) if token in "{[" and tokens[i + 1] not in "}]"]
    if not places:
        return None
    place = random.choice(places)
    return _swapped(tokens, place, f"{tokens[place]},"), True


def comma_to_other(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token in ",:"]
    return (
        (_swapped(tokens, random.choice(places), random.choice((";", ":", ",", "="))), False)
        if places
        else None
    )


def concatenation(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = _string(random, tokens, lambda token: len(token) > 2)
    if place is None:
        return None
    token = tokens[place]
    middle = random.randint(1, len(token) - 1)
    joint = random.choice((" + ", '" + "', '"\n + "', '" "', '"\n"', '" . "', '", "', "\" + x + '"))
    joint = joint if '"' in joint else f'"{joint}"'
    return _swapped(tokens, place, token[:middle] + joint + token[middle:]), False


def raw_control(random: Random, text: str) -> Broken:
    """Line ends and tabs as they are, in one string or in all."""
    tokens = _tokens(text)
    raw = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\\\"}
    wanted = [i for i in _strings(tokens) if re.sub(r"\\[ntr]", "", tokens[i]) != tokens[i]]
    if not wanted:
        return None
    for place in wanted if random.random() < 0.5 else [random.choice(wanted)]:
        tokens[place] = re.sub(r"\\[\\ntr]", lambda match: raw[match[0]], tokens[place])
    return "".join(tokens), True


def fence_around(random: Random, text: str) -> Broken:
    begin, end = random.choice(
        (("```json\n", "\n```"), ("```\n", "\n```"), ("Plan:\n\n```json\n", "\n```\nDone."))
    )
    return begin + text + end, True


def prose_around(random: Random, text: str) -> Broken:
    before = random.choice(
        ("Here is my plan:\n\n", "Sure! ", "<think>Use {x} or [y]?</think>\n", 'I saw {"a": 1}. ', "")
    )
    after = random.choice(("", "\n\nThat is all.", " Done, hopefully.", '\nI did "it".\n'))
    return before + text + after, True


def fence_inside(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = random.randint(0, len(tokens))
    fence = random.choice(("```json\n", "\n```\n", "```", "\n```json\n"))
    return "".join([*tokens[:place], fence, *tokens[place:]]), False


def fenced_string(random: Random, text: str) -> Broken:
    """A string is written as a block, without quotes."""
    tokens = _tokens(text)
    place = _string(random, tokens)
    if place is None:
        return None
    body = tokens[place][1:-1].replace("\\n", "\n")
    new = random.choice(
        (f"```\n{body}\n```", f'"""{body}"""', f"`{body}`", f"'''{body}'''", f'f"{body}"', body)
    )
    return _swapped(tokens, place, new), False


def bare_keys(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    keys = [i for i in _strings(tokens) if tokens[i + 1 : i + 2] == [":"] and tokens[i][1:-1].isidentifier()]
    if not keys:
        return None
    for place in keys if random.random() < 0.5 else [random.choice(keys)]:
        tokens[place] = tokens[place][1:-1]
    return "".join(tokens), True


def drop_bracket(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    places = [i for i, token in enumerate(tokens) if token in "{}[]"]
    return (_swapped(tokens, random.choice(places), ""), False) if places else None


def add_bracket(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = random.randint(0, len(tokens))
    return "".join(
        [*tokens[:place], random.choice(("}", "]", "}}", "{", "[", "}]}", "]}")), *tokens[place:]]
    ), False


def drop_last_brackets(random: Random, text: str) -> Broken:
    stripped = text.rstrip()
    for _ in range(random.randint(1, 3)):
        if stripped[-1:] in ("}", "]"):
            stripped = stripped[:-1].rstrip()
    return stripped, False


def say_twice(random: Random, text: str) -> Broken:
    tokens = _tokens(text)
    place = random.randrange(len(tokens))
    end = place + random.randint(1, 6)
    return "".join([*tokens[:end], *tokens[place:]]), False


def cut(random: Random, text: str) -> Broken:
    """Behind a mark of JSON more often than elsewhere: that is where a cut is hardest to see."""
    marks = [match.end() for match in re.finditer(r'["}\],]', text)]
    place = random.choice(marks) if marks and random.random() < 0.6 else random.randint(0, len(text))
    return text[:place], False


KINDS: dict[str, tuple[Callable[[Random, str], Broken], ...]] = {
    "quote unescaped": (unescape_one, unescape_string, unescape_all),
    "quote removed or added": (drop_delimiter, add_quote, escape_delimiter),
    "backslash removed or added": (drop_backslash, add_backslash),
    "smart quotes": (one_smart_quote, smart_string, all_smart),
    "single quotes": (single_string, all_single, python_dictionary),
    "comments": (comment, comment, comment, comment_with_json, endless_comment, commented_out),
    "constants": (constants,),
    "commas": (trailing_comma, missing_comma, double_comma, leading_comma, comma_to_other),
    "concatenation": (concatenation,),
    "raw line ends and tabs": (raw_control,),
    "fences and prose": (fence_around, prose_around, fence_inside, fenced_string),
    "bare keys": (bare_keys,),
    "brackets lost, parts doubled": (drop_bracket, add_bracket, drop_last_brackets, say_twice),
    "text changed": (smart_inside, add_other_quote),
}
# The order of two: what changes the text of strings comes before all that leaves a text broken which may be
# mended, and what hides strings from the next mutation comes last.
_FIRST = ("text changed", "backslash removed or added", "quote unescaped", "quote removed or added")
_LAST = ("smart quotes", "single quotes")
CUT, TWO, TWO_AND_CUT = "cut (stop and length)", "two of them", "one of them, then cut"
NAMES = (*KINDS, CUT, TWO, TWO_AND_CUT)


def broken(random: Random, name: str) -> Reply | None:
    """A valid reply, broken in this way; None where there was nothing to break."""
    kinds = [name] if name in KINDS else random.sample([*KINDS], {CUT: 0, TWO: 2, TWO_AND_CUT: 1}[name])
    if {*kinds} == {*_LAST}:
        return None
    middle = [kind for kind in KINDS if kind not in _FIRST + _LAST]
    kinds.sort(key=[*_FIRST, *middle, *_LAST].index)
    steps = [random.choice(KINDS[kind]) for kind in kinds]
    if name in (CUT, TWO_AND_CUT):
        steps.append(cut)
    reply = valid_reply(random)
    for step in steps:
        after = _step(random, reply, step)
        if after is None:
            return None
        reply = after
    finish = (
        FinishReason.LENGTH if name in (CUT, TWO_AND_CUT) and random.random() < 0.5 else FinishReason.STOP
    )
    return None if _is_json(reply.text) else Reply(reply.text, reply.calls, finish, reply.harmless)


def _step(random: Random, reply: Reply, mutation: Callable[[Random, str], Broken]) -> Reply | None:
    after = mutation(random, reply.text)
    if after is None or after[0] == reply.text:
        return None
    text, harmless = after
    if _is_json(text):
        # Valid JSON is what the model wrote: nobody can know that it meant another text.
        calls = read(text)
        return None if calls is None else Reply(text, calls, reply.finish, reply.harmless)
    return Reply(text, reply.calls, reply.finish, harmless=reply.harmless and harmless)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class Counts:
    """What came of the mutations of one kind."""

    all: int = 0
    wrong: list[Reply] = field(default_factory=list)
    harmless: int = 0
    mended: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: list[Reply] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        """Read the reply and count what runs."""
        self.all += 1
        self.harmless += reply.harmless
        calls = read(reply.text, reply.finish)
        if calls is None:
            self.outcomes["asked again"] += 1
        elif calls != reply.calls[: len(calls)]:
            self.wrong.append(reply)
        elif len(calls) < len(reply.calls):
            self.outcomes["the first calls"] += 1
        else:
            self.outcomes["all calls"] += 1
            self.mended += reply.harmless
            return
        if reply.harmless:
            self.refused.append(reply)


def count(number: int, seed: int) -> dict[str, Counts]:
    """So many mutations, of all kinds alike."""
    random = Random(seed)  # noqa: S311  no secrecy
    counts = {name: Counts() for name in NAMES}
    done = 0
    while done < number:
        name = NAMES[done % len(NAMES)]
        if reply := broken(random, name):
            counts[name].add(reply)
            done += 1
    return counts


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.plan_mutations")
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="so many of the wrong and of the refused replies")
    options = parser.parse_args()
    counts = count(options.number, options.seed)
    row = "{:28} {:>8} {:>7} {:>10} {:>12} {:>12} {:>9} {:>8}\n"
    head = ("kind", "replies", "wrong", "all calls", "first calls", "asked again", "harmless", "mended")
    sys.stdout.write(row.format(*head))
    for name, one in counts.items():
        outcomes = (one.outcomes[key] for key in ("all calls", "the first calls", "asked again"))
        sys.stdout.write(
            row.format(
                name, one.all, len(one.wrong), *outcomes, one.harmless, _share(one.mended, one.harmless)
            )
        )
    wrong, harmless, mended = (
        sum(n) for n in zip(*((len(c.wrong), c.harmless, c.mended) for c in counts.values()), strict=True)
    )
    sys.stdout.write(row.format("all", options.number, wrong, "", "", "", harmless, _share(mended, harmless)))
    for one in counts.values():
        for reply in (one.wrong + one.refused)[: options.show]:
            sys.stdout.write(f"\n{reply!r}\n  -> {read(reply.text, reply.finish)!r}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
