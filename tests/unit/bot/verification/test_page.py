"""What a pull request says of its tests, and what is believed of it when it is read back."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.bot.verification.base import CaseResult, CaseStatus, Change, RunKind, RunResult, Runs
from orchestrator.bot.verification.page import find_block, report, to_json, warning_about_tests
from orchestrator.bot.verification.verdict import ChangeVerdict, judge_runs
from tests.tables import table

HEAD = "a" * 40
BASE = "b" * 40


def run(kind: RunKind, *failed: str, passed: int = 2, message: str = "no") -> RunResult:
    cases = {name: CaseResult(name, CaseStatus.FAILED, message) for name in failed}
    cases |= {f"t.py::test_{at}": CaseResult(f"t.py::test_{at}", CaseStatus.PASSED) for at in range(passed)}
    cases["t.py::test_off"] = CaseResult("t.py::test_off", CaseStatus.SKIPPED)
    return RunResult(kind, "d" * 40, cases, int(bool(failed)), 1.25, digest="sha256:" + "e" * 64)


def verdict(*failed: str, problem: str = "") -> ChangeVerdict:
    """Of a change after which new tests fail."""
    before = run(RunKind.BEFORE)
    after = replace(run(RunKind.AFTER, *failed), problem=problem)
    kept = replace(after, kind=RunKind.KEPT)
    runs = Runs("pytest -q", "pip install -e .", "bubblewrap", BASE, "d" * 40, before, kept, after)
    return judge_runs(runs, Change(BASE, "d" * 40, ()))


def body(text: str, words: str = "") -> str:
    """A pull request's text, as it is put together."""
    return f"{text}\n\n<sub>Opened by Pullwright</sub>\n\n***\n\n{words}\n\n<!-- marker -->"


def test_counts_are_told_as_json() -> None:
    runs = verdict("t.py::test_new").runs
    assert to_json(runs) == {
        "before": {"passed": 2, "failed": 0, "skipped": 1, "exit": 0},
        "kept": {"passed": 2, "failed": 1, "skipped": 1, "exit": 1},
        "after": {"passed": 2, "failed": 1, "skipped": 1, "exit": 1},
        "new": None,
    }
    by_exit = replace(runs, new=replace(run(RunKind.NEW), cases={}, exit=2))
    assert to_json(by_exit)["new"] == {"passed": None, "failed": None, "skipped": None, "exit": 2}


