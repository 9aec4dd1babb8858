"""Journals of runs that never were: for pages, which read nothing else."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import create_run_folder
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    Phase,
    PhaseEntered,
    Proposed,
    Proposing,
    Reserved,
    TaskTaken,
    TestRunEnded,
    TestRunStarted,
    Verified,
)
from orchestrator.core.events import (
    CallStatus,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SessionStarted,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.events import Event

DIFF = """diff --git a/calc.py b/calc.py
index 1c2d3e4..5f6a7b8 100644
--- a/calc.py
+++ b/calc.py
@@ -1,6 +1,8 @@
 \"\"\"Sums and differences.\"\"\"

 def add(a: int, b: int) -> int:
-    return a - b
+    if not isinstance(a, int):
+        raise TypeError("a")
+    return a + b

 def negate(a: int) -> int:
"""


def with_lines(content: bytes, number: int, *lines: bytes) -> bytes:
    """Put these lines in place of the one with this number, which is that of its record."""
    before = content.splitlines(keepends=True)
    return b"".join((*before[:number], *lines, *before[number + 1 :]))


def with_moved_line(content: bytes, number: int) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join((*lines[:number], *lines[number + 1 :], lines[number]))


def with_field(content: bytes, number: int, old: bytes, new: bytes) -> bytes:
    line = content.splitlines(keepends=True)[number]
    assert old in line
    return with_lines(content, number, line.replace(old, new, 1))


DAMAGE: dict[str, tuple[Callable[[bytes, int], bytes], int, str]] = {
    "cut": (
        lambda text, at: with_lines(text, at, text.splitlines()[at][:20] + b"\n"),
        1,
        "line 3: not a JSON object",
    ),
    "cut with its line break": (
        lambda text, at: with_lines(text, at, text.splitlines()[at][:20]),
        2,
        "line 3: not a",
    ),
    "without its line break": (
        lambda text, at: with_lines(text, at, text.splitlines()[at]),
        2,
        "line 3: not a JSON",
    ),
    "NUL bytes": (lambda text, at: with_lines(text, at, bytes(40) + b"\n"), 1, "line 3: not a JSON object"),
    "garbage": (lambda text, at: with_lines(text, at, b"\xff\xfe{]\n"), 1, "line 3: not a JSON object"),
    "garbage between": (
        lambda text, at: with_lines(text, at, b"x\n", text.splitlines(keepends=True)[at]),
        0,
        "line 3: not",
    ),
    "empty": (lambda text, at: with_lines(text, at, b"\n"), 1, "line 3: not a JSON object"),
    "no object": (lambda text, at: with_lines(text, at, b"[]\n"), 1, "line 3: not a JSON object"),
    "too deep": (
        lambda text, at: with_lines(text, at, b"[" * 100_000 + b"\n"),
        1,
        "line 3: not a JSON object",
    ),
    "huge": (lambda text, at: with_lines(text, at, b"9" * 5_000_000 + b"\n"), 1, "line 3: not a JSON object"),
    "another encoding": (
        lambda text, at: with_lines(text, at, text.splitlines()[at].decode().encode("utf-16-le") + b"\n"),
        1,
        "line 3: not a JSON object",
    ),
    "taken out": (with_lines, 1, "1 of 5 records are missing"),
    "twice": (
        lambda text, at: with_lines(text, at, *text.splitlines(keepends=True)[at : at + 1] * 2),
        0,
        "line 4: record 2",
    ),
    "moved": (with_moved_line, 0, "line 6: record 2 comes too late"),
    "without a field": (
        lambda text, at: with_field(text, at, b'"message":', b'"massage":'),
        1,
        "line 3: Warned has no message",
    ),
    "a value of another kind": (
        lambda text, at: with_field(text, at, b'"again %d"' % at, b"7"),
        1,
        "line 3: Warned.message: not a",
    ),
    "without a time": (
        lambda text, at: with_field(text, at, b'"at":"', b'"at":"x'),
        1,
        "line 3: the record has no valid time",
    ),
    "without a number": (
        lambda text, at: with_field(text, at, b'"seq":%d,' % at, b'"seq":null,'),
        1,
        "line 3: the record has no valid",
    ),
    "another number": (
        lambda text, at: with_field(text, at, b'"seq":%d,' % at, b'"seq":900,'),
        1,
        "line 4: record 3 comes too late",
    ),
}
"""What may befall a line in the middle: how it is done, how many records are lost by it, and what is said."""


def run_name(start: datetime, number: int) -> str:
    return f"{start:%Y%m%d-%H%M%S}-{number:07x}"


def started(
    name: str, task: TaskTaken | None, repository: str, model: str = "anthropic:claude-sonnet-4-5"
) -> list[Event]:
    """How each run begins."""
    begin: list[Event] = [
        CycleStarted(name, repository, model, "native", "safe: no commands", "planner"),
        PhaseEntered(Phase.CHOOSE),
        Reserved(2.0, None, None, 20),
    ]
    if task is None:
        return begin
    return [
        *begin,
        task,
        Claimed(task.key, "host", 1, "2026-11-23T09:00:00+00:00"),
        PhaseEntered(Phase.CLONE),
        Cloned("41bb3c3fbb0123456789", "main", 42),
        PhaseEntered(Phase.PLAN),
        SessionStarted("s", "You repair repositories."),
        MessageAdded(Message.user("The task: " + task.title)),
    ]


def worked_round(
    number: int, usd: float | None = 0.021, plan: str = "Read the file, mend it, run the tests."
) -> list[Event]:
    """One round: a request, its reply, and two calls."""
    path = "calc.py"
    return [
        TurnStarted(number, 9_000, usd),
        ReplyReceived(
            Message.assistant(plan), FinishReason.STOP, Usage(4_200 + 700 * number, 380, 3_000), usd, "m"
        ),
        PhaseEntered(Phase.ACT),
        PlanAccepted(plan, 2),
        ToolCallStarted(f"r{number}", "read_file", {"path": path}),
        ToolCallEnded(f"r{number}", "read_file", CallStatus.OK, "def add(a, b):\n    return a - b\n" * 3),
        ToolCallStarted(
            f"e{number}", "edit_file", {"path": path, "old": "return a - b", "new": "return a + b\n# done\n"}
        ),
        ToolCallEnded(f"e{number}", "edit_file", CallStatus.OK, "1 replacement in calc.py"),
    ]


def runs_of_tests(*, red: bool = False) -> list[Event]:
    kept = TestRunEnded("after", 41 - red, int(red), 1, int(red), 8.4)
    reasons = ("test_add fails with the change and passed before",) if red else ()
    return [
        PhaseEntered(Phase.VERIFY),
        TestRunStarted("before", "pytest -q"),
        TestRunEnded("before", 41, 0, 1, 0, 8.1),
        TestRunStarted("after", "pytest -q"),
        kept,
        Verified("tree", red, reasons, {}),
    ]


def proposed(number: int, title: str, repository: str, **result: object) -> list[Event]:
    url = f"https://github.com/{repository}/pull/{number}"
    changed = {"files": ["calc.py"], "added": 3, "removed": 1}
    return [
        PhaseEntered(Phase.PROPOSE),
        Proposing(
            title, "What was wrong, and what is right now.", "pullwright/issue-1", "0123456789abcdef", DIFF
        ),
        Proposed(number, title, url, "pullwright/issue-1", "0123456789abcdef", created=True),
        PhaseEntered(Phase.FINISH),
        CycleEnded(
            {"outcome": "proposed", "reason": "The pull request is open.", "changed": changed, **result}
        ),
    ]


class Journals:
    """Writes journals into a home. A number among the events is seconds that go by; open runs end with `close`."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._count = 0
        self._stack = ExitStack()

    def name(self, start: datetime) -> str:
        self._count += 1
        return run_name(start, self._count)

    def add(self, start: datetime, events: Sequence[Event | float], name: str = "") -> Path:
        """A run that is over, or whose process is dead if it has no end."""
        name = name or self.name(start)
        folder = create_run_folder(self.home, name)
        with JournalWriter(folder, Redactor(), ManualClock(start)) as writer:
            _write(writer, events)
        return folder

    def begin(self, start: datetime, events: Sequence[Event | float], name: str = "") -> JournalWriter:
        """A run whose process is alive: this one."""
        folder = create_run_folder(self.home, name or self.name(start))
        self._stack.enter_context(lock_run(folder))
        writer = self._stack.enter_context(JournalWriter(folder, Redactor(), ManualClock(start)))
        _write(writer, events)
        return writer

    def end(self) -> None:
        """All processes die."""
        self._stack.close()


