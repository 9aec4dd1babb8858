"""The environment in a container, by the `docker` or `podman` program."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.checks import check_kind
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.engine.environments.remote import RemoteEnvironment
from orchestrator.engine.environments.starting import start_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.core.clock import Clock

PROGRAMS = ("docker", "podman")
"""Looked for in this order."""

START_SECONDS = 300.0
"""An image may have to be fetched first."""

_ASK_SECONDS = 20.0
_REMOVE_SECONDS = 1.5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*", re.ASCII)
_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK")
_NEEDED_BY_PREFIX = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_", "DBUS_SESSION_")
_IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that somebody else started and will remove: its name or number, and a folder in it."""

    container: str
    folder: str


@dataclass(frozen=True, slots=True)
class FreshContainer:
    """A container of its own, removed at the end.

    Attributes:
        image: what it is started from.
        mount: a folder of this machine, which is its working folder; a path or its text.
        folder: where that is seen inside.
        options: more words for `docker run`, such as `--network none` as two words. They are seen by
            other users of this machine: give secrets as `env` of a command.
    """

    image: str
    mount: Path | str
    folder: str = "/workspace"
    options: tuple[str, ...] = ()


class DockerCarrier:
    """Builds `docker` command lines; `podman` takes the same.

    Args:
        source: the container.
        program: `docker`, `podman` or a path; None takes what there is.
        inherited: this program's variables, from which docker gets only what it needs; None reads them.

    Raises:
        ConfigurationError: there is no such program, or a name makes no sense.
    """

    def __init__(
        self,
        source: RunningContainer | FreshContainer,
        program: str | None = None,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        variables = os.environ if inherited is None else inherited
        wanted = PROGRAMS if program is None else (program,)
        found = [path for name in wanted if (path := shutil.which(name, path=variables.get("PATH")))]
        if not found:
            raise ConfigurationError(f"there is no program {' or '.join(wanted)}: install one")
        _check(source)
        self._source = source
        self._program = found[0]
        self._container = source.container if isinstance(source, RunningContainer) else ""
        self._variables = {
            name: value
            for name, value in variables.items()
            if name in _NEEDED or name.startswith(_NEEDED_BY_PREFIX)
        }

    @property
    def name(self) -> str:
        """See `Carrier`."""
        if isinstance(self._source, RunningContainer):
            return f"the container {self._source.container}"
        return f"the container of {self._source.image}"

    @property
    def folder(self) -> str:
        """See `Carrier`."""
        return self._source.folder

    def argv(self, line: str) -> list[str]:
        """See `Carrier`."""
        if not self._container:
            raise ToolError(f"{self.name} is not started")
        return [self._program, "exec", "-i", self._container, "sh", "-c", line]

    def variables(self) -> Mapping[str, str]:
        """See `Carrier`. None of them is seen inside."""
        return self._variables

    async def open(self) -> None:
        """Start the container, or see that it runs.

        Raises:
            ToolError: it does not start, or does not run.
        """
        if isinstance(self._source, FreshContainer):
            await self._start(self._source)
            return
        state = await self._docker(_ASK_SECONDS, "inspect", "--format", "{{.State.Running}}", self._container)
        if state.strip() != "true":
            raise ToolError(f"{self.name} is not running: start it first")

    async def close(self) -> None:
        """Remove a container that `open` started; it goes on being removed if that takes long."""
        if isinstance(self._source, FreshContainer) and self._container:
            container, self._container = self._container, ""
            with suppress(ToolError):
                await self._docker(_REMOVE_SECONDS, "rm", "--force", container, kill=False)

    async def _start(self, source: FreshContainer) -> None:
        private = tempfile.mkdtemp(prefix="pw-")  # in a thread, a cancelled call would leave the folder
        number = Path(private) / "number"
        try:
            await self._docker(START_SECONDS, *self._run_words(source, number))
        finally:
            if number.exists():  # also where it was interrupted, so that `close` can remove it
                self._container = number.read_text("ascii", "replace").strip()
            shutil.rmtree(private, ignore_errors=True)

    def _run_words(self, source: FreshContainer, number: Path) -> Sequence[str]:
        is_docker = Path(self._program).name == "docker"
        # Files that docker's root makes would not be ours; podman gives them to who runs it.
        user = ["--user", f"{os.getuid()}:{os.getgid()}"] if is_docker else []
        return [
            *("run", "--detach", "--rm", "--init", "--cidfile", str(number)),
            *("--mount", f"type=bind,source={Path(source.mount).resolve()},target={source.folder}"),
            *("--workdir", source.folder),
            *user,
            *source.options,
            *("--entrypoint", "sh", source.image, "-c", _IDLE),
        ]

    async def _docker(self, seconds: float, *words: str, kill: bool = True) -> str:
        try:
            process = await start_program(
                self._program,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._variables),
            )
        except OSError as error:
            raise ToolError(f"{self._program} could not be started: {error.strerror}") from error
        finished = False
        try:
            async with asyncio.timeout(seconds):
                stdout, stderr = await process.communicate()
            finished = True
        except TimeoutError:
            raise ToolError(f"{self._program} {words[0]} took over {seconds:.0f} seconds") from None
        finally:
            if not finished and kill:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            said = " ".join(stderr.decode("utf-8", "replace").split()) or "it said nothing"
            raise ToolError(f"{self.name} cannot be used: {said}")
        return stdout.decode("utf-8", "replace")


class DockerEnvironment(RemoteEnvironment):
    """An `ExecutionEnvironment` in a container; see `RemoteEnvironment` for what it needs there.

    Example::

        environment = DockerEnvironment(FreshContainer("python:3.13", Path("project")))

    Args:
        source: a container that runs, or an image to start one from.
        program: `docker`, `podman` or a path; None takes what there is.
        clock: measures how long commands take.
        use_ripgrep: False searches with `grep -E` even where there is an `rg`.
        inherited: this program's variables, from which docker gets only what it needs; None reads them.

    Raises:
        ConfigurationError: there is no such program, or a name makes no sense.
    """

    def __init__(
        self,
        source: RunningContainer | FreshContainer,
        *,
        program: str | None = None,
        clock: Clock | None = None,
        use_ripgrep: bool = True,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(DockerCarrier(source, program, inherited), clock=clock, use_ripgrep=use_ripgrep)


def _check(source: RunningContainer | FreshContainer) -> None:
    check_kind("source", source, RunningContainer | FreshContainer, "a RunningContainer or a FreshContainer")
    check_kind("folder", source.folder, str, "a text")
    if isinstance(source, FreshContainer):
        check_kind("image", source.image, str, "a text")
        check_kind("mount", source.mount, Path | str, "a path")
        check_kind("options", source.options, tuple | list, "words, such as ('--network', 'none')")
    else:
        check_kind("container", source.container, str, "a text")
    if isinstance(source, RunningContainer):
        if not _NAME.fullmatch(source.container):
            raise ConfigurationError(f"{source.container!r} is no name of a container")
        return
    if not _IMAGE.fullmatch(source.image):
        raise ConfigurationError(f"{source.image!r} is no name of an image")
    if any(char in f"{source.mount}{source.folder}" for char in ',"\n'):
        raise ConfigurationError("a folder with a comma, a quote or a line break cannot be mounted")
    if not source.folder.startswith("/"):
        raise ConfigurationError(f"the folder in the container must be absolute, not {source.folder!r}")
