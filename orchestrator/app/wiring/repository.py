"""The repository that `--repo` names, with its forge, its credential and its tasks."""

from __future__ import annotations

import re
import secrets
import socket
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from orchestrator.app.config.settings import SourceKind
from orchestrator.app.wiring import BuildContext
from orchestrator.bot.coordination.budget import Caps, ScopeCaps, nothing_left
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.forge.github.address import (
    DEFAULT_API_URL,
    ENTERPRISE_VARIABLE,
    TOKEN_VARIABLE,
    api_url_for,
    git_host_of,
    refuse_other_forge,
)
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.journal.folders import HOME_VARIABLE, Home, KeptWork
from orchestrator.bot.journal.index import tasks_taken
from orchestrator.bot.journal.notes import kept_answer
from orchestrator.bot.journal.reader import DeadRuns, close_run, lock_run, open_runs
from orchestrator.core.addresses import holds_credential, is_loopback
from orchestrator.core.errors import (
    ConfigurationError,
    EmptyRepositoryError,
    ForgeNotFoundError,
    ForgeUnavailableError,
    GitMissingError,
    JournalError,
    PullwrightError,
    RemoteUnavailableError,
    WorkspaceError,
)
from orchestrator.core.events import WaitStarted, Warned
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME, SSH_ADDRESS
from orchestrator.core.suggestions import PROGRAM, Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any, TypeAlias

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.forge.github.transport import GitHubAuth
    from orchestrator.bot.forge.local import LocalForge
    from orchestrator.bot.policy.hidden_characters import Cleaned
    from orchestrator.bot.worker.task_decisions import DecisionResult, TaskDecisions
    from orchestrator.core.clock import Clock
    from orchestrator.core.redaction import Credential
    from orchestrator.engine.policy.secrets import Redactor

    Clean: TypeAlias = Callable[[str], Cleaned]


@dataclass(frozen=True, slots=True)
class Source:
    """The address that git clones, and the branch to start from and to propose to."""

    url: str
    branch: str


@dataclass(frozen=True, slots=True)
class Site:
    """A repository with its forge.

    Attributes:
        source: returns the source; called once per cycle, because a repository may move.
        credential: credential that git sends to the server, or None.
        is_local: whether a folder serves as the forge, where nobody reviews.
        label: name of the repository in messages and journals, however it was typed.
        origin: address that a repository on disk was cloned from; empty if it is not known.
    """

    forge: Forge
    source: Callable[[], Source]
    credential: Callable[[], Credential | None]
    is_local: bool = False
    label: str = ""
    origin: str = ""


def choose_site(repository: str, context: BuildContext, *, writes: bool) -> Site:
    """Create the forge of the repository that `--repo` names.

    Args:
        writes: whether the run will push and open pull requests.

    Raises:
        ConfigurationError: nothing is named, the folder is no git repository, a token may not be sent to the
            server, or there is no token to write with.
        GitMissingError: git is not installed.
    """
    place = parse_place(repository, context.settings.github_url)
    if isinstance(place, OnDisk):
        origin = cloned_from(place, context.settings.github_url)
        if writes and origin and place.label not in context.loaded.repositories:
            context.emit(
                Warned(
                    f"pull requests stay in {place.path}, which was cloned from {origin}: --repo {origin} proposes "
                    f"there, and {PROGRAM} init keeps your choice"
                )
            )
        return _local_site(place, context)
    known = credential_for(place.server, context)
    if writes and known.auth is None:
        # Report it before anything is paid for: the push would fail at the end.
        raise ConfigurationError(known.missing)
    return _on_github(place, known, context)


def commands_for(site: Site, loaded: Loaded) -> Commands:
    """Return the commands about a site's tasks, as a person can type them in any folder."""
    typed = loaded.origin["github_url"].kind is SourceKind.FLAG and "://" in site.label
    return Commands(site.label, loaded.settings.github_url if typed else "")


def commands_here(commands: Commands, loaded: Loaded, cwd: Path) -> Commands:
    """Return the commands for a person in this folder: without `--repo` where they mean its repository anyway."""
    if commands.github_url:
        return commands
    return commands._replace(is_here=label_here(loaded, cwd) == commands.repository)


def label_here(loaded: Loaded, cwd: Path) -> str | None:
    """Return the name of the repository that commands in this folder mean without `--repo`; None if they mean none."""
    try:
        return label_of(repository_here(loaded, cwd), loaded.settings.github_url)
    except ConfigurationError:
        return None


