"""The configuration file of a fleet: the repositories that one worker looks after, and their settings.

What cannot be used raises a `ConfigurationError`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import given_settings
from orchestrator.app.config.settings import (
    Origin,
    SourceKind,
    check_value,
    load_settings,
    nearest_to,
    read_toml,
    unknown_key,
)
from orchestrator.app.options import RENAMED, Reach, all_options, flag_of
from orchestrator.app.wiring.repository import label_of
from orchestrator.core.addresses import holds_credential, ip_address
from orchestrator.core.checks import is_whole
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.redaction import is_secret_name
from orchestrator.core.repositories import repository_key
from orchestrator.engine.models.keys import secret_values
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from orchestrator.app.config.settings import Settings

DEFAULT_EVERY = "10m"
"""Interval between two looks at a repository without a schedule of its own."""
_TABLES = ("fleet", "defaults", "repository")
_FLEET_KEYS = (
    "health",
    "lease_seconds",
    "max_usd_per_day",
    "most_running",
    "parallel",
    "timezone",
    "webhook",
)
_OWN_KEYS = ("name", "token_env")
_WHEN = ("every", "cron")
_NOT_IN_A_FLEET = {
    "max_cycles": "a fleet runs without end: leave it out, or pass --once for one cycle per repository"
}
_OTHER_IDENTITIES = frozenset({"GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "PULLWRIGHT_GITHUB_APP_ID"})
"""Variables that a cycle would use in addition to the repository's token, or instead of it."""
_MOST_REPOSITORIES = 1_000
_MOST_PARALLEL = 16
_LEAST_LEASE = 6
_MOST_LEASE = 3_600
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on. Port 0 selects any free port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FleetRepository:
    """One repository of a fleet.

    Attributes:
        name: owner/name, a URL, or a path.
        settings: options by key, including those for all repositories.
        environ: the environment variables for this repository, with its token.
    """

    name: str
    settings: Mapping[str, Any]
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FleetFile:
    """The contents of a fleet's file.

    Attributes:
        health: address that serves the state of the fleet; None if it is not served.
        parallel: maximum number of concurrent cycles of one worker.
        most_running: maximum number of concurrent cycles of all workers; None for no limit.
        max_usd_per_day: maximum cost of all cycles in a UTC day; None for no limit.
        webhook: address that receives GitHub's webhooks; None if they are not received.
        lease_seconds: silence after which a worker counts as dead; None for the default.
    """

    repositories: tuple[FleetRepository, ...]
    health: ListenAddress | None
    parallel: int
    most_running: int | None = None
    max_usd_per_day: float | None = None
    lease_seconds: int | None = None
    webhook: ListenAddress | None = None


def load_fleet(path: Path, environ: Mapping[str, str]) -> FleetFile:
    """Read and check a fleet's file.

    `[fleet]` configures the worker, `[defaults]` has options for all repositories, and each `[[repository]]`
    has a name, options, and the variable that holds the token.

    Raises:
        ConfigurationError: one line that names the file and the wrong key.
    """
    redactor = Redactor(secret_values(environ))
    values = read_toml(path, is_read_once=True)
    if values is None:
        raise ConfigurationError(f"there is no file {path}: --config names the fleet's file")
    _refuse_secrets(values, str(path), redactor, "")
    return _Reader(path, environ).fleet(values)


