"""What is known of pytest: a report from whatever starts it, a call with chosen tests, and a test that must fail.

pytest's own rules: https://docs.pytest.org/en/stable/reference/reference.html, checked with 9.2.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.policy.shell import Unparsed, parse_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

MOST_IDS = 50
"""Tests that one call names; with more of them all tests are run."""
_MOST_ID_CHARS = 1_000
_FAILED_EXIT = 1

# Beside a name that follows these, nothing is known of its value: `--cov src` takes one, `-q tests` does not.
_FLAGS = re.compile(
    r"-[qvslxh]+|-r[a-zA-Z]*|-n[0-9a-z]+|-[knmpcoW].+|--[^=]+=.*|--(?:verbose|quiet|exitfirst|lf|ff|nf|last-failed|failed-first"
    r"|new-first|sw|stepwise|strict-markers|strict-config|strict|doctest-modules|doctest-continue-on-failure|showlocals"
    r"|no-header|no-summary|disable-warnings|no-cov|full-trace|runxfail|pyargs|noconftest|cache-clear|forked|benchmark-skip"
    r"|reverse|random-order|disable-socket|continue-on-collection-errors)"
)
_TAKE_VALUES = frozenset({"-c", "--with", "--group", "--extra", "--only-group"})
"""Options of shells and of uv, whose value may be called as pytest is."""
_STOPS_EARLY = re.compile(r"-[a-z]*x[a-z]*|--exitfirst|--maxfail(?:=.*)?|--sw|--stepwise(?:-skip)?")
_MODULE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py", re.DOTALL)
_ID_FILE = re.compile(r"[^-@:\\~$%/][^:\\]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PytestCall:
    """A command that is one call of pytest and nothing else.

    Attributes:
        words: the command's.
        start: where pytest's own arguments begin.
        prefix: variables that the command sets, as it writes them.
    """

    words: tuple[str, ...]
    start: int
    prefix: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """What pytest is told."""
        return self.words[self.start :]

    @property
    def stops_early(self) -> bool:
        """Whether the call ends with the first failure."""
        return any(map(_STOPS_EARLY.fullmatch, self.arguments))

    @property
    def bears_control(self) -> bool:
        """Whether a test that must fail leaves what it tells of the others as it is."""
        return not self.stops_early and not any("fail-under" in word for word in self.arguments)

    def selecting(self, ids: Sequence[str]) -> str:
        """The same command for these tests in the place of those that it names."""
        kept: list[str] = []
        for place, word in enumerate(self.arguments):
            before = self.arguments[place - 1] if place else ""
            is_value = before.startswith("-") and not _FLAGS.fullmatch(before)
            if word.startswith("-") or is_value:
                kept.append(word)
        # Before the options: the last of those may take a value or none.
        words = shlex.join([*self.words[: self.start], *ids, *kept])
        return " ".join([*map(_assignment, self.prefix), words])


def parse_pytest(command: str) -> PytestCall | None:
    """The call of pytest that a command is; None where it is anything else, or more."""
    try:
        line = parse_line(command)
    except Unparsed:
        return None
    simple = line.commands[0]
    if len(line.commands) > 1 or simple.redirects or any(word.is_glob for word in simple.words):
        return None
    words = simple.argv
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1] in _TAKE_VALUES
        if posixpath.basename(word) in {"pytest", "py.test"} and not is_value:
            return PytestCall(words, place + 1, tuple(word.text for word in simple.assignments))
    return None


def pytest_variables(report: str) -> dict[str, str]:
    """What makes pytest write a report, whatever starts it.

    These stand behind the options of the repository's settings and before those of the command, so the latter hold.
    The older form of the report says which file a test is in. All tests run, even where one file cannot be loaded.

    Args:
        report: an absolute path.
    """
    options = (
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit1",
        "-o",
        "junit_logging=no",
        "--maxfail=0",
        "--continue-on-collection-errors",
    )
    return {"PYTEST_ADDOPTS": shlex.join(options)}


def checked_ids(ids: Iterable[str], paths: Container[str]) -> list[str]:
    """Ids as they may be given to pytest: each names a file or a folder of the tree, and is no option.

    Args:
        ids: as a model wrote them.
        paths: what may stand before the first `::`.

    Raises:
        ToolError: one is none, with what an id looks like.
    """
    checked = list(dict.fromkeys(one.strip() for one in ids))
    for one in checked:
        file, _, rest = one.partition("::")
        file = file.rstrip("/")
        plain = is_plain_id(one) and (not rest or file.endswith((".py", ".txt", ".md", ".rst")))
        if not plain or file not in paths:
            raise ToolError(
                f"no test is called {one[:200]!r}: name a file of the repository, or a test in it as in "
                "tests/test_a.py::test_b or tests/test_a.py::TestC::test_d"
            )
    if len(checked) > MOST_IDS:
        raise ToolError(f"name at most {MOST_IDS} tests, or none for all of them")
    return checked


def is_plain_id(text: str) -> bool:
    """Whether a text can stand for tests in a call: no option, no file of options, no path that leaves the tree."""
    file = text.partition("::")[0]
    return (
        len(text) <= _MOST_ID_CHARS
        and text.isprintable()
        and _ID_FILE.fullmatch(file) is not None
        and ".." not in file.split("/")
    )


def is_module(path: str) -> bool:
    """Whether pytest finds tests in a file of this name, as long as nothing else is set."""
    return _MODULE.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class ControlTest:
    """A test that always fails, beside those of the repository: it shows that failures are still reported.

    Attributes:
        folder: where, relative to the tree; empty for its top.
        form: how the file's name begins and ends, as its neighbours' do.
    """

    folder: str
    form: tuple[str, str]

    def path(self, token: str) -> str:
        """The file's path. It comes last among its neighbours, so that it runs after them."""
        name = f"{self.form[0]}zz{token}{self.form[1]}"
        return f"{self.folder}/{name}" if self.folder else name

    @staticmethod
    def text(token: str) -> str:
        """The file's content."""
        return f'def test_{token}():\n    raise AssertionError("{token}")\n'


def place_control(paths: Iterable[str]) -> ControlTest | None:
    """Where the test that must fail belongs: in the folder with the most files of tests."""
    modules = [path for path in paths if is_module(path)]
    if not modules:
        return None
    count = Counter(posixpath.dirname(path) for path in modules)
    folder = max(count, key=lambda one: (count[one], one))
    names = [posixpath.basename(path) for path in modules if posixpath.dirname(path) == folder]
    begins = sum(name.startswith("test_") for name in names)
    return ControlTest(folder, ("test_", ".py") if 2 * begins >= len(names) else ("zz", "_test.py"))


ENDS_OTHERWISE = r"fail[_-]under|pytest_sessionfinish|pytest_runtestloop|testsfailed"
"""What makes pytest end as if tests had failed: beside the test that must fail it would not be seen."""
SETTINGS = ("*.py", "*.toml", "*.cfg", "*.ini", "*.coveragerc")
"""Names of the files that may have it."""


def exit_without(exit_code: int, *, others_failed: bool) -> int:
    """The exit code as it were without the test that must fail, where that one failed."""
    return 0 if exit_code == _FAILED_EXIT and not others_failed else exit_code


def _assignment(text: str) -> str:
    name, _, value = text.partition("=")
    return f"{name}={shlex.quote(value)}"
