"""The environment on another machine, by the `ssh` program and one connection that all calls share."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.checks import check_kind
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.engine.environments.remote import RemoteEnvironment
from orchestrator.engine.environments.starting import start_program

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock

CONNECT_SECONDS = 20
PERSIST_SECONDS = 300
"""How long the shared connection outlives this program, if it could not close it."""

_CLOSE_SECONDS = 1.0
_MAX_SOCKET_CHARS = 80  # a socket's path may have 104 bytes on macOS, and ssh puts 17 behind it for a moment
_DESTINATION = re.compile(
    r"((?:[^@\s:/-][^@\s:/]*@)?(?:\[[0-9a-fA-F:.%\w]+\]|[^@\s:/\[\]-][^@\s:/\[\]]*))(?::(\d{1,5}))?"
)
_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")

_OURS = {
    "BatchMode": "yes",
    "ControlMaster": "auto",
    "ControlPersist": str(PERSIST_SECONDS),
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
}
"""Options that every call has (https://man.openbsd.org/ssh_config); nobody is asked for a password."""


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where to connect.

    Attributes:
        destination: `user@host:port`, `host`, or a name of the user's ssh configuration; `[...]`
            around an IPv6 address.
        folder: the working folder there; relative to the login folder, if it is not absolute.
        options: more of ssh's options, such as `StrictHostKeyChecking` or `IdentityFile`. Host keys
            are otherwise checked as the user's own ssh configuration says.
        config_file: read instead of the user's ssh configuration.
    """

    destination: str
    folder: str
    options: Mapping[str, str] | None = None
    config_file: Path | None = None


class SshCarrier:
    """Builds `ssh` command lines.

    Args:
        target: where to connect.
        inherited: this program's variables, from which ssh gets only what it needs; None reads them.

    Raises:
        ConfigurationError: the destination makes no sense, or there is no `ssh` program.
    """

    def __init__(self, target: SshTarget, inherited: Mapping[str, str] | None = None) -> None:
        check_kind("target", target, SshTarget, "an SshTarget")
        check_kind("destination", target.destination, str, "a text")
        check_kind("folder", target.folder, str, "a text")
        if target.options is not None:
            check_kind("options", target.options, Mapping, "ssh's options by name")
        spelled = _DESTINATION.fullmatch(target.destination)
        if spelled is None:
            raise ConfigurationError(
                f"{target.destination!r} is no SSH destination: write user@host or user@host:port"
            )
        host, port = spelled.groups()
        variables = os.environ if inherited is None else inherited
        program = shutil.which("ssh", path=variables.get("PATH"))
        if program is None:
            raise ConfigurationError("there is no ssh program: install openssh-client")
        self._host = host.replace("[", "").replace("]", "")
        self._target = target
        self._port = ["-p", port] if port else []
        self._program = program
        self._variables = {name: variables[name] for name in _NEEDED if name in variables}
        self._private: Path | None = None

    @property
    def name(self) -> str:
        """See `Carrier`."""
        return self._target.destination

    @property
    def folder(self) -> str:
        """See `Carrier`."""
        return self._target.folder.removeprefix("~/") or "."

    def argv(self, line: str) -> list[str]:
        """See `Carrier`."""
        return [*self._base(), "--", self._host, f"exec sh -c {shlex.quote(line)}"]

    def variables(self) -> Mapping[str, str]:
        """See `Carrier`. ssh sends variables on if it has them (`SendEnv`), so it has few."""
        return self._variables

    async def open(self) -> None:
        """Connect, and leave the connection for the calls to come.

        Raises:
            ToolError: the host cannot be reached, is not known, or lets us not in.
        """
        self._private = _private_folder()  # in a thread, a cancelled call would leave it
        complaints = self._private / "complaints"  # a file: the connection that stays would hold a pipe
        with complaints.open("wb") as stderr:
            process = await start_program(
                *self.argv("exit 0"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env=dict(self._variables),
            )
            status = await _end_of(process, CONNECT_SECONDS + 5.0)
        if status != 0:
            said = " ".join(complaints.read_text("utf-8", "replace").split()) or "it said nothing"
            raise ToolError(f"{self.name} cannot be reached: {said}")

    async def close(self) -> None:
        """Close the connection and remove its socket."""
        if self._private is None:
            return
        process = await start_program(
            *self._base(),
            "-O",
            "exit",
            "--",
            self._host,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(self._variables),
        )
        await _end_of(process, _CLOSE_SECONDS)
        private, self._private = self._private, None
        shutil.rmtree(private, ignore_errors=True)

    def _base(self) -> list[str]:
        if self._private is None:
            raise ToolError(f"{self.name} is not connected")
        options = {**_OURS, "ControlPath": str(self._private / "s"), **_not_ours(self._target.options or {})}
        config = ["-F", str(self._target.config_file)] if self._target.config_file else []
        pairs = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [self._program, *config, *self._port, *pairs]


class SshEnvironment(RemoteEnvironment):
    """An `ExecutionEnvironment` on another machine; see `RemoteEnvironment` for what it needs there.

    Example::

        environment = SshEnvironment(SshTarget("me@build.example:2222", "/srv/project"))

    Args:
        target: where to connect.
        clock: measures how long commands take.
        use_ripgrep: False searches with `grep -E` even where there is an `rg`.
        inherited: this program's variables, from which ssh gets only what it needs; None reads them.

    Raises:
        ConfigurationError: the destination makes no sense, or there is no `ssh` program.
    """

    def __init__(
        self,
        target: SshTarget,
        *,
        clock: Clock | None = None,
        use_ripgrep: bool = True,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(SshCarrier(target, inherited), clock=clock, use_ripgrep=use_ripgrep)


def _not_ours(options: Mapping[str, str]) -> dict[str, str]:
    taken = {name.lower() for name in (*_OURS, "ControlPath")}
    for name in options:
        if name.lower() in taken:
            raise ConfigurationError(f"the SSH option {name} is set by this environment and cannot be given")
    return dict(options)


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pw-"))
    if len(str(folder)) <= _MAX_SOCKET_CHARS:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))  # short enough; its mode is 0700


async def _end_of(process: asyncio.subprocess.Process, seconds: float) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