def _on_github(place: OnGitHub, known: HostCredential, context: BuildContext) -> Site:
    from orchestrator.bot.forge.github.calls import CallTiming
    from orchestrator.bot.forge.github.forge import GitHubForge

    def on_wait(seconds: float, reason: str) -> None:
        context.emit(WaitStarted(seconds, reason))

    def on_unreadable(text: str) -> None:
        context.emit(Warned(text))

    # GitHub asks for a pause between writing requests; a server on this machine does not.
    is_here = is_loopback(urlsplit(place.server).hostname or "")
    pacing = 0.0 if is_here else 1.0
    timing = CallTiming(context.clock, context.stop.sleep, on_wait, on_unreadable, pacing_seconds=pacing)
    forge = GitHubForge(
        place.name,
        known.auth,
        timing,
        api_url_for(place.server),
        in_workflow=context.in_workflow,
        token_variable=known.variable,
        redactor=context.redactor,
    )

    def source() -> Source:
        repository = forge.repository()
        return Source(
            repository.clone_url, _named(context.settings.base or repository.default_branch, place.name)
        )

    return Site(forge, source, forge.credential, label=place.label)


@dataclass(frozen=True, slots=True)
class HostCredential:
    """The credential for one server.

    Attributes:
        auth: the credential; None if there is none.
        variable: environment variable of a token for the server.
        missing: message for the case that a token is needed and there is none.
    """

    auth: GitHubAuth
    variable: str
    missing: str


def credential_for(server: str, context: BuildContext) -> HostCredential:
    """Return the credential that a server may receive. No other code decides this.

    ===============================================  ===============================================
    credential                                       goes to
    ===============================================  ===============================================
    the GitHub App                                   the configured server, which is github.com if
                                                     neither --github-url nor GITHUB_SERVER_URL is set
    GITHUB_TOKEN, GH_TOKEN                           github.com and the configured server
    GH_ENTERPRISE_TOKEN, GITHUB_ENTERPRISE_TOKEN     every other server that is named, and before
                                                     GITHUB_TOKEN the configured one
    ===============================================  ===============================================

    Args:
        server: web address of the server, from the configuration or from `--repo`.
    """
    from orchestrator.bot.forge.github.transport import GitHubApp, GitHubToken

    keys, settings = context.keys, context.settings
    asked, configured = api_url_for(server), api_url_for(settings.github_url)
    if settings.github_app_id is not None and asked == configured:
        if keys.github_app is None:
            raise ConfigurationError("github_app_id is set: set PULLWRIGHT_GITHUB_APP_KEY_FILE as well")
        return HostCredential(GitHubApp(settings.github_app_id, keys.github_app), TOKEN_VARIABLE, "")
    own = keys.github if asked in {DEFAULT_API_URL, configured} else None
    token = own if asked == DEFAULT_API_URL else keys.github_enterprise or own
    if asked in {DEFAULT_API_URL, configured}:
        variable = TOKEN_VARIABLE
        missing = f"no token for GitHub: set {variable}, or try --dry-run with --task, which only reads"
    else:
        variable, host = ENTERPRISE_VARIABLE, git_host_of(asked)
        missing = (
            f"no token for {host}: set {variable}, or name the server with --github-url "
            f"{urlsplit(asked).scheme}://{host}, so that {TOKEN_VARIABLE} may go there"
        )
    return HostCredential(GitHubToken(token) if token else None, variable, missing)


def _local_site(place: OnDisk, context: BuildContext) -> Site:
    from orchestrator.bot.forge.local import LocalForge, root_of
    from orchestrator.bot.git.local import LocalRepository

    try:
        repository = LocalRepository(place.path)
    except GitMissingError:
        raise
    except WorkspaceError as error:
        raise ConfigurationError(str(error)) from None
    base, root = context.settings.base, root_of(context.home.root, place.home)
    forge = LocalForge(
        root, place.home, repository, base=base, clock=context.clock, redactor=context.redactor
    )

    told: list[str] = []

    def source() -> Source:
        name, is_checked_out_only = (base, False) if base else repository.default_and_checkout()
        if name is None and not repository.is_empty():
            raise WorkspaceError(f"{place.path} has a detached HEAD: pass --base BRANCH")
        if is_checked_out_only and not told and name is not None:
            told.append(name)
            text = f"pull requests are for {name}, which is checked out in {place.path}: --base names another branch"
            context.emit(Warned(text))
        return Source(str(place.path), _named(name, str(place.path)))

    return Site(forge, source, lambda: None, is_local=True, label=place.label, origin=place.origin)


def _named(branch: str | None, repository: str) -> str:
    if branch is None:
        what = "make" if repository.startswith("/") else "push"
        raise EmptyRepositoryError(f"{repository} is empty: {what} a first commit")
    return branch


