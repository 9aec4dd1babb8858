"""What containers are started from: an engine of this machine, `docker` or `podman`, and an image that it has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError
from orchestrator.core.redaction import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINES = ("docker", "podman")
LABEL = "pullwright"
"""Every container has it."""
OTHER = "or leave out --sandbox for the system's own"
"""Ends a message about a container that cannot be had."""
ASK_SECONDS = 30.0

_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR")
_NEEDED_BY_PREFIX = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_", "DBUS_SESSION_")
_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Engine:
    """The program that starts containers.

    Attributes:
        name: `docker` or `podman`.
        program: its path.
        variables: all that it is given; none of them is seen in a container.
        user: the words that make files of a container belong to who runs this.
    """

    name: str
    program: str
    variables: Mapping[str, str]
    user: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """What containers are started from.

    Attributes:
        name: as the person wrote it.
        number: what it was when this program began; a name may be given to another image meanwhile.
        architecture: such as `amd64`.
        variables: its own; what looks like a secret has no value.
        volumes: folders that would be on the disk of this machine.
    """

    name: str
    number: str
    architecture: str
    variables: Mapping[str, str]
    volumes: tuple[str, ...]


def find_image(wanted: str, inherited: Mapping[str, str]) -> tuple[Engine, Image]:
    """An image that is here already, and its engine. Getting one is the person's choice; nothing is started.

    Args:
        wanted: `docker:IMAGE` or `podman:IMAGE`.
        inherited: this program's variables.

    Raises:
        SandboxMissingError: the engine or the image is not to be had; the message says what to do.
    """
    name, _, image = wanted.partition(":")
    program = shutil.which(name, path=inherited.get("PATH"))
    if program is None or name not in ENGINES:
        raise SandboxMissingError(f"no sandbox for commands: there is no program {name}; install it, {OTHER}")
    variables = {
        variable: value
        for variable, value in inherited.items()
        if variable in _NEEDED or variable.startswith(_NEEDED_BY_PREFIX)
    }
    asked = Engine(name, program, variables, ())
    form = "{{json .SecurityOptions}}" if name == "docker" else "{{json .Host.Security}}"
    code, said = _ask(asked, "info", "--format", form)
    if code:
        raise SandboxMissingError(
            f"no sandbox for commands: {name} does not answer, start it, {OTHER}: {said}"
        )
    code, described = _ask(asked, "image", "inspect", "--", image)
    if code:
        raise SandboxMissingError(
            f"no sandbox for commands: {name} has no image {image}; get it with {name} pull {image}, {OTHER}"
        )
    engine = replace(asked, user=_user(name, said))
    _remove_unstarted(engine)
    return engine, _image(image, json.loads(described)[0])


def _ask(engine: Engine, *words: str) -> tuple[int, str]:
    """The exit code of a question to the engine, and its answer, or the last line of what it complained of."""
    try:
        ran = subprocess.run(  # noqa: S603  our own words, and a name after --
            [engine.program, *words],
            env=dict(engine.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"it said nothing for {ASK_SECONDS:.0f} seconds"
    except OSError as error:
        return 1, error.strerror or str(error)
    if ran.returncode:
        return ran.returncode, last_line(ran.stderr)
    return 0, ran.stdout.decode("utf-8", "replace")


def _user(engine: str, security: str) -> tuple[str, ...]:
    """Words for the user who runs this, whose own number a container's may be or may stand for."""
    own = f"{os.getuid()}:{os.getgid()}"
    if engine == "podman":
        return ("--user", own) if os.getuid() == 0 else ("--userns", "keep-id", "--user", own)
    if "name=rootless" in security:
        return ("--user", "0:0")
    return ("--userns", "host", "--user", own) if "name=userns" in security else ("--user", own)


def _image(name: str, described: dict[str, object]) -> Image:
    config = described.get("Config")
    config = config if isinstance(config, dict) else {}
    pairs = (line.partition("=") for line in config.get("Env") or ())
    variables = {name: "" if is_secret(name, value) else value for name, _, value in pairs}
    volumes = tuple(sorted(str(path) for path in config.get("Volumes") or ()))
    return Image(name, str(described["Id"]), str(described.get("Architecture")), variables, volumes)


def _remove_unstarted(engine: Engine) -> None:
    """Remove containers that a program made and was killed before it started them. Others end with their program."""
    made = ("ps", "--all", "--filter", f"label={LABEL}", "--filter", "status=created")
    code, names = _ask(engine, *made, "--format", "{{.Names}}")
    if code == 0:
        for name in names.split():
            owner = name.split("-")[1] if name.count("-") > 1 else ""
            if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):  # noqa: PTH110  a name
                _ask(engine, "rm", "--force", name)


def last_line(said: bytes) -> str:
    """The last line that says something, short enough to be shown."""
    lines = [
        line for line in said.decode("utf-8", "replace").splitlines() if line.strip() and "--help" not in line
    ]
    return lines[-1].strip()[:_SHOWN_CHARS] if lines else "it said nothing"
