"""The tools that the host answers: they run tests, propose the change, or end the session."""

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
"""The host's function: takes title and body, returns the text for the model. May raise `ToolError`."""

MayFinish: TypeAlias = Callable[[str], Awaitable[str | None]]
"""The host's function: takes the model's reason, returns why the session may not end yet, or None."""

RunTests: TypeAlias = Callable[[Sequence[str]], Awaitable[str]]
"""The host's function: takes ids of tests (none for all), returns the text for the model. May raise `ToolError`."""

MAX_TITLE_CHARS = 256
"""GitHub's limit for the title of an issue or pull request."""

MAX_CHOICES = 9
RUN_TESTS = "run_tests"
MAX_TESTS = 50
MAX_ID_CHARS = 500


def run_tests(run: RunTests) -> Tool:
    """Create the tool with which the host runs the repository's tests, without a time limit of its own."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ok(await run(tuple(arguments.get("tests") or ())))

    test: JsonObject = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
    tests: JsonObject = {"type": "array", "items": test, "maxItems": MAX_TESTS}
    return Tool(define(RUN_TESTS, {"tests": tests}), execute, order=Order.LAST, is_timed=False)


def create_pull_request(propose: Propose) -> Tool:
    """Create the tool with which the host commits, pushes and opens or updates the pull request.

    It is not timed: a push that goes on in its thread cannot be stopped, and a second one must not begin beside it.
    """

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        title = " ".join(arguments["title"].split())
        if not title:
            return Failed("The title is empty: say in a few words what the pull request changes.")
        if len(title) > MAX_TITLE_CHARS:
            return Failed(
                f"The title has {len(title)} characters; GitHub takes {MAX_TITLE_CHARS}. Put details into the body."
            )
        return Ok(await propose(title, arguments["body"]))

    definition = define("create_pull_request", {"title": TEXT, "body": TEXT}, ("title", "body"))
    return Tool(definition, execute, order=Order.LAST, is_timed=False)


def ask_question() -> Tool:
    """Create the tool that ends the session with a question to a person, and numbered choices (`1. ...`) below it."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        question = arguments["question_text"].strip()
        if not question:
            return Failed("The question is empty: write what a person has to decide, and between what.")
        choices = [" ".join(choice.split()) for choice in arguments.get("choices") or () if choice.strip()]
        numbered = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, start=1))
        return Ends("question", "\n\n".join(filter(None, (question, numbered))))

    several: JsonObject = {"type": "array", "items": TEXT, "maxItems": MAX_CHOICES}
    definition = define("ask_question", {"question_text": TEXT, "choices": several}, ("question_text",))
    return Tool(definition, execute, order=Order.LAST)


def finish(may_finish: MayFinish) -> Tool:
    """Create the tool that ends the session, unless the host returns a reason against it."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        reason = arguments.get("reason") or ""
        refusal = await may_finish(reason)
        return Failed(refusal) if refusal is not None else Ends("finish", reason)

    return Tool(define("finish", {"reason": TEXT}), execute, order=Order.LAST)


def submit() -> Tool:
    """Create the tool `submit(answer)`, which ends the session with an answer."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ends("finish", arguments["answer"])

    definition = define("submit", {"answer": TEXT}, ("answer",), prompt="step/submit")
    return Tool(definition, execute, order=Order.LAST)