def _write(writer: JournalWriter, events: Iterable[Event | float]) -> None:
    for event in events:
        if isinstance(event, int | float):
            clock = writer._clock
            assert isinstance(clock, ManualClock)
            clock.advance(event)
        else:
            writer(event)


def night(home: Home, now: datetime) -> Journals:
    """Ten tasks of a night and the days before, with failures in between; one run still goes on."""
    made = Journals(home)
    titles = [
        "Fix add(): it subtracts",
        "Explain the retry policy in the README",
        "Time zones are lost when a report is exported",
        "Let --quiet silence the progress bar",
        "Crash on an empty configuration file",
        "Say which file could not be read",
        "Speed up the import of large archives",
        "Remove the deprecated client",
    ]
    repositories = ["octo/ledger", "octo/atlas"]
    for day in range(13, 0, -1):
        for number in range(1 + (day * 7) % 3):
            at = now - timedelta(days=day, hours=number * 3)
            title = titles[(day + number) % len(titles)]
            task = TaskTaken(f"issue-{day * 10 + number}", title, "It is wrong.", "issue", day * 10 + number)
            repository = repositories[(day + number) % 2]
            name = made.name(at)
            rounds = [
                event
                for one in range(1, 3 + day % 4)
                for event in (*worked_round(one, 0.03 + 0.01 * day), 40.0)
            ]
            begin = started(name, task, repository)
            if (day + number) % 5 == 0:
                error = f"anthropic: 529, overloaded; request {day}{number}"
                end: list[Event] = [CycleEnded({"outcome": "failed", "error": error})]
            else:
                end = [*runs_of_tests(), *proposed(day * 10 + number, title, repository)]
            made.add(at, [*begin, 5.0, *rounds, *end], name)
    last = now - timedelta(hours=9)
    for number, title in enumerate(titles):
        at = last + timedelta(minutes=50 * number)
        name = made.name(at)
        repository = repositories[number % 2]
        task = TaskTaken(
            f"issue-{200 + number}", title, f"{title}. Steps to reproduce are below.", "issue", 200 + number
        )
        url = f"https://github.com/{repository}/issues/{200 + number}"
        told = {"task": {"key": task.key, "title": title, "url": url}}
        rounds = [event for one in range(1, 4) for event in (*worked_round(one), 35.0)]
        begin = started(name, task, repository)
        match number:
            case 2:
                question = "Should an export keep the zone of the report, or the reader's? Both are easy."
                end = [CycleEnded({"outcome": "question", "question": question, "question_url": url, **told})]
            case 4:
                error = "the model gave no usable reply in 5 rounds: the JSON has no 'plan'"
                end = [CycleEnded({"outcome": "failed", "error": error, **told})]
            case 6:
                end = [CycleEnded({"outcome": "limit", "reason": "2.00 USD for this task are spent", **told})]
            case 5:
                end = [*runs_of_tests(red=True), *proposed(210 + number, title, repository, **told)]
            case _:
                end = [*runs_of_tests(), *proposed(210 + number, title, repository, **told)]
        made.add(at, [*begin, 4.0, *rounds, *end], name)
    nothing = {
        "outcome": "no_task",
        "reason": "issue #231 has no label pullwright; issue #233 is claimed by build-7; the task item-2 waits for an answer",
        "wake_at": (now + timedelta(minutes=34)).isoformat(),
    }
    made.add(now - timedelta(minutes=26), [*started("x", None, "octo/atlas"), CycleEnded(nothing)])
    at = now - timedelta(minutes=3)
    name = made.name(at)
    task = TaskTaken(
        "issue-240", "Stop logging the access token", "It is printed at level DEBUG.", "issue", 240
    )
    doing = ToolCallStarted("x", "run_tests", {"command": "pytest -q tests/test_log.py"})
    going = [*started(name, task, "octo/ledger"), 12.0, *worked_round(1), 40.0, *worked_round(2), doing]
    made.begin(at, going, name)
    return made
