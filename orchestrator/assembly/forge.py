"""Which forge a repository has, from `--repo`, `--github-url` and the tokens in the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.assembly.place import OnDisk, OnGitHub, parse_place
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError, EmptyRepositoryError, WorkspaceError
from orchestrator.core.events import WaitStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from orchestrator.assembly.around import Around
    from orchestrator.core.clock import Clock
    from orchestrator.forge.base import Forge
    from orchestrator.forge.github import GitHubAuth
    from orchestrator.forge.local import LocalForge
    from orchestrator.journal.folders import Home
    from orchestrator.workspace.credential import GitCredential


@dataclass(frozen=True, slots=True)
class Source:
    """What git clones: an address, and the branch to start from and to propose to."""

    url: str
    branch: str


@dataclass(frozen=True, slots=True)
class Site:
    """A repository with its forge.

    Attributes:
        source: asked for once a cycle, because a repository may move.
        credential: what git shows to the server, or None.
        is_local: a folder plays the forge: nobody reviews there.
        label: what people and journals call the repository, however it was typed.
        origin: of a repository on disk, where it was cloned from; empty if that is not known.
    """

    forge: Forge
    source: Callable[[], Source]
    credential: Callable[[], GitCredential | None]
    is_local: bool = False
    label: str = ""
    origin: str = ""


def choose_site(repository: str, around: Around, *, writes: bool) -> Site:
    """Build the forge that `--repo` names.

    Args:
        repository: what the person typed.
        around: the surroundings of the run.
        writes: whether the run will push and open pull requests.

    Raises:
        ConfigurationError: it names nothing, a token may not be sent there, or there is none to write with.
        WorkspaceError: the folder is no git repository.
    """
    place = parse_place(repository, around.settings.github_url)
    if isinstance(place, OnDisk):
        return _on_disk(place, around)
    if writes and not around.keys.github and around.settings.github_app_id is None:
        # Said before anything is paid for: the push would fail at the end.
        raise ConfigurationError(
            "no token for GitHub: set GITHUB_TOKEN, or try --dry-run with --task, which only reads"
        )
    return _on_github(place, around)


def _on_github(place: OnGitHub, around: Around) -> Site:
    from orchestrator.forge.github import GitHubForge, Patience, api_url_for
    from orchestrator.workspace.credential import GitCredential

    auth = _auth(around)

    def on_wait(seconds: float, reason: str) -> None:
        around.emit(WaitStarted(seconds, reason))

    # What GitHub asks for is no rule of a server on this machine.
    is_here = is_loopback(urlsplit(place.server).hostname or "")
    patience = Patience(around.clock, around.stop.sleep, on_wait, pacing_seconds=0.0 if is_here else 1.0)
    api_url = api_url_for(place.server)
    forge = GitHubForge(place.name, auth, patience, api_url, in_workflow=around.in_workflow)

    def credential() -> GitCredential | None:
        found = forge.credential()
        return GitCredential(found.host, found.username, found.password) if found else None

    def source() -> Source:
        repository = forge.repository()
        return Source(
            repository.clone_url, _named(around.settings.base or repository.default_branch, place.name)
        )

    return Site(forge, source, credential, label=place.label)


def _auth(around: Around) -> GitHubAuth:
    from orchestrator.forge.github import GitHubApp, GitHubToken

    app_id = around.settings.github_app_id
    if app_id is not None:
        if around.keys.github_app is None:
            raise ConfigurationError("github_app_id is set: set PULLWRIGHT_GITHUB_APP_KEY_FILE as well")
        return GitHubApp(app_id, around.keys.github_app)
    return GitHubToken(around.keys.github) if around.keys.github else None


def _on_disk(place: OnDisk, around: Around) -> Site:
    from orchestrator.forge.local import LocalForge, root_of
    from orchestrator.workspace.local import LocalRepository

    repository = LocalRepository(place.path)
    base, root = around.settings.base, root_of(around.home.root, place.home)
    forge = LocalForge(root, place.home, repository, base=base, clock=around.clock)

    def source() -> Source:
        name = base or repository.default_branch()
        if name is None and not repository.is_empty():
            raise WorkspaceError(f"{place.path} has a detached HEAD: pass --base BRANCH")
        return Source(str(place.path), _named(name, str(place.path)))

    return Site(forge, source, lambda: None, is_local=True, label=place.label, origin=place.origin)


def _named(branch: str | None, repository: str) -> str:
    if branch is None:
        raise EmptyRepositoryError(f"{repository} is empty: push a first commit")
    return branch


class _Gone:
    """What git says of a repository that is not there any more."""

    def heads(self) -> tuple[str | None, dict[str, str]]:
        return None, {}

    def read_file(self, path: str, commit: str) -> str | None:  # noqa: ARG002  there is none of any
        return None

    def merged(self, commits: Collection[str], into: str) -> frozenset[str]:  # noqa: ARG002  none is known
        return frozenset()


def local_forges(home: Home, repository: str | None, clock: Clock) -> list[LocalForge]:
    """The local forges that have something to list; only that of one repository if it is named.

    A repository that is gone keeps its pull requests and questions; none of them is merged then.

    Raises:
        ConfigurationError: `repository` is no folder.
        ForgeError: a record is damaged.
    """
    from orchestrator.forge.local import LocalForge, places, root_of
    from orchestrator.workspace.local import LocalRepository

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
            found.root,
            found.repository_path,
            LocalRepository(found.repository_path) if found.repository_path.is_dir() else _Gone(),
            clock=clock,
        )
        for found in places(home.root)
    ]
