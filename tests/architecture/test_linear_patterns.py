"""Text of a model, a page, a repository, a server or a person meets patterns that take linear time only."""

from __future__ import annotations

import pickle
import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles import forked
from tests.patterns.backtracking import FULLMATCH, MATCH, MOST_STEPS, SEARCH, Prover
from tests.patterns.collection import all_patterns, unused_examples, uses_of
from tests.patterns.made import SHORT_TEXTS
from tests.patterns.pumps import LIMIT_SECONDS, given, of_the_program
from tests.tables import table

if TYPE_CHECKING:
    from tests.patterns.pumps import Chosen


def faults() -> dict[str, str]:
    """Return what may take more than linear time, by the names of the patterns."""
    found: dict[str, str] = {}
    seen: set[tuple[object, int, str]] = set()
    for one in all_patterns():
        for use in uses_of(one):
            key = (one.pattern.pattern, one.pattern.flags, use)
            if key not in seen:
                seen.add(key)
                if growths := Prover(one.pattern, use).findings():
                    found[one.where.removeprefix("orchestrator.")] = f"{use}: {growths[0]}"
    return found


def test_no_pattern_of_the_program_takes_more_than_linear_time() -> None:
    found = faults()
    wrong = {where: growth for where, growth in found.items() if where not in SHORT_TEXTS}
    assert not wrong
    assert set(SHORT_TEXTS) == set(found), "an exception that nothing needs"


def test_each_example_of_a_made_pattern_is_of_this_program() -> None:
    assert not unused_examples()


@table(
    "pattern, use, kind",
    [
        (r"(a+)+b", MATCH, "exponential"),
        (r"(?:a|a)*b", MATCH, "exponential"),
        (r"(?:a|aa)+$", MATCH, "exponential"),
        (r"(\w+\s*)+:", MATCH, "exponential"),
        (r"(?:\s*,?\s*x?)*y", MATCH, "exponential"),
        (r"(a*)*b", MATCH, "exponential"),
        (r"(?:a?b?)*c", MATCH, "exponential"),
        (r"(?:(?:ab)*(?:ab)*)*c", MATCH, "exponential"),
        (r"(?:[^\W_]|\w)+!", MATCH, "exponential"),
        (r"(?i:(?:kx|\u212ax)+)!", MATCH, "exponential"),
        (r"(a|b|ab)*c", FULLMATCH, "exponential"),
        (r"(?:a|a)*", FULLMATCH, "exponential"),
        (r"(?=(?:a|a)*b)a", MATCH, "exponential"),
        (r"(?!(?:a|a)*b)a", MATCH, "exponential"),
        (r"(?>(?:a|a)*b)", MATCH, "exponential"),
        (r"x(.*?,){11}P", MATCH, "exponential"),
        # As they were.
        (r"[\[]([ \t]*\w+(?:[ \t:_-]+\w+){1,3}[ \t]*)[\]]", MATCH, "exponential"),
        (r"(?s)\s*(<!--.*?-->\s*)*<(html|head|body)\b", MATCH, "exponential"),
        (r"refs/(?:[A-Za-z0-9][A-Za-z0-9._-]*/?)*", FULLMATCH, "exponential"),
        (r"uv run (?:--?[\w=-]+ )*pytest", FULLMATCH, "exponential"),
        (r"xa*a*b", MATCH, "polynomial"),
        (r"x\s*y?\s*z", MATCH, "polynomial"),
        (r"#+\s+(.*?)\s*#*\s*", FULLMATCH, "polynomial"),
        (r"(?:(?=.*x)a)*b", MATCH, "polynomial"),
        (r"a.*b.{0,900}c.{0,900}d", MATCH, "polynomial"),
        (r"a.{0,90}b.{0,90}c", SEARCH, "restart"),
        (r"a+b", SEARCH, "restart"),
        (r"a++b", SEARCH, "restart"),
        (r"\s+$", SEARCH, "restart"),
        (r"(?s)<!--.*?-->", SEARCH, "restart"),
        (r"(\d+(?:\.\d+)?) ?([a-z]+)", SEARCH, "restart"),
        (r"x(?:.*y)?", SEARCH, "restart"),
        (r"(?m)^\s*require\b", SEARCH, "restart"),
        (r"<[^>]*>", SEARCH, "restart"),
        (r"[\w-]+@", SEARCH, "restart"),
        (r"a.{0,3000}b", SEARCH, "restart"),
        (r"(?=a+b)", SEARCH, "restart"),
        (r"(?<=xy)a+b|a+c", SEARCH, "restart"),
        (rb"\d+\Z", SEARCH, "restart"),
    ],
)
def test_what_backtracks_is_seen(pattern: str | bytes, use: str, kind: str) -> None:
    assert kind in {growth.kind for growth in Prover(re.compile(pattern), use).findings()}


