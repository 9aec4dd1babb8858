"""The onboarding pull request: a branch with the files of `init`, and a text about their meaning and cost."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import LOCAL_FILE, Settings, tightened
from orchestrator.app.wiring.cycle_parts import open_clone_of
from orchestrator.app.wiring.repository import Source, open_hidden_refs
from orchestrator.bot.cycle.claimer import RemoteNames, patterns
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, ONBOARDING
from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError, PullwrightError
from orchestrator.core.messages import Usage
from orchestrator.core.prompts import one_line, render
from orchestrator.engine.models.catalog import parse_model, price_usd
from orchestrator.plugins.onboarding.files import WORKFLOW_FILE, key_variable, write_action_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.clone import Clone
    from orchestrator.plugins.onboarding.files import ActionFile

TITLE = "Set up Pullwright"
MARKER = "<!-- pullwright:onboarding -->"
EXAMPLE = Usage(input_tokens=100_000, output_tokens=5_000)
"""Usage of the example task whose price the pull request states: some rounds in a small repository."""
_OF_ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, StopIteration, RecursionError)
"""The errors of reading a workflow that has another form than ours."""
_SHOWN_CHARS = 300
_MOST_BYTES = 1_000_000
_MOST_TIMES = 24 * 60
"""Upper limit for the runs per day of a crontab line."""


def propose(
    site: Site, context: BuildContext, files: Callable[[Clone], Sequence[ActionFile]]
) -> tuple[PullRequest, bool]:
    """Open the onboarding pull request, or update the text of the open one to match its files.

    Args:
        files: returns the files, given a clone of the base branch; called only if the branch does not exist
            yet.

    Returns:
        The pull request, and whether this call created it.

    Raises:
        ConfigurationError: a person closed it, or there is nothing to propose.
        ForgeError: the forge failed.
        WorkspaceError: git failed.
    """
    pulls = site.forge.our_pull_requests(BRANCH_FOLDERS)
    newest = next((pull for pull in pulls if pull.branch in ONBOARDING), None)
    if newest is not None and newest.state is PullRequestState.CLOSED:
        raise ConfigurationError(f"a person closed {newest.url}: reopen it to go on")
    branch = (
        newest.branch
        if newest is not None and newest.state is PullRequestState.OPEN
        else _branch(site, context)
    )
    base = site.source()
    with tempfile.TemporaryDirectory(prefix="pullwright-init-") as folder:
        with open_clone_of(site, context, "", Path(folder), with_git=False) as clone:
            if clone.remote_tip(branch) is None:
                _push(clone, branch, files(clone))
        at_branch = replace(site, source=lambda: Source(base.url, branch))
        with open_clone_of(at_branch, context, "", Path(folder), with_git=False) as clone:
            body = body_of(
                _text(clone.tree, LOCAL_FILE),
                _text(clone.tree, WORKFLOW_FILE),
                (site.label, branch),
                context.clock.now(),
                is_local=site.is_local,
            )
    return site.forge.ensure_pull_request(Proposal(branch, base.branch, TITLE, body, draft=False))


def _branch(site: Site, context: BuildContext) -> str:
    """Return the branch's name, in the first of our branch folders that the remote allows."""
    with open_hidden_refs(site, context.clock, context.stop) as records:
        names = RemoteNames(records.tips(patterns(context.settings.base)).keys(), records.remote.shown)
        folder = names.folder()
    return next(name for name in ONBOARDING if name.startswith(folder))


def _push(clone: Clone, branch: str, files: Sequence[ActionFile]) -> None:
    for file in files:
        write_action_file(clone.tree, file)
    staged = clone.stage({file.path for file in files}, include_commands=False)
    if staged.outcome.left_out:
        left = staged.outcome.left_out[0]
        raise ConfigurationError(f"{left.path} cannot be proposed: {left.reason}")
    if not staged.is_new:
        raise ConfigurationError("the default branch has these files already: there is nothing to propose")
    clone.commit_staged(staged, f"{TITLE}\n")
    clone.push(branch, expected=None)


