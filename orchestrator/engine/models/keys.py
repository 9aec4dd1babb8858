"""Keys and tokens: the environment variables that hold them, and all values that must never be shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator.core.addresses import is_loopback, server_of
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import read_own
from orchestrator.core.redaction import is_common, parts_to_hide

Environment: TypeAlias = Mapping[str, str]

APP_KEY = "PULLWRIGHT_GITHUB_APP_KEY"
APP_KEY_FILE = "PULLWRIGHT_GITHUB_APP_KEY_FILE"
OTHER_KEY = "PULLWRIGHT_API_KEY"

_MAX_KEY_FILE_BYTES = 100_000


def _key(*variables: str) -> Any:
    """Define a key by its variables. The first one that is set is used."""
    return field(default=None, metadata={"variables": variables})


@dataclass(frozen=True, slots=True)
class NamedKey:
    """The key in a variable that the person names for one server.

    Attributes:
        key: None if the variable is not set.
        api_url: address of the server.
    """

    variable: str
    key: str | None = field(repr=False)
    api_url: str


@dataclass(frozen=True, slots=True, repr=False)
class ApiKeys:
    """The keys in the environment; None for those that are not set. The `repr` does not show them.

    Attributes:
        other: key for the server of `api_url`.
        embedding: key for the server of `embedding_api_url`.
        webhook: address that a digest is sent to; everybody who knows it may post there.
        webhook_secret: secret that signs GitHub's webhooks to a fleet.
        database: URL of a fleet's PostgreSQL database, with its password.
        github: token for github.com and the configured server.
        github_enterprise: token for every server but github.com.
        github_app: private key of a GitHub App, PEM text.
        named: key of the model's server in a variable that the person names; None if they name none.
    """

    openai: str | None = _key("OPENAI_API_KEY")
    anthropic: str | None = _key("ANTHROPIC_API_KEY")
    gemini: str | None = _key("GEMINI_API_KEY", "GOOGLE_API_KEY")
    other: str | None = _key(OTHER_KEY)
    tavily: str | None = _key("TAVILY_API_KEY")
    brave: str | None = _key("BRAVE_API_KEY")
    exa: str | None = _key("EXA_API_KEY")
    embedding: str | None = _key("PULLWRIGHT_EMBEDDING_API_KEY")
    webhook: str | None = _key("PULLWRIGHT_WEBHOOK")
    webhook_secret: str | None = _key("PULLWRIGHT_WEBHOOK_SECRET")
    database: str | None = _key("PULLWRIGHT_DATABASE_URL")
    github: str | None = _key("GITHUB_TOKEN", "GH_TOKEN")
    github_enterprise: str | None = _key("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    github_app: str | None = _key(APP_KEY, APP_KEY_FILE)
    named: NamedKey | None = None

    def __repr__(self) -> str:
        return "ApiKeys()"

    @classmethod
    def of(cls, environ: Environment, variable: str | None = None, api_url: str = "") -> ApiKeys:
        """Read the keys from an environment.

        Args:
            variable: has the key for the server at `api_url`; None if the usual variable has it.

        Raises:
            ConfigurationError: a value cannot be a key, or the App's key file cannot be read.
        """
        plain = {
            name: _first(environ, variables) for name, variables in VARIABLES.items() if name != "github_app"
        }
        named = None if variable is None else NamedKey(variable, _first(environ, (variable,)), api_url)
        return cls(**plain, github_app=_app_key(environ), named=named)


VARIABLES: dict[str, tuple[str, ...]] = {
    key.name: key.metadata["variables"] for key in fields(ApiKeys) if key.metadata
}
"""The variables of each key."""


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The key that a model server may get.

    Attributes:
        key: None if none is set for it.
        variable: the environment variable to set for this server.
        refusal: what to do if the server refuses a request without a key.
    """

    key: str | None = field(repr=False)
    variable: str
    refusal: str = ""


