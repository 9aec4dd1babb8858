"""The live view: plain lines without a terminal, a clean screen with one."""

from __future__ import annotations

import io
import json
import re
import sys
import typing
from datetime import timedelta

from hypothesis import given
from rich.console import Console

from orchestrator.app.cli.live import LiveView
from orchestrator.app.event_lines import Narrator, telling_argument
from orchestrator.app.words import duration, money
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    Paused,
    Phase,
    PhaseEntered,
    QuestionAsked,
    Reserved,
    Resumed,
)
from orchestrator.core.events import (
    CallStatus,
    ErrorOccurred,
    Event,
    InputReceived,
    LimitReached,
    SubagentEvent,
    TextDelta,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.todos import TodoStatus
from orchestrator.engine.policy.secrets import RedactedStream, Redactor
from tests.tables import table
from tests.unit.app.cli.examples import EVENTS, TODOS, reply, todo
from tests.unit.bot.journal.strategies import any_event

PLAIN = """\
· run 20261121-033112-ab12cd: owner/name with openai-chat:m
· phase: choose
▸ task (#12): Fix add()
· may spend: $2.00, 100,000 tokens, 30 minutes, 20 rounds (what is left of the day)
· may spend: no limit
· claimed issue-12 (number 3, until 2026-11-21 04:31 UTC, taken over from run 20261120-033112-ab12cd)
· continues run 20261120-033112-ab12cd (limit): 2 changed files, 7 messages; in conflict with the base: calc.py
· phase: clone
· cloned main at 0123456789, 1,234 files
· phase: plan
· round 1
· reply: 1,234 tokens, $0.0100
! reply 1 cannot be used: $.plan: missing; it was JSON, 2 characters; show --verbose prints it
▸ plan: Look, then write. (the reply was repaired)
▸ 1 call
· phase: act
✓ read_file calc.py
✗ run_shell_command make test: exit code 2 boom [red]
✗ rm: refused: no such tool
- finish done: not run
· MCP server tickets: 1 tool
· list: 1 of 3 done; now: Mend add(); next: Write a test
· [0123] list: 1 of 1 done
! waiting 12 s: 429
▸ message to the model: not there
! going in circles
✗ too many requests
✓ [0123] grep x
! limit of rounds reached: 1 of 1
▸ the conversation was shortened from about 41,200 to 12,300 tokens: 40% of the context window is used
! be careful
! secrets: the change adds what looks like a secret: app.py:3
? question: Which one?
1. a
2. b  https://example.com/q
! work saved as a patch: /somewhere/work.patch
! work saved as refs/pullwright/wip/issue-12
· requests to the forge: 9; 6 count for the rate limit, 2 write
! paused until 2026-11-22 00:00 UTC: the quota is spent
· phase: verify
· tests before: 30 passed, 1 failed, 2 skipped, exit code 1 (known from before)
! tests kept: 0 passed, 0 failed, 0 skipped, exit code -9 (600 s); proves nothing: no answer in 10 minutes
✓ digests: the change: 0123
✗ rerun: tests that pass: claimed 12, found 11 (a note)
· block: the report: nothing
✗ the tests do not pass: tests/test_a.py::test_a passed before and fails now
✓ the tests pass: 1 test fails on the base
! a person has to look at the tests: one test passes only as changed
· phase: propose
✓ pull request #3 opened: Fix add()  https://example.com/3
! not allowed: make test (not now)
· phase: finish
✓ proposed (1 round, 1,234 tokens, $0.0100, 1:30)
"""


def console(file: io.StringIO, *, terminal: bool = False, width: int = 80) -> Console:
    return Console(
        file=file,
        force_terminal=terminal,
        width=width,
        height=20,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={"TERM": "xterm-256color"},
    )


def shown(  # noqa: PLR0913  how it looks
    events: list[Event],
    *,
    terminal: bool = False,
    width: int = 80,
    plain: bool = False,
    summary: bool = False,
    updates_a_second: int = 8,
) -> str:
    file = io.StringIO()
    clock = ManualClock()
    with LiveView(
        console(file, terminal=terminal, width=width),
        plain=plain,
        summary=summary,
        clock=clock,
        updates_a_second=updates_a_second,
    ) as view:
        for event in events:
            if isinstance(event, CycleEnded):
                clock.advance(90)
            view(event)
    return file.getvalue()


def test_the_examples_hold_every_event() -> None:
    assert {type(event) for event in EVENTS} == set(typing.get_args(Event))


def test_without_a_terminal_each_event_is_a_line() -> None:
    assert shown(EVENTS) == PLAIN


ERROR = "the server said no"
FAILING: list[Event] = [
    WaitStarted(1.0, ERROR),
    WaitStarted(2.0, ERROR),
    ErrorOccurred("ProviderError", ERROR),
    CycleEnded({"outcome": "failed", "error": ERROR}),
    Paused("2026-11-22T00:00:00+00:00", ERROR),
]


def test_an_error_is_said_once() -> None:
    assert shown(FAILING).splitlines() == [
        f"! waiting 1.0 s: {ERROR}",
        "! waiting 2.0 s",
        "✗ failed (1:30)",
        "! paused until 2026-11-22 00:00 UTC",
    ]
    assert shown(FAILING[2:]).count(ERROR) == 1


def test_what_the_summary_says_is_left_to_it() -> None:
    assert ERROR not in shown(FAILING[2:], summary=True)
    assert shown(
        [LimitReached("rounds", "1 of 1"), CycleEnded({"outcome": "limit", "reason": "1 of 1"})], summary=True
    ) == ("! limit reached (1:30)\n")
    asked: list[Event] = [
        QuestionAsked("Which?", None),
        CycleEnded({"outcome": "question", "question": "Which?"}),
    ]
    assert "Which?" not in shown(asked, summary=True)


def test_what_no_summary_follows_is_not_lost() -> None:
    assert ERROR in shown(FAILING[2:3], summary=True)
    other = CycleEnded({"outcome": "failed", "error": "something else"})
    assert ERROR in shown([FAILING[2], other], summary=True)
    assert "something else" not in shown([FAILING[2], other], summary=True)


def test_the_cost_stands_behind_the_end_of_the_cycle_only() -> None:
    lines = shown([FAILING[2], CycleEnded({"outcome": "failed", "error": "something else"})], summary=True)
    assert [line.endswith(" (1:30)") for line in lines.splitlines()] == [False, True]


def test_plain_lines_may_be_asked_for_on_a_terminal() -> None:
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", shown(EVENTS, terminal=True, plain=True))
    assert without_colours == PLAIN


def test_an_ascii_output_gets_ascii_signs() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    view = LiveView(Console(file=file, highlight=False, markup=False), clock=ManualClock())
    view(EVENTS[0])
    file.flush()
    assert raw.getvalue().startswith(b"- run 2026")


@table("updates_a_second", [8, 5_000])
@table("width", [10, 40, 50, 100])
def test_a_terminal_is_left_clean(width: int, updates_a_second: int) -> None:
    screen = Screen(width)
    screen.feed(shown(EVENTS, terminal=True, width=width, updates_a_second=updates_a_second))
    assert not screen.cursor_hidden
    assert screen.column == 0
    text = screen.text()
    assert "⠋" not in text
    assert "asking the model" not in text
    flat = re.sub(r"\s", "", text)
    for line in ("task(#12):Fixadd()", "read_filecalc.py", "proposed(1round,1,234tokens,$0.0100,1:30)"):
        assert line in flat
    assert "round1·" not in flat, "what is only a status goes away"


@table("width", [10, 20, 40, 100])
def test_the_status_fits_any_width(width: int) -> None:
    view = LiveView(console(io.StringIO(), terminal=True, width=width), clock=ManualClock())
    events: list[Event] = [
        PhaseEntered(Phase.PLAN),
        TurnStarted(1),
        reply(),
        TurnStarted(2),
        TodosChanged((todo("1", "z" * 200, TodoStatus.IN_PROGRESS),)),
        ToolCallStarted("1", "run_shell_command", {"command": "x" * 200}),
        TextDelta("y" * 5000),
    ]
    for event in events:
        view(event)
    lines = [str(line) for line in view._render().renderables]
    assert len(lines) <= 7
    assert all(len(line) < width for line in lines)


def test_a_status_in_words() -> None:
    clock = ManualClock()
    view = LiveView(console(io.StringIO(), terminal=True), clock=clock)
    for event in EVENTS[: EVENTS.index(reply()) + 1]:
        view(event)
    clock.advance(65)
    view(ToolCallStarted("1", "grep", {"pattern": "add"}))
    view(TextDelta("one\\ntwo"))
    status, doing, tail = (str(line) for line in view._render().renderables)
    assert status.endswith(" plan · round 1 · 1:05 · $0.0100 · 1,234 tokens")
    assert doing == "  grep add"
    assert tail == "    one two"


def test_the_time_of_a_cycle_counts_from_its_start_and_that_of_an_answer_from_the_question() -> None:
    for answers, shown in ((False, "2:05"), (True, "0:05")):
        clock = ManualClock()
        view = LiveView(console(io.StringIO(), terminal=True), clock=clock, answers=answers)
        view(CycleStarted("a", "r", "m", "c"))
        clock.advance(120)
        view(InputReceived("Fix add()."))
        clock.advance(5)
        assert f" · {shown}" in str(view._render().renderables[0])


def test_the_models_list_is_in_the_status() -> None:
    view = LiveView(console(io.StringIO(), terminal=True), clock=ManualClock())
    view(TodosChanged(TODOS, 3))
    view(SubagentEvent("0123-4567", TodosChanged(TODOS[:1], 1)))
    view(ToolCallStarted("1", "grep", {"pattern": "add"}))
    _, listed, doing = (str(line) for line in view._render().renderables)
    assert listed == "  list: 1 of 3 done; now: Mend add(); next: Write a test"
    assert doing == "  grep add"
    view(TodosChanged((), 3))
    assert len(view._render().renderables) == 2


def test_an_unknown_price_stays_unknown() -> None:
    assert "cost unknown" in shown(
        [TurnStarted(1), reply(None), reply(0.5), CycleEnded({"outcome": "limit"})]
    )


@table(
    ("event", "line"),
    [
        (CycleEnded({"outcome": "paused", "error": "busy"}), "! paused: busy (1:30)"),
        (CycleEnded({"outcome": "failed", "error": "no"}), "✗ failed: no (1:30)"),
        (Paused("2026-11-22T00:00:00+00:00", "the quota is spent"), "! paused until 2026-11-22 00:00 UTC: the quota is spent"),
        (Paused("2026-11-22T00:00:00+00:00", "nothing to do before the next time of the schedule (every 1h)", is_planned=True), "· waiting until 2026-11-22 00:00 UTC: nothing to do before the next time of the schedule (every 1h)"),
        (Resumed("r", "limit", 1, 1), "· continues run r (limit): 1 changed file, 1 message"),
        (Reserved(None, None, None, 1, ""), "· may spend: 1 round"),
    ],
)  # fmt: skip
def test_what_is_no_success_is_not_shown_as_one(event: Event, line: str) -> None:
    assert shown([event], width=120) == f"{line}\n"


def test_a_second_cycle_counts_from_nothing() -> None:
    text = shown(
        [*EVENTS, CycleStarted("b", "r", "m", "c"), CycleEnded({"outcome": "no_task", "reason": "none"})]
    )
    assert text.endswith("✓ nothing to do: none (1:30)\n")


def test_cycles_are_told_apart_by_one_line() -> None:
    cycle: list[Event] = [CycleStarted("a", "r", "m", "c"), CycleEnded({"outcome": "no_task"})]
    assert shown(cycle * 3).splitlines().count("─" * 60) == 2


def test_a_pause_counts_down() -> None:
    clock = ManualClock()
    view = LiveView(console(io.StringIO(), terminal=True), clock=clock)
    until = (clock.now() + timedelta(hours=2)).isoformat()
    view(Paused(until, "nothing to do", is_planned=True))
    clock.advance(61)
    (status,) = (str(line) for line in view._render().renderables)
    assert "waiting · 1:58:59 left · until " in status
    view(CycleStarted("b", "r", "m", "c"))
    view(WaitStarted(90.0, "busy"))
    clock.advance(30)
    assert "  waiting, 1:00 left" in [str(line) for line in view._render().renderables]


PATH = "/very/" + "long-folder-name/" * 12 + "file.py"


@table("width", [40, 60, 100])
def test_a_long_path_is_kept_whole(width: int) -> None:
    events: list[Event] = [
        ToolCallStarted("1", "edit_file", {"path": PATH}),
        ToolCallEnded("1", "edit_file", CallStatus.FAILED, f"cannot write {PATH}"),
        Warned(f"{'much is to be said ' * 20} about {PATH}"),
    ]
    text = shown(events, terminal=True, width=width)
    assert text.count(PATH) == 3, "a terminal wraps it, and copies it whole"


def test_a_reply_in_json_is_shown_as_its_words() -> None:
    calls = [{"tool_name": "edit_file", "arguments": {"path": "calc.py", "old_text": "secret plan"}}]
    whole = json.dumps({"plan": 'Mend "add"\nnow.', "tool_calls": calls})
    view = LiveView(console(io.StringIO(), terminal=True, width=100), clock=ManualClock())
    view(TurnStarted(1))
    for character in whole:
        view(TextDelta(character))
        assert "{" not in "".join(str(line) for line in view._render().renderables)
    said = str(view._render().renderables[-1])
    assert said.split() == ["Mend", '"add"', "now.", "edit_file", "calc.py"]


def test_a_call_is_told_by_what_is_no_json() -> None:
    assert telling_argument({"items": [{"a": 1}], "count": 3}) == "3"
    assert telling_argument({"items": [{"a": 1}]}) == ""


def has_status(view: LiveView) -> bool:
    return view._live is not None


def test_others_may_print_during_a_pause() -> None:
    file = io.StringIO()
    view = LiveView(console(file, terminal=True), clock=ManualClock())
    with view:
        view(Warned("before"))
        view.pause()
        assert not has_status(view)
        file.write("RESULT\n")
        view(Warned("after"))
        assert has_status(view), "the status is back"
    screen = Screen(80)
    screen.feed(file.getvalue())
    assert screen.text().split("\n")[:3] == ["! before", "RESULT", "! after"]


def test_standard_output_is_left_to_results() -> None:
    before = sys.stdout
    with LiveView(console(io.StringIO(), terminal=True)):
        assert sys.stdout is before


@table("size", [1, 7, 5000])
def test_secrets_that_come_in_pieces_are_not_shown(size: int) -> None:
    value = "made-up-key-for-this-test-1234567890"
    redactor = Redactor([value])
    kind = "PRIVATE KEY-----"
    block = "\n".join(["QmFzZTY0" * 8] * 60)
    coloured = "\x1b[0m".join(value)
    text = f"so {coloured} and -----BEGIN {kind}\n{block}\n-----END {kind} done"
    view = LiveView(
        console(io.StringIO(), terminal=True, width=200),
        clock=ManualClock(),
        stream=lambda: RedactedStream(redactor),
    )
    screen = console(io.StringIO(), width=200)
    view(TurnStarted(1))
    for start in range(0, len(text), size):
        view(TextDelta(text[start : start + size]))
        if start % (29 * size) == 0 or start + size >= len(text):
            with screen.capture() as shown_now:
                screen.print(view._render())
            assert "made-up" not in shown_now.get()
            assert "mFzZTY0QmFz" not in shown_now.get()


@given(any_event)
def test_any_event_can_be_shown(event: Event) -> None:
    line = Narrator().line(event)
    if line is not None:
        assert "\x1b" not in line.text
    shown([event])


@table(
    ("arguments", "expected"),
    [({}, ""), ({"content": "x", "path": "a.py"}, "a.py"), ({"odd": 3}, "3"), ({"command": "a\nb"}, "a b")],
)
def test_the_argument_that_says_most(arguments: dict[str, object], expected: str) -> None:
    assert telling_argument(arguments) == expected


@table(
    ("usd", "expected"),
    [(None, "cost unknown"), (0.0, "$0.00"), (0.0123, "$0.0123"), (1.5, "$1.50"), (1234.5, "$1,234.50")],
)
def test_money(usd: float | None, expected: str) -> None:
    assert money(usd) == expected


@table(("seconds", "expected"), [(0, "0:00"), (65.9, "1:05"), (3661, "1:01:01"), (-1, "0:00")])
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


class Screen:
    """As much of a terminal as the view uses: it moves up, erases lines, hides the cursor."""

    _TOKEN = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|([\x00-\x1f])|([^\x00-\x1f]+)")

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.cursor_hidden = False

    def feed(self, data: str) -> None:
        for number, command, control, text in self._TOKEN.findall(data):
            if text:
                self._write(text)
            elif control == "\n":
                self._new_row()
            elif control == "\r":
                self.column = 0
            else:
                self._obey(command, number)

    def _write(self, text: str) -> None:
        for character in text:
            if self.column == self.width:
                self._new_row()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _new_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append("")

    def _obey(self, command: str, number: str) -> None:
        match command:
            case "A":
                self.row -= int(number or 1)
            case "K":
                self.lines[self.row] = ""
            case "h" | "l":
                self.cursor_hidden = command == "l"
            case _:
                assert command == "m"

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)
