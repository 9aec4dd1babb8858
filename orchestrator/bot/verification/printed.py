"""Reads what test runners print: how many tests ran, whether one failed, and why a command failed."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from orchestrator.core.prompts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

# The lines with which runners end. A line is read by the first pattern that it matches, which says by the names of its
# groups what a number means: `ran` is a number of tests that ran, or empty for one; `not_run` a number of those that
# were only counted by another group; `failed` a number of failures, where any but none or zero tells of one; `both` a
# number of tests that ran and failed. Of several groups of one kind each has a number behind its name. A pattern
# without `ran`, `not_run` and `both` says nothing about how many ran, and one without any group says that none did.
# `N` stands for a number.
_NUMBER = re.compile("(?<![A-Za-z])N(?![A-Za-z])")
_END_LINES = tuple(
    re.compile(_NUMBER.sub("[0-9]{1,9}", pattern))
    for pattern in (
        # Python: unittest, Django, Twisted's trial, stestr, zope.testing, pytest, behave, Robot Framework.
        r"^Ran (?P<ran>N) tests? in [0-9.]{1,12} seconds, N success(?:es)?(?:, (?P<failed>N) failures?)?(?:, (?P<failed1>N) errors?)?",
        r"^(?:Ran|Ran:) (?P<ran>N) tests? in ",
        r"^\s{0,4}(?:Ran|Total:) (?P<ran>N) tests?(?: with|,) (?P<failed>N) failures?, (?P<failed1>N) errors?(?:,| and) (?P<not_run>N) skipped",
        (
            r"^(?:OK|PASSED|FAILED) \((?>(?:(?>failures=(?P<failed>N)|errors=(?P<failed1>N)|unexpected successes=(?P<failed2>N)"
            r"|(?:skipped|skips)=(?P<not_run>N)|[a-zA-Z ]{1,30}=N)(?:, )?){1,6})"
        ),
        r"^ - Failed: (?P<failed>N)$",
        r"^(?:NO TESTS RAN$|no tests ran in |=+ no tests ran|(?:=+ )?(?:N|no) tests? collected\b)",
        r"^(?:=+ )?(?:N (?:skipped|deselected|xfailed|warnings?)(?:, )?){1,4} in [0-9.]",
        r"^(?:=+ )?(?:(?P<failed>N) failed, )?(?P<ran>N) passed, (?:N [a-z ]{1,20}, ){0,6}(?P<failed1>N) errors?\b",
        r"^(?:=+ )?(?:(?P<failed>N) failed, )?(?P<ran>N) passed\b(?! \(| \||;)",
        r"^(?:=+ )?(?P<both>N) failed\b.* in [0-9.]",
        r"^=+ (?:N [a-z]{1,20}, ){0,6}(?P<failed>N) errors? in (?P<ran>)(?P<not_run>)",
        r"^[0-9]{1,9} (?:feature|rule|step)s? passed, (?P<failed>N) failed",
        r"^(?P<ran>N) scenarios? passed, (?P<both>N) failed",
        r"^(?P<ran>N) tests?, N passed, (?P<failed>N) failed(?:, (?P<not_run>N) skipped)?$",
        # Go: a package, gotestsum, Ginkgo.
        r"^(?:ok|(?P<failed>FAIL))\s+\S+\s+(?:[0-9.]+s|\(cached\))(?P<ran>)(?:\s+coverage: |$)",
        r"^(?:\?\s+\S+\s+\[no test files\]|ok\s+\S+\s[^\[]*\[no tests to run\])",
        r"^(?P<failed>--- FAIL: |FAIL\t)",
        r"^DONE (?:N runs, )?(?P<ran>N) tests?(?:, (?P<not_run>N) skipped)?(?:, (?P<failed>N) failures?)?(?:, (?P<failed1>N) errors?)? in ",
        r"^Ran (?P<ran>N) of N Specs in ",
        r"^(?:SUCCESS|FAIL)! -- N Passed \| (?P<failed>N) Failed \|",
        # Rust: cargo, nextest. Solidity: forge.
        r"^running (?P<ran>N) tests?$",
        r"^test result: ok\. .{1,60}; (?P<not_run>N) ignored;",
        r"^test result: (?P<failed>FAILED)\. .{1,60}; (?P<not_run>N) ignored;",
        (
            r"^\s*Summary \[.{1,20}\] (?P<ran>N)(?:/N)? tests? run: (?:N passed(?: \([^()]{1,60}\))?(?:, |$))?(?:(?P<failed>N) failed(?: \([^()]{1,60}\))?(?:, |$))?"
            r"(?:(?P<failed1>N) (?:exec failed|timed out))?"
        ),
        r"^Suite result: (?P<failed>FAILED)\.",
        r"^Ran N test suites? in .{1,60}: (?P<ran>N) tests? passed, (?P<both>N) failed",
        # JavaScript: mocha, Cypress, jest, vitest, node, tape, tap, ava, Playwright, TestCafe, bun, Karma, Jasmine, Cucumber.
        r"^\s+(?P<ran>N) passing\b",
        r"^\s+(?P<both>N) failing\b",
        r"^\s{1,4}[\u2714\u2713] (?P<ran>N) tests? completed",
        r"^ {0,9}Tests:? {1,20}(?P<failed>N) failed,? .{0,80}?(?:(?P<not_run>N) (?:skipped|todo), )(?:N [a-z]{1,20}, ){0,3}(?P<ran>N) total",
        r"^Tests: {1,20}(?:(?P<failed>N) failed, )?(?:(?P<not_run>N) (?:skipped|todo), )?(?:N [a-z]{1,20}, ){0,3}(?P<ran>N) total",
        r"^ {0,9}Test (?:Suites|Files):? {1,20}(?P<failed>N) failed",
        r"^ {1,9}Errors {1,9}(?P<failed>N) errors?$",
        r"^(?:No tests? found, exiting|No test files found)",
        r"^\s*Tests\s+(?:(?P<failed>N) failed \| )?(?:N passed \| )?(?:(?P<not_run>N) (?:skipped|todo)[^(]{0,40}|(?P<failed1>N) failed {1,4}|N passed[^(]{1,60})\((?P<ran>N)\)$",
        r"^(?:#|\u2139) tests (?P<ran>N)$",
        r"^(?:#|\u2139) (?:skipped|todo) (?P<not_run>N)$",
        r"^(?:#|\u2139) (?:fail|cancelled) (?P<failed>N)$",
        r"^# failed (?P<failed>N) of N tests",
        r"^1\.\.(?P<ran>N)(?:\s*#.*)?$",  # TAP: bats, prove -v, tap
        r"^ok N\b[^#]{0,250}#\s?(?i:skip)\w{0,4}\b(?P<not_run>)",
        r"^(?P<failed>not ok) N\b(?![^#]{0,250}# ?(?i:todo|skip))",
        r"^(?P<failed>Bail out!)",
        r"^\s*(?P<ran>N) tests? passed$",
        r"^\s*(?P<both>N) tests? failed$",
        r"^ {1,9}(?P<ran>N) (?:passed|flaky)(?: \([0-9.]{1,9}m?s\))?$",
        r"^ {1,9}(?P<both>N) (?:failed|interrupted)(?: \([0-9.]{1,9}m?s\))?$",
        r"^ (?P<failed>N)/(?P<ran>N) failed \([0-9.]{1,9}m?s\)$",
        r"^ {1,6}\u2716 {1,4}(?P<failed>N) of N failed \(",
        r"^Ran (?P<ran>N) tests? across N files?\.",
        r"^ (?P<not_run>N) (?:skip|todo)$",
        r"^ (?P<failed>N) (?:fail|errors?)$",
        r"^.{0,80}\): Executed (?P<ran>N) of N (?:SUCCESS|\((?P<failed>N) FAILED\)|ERROR|DISCONNECTED)",
        r"^TOTAL: (?P<failed>N) FAILED",
        r"^(?P<ran>N) specs?, (?P<failed>N) failures?(?:, (?P<not_run>N) pending specs?)?$",
        r"^(?:Incomplete: )?No specs found",
        r"^N scenarios?(?P<ran>)(?P<not_run>) \((?P<failed>N) (?:undefined|ambiguous|pending)\)$",
        r"^(?P<ran>N) scenarios? \((?:(?P<failed>N) failed)?",
        r"^(?P<ran>0) scenarios$",
        # Perl and shell: prove, bats, shUnit2, ShellSpec.
        r"^Files=N, Tests=(?P<ran>N),",
        r"^Result: NOTESTS",
        r"^Result: (?P<failed>FAIL)$",
        r"^Ran (?P<ran>N) tests?\.$",
        # Elixir, Erlang, Gleam.
        (
            r"^(?:N (?:doctests?|properties|property), )?(?P<ran>N) tests?, (?:(?P<failed>N) failures?|no failures)(?:, (?P<not_run>N) excluded)?"
            r"(?:, (?P<not_run1>(?P<failed1>N)) invalid)?(?:, (?P<not_run2>N) skipped)?$"
        ),
        r"^(?P<ran>N) passed, no failures$",
        r"^There are no tests to run|^ {2}There were no tests to run\.",
        r"^ {0,2}All (?P<ran>N) tests? passed\b|^All tests passed \(N assertions? in (?P<ran1>N) test cases?\)",
        r"^ {2}Test passed\.(?P<ran>)$",
        r"^ {2}Failed: (?P<both>N)\. {2}Skipped: N\. {2}Passed: (?P<ran>N)\.",
        r"^Failed (?P<both>N) tests?\. Passed (?P<ran>N) tests?\.",
        # Ruby: test-unit, minitest, RSpec. Crystal, hspec.
        r"^(?P<ran>N) (?:tests?|runs?), N assertions, (?P<failed>N) failures?, (?P<failed1>N) errors?(?:, (?P<not_run>N) pendings?)?(?:, (?P<not_run1>N) (?:skips|omissions?))?",
        r"^(?P<ran>N) (?:tests?|runs?), N assertions(?:, (?P<failed>N) failures?)?",
        r"^(?P<ran>N) examples?, (?P<failed>N) failures?(?:, (?P<not_run>N) pending)?(?:, (?P<failed1>N) errors?)?(?:, (?P<not_run1>N) pending)?",
        # Clojure, Lua, Automake, Elm.
        r"^Ran (?P<ran>N) tests containing ",
        r"^(?P<failed>N) failures?, (?P<failed1>N) errors?\.$",
        r"^(?P<ran>N) success(?:es)? / (?P<both>N) failures? / (?P<failed>N) errors?",
        r"^# TOTAL: {1,9}(?P<ran>N)$",
        r"^# SKIP: {1,9}(?P<not_run>N)$",
        r"^# (?:FAIL|ERROR|XPASS): {1,9}(?P<failed>N)$",
        r"^Passed: {1,9}(?P<ran>N)$",
        r"^Failed: {1,9}(?P<both>N)$",
        # PHP: PHPUnit, Pest, phpspec.
        r"^OK \((?P<ran>N) tests?, ",
        r"^OK, but ",
        r"^Tests: (?P<ran>N), Assertions: N(?>(?:, (?>Errors: (?P<failed>N)|Failures: (?P<failed1>N)|Skipped: (?P<not_run>N)|Incomplete: (?P<not_run1>N)|[A-Za-z ]{1,30}: N)){0,8})",
        r"^(?P<failed>FAILURES!|ERRORS!)$",
        r"^No tests executed!",
        r"^\s*Tests:\s+(?:(?P<failed>N) failed, )?(?:N (?:skipped|todo|todos|risky|incomplete|deprecated|warnings?|notices?), ){0,6}(?P<ran>N) passed \(",
        r"^\s*Tests:\s+(?:(?P<both>N) failed(?:, )?)?(?:N (?:skipped|todo|todos|risky|incomplete)(?:, )?){0,4} \(N assertions?\)$",
        r"^(?P<ran>N) examples? \((?:N passed)?(?:, )?(?:N (?:pending|skipped), ){0,2}(?:(?P<failed>N) (?:failed|broken))?",
        # C and C++: CTest, Meson, Catch2, doctest, GoogleTest, cmocka, Boost.Test, Check, Criterion, Unity.
        r"^[0-9]{1,3}% tests passed, (?P<failed>N) tests? failed out of (?P<ran>N)",
        r"^\t {0,9}N - .{1,200} \(Skipped\)(?P<not_run>)$",
        r"^(?:No tests were found!!!|No tests defined\.|No tests ran$|No test cases matched )",
        r"^Ok: {1,20}(?P<ran>N)$",
        r"^(?:Fail|Unexpected Pass|Timeout): {1,20}(?P<both>N)$",
        r"^test cases: {1,9}(?P<ran>N) \| .{0,60}?(?P<failed>N) failed",
        r"^\[doctest\] test cases: {1,9}(?P<ran>N) \|[^|]{1,30}\| {1,9}(?P<failed>N) failed",
        r"^\[=+\] (?:[^:]{1,100}: )?(?P<ran>N) test(?:s? from N test (?:suite|case)s? ran\.|\(s\) run\.)",
        r"^\[ {2}SKIPPED \] (?:[^:]{1,100}: )?(?P<not_run>N) tests?(?:\(s\))?, listed below",
        r"^\[ {2}FAILED {2}\] (?:[^:]{1,100}: )?(?P<failed>N) test",
        r"^Running (?P<ran>N) test cases?\.\.\.",
        r"^\*\*\* (?P<failed>N) (?:failures?|errors?)\b.{0,30} detected in ",
        r"^[0-9]{1,3}%: Checks: (?P<ran>N), Failures: (?P<failed>N), Errors: (?P<failed1>N)",
        r"^\[=+\] Synthesis: Tested: (?P<ran>N) \| Passing: N \| Failing: (?P<failed>N) \| Crashing: (?P<failed1>N)",
        r"^(?P<ran>N) Tests (?P<failed>N) Failures (?P<not_run>N) Ignored",
        # Java, Kotlin and Scala: Maven, Gradle, sbt, MUnit, µTest. Bazel.
        r"^(?:\[\w{1,9}\] )?Tests run: (?P<ran>N), Failures: (?P<failed>N), Errors: (?P<failed1>N), Skipped: (?P<not_run>N)$",
        r"^(?:\[\w{1,9}\] )?Tests run: N, Failures: (?P<failed>N), Errors: (?P<failed1>N)",
        r"^(?:(?:\[\w{1,9}\] )?No tests to run\.|> Task :\S{1,200} NO-SOURCE$)",
        r"^(?P<ran>N) tests? completed, (?P<failed>N) failed(?:, (?P<not_run>N) skipped)?$",
        r"^(?:\[\w{1,9}\] )?Tests: succeeded (?P<ran>N), failed (?P<both>N)",
        r"^(?:\[\w{1,9}\] )?(?:Passed|Failed): Total (?P<ran>N), Failed (?P<failed>N), Errors (?P<failed1>N), Passed N(?:, (?:Ignored|Skipped) (?P<not_run>N))?",
        r"^Tests: (?P<ran>N), Passed: N, Failed: (?P<failed>N)",
        r"^Executed N out of (?P<ran>N) tests?: (?:N tests? pass(?:es)?(?:\.$| and )?)?(?:(?P<failed>N) (?:fails?|was skipped|were skipped))?",
        r"^ERROR: (?P<failed>No test targets were found)(?P<ran>)(?P<not_run>)",
        # .NET, and Pester.
        r"^\s*Total tests: (?P<ran>N)$",
        r"^\s{1,9}Skipped: (?P<not_run>N)$",
        r"^(?:Passed|Failed|Skipped)!\s+- Failed:\s+(?P<failed>N), .*\bSkipped:\s+(?P<not_run>N), Total:\s+(?P<ran>N),",
        r"^(?:No test is available in |No test matches |Test run summary: Zero tests ran)",
        r"^Test summary: total: (?P<ran>N)[,;] failed: (?P<failed>N)[,;] succeeded: N[,;] skipped: (?P<not_run>N)",
        r"^Test run summary: (?P<failed>Failed!)",
        r"^Tests Passed: (?P<ran>N), Failed: (?P<both>N)",
        # Swift, Zig, Deno, R, Haskell, OCaml, Julia, Dart, Terraform, OPA.
        r"^\s*Executed (?P<ran>N) tests?, with (?:(?P<not_run>N) tests? skipped and )?(?P<failed>N) failures?",
        r"^.{0,4}Test run with (?P<ran>N) tests?\b(?: in N suites?)?(?: (?P<failed>failed))?",
        r"^(?P<failed>\*\* TEST FAILED \*\*)",
        r"^Build Summary: \S{1,20} steps succeeded; (?P<ran>N)/",
        r"^(?P<ran>N) passed; N skipped; (?P<both>N) failed\.",
        r"^(?:ok|FAILED) \| (?P<ran>N) passed(?: \([^()]{1,40}\))? \| (?P<both>N) failed",
        r"^(?:error: )?No test modules found",
        r"^\[ FAIL (?P<both>N) \| WARN N \| SKIP N \| PASS (?P<ran>N) \]",
        r"^(?P<failed>N) out of (?P<ran>N) tests failed",
        r"^N of N test suites \((?P<ran>N) of N test cases\)",
        r"^Test suite [\w.-]{1,100}: (?P<failed>FAIL)$",
        r"^Cases: (?P<ran>N) {2}Tried: N {2}Errors: (?P<failed>N) {2}Failures: (?P<failed1>N)",
        r"^Test Successful in [0-9.]{1,12}s\. (?P<ran>N) tests? run\.",
        r"^(?P<failed>N) (?:failures?|errors?)! in [0-9.]{1,12}s\. (?P<ran>N) tests? run\.",
        r"^(?P<failed>Some tests did not pass): ",
        r"^[0-9:]{1,9} \+(?P<ran>N)(?: ~N)?(?: -N)?: (?:All tests|(?P<failed>Some tests))",
        r"^(?:Success|Failure)! (?P<ran>N) passed, (?P<both>N) failed",
        r"^PASS: N/(?P<ran>N)$",
        r"^FAIL: (?P<failed>N)/N$",
        r"^ {1,9}evaluation (?P<failed>failed) :\(",  # tox
        r"^nox > Session \S{1,100} (?P<failed>failed)\.",
    )
)
_GROUP_NAME = re.compile(r"\?P<\w{1,20}>")
_ANY_END_LINE = re.compile("|".join(_GROUP_NAME.sub("?:", one.pattern) for one in _END_LINES))
"""Matches the lines that one of the patterns matches: most lines of an output need no more than this."""
# What the program says that started a runner which failed. It is its last word, while tests may print it anywhere.
_LAST_WORDS = re.compile(
    r"^(?:make(?:\[[0-9]{1,3}\])?: \*\*\* |npm (?:ERR!|error) (?:Test failed|Lifecycle script|code |Failed at)| ELIFECYCLE  "
    r"|error Command failed with exit code|error: Recipe `|task: Failed to run task|Script .{1,200} returned with error code"
    r"|rake aborted!|error: could not compile|error: test failed|(?:\[\w{1,9}\] )?BUILD FAIL(?:ED|URE)\b"
    r"|== Compilation error in file|error: script \"|\s{0,4}ERROR {1,4}run failed: | NX {1,3}Running target .{1,100} failed"
    r"|INFO: Build completed, [1-9][0-9]{0,8} tests? FAILED|ninja: build stopped: |FATAL ERROR: |error: builder for )"
)
_MOST_LAST_LINES = 15
_MOST_LINE_CHARS = 300
_CONTROL = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
"""Colours, and what erases a line or moves on it."""
_PREFIX = re.compile(
    r"^(?:\[[\w@/.-]{1,60}\] |[\w@/.-]{1,60}(?::test\S{0,20}| test\S{0,20}): |[\w.-]{1,40} {1,20}\| )"
)
"""What a program that runs several at once writes before each line of one: lerna, turbo, pnpm, concurrently, compose."""


def printed_count(output: str) -> int | None:
    """Return how many tests ran, as known runners print it; None if no line of the output is known.

    A Go package with tests counts as one test, because `go test` prints no more.
    """
    counts = [count for count, _ in map(_said, _lines(output)) if count is not None]
    return max(sum(counts), 0) if counts else None


def printed_failure(output: str) -> str:
    """Return the first line in which a known runner says that a test failed; empty if there is none.

    A shell hides the exit code of one in a pipe, or with `|| true`.
    """
    last = deque[str](maxlen=_MOST_LAST_LINES)
    for line in _lines(output):
        if _said(line)[1]:
            return _shown(line)
        if line:
            last.append(line)
    return next((_shown(line) for line in last if _LAST_WORDS.match(line)), "")


def _lines(output: str) -> Iterator[str]:
    return (_CONTROL.sub("", line[:_MOST_LINE_CHARS]).rstrip() for line in output.splitlines())


def _shown(line: str) -> str:
    return one_line(line.strip(), limit=_FIRST_ERROR_CHARS, keep="`")


def _said(line: str) -> tuple[int | None, bool]:
    """Return how many tests ran as one line says it, or None, and whether it tells of a failure."""
    for text in dict.fromkeys((line, _PREFIX.sub("", line))) if line else ():
        found = (
            next((found for one in _END_LINES if (found := one.match(text))), None)
            if _ANY_END_LINE.match(text)
            else None
        )
        if found is None:
            continue
        groups = found.groupdict()
        failed = [text for name, text in groups.items() if name.startswith(("failed", "both")) and text]
        counts = [
            (-1 if name.startswith("not_run") else 1) * (1 if text == "" else int(text or 0))
            for name, text in groups.items()
            if not name.startswith("failed")
        ]
        count = sum(counts) if counts or not groups else None
        return count, any(text.strip("0") for text in failed)
    return None, False


# What installers and compilers print before their reason: pip, npm, cargo, go, apt, make, gcc and shells.
_ERROR_LINE = re.compile(
    r"(?i:^(?:\W{0,9}|npm )(?:(?:error|fatal|failed)\b|err!|e: )|\berror(?:\[\w{1,9}\])?: |: (?:command )?not found\b"
    r"|\bno such file|\bcould not |\bcannot |\bpermission denied|\bno matching |\bunable to |\*\*\* )|\b\w{1,60}Error: "
)
# What pip says of each program that it started, above the reason and below it.
_NO_REASON = re.compile(r"^(?:error: subprocess-exited-with-error|note: This (?:error|is an issue)\b)")
_FIRST_ERROR_CHARS = 300


def first_error(output: str) -> str:
    """Return the first line of a failed command's output that says an error, or else its last line; in one line."""
    lines = [line.strip() for line in _lines(output)]
    lines = [line for line in lines if not _NO_REASON.match(line)] or lines
    last = next((line for line in reversed(lines) if line), "")
    return _shown(next(filter(_ERROR_LINE.search, lines), last))
