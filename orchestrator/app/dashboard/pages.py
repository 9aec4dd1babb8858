"""The dashboard's pages as HTML, from values that others collected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.dashboard.story import RunStory, outcome_badge, page_of, tone_of
from orchestrator.app.html.page import Badge, Link, html_from_template
from orchestrator.app.words import duration, money, short_line
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from orchestrator.app.dashboard.desk import Look
    from orchestrator.app.dashboard.overview import Overview
    from orchestrator.app.dashboard.runs import LiveRun
    from orchestrator.app.html.page import Step, Tone
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.journal.index import RunSummary

TEMPLATES = Path(__file__).parent / "templates"
PARTS = ("needs", "now", "numbers", "pulls", "queue", "failures", "repositories", "runs")
"""Of the overview, from above: what needs a person, what runs, what came of it."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Writes the pages.

    Attributes:
        form: what each form sends along.
        home: where the runs are, as people are told it.
    """

    form: str
    home: str
    redact: Callable[[str], str] = str
    zone: tzinfo | None = None

    def _html(self, template: str, **values: Any) -> str:
        from markupsafe import Markup

        shared: dict[str, Any] = {
            "form_token": self.form,
            "link": Link,
            "cost": _cost,
            "took": _took,
            "tone": tone_of,
            "own_badge": outcome_badge,
            "pull_badge": _pull_badge,
            "money": money,
            "short": lambda text: short_line(text, 120),
            "statuses": _statuses,
            "costs_of": _costs_of,
        }
        made = html_from_template(template, {**shared, **values}, self.zone, self.redact, TEMPLATES)
        return Markup(made)  # noqa: S704  it was escaped when it was made

    def parts(self, view: Overview) -> dict[str, str]:
        """The parts of the overview, by name."""
        return {name: self._html("parts.html", part=name, view=view, home=self.home) for name in PARTS}

    def overview(self, view: Overview) -> str:
        """The first page."""
        waiting = f"({len(view.needs)}) " if view.needs else ""
        title = f"{waiting}Pullwright"
        return self._html("overview.html", title=title, here="overview", parts=self.parts(view))

    def runs(self, runs: Sequence[RunSummary], total: int, unread: int, older: str) -> str:
        """A part of the list of all runs."""
        values = {"runs": runs, "total": total, "unread": unread, "older": older}
        return self._html("runs.html", title="Runs · Pullwright", here="runs", **values)

    def run(self, story: RunStory, run: RunSummary, live: LiveRun | None, after: int) -> str:
        """A run's page. While the run goes on, its story comes as it happens."""
        page = page_of(story, run, self.redact)
        progress = self.progress(run, live) if live else ""
        values = {"page": page, "run": run, "live": live is not None, "progress": progress, "after": after}
        return self._html("run.html", title=f"{page.title} · Pullwright", here="run", **values)

    def progress(self, run: RunSummary, live: LiveRun) -> str:
        """What a run does now."""
        return self._html("progress.html", run=run, progress=live.progress)

    def steps(self, steps: Sequence[Step]) -> str:
        """What is added to the story of a run."""
        return self._html("steps.html", steps=steps)

    def repository(self, name: str, look: Look | None, runs: Sequence[RunSummary], *, is_local: bool) -> str:
        """A repository's tasks and runs."""
        values = {"name": name, "look": look, "runs": runs, "is_local": is_local}
        return self._html("repository.html", title=f"{name} · Pullwright", here="repository", **values)

    def confirm(self, heading: str, **values: Any) -> str:
        """What a verb would do, what it did, or why it did not."""
        defaults: dict[str, Any] = {"error": "", "done": "", "fields": {}, "what": "", "command": ""}
        defaults |= {"verb": "", "button": ""}
        return self._html(
            "confirm.html",
            title=f"{heading} · Pullwright",
            here="confirm",
            heading=heading,
            **{**defaults, **values},
        )


def _cost(run: RunSummary) -> str:
    return money(run.spent.usd) if run.costs else "-"


def _took(run: RunSummary) -> str:
    return duration(run.minutes * 60)


_OF_PULL: dict[str, Tone] = {"open": "active", "merged": "ok", "closed": "quiet"}


def _pull_badge(pull: PullRequest) -> Badge:
    return Badge(f"{pull.state}{', draft' if pull.draft else ''}", _OF_PULL.get(pull.state, "quiet"))


def _statuses(look: Look) -> str:
    counts = Counter(str(state.status) for state in look.states)
    return ", ".join(f"{number} {name}" for name, number in counts.most_common()) or "no tasks"


def _costs_of(view: Overview, name: str) -> tuple[Spent, int]:
    return next(((spent, pulls) for known, spent, pulls in view.costs if known == name), (Spent(), 0))
