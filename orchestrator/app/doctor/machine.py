"""Probes of this machine, of what earlier runs left, and of the models."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from orchestrator.app.doctor.findings import (
    Group,
    Impatient,
    Probe,
    ProbeFinding,
    Unmet,
    failed,
    ok,
    skipped,
    warned,
)
from orchestrator.app.wiring.guards import (
    NAME_COMMANDS,
    open_rules,
    open_sandbox,
    runs_anything,
    sandbox_options,
)
from orchestrator.app.wiring.model import fallback_named, first_named, usd_cap_flag
from orchestrator.app.words import local_time, megabytes
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import INSTALL_GIT, LEAST_GIT
from orchestrator.bot.journal.folders import HOME_VARIABLE
from orchestrator.bot.journal.index import last_pause
from orchestrator.bot.journal.reader import find_run, open_runs, unreadable_runs
from orchestrator.bot.journal.retention import find_old_runs
from orchestrator.core import event_loop
from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    ModelError,
    ModelNotFoundError,
    PermissionDeniedError,
    RateLimitError,
    SandboxMissingError,
)
from orchestrator.core.messages import Message, Usage
from orchestrator.core.repositories import same_repository
from orchestrator.core.version import __version__
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import (
    OFFICIAL_URLS,
    UNCONNECTED,
    Provider,
    context_window,
    flat_price,
    price_usd,
)
from orchestrator.engine.models.connect import KEY_OF, connected
from orchestrator.engine.models.keys import OTHER_KEY, VARIABLES
from orchestrator.engine.models.listing import find_model, local_servers, places_in_words
from orchestrator.engine.models.wire import host_of
from orchestrator.engine.policy.command_rules import CommandRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.engine.models.connect import AddressedModel
    from orchestrator.engine.models.listing import Presence


LEAST_FREE_BYTES = 10**9
_GIT = f"{INSTALL_GIT}: https://git-scm.com (apt install git, dnf install git, brew install git)"
_HOME_FIX = f"set {HOME_VARIABLE} to a folder that you may write to"
_TEMPORARY_FIX = "set TMPDIR to a folder that you may write to"
_SANDBOX_SECONDS = 60.0
_UNREADABLE_FIX = "start the version that wrote it, or make the file readable"


def machine(home: Home, environ: Mapping[str, str]) -> Group:
    """Return the probes that need no configuration."""
    version = f"{platform.python_version()}, Pullwright {__version__}"
    probes = (
        Probe("Python", lambda: ok(version), "install Python 3.11 or newer"),
        Probe("home", lambda: writable(home.root), _HOME_FIX),
        Probe("temporary", lambda: writable(Path(tempfile.gettempdir())), _TEMPORARY_FIX),
        Probe("git", _git, _GIT),
        Probe("time zones", _zones, "run pip install tzdata"),
        Probe("local models", lambda: _local_models(environ), "start the server of the model again"),
    )
    return Group("This machine", probes)


def command_group(settings: Settings) -> Group:
    """Return the probes of the sandbox and the command rules."""
    probes = (
        Probe("sandbox", lambda: _sandbox(settings), "see above", _SANDBOX_SECONDS),
        Probe("rules", lambda: _rules(settings), "correct the rule in allow_command or deny_command"),
    )
    return Group("Commands", probes)


def earlier_runs(context: BuildContext, repository: str | None) -> Group:
    """Return the probes of the remains of earlier runs on this machine."""
    probes = [
        Probe("dead runs", lambda: _dead_runs(context.home, repository), "look with pullwright show --list"),
        Probe("kept runs", lambda: _kept_runs(context), "look with pullwright runs prune --dry-run"),
        Probe("pause", lambda: _pause(context.home, context.clock, repository), "look with pullwright show"),
    ]
    return Group("Earlier runs", tuple(probes))


def writable(folder: Path) -> ProbeFinding:
    """Check whether a folder, or the nearest existing one above it, is writable, and its free space."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    fix = _TEMPORARY_FIX if folder == Path(tempfile.gettempdir()) else _HOME_FIX
    if not there.is_dir():
        return failed(f"{there} is not a folder", fix)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"pullwright doctor")
    except OSError as error:
        return failed(f"{there} cannot be written to: {error.strerror or error}", fix)
    free = shutil.disk_usage(there).free
    new = "" if there == folder else ", made by the first run"
    if free < LEAST_FREE_BYTES:
        return warned(f"{folder}, only {free / 1e6:,.0f} MB free{new}", f"free some space, or {fix}")
    return ok(f"{folder}, {free / 1e9:,.0f} GB free{new}")


