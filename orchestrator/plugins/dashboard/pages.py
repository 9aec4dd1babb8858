"""Renders the dashboard's pages as HTML."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.html.page import Badge, Link, html_from_template
from orchestrator.app.html.story import PROOF_TONES, RunStory, outcome_badge, page_of, tone_of
from orchestrator.app.words import counted, duration, money, short_line
from orchestrator.core.messages import Spent
from orchestrator.plugins.dashboard.overview import titles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from orchestrator.app.html.page import Step, Tone
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.journal.run_facts import RunSummary
    from orchestrator.plugins.dashboard.actions import FleetView
    from orchestrator.plugins.dashboard.overview import LiveRun, Look, Overview, RunFilter
    from orchestrator.plugins.fleet.control import FleetSnapshot
    from orchestrator.plugins.fleet.store import FleetWorkerState
    from orchestrator.plugins.fleet.turns import QueuedTurn

TEMPLATES = Path(__file__).parent / "templates"
PARTS = ("needs", "pulls", "now", "numbers", "queue", "failures", "repositories", "runs")
"""The parts of the overview, from top to bottom."""
FLEET_PARTS = ("state", "workers", "queue", "members", "requests", "costs")
_MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class RunsPage:
    """One page of the list of runs.

    Attributes:
        matching: number of the runs that are wanted, of `total` known ones.
        unread: number of journals that are not read yet.
        older: the last run of the page if there are more; else empty.
        repositories, outcomes: what a person can choose from.
    """

    wanted: RunFilter
    runs: Sequence[RunSummary]
    matching: int
    total: int
    unread: int
    older: str
    repositories: Sequence[str]
    outcomes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Pages:
    """Renders the pages.

    Attributes:
        form: the token of each form.
        home: the folder of the runs, as shown to people.
        zone: time zone of the shown times; None for this machine's.
    """

    form: str
    home: str
    redact: Callable[[str], str]
    zone: tzinfo | None = None

    def _html(self, template: str, **values: Any) -> str:
        from markupsafe import Markup

        shared: dict[str, Any] = {
            "form_token": self.form,
            "link": Link,
            "cost": lambda run: money(run.spent.usd, "unknown") if run.costs else "-",
            "took": lambda run: duration(run.minutes * 60),
            "tone": tone_of,
            "own_badge": outcome_badge,
            "pull_badge": _pull_badge,
            "proof_tones": PROOF_TONES,
            "money": money,
            "counted": counted,
            "short": lambda text, most=120: short_line(text, most),
            "statuses": _statuses,
            "costs_of": _costs_of,
            "worker_badge": _worker_badge,
            "turn_badge": _turn_badge,
            "priority": lambda turn: _PRIORITIES[turn.priority.name],
        }
        html = html_from_template(template, {**shared, **values}, self.redact, self.zone, TEMPLATES)
        return Markup(html)  # noqa: S704  the template has escaped it

    def parts(self, view: Overview) -> dict[str, str]:
        """Return the parts of the overview, by name."""
        return {name: self._html("parts.html", part=name, view=view, home=self.home) for name in PARTS}

    def overview(self, view: Overview) -> str:
        """Return the overview page."""
        title = f"({len(view.needs)}) Pullwright" if view.needs else "Pullwright"
        return self._html("overview.html", title=title, here="overview", parts=self.parts(view))

    def runs(self, page: RunsPage) -> str:
        """Return one page of the list of runs."""
        values = {field.name: getattr(page, field.name) for field in fields(page)}
        return self._html("runs.html", title="Runs · Pullwright", here="runs", **values)

    def run(self, story: RunStory, run: RunSummary, live: LiveRun | None, after: int) -> str:
        """Return a run's page.

        Args:
            live: the state of a run in progress, whose further steps are streamed; None for a run that ended.
            after: number of the last record on the page.
        """
        page = page_of(story, run)
        progress = self.progress(run, live) if live else ""
        values = {"page": page, "run": run, "live": live is not None, "progress": progress, "after": after}
        return self._html("run.html", title=f"{page.title} · Pullwright", here="run", **values)

    def progress(self, run: RunSummary, live: LiveRun) -> str:
        """Return the current activity of a run."""
        return self._html("progress.html", run=run, progress=live.progress)

    def steps(self, steps: Sequence[Step]) -> str:
        """Return further steps of a run."""
        return self._html("steps.html", steps=steps)

    def repository(self, name: str, look: Look | None, runs: Sequence[RunSummary], *, is_local: bool) -> str:
        """Return the page of a repository, with its tasks and runs."""
        titles = {key: title for (_, key), title in titles_of(runs).items()}
        values = {"name": name, "look": look, "runs": runs, "is_local": is_local, "titles": titles}
        return self._html("repository.html", title=f"{name} · Pullwright", here="repository", **values)

    def fleet_parts(self, view: FleetView) -> dict[str, str]:
        """Return the parts of the fleet's page, by name."""
        return {
            name: self._html("fleet_parts.html", part=name, view=view, most=_MOST_ROWS)
            for name in FLEET_PARTS
        }

    def fleet(self, view: FleetView) -> str:
        """Return the page of the fleet."""
        parts = self.fleet_parts(view)
        return self._html("fleet.html", title="Fleet · Pullwright", here="fleet", view=view, parts=parts)

    def confirm(self, heading: str, **values: Any) -> str:
        """Return the page that asks to confirm an action, or shows its result."""
        defaults = {
            "error": "",
            "done": "",
            "fields": {},
            "what": "",
            "command": "",
            "verb": "",
            "button": "",
        }
        title = f"{heading} · Pullwright"
        filled = {**defaults, "back": "/", **values}
        return self._html("confirm.html", title=title, here="confirm", heading=heading, **filled)


_OF_PULL: dict[str, Tone] = {"open": "active", "merged": "ok", "closed": "quiet"}


def _pull_badge(pull: PullRequest) -> Badge:
    return Badge(f"{pull.state}{', draft' if pull.draft else ''}", _OF_PULL.get(pull.state, "quiet"))


def _statuses(look: Look) -> str:
    counts = Counter(str(state.status) for state in look.states)
    return ", ".join(f"{number} {name}" for name, number in counts.most_common()) or "no tasks"


def _costs_of(view: Overview, name: str) -> tuple[Spent, int]:
    return next(((spent, pulls) for known, spent, pulls in view.costs if known == name), (Spent(), 0))


def _worker_badge(fleet: FleetSnapshot, one: FleetWorkerState) -> Badge:
    if fleet.is_silent(one):
        return Badge("not heard of", "failed")
    if one.draining:
        return Badge("draining", "warning")
    return (
        Badge("works", "ok") if one.version == fleet.version else Badge("ends: a newer one works", "warning")
    )


_OF_TURN: dict[str, Tone] = {"running": "active", "queued": "ok", "delayed": "quiet"}


def _turn_badge(one: QueuedTurn) -> Badge:
    return Badge({"queued": "waits", "delayed": "later"}.get(one.state, one.state), _OF_TURN[one.state])


_PRIORITIES = {
    "LOOK": "look",
    "ASKED": "asked for by a person",
    "FEEDBACK": "review or failed check",
    "UPKEEP": "work that was begun",
    "NEW": "new task",
}
