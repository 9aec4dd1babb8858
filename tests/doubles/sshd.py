"""A real SSH server on the loopback, with keys and configuration of its own, for the time of the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.environments.ssh import SshTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "no sshd program (install openssh-server)"


def find_sshd() -> str | None:
    """The server's program, which must be started by its whole path."""
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True, slots=True)
class SshServer:
    """Where it listens, and what a client needs to be let in."""

    port: int
    folder: Path

    def target(self, working_folder: Path | str, **options: str) -> SshTarget:
        """The server as a target."""
        given = {
            "IdentityFile": str(self.folder / "user_key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "StrictHostKeyChecking": "yes",
            **options,
        }
        destination = f"{getpass.getuser()}@127.0.0.1:{self.port}"
        return SshTarget(destination, str(working_folder), given, self.folder / "ssh_config")


def serve(folder: Path) -> Iterator[SshServer]:
    """Start the server with its files in `folder`, and end it afterwards."""
    program = find_sshd()
    assert program is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it insists on it where it runs as root
    for name in ("host_key", "user_key"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host_key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
    (folder / "ssh_config").write_text("SendEnv *\n")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nAcceptEnv *\n"
        f"SetEnv HOME={folder} PATH={Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin\n"
    )
    command = [program, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")]
    with subprocess.Popen(command) as server:
        try:
            _await_port(port, server, folder)
            yield SshServer(port, folder)
        finally:
            server.terminate()


def _await_port(port: int, server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"sshd did not start: {(folder / 'log').read_text()}")
