"""`pullwright init`: sets a repository up by files, a workflow, a label, or one pull request with all of it."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, USAGE, given_settings
from orchestrator.app.cli.config import OwnChange, own_change
from orchestrator.app.cli.output import print_lines, print_problem
from orchestrator.app.config import user_file
from orchestrator.app.config.settings import (
    LOCAL_FILE,
    REPOSITORIES,
    Origin,
    Settings,
    SourceKind,
    check_value,
    read_local_text,
    read_local_toml,
    read_toml,
    tightened,
)
from orchestrator.app.options import AUTO, TEST_KEYS
from orchestrator.app.plugins import absence_words, own_names
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.cycle_parts import open_clone_of
from orchestrator.app.wiring.guards import (
    missing_hosts,
    not_installed,
    proposals,
    run_in_words,
    try_tests,
)
from orchestrator.app.wiring.repository import (
    OnDisk,
    OnServer,
    Source,
    choose_site,
    open_hidden_refs,
    parse_place,
    place_of,
)
from orchestrator.app.words import YES, clean, counted, short_line
from orchestrator.bot.cycle.claimer import RemoteNames, patterns
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, ONBOARDING
from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.bot.verification.base import hosts_of
from orchestrator.bot.verification.suggest import Confidence, SuggestedCommand
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError, PullwrightError, SandboxMissingError, ToolError
from orchestrator.core.messages import Usage
from orchestrator.core.prompts import one_line, render
from orchestrator.engine.models.catalog import OFFICIAL_URLS, parse_model, price_usd
from orchestrator.engine.models.connect import KEY_OF
from orchestrator.engine.models.keys import VARIABLES, key_for_server
from orchestrator.engine.models.listing import local_servers
from orchestrator.plugins.onboarding.files import (
    WORKFLOW_FILE,
    ActionFile,
    ActionPlace,
    WorkflowPlan,
    action_copy,
    action_place,
    key_variable,
    present_content,
    rules_text,
    workflow_template,
    workflow_text,
    write_action_file,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.clone import Clone
    from orchestrator.engine.models.listing import LocalServer


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
            steps = (one for job in found["jobs"].values() for one in job["steps"])
            step = next(one for one in steps if "pullwright" in str(one.get("uses")))
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


_USUAL_USD = 5.0
_USUAL_MINUTES = 60
_VENDORS = (
    ("anthropic", "anthropic:claude-sonnet-4-5"),
    ("openai", "openai:gpt-5.2"),
    ("gemini", "gemini:gemini-3-pro"),
)
"""The model of each vendor that is offered if its key is set."""
_NO = frozenset({"n", "no", "none", "0"})
_LABEL_WORDS = "Pullwright may work on this issue"
_MOST_SHOWN_LINES = 400
_ONLY_HERE = "r"
_DO_THIS = f"Do this? y, n, or {_ONLY_HERE} to save your own options for this repository only"


@dataclass(frozen=True, slots=True)
class _Model:
    """A model to choose from. `api_url` is empty for a vendor's own server."""

    name: str
    api_url: str = ""


@dataclass(frozen=True, slots=True)
class _Decided:
    """The decisions of a person, or their defaults.

    Attributes:
        values: options to add to the repository's file.
        has_tests: whether the file sets the test command.
        hosts: hosts that the tests' set-up needs.
        is_priced: whether `max_usd` can be kept.
    """

    model: _Model | None
    values: dict[str, Any]
    has_tests: bool
    hosts: tuple[str, ...]
    max_usd: float
    is_priced: bool
    actions: bool


def init(options: argparse.Namespace) -> int:
    """Examine the repository, ask the person, show the changes, and write them."""
    context = BuildContext.of(given_settings(options), os.environ, Path.cwd())
    setup = _Setup(options, context)
    return setup.propose() if setup.folder is None or options.pull_request else setup.write(setup.folder)


def _actions_host(context: BuildContext) -> str:
    """Return the host of the server on which workflows run."""
    if "github" not in own_names():
        raise ConfigurationError(absence_words("--actions", "github"))
    from orchestrator.plugins.github.address import api_url_for, git_host_of
    from orchestrator.plugins.github.options import github_options

    return git_host_of(api_url_for(github_options(context.settings).github_url))