def _text(tree: Path, path: str) -> str | None:
    """Return the beginning of a file of a clone; None if it is no regular file."""
    try:
        with ConfinedFolder(tree) as folder:
            return folder.beginning(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def body_of(
    rules: str | None, workflow: str | None, named: tuple[str, str], now: datetime, *, is_local: bool = False
) -> str:
    """Return the text of the pull request, which describes the files as they are.

    Args:
        rules: the repository's file; None if it does not exist.
        workflow: the workflow; None if there is none.
        named: the repository, and the branch with the files.
        is_local: whether a folder serves as the forge.
    """
    repository, branch = named
    settings, problem = Settings(), ""
    try:
        settings, notes = tightened(Settings(test_command="auto"), rules or "", LOCAL_FILE)
        problem = "; ".join(notes)
    except ConfigurationError as error:
        problem = str(error)
    job = _Job.of(workflow)
    model = job.model or _model(rules)
    return "\n\n".join(
        (
            render(
                "plugins/onboarding/pull_request",
                repository=_code(repository),
                problem=one_line(problem, limit=_SHOWN_CHARS),
                rules_file=LOCAL_FILE,
                workflow_file=WORKFLOW_FILE,
                rules=list(_rules(settings, model)) if rules is not None else [],
                workflow=list(job.lines()) if workflow is not None else [],
                costs=list(_costs(settings, job, model, now)),
                todos=list(_steps_left(job, model, settings, is_local=is_local)),
                branch=_code(branch),
                again=f"pullwright init --pull-request --repo {_code(repository)}",
            ),
            MARKER,
        )
    )


def _code(text: str) -> str:
    """Return text that can be put between backticks."""
    return one_line(text, limit=_SHOWN_CHARS)


def _model(rules: str | None) -> str | None:
    import tomllib

    try:
        found = tomllib.loads(rules or "").get("model")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class _Job:
    """The contents of a workflow that uses the action."""

    cron: str = ""
    model: str | None = None
    max_usd: float | None = None
    uses: str = ""

    @classmethod
    def of(cls, text: str | None) -> _Job:
        import yaml

        try:
            found = yaml.safe_load(text or "")
            triggers = found[True] if True in found else found["on"]  # YAML 1.1 reads `on` as a boolean
            (job,) = found["jobs"].values()
            step = next(one for one in job["steps"] if "pullwright" in str(one.get("uses")))
            given = step["with"]
            model, usd = str(given.get("model", "")), str(given.get("max-usd", ""))
            cron = str(triggers["schedule"][0]["cron"]) if triggers.get("schedule") else ""
            named = model if model and "${{" not in model else None
            return cls(
                cron, named, float(usd) if usd.replace(".", "", 1).isdigit() else None, str(step["uses"])
            )
        except (yaml.YAMLError, *_OF_ANOTHER_FORM):
            return cls()

    def lines(self) -> Iterator[str]:
        if not self.uses:
            yield "It cannot be read as the workflow that `pullwright init` writes."
            return
        yield (
            f"A task at each time of `{_code(self.cron)}` (UTC), by hand at any time."
            if self.cron
            else "By hand only."
        )
        yield f"Model: `{_code(self.model)}`." if self.model else "Model: the variable `PULLWRIGHT_MODEL`."
        yield (
            f"At most {self.max_usd:g} US dollars for the task of a run."
            if self.max_usd
            else "No limit in US dollars."
        )
        yield f"Program: `{_code(self.uses)}`."

    def times_a_day(self, now: datetime) -> int:
        """Return how often the job starts in a day."""
        try:
            schedule = make_schedule(None, self.cron or None, "UTC", now)
        except ConfigurationError:
            return 0
        count, at, end = 0, now, now + timedelta(days=1)
        while schedule is not None and count < _MOST_TIMES and (at := schedule.next_fire(at)) <= end:
            count += 1
        return count


def _rules(settings: Settings, model: str | None) -> Iterator[str]:
    if model:
        yield f"Model: `{_code(model)}`, unless whoever runs it names another one."
    if settings.test_command in {None, "auto"}:
        yield "Tests: none are named."
    else:
        setup = f", after `{_code(settings.setup_command)}`" if settings.setup_command else ""
        yield f"Tests: `{_code(settings.test_command or '')}`{setup}; in a sandbox, before a change is proposed."
    kind = "drafts" if settings.draft else "ready for review"
    yield (
        f"Pull requests: {kind}; at most {settings.max_open_prs} open, {settings.max_unreviewed} without a review, "
        f"{settings.max_prs_per_day} a day, {settings.max_files} files and {settings.max_lines:,} lines each."
    )
    limits = _limits(settings)
    yield f"Limits: {'; '.join(limits)}." if limits else "Limits: none are set here."


def _limits(settings: Settings) -> list[str]:
    units = {"usd": "US dollars", "tokens": "tokens", "minutes": "minutes", "rounds": "requests"}
    limits = []
    for over, words in (("", "a cycle"), ("_per_task", "a task"), ("_per_repo", "a day for the repository")):
        for unit, noun in units.items():
            value: Any = getattr(settings, f"max_{unit}{over}")
            if value is not None:
                limits.append(f"{value:,g} {noun} {words}")
    return limits


def _costs(settings: Settings, job: _Job, model: str | None, now: datetime) -> Iterator[str]:
    usd = min((one for one in (settings.max_usd, job.max_usd) if one is not None), default=None)
    times = job.times_a_day(now)
    if times and usd is not None:
        most = min(times * usd, settings.max_usd_per_repo or times * usd)
        yield f"At most {most:,.2f} US dollars a day: {times} times a day, at most {usd:g} each time."
    elif usd is not None:
        yield f"At most {usd:g} US dollars each time that it starts."
    else:
        yield "There is no limit in US dollars."
    found = _estimate(model, now)
    tokens = f"{EXAMPLE.input_tokens:,} tokens read and {EXAMPLE.output_tokens:,} written"
    if found is None:
        yield "The cost of a task is not known, because the price of the model is not."
    else:
        yield f"An estimate: a small task ({tokens}) costs about {found:.2f} US dollars by the model's list price."
    yield "A backlog without a task costs nothing. Where pull requests wait for a review, no new task is begun."


def _estimate(model: str | None, now: datetime) -> float | None:
    if not model:
        return None
    try:
        ref = parse_model(model)
        return price_usd(ref.provider, ref.name, EXAMPLE, now=now)
    except (PullwrightError, ValueError):
        return None


def _steps_left(job: _Job, model: str | None, settings: Settings, *, is_local: bool) -> Iterator[str]:
    if job.uses:
        if job.model is None:
            yield "Set the variable `PULLWRIGHT_MODEL` (Settings, Secrets and variables, Actions), as `PROVIDER:NAME`."
        yield f"Set the model's key as a secret for Actions: {key_variable(model)}."
        yield "Allow GitHub Actions to create pull requests (Settings, Actions, General)."
    yield "Merge this pull request."
    if is_local:
        yield "Write a task as `- [ ]` item into `BACKLOG.md`."
    else:
        yield f"Put the label `{_code(settings.label)}` on an issue."
