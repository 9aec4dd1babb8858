"""The MCP servers configured by a person: `[mcp.servers.NAME]` in their own file, and `--mcp-config FILE`.

A repository cannot configure one, because a server is a program that runs on this machine, or a remote host
that receives parts of the task.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.app.config import user_file
from orchestrator.app.config.settings import nearest_to, read_json_file, read_toml
from orchestrator.app.forms import Address, Hosts  # noqa: TC001  pydantic reads the annotations
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.redaction import (
    SettingPiece,
    is_secret,
    is_secret_name,
    parts_of_arguments,
    parts_of_setting,
)
from orchestrator.plugins.mcp.base import (
    CALL_SECONDS,
    MOST_SECONDS,
    REPOSITORY,
    START_SECONDS,
    BrowserLogin,
    ClientLogin,
    McpServer,
    ServerAddress,
    ServerProgram,
)
from orchestrator.plugins.mcp.options import TABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.app.config.settings import Settings

_MOST_SERVERS = 50
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,62}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*+)(\}|:-)")
"""A variable, also as Cursor and VS Code write it: `${env:NAME}`."""
_INPUT = re.compile(r"\$\{((?:input|command|config):[^{}]{1,100})\}")
_WORKSPACE = "workspaceFolder"
_END = re.compile(r"\$\{|\}")
_MOST_NESTED = 10
_IGNORED_KEYS = frozenset(
    {
        "autoApprove",
        "alwaysAllow",
        "trust",
        "description",
        "gallery",
        "cwd",
        "timeout",
        "envFile",
        "dev",
        "version",
        *(
            "tools",
            "includeTools",
            "excludeTools",
            "enabledTools",
            "disabledTools",
            "disabled_tools",
            "enabled_tools",
        ),
        *(
            "icon",
            "name",
            "note",
            "comment",
            "_comment",
            "//",
            "source",
            "sandbox",
            "sandboxEnabled",
            "oauth",
        ),
        *(
            "headersHelper",
            "initTimeout",
            "requestTimeout",
            "networkTimeout",
            "startup_timeout_sec",
            "tool_timeout_sec",
        ),
    }
)
"""Keys of the common form that are ignored: `allow` alone decides what a tool may do."""
_OTHER_TYPES = {"local": "stdio", "remote": "http", "streamable_http": "http", "https": "http"}
_OTHER_ADDRESSES = ("serverUrl", "httpUrl", "endpoint")


_Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, strict=False)]
_Text = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"] | None = None
    command: _Text | None = Field(None, min_length=1)
    args: list[_Text] = []
    env: dict[str, _Text] = {}
    url: Address | None = None
    headers: dict[str, _Text] = {}
    disabled: bool = False
    allow: list[_Text] = []
    hosts: Hosts = ()
    read: list[_Text] = []
    repository: bool = False
    pin: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    login: Literal["browser"] | None = None
    client_id: _Text = ""
    client_secret: _Text = ""
    issuer: _Text = ""
    scope: _Text = ""
    start_seconds: _Seconds = START_SECONDS
    call_seconds: _Seconds = CALL_SECONDS


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The MCP servers of a run, sorted by name.

    Attributes:
        sources: the file of each server, by the server's name.
        notices: notices for the person, one line each.
        secrets: values that must not be shown in any text.
    """

    servers: tuple[McpServer, ...] = ()
    sources: Mapping[str, Path] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def server(self, name: str) -> McpServer:
        """Return the server with this name."""
        for one in self.servers:
            if one.name == name:
                return one
        if not self.servers:
            raise ConfigurationError(
                f"no MCP server is configured: write [mcp.servers.{name}] into your own file, or pass --mcp-config FILE"
            )
        near = nearest_to(name, [one.name for one in self.servers])
        raise ConfigurationError(f"there is no MCP server {name!r}; the nearest is {near!r}")


def load_mcp(settings: Settings, environ: Mapping[str, str]) -> McpConfig:
    """Read the servers of the user's own file and of `mcp_config`, which has precedence.

    Raises:
        ConfigurationError: a file cannot be read, or has an invalid value.
    """
    entries: dict[str, tuple[Any, Path]] = {}
    users = user_file(environ)
    table = (read_toml(users) or {}).get(TABLE, {})
    for name, entry in _servers_of(table, users, "servers", f"[{TABLE}]").items():
        entries[name] = entry, users
    named_file: str | None = getattr(settings, "mcp_config", None)
    if named_file is not None:
        path = Path(named_file).expanduser()
        listed = _common_form(read_json_file(path, flag="--mcp-config"))
        for name, entry in _servers_of(listed, path, "mcpServers", "").items():
            # Registries name servers like packages: `io.github/owner`, `@scope/name`.
            entries[name.removeprefix("@").replace("/", "-")] = entry, path
    if len(entries) > _MOST_SERVERS:
        raise ConfigurationError(f"at most {_MOST_SERVERS} MCP servers can be configured, not {len(entries)}")
    unconfined: tuple[str, ...] = getattr(settings, "mcp_unconfined", ())
    reader = _Reader(environ, frozenset(unconfined))
    servers = reader.servers(entries, {name for name, (_, path) in entries.items() if path != users})
    for name in unconfined:
        if name not in entries:
            raise ConfigurationError(f"--mcp-unconfined {name}: there is no MCP server of this name")
    return McpConfig(
        tuple(filter(None, servers)),
        {name: path for name, (_, path) in entries.items()},
        tuple(reader.notices),
        tuple(dict.fromkeys(reader.secrets)),
    )


