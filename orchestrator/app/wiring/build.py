"""From the command line's choices to a program that can run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.app.config import ApiKeys, load, secret_values
from orchestrator.app.wiring.around import Around
from orchestrator.app.wiring.demo import as_demo, make_demo
from orchestrator.app.wiring.forge import choose_site, commands_for
from orchestrator.app.wiring.guards import (
    NAME_COMMANDS,
    GuardMaker,
    choose_sandbox,
    open_rules,
    refuse_tracing,
)
from orchestrator.app.wiring.model import choose_model
from orchestrator.app.wiring.program import Program
from orchestrator.app.wiring.relay import Relay
from orchestrator.app.wiring.web import choose_web
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import find_run, read_run
from orchestrator.bot.journal.tasks import tasks_taken
from orchestrator.bot.worker.backlog import Wanted
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import CycleStarted, TaskTaken
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import Warned
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.app.config import Loaded
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.core.events import Emit

_REPLAY = "replay:"
_KEY = re.compile(r"issue-[1-9][0-9]{0,9}|(?:item|text)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Errand:
    """What a person asks of `run`, beside the settings."""

    repository: str | None = None
    issue: int | None = None
    text: str | None = None
    answer: str | None = None
    demo: bool = False
    dry_run: bool = False


def build_program(  # noqa: PLR0913  what a person gave, where, and who looks on
    errand: Errand,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    view: Emit,
    *,
    stop: Stop | None = None,
) -> Program:
    """Read the configuration and build everything that a run needs.

    Args:
        errand: what a person asks for.
        flags: the settings that were given on the command line.
        environ: the variables of the environment.
        cwd: the folder with the configuration file.
        view: is told of everything that happens.
        stop: how a person asks for the end, and how long is waited for others; None is a new one that waits.

    Raises:
        ConfigurationError: something that the person asked for cannot be done as asked.
        JournalError: the run to be replayed is missing or damaged.
        WorkspaceError: the folder named is no git repository.
    """
    home, clock, relay, stop = Home.of(environ), SystemClock(), Relay(view), stop or Stop()
    loaded = load(flags, environ, cwd)
    in_workflow = environ.get("GITHUB_ACTIONS") == "true"
    around = Around(loaded, ApiKeys.of(environ), home, clock, relay, stop, in_workflow)
    chosen: ChosenModel
    if errand.demo:
        repository, chosen = make_demo(home, clock)
        errand = Errand(repository, dry_run=errand.dry_run, demo=True)
    else:
        errand = _as_recorded(errand, loaded, home)
        chosen = choose_model(around)
    if not errand.repository:
        raise ConfigurationError(
            "no repository is named: pass --repo owner/name or --repo PATH, or try --demo"
        )
    settings = as_demo(loaded.settings) if errand.demo else loaded.settings
    redactor = Redactor(secret_values(environ))
    guards = GuardMaker(redactor)
    guards(settings)  # a rule that makes no sense is said now
    for notice in loaded.notices:
        relay(Warned(notice))
    if found := open_rules(settings):
        relay(Warned(f"{found}: {NAME_COMMANDS}"))
    refuse_tracing(settings)
    site = choose_site(errand.repository, around, writes=not errand.dry_run)
    return Program(
        repository=site.label,
        settings=settings,
        dry_run=errand.dry_run,
        site=site,
        chosen=chosen,
        web=None if errand.demo else choose_web(around),
        wanted=_wanted(errand, home, site.label),
        home=home,
        redactor=redactor,
        guards=guards,
        sandbox=choose_sandbox(settings),
        clock=clock,
        relay=relay,
        stop=stop,
        environ=environ,
        answer=errand.answer,
        commands=commands_for(site, loaded),
    )


def _wanted(errand: Errand, home: Home, label: str) -> Wanted:
    """The task that the person named; `--task` takes its key as well, as messages name it.

    Raises:
        ConfigurationError: this machine does not know the text with that key.
    """
    key = (errand.text or "").strip()
    kind, _, rest = key.partition("-") if _KEY.fullmatch(key) else ("", "", "")
    match kind:
        case "issue":
            return Wanted(issue=int(rest))
        case "item":
            return Wanted(item=key)
        case "text":
            known = tasks_taken(home, label).get(key)
            if known is None:
                raise ConfigurationError(
                    f"no run on this machine worked on {key}: give its words with --task"
                )
            return Wanted(text=known.body or known.title)
        case _:
            return Wanted(errand.issue, errand.text)


def _as_recorded(errand: Errand, loaded: Loaded, home: Home) -> Errand:
    """For `replay:RUN`, take from the run what the person did not name: repository and task."""
    model = loaded.settings.model or ""
    if not model.startswith(_REPLAY) or (errand.repository and (errand.issue or errand.text)):
        return errand
    events = read_run(find_run(home, model.removeprefix(_REPLAY))).events
    started = next((event for event in events if isinstance(event, CycleStarted)), None)
    task = next((event for event in events if isinstance(event, TaskTaken)), None)
    repository = errand.repository or (_as_typed(started.repository) if started else None)
    issue, text = errand.issue, errand.text
    if task and not issue and not text:
        issue, text = task.number, task.body or task.title if task.source == "text" else None
    return replace(errand, repository=repository, issue=issue, text=text)


def _as_typed(label: str) -> str:
    """A repository's name in a journal as a `--repo` that means it everywhere, also beside a folder of that name."""
    return f"https://{GITHUB}/{label}" if OWNER_AND_NAME.fullmatch(label) else label
