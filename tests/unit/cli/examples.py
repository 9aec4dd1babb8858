"""A run with one of every kind of event in it, some of them hostile."""

from __future__ import annotations

from orchestrator.core.events import (
    CallStatus,
    Cloned,
    CycleEnded,
    CycleStarted,
    Event,
    LimitReached,
    MessageAdded,
    Phase,
    PhaseEntered,
    PlanAccepted,
    Proposed,
    QuestionAsked,
    ReplyReceived,
    ReplyRejected,
    SessionEnded,
    SessionStarted,
    TaskTaken,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
    Warned,
    WorkSaved,
)
from orchestrator.core.messages import FinishReason, Message, Usage


def reply(usd: float | None = 0.01) -> ReplyReceived:
    return ReplyReceived(Message.assistant("{}"), FinishReason.STOP, Usage(1000, 234), usd, "model")


ENDING = CycleEnded({"outcome": "proposed", "usd": 0.01})
EVENTS: list[Event] = [
    CycleStarted("20261121-033112-ab12cd", "owner/name", "openai-chat:m", "json_plan"),
    PhaseEntered(Phase.CHOOSE),
    TaskTaken("issue-12", "Fix \x1b[31madd()", "It is [bold]wrong[/bold].\n\nVery.", "issue", 12),
    PhaseEntered(Phase.CLONE),
    Cloned("0123456789abcdef", "main", 1234),
    PhaseEntered(Phase.PLAN),
    SessionStarted("s", "system prompt"),
    MessageAdded(Message.user("hello")),
    TurnStarted(1),
    TextDelta("thinking \x1b]0;title\x07"),
    reply(),
    ReplyRejected(("$.plan: missing",), 1),
    PlanAccepted("Look, then write.", 3, repaired=True),
    PhaseEntered(Phase.ACT),
    ToolCallStarted("1", "read_file", {"path": "calc\x1b[2J.py"}),
    ToolCallEnded("1", "read_file", CallStatus.OK, "line\n" * 40),
    ToolCallStarted("2", "run_shell_command", {"command": "make\ntest"}),
    ToolOutputDelta("2", "compiling"),
    ToolCallEnded("2", "run_shell_command", CallStatus.FAILED, "exit code 2\nboom [red]"),
    ToolCallStarted("3", "rm", {}),
    ToolCallEnded("3", "rm", CallStatus.REFUSED, "no such tool"),
    ToolCallStarted("4", "finish", {"reason": "done"}),
    ToolCallEnded("4", "finish", CallStatus.SKIPPED, ""),
    WaitStarted(12.4, "429"),
    LimitReached("rounds", "1 of 1"),
    Warned("be careful"),
    QuestionAsked("Which one?\n1. a\n2. b", "https://example.com/q"),
    WorkSaved("/somewhere/work.patch"),
    SessionEnded("finished"),
    PhaseEntered(Phase.PROPOSE),
    Proposed(3, "Fix add()", "https://example.com/3", "pullwright/x", "0123", created=True),
    PhaseEntered(Phase.FINISH),
    ENDING,
]
