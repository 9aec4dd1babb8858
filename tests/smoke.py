"""The integration smoke test (section 9.13 of the coding agent loop specification), against real models.

    python -m tests.smoke [openai|anthropic|gemini ...] [--model NAME] [--profile NAME --api-url URL]

A vendor without a key in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY) is
skipped, unless `--api-url` names a server. Prints a line for each step. Exit code 1: a step failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import (
    LocalEnvironment,
    Session,
    SessionConfig,
    anthropic_profile,
    gemini_profile,
    openai_profile,
)
from orchestrator.core.errors import PullwrightError
from orchestrator.core.events import CallStatus, SteeringInjected, ToolCallEnded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator import SessionEvent
    from orchestrator.core.messages import ToolResult
    from orchestrator.engine.profiles.base import Profile

PROFILES: dict[str, tuple[Callable[..., Profile], str]] = {
    "openai": (openai_profile, "gpt-5.2-codex"),
    "anthropic": (anthropic_profile, "claude-sonnet-4-5"),
    "gemini": (gemini_profile, "gemini-3-pro-preview"),
}
BIG_CHARS = 100_000
STEP_MINUTES = 5.0
WAIT_MS = 10_000
"""The specification's default; for the profile of Anthropic, whose own is 120 s, it is set as the most."""


class StepError(Exception):
    """A step did not do what it should."""


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201  a script prints


def check(holds: object, why: str) -> None:
    """Fail the step unless this holds."""
    if not holds:
        raise StepError(why)


@dataclass
class Run:
    """One session with one model, and the events of its last input."""

    session: Session
    folder: Path
    wait_ms: int
    events: list[SessionEvent] = field(default_factory=list)

    async def submit(self, text: str, steer: str = "") -> None:
        """Ask; `steer` is said when the first call starts."""
        self.events = []
        async with asyncio.timeout(STEP_MINUTES * 60), aclosing(self.session.submit(text)) as events:
            async for event in events:
                self.events.append(event)
                if steer and event.kind == "tool_call_start":
                    self.session.steer(steer)
                    steer = ""

    def ended(self, *names: str) -> list[ToolCallEnded]:
        """The calls of these tools that ended, in all sessions."""
        calls = [event.event for event in self.events if isinstance(event.event, ToolCallEnded)]
        return [call for call in calls if call.name in names]

    def told(self) -> list[ToolResult]:
        """What the model was told about its calls, in the whole conversation."""
        return [result for turn in self.session.history.turns for result in turn.results]

    def text(self, name: str) -> str:
        """A file's text; empty if it is not there."""
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


async def create(run: Run) -> None:
    """Simple file creation."""
    await run.submit("Create a file called hello.py that prints 'Hello World'")
    check("Hello" in run.text("hello.py"), "hello.py is not there, or does not say Hello")


async def edit(run: Run) -> None:
    """Read and edit."""
    await run.submit("Read hello.py and add a second print statement that says 'Goodbye'")
    text = run.text("hello.py")
    check("Hello" in text and "Goodbye" in text, "hello.py does not say both Hello and Goodbye")


async def shell(run: Run) -> None:
    """Shell execution."""
    await run.submit("Run hello.py and show the output")
    good = [call for call in run.ended("shell") if call.status is CallStatus.OK]
    check(any("Goodbye" in call.output for call in good), "no command printed what hello.py prints")


async def truncation(run: Run) -> None:
    """Truncation verification."""
    (run.folder / "big.txt").write_text("x" * BIG_CHARS)
    await run.submit("Read big.txt with read_file, once, and say how long it is")
    full = [call for call in run.ended("read_file") if "x" * BIG_CHARS in call.output]
    check(full, f"no event has all {BIG_CHARS} characters")
    cut = any("[WARNING: Tool output was truncated." in result.content for result in run.told())
    check(cut, "the model was not told that the output was truncated")