class _Gone:
    """Replaces git for a repository that no longer exists."""

    def heads(self) -> tuple[str | None, dict[str, str]]:
        return None, {}

    def read_file(self, path: str, commit: str) -> str | None:  # noqa: ARG002  there is none of any
        return None

    def merged(self, commits: Collection[str], into: str) -> frozenset[str]:  # noqa: ARG002  none is known
        return frozenset()


def local_forges(home: Home, repository: str | None, clock: Clock) -> list[LocalForge]:
    """Return the local forges that have something to list, or only that of a named repository.

    A repository that no longer exists keeps its pull requests and questions; none of them counts as merged.
    """
    from orchestrator.bot.forge.local import LocalForge, places, root_of
    from orchestrator.bot.git.local import LocalRepository

    if repository is not None:
        place = parse_place(repository, "https://github.com")
        if not isinstance(place, OnDisk):
            raise ConfigurationError(
                f"--repo {repository}: only local repositories are listed; name a folder"
            )
        git = LocalRepository(place.path)
        return [LocalForge(root_of(home.root, place.home), place.home, git, clock=clock)]
    return [
        LocalForge(
            root,
            repository,
            LocalRepository(repository) if repository.is_dir() else _Gone(),
            clock=clock,
        )
        for root, repository in places(home.root).items()
    ]


@dataclass(frozen=True, slots=True)
class OnGitHub:
    """A repository on GitHub or on a GitHub Enterprise server. `server` is the server's web address."""

    server: str
    name: str

    @property
    def label(self) -> str:
        """The repository's name in messages and journals, wherever and however it was typed."""
        api = api_url_for(self.server)
        host = git_host_of(api)
        return self.name if host == GITHUB else f"{urlsplit(api).scheme}://{host}/{self.name}"


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A repository in a folder.

    Attributes:
        path: folder to clone: the top of a working tree, or a bare repository.
        home: the repository itself, the same for all of its working trees.
        origin: address that it was cloned from, without a credential; empty if there is none.
        is_repository: whether the folder is in a git repository.
    """

    path: Path
    home: Path
    origin: str = ""
    is_repository: bool = True

    @property
    def label(self) -> str:
        """The repository's name in messages and journals, wherever and however it was typed."""
        return str(self.home)


def parse_place(text: str, github_url: str) -> OnGitHub | OnDisk:
    """Return the repository that a `--repo` value names. An existing folder has precedence over `owner/name`.

    No other code decides which repository a text means. `label` is its name in journals, and
    `core.repositories.repository_key` of the label is the key of pauses, failures and pull requests.
    """
    if not text.strip():
        raise ConfigurationError("--repo is empty: name owner/name, a URL, or a folder")
    path = Path(text).expanduser()
    if path.is_dir():
        return _on_disk(path)
    if OWNER_AND_NAME.fullmatch(text):
        return _on_server(github_url, text, text)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return _named_folder(unquote(parts.path), text)
    if parts.scheme in {"http", "https"}:
        if holds_credential(text):
            raise ConfigurationError("--repo holds a credential: take it out, and set GITHUB_TOKEN instead")
        return _on_server(f"{parts.scheme}://{parts.netloc}", parts.path, text)
    if match := SSH_ADDRESS.fullmatch(text):
        return _on_server(f"https://{match['host']}", match["path"], text)
    return _named_folder(text, text)


def label_of(text: str, github_url: str) -> str:
    """Return the name in journals of the repository that `--repo` names.

    A repository that no longer exists keeps its typed name.
    """
    try:
        return parse_place(text, github_url).label
    except PullwrightError:
        return text


def repository_here(loaded: Loaded, cwd: Path) -> str:
    """Return the `--repo` value of a folder where none is typed.

    `init` notes in the person's own file whether the folder's pull requests stay in it or go to the repository on GitHub
    that it was cloned from. A folder that it did not set up means no repository, so that no work begins by mistake.
    """
    here = place_of(cwd)
    if here.label in loaded.repositories:
        return str(here.path)
    origin = cloned_from(here, loaded.settings.github_url)
    if origin in loaded.repositories:
        return here.origin
    raise ConfigurationError(
        f"no repository is named: pass --repo with owner/name, a URL or a path, or set this folder up with {PROGRAM} init"
    )


def place_of(folder: Path) -> OnDisk:
    """Return the repository that contains a folder; the folder itself without a repository or without git."""
    try:
        return _on_disk(folder)
    except PullwrightError:
        return OnDisk(folder, folder, is_repository=False)


