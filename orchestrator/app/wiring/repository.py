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
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from orchestrator.app.plugins import Point, absence_words, added, own_names
from orchestrator.app.wiring import BuildContext
from orchestrator.bot.coordination.budget import Caps, ScopeCaps, nothing_left
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.journal.folders import HOME_VARIABLE, Home, KeptWork
from orchestrator.bot.journal.index import tasks_taken
from orchestrator.bot.journal.notes import kept_answer
from orchestrator.bot.journal.reader import DeadRuns, close_run, lock_run, open_runs
from orchestrator.bot.suggestions import PROGRAM, Commands
from orchestrator.core.addresses import holds_credential
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
from orchestrator.core.events import Warned
from orchestrator.core.repositories import OWNER_AND_NAME, SSH_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any, TypeAlias

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.forge.local import LocalForge
    from orchestrator.bot.policy.hidden_characters import Cleaned
    from orchestrator.bot.worker.task_decisions import DecisionResult, TaskDecisions
    from orchestrator.core.clock import Clock
    from orchestrator.core.redaction import Credential
    from orchestrator.engine.policy.secrets import Redactor

    Clean: TypeAlias = Callable[[str], Cleaned]

_GITHUB = "github"
"""The plug-in whose repositories `owner/name` names."""


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
        flags: flags that commands about the repository need beside its label, such as the address of its server.
    """

    forge: Forge
    source: Callable[[], Source]
    credential: Callable[[], Credential | None]
    is_local: bool = False
    label: str = ""
    origin: str = ""
    flags: str = ""


@dataclass(frozen=True, slots=True)
class OnServer:
    """A repository on a server.

    Attributes:
        servers: the kind of its server.
        server: the server's web address.
        name: the repository's name there.
        label: the repository's name in messages and journals, wherever and however it was typed.
    """

    servers: Servers
    server: str
    name: str
    label: str


class Servers(Protocol):
    """The servers of one kind of forge, which a plug-in gives (`Point.FORGE`).

    No method contacts a server. Each may raise a `ConfigurationError`.
    """

    def find(self, text: str, settings: Settings) -> OnServer | None:
        """Return the repository that a `--repo` value names; None if it names none on a server of this kind."""

    def open(self, place: OnServer, context: BuildContext, *, writes: bool) -> Site:
        """Return the repository with its forge, which contacts the server at its first use.

        Args:
            writes: whether the run will push and open pull requests. Without a credential for that, it is refused now.
        """

    def has_credential(self, place: OnServer, context: BuildContext) -> bool:
        """Return whether there is a credential for the repository's server."""

    def why_not_trusted(self, place: OnServer, settings: Settings) -> str:
        """Return why a folder that was cloned from there does not propose there by itself; empty if it does.

        A folder may come from anybody, and it names its origin itself.
        """

    def web_hosts(self, settings: Settings) -> tuple[str, ...]:
        """Return the hosts of the configured server's pages, to which texts of pull requests may link."""


def choose_site(repository: str, context: BuildContext, *, writes: bool) -> Site:
    """Create the forge of the repository that `--repo` names.

    Args:
        writes: whether the run will push and open pull requests.

    Raises:
        ConfigurationError: nothing is named, the folder is no git repository, a token may not be sent to the
            server, or there is no token to write with.
        GitMissingError: git is not installed.
    """
    place = parse_place(repository, context.settings)
    if isinstance(place, OnDisk):
        origin = cloned_from(place, context.settings)
        if writes and origin and place.label not in context.loaded.repositories:
            context.emit(
                Warned(
                    f"pull requests stay in {place.path}, which was cloned from {origin}: --repo {origin} proposes "
                    f"there, and {PROGRAM} init keeps your choice"
                )
            )
        return _local_site(place, context)
    return place.servers.open(place, context, writes=writes)


def commands_for(site: Site) -> Commands:
    """Return the commands about a site's tasks, as a person can type them in any folder."""
    return Commands(site.label, site.flags)


def commands_here(commands: Commands, loaded: Loaded, cwd: Path) -> Commands:
    """Return the commands for a person in this folder: without `--repo` where they mean its repository anyway."""
    if commands.flags:
        return commands
    return commands._replace(is_here=label_here(loaded, cwd) == commands.repository)


def label_here(loaded: Loaded, cwd: Path) -> str | None:
    """Return the name of the repository that commands in this folder mean without `--repo`; None if they mean none."""
    try:
        return label_of(repository_here(loaded, cwd), loaded.settings)
    except ConfigurationError:
        return None


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
        return Source(str(place.path), named_branch(name, str(place.path)))

    return Site(forge, source, lambda: None, is_local=True, label=place.label, origin=place.origin)


def named_branch(branch: str | None, repository: str) -> str:
    """Return the branch, which an empty repository does not have."""
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
        place = disk_place(repository)
        if place is None:
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