async def steering(run: Run) -> None:
    """Steering."""
    words = "Actually, just create a single /health endpoint for now, in app.py"
    await run.submit("Create a Flask web application in app.py with multiple routes", words)
    injected = any(isinstance(event.event, SteeringInjected) for event in run.events)
    check(injected, "the model called no tool, so that it could not be steered")
    check("/health" in run.text("app.py"), "app.py has no /health endpoint")


async def subagent(run: Run) -> None:
    """Subagent."""
    await run.submit("Spawn a subagent to write tests for hello.py, wait for it, then review its output")
    check(run.ended("spawn_agent"), "spawn_agent was not called")
    check({event.session for event in run.events} - {run.session.id}, "there are no events of a subagent")


async def timeout(run: Run) -> None:
    """Timeout handling."""
    await run.submit("Run 'sleep 30' with the default timeout, once, and tell what happened")
    stopped = any(f"timed out after {run.wait_ms}ms" in call.output for call in run.ended("shell"))
    check(stopped, f"no command was stopped after {run.wait_ms} ms")


STEPS: tuple[Callable[[Run], Awaitable[None]], ...] = (
    create, edit, shell, truncation, steering, subagent, timeout,
)  # fmt: skip


async def smoke(profile: Profile, wait_ms: int) -> bool:
    """All steps in one session, in a new folder; whether all were good."""
    config = SessionConfig(max_command_timeout_ms=wait_ms, max_tool_rounds_per_input=30)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        session = Session(profile=profile, environment=LocalEnvironment(folder), config=config)
        run = Run(session, folder, wait_ms)
        try:
            for step in STEPS:
                good = await _one(run, step) and good
        finally:
            await session.close()
            await session.model.aclose()
    return good


async def _one(run: Run, step: Callable[[Run], Awaitable[None]]) -> bool:
    budget = run.session.budget
    tokens, usd = budget.usage.total_tokens, budget.usd
    why = ""
    try:
        await step(run)
    except (StepError, PullwrightError) as error:
        why = " ".join(str(error).split())
    except TimeoutError:
        why = f"it took more than {STEP_MINUTES:g} minutes"
    cost = "? USD" if budget.usd is None or usd is None else f"{budget.usd - usd:.4f} USD"
    outcome = f"failed: {why}" if why else "ok"
    say(f"  {step.__name__:<11} {budget.usage.total_tokens - tokens:>8} tokens  {cost}  {outcome}")
    return not why


def main(arguments: Sequence[str], *, wait_ms: int = WAIT_MS) -> int:
    """Run it with commands that may take so long; the exit code."""
    options = _parsed(arguments)
    good = True
    for name in [options.profile] if options.profile else options.vendors or list(PROFILES):
        make, model = PROFILES[name]
        key = f"{name.upper()}_API_KEY"
        if not options.api_url and not os.environ.get(key):
            say(f"{name}: skipped, because {key} is not set")
            continue
        try:
            profile = make(
                options.model or model, **({"api_url": options.api_url} if options.api_url else {})
            )
        except PullwrightError as error:
            say(f"{name}: failed: {error}")
            good = False
            continue
        say(f"{name}: {options.model or model}")
        good = asyncio.run(smoke(profile, wait_ms)) and good
    return 0 if good else 1


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.smoke", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "vendors", nargs="*", metavar="VENDOR", help=f"of {', '.join(PROFILES)}; all by default"
    )
    parser.add_argument(
        "--model", help="in place of the vendor's default; PROVIDER:NAME names a protocol too"
    )
    parser.add_argument("--profile", choices=list(PROFILES), help="the only profile to try")
    parser.add_argument("--api-url", help="a server of yours, for one profile")
    options = parser.parse_args(arguments)
    if unknown := set(options.vendors) - set(PROFILES):
        parser.error(f"there is no vendor {', '.join(sorted(unknown))}; there are: {', '.join(PROFILES)}")
    if options.profile and options.vendors:
        parser.error("name vendors, or a --profile, not both")
    chosen = 1 if options.profile else len(options.vendors)
    if (options.api_url or options.model) and chosen != 1:
        parser.error("--api-url and --model are for one profile: name it")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