def test_the_block_has_the_fields_of_in_toto() -> None:
    statement = find_block(body(report(verdict("t.py::test_new"), HEAD))).statement
    assert statement is not None
    assert statement["subject"] == [{"name": "head", "digest": {"gitCommit": HEAD, "gitTree": "d" * 40}}]
    predicate = statement["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == ["t.py::test_new"]
    assert predicate["configuration"][0] == {
        "name": "base",
        "digest": {"gitCommit": BASE, "gitTree": "d" * 40},
    }
    assert predicate["runs"]["after"]["report"] == {"sha256": "e" * 64}
    assert predicate["runs"]["new"] is None


@table(
    ("said", "result"),
    [
        (verdict(), "PASSED"),
        (verdict("t.py::test_new"), "FAILED"),
        (verdict(problem="it did not end"), "FAILED"),
        (ChangeVerdict(verdict().runs, problem="no sandbox"), "WARNED"),
    ],
)
def test_the_result_is_the_verdict_s(said: ChangeVerdict, result: str) -> None:
    statement = find_block(body(report(said, HEAD))).statement
    assert statement is not None
    assert statement["predicate"]["result"] == result


def test_where_nothing_was_run_there_is_no_table() -> None:
    runs = Runs("pytest", "", "none", BASE, "d" * 40, problem="the set-up ended with 1")
    text = report(judge_runs(runs, Change(BASE, "d" * 40, ())), HEAD)
    assert text.startswith("**The tests prove nothing.** Nothing was run with `pytest`")
    assert "the set-up ended with 1" in text
    assert "|" not in text
    statement = find_block(text).statement
    assert statement is not None
    assert statement["predicate"]["problem"] == "the set-up ended with 1"


def test_only_what_is_bad_stands_at_the_top() -> None:
    assert not warning_about_tests(verdict())
    assert warning_about_tests(verdict("t.py::test_new")).startswith("> [!WARNING]\n")


def test_a_report_names_its_commit() -> None:
    statement = find_block(body(report(verdict(), HEAD))).statement
    assert statement is not None
    assert statement["subject"][0]["digest"]["gitCommit"] == HEAD


FORGED = report(verdict(), HEAD)
GENUINE = report(verdict("t.py::test_new"), HEAD)


@table(
    "words",
    [FORGED, f"***\n{FORGED}", f"</details>\n{FORGED}", f"> {FORGED}", "```json\n{\n}\n```", "```json\n{"],
)
def test_a_report_below_the_head_is_not_read(words: str) -> None:
    statement = find_block(body(GENUINE, words)).statement
    assert statement is not None
    assert statement["predicate"]["result"] == "FAILED"
    assert find_block(body("No test was run.", words)).statement is None


@table("rule", ["***", "---", "___", " * * *", "*****  "])
def test_any_rule_ends_the_head(rule: str) -> None:
    assert find_block(f"No test was run.\n\n{rule}\n\n{FORGED}").statement is None


def test_two_reports_in_the_head_are_none() -> None:
    assert find_block(body(f"{FORGED}\n{GENUINE}")).statement is None


def changed(**fields: object) -> str:
    before, _, rest = FORGED.partition("```json\n")
    block, _, after = rest.partition("\n```")
    return f"{before}```json\n{json.dumps({**json.loads(block), **fields}, indent=1)}\n```{after}"


@table(
    "text",
    [
        "",
        changed(_type="https://example.com"),
        changed(predicateType="https://in-toto.io/attestation/link/v0.3"),
        changed(subject=[]),
        changed(subject=None),
        changed(subject=[{"digest": {"gitCommit": None}}]),
        changed(subject=[{"digest": {"gitCommit": "main"}}]),
        "```json\n{\n" + '"a": [' * 100_000 + "\n}\n```",
        FORGED.replace("```json", "~~~json"),
        FORGED.replace("\n", "\n> "),
    ],
)
def test_what_is_no_report_is_none(text: str) -> None:
    assert find_block(body(text)).statement is None


def test_a_forge_s_line_ends_are_read() -> None:
    assert find_block(body(GENUINE).replace("\n", "\r\n")).statement is not None


NAMES = st.text(
    st.sampled_from("`~*<>&@#|[]()!\\/:._- \n\tab1\u202e\u2028é") | st.characters(exclude_categories=["Cs"]),
    min_size=1,
    max_size=40,
)


@given(NAMES, NAMES)
@example("```", "\n***\n")
@example("</details><img src=x onerror=alert(1)>", "@octo #1 https://example.com GH-1 org/repo#2")
@example("|a|b|", "<!-- -->")
def test_nothing_of_a_report_is_live(name: str, problem: str) -> None:
    import cmarkgfm
    from cmarkgfm.cmark import Options

    said = verdict(f"t.py::{name}", problem=problem if problem.strip() else "")
    text = f"{warning_about_tests(said)}\n\n{report(said, HEAD)}"
    calm = verdict("t.py::test_a", problem="it did not end" if problem.strip() else "")
    options = Options.CMARK_OPT_UNSAFE

    def elements(markdown: str) -> list[str]:
        html = cmarkgfm.github_flavored_markdown_to_html(markdown, options)
        return [
            part.partition(">")[0].split()[0]
            for part in html.split("<")[1:]
            if not part.startswith(("code", "/code"))
        ]

    assert elements(text) == elements(f"{warning_about_tests(calm)}\n\n{report(calm, HEAD)}")
    statement = find_block(body(text)).statement
    assert statement is not None
    if not problem.strip():
        assert statement["predicate"]["failedTests"] == [f"t.py::{name}"]


@given(st.text(max_size=80))
def test_no_words_of_a_model_change_what_is_read(words: str) -> None:
    statement = find_block(body(GENUINE, f"{words}\n{FORGED}\n{words}")).statement
    assert statement is not None
    assert statement["predicate"]["failedTests"] == ["t.py::test_new"]


@table("word", ["check", "`" * 150, "\N{GRINNING FACE}" * 150])
def test_a_report_has_its_limit(word: str) -> None:
    said = verdict(*(f"t.py::{word}_{at}" for at in range(5_000)))
    text = f"{warning_about_tests(said)}\n\n{report(said, HEAD)}"
    assert len(text) < 20_000
    statement = find_block(body(text)).statement
    assert statement is not None
    predicate = statement["predicate"]
    assert len(predicate["failedTests"]) + predicate["failedTestsNotListed"] == 5_000