def key_for_server(keys: ApiKeys, api_url: str, key_host: Iterable[str], protocol: str) -> ServerKey:
    """Return the key for a model server. No other code decides this.

    ==============================================  ===============================================
    key                                             goes to
    ==============================================  ===============================================
    that of `api_key_variable`                      the server of the model beside which it is set; if
                                                    it has another use, only where that permits it
    a vendor's                                      the vendor's own servers (`vendor_of`), and the
                                                    servers that the person names in `key_host`
    PULLWRIGHT_API_KEY                              every other server
    ==============================================  ===============================================

    Args:
        key_host: the value of this option.
        protocol: the vendor whose protocol the server speaks, for the words of the refusal.

    Raises:
        ConfigurationError: the server may get a vendor's key, but would get it over a plain connection.
    """
    from orchestrator.engine.models.catalog import vendor_of

    own, place, named = vendor_of(api_url), server_of(api_url), keys.named
    if named is not None and place is not None and server_of(named.api_url) == place:
        of = next((name for name, variables in VARIABLES.items() if named.variable in variables), "other")
        if of in {"other", own}:
            return ServerKey(named.key, named.variable, f"set {named.variable} to the key of {place}")
    if own is not None:
        return ServerKey(getattr(keys, own), VARIABLES[own][0])
    for vendor, _, host in (one.partition("=") for one in key_host):
        if place is None or server_of(f"{place.scheme}://{host}") != place:
            continue
        if place.scheme != "https" and not is_loopback(place.host):
            raise ConfigurationError(
                f"key_host names {host}, but {api_url} is not encrypted: use https:// for that server"
            )
        return ServerKey(getattr(keys, vendor), VARIABLES[vendor][0])
    unused = next((name for name in VARIABLES[protocol] if getattr(keys, protocol) is not None), "")
    where = f"{place or api_url}"
    refusal = f"set {OTHER_KEY} to the key of {where}"
    if unused:
        refusal += f" ({unused} goes to its vendor only; --key-host {protocol}={where} lets it go there)"
    return ServerKey(keys.other, OTHER_KEY, refusal)


def secret_values(environ: Environment) -> list[str]:
    """Return every secret value of the environment: the keys, and what `core.redaction` finds secret.

    A key file that cannot be read adds nothing; `ApiKeys.of` reports it.
    """
    ours = {variable for variables in VARIABLES.values() for variable in variables} - {APP_KEY_FILE}
    found = []
    # The names of the user and of this machine, which ordinary texts contain.
    public = {environ.get(name) for name in _PUBLIC_NAMES}
    for name, value in environ.items():
        if name in ours:
            found += [] if is_common(value) else [value.strip()]
        elif name != APP_KEY_FILE and value.strip() not in public:  # a path, which messages name
            found += parts_to_hide(name, value)
    with contextlib.suppress(ConfigurationError):
        found.append(_app_key(environ) or "")
    return list(dict.fromkeys(value for value in found if value))


_PUBLIC_NAMES = ("USER", "LOGNAME", "USERNAME", "HOSTNAME", "GITHUB_ACTOR", "GITHUB_REPOSITORY_OWNER")


def _first(environ: Environment, variables: tuple[str, ...]) -> str | None:
    for variable in variables:
        value = environ.get(variable, "").strip()
        if value:
            if not value.isascii() or not value.isprintable() or " " in value:
                raise ConfigurationError(
                    f"{variable} holds a space, a line break or another character that no key has"
                )
            return value
    return None


def _app_key(environ: Environment) -> str | None:
    text = environ.get(APP_KEY, "").strip()
    file = environ.get(APP_KEY_FILE, "").strip()
    source = APP_KEY
    if not text and file:
        source = f"{APP_KEY_FILE}={file}"
        try:
            text = read_own(Path(file).expanduser(), _MAX_KEY_FILE_BYTES).decode("ascii").strip()
        except OSError as error:
            raise ConfigurationError(f"{source} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{source} is not a private key in PEM form") from None
    if not text:
        return None
    text = text.replace("\\n", "\n")  # some secret stores write line breaks like this
    if "PRIVATE KEY-----" not in text:
        raise ConfigurationError(f"{source} is not a private key in PEM form")
    return text
