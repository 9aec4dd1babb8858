"""Reads tests of languages other than Python, and builds, line by line."""

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
_CONSTANT = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|`[^`]*+`|\b\d[\w.]*+")


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
    return Assertion(key, _CONSTANT.sub("_", key), strength, number, f"`{line.strip()[:60]}`")


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


_BUILD_NAMES = re.compile(
    r"(?:GNU)?[Mm]akefile|.*\.mk|justfile|Justfile|Rakefile|Taskfile\.ya?ml|package\.json|tox\.ini|noxfile\.py|"
    r"\.travis\.yml|appveyor\.yml|azure-pipelines\.yml|\.gitlab-ci\.yml|Jenkinsfile|\.pre-commit-config\.yaml|"
    r"cloudbuild\.ya?ml|bitbucket-pipelines\.yml|lefthook\.ya?ml|build\.gradle(?:\.kts)?|pom\.xml",
    re.DOTALL,
)
_BUILD_FOLDERS = frozenset(
    {".github", ".ci", "ci", ".circleci", ".gitlab", ".buildkite", ".husky", ".travis"}
)
_TESTING = re.compile(
    r"\b(?:pytest|test\w*|unittest|lint\w*|check\w*|mypy|pyright|ruff|flake8|tsc|jest|vitest|mocha|eslint|cargo|go vet"
    r"|clippy|make|npm|yarn|pnpm|tox|nox|coverage|ctest|mvn|gradlew?|rspec|rake|phpunit|dotnet|bats|verify)\b"
)
_IGNORED_FAILURE = re.compile(r"(?:\|\||;)\s*(?:true|:|exit 0|/bin/true|echo\b)(?![\w-])")
_HARMLESS = re.compile(
    r"\s*(?:[@-]|sudo |then |do |\$\(|\")*(?:rm|kill|pkill|killall|mkdir|umount|mount|grep|egrep|cat|ls|cp|mv|which|command -v|type|"
    r"docker (?:rm|stop|kill|rmi|logs)|echo|printf|wait|read|id|sleep|tail|head|ln|chmod|chown|useradd|groupadd|adduser|"
    r"service|systemctl|stop|start|git (?:branch|tag|config|remote|fetch|stash)|rmdir|unlink|curl|wget|diff|expr|let|\(\()\b"
)
_BUILD_WEAK = (
    (re.compile(r"\bcontinue-on-error\s*:\s*[\"']?true|\ballow_failure\s*:\s*true"), "failures are allowed"),
    (re.compile(r"^\s*-?\s*if\s*:\s*[\"']?(?:\$\{\{\s*)?false\b"), "a step that never runs"),
    (re.compile(r"--passWithNoTests|--pass-with-no-tests"), "no tests count as a pass"),
    (re.compile(r"-[km][ =]?[\"'\\]*not\b|--deselect\b|--ignore(?:-glob)?[ =][^ ]*test|--testPathIgnorePatterns"
                r"|--skip[ =]\S|-skip[ =]|-DskipTests|-Dmaven\.test\.skip|-x test\b"), "tests are left out"),
    (re.compile(r"--exit-zero\b|--no-fail\b|-Dmaven\.test\.failure\.ignore|--no-verify\b"), "failures are allowed"),
)  # fmt: skip
_RUNNER = re.compile(
    r"\b(?:pytest|python3? -m unittest|tox|nox|npm (?:run )?(?:test|lint)|yarn (?:test|lint)|pnpm (?:test|lint)|jest|vitest|mocha"
    r"|go test|go vet|cargo (?:test|clippy)|mypy|pyright|ruff check|flake8|eslint|make (?:test|check|lint)|ctest|mvn (?:test|verify)"
    r"|gradlew? (?:test|check)|rspec|rake test|phpunit|dotnet test|coverage report)\b"
)
_SET_PLUS_E = re.compile(r"^\s*(?:-\s*)?set \+(?:e\b|o (?:errexit|pipefail))")


def is_build_file(path: str) -> bool:
    """Whether a file says how tests and checks are run."""
    *folders, name = path.split("/")
    return _BUILD_NAMES.fullmatch(name) is not None or bool(_BUILD_FOLDERS.intersection(folders))


def lost_runs(before: bytes, after: bytes) -> str | None:
    """The first line that ran tests or checks, where a build has fewer such lines than before."""
    old, new = _runs(before), _runs(after)
    if len(new) >= len(old):
        return None
    return next((line for line in old if line not in new), None)


def _runs(source: bytes) -> list[str]:
    lines = (line.strip() for line in lines_of(source))
    return [line for line in lines if not line.startswith(("#", "- name:", "name:")) and _RUNNER.search(line)]


def weak_build_lines(before: bytes, after: bytes, *, every_command: bool) -> Iterator[tuple[int, str]]:
    """Lines that a build did not have, and that let failures pass.

    Args:
        before: the old file.
        after: the new file.
        every_command: the file is there to run tests and checks; elsewhere only lines that name one count.
    """
    for number, line in added_lines(before, after):
        bare = line.strip()
        if bare.startswith(("#", "//", "echo ")):
            continue
        if (match := _IGNORED_FAILURE.search(line)) and (every_command or _TESTING.search(line)):
            command = re.split(r"[;|&(`]", line[: match.start()].rstrip())[-1]
            if not _HARMLESS.match(command) and (match.group().startswith("||") or _TESTING.search(command)):
                yield number, f"`{match.group()}` added"
        if every_command and _SET_PLUS_E.search(line):
            yield number, "`set +e` added"
        for pattern, what in _BUILD_WEAK:
            if (match := pattern.search(line)) and (every_command or _TESTING.search(line)):
                yield number, f"{what}: `{match.group().strip()}` added"