def _common_form(value: Any) -> Any:
    """Return the common form of a file as VS Code has it: `{"servers": …}`, also below `mcp` in its settings.

    Zed has `context_servers`, opencode `mcp` alone, and Continue a list of entries with names.
    """
    if not isinstance(value, dict):
        return value
    if isinstance(listed := value.get("mcpServers"), list):
        named = {
            one["name"]: one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str)
        }
        return {"mcpServers": named} if named and len(named) == len(listed) else value
    if "mcpServers" in value:
        return value
    settings = value.get("mcp")
    inner = settings if isinstance(settings, dict) else value
    for key in ("servers", "mcp.servers", "mcp_servers", "context_servers", "amp.mcpServers"):
        if key in inner:
            return {"mcpServers": inner[key]}
    if inner is settings and inner and all(isinstance(entry, dict) for entry in inner.values()):
        return {"mcpServers": inner}
    return value


def _servers_of(table: object, path: Path, key: str, where: str) -> dict[str, Any]:
    place = f"{where} in {path}".strip()
    if not isinstance(table, dict):
        raise ConfigurationError(f"{place}: must be a table with {key}")
    if where and (unknown := next((name for name in table if name != key), None)):
        raise ConfigurationError(
            f"{place} holds the unknown key {unknown!r}; servers are written [mcp.servers.NAME]"
        )
    servers = table.get(key, {} if where else None)
    if not isinstance(servers, dict):
        raise ConfigurationError(f'{place}: must hold an object "{key}" with one entry per server')
    return servers