def parse_place(text: str, settings: Settings) -> OnServer | OnDisk:
    """Return the repository that a `--repo` value names. An existing folder has precedence over `owner/name`.

    No other code decides which repository a text means. `label` is its name in journals, and
    `core.repositories.repository_key` of the label is the key of pauses, failures and pull requests.
    """
    if (folder := _existing_folder(text)) is not None:
        return _on_disk(folder)
    for servers in forge_servers():
        if (found := servers.find(text, settings)) is not None:
            return found
    if not _names_server(text):
        raise _no_such_folder(text)
    if _GITHUB not in own_names():
        raise ConfigurationError(absence_words(f"--repo {text}", _GITHUB))
    raise ConfigurationError(f"--repo {text}: no plug-in knows this server: clone it, and pass its folder")


def disk_place(text: str) -> OnDisk | None:
    """Return the repository on this disk that a `--repo` value names; None if it names one on a server."""
    folder = _existing_folder(text)
    if folder is None and not _names_server(text):
        raise _no_such_folder(text)
    return None if folder is None else _on_disk(folder)


def forge_servers() -> list[Servers]:
    """Return the kinds of servers that are known. Those that a person added come first: they know their own hosts."""
    return [*added(Point.FORGE)][::-1]


def web_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the hosts of the configured servers' pages."""
    return tuple(host for servers in forge_servers() for host in servers.web_hosts(settings))


def _existing_folder(text: str) -> Path | None:
    """Return the folder that a `--repo` value names; None if it may name a repository on a server."""
    if not text.strip():
        raise ConfigurationError("--repo is empty: name owner/name, a URL, or a folder")
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    parts = urlsplit(text)
    if parts.scheme == "file":
        path = Path(unquote(parts.path)).expanduser()
        if not path.is_dir():
            raise _no_such_folder(text)
        return path
    if parts.scheme in {"http", "https"} and holds_credential(text):
        raise ConfigurationError(
            "--repo holds a credential: take it out, and set a variable such as GITHUB_TOKEN instead"
        )
    return None


def _names_server(text: str) -> bool:
    """Return whether a text has the form of a repository's address on a server."""
    return bool(
        OWNER_AND_NAME.fullmatch(text)
        or urlsplit(text).scheme in {"http", "https"}
        or SSH_ADDRESS.fullmatch(text)
    )


def _no_such_folder(text: str) -> ConfigurationError:
    return ConfigurationError(f"--repo {text}: no such folder, and not owner/name or a URL")


def label_of(text: str, settings: Settings) -> str:
    """Return the name in journals of the repository that `--repo` names.

    A repository that no longer exists keeps its typed name.
    """
    try:
        return parse_place(text, settings).label
    except PullwrightError:
        return text


def repository_here(loaded: Loaded, cwd: Path) -> str:
    """Return the `--repo` value of a folder where none is typed.

    `init` notes in the person's own file whether the folder's pull requests stay in it or go to the repository that it
    was cloned from. A folder that it did not set up means no repository, so that no work begins by mistake.
    """
    here = place_of(cwd)
    if here.label in loaded.repositories:
        return str(here.path)
    origin = cloned_from(here, loaded.settings)
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


def proposal_place(here: OnDisk, settings: Settings) -> str:
    """Return the `--repo` value for the repository that receives a folder's proposals.

    It is the folder's remote `origin` if that is on a server which is trusted with proposals, such as the configured
    one. It is the folder's own repository if there is no remote, or if the remote is another folder.

    Raises:
        ConfigurationError: the folder is in no repository, or its remote is on another server.
    """
    if not here.is_repository:
        raise ConfigurationError(
            f"{here.path} is in no git repository: /pr proposes changes in a repository only"
        )
    origin = here.origin
    if "://" not in origin and not SSH_ADDRESS.fullmatch(origin):
        return str(here.path)
    place = parse_place(origin, settings)
    if isinstance(place, OnDisk):
        return str(here.path)
    if refused := place.servers.why_not_trusted(place, settings):
        raise ConfigurationError(
            f"the folder was cloned from {origin}, {refused}, or name another repository with /pr --repo"
        )
    return origin


def cloned_from(place: OnDisk, settings: Settings) -> str:
    """Return the label of the repository on a server that a folder names as its origin; empty if there is none."""
    try:
        origin = parse_place(place.origin, settings)
    except PullwrightError:
        return ""
    return origin.label if isinstance(origin, OnServer) else ""


def _on_disk(folder: Path) -> OnDisk:
    """Find the repository that contains a folder. If there is none, opening it raises the error."""
    from orchestrator.bot.git.local import locate

    found = locate(folder)
    return OnDisk(found.top, found.home, found.origin, found.is_repository)


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

    settings, commands = context.settings, commands_for(site)
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
