"""`run_tests`, `create_pull_request`, `ask_question`, `finish` and `submit`: the calls by which a session gets somewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.engine.tools.base import (
    TEXT,
    Ends,
    Failed,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

Propose: TypeAlias = Callable[[str, str], Awaitable[str]]
"""The host's function: title and body in, what the model is told out. May raise `ToolError`."""

MayFinish: TypeAlias = Callable[[str], Awaitable[str | None]]
"""The host's function: the reason given in, why the session may not end yet or None out."""

RunTests: TypeAlias = Callable[[Sequence[str]], Awaitable[str]]
"""The host's function: ids of tests in, none for all, what the model is told out. May raise `ToolError`."""

MAX_TITLE_CHARS = 256
"""GitHub takes no longer title of an issue or pull request."""

MAX_CHOICES = 9
RUN_TESTS = "run_tests"
MAX_TESTS = 50
MAX_ID_CHARS = 500


def run_tests(run: RunTests) -> Tool:
    """The tool that has the host run the repository's tests, which takes as long as they take."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ok(await run(tuple(arguments.get("tests") or ())))

    test: JsonObject = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
    tests: JsonObject = {"type": "array", "items": test, "maxItems": MAX_TESTS}
    return Tool(define(RUN_TESTS, {"tests": tests}), execute, order=Order.LAST, is_timed=False)


def create_pull_request(propose: Propose, *, is_timed: bool = True) -> Tool:
    """The tool that has the host commit, push and open or update the pull request.

    Args:
        propose: the host's function.
        is_timed: see `Tool`; a host that runs tests first takes as long as they take.
    """

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return await propose_changes(propose, arguments["title"], arguments["body"])

    definition = define("create_pull_request", {"title": TEXT, "body": TEXT}, ("title", "body"))
    return Tool(definition, execute, order=Order.LAST, is_timed=is_timed)


def ask_question() -> Tool:
    """The tool that ends the session with a question to a person."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return ask(arguments["question_text"], arguments.get("choices") or ())

    choices: JsonObject = {"type": "array", "items": TEXT, "maxItems": MAX_CHOICES}
    properties = {"question_text": TEXT, "choices": choices}
    definition = define("ask_question", properties, ("question_text",))
    return Tool(definition, execute, order=Order.LAST)


def finish(may_finish: MayFinish) -> Tool:
    """The tool that ends the session."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return await end_session(may_finish, arguments.get("reason") or "")

    return Tool(define("finish", {"reason": TEXT}), execute, order=Order.LAST)


def submit() -> Tool:
    """`submit(answer)`: ends the session with an answer."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ends("finish", arguments["answer"])

    definition = define("submit", {"answer": TEXT}, ("answer",), prompt="step/submit")
    return Tool(definition, execute, order=Order.LAST)


async def propose_changes(propose: Propose, title: str, body: str) -> ToolOutcome:
    """Hand a title of one line and a body to the host.

    Raises:
        ToolError: the host refused, and says why.
    """
    line = " ".join(title.split())
    if not line:
        return Failed("The title is empty: say in a few words what the pull request changes.")
    if len(line) > MAX_TITLE_CHARS:
        return Failed(
            f"The title has {len(line)} characters; GitHub takes {MAX_TITLE_CHARS}. Put details into the body."
        )
    return Ok(await propose(line, body))


def ask(question: str, choices: Sequence[str] = ()) -> ToolOutcome:
    """End with a question, its choices numbered below it: `1. ...`, a line each."""
    if not question.strip():
        return Failed("The question is empty: write what a person has to decide, and between what.")
    lines = [" ".join(choice.split()) for choice in choices if choice.strip()]
    numbered = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    return Ends("question", "\n\n".join(filter(None, (question.strip(), "\n".join(numbered)))))


async def end_session(may_finish: MayFinish, reason: str) -> ToolOutcome:
    """End, unless the host has a reason not to."""
    refusal = await may_finish(reason)
    return Failed(refusal) if refusal is not None else Ends("finish", reason)