@table(
    "pattern, use",
    [
        (r"a*b", MATCH),
        (r"a.{0,90}b.{0,90}c", MATCH),
        (r"x(?>a*)a*b", MATCH),
        (r"(?>(?:a|a)*)b", MATCH),
        (r"(?:[^\"\\]|\\.)*\"", FULLMATCH),
        (r"(?:a|b)*c", FULLMATCH),
        (r"(?:a|a)*", MATCH),
        (r"(?:\w+ )*\w+", FULLMATCH),
        (r"(?:[a-z]+-)?[a-z]+=", FULLMATCH),
        (r"(?<!a)a+b", SEARCH),
        (r"\b\w+\(", SEARCH),
        (r"(?m)^[ \t]*x", SEARCH),
        (r"\"[^\"]*\"", SEARCH),
        (r"<[^<>]*>", SEARCH),
        (r"x.*", SEARCH),
        (r"(?s)x[^y]*(?:y|\Z)", SEARCH),
        (r"[\w@+-]+(?:[./][\w@+-]+)*", SEARCH),
        (r"\d{1,9}x", SEARCH),
        (r"[A-Za-z_](?:\.*+\w)+", SEARCH),
        (rb"\\(?<!\\\\)\\*+u", SEARCH),
        (r"(?m)^(a)[ \t]*:(.*(?:\n(?:[ \t]+.*|(?=\n)))*)$", SEARCH),
    ],
)
def test_what_takes_linear_time_passes(pattern: str | bytes, use: str) -> None:
    assert Prover(re.compile(pattern), use).findings() == []


def test_steps_of_bounded_repeats_are_counted() -> None:
    (growth,) = Prover(re.compile(r"a.{0,3000}b"), SEARCH).findings()
    assert growth.steps is not None
    assert growth.steps > MOST_STEPS
    assert not Prover(re.compile(r"a.{0,100}b"), SEARCH).findings()


def test_a_finding_has_a_text_that_shows_it() -> None:
    (growth,) = Prover(re.compile(r"(?:ab|\w\w)*c"), MATCH).findings()
    assert growth.kind == "exponential"
    assert set(growth.piece) == set("ab")


@pytest.mark.parametrize("pattern", [r"(?P<a>a+)(?(a)b|c)", r"(['\"])(?:(?!\1).)*\1", r"(?i)straße|ﬁ+"])
def test_rarer_parts_are_understood(pattern: str) -> None:
    Prover(re.compile(pattern), FULLMATCH).findings()


ROOT = Path(__file__).parents[2]
PUMP = (
    "import pickle, sys; from tests.patterns.pumps import pump_all; pump_all(*pickle.load(sys.stdin.buffer))"
)


def pumped(chosen: Chosen, limit_seconds: float = LIMIT_SECONDS) -> tuple[int, list[str]]:
    """Run the pumps in a process of their own, which a pattern without end cannot keep."""
    with (
        tempfile.TemporaryFile() as patterns,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        pickle.dump((chosen, limit_seconds), patterns)
        patterns.seek(0)
        process = forked.Forked((), (patterns.fileno(), out.fileno(), err.fileno()), ROOT, code=PUMP)
        status = process.wait()
        for file in (out, err):
            file.seek(0)
        assert not err.read()
        return status, out.read().decode().splitlines()


@pytest.mark.parametrize(
    "pattern",
    [
        r"[\[\uFF3B\uFE47]([ \t]*\w+(?:[ \t:_-]+\w+){1,3}[ \t]*)[\]\uFF3D\uFE48]",
        r"(?is)\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b",
    ],
)
@pytest.mark.slow(reason="a pattern that takes time without end is given some seconds")
def test_the_pumps_find_what_was_once_in_the_program(pattern: str) -> None:
    status, lines = pumped(given([pattern]), 4.0)
    assert status == -signal.SIGVTALRM or any(line.startswith("SLOW ") for line in lines)


def test_the_pumps_find_quadratic_time() -> None:
    status, lines = pumped(given([r"\s+$", r"(?<!\d)(\d+) ?([a-z]+)", r"(?s)<!--.*?-->"]))
    assert status == 0
    assert [line.partition(":")[0] for line in lines if line.startswith("SLOW")] == [
        r"SLOW \s+$",
        "SLOW (?s)<!--.*?-->",
    ]


@pytest.mark.timeout(
    900
)  # on however busy a machine; a pattern has a limit of its own, of the processor's time
@pytest.mark.parametrize(
    "share", [25, pytest.param(1, marks=pytest.mark.slow(reason="some ten thousand texts in several sizes"))]
)
def test_no_pattern_is_slow_on_a_text_made_for_it(share: int) -> None:
    status, lines = pumped(of_the_program(share))
    assert status == 0, f"{lines[-1]} takes time without end"
    assert not [line for line in lines if line.startswith("SLOW ")]
    assert lines[-1].endswith(" texts")