def _usual_form(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry as other programs write it in the form that is read here.

    https://docs.windsurf.com, https://google-gemini.github.io/gemini-cli, https://docs.github.com/copilot: other names
    of the address and of the type, `enabled`, null for what is not given, and numbers in `env` and `args`.
    https://opencode.ai/docs, https://zed.dev/docs: the command with its arguments. Codex names variables for headers.
    """
    entry = {key: value for key, value in raw.items() if value is not None}
    _join_command(entry)
    _name_variables(entry)
    for name in _OTHER_ADDRESSES:
        if name in entry and "url" not in entry:
            entry["url"] = entry.pop(name)
    if "transport" in entry and "type" not in entry:
        entry["type"] = entry.pop("transport")
    if isinstance(kind := entry.get("type"), str):
        entry["type"] = _OTHER_TYPES.get(kind.lower(), kind)
    if isinstance(entry.get("enabled"), bool) and not entry.pop("enabled"):
        entry["disabled"] = True
    for key in ("env", "headers"):
        if isinstance(values := entry.get(key), dict):
            entry[key] = {name: _as_written(value) for name, value in values.items() if value is not None}
    if isinstance(listed := entry.get("args"), list):
        entry["args"] = [_as_written(value) for value in listed]
    return entry


def _join_command(entry: dict[str, Any]) -> None:
    """Write the command, the variables and the headers of Zed, opencode and the registries in the usual form."""
    if isinstance(command := entry.get("command"), dict):
        entry |= {"args": [], **command, "command": command.get("path")}
        entry.pop("path", None)
    elif isinstance(command, list) and command and "args" not in entry:
        entry["command"], entry["args"] = command[0], command[1:]
    for other, key in (("environment", "env"), ("http_headers", "headers")):
        if other in entry and key not in entry:
            entry[key] = entry.pop(other)
    for key in ("env", "headers"):
        if isinstance(pairs := entry.get(key), list) and all(
            isinstance(pair, dict) and isinstance(pair.get("name"), str) for pair in pairs
        ):
            entry[key] = {pair["name"]: pair.get("value") for pair in pairs}


def _name_variables(entry: dict[str, Any]) -> None:
    """Write the variables that Codex takes headers and values from in the usual form."""
    if isinstance(name := entry.pop("bearer_token_env_var", None), str):
        entry["headers"] = {**entry.get("headers", {}), "Authorization": f"Bearer ${{{name}}}"}
    if isinstance(names := entry.pop("env_http_headers", None), dict):
        entry["headers"] = {
            **entry.get("headers", {}),
            **{key: f"${{{name}}}" for key, name in names.items()},
        }
    if isinstance(names := entry.pop("env_vars", None), list):
        entry["env"] = {**{str(name): f"${{{name}}}" for name in names}, **entry.get("env", {})}


def _as_written(value: object) -> object:
    """Return a number or a truth value as the text that stands in the file."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


class _MissingVariableError(Exception):
    """A variable that a server needs is not set."""


@dataclass(slots=True)
class _Reader:
    """Creates servers from entries, and collects notices and secrets."""

    environ: Mapping[str, str]
    unconfined: frozenset[str]
    notices: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)

    def servers(
        self, entries: Mapping[str, tuple[Any, Path]], foreign: Collection[str]
    ) -> list[McpServer | None]:
        """Return the server of each entry. A wrong one in a file of another program costs the others nothing.

        One of the person's own file is an error, and so is a foreign file in which each is wrong.
        """
        found: list[McpServer | None] = []
        wrong: list[ConfigurationError] = []
        for name, (entry, path) in sorted(entries.items()):
            try:
                found.append(self.server(name, entry, path))
            except ConfigurationError as error:
                if name not in foreign:
                    raise
                wrong.append(error)
        if wrong and len(wrong) == len(foreign):
            raise wrong[0]
        self.notices += [f"left out: {error}" for error in wrong]
        return found

    def server(self, name: str, raw: object, path: Path) -> McpServer | None:
        """Return the server of an entry; None if it is disabled or a variable is missing."""
        where = f"the MCP server {name!r} in {path}"
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{where}: a name has at most 64 letters, digits, spaces and . _ -")
        if not isinstance(raw, dict):
            raise ConfigurationError(f"{where}: must be a table with command or url")
        raw = _usual_form(raw)
        if raw.get("disabled") is True:
            return None
        ignored = sorted(_IGNORED_KEYS & raw.keys())
        if ignored:
            self.notices.append(f"{where}: {', '.join(ignored)} has no effect")
        known = {key: value for key, value in raw.items() if key not in ignored}
        try:
            entry = _entry({**known, **self._expanded(known, where)}, where)
        except _MissingVariableError as error:
            self.notices.append(f"{where} is left out: {error}")
            return None
        place = self._program(name, entry, where) if entry.command else self._address(entry, where)
        return McpServer(name, place, tuple(entry.allow), entry.pin, entry.start_seconds, entry.call_seconds)

    def _program(self, name: str, entry: _Entry, where: str) -> ServerProgram:
        if entry.url or entry.headers or entry.client_id or entry.login or entry.type not in {None, "stdio"}:
            raise ConfigurationError(
                f"{where}: has command, so it takes no url, headers, login, client_id or type other than stdio"
            )
        command = entry.command or ""
        return ServerProgram(
            str(Path(command).expanduser()) if command.startswith("~") else command,
            tuple(entry.args),
            entry.env,
            entry.hosts,
            tuple(str(Path(one).expanduser()) for one in entry.read),
            repository=entry.repository,
            is_confined=name not in self.unconfined,
        )

    def _address(self, entry: _Entry, where: str) -> ServerAddress:
        if entry.url is None:
            raise ConfigurationError(f"{where}: needs command, for a program, or url")
        for key in ("args", "env", "hosts", "read", "repository"):
            if getattr(entry, key):
                raise ConfigurationError(
                    f"{where}: {key} is for a server with command; take it out, or use command instead of url"
                )
        if entry.type == "stdio":
            raise ConfigurationError(f"{where}: has url, so its type cannot be stdio")
        parts = urlsplit(entry.url)
        if (
            parts.scheme != "https"
            and not is_loopback(parts.hostname or "")
            and (entry.headers or entry.client_id)
        ):
            raise ConfigurationError(
                f"{where}: headers and secrets are sent over https:// only; use an https:// url"
            )
        return ServerAddress(entry.url, entry.headers, entry.type == "sse", _login(entry, where))

    def _expanded(self, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the entry's texts with `${NAME}` replaced by variables.

        Secrets are allowed only where no other user of the machine can read them.
        """
        found: dict[str, Any] = {}
        for key in ("command", "url", "issuer", "client_id", "scope"):
            if key in raw:
                found[key] = self._shown([raw[key]], where, key)[0]
        for key in ("args", "hosts", "read"):
            if isinstance(raw.get(key), list):
                found[key] = self._shown(raw[key], where, key)
        for key in ("env", "headers"):
            if isinstance(raw.get(key), dict):
                found[key] = {name: self._value(name, text, where) for name, text in raw[key].items()}
        if "client_secret" in raw:
            found["client_secret"] = self._value("client_secret", raw["client_secret"], where)
        return found

    def _value(self, name: str, text: object, where: str) -> object:
        """Expand a value that may be a secret, and record it for redaction."""
        if not isinstance(text, str):
            return text
        pieces = self._pieces(text, name)
        filled = "".join(piece.text for piece in pieces)
        self.secrets += parts_of_setting(name, pieces)
        if text == filled and is_secret_name(name) and filled:
            self.notices.append(
                f"{where}: {name} is written into the file; write ${{NAME}} and set that variable"
            )
        return filled

    def _shown(self, texts: list[Any], where: str, key: str) -> list[Any]:
        """Expand values that every user of this machine can read. What looks like a secret is redacted even so."""
        expanded = [self._pieces(text, key) if isinstance(text, str) else None for text in texts]
        for piece in (piece for pieces in expanded for piece in pieces or ()):
            if piece.variable and is_secret(piece.variable, piece.text):
                raise ConfigurationError(
                    f"{where}: {key} would show the secret {piece.variable} to everybody on this machine; "
                    "use env or headers"
                )
        self.secrets += parts_of_arguments([pieces for pieces in expanded if pieces is not None])
        return [
            text if pieces is None else "".join(piece.text for piece in pieces)
            for text, pieces in zip(texts, expanded, strict=True)
        ]

    def _pieces(self, text: str, key: str, depth: int = 0) -> list[SettingPiece]:
        """Return a text with its variables replaced, each as a piece. A default may hold variables itself."""
        found: list[SettingPiece] = []
        position = 0
        if asked := _INPUT.search(text):
            raise _MissingVariableError(
                f"{key} needs {asked[1]}, which only VS Code knows; write ${{NAME}} and set that variable"
            )
        while match := _VARIABLE.search(text, position):
            found.append(SettingPiece(text[position : match.start()]))
            name, default, position = match[1], None, match.end()
            if match[2] != "}":
                end = _end_of_default(text, match.end())
                if end is None:
                    return [*found, SettingPiece(text[match.start() :])]
                default, position = text[match.end() : end], end + 1
            value = self.environ.get(name) or _of_editor(name)
            if value and not _is_text(value):
                raise _MissingVariableError(f"the variable {name} is not UTF-8 text")
            if text[match.start() : position] == REPOSITORY or name == _WORKSPACE:
                found.append(SettingPiece(REPOSITORY))
            elif value:
                found.append(SettingPiece(value, variable=name))
            elif default is None:
                raise _MissingVariableError(
                    f"the variable {name} is not set, and {key} has no default for it"
                )
            elif depth == _MOST_NESTED:
                found.append(SettingPiece(default, is_default=True))
            else:
                found += [
                    piece if piece.variable else piece._replace(is_default=True)
                    for piece in self._pieces(default, key, depth + 1)
                ]
        return [*found, SettingPiece(text[position:])]


def _of_editor(name: str) -> str:
    """Return the value of a variable that editors set themselves; empty for any other."""
    return {"userHome": str(Path.home()), "pathSeparator": os.sep}.get(name, "")


def _is_text(value: str) -> bool:
    """Return whether a variable's bytes are UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _end_of_default(text: str, start: int) -> int | None:
    """Return where the brace is that ends a default; None if there is none."""
    depth = 0
    for match in _END.finditer(text, start):
        if match[0] == "}" and depth == 0:
            return match.start()
        depth += 1 if match[0] != "}" else -1
    return None


def _entry(values: Mapping[str, Any], where: str) -> _Entry:
    try:
        return _Entry.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            near = nearest_to(key, _Entry.model_fields)
            raise ConfigurationError(
                f"{where} holds the unknown key {key!r}; the nearest known one is {near!r}"
            ) from None
        raise ConfigurationError(f"{where}: {key} is not valid: {first['msg'].lower()}") from None


def _login(entry: _Entry, where: str) -> ClientLogin | BrowserLogin | None:
    given = (entry.client_id, entry.client_secret, entry.issuer)
    if entry.login == "browser":
        if entry.issuer or (entry.client_secret and not entry.client_id):
            raise ConfigurationError(
                f"{where}: login = browser takes client_id, client_secret and scope only"
            )
        return BrowserLogin(entry.client_id, entry.client_secret, entry.scope)
    if not any((*given, entry.scope)):
        return None
    if not all(given):
        raise ConfigurationError(f"{where}: to sign in it needs client_id, client_secret and issuer")
    if urlsplit(entry.issuer).scheme not in {"http", "https"}:
        raise ConfigurationError(f"{where}: issuer must be the address of the authorization server")
    return ClientLogin(entry.client_id, entry.client_secret, entry.issuer, entry.scope)
