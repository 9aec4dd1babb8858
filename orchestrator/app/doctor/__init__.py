"""`doctor`: tries everything that a run needs, and reports how to fix each failure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from orchestrator.app.doctor.findings import (
    Group,
    Impatient,
    Probe,
    Result,
    failed,
    ok,
    run_probes,
    skipped,
    warned,
)
from orchestrator.app.doctor.machine import command_group, earlier_runs, machine, models
from orchestrator.app.plugins import Point, added
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.repository import (
    OnDisk,
    choose_site,
    label_of,
    parse_place,
    repository_here,
)
from orchestrator.bot.journal.folders import Home
from orchestrator.core.errors import ConfigurationError, PullwrightError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.app.config.settings import Loaded
    from orchestrator.app.doctor.findings import ForgeProbes, ProbeFinding
    from orchestrator.app.wiring.repository import OnServer, Site
    from orchestrator.core.clock import Clock


_CONFIGURATION_FIX = "correct it; pullwright config prints what is in force"
_NOTICE_FIX = "change it if you do not want that; pullwright config prints what is in force"
_REPOSITORY_FIX = "check --repo: owner/name, a URL, or a folder"


def diagnose(  # noqa: PLR0913  what a person typed, and the world around
    repository: str | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    *,
    writes: bool = False,
    runs: bool = False,
    clock: Clock | None = None,
) -> Iterator[Result]:
    """Run all probes, one after another. Each result is yielded at once.

    Args:
        repository: value of `--repo`; None for that of `cwd` if `init` set it up. Without any its probes are skipped.
        writes: whether probes may write: a hidden ref that is removed again, requests that GitHub refuses,
            and one short request to each model.
        runs: whether to run the tests of the repository's default branch once.
    """
    yield from run_probes(machine(Home.of(environ), environ))
    stop = Impatient()
    groups: Iterable[Group]
    try:
        read = partial(BuildContext.of, flags, environ, cwd, stop=stop, clock=clock)
        context = read()
        if repository is None:
            with suppress(ConfigurationError):  # the folder is not set up
                repository = repository_here(context.loaded, cwd)
        if repository is not None:
            context = read(named=partial(label_of, repository))
    except ConfigurationError as error:
        # Without options no server is known, so no token may be sent.
        rest = skipped("not tried: it depends on the options")
        groups = (
            _only("Configuration", "options", failed(str(error), _CONFIGURATION_FIX)),
            _only("Configuration", "the rest", rest),
        )
    else:
        groups = _configured(repository, context, stop, writes=writes, runs=runs)
    for group in groups:
        yield from run_probes(group)


def _configured(
    repository: str | None, context: BuildContext, stop: Impatient, *, writes: bool, runs: bool
) -> Iterator[Group]:
    """Yield the probes that need a valid configuration."""
    yield _only("Configuration", "options", _options(context.loaded))
    yield command_group(context.settings)
    yield from models(context, writes=writes)
    for groups in added(Point.PROBES):
        yield from groups(context)
    if repository is None:
        yield _only("Repository", "address", skipped("none is named: pass --repo owner/name or --repo PATH"))
    else:
        yield from _RepositoryGroups(repository, context, stop, writes=writes, runs=runs).groups()
    yield earlier_runs(context, repository and label_of(repository, context.settings))


@dataclass(frozen=True, slots=True)
class _RepositoryGroups:
    """The probes of the named repository."""

    name: str
    context: BuildContext
    stop: Impatient
    writes: bool
    runs: bool

    def groups(self) -> Iterator[Group]:
        from orchestrator.app.doctor.repository import local_folder

        title = f"Repository {self.name}"
        try:
            place = parse_place(self.name, self.context.settings)
            site = choose_site(self.name, self.context, writes=False)
        except PullwrightError as error:
            found, fix = str(error), _REPOSITORY_FIX
            if "another user" in found:
                fix = f"run as its owner, or make it yours: sudo chown -R $USER {quote(self.name)}"
            yield _only(title, "address", failed(found, fix))
            return
        if isinstance(place, OnDisk):
            look = partial(local_folder, place, site, self.context.settings.base)
            yield Group(title, (Probe("folder", look, _REPOSITORY_FIX),))
            owned = f"sudo chown -R $USER {quote(str(place.path))}"
            fix = f"run as the owner of {place.path}, or make it yours: {owned}"
            yield from self._git_and_tests(site, fix)
        else:
            yield from self._on_server(place, site)

    def _on_server(self, place: OnServer, site: Site) -> Iterator[Group]:
        asked = (ask(place, site, self.context, writes=self.writes) for ask in added(Point.FORGE_PROBES))
        probes: ForgeProbes | None = next((one for one in asked if one is not None), None)
        if probes is None:
            yield from self._git_and_tests(site, f"check the credential for {place.server}")
            return
        yield replace(probes.group, title=f"{probes.group.title} {self.name}", stop=self.stop)
        fix = probes.push_fix()
        if fix is None:
            yield _only(f"Git {self.name}", "push", skipped("not tried: see repository"))
        else:
            yield from self._git_and_tests(site, fix)
        probes.close()

    def _git_and_tests(self, site: Site, push_fix: str) -> Iterator[Group]:
        from orchestrator.app.doctor.repository import RemoteProbes, RulesProbes, TestProbes

        yield RemoteProbes(site, self.context, push_fix=push_fix, writes=self.writes).group(self.name)
        yield RulesProbes(site, self.context).group(self.name)
        yield TestProbes(site, self.context, runs=self.runs).group(self.name)


def _only(title: str, name: str, finding: ProbeFinding) -> Group:
    """Return a group with one known finding."""
    return Group(title, (Probe(name, lambda: finding, ""),))


def _options(loaded: Loaded) -> ProbeFinding:
    named = (origin.place for origin in loaded.origin.values() if origin.place)
    places = dict.fromkeys(place for places in named for place in places.split(", "))
    found = f"read, from {', '.join(places)}" if places else "read, all have their defaults"
    if loaded.notices:
        return warned(f"{found}; {'; '.join(loaded.notices)}", _NOTICE_FIX)
    return ok(found)
