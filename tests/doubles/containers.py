"""A `docker` program without an engine, and a carrier that goes no further than a shell of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RIPGREP_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class FakeDocker:
    """`variables` put the program first on the path; `container` is one that runs."""

    folder: Path
    container: str = "web"

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "HOME": "/nonexistent",
            "HOST_SECRET": "not inside",
        }

    def calls(self) -> list[list[str]]:
        """The words of every command line so far."""
        noted = (self.folder / "calls").read_text().split("--\n")[1:]
        return [call.splitlines() for call in noted]

    def remove_container(self, name: str) -> None:
        (self.folder / f"{name}.container").unlink()


def fake_docker(folder: Path) -> FakeDocker:
    """Put the program into a folder, with one container running."""
    folder.mkdir()
    program = folder / "docker"
    shutil.copy(Path(__file__).with_name("docker_program.sh"), program)
    program.chmod(0o755)
    (folder / "path").write_text(RIPGREP_PATH)
    (folder / "web.container").write_text("running")
    (folder / "stopped.container").touch()
    return FakeDocker(folder)


@dataclass(slots=True)
class ShellCarrier:
    """Carries a script to a shell of this machine that knows only the programs of `path`."""

    folder: str
    shell: str
    path: str
    name: str = "the shell"
    opened: int = 0
    orders: list[str] = field(default_factory=list)

    def argv(self, line: str) -> list[str]:
        self.orders.append(line)
        return [self.shell, "-c", line]

    def variables(self) -> Mapping[str, str]:
        return {"PATH": self.path}

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened -= 1


BUSYBOX_PROGRAMS = (
    "sh dd find head wc stat xargs grep tr cat chmod mkdir mv rm sed uname setsid sleep kill touch ln ls pwd printf "
    "env"
)


def busybox_carrier(root: Path, programs: Path) -> ShellCarrier:
    """A machine as small as a container of busybox: no bash, no ripgrep, `find` without `-printf`."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    programs.mkdir()
    for name in BUSYBOX_PROGRAMS.split():
        (programs / name).symlink_to(busybox)
    return ShellCarrier(str(root), str(programs / "sh"), str(programs))
