"""Reads tests of languages other than Python, line by line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_tests import Assertion, Checks, Strength

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LINE_CHARS = 2000
"""Longer lines are generated, or hide something: their beginning is read."""


@dataclass(frozen=True, slots=True)
class _Language:
    """How tests are written.

    Attributes:
        test: the start of a test; its first group that matched is the name.
        assertion: a line that demands something.
        skip: a line that keeps a test from running or from failing.
        only: a line that keeps all others from running.
        comment: how a line comment starts.
    """

    test: re.Pattern[str]
    assertion: re.Pattern[str]
    skip: re.Pattern[str]
    only: re.Pattern[str] | None = None
    comment: tuple[str, ...] = ("//", "*", "/*")


_NEVER = re.compile(r"(?!)")
_JS = _Language(
    re.compile(
        r"\s*(?:await )?(?:it|test|specify|x?describe|context|suite|Deno\.test)(?:\.\w+)*\s*\(\s*[\"'`](.*)"
    ),
    re.compile(
        r"\b(?:expect|assert)\w*\s*[.(]|\.should\b|\bt\.(?:is|deepEqual|true|false|throws|equal|same|ok)\("
    ),
    re.compile(
        r"\b(?:it|test|describe|context|suite|specify)\.(?:skip|todo|fails?|fixme|skipIf|runIf)\b"
        r"|\b(?:xit|xtest|xdescribe|xspecify|xcontext)\s*\(|\bthis\.skip\(\)|\bt\.(?:skip|todo)\("
        r"|\bpending\(\s*[\"'`)]|\bjest\.retryTimes\(|\{\s*(?:skip|todo)\s*:\s*(?!false)"
    ),
    re.compile(
        r"\b(?:it|test|describe|context|suite|specify)\.only\b|\b(?:fit|fdescribe|ftest)\s*\(\s*[\"'`]"
    ),
)
_GO = _Language(
    re.compile(r"func (?:\((?:\w+ )?\*?(?P<owner>\w+)\) )?(?P<name>(?:Test|Fuzz|Example)\w*)\("),
    re.compile(
        r"\b(?:t|b|tb|s\.T\(\))\.(?:Error|Fatal|Errorf|Fatalf|Fail|FailNow)\(|\b(?:assert|require|is)\.\w+\("
        r"|\b[cC]\.(?:Assert|Check|Fatal|Error|Fatalf|Errorf)\(|\bExpect\(|\bpanic\("
    ),
    re.compile(r"\b(?:t|b|tb|c|C|s\.T\(\))\.(?:Skip|Skipf|SkipNow)\(|\bExpectFailure\("),
)
_RUST = _Language(
    re.compile(r"\s*(?:pub(?:\([a-z]+\))? )?(?:async )?fn (\w+)"),
    re.compile(r"\b(?:debug_)?assert\w*!\s*[(\[{]|\bpanic!\(|\bprop_assert\w*!|#\[should_panic"),
    re.compile(r"#\[\s*(?:ignore\b|cfg_attr\(.*\bignore\b|cfg\(\s*(?:any\(\)|FALSE|false|not\(test\)))"),
)
_JAVA = _Language(
    re.compile(
        r"\s*(?:(?:public|private|protected|internal|static|final|suspend|override|async|open)\s+)*"
        r"(?:fun|void|Task|Task<[^>]*>)\s+(\w+|`[^`]*`)\s*\("
    ),
    re.compile(r"\b(?:assert|Assert|verify|expect|check|fail)\w*\s*[.({]|\.(?:Should|should)\w*[.( ]"),
    re.compile(
        r"@(?:Disabled|Ignore|DisabledOn\w*|DisabledIf\w*|EnabledIf\w*)\b|\[\s*(?:Ignore|Explicit)\b|\bSkip\s*=\s*\""
        r"|\bAssert\.(?:Ignore|Inconclusive|Skip)\(|\bassume(?:True|False|That)?\(|\bAssume\.\w+\("
    ),
)
_RUBY = _Language(
    re.compile(r"\s*(?:(?:it|specify|scenario|test|example)\s*\(?\s*[\"'](.*)|def (test_\w+))"),
    re.compile(r"\b(?:expect|assert|refute)\w*\b|\.(?:should|must|wont)_?\w*\b|\bflunk\b"),
    re.compile(
        r"^\s*(?:xit|xdescribe|xcontext|xspecify|pending|skip)\b|,\s*(?::?skip|:?pending|skip:|pending:|:skip\s*=>)"
    ),
    re.compile(r"^\s*(?:fit|fdescribe|fcontext)\b|,\s*(?:focus: true|:focus\b)"),
    ("#",),
)
_PHP = _Language(
    re.compile(
        r"\s*(?:(?:public|protected|private|static|final)\s+)*function (\w+)\s*\(|\s*(?:it|test)\(\s*[\"'](.*)"
    ),
    re.compile(r"(?:->|::)(?:assert|expect|should)\w*\(|\bexpect\(|\bassert\w*\("),
    re.compile(
        r"markTest(?:Skipped|Incomplete)|->(?:skip|todo)\(|@group\s+(?:skip|ignore)|#\[\s*(?:Requires|Ignore)"
    ),
    re.compile(r"->only\("),
)
# Python of another version than ours, as in a repository that still runs Python 2.
_PYTHON = _Language(
    re.compile(r"\s*(?:async )?def (\w+)"),
    re.compile(r"^\s*assert\b|\bself\.(?:assert\w+|fail\w*)\(|\bpytest\.raises\(|\bassert_\w+\("),
    re.compile(
        r"\bskip(?:If|Unless|if|Test)?\b\s*\(|\bSkipTest\b|\bxfail\b|\bexpectedFailure\b|\bimportorskip\b"
    ),
    None,
    ("#",),
)
_SHELL = _Language(
    re.compile(r"\s*(?:@test\s+[\"'](.*)|(?:function )?(test_?\w+)\s*\(\))"),
    re.compile(r"\bassert\w*\b|\[\[? .* \]\]?|\bfail\b"),
    re.compile(r"^\s*skip\b|\bstartSkipping\b"),
    None,
    ("#",),
)

LANGUAGES = {
    **dict.fromkeys(("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"), _JS),
    "go": _GO,
    "rs": _RUST,
    **dict.fromkeys(("java", "kt", "kts", "groovy", "scala", "cs"), _JAVA),
    "rb": _RUBY,
    "php": _PHP,
    "bats": _SHELL,
}
_ALL = {**LANGUAGES, "py": _PYTHON}
_TEST_ATTRIBUTE = re.compile(r"#\[.*\btest\b|#\[\s*(?:test_case|rstest)|@(?:Test|ParameterizedTest|RepeatedTest|Property)\b"
                             r"|\[\s*(?:Test|TestMethod|Fact|Theory|TestCase)\b")  # fmt: skip
_ATTRIBUTE = re.compile(r"\s*(?:#\[|@\w|\[\s*\w+)")
_ALWAYS = re.compile(
    r"(?:expect|assert\w*!?|Assert\.\w+|->assert\w+)\s*\(\s*(?:true|1|t, true)\s*(?:,\s*(?:true|1|\".*\"))?\s*\)\s*"
    r"(?:\.\s*(?:toBe(?:Truthy)?|toEqual|to\.be\.true|to)\s*\(?.{0,20})?;?\s*$"
    r"|assert_?[eE]q\w*!?\s*\(\s*(\d+|true)\s*,\s*\1\s*\)|^\s*(?:assert|self\.assertTrue\()\s*\(?True\b"
)
_LOOSE = re.compile(
    r"toBeTruthy|toBeDefined|not\.(?:toBe|toEqual|toBeNull|toThrow)|toBeInstanceOf|toBeFalsy|expect\.any|IsNotNull"
    r"|NotNil\b|NotNull|assert_ne!|is_ok\(\)|is_some\(\)|\.to\.(?:exist|be\.ok)|not_to be_nil|IsType|NotEmpty|not_nil"
    r"|NotEqual"
)
_BOUND = re.compile(
    r"toContain|toMatch|toBe(?:Greater|Less)|[Cc]ontains|Greater|Less|Matches|Regex|to\.(?:include|match|contain|above|below)"
    r"|toHaveProperty|assert!\(|\b(?:assertTrue|assertFalse|True|False|isTrue|isFalse)\(|toThrow\(\)|include\("
    r"|expect\.objectContaining|<=|>="
)
_WORD = re.compile(r"[A-Za-z_]\w*+")
_COMMON_WORDS = frozenset({"it", "test", "expect", "const", "let", "await", "func", "fn", "assert", "t", "err", "if",
                           "return", "new", "var", "true", "false", "nil", "null", "public", "void", "async", "end"})  # fmt: skip
CONSTANT = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|`[^`]*+`|\b\d[\w.]*+")


def lines_of(source: bytes) -> list[str]:
    """The lines of a file, cut where they are too long to be read."""
    return [line[:_MAX_LINE_CHARS] for line in source.decode("utf-8", "replace").split("\n")]


def pattern_checks(source: bytes, suffix: str) -> dict[str, Checks]:
    """The tests of a file by name; a test reaches to the next one. What stands before the first has no name."""
    language = _ALL[suffix]
    lines = _without_comments(lines_of(source), language)
    blocks: list[tuple[str, int, list[str]]] = [("", 1, [])]
    for number, line in enumerate(lines, 1):
        match = language.test.match(line)
        if match:
            name = ".".join(group for group in match.groups() if group)
            lead: list[str] = []
            while blocks[-1][2] and _ATTRIBUTE.match(blocks[-1][2][-1]):
                lead.append(blocks[-1][2].pop())
            blocks.append((name.rstrip(" ,{(=>)'\"`;"), number, lead[::-1]))
        blocks[-1][2].append(line)
    checks: dict[str, Checks] = {}
    named: Counter[str] = Counter()
    for name, number, body in blocks:
        named[name] += 1
        unique = name if named[name] == 1 else f"{name} ({named[name]})"
        checks[unique] = _block(language, unique, number, body)
    return checks


def _block(language: _Language, name: str, first: int, body: list[str]) -> Checks:
    assertions, skips = [], []
    lead = next((index for index, line in enumerate(body) if language.test.match(line)), 0)
    for number, line in enumerate(body, first - lead):
        if language.skip.search(line):
            skips.append((f"skip marker added\0{_skip_key(language, line)}", number))
        if language.only is not None and language.only.search(line):
            skips.append(("all other tests are left out\0", number))
        if language.assertion.search(line):
            assertions.append(_assertion(line, number))
    text = "\n".join(body)
    is_test = bool(name) and (
        language not in (_RUST, _JAVA, _PHP, _PYTHON)
        or any(_TEST_ATTRIBUTE.search(line) for line in body[: lead + 1])
        or name.startswith("test")
    )
    words = frozenset(_WORD.findall(text)) - _COMMON_WORDS - {name.rpartition(".")[2]}
    return Checks(name, first, is_test, tuple(assertions), tuple(skips), None, words, text)


def _skip_key(language: _Language, line: str) -> str:
    return "" if (match := language.skip.search(line)) is None else match.group().strip()


def _assertion(line: str, number: int) -> Assertion:
    key = "".join(line.split())
    if _ALWAYS.search(line):
        strength = Strength.ALWAYS_TRUE
    elif _LOOSE.search(line):
        strength = Strength.LOOSE
    else:
        strength = Strength.BOUND if _BOUND.search(line) else Strength.EXACT
    return Assertion(key, CONSTANT.sub("_", key), strength, number, f"`{line.strip()[:60]}`")


def _without_comments(lines: list[str], language: _Language) -> list[str]:
    """The lines with those blanked that are comments from their start."""
    kept, inside = [], False
    for line in lines:
        bare = line.lstrip()
        if inside:
            inside = "*/" not in bare
            kept.append("")
        elif bare.startswith(language.comment) and not bare.startswith("#["):
            inside = "/*" in language.comment and bare.startswith("/*") and "*/" not in bare
            kept.append("")
        else:
            kept.append(line)
    return kept


def added_lines(before: bytes, after: bytes) -> Iterator[tuple[int, str]]:
    """Lines that the new file has more often than the old one, without regard to their order and indentation."""
    known = Counter(line.strip() for line in lines_of(before))
    for number, line in enumerate(lines_of(after), 1):
        bare = line.strip()
        if not bare:
            continue
        if known[bare] > 0:
            known[bare] -= 1
        else:
            yield number, line