_BLANKET = re.compile(
    r"#\s*(?:ruff|flake8)\s*:\s*noqa|#\s*mypy\s*:\s*(?:ignore-errors|disable-error-code|allow)|#\s*pylint\s*:\s*(?:skip-file|disable=all)"
    r"|#\s*noqa\b(?!\s*:\s*[A-Z])|#\s*type\s*:\s*ignore(?!\[)|#\s*pyright\s*:\s*(?:ignore(?!\[)|basic)"
)
_BLANKET_OTHER = re.compile(
    r"@ts-nocheck|@ts-ignore|eslint-disable(?!-(?:next-)?line)|/[*/]\s*(?:istanbul|c8|v8) ignore|//\s*nolint\b(?!:)"
    r"|#!\[allow\(|#\[allow\((?:warnings|clippy::all|unused)\b|@SuppressWarnings\(\"all\"\)|#\s*rubocop:disable (?:all|Lint)"
    r"|@codeCoverageIgnore|phpcs:disable|#pragma warning disable\s*$|:nocov:"
)
_UNCOVERED = re.compile(r"#\s*pragma\s*:\s*no cover")
_AWARE = re.compile(
    r"PYTEST_CURRENT_TEST|[\"']pytest[\"'] in sys\.modules|[\"']unittest[\"'] in sys\.modules|JEST_WORKER_ID"
)


def weak_source_lines(before: bytes, after: bytes, suffix: str, *, test: bool) -> Iterator[tuple[int, str]]:
    """Lines that switch checks off without naming which one, and code that knows when it is tested."""
    if suffix in {"py", "pyi"}:
        pattern = _BLANKET
    elif suffix in LANGUAGES:
        pattern = _BLANKET_OTHER
    else:
        return
    patterns = [pattern] if test else [pattern, _UNCOVERED, _AWARE]
    text = after.decode("utf-8", "replace")
    if not any(one.search(text) for one in patterns):
        return
    for number, line in added_lines(before, after):
        for one in patterns:
            match = one.search(line)
            if match is None or (one is not _AWARE and _in_quotes(line[: match.start()])):
                continue
            what = "code that knows when it is tested" if one is _AWARE else "checks switched off"
            yield number, f"{what}: `{match.group().strip()}` added"


def _in_quotes(before: str) -> bool:
    """Whether what follows stands in a string that began on this line."""
    bare = _CONSTANT.sub("", before)
    return any(quote in bare for quote in "\"'`") or bare.lstrip().startswith("|")
