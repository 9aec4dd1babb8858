"""Text of a model, a page, a repository, a server or a person meets patterns that take linear time only."""

from __future__ import annotations

import re

import pytest

from tests.patterns.backtracking import FULLMATCH, MATCH, MOST_STEPS, SEARCH, Prover
from tests.patterns.collection import AT_PLACE, ProgramPattern, all_patterns, unused_examples
from tests.tables import table

SHORT_TEXTS = {
    "app.onboarding.files pattern": "in the program's own workflow",
    "bot.policy.change_checks '|'.join((*([f\"(?:^|/)(?:{'|'.join(names)})\"] if names else []), *others))": (
        "in a path of at most 4,096 characters, _MOST_PATH_CHARS"
    ),
    "bot.policy.markup_reader._LOOSE_TAG": "the first `<` at which it fails ends the text: the tag is not closed",
    "bot.policy.markup_reader._ANGLE_ADDRESS": "once behind each `](`, and a text with these ends at its `<`",
    "bot.policy.markup_reader._TITLE_AND_END": "once behind each address, and a title ends at the next quote",
    "bot.verification.trees._RUST_TESTS": "at one place: the last `#[cfg(test)]` that begins a line",
    "engine.contracts.json_plan._OPEN_FENCE": "in the 20 characters before a plan, _FENCE_CHARS",
    "engine.contracts.json_plan._END_OF_ANSWER": "once behind each object, in the text up to the next one",
    "engine.contracts.json_plan._SENTENCE": "once behind each object, in the text up to the next one",
    "engine.contracts.plan_json._NUMBER": "at one place: where it fails, reading ends",
    "engine.contracts.plan_json._CUT_NUMBER": "at one place: where it fails, reading ends",
    "engine.environments.patterns._PIECES": "in a file pattern of at most 1,000 characters, _MAX_PATTERN_CHARS",
    "engine.models.failures rule.words": "in 8,000 characters of an error, _MAX_READ_CHARACTERS",
    "engine.models.refusals._TOO_LONG": "in 8,000 characters of an error, failures._MAX_READ_CHARACTERS",
    "engine.policy.secret_decoding._NAMED_LETTER": "in the name of a character in the Unicode tables",
    "engine.policy.secret_values._JWT_HEADER": "in a secret that the user himself set",
    "engine.policy.shell._TOKEN": "at one place: where it fails, reading ends",
}
"""Patterns that would take longer in a search over any text, each with what bounds the text that they meet."""


def uses_of(pattern: ProgramPattern) -> set[str]:
    known = {"fullmatch": {FULLMATCH}, "match": {MATCH}}
    searches = {"search", "sub", "subn", "split", "findall", "finditer", AT_PLACE}
    unknown = {SEARCH, FULLMATCH}
    uses = pattern.uses or {"other"}
    return set().union(*(known.get(use, {SEARCH} if use in searches else unknown) for use in uses))


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