def proposal_place(here: OnDisk, github_url: str) -> str:
    """Return the `--repo` value for the repository that receives a folder's proposals.

    It is the folder's remote `origin` if that is on GitHub or on the configured server. It is the folder's
    own repository if there is no remote, or if the remote is another folder.

    Raises:
        ConfigurationError: the folder is in no repository, or its remote is on a server not configured as
            GitHub.
    """
    if not here.is_repository:
        raise ConfigurationError(
            f"{here.path} is in no git repository: /pr proposes changes in a repository only"
        )
    origin = here.origin
    if "://" not in origin and not SSH_ADDRESS.fullmatch(origin):
        return str(here.path)
    place = parse_place(origin, github_url)
    if isinstance(place, OnDisk):
        return str(here.path)
    if api_url_for(place.server) not in {DEFAULT_API_URL, api_url_for(github_url)}:
        raise ConfigurationError(
            f"the folder was cloned from {origin}, which is not configured as a GitHub server: start with --github-url "
            f"{place.server}, or name another repository with /pr --repo"
        )
    return origin


def host_of_server(web: str) -> str:
    """Return the host that git contacts for a server's web address."""
    return git_host_of(api_url_for(web))


def cloned_from(place: OnDisk, github_url: str) -> str:
    """Return the label of the repository on GitHub that a folder names as its origin; empty if there is none."""
    try:
        origin = parse_place(place.origin, github_url)
    except PullwrightError:
        return ""
    return origin.label if isinstance(origin, OnGitHub) else ""


def _named_folder(path: str, text: str) -> OnDisk:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(f"--repo {text}: no such folder, and not owner/name or a URL")
    return _on_disk(folder)


def _on_disk(folder: Path) -> OnDisk:
    """Find the repository that contains a folder. If there is none, opening it raises the error."""
    from orchestrator.bot.git.local import locate

    found = locate(folder)
    return OnDisk(found.top, found.home, found.origin, found.is_repository)


def _on_server(server: str, path: str, text: str) -> OnGitHub:
    refuse_other_forge(urlsplit(server if "://" in server else f"https://{server}").hostname or "")
    match = OWNER_AND_NAME.fullmatch(path.strip("/"))
    if match is None:
        raise ConfigurationError(f"--repo {text}: the address of a repository ends with owner/name")
    return OnGitHub(server, f"{match['owner']}/{match['name']}")


_SECONDS_A_MINUTE = 60.0
_BEATS_A_LEASE = 4
_SKEW_SECONDS = 600.0
_NONCE_BYTES = 8
_OWNER_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """The tasks of one repository, with the journal of decisions on this machine."""

    decisions: TaskDecisions
    home: Home
    label: str
    clock: Clock
    redactor: Redactor

    def note(self, decided: DecisionResult) -> None:
        """Record a decision for the digest."""
        from orchestrator.bot.journal.notes import PersonDecision, note_decision

        after = decided.after
        saved = after.wip is not None
        reference = f"refs/pullwright/wip/{after.key}" if saved else ""
        decision = PersonDecision(self.clock.now(), self.label, after.key, str(after.status), reference)
        note_decision(self.home, self.redactor.redact_value(decision))

    def close_dead_runs(self, key: str) -> None:
        """Close the journals of killed runs of a task, so that the next start does not save their work."""
        for run in open_runs(self.home):
            task = run.facts.task
            if run.is_about(self.label) and task is not None and task.key == key:
                with suppress(JournalError), lock_run(run.folder):  # a locked one belongs to a live process
                    end = {
                        "outcome": "interrupted",
                        "run": run.id,
                        "error": "the process was killed; forgotten",
                    }
                    close_run(run.folder, end, self.redactor, self.clock)


@contextmanager
def open_tasks(
    repository: str, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, *, writes: bool
) -> Iterator[OpenTasks]:
    """Open the tasks of a repository while the block runs.

    Args:
        writes: whether something may be changed.
    """
    context = BuildContext.of(flags, environ, cwd, named=partial(label_of, repository))
    site = choose_site(repository, context, writes=writes)
    with open_hidden_refs(site, context.clock, context.stop) as records:
        made = make_decisions(site, records, context)
        yield OpenTasks(made, context.home, site.label, context.clock, context.redactor)


def scope_caps(settings: Settings) -> ScopeCaps:
    """Return the caps that `--max-usd`, `--max-tokens-per-day` and similar options set."""

    def caps(suffix: str) -> Caps:
        return Caps(
            *(getattr(settings, f"max_{what}{suffix}") for what in ("usd", "tokens", "minutes", "rounds"))
        )

    return ScopeCaps(caps(""), caps("_per_task"), caps("_per_day"), caps("_per_repo"))


