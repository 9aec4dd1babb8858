"""`doctor`: tries what a run will need, and says of each failure how to end it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from orchestrator.app.config import ApiKeys, load, secret_values
from orchestrator.app.doctor.findings import (
    Group,
    Impatient,
    Probe,
    Result,
    failed,
    ok,
    run,
    skipped,
    warning,
)
from orchestrator.app.doctor.machine import commands, earlier, machine
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.repository import (
    OnDisk,
    choose_site,
    credential_for,
    label_of,
    new_nonce,
    parse_place,
)
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, PullwrightError
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orchestrator.app.config import Loaded
    from orchestrator.app.doctor.findings import Finding
    from orchestrator.app.wiring.repository import Site
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event


_CONFIGURATION_FIX = "correct it; pullwright config prints what is in force"
_REPOSITORY_FIX = "check --repo: owner/name, a URL, or a folder"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a person asks for beside looking."""

    writes: bool
    runs: bool


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
    """Try everything, one after another; each result comes as soon as it is known.

    Args:
        repository: what the person typed, if anything.
        flags: options that were typed, by key.
        environ: the environment.
        cwd: the current folder, which may hold a configuration.
        writes: whether probes may write: a hidden ref that is removed again, requests that GitHub refuses,
            and one short request to each model.
        runs: run the tests of the repository's default branch once.
        clock: tells the time.
    """
    redact = Redactor(secret_values(environ)).redact
    asked = _Asked(writes=writes, runs=runs)
    for group in _groups(repository, flags, environ, cwd, asked, clock or SystemClock()):
        yield from run(group, redact)


def _groups(  # noqa: PLR0913, PLR0917  as above
    repository: str | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    asked: _Asked,
    clock: Clock,
) -> Iterator[Group]:
    home = Home.of(environ)
    yield machine(home)
    try:
        loaded, keys = load(flags, environ, cwd), ApiKeys.of(environ)
    except ConfigurationError as error:
        # Without it no address is known, and no token may be sent anywhere.
        yield _only("Configuration", "options", failed(str(error), _CONFIGURATION_FIX))
        yield _only("Configuration", "the rest", skipped("not tried: it depends on the options"))
        return
    yield _only("Configuration", "options", _options(loaded))
    stop = Impatient()
    in_workflow = environ.get("GITHUB_ACTIONS") == "true"
    context = BuildContext(loaded, keys, home, clock, _unheard, stop, in_workflow)
    yield commands(loaded.settings)

    from orchestrator.app.doctor.machine import models

    yield from models(context, environ, writes=asked.writes)
    if repository is None:
        yield _only("Repository", "address", skipped("none is named: pass --repo owner/name or --repo PATH"))
    else:
        yield from _at(repository, context, environ, asked, stop)
    yield earlier(context, repository and label_of(repository, loaded.settings.github_url))


def _at(
    repository: str, context: BuildContext, environ: Mapping[str, str], asked: _Asked, stop: Impatient
) -> Iterator[Group]:
    """The probes of a repository."""
    from orchestrator.app.doctor.repository import RemoteProbes, TestProbes, folder

    try:
        place = parse_place(repository, context.settings.github_url)
        site = choose_site(repository, context, writes=False)
    except PullwrightError as error:
        found, fix = str(error), _REPOSITORY_FIX
        if "another user" in found:
            fix = f"run as its owner, or make it yours: sudo chown -R $USER {quote(repository)}"
        yield _only(f"Repository {repository}", "address", failed(found, fix))
        return
    remote = partial(RemoteProbes, site, context, environ, nonce=new_nonce, writes=asked.writes)
    if isinstance(place, OnDisk):
        look = partial(folder, place, site, context.settings.base)
        yield Group(f"Repository {repository}", (Probe("folder", look, _REPOSITORY_FIX),))
        fix = f"run as the owner of {place.path}, or make it yours: sudo chown -R $USER {quote(str(place.path))}"
        yield remote(push_fix=fix).group(repository, Impatient())
        yield TestProbes(site, context, runs=asked.runs).group(repository)
        return
    yield from _on_github(repository, site, context, remote, place.server, asked, stop)


def _on_github(  # noqa: PLR0913, PLR0917  as above
    repository: str,
    site: Site,
    context: BuildContext,
    remote: partial[Any],
    web: str,
    asked: _Asked,
    stop: Impatient,
) -> Iterator[Group]:
    from orchestrator.app.doctor.github import BY_ROLE, GitHubProbes, grant, role_fix
    from orchestrator.app.doctor.repository import TestProbes
    from orchestrator.bot.forge.github_rest import RestForge

    if not isinstance(site.forge, RestForge):
        return  # a place on GitHub has its forge
    known = credential_for(web, context)
    probes = GitHubProbes(site.forge, context, web.rstrip("/"), writes=asked.writes, known=known)
    yield probes.group(repository, stop)
    facts = probes.known_facts
    if facts is None:
        yield _only(f"Git {repository}", "push", skipped("not tried: see repository"))
    else:
        fix = grant(probes.kind, "contents", web.rstrip("/"), is_private=facts.is_private)
        fix = probes.no_token if probes.kind is TokenKind.NONE else fix
        if facts.roles is not None and "push" not in facts.roles and probes.kind in BY_ROLE:
            fix = f"{role_fix(facts)}; and {fix}"
        yield remote(push_fix=fix).group(repository, Impatient())
        yield TestProbes(site, context, runs=asked.runs).group(repository)
    site.forge.close()


def _only(title: str, name: str, finding: Finding) -> Group:
    """A group with something that is known already."""
    return Group(title, (Probe(name, lambda: finding, ""),))


def _options(loaded: Loaded) -> Finding:
    places = dict.fromkeys(origin.place for origin in loaded.origin.values() if origin.place)
    found = f"read, from {', '.join(places)}" if places else "read, all as by default"
    if loaded.notices:
        return warning(f"{found}; {'; '.join(loaded.notices)}", _CONFIGURATION_FIX)
    return ok(found)


def _unheard(_event: Event) -> None:
    """Nobody listens: this is no run."""
