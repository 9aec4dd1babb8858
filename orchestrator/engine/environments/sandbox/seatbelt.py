"""The sandbox of macOS: `sandbox-exec` with a profile that denies by default."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.core.event_loop import in_thread
from orchestrator.engine.environments.commands import ProgramLaunch, shell_program
from orchestrator.engine.environments.sandbox.limits import NICENESS, limits_as_shell
from orchestrator.engine.environments.sandbox.proxy import Proxy, host_rule, proxy_variables
from orchestrator.engine.environments.sandbox.visible import (
    Scratch,
    check_root,
    checked_grants,
    program_folders,
    toolchains,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxLimits, SandboxOptions

_SYSTEM = (
    "/System", "/usr", "/bin", "/sbin", "/Library/Apple", "/Library/Developer", "/private/var/db/timezone",
    "/private/var/select", "/private/etc/ssl", "/private/etc/localtime", "/opt/homebrew/bin",
    "/opt/homebrew/Cellar", "/opt/homebrew/opt", "/opt/homebrew/lib",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")


def seatbelt_profile(folder: SandboxFolder, *, readable: Sequence[str], scratch: str, port: int) -> str:
    """Return the rules for one command; the last rule that matches decides.

    Raises:
        ToolError: a path cannot be written in a rule.
    """
    root = folder.root
    read = " ".join(f"(subpath {_quoted(path)})" for path in (*_SYSTEM, *readable, root, scratch))
    written = " ".join(
        f"(subpath {_quoted(path)})" for path in ([] if folder.read_only else [root]) + [scratch]
    )
    devices = " ".join(f"(literal {_quoted(path)})" for path in _DEVICES)
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        f'(allow file-read* (literal "/") {read} {devices})',
        f"(allow file-write* {written})",
        '(allow file-write-data (literal "/dev/null"))',
        f'(allow network-outbound (remote tcp "localhost:{port}"))',
    ]
    rules += [
        f"(deny file-write* (subpath {_quoted(os.path.join(root, name))}))" for name in folder.protected
    ]
    return "\n".join([*rules, ""])


class SeatbeltSandbox:
    """A `Sandbox` of rules in the kernel. Commands share the machine's processes and loopback addresses.

    Args:
        inherited: this program's variables; its `PATH` determines which programs are readable.
    """

    name = "sandbox-exec"

    def __init__(self, options: SandboxOptions, inherited: Mapping[str, str]) -> None:
        self.options, self._inherited = options, dict(inherited)
        self.proxy = partial(Proxy, [host_rule(text) for text in options.hosts], options.connect)
        """Creates the proxy of one command."""
        more = checked_grants(options.readable, inherited)
        tools = toolchains(inherited, more)
        self.readable = [*program_folders(inherited, tools.readable), *more]
        # A folder cannot be replaced here, so folders that tools write to are in the private home instead.
        self._tools = {name: path for name, path in tools.variables.items() if path not in tools.private}

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. Empty here: each launch sets the variables, because they differ for each command."""
        return {}

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`."""
        return self._tools

    def open(self, folder: SandboxFolder) -> _OpenSeatbelt:
        """See `Sandbox`."""
        check_root(folder.root, self._inherited)
        return _OpenSeatbelt(self, folder)


class _OpenSeatbelt:
    """An `OpenSandbox`. Every command has its own rules, so no state is kept between commands."""

    def __init__(self, sandbox: SeatbeltSandbox, folder: SandboxFolder) -> None:
        self._sandbox, self._folder = sandbox, folder

    def launch(self, command: Command) -> _SeatbeltLaunch:
        sandbox, folder = self._sandbox, self._folder
        with ExitStack() as undo:
            scratch = Scratch()
            undo.callback(scratch.remove)
            listener = undo.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = listener.getsockname()[1]
            home = {"HOME": scratch.path, "TMPDIR": scratch.path, **proxy_variables(port)}
            rules = seatbelt_profile(folder, readable=sandbox.readable, scratch=scratch.path, port=port)
            undo.pop_all()  # the launch closes them from here on
        confined = replace(command, variables={**command.variables, **home})
        shell = shell_program(), "-c", command.line
        words = ["/usr/bin/sandbox-exec", "-p", rules, *with_limits(sandbox.options.limits), *shell]
        return _SeatbeltLaunch(words, confined, sandbox.proxy(), listener, scratch)

    async def close(self) -> None:
        """See `OpenSandbox`."""


class _SeatbeltLaunch(ProgramLaunch):
    """A `Launch` with its own proxy and folder for temporary files."""

    def __init__(
        self, argv: Sequence[str], command: Command, proxy: Proxy, listener: socket.socket, scratch: Scratch
    ) -> None:
        super().__init__(argv, command)
        self._proxy, self._listener, self._scratch = proxy, listener, scratch

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        return self._proxy.refused

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        await self._proxy.serve(self._listener)
        await super().start(stdout, stderr, stdin)

    async def close(self) -> None:
        try:
            await super().close()
            await self._proxy.close()
        finally:
            self._listener.close()
            await in_thread(self._scratch.remove)


def with_limits(limits: SandboxLimits) -> list[str]:
    """Return the words to put before a command line so that it runs with limits."""
    return ["/bin/sh", "-c", f'{limits_as_shell(limits)}; exec nice -n {NICENESS} "$@"', "sh"]


def _quoted(path: str) -> str:
    """Return a path as a string literal of the profile's language, which is a Lisp."""
    if not path.startswith("/") or any(not char.isprintable() for char in path):
        raise ToolError(f"the sandbox cannot name the path {path!a}; use one without control characters")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