def _refuse_secrets(value: Any, place: str, redactor: Redactor, key: str) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if redactor.holds_secret(name):
                raise ConfigurationError(f"{place} holds what looks like a key or password as a key's name")
            _refuse_secrets(item, place, redactor, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for item in value:
            _refuse_secrets(item, place, redactor, key)
    elif isinstance(value, str) and redactor.holds_secret(value):
        raise ConfigurationError(
            f"{key} in {place} holds what looks like a key or password: "
            "put it into an environment variable, and name that with token_env"
        )


class _Reader:
    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ

    def fleet(self, values: dict[str, Any]) -> FleetFile:
        self._refuse_unknown(values, _TABLES, str(self._path))
        fleet = self._table(values, "fleet")
        self._refuse_unknown(fleet, _FLEET_KEYS, f"[fleet] in {self._path}")
        defaults = self._table(values, "defaults")
        self._check_settings(defaults, f"[defaults] in {self._path}")
        if "timezone" in fleet:
            self._check_settings({"timezone": fleet["timezone"]}, f"[fleet] in {self._path}")
            defaults = {"timezone": fleet["timezone"], **defaults}
        listed = values.get("repository")
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise ConfigurationError(f"{self._path} names no repository: write [[repository]] and name = ...")
        if len(listed) > _MOST_REPOSITORIES:
            raise ConfigurationError(f"{self._path} names more than {_MOST_REPOSITORIES:,} repositories")
        repositories = tuple(self._repository(one, defaults) for one in listed)
        return FleetFile(
            repositories,
            self._address(fleet, "health"),
            self._number(fleet, "parallel", 1, _MOST_PARALLEL) or 1,
            self._number(fleet, "most_running", 1, _MOST_REPOSITORIES),
            self._daily_limit(fleet, repositories),
            self._number(fleet, "lease_seconds", _LEAST_LEASE, _MOST_LEASE),
            self._address(fleet, "webhook"),
        )

    def _table(self, values: dict[str, Any], name: str) -> dict[str, Any]:
        table = values.get(name, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"{name} in {self._path} must be a table: write [{name}]")
        return table

    def _refuse_unknown(self, table: dict[str, Any], known: tuple[str, ...], place: str) -> None:
        for key in table:
            if key not in known:
                raise ConfigurationError(
                    f"{place} holds the unknown key {key!r}; the nearest known one is {nearest_to(key, known)!r}"
                )

    def _check_settings(self, table: dict[str, Any], place: str) -> None:
        for name, value in table.items():
            key = RENAMED.get(name, name)
            if key not in all_options():
                raise ConfigurationError(self._unknown(key, place))
            if all_options()[key].reach is Reach.TYPED:
                raise ConfigurationError(f"{key} of {place} has no effect there: type {flag_of(key)}")
            if key in _NOT_IN_A_FLEET:
                raise ConfigurationError(f"{key} of {place} has no effect there: {_NOT_IN_A_FLEET[key]}")
            check_value(key, value, Origin(SourceKind.USER_FILE, place))
        if all(key in table for key in _WHEN):
            raise ConfigurationError(f"every and cron of {place} exclude each other: leave one of them out")

    def _unknown(self, key: str, place: str) -> str:
        if re.fullmatch(r"(github_?)?token|pat", key.lower()):
            return f'{place} holds {key!r}: write token_env = "NAME", the variable that holds the token'
        return unknown_key(key, Path(place))

    def _repository(self, table: dict[str, Any], defaults: dict[str, Any]) -> FleetRepository:
        name = table.get("name")
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ConfigurationError(
                f"a [[repository]] in {self._path} has no name: owner/name, a URL, or a path"
            )
        if holds_credential(name):
            raise ConfigurationError(
                f"a name of a [[repository]] in {self._path} holds a credential: take it out, and use token_env"
            )
        place = f"[[repository]] {name} in {self._path}"
        own = {key: value for key, value in table.items() if key not in _OWN_KEYS}
        self._check_settings(own, place)
        left_out = _WHEN if _has_schedule(own) else ()
        settings = {key: value for key, value in defaults.items() if key not in left_out} | own
        if not _has_schedule(settings):
            settings["every"] = DEFAULT_EVERY
        if "token_env" in table and "github_app_id" in settings:
            raise ConfigurationError(f"token_env and github_app_id of {place} exclude each other")
        return FleetRepository(self._resolved(name), settings, self._variables(table.get("token_env"), place))

    def _resolved(self, name: str) -> str:
        """Resolve a path against the folder of the file, and return other names unchanged."""
        folder = (self._path.parent / Path(name).expanduser()).absolute()
        return str(folder.resolve()) if folder.is_dir() else name

    def _variables(self, token_env: Any, place: str) -> Mapping[str, str]:
        if token_env is None:
            return dict(self._environ)
        if not isinstance(token_env, str) or not _VARIABLE.fullmatch(token_env):
            raise ConfigurationError(f"token_env of {place} must be the name of an environment variable")
        if not is_secret_name(token_env):
            raise ConfigurationError(
                f"token_env of {place} names {token_env}, which commands of the model could read: "
                "give the variable a name that ends in _TOKEN"
            )
        token = self._environ.get(token_env, "").strip()
        if not token:
            raise ConfigurationError(f"token_env of {place} names {token_env}, which is not set")
        others = {key: value for key, value in self._environ.items() if key not in _OTHER_IDENTITIES}
        # One is for github.com, the other for an Enterprise server.
        return {**others, "GITHUB_TOKEN": token, "GH_ENTERPRISE_TOKEN": token}

    def _number(self, fleet: dict[str, Any], key: str, least: int, most: int) -> int | None:
        value = fleet.get(key)
        if value is None:
            return None
        if not is_whole(value) or not least <= value <= most:
            raise ConfigurationError(f"{key} in {self._path} must be a whole number from {least} to {most}")
        return value

    def _daily_limit(self, fleet: dict[str, Any], repositories: tuple[FleetRepository, ...]) -> float | None:
        """Return the daily limit on US dollars, or None if there is none.

        The maximum cost of a cycle is reserved before it begins, so each repository needs `max_usd`.
        """
        value = fleet.get("max_usd_per_day")
        if value is None:
            return None
        if not (is_whole(value) or isinstance(value, float)) or not 0 < value < math.inf:
            raise ConfigurationError(
                f"max_usd_per_day in {self._path} must be a number of US dollars above 0"
            )
        if without := next((one for one in repositories if "max_usd" not in one.settings), None):
            raise ConfigurationError(
                f"max_usd_per_day in {self._path} needs max_usd for each repository, "
                f"and {without.name} has none: write it into [defaults]"
            )
        return float(value)

    def _address(self, fleet: dict[str, Any], key: str) -> ListenAddress | None:
        value = fleet.get(key)
        return None if value is None else listen_address(value, f"{key} in {self._path}")


def listen_address(value: Any, name: str) -> ListenAddress:
    """Parse an address to listen on: `HOST:PORT`, or only a port of this machine.

    Args:
        name: what has this value, for messages.
    """
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    is_port = port.isascii() and port.isdigit() and int(port[:6]) <= _MAX_PORT
    if not (is_port and (ip_address(host) or _HOST_NAME.fullmatch(host))):
        raise ConfigurationError(f"{name} must be an address such as 127.0.0.1:8787, or only a port")
    return ListenAddress(host, int(port))


def _has_schedule(table: Mapping[str, Any]) -> bool:
    return any(key in table for key in _WHEN)


class FleetSettings:
    """The settings of the repositories of a fleet's file, under the options that were typed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._typed = given_settings(options)

    def flags(self, repository: FleetRepository) -> Mapping[str, object]:
        """Return the file's options, replaced by those that were typed. A typed schedule replaces the file's."""
        when = {"every", "cron"}
        typed_when = bool(when & self._typed.keys())
        own = {key: value for key, value in repository.settings.items() if not (typed_when and key in when)}
        return {**own, **self._typed}

    def of(self, repository: FleetRepository) -> Settings:
        """Return the settings of a repository."""
        named = partial(label_of, repository.name)
        return load_settings(self.flags(repository), repository.environ, Path.cwd(), named).settings

    def key(self, repository: FleetRepository) -> str:
        """Return the key by which all machines know a repository."""
        return repository_key(label_of(repository.name, self.of(repository)))