class _Setup:
    """One call of `init`: examines the repository, decides, and changes it.

    Attributes:
        folder: top of the working tree; None for a repository that is not on this disk.
    """

    def __init__(self, options: argparse.Namespace, context: BuildContext) -> None:
        self._options, self._context = options, context
        self._typed = given_settings(options)
        self._local = False
        self._asks = sys.stdin.isatty() and sys.stderr.isatty() and not options.yes
        named = options.repo or "."
        place = parse_place(named, context.settings)
        self.folder = place.path if isinstance(place, OnDisk) else None
        self._github = self._origin(place) if isinstance(place, OnDisk) else place
        if self.folder is None and not options.pull_request:
            raise ConfigurationError(
                f"{named} is not on this disk: pass --pull-request, or --repo PATH of a clone"
            )
        on_github = self._github_address if options.pull_request and self._github else ""
        self._site = choose_site(on_github or named, context, writes=options.pull_request)

    @property
    def _github_address(self) -> str:
        return f"{self._github.server.rstrip('/')}/{self._github.name}" if self._github else ""

    def _origin(self, place: OnDisk) -> OnServer | None:
        """Return the repository that a folder was cloned from, if it is on the configured server."""
        try:
            found = parse_place(place.origin, self._context.settings) if place.origin else None
        except PullwrightError:
            return None
        if not isinstance(found, OnServer):
            return None
        configured = found.servers.find(found.name, self._context.settings)
        return configured if configured is not None and configured.label == found.label else None

    def _say(self, text: str) -> None:
        print_lines([text])

    def _ask(self, question: str, usual: str, missing: str) -> str:
        """Ask the person, and return the answer or `usual`.

        Without a terminal, return `usual` and print `missing`, which names the flag for another answer.
        """
        if not self._asks:
            self._say(f"  {question}{'' if question.endswith('?') else ':'} {usual or 'none'} ({missing})")
            return usual
        shown = f" [{usual}]" if usual else ""
        sys.stderr.write(clean(f"? {question}{shown}: "))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise ConfigurationError("no answer: nothing was written")
        return line.strip() or usual

    # The decisions.

    def _decide(self, clone: Clone, present: dict[str, Any]) -> _Decided:
        """Examine the repository and the machine, and ask for what they do not show."""
        model = self._model(present)
        test = self._tests(clone, proposals(clone), present)
        self._local = self._is_local()
        actions = self._actions()
        usd = self._cap(model, present, actions=actions)
        values = self._caps(model, usd)
        if test is not None:
            named = zip(TEST_KEYS, (test.command, test.setup, test.report), strict=True)
            values |= {key: value for key, value in named if value}
        values = {key: value for key, value in values.items() if key in self._typed or key not in present}
        for key, value in values.items():
            check_value(key, value, Origin(SourceKind.LOCAL_FILE, LOCAL_FILE))
        setup = str(values.get("setup_command", present.get("setup_command", "")))
        hosts = tuple(missing_hosts(self._context.settings, hosts_of(setup)))
        has_tests = "test_command" in {**present, **values}
        return _Decided(model, values, has_tests, hosts, usd, _is_capped(model), actions)

    def _caps(self, model: _Model | None, usd: float) -> dict[str, Any]:
        """Return the options for the model and the limit. A file cannot name a model of a server of one's own."""
        if model is not None and not model.api_url:
            cap = {"max_usd": usd} if _is_capped(model) else {"max_minutes": _USUAL_MINUTES}
            return {"model": model.name, **cap}
        return {"max_usd": usd} if "max_usd" in self._typed else {"max_minutes": _USUAL_MINUTES}

    def _model(self, present: dict[str, Any]) -> _Model | None:
        settings = self._context.settings
        if "model" in self._typed or "api_url" in self._typed:
            return self._typed_model()
        if isinstance(present.get("model"), str):
            return _Model(present["model"])
        choices = list(dict.fromkeys(self._models()))
        if not choices:
            self._say("  no model server answers on this machine, and the key of no vendor is set")
        for number, choice in enumerate(choices, 1):
            self._say(f"  {number}  {choice.name}{f' at {choice.api_url}' if choice.api_url else ''}")
        number = next((number for number, one in enumerate(choices, 1) if one.api_url), 0)
        if choices and self._asks and (settings.model is not None or not number):
            number = 1
        usual = str(number or "none")
        question = "Which model? A number, PROVIDER:NAME, or none"
        answer = self._ask(question, usual, "--model names one")
        if answer.lower() in _NO:
            return None
        if answer.isdigit() and 1 <= int(answer) <= len(choices):
            return choices[int(answer) - 1]
        return _Model(f"{parse_model(answer)}")

    def _typed_model(self) -> _Model | None:
        from orchestrator.app.wiring.model import first_named

        settings = self._context.settings
        if settings.api_url:
            return _Model(settings.model or first_named(self._context).ref.name, settings.api_url)
        return _Model(f"{parse_model(settings.model)}") if settings.model else None

    def _models(self) -> Iterator[_Model]:
        """Yield the models to choose from: that of the person's own options, those of servers here, and vendors'."""
        self._say("Looking for models ...")
        settings = self._context.settings
        if settings.model is not None:
            yield _Model(settings.model, settings.api_url or "")
        servers: tuple[LocalServer, ...] = local_servers(os.environ)
        for server in servers:
            yield from (_Model(name, server.api_url) for name in server.models[:3])
        for key, name in _VENDORS:
            if getattr(self._context.keys, key):
                yield _Model(name)

    def _tests(
        self, clone: Clone, found: Sequence[SuggestedCommand], present: dict[str, Any]
    ) -> SuggestedCommand | None:
        if "test_command" in self._typed:
            if str(self._typed["test_command"]).lower() in _NO:
                return None
            return _as_typed(*(str(self._typed.get(key, "")) for key in TEST_KEYS))
        if "test_command" in present:
            return None
        best = found[0] if found else None
        if best is not None:
            copied = "; the repository's own text: read it first" if best.copied else ""
            self._say(f"  tests: {best.command} (from {best.evidence}{copied})")
            if best.setup:
                self._say(f"  set-up: {best.setup}")
        usual = best.command if best is not None and (self._asks or not best.copied) else "none"
        answer = self._ask("How are the tests run? A command, or none", usual, "--test-command names one")
        return self._chosen(clone, found, answer)

    def _chosen(
        self, clone: Clone, found: Sequence[SuggestedCommand], answer: str, *, is_again: bool = False
    ) -> SuggestedCommand | None:
        """Return the command that the person named. If it does not run, the person is asked once more."""
        if answer.lower() in _NO:
            return None
        chosen = next((one for one in found if one.command == answer), None)
        others = () if chosen is None else [one for one in found if one is not chosen and not one.copied]
        tried, runs = self._tried(clone, [chosen or _as_typed(answer), *others])
        if runs or is_again or not self._asks:
            return tried
        answer = self._ask(
            "Another command, none, or the same one", tried.command, "--test-command names one"
        )
        return tried if answer == tried.command else self._chosen(clone, found, answer, is_again=True)

    def _tried(self, clone: Clone, found: Sequence[SuggestedCommand]) -> tuple[SuggestedCommand, bool]:
        """Try the first command in the sandbox, and others if it runs no test.

        Return the one to write, and whether it ran or was not tried.

        Without a person who agreed to the set-up, it is tried only if it reaches no host.
        """
        chosen, settings = found[0], self._context.settings
        hosts = missing_hosts(settings, hosts_of(chosen.setup))
        if lacking := not_installed(chosen.setup, chosen.command):
            self._say(f"  not tried: {lacking}")
            return chosen, True
        if not self._asks and (hosts or settings.sandbox == "off"):
            why = "its set-up needs the network" if hosts else "there is no sandbox"
            self._say(f"  not tried, as {why}: {PROGRAM} doctor --run-tests tries it")
            return chosen, True
        reached = f", which may reach {', '.join(hosts)}" if hosts else ""
        self._say(f"Trying it in the sandbox{reached} ...")
        allowed = settings.model_copy(update={"allow_host": (*settings.allow_host, *hosts)})
        try:
            one, run = try_tests(self._site, self._context, allowed, clone, found)
        except (ToolError, SandboxMissingError) as error:
            self._say(f"  it does not run here: {error}")
            return chosen, False
        self._say(f"  {one.command}: {run.problem or run_in_words(run)}")
        return one, not run.problem and bool(run.exit == 0 or run.cases or run.counted)

    def _is_local(self) -> bool:
        """Return whether pull requests stay in the folder. For a clone of a repository on GitHub, the person decides."""
        if self._github is None or self.folder is None or self._options.pull_request:
            return self._github is None
        if self._options.local is not None:
            return bool(self._options.local)
        has_token = self._github.servers.has_credential(self._github, self._context)
        question = f"Pull requests on {self._github.name}, or in this folder? github or folder"
        answer = self._ask(question, "github" if has_token else "folder", "--local or --no-local")
        return not answer.lower().startswith("g")

    def _actions(self) -> bool:
        if self._options.actions is not None:
            return bool(self._options.actions)
        if self._github is None or self._local:
            return False
        answer = self._ask("Work on GitHub Actions too, a task an hour? y or n", "n", "--actions")
        return answer.lower() in YES

    def _cap(self, model: _Model | None, present: dict[str, Any], *, actions: bool) -> float:
        typed = self._typed.get("max_usd", present.get("max_usd"))
        if typed is not None:
            return float(typed)
        if not actions and (model is None or model.api_url):
            return _USUAL_USD
        answer = self._ask("At most how many US dollars a cycle?", f"{_USUAL_USD:g}", "--max-usd")
        check_value("max_usd", usd := _number(answer), Origin(SourceKind.FLAG, "--max-usd"))
        return usd

    # The changes.

    def _files(self, decided: _Decided, old_rules: str | None) -> list[ActionFile]:
        files = [ActionFile(LOCAL_FILE, rules_text(old_rules, decided.values).encode())]
        if not decided.actions:
            return files
        place, server = action_place(), _actions_host(self._context)
        if isinstance(place, ActionPlace) and place.server != server:
            place = f"{PROGRAM} comes from {place.server}, and {server} cannot use actions from there"
        if isinstance(place, str):
            self._say(f"  {place}: the workflow uses a copy of the program, in the repository")
        vendor = decided.model.name if decided.model and not decided.model.api_url else None
        plan = WorkflowPlan(
            place if isinstance(place, ActionPlace) else None,
            self._github.name if self._github else None,
            vendor,
            decided.max_usd,
            decided.has_tests,
            decided.hosts,
        )
        workflow = workflow_text(workflow_template(), plan)
        files.append(ActionFile(WORKFLOW_FILE, workflow.encode()))
        return files if plan.place is not None else [*files, *action_copy()]

    def _changes(self, clone: Clone, top: Path) -> tuple[_Decided, list[ActionFile]]:
        """Decide, and show the files of the folder that differ from what was decided."""
        decided = self._decide(clone, read_local_toml(top) or {})
        files = self._files(decided, read_local_text(top))
        changes = [file for file in files if present_content(top, file.path) != file.content]
        for file in changes:
            self._show(top, file)
        return decided, changes

    def write(self, top: Path) -> int:
        self._say(f"Looking at {self._site.label} ...")
        with (
            tempfile.TemporaryDirectory(prefix="pullwright-init-") as folder,
            open_clone_of(self._site, self._context, "", Path(folder), with_git=False) as clone,
        ):
            decided, changes = self._changes(clone, top)
        changed = [file for file in changes if present_content(top, file.path) is not None]
        label = self._show_label()
        own = self._own(decided, only_here=False)
        self._show_own(own)
        if not changes and not label and (own is None or own.new == own.old):
            self._say("Everything exists already.")
        elif self._asks:
            answer = self._ask(_DO_THIS, "y", "--yes").lower()
            if answer not in {*YES, _ONLY_HERE}:
                self._say("Nothing was written.")
                return DONE
            own = self._own(decided, only_here=answer == _ONLY_HERE)
        elif changed and not self._options.yes:
            print_problem(f"{changed[0].path} would change as shown: pass --yes to let it")
            return USAGE
        for file in changes:
            write_action_file(top, file)
        if changes:
            self._say(f"Wrote {counted(len(changes), 'file')}.")
        is_saved = self._save(own)
        if label:
            self._make_label(choose_site(self._github_address, self._context, writes=True))
        self._say_next(decided, is_saved=is_saved)
        return DONE

    # The person's own options.

    def _name(self) -> str:
        """Return the name by which the person's own file knows the repository."""
        if self._local or self._github is None:
            return self._site.label
        return self._github.label

    def _own(self, decided: _Decided, *, only_here: bool) -> OwnChange | None:
        """Return the change that saves what was decided, so that later commands in this folder need no flag.

        Return None if nothing can be saved, because `PULLWRIGHT_CONFIG` names no regular file.

        What the file says already for all repositories stays: what differs is saved for this repository alone.
        """
        everywhere: dict[str, Any] = {}
        if decided.model is not None:
            everywhere = {"model": decided.model.name}
            if decided.model.api_url:
                everywhere["api_url"] = decided.model.api_url
            if variable := self._key_variable(decided.model):
                everywhere["api_key_variable"] = variable
            everywhere |= (
                {"max_usd": decided.max_usd} if decided.is_priced else {"max_minutes": _USUAL_MINUTES}
            )
        here: dict[str, Any] = {"test_command": AUTO} if decided.has_tests else {}
        if here and decided.hosts:
            here["allow_host"] = [*self._context.settings.allow_host, *decided.hosts]
        path = user_file(os.environ)
        if path.exists() and not path.is_file():
            return None
        present = read_toml(path) or {}
        if only_here or any(present.get(key, value) != value for key, value in everywhere.items()):
            here, everywhere = everywhere | here, {}
        tables: dict[str, dict[str, Any] | None] = {self._name(): here}
        if not self._local and self._site.label in present.get(REPOSITORIES, {}):
            tables[self._site.label] = None
        return own_change(everywhere, tables, os.environ)

    def _key_variable(self, model: _Model) -> str:
        """Return the variable that has the key of the model; empty if none is set. The file never has the key."""
        keys, settings = self._context.keys, self._context.settings
        ref = parse_model(model.name) if not model.api_url else None
        server = model.api_url or (OFFICIAL_URLS.get(ref.provider, "") if ref else "")
        found = key_for_server(keys, server, settings.key_host, KEY_OF[ref.provider] if ref else "openai")
        named = settings.api_key_variable
        if "api_key_variable" in self._typed and named:
            return named
        variables = next((some for some in VARIABLES.values() if found.variable in some), (found.variable,))
        return next(
            (one for one in (named, *variables) if one and os.environ.get(one, "").strip() == found.key), ""
        )

    def _show_own(self, own: OwnChange | None) -> None:
        if own is not None and own.new != own.old:
            self._say(f"{'new' if own.old is None else 'change'}  {own.path} (your own options)")
            self._show_lines((own.old or "").splitlines(), own.new.splitlines())

    def _save(self, own: OwnChange | None) -> bool:
        """Save the person's own options, and return whether they are saved."""
        if own is None or own.new == own.old:
            return own is not None
        if own.old is not None and not (self._asks or self._options.yes):
            self._say(f"{own.path} is not changed: pass --yes to save your own options there")
            return False
        own.write()
        self._say(f"Saved your own options in {own.path}.")
        return True

    def _show(self, top: Path, file: ActionFile) -> None:
        """Show a file: `pullwright.toml` whole, a diff of a changed file, otherwise only the size."""
        present = present_content(top, file.path)
        if b"\0" in file.content:
            kind = "new" if present is None else "change"
            self._say(f"{kind}  {file.path} ({len(file.content):,} bytes)")
            return
        old = (present or b"").decode("utf-8", "replace").splitlines()
        new = file.content.decode().splitlines()
        if not old and file.path != LOCAL_FILE:
            self._say(f"new  {file.path} ({counted(len(new), 'line')})")
            return
        self._say(f"{'change' if old else 'new'}  {file.path}")
        self._show_lines(old, new)

    def _show_lines(self, old: list[str], new: list[str]) -> None:
        shown = (
            list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
            if old
            else [f"+{line}" for line in new]
        )
        for line in shown[:_MOST_SHOWN_LINES]:
            self._say(f"    {line}")
        if len(shown) > _MOST_SHOWN_LINES:
            self._say(f"    ... {counted(len(shown) - _MOST_SHOWN_LINES, 'more line')}")

    def _show_label(self) -> bool:
        """Show the label if it is to be created, and return whether it is."""
        wanted = self._wants_label()
        if wanted and self._github is not None:
            self._say(f"label  {self._context.settings.label!r} on {self._github.name}")
        return wanted

    def _wants_label(self) -> bool:
        if self._github is None or self._options.labels is False:
            return False
        has_token = self._github.servers.has_credential(self._github, self._context)
        if self._options.labels and not has_token:
            raise ConfigurationError("--labels needs a token: set GITHUB_TOKEN")
        return has_token and (bool(self._options.labels) or self._asks)

    def _make_label(self, site: Site) -> None:
        label = self._context.settings.label
        created = site.forge.make_label(label, _LABEL_WORDS)
        self._say(f"label {label!r} {'created' if created else 'exists already'}")

    def propose(self) -> int:
        """Open the onboarding pull request. If it is open already, only update its text."""
        label = bool(self._options.labels) and self._wants_label()

        def files(clone: Clone) -> list[ActionFile]:
            nonlocal label
            _, changes = self._changes(clone, clone.tree)
            label = self._show_label()
            if self._asks and self._ask("Propose this? y or n", "y", "--yes").lower() not in YES:
                raise ConfigurationError("nothing was proposed")
            return changes

        self._say(f"Looking at {self._site.label} ...")
        pull, created = propose(self._site, self._context, files)
        if label:
            self._make_label(self._site)
        verb = "opened" if created else "updated: its text describes the files on its branch"
        self._say(f"Pull request #{pull.number} {verb}: {pull.url}")
        self._say("Nothing is done before it is merged.")
        return DONE

    def _say_next(self, decided: _Decided, *, is_saved: bool) -> None:
        flags = self._repo_flag(is_saved=is_saved) + ("" if is_saved else _flags_for(decided))
        self._say("")
        written = f"{LOCAL_FILE} .github" if decided.actions else LOCAL_FILE
        on_forge = self._github is not None and not self._local
        self._say(f"Next ({LOCAL_FILE} takes effect on the default branch):")
        self._say(
            f"  git add {written} && git commit -m 'Set up Pullwright'{' && git push' if on_forge else ''}"
        )
        self._say(f"  pullwright doctor{flags}")
        task = "--task 'What is to be done'" if self._local else "--issue N"
        self._say(f"  pullwright run{flags} {task}")
        if decided.actions:
            self._say(f"The head of {WORKFLOW_FILE} says what is left to do on GitHub.")

    def _repo_flag(self, *, is_saved: bool) -> str:
        """Return `--repo`, where the person is in another folder or their own file does not know the repository."""
        if is_saved and self.folder is not None and place_of(Path.cwd()).path == self.folder:
            return ""
        if self._local or self._github is None:
            return f" --repo {shlex.quote(str(self._options.repo or '.'))}"
        return f" --repo {shlex.quote(self._github.label)}"


def _flags_for(decided: _Decided) -> str:
    """Return the flags that name what was decided."""
    model = ""
    if decided.model is None:
        model = " --model PROVIDER:NAME"
    elif decided.model.api_url:  # the repository's file cannot name it
        model = f" --api-url {decided.model.api_url} --model {shlex.quote(decided.model.name)}"
    hosts = "".join(f" --allow-host {shlex.quote(host)}" for host in decided.hosts)
    return f"{model} --test-command {AUTO}{hosts}" if decided.has_tests else model


def _as_typed(command: str, setup: str = "", report: str = "") -> SuggestedCommand:
    return SuggestedCommand(command, "", Confidence.NAMED, setup, report)


def _is_capped(model: _Model | None) -> bool:
    """Return whether a limit in US dollars can be kept: the model has a list price."""
    if model is None or model.api_url:
        return False
    try:
        ref = parse_model(model.name)
    except PullwrightError:
        return False
    usage = Usage(input_tokens=1000, output_tokens=1000)
    return ref.provider in OFFICIAL_URLS and price_usd(ref.provider, ref.name, usage) is not None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{short_line(text, 40)!r} is not a number of US dollars") from None