def backlog_rules(
    site: Site, settings: Settings, clean: tuple[Clean, Clean], redact: Callable[[str], str]
) -> dict[str, Any]:
    """Return how a site's backlog is read: the fields of a `Backlog` that are the same for every look at it.

    Args:
        clean: the checks of what people wrote: of texts, and of names.
    """
    from orchestrator.bot.worker.task_rules import ReviewLimits, as_lines

    return {
        "allow_actors": settings.allow_actor,
        "comments_policy": settings.comments,
        "clean": as_lines(clean[0], redact),
        "clean_name": as_lines(clean[1], redact),
        "limits": ReviewLimits(
            settings.max_open_prs,
            settings.max_prs_per_day,
            sys.maxsize if site.is_local else settings.max_unreviewed,
            settings.review_rounds,
            settings.quiet_minutes,
        ),
        "has_conflict": site.forge.has_conflict,
    }


def make_decisions(site: Site, records: Records, context: BuildContext) -> TaskDecisions:
    """Create the object by which a person sees a site's tasks and decides about them."""
    from orchestrator.bot.coordination.saved_work import list_wip
    from orchestrator.bot.policy.incoming import clean_name, clean_words
    from orchestrator.bot.worker.backlog import Backlog, TaskSelection
    from orchestrator.bot.worker.task_decisions import TaskDecisions

    settings, commands = context.settings, commands_for(site, context.loaded)
    kept = kept_work(context.home, records)
    rules = backlog_rules(site, settings, (clean_words, clean_name), context.redactor.redact)
    backlog = Backlog(
        site.forge,
        TaskSelection(),
        settings.label,
        **rules,
        commands=commands,
        clock=context.clock,
        unfinished=lambda: {*list_wip(records), *kept.keys()},
    )
    caps = scope_caps(settings).task
    words = {key: task.body or task.title for key, task in tasks_taken(context.home, site.label).items()}
    dead = [run.id for run in open_runs(context.home) if run.is_about(site.label)]
    return TaskDecisions(
        records,
        make_claims(records, context),
        site.forge,
        lease_times(settings),
        context.clock,
        commands,
        DeadRuns(context.home) | dead,
        words,
        kept,
        backlog,
        lambda spent: nothing_left(caps, spent, Caps(), "a task"),
        partial(kept_answer, context.home),
    )


def states_on_disk(
    forge: LocalForge, *, home: Home, environ: Mapping[str, str], cwd: Path
) -> list[TaskState] | None:
    """Return the states of the tasks of a local repository; None if it no longer exists or is empty."""
    try:
        path = forge.repository().clone_url
        with open_tasks(path, {}, {**environ, HOME_VARIABLE: str(home.root)}, cwd, writes=False) as tasks:
            return tasks.decisions.states()
    except (ForgeNotFoundError, EmptyRepositoryError):
        return None


def lease_times(settings: Settings) -> LeaseTimes:
    """Return the times of claims. Clocks may differ by ten minutes, or by half of a shorter lease."""
    lease = settings.claim_minutes * _SECONDS_A_MINUTE
    return LeaseTimes(lease, lease / _BEATS_A_LEASE, min(_SKEW_SECONDS, lease / 2))


def owner_name(environ: Mapping[str, str]) -> str:
    """Return one word that names the owner of claims to people: the workflow's job, or this machine."""
    job = environ.get("GITHUB_RUN_ID", "")
    name = f"actions-{job}" if environ.get("GITHUB_ACTIONS") == "true" and job else socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:_OWNER_CHARACTERS].strip("-.") or "worker"


def open_hidden_refs(site: Site, clock: Clock, stop: Stop) -> Records:
    """Open the hidden refs of a site's repository. Nothing is contacted before the first use."""

    def sleep(seconds: float) -> None:
        try:
            stop.sleep(seconds)
        except ForgeUnavailableError as error:  # the code that saves work expects errors of a workspace
            raise RemoteUnavailableError("interrupted while waiting for the repository") from error

    return Records(
        Path(tempfile.gettempdir()),
        site.source().url,
        site.credential,
        clock=clock,
        sleep=sleep,
        cancelled=stop.now,
    )


def kept_work(home: Home, records: Records) -> KeptWork:
    """Return the repository's unfinished work on this machine."""
    return KeptWork(home.unfinished / address_key(records.remote.url))


def new_nonce() -> str:
    """Return a text that is unique on all machines."""
    return secrets.token_hex(_NONCE_BYTES)


def make_claims(records: Records, context: BuildContext) -> Claims:
    """Create the claims on the tasks of a repository."""
    owner = owner_name(context.environ)
    return Claims(records, owner, context.clock, lease_times(context.settings), new_nonce)