def _git() -> ProbeFinding:
    with tempfile.TemporaryDirectory() as folder:
        said = HostGit(Path(folder)).run("version", doing="cannot ask git for its version")
    text = said.decode("utf-8", "replace").strip()
    match = re.search(r"(?<!\d)(\d++)\.(\d+)\S*", text)
    if match is None:
        return failed(f"git printed {text!r} instead of a version", _GIT)
    if (int(match[1]), int(match[2])) < LEAST_GIT:
        return failed(f"{match[0]} is too old: conflicts could not be merged", _GIT)
    return ok(match[0])


def _zones() -> ProbeFinding:
    for name in ("Europe/Berlin", "America/New_York"):
        try:
            ZoneInfo(name)
        except (KeyError, ValueError):
            return warned("no time zones are known, so --timezone accepts UTC only", "run pip install tzdata")
    return ok("known")


def _local_models(environ: Mapping[str, str]) -> ProbeFinding:
    found = local_servers(environ)
    if not found:
        return ok(f"no server at the usual ports ({places_in_words(environ)})")
    return ok("; ".join(f"{server}: {server.flags}" for server in found))


def _sandbox(settings: Settings) -> ProbeFinding:
    if not runs_anything(settings):
        return skipped(f"no command runs at the level {settings.permission} without --allow-command")
    if settings.sandbox == "off":
        return warned("off: commands run as you, with your files and network", "leave out --sandbox off")
    try:
        return ok(f"{open_sandbox(settings, sandbox_options(settings)).name}, tried with a command")
    except SandboxMissingError as error:
        found, _, fix = str(error).partition(": ")
        return failed(found, fix)


def _rules(settings: Settings) -> ProbeFinding:
    CommandRules.parse(settings.allow_command, settings.deny_command)
    if settings.permission != "safe" or not settings.allow_command:
        return skipped(f"not used at the level {settings.permission}" if settings.allow_command else "none")
    found = open_rules(settings)
    return warned(found, NAME_COMMANDS) if found else ok("they allow no other programs")


def _dead_runs(home: Home, repository: str | None) -> ProbeFinding:
    dead, unreadable = open_runs(home), unreadable_runs(home)
    cannot = f"{len(unreadable)} cannot be read: {unreadable[0]}" if unreadable else ""
    if not dead:
        return warned(cannot, _UNREADABLE_FIX) if cannot else ok("none")
    places = {run.id: start.repository for run in dead if (start := run.facts.start)}
    ours = [place for place in places.values() if same_repository(place, repository or "")]
    number = f"{len(dead)} {'run was' if len(dead) == 1 else 'runs were'} killed: {dead[0].id}"
    here = f", {len(ours)} of them on this repository" if repository and len(dead) > 1 else ""
    where = next(iter((*ours, *places.values())), "REPO")
    damaged = [run for run in dead if run.damage]
    told = f"; the journal of {damaged[0].id} is damaged ({damaged[0].damage[0]})" if damaged else ""
    more = f", and {len(damaged) - 1} more are" if len(damaged) > 1 else ""
    saves = f"the next pullwright run --repo {quote(where)} saves their work"
    found = f"{number}{here}{told}{more}{f'; {cannot}' if cannot else ''}"
    return warned(found, f"{saves}{', as far as it can be read' if damaged else ''}")


def _kept_runs(context: BuildContext) -> ProbeFinding:
    keep = context.runs_to_keep
    found = find_old_runs(context.home, keep, context.clock.now())
    limits = (f"{keep.days:g} days" if keep.days else "", f"{keep.megabytes:,} MB" if keep.megabytes else "")
    beyond = " and ".join(one for one in limits if one)
    rule = f"completed ones are removed beyond {beyond}" if beyond else "none is ever removed"
    left = f"; kept for unfinished work: {len(found.unfinished)}" if found.unfinished else ""
    return ok(f"{found.count:,}, {megabytes(found.size)}; {rule}{left}")


def _pause(home: Home, clock: Clock, repository: str | None) -> ProbeFinding:
    pause = last_pause(home, clock.now(), repository=repository)
    if pause is None:
        return ok("none")
    until = local_time(pause.until)
    return warned(f"until {until}: {pause.reason}", f"wait until {until}, or name another --model")


_LIST_SECONDS = 8.0
_REPLY_SECONDS = 60.0
_REPLY_TOKENS = 16
"""The minimum of OpenAI's Responses: platform.openai.com/docs/api-reference/responses/create"""
_NAMED = 5
_PRICE_FIX = "give --price IN/OUT"


def models(context: BuildContext, *, writes: bool) -> list[Group]:
    """Return a group for the first model and for each fallback.

    Args:
        writes: whether to send a short request, which may cost something.
    """
    first = _Model(context, None, None)
    others = [_Model(context, text, first) for text in context.settings.fallback_model]
    return [one.group(writes=writes) for one in (first, *others)]


class _Model:
    def __init__(self, context: BuildContext, text: str | None, first: _Model | None) -> None:
        self._context, self._text, self._first = context, text, first

    def group(self, *, writes: bool) -> Group:
        """Return the probes of this model."""
        name = self._text or self._context.settings.model or "of the server"
        title = f"Fallback model {name}" if self._first else f"Model {name}"
        probes = [
            Probe("key", self._key, self._flag_fix),
            Probe("server", self._server, "check --api-url, and the network"),
            Probe("price", self._price, f"{_PRICE_FIX}, US dollars a million tokens, such as --price 3/15"),
            Probe("window", self._window, "nothing needs to be done"),
        ]
        if writes:
            probes.append(Probe("reply", self._reply, "see the message", _REPLY_SECONDS + 1))
        return Group(title, tuple(probes), Impatient())

    @property
    def _flag(self) -> str:
        return "--fallback-model" if self._first else "--model"

    @property
    def _flag_fix(self) -> str:
        if self._first:
            return f"leave out --fallback-model {self._text}, or set its key"
        return "pass --model PROVIDER:NAME, such as --model anthropic:claude-sonnet-4-5, and set its key"

    @cached_property
    def named(self) -> AddressedModel:
        """The model and its key. Raises `ConfigurationError` if the configuration is not usable."""
        if self._first is None:
            return first_named(self._context)
        return fallback_named(self._context, self._text or "", self._first.named)

    @cached_property
    def presence(self) -> Presence:
        """The entry of the model in the server's list."""
        named = self.named
        now = self._context.clock.now()
        return find_model(named.ref, named.api_url, named.wire, named.key, now=now, seconds=_LIST_SECONDS)

    def _need(self) -> AddressedModel:
        """Return the model, or skip the probe if there is nothing to ask."""
        try:
            named = self.named
        except ConfigurationError:
            raise Unmet("not tried: see key") from None
        if named.ref.provider in UNCONNECTED:
            raise Unmet("a recorded run and an echo need no server")
        return named

    def _key(self) -> ProbeFinding:
        try:
            named = self.named
        except ConfigurationError as error:
            found, _, fix = str(error).partition(": ")
            return failed(found, fix or self._flag_fix)
        if named.ref.provider is Provider.REPLAY:
            return ok(f"a recorded run: {find_run(self._context.home, named.ref.name).name}")
        if named.ref.provider is Provider.ECHO:
            return ok("none needed: the echo repeats its input")
        variable = self._variable(named)
        if not variable:
            return ok(f"none is set; {host_of(named.wire.url)} may need none, else {named.refusal}")
        return ok(f"{variable}, for {host_of(named.wire.url)}")

    def _variable(self, named: AddressedModel) -> str:
        """Return the variable whose key goes to the model's server; empty for none."""
        if named.key is None:
            return ""
        named_by_person = self._context.settings.api_key_variable
        names = (*(name for vendor in set(KEY_OF.values()) for name in VARIABLES[vendor]), OTHER_KEY)
        names = (named_by_person, *names) if named_by_person else names
        return next(
            (name for name in names if self._context.environ.get(name, "").strip() == named.key), OTHER_KEY
        )

    def _server(self) -> ProbeFinding:
        named = self._need()
        where = host_of(named.wire.url)
        try:
            presence = self.presence
        except ModelError as error:
            return self._refused(named, error)
        name = named.ref.name
        if presence.is_there is None:
            return skipped(f"{where} does not list its models; --write asks {name} for a reply")
        if presence.is_there:
            return ok(f"{where} has {name}")
        others = f": {', '.join(presence.names[:_NAMED])}" if presence.names else ""
        more = ", ..." if len(presence.names) > _NAMED else ""
        fix = f"give {self._flag} the name of one that it has{others}{more}"
        # Gateways accept more names than they list.
        is_vendor = named.api_url == OFFICIAL_URLS[named.ref.provider]
        judge = failed if is_vendor or not presence.names else warned
        return judge(f"{where} does not list {name}", fix)

    def _refused(self, named: AddressedModel, error: ModelError) -> ProbeFinding:
        """Return the finding for a server's error."""
        where, variable = host_of(named.wire.url), self._variable(named) or OTHER_KEY
        match error:
            case AuthenticationError() | PermissionDeniedError() if named.key is None and named.refusal:
                fix = named.refusal
            case AuthenticationError() | PermissionDeniedError():
                fix = f"set {variable} to a valid key for {where}"
            case ConnectionFailedError():
                fix = "check --api-url and the network, or start the server"
            case ModelNotFoundError():
                fix = f"give {self._flag} another name"
            case RateLimitError():
                fix = f"wait, or look at the limits and the credit of the account at {where}"
            case _:
                fix = f"try again later, or look at the status page of {where}"
        return failed(str(error), fix)

    def _price(self) -> ProbeFinding:
        named, settings = self._need(), self._context.settings
        if settings.price is not None and self._first is None:
            flat_price(settings.price)
            return ok(f"{settings.price} US dollars a million tokens, by --price")
        # The price of a small request: larger ones may cost more per token.
        price = partial(price_usd, named.api_url, named.ref.name, now=self._context.clock.now())
        one, other = price(Usage(input_tokens=1000)), price(Usage(output_tokens=1000))
        if one is not None and other is not None:
            return ok(f"{one * 1000:g}/{other * 1000:g} US dollars a million tokens")
        fix = (
            f"leave out --fallback-model {self._text}"
            if self._first
            else f"{_PRICE_FIX}, such as --price 3/15, or 0/0 if it costs nothing"
        )
        flag = usd_cap_flag(settings)
        if not flag:
            return warned("unknown, so no cap in US dollars can be set", fix)
        return failed(f"unknown, so {flag} cannot be kept", f"{fix}, or use {flag.replace('usd', 'tokens')}")

    def _window(self) -> ProbeFinding:
        named = self._need()
        window = context_window(named.api_url, named.ref.name)
        if window is None:
            with suppress(ModelError):
                window = self.presence.window
        if window:
            return ok(f"{window:,} tokens")
        return skipped(
            "unknown; the conversation is shortened only when the server reports that it is too long"
        )

    def _reply(self) -> ProbeFinding:
        named, timeout = self._need(), self._context.settings.request_timeout_seconds
        chosen = connected(
            named, min(timeout, _REPLY_SECONDS), self._context.clock, None, self._context.redactor
        )

        async def ask() -> ProbeFinding:
            request = Request("", [Message.user("Say ok.")], max_output_tokens=_REPLY_TOKENS)
            try:
                async with asyncio.timeout(_REPLY_SECONDS):
                    reply = await chosen.model.complete(request)
            except ModelError as error:
                return self._refused(named, error)
            except TimeoutError:
                return failed(
                    f"no reply within {_REPLY_SECONDS:.0f} s", "try again later, or name another --model"
                )
            finally:
                await chosen.model.aclose()
            return ok(f"{reply.model} answered, tokens: {reply.usage.total_tokens}")

        return event_loop.run(ask())
