"""Commands in a container: what starts it, what a command finds inside, and how it ends.

Tests with an engine run where `docker` or `podman` answers; the others need none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError, SandboxMissingError, ToolError
from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxLimits, SandboxOptions
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox.seccomp import CallVerdict, verdicts
from orchestrator.engine.environments.sandbox.visible import protections
from orchestrator.plugins.containers.first_process import HANDED_OVER, init_program
from orchestrator.plugins.containers.sandbox import (
    ContainerEngine,
    ContainerImage,
    ContainerSandbox,
    _as_text,
    engine_profile,
    find_container_sandbox,
    find_image,
)
from tests.doubles import engines
from tests.plugins.containers.sandboxes import container_sandbox, with_python
from tests.unit.engine.environments.sandbox.test_sandbox import ATTACKS, Field, field

if TYPE_CHECKING:
    from orchestrator.engine.environments.base import ExecResult, Sandbox

__all__ = ["field"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="containers are of Linux")
MS = 60_000
IMAGE = ContainerImage("python:3", "sha256:0123456789abcdef", "amd64", {"PATH": "/opt/bin:/bin"}, ())
ENGINE = ContainerEngine("docker", "/usr/bin/docker", {}, ("--user", "7:8"))
OF_ENGINES = {
    "reads the kernel's tables": "engines show /sys, which nobody can write to",
    "reads keyrings and the kernel's names": "/proc/kallsyms is shown, without addresses",
    "changes its processes' settings": "the memory of the container is limited whoever is the first to go",
    "writes to the device folder": "as root, in memory of its own",
    "types into a terminal": "into its own: no container has one of the host's",
}
"""What an engine lets a command do, and why it does no harm."""
GITHUB_TOKEN = "ghp_" + "a1B2" * 9


def without_engine(image: ContainerImage = IMAGE, **options: object) -> ContainerSandbox:
    return ContainerSandbox(ENGINE, image, SandboxOptions(**options), {})  # type: ignore[arg-type]


def words(root: Path, sandbox: ContainerSandbox) -> list[str]:
    place = SandboxFolder(str(root))
    return sandbox.plan.run_words("name", place, Path("/way"), protections(place))


def mounted(line: list[str]) -> list[str]:
    return [line[at + 1] for at, word in enumerate(line) if word == "--mount"]


class TestWhatStartsIt:
    """The words for the engine. What is not granted is not among them."""

    def test_what_confines_it(self, tmp_path: Path) -> None:
        line = " ".join(words(tmp_path, without_engine()))
        for wall in (
            "--network none",
            "--read-only",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            "--security-opt seccomp=/way/seccomp.json",
            "--user 7:8",
            "--pull never",
            "--rm",
            "--interactive",
            f"--memory {SandboxLimits().memory()} --memory-swap {SandboxLimits().memory()}",
            "--pids-limit 1026",
        ):
            assert f" {wall} " in f" {line} "
        for hole in (
            "--privileged",
            "--cap-add",
            "--device",
            "--pid",
            "--ipc",
            "--volumes-from",
        ):
            assert hole not in line.split()
            assert f"{hole}=" not in line

    def test_only_the_place_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        shown = tmp_path / "shown"
        shown.mkdir()
        writable = [
            one
            for one in mounted(words(tmp_path, without_engine(readable=(str(shown),))))
            if "readonly" not in one
        ]
        assert writable == [f"type=bind,source={tmp_path},target={tmp_path}"]

    def test_a_place_to_read_is_mounted_read_only(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        place = SandboxFolder(str(tmp_path), (), read_only=True)
        line = without_engine().plan.run_words("name", place, Path("/way"), protections(place))
        assert [one for one in mounted(line) if "readonly" not in one] == []
        assert f"type=bind,source={tmp_path},target={tmp_path},readonly" in mounted(line)

    def test_the_git_folder_is_mounted_read_only(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        own = f"type=bind,source={tmp_path}/.git,target={tmp_path}/.git,readonly"
        assert own in mounted(words(tmp_path, without_engine()))
        assert own not in mounted(
            ContainerSandbox(ENGINE, IMAGE, SandboxOptions(), {}).plan.run_words(
                "n", SandboxFolder(str(tmp_path), ()), Path("/way"), ()
            )
        )

    def test_nothing_below_the_place_is_followed_by_the_engine(self, tmp_path: Path) -> None:
        """An engine that runs as root reads a mount's source: what a command may swap for a link is none."""
        for inner, made in (
            ("a", Path.mkdir),
            ("b", lambda path: path.write_text("gitdir: ../.git/modules/b")),
        ):
            (tmp_path / inner).mkdir()
            made(tmp_path / inner / ".git")
        place = SandboxFolder(str(tmp_path), (".git", "a/.git", "b/.git"))
        line = without_engine().plan.run_words("name", place, Path("/way"), protections(place))
        sources = [one.split(",")[1] for one in mounted(line)]
        assert [one for one in sources if one.startswith(f"source={tmp_path}/")] == []

    def test_a_name_with_a_comma_or_a_quote_is_one_field(self, tmp_path: Path) -> None:
        root = tmp_path / 'a,readonly "b"'
        root.mkdir()
        assert f'type=bind,"source={tmp_path}/a,readonly ""b""",' in "\n".join(
            mounted(words(root, without_engine()))
        )

    def test_the_images_own_volumes_are_on_no_disk(self, tmp_path: Path) -> None:
        line = words(tmp_path, without_engine(dataclasses.replace(IMAGE, volumes=("/data",))))
        assert any(one.startswith("/data:rw") for one in line)

    @pytest.mark.parametrize("path", ["/run/docker.sock", "/run", "/"])
    def test_a_socket_of_the_machine_is_not_granted(self, path: str, tmp_path: Path) -> None:
        if not os.path.lexists(path):
            path = str(tmp_path / "docker.sock")
            here = socket.socket(socket.AF_UNIX)
            here.bind(path)
            here.close()
        with pytest.raises(ConfigurationError, match="--sandbox-read"):
            without_engine(readable=(path,))

    def test_an_image_for_another_processor(self) -> None:
        with pytest.raises(SandboxMissingError, match="riscv64 processors; use an image for amd64 or arm64"):
            without_engine(dataclasses.replace(IMAGE, architecture="riscv64"))


class TestVariables:
    def test_the_image_stands_before_the_machine(self) -> None:
        image = dataclasses.replace(
            IMAGE, variables={"PATH": "/opt/bin", "CARGO_HOME": "/usr/local/cargo", "TOKEN": ""}
        )
        found = without_engine(image).variables()
        assert found["PATH"] == "/opt/bin"
        assert found["CARGO_HOME"] == "/home/sandbox/.cargo"
        assert "TOKEN" not in found

    def test_every_call_that_the_system_sandbox_allows_is_allowed(self) -> None:
        for architecture, machine in (("amd64", "x86_64"), ("arm64", "aarch64")):
            profile = json.loads(engine_profile(architecture))
            action: dict[str, list[tuple[str, object]]] = {}
            for rule in profile["syscalls"]:
                for name in rule["names"]:
                    action.setdefault(name, []).append((rule["action"], rule.get("args")))
            assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
            for name, (_, verdict) in verdicts(machine).items():
                if verdict is CallVerdict.MISSING:
                    assert name not in action
                elif verdict is CallVerdict.REFUSED:
                    assert action[name] == [("SCMP_ACT_ERRNO", None)]
                elif verdict is CallVerdict.ALLOWED:
                    assert action[name] == [("SCMP_ACT_ALLOW", None)]
                else:
                    assert name == "ioctl" or all(args for _, args in action[name])


class TestTheFirstProcess:
    """The program itself, on this machine: it needs no container."""

    def test_it_hands_over_and_ends_with_its_input(self, tmp_path: Path) -> None:
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("way")
            listener.listen()
        finally:
            os.chdir(here)
        program = tmp_path / "init"
        program.write_bytes(init_program(architecture, "init", "way", port) or b"")
        program.chmod(0o700)
        with subprocess.Popen([program], stdin=subprocess.PIPE, cwd=tmp_path) as running, listener:
            channel, _ = listener.accept()
            _, handed, _, _ = socket.recv_fds(channel, 1, HANDED_OVER)
            channel.close()
            _, proc, listening = handed
            assert not program.exists()
            assert os.path.samestat(os.fstat(proc), Path("/proc").stat())
            with socket.socket(fileno=listening) as inside:
                assert inside.getsockname() == ("127.0.0.1", port)
            assert running.stdin is not None
            running.stdin.write(b"words that nobody reads")
            running.stdin.close()
            assert running.wait() == 0
        for descriptor in handed[:2]:
            os.close(descriptor)

    def test_where_nobody_takes_over_it_ends(self, tmp_path: Path) -> None:
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        program = tmp_path / "init"
        program.write_bytes(init_program(architecture, "init", "way", 0) or b"")
        program.chmod(0o700)
        with subprocess.Popen([program], stdin=subprocess.PIPE, cwd=tmp_path) as running:
            assert running.wait() == 101


class TestWhatIsMissing:
    """One line each, with what to do."""

    def find(self, folder: Path, script: str, wanted: str = "docker:python:3") -> str:
        program = folder / "docker"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with pytest.raises(SandboxMissingError) as caught:
            find_container_sandbox(wanted, SandboxOptions(), inherited={"PATH": f"{folder}:/usr/bin:/bin"})
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_the_engine(self, tmp_path: Path) -> None:
        with pytest.raises(SandboxMissingError, match="there is no program podman; install it"):
            find_image("podman:a", {"PATH": str(tmp_path)})

    def test_its_service(self, tmp_path: Path) -> None:
        said = self.find(tmp_path, "echo 'Cannot connect to the Docker daemon.' >&2; exit 1")
        assert "docker does not answer, start it" in said
        assert said.endswith("Cannot connect to the Docker daemon.")

    def test_the_image(self, tmp_path: Path) -> None:
        said = self.find(tmp_path, 'case $1 in info) echo "[]";; *) echo "No such image" >&2; exit 1;; esac')
        assert "docker has no image python:3; get it with docker pull python:3" in said

    def test_the_shell(self, tmp_path: Path) -> None:
        described = json.dumps([{"Id": "sha256:1", "Architecture": "amd64", "Config": {"Env": None}}])
        script = f"""case $1 in
            info) echo '[]';;
            image) echo '{described}';;
            run) echo 'docker: Error response from daemon: exec: "sh": executable file not found in $PATH' >&2; exit 127;;
            esac"""
        assert "the image python:3 has no sh, which starts commands" in self.find(tmp_path, script)


class TestInside:
    """With a real engine."""

    async def run(
        self, root: Path, *lines: str, sandbox: Sandbox | None = None, own_repository: bool = False
    ) -> list[ExecResult]:
        variables = {"PATH": os.environ["PATH"], "HIDDEN_THING": "x", "GITHUB_TOKEN": GITHUB_TOKEN}
        here = LocalEnvironment(
            root,
            sandbox=sandbox or container_sandbox(),
            inherited=variables,
            own_repository=own_repository,
        )
        try:
            return [await here.exec_command(line, timeout_ms=MS) for line in lines]
        finally:
            await here.cleanup()

    async def test_attacks_fail(self, field: Field) -> None:
        """Those of `test_sandbox.py`, which also shows that they succeed without a sandbox."""
        tried = [attack for attack in ATTACKS if attack.name not in OF_ENGINES]
        results = await self.run(field.root, *(field.line(attack.line) for attack in tried))
        won = [attack.name for attack, result in zip(tried, results, strict=True) if "WON" in result.stdout]
        assert not won, won
        assert (field.out / "secret").read_text() == "secret"
        assert not (field.out / "written").exists()

    async def test_a_hook_is_written_where_nothing_is_protected(self, field: Field) -> None:
        line = "echo x > .git/hooks/pre-commit && echo WON"
        (result,) = await self.run(field.root, line, own_repository=True)
        assert result.stdout == "WON\n"

    async def test_the_settings_of_dockers_own_program_stay_outside(self, tmp_path: Path) -> None:
        """Docker gives every container the proxy of its settings, with the password in its address."""
        if engines.engine() != "docker":
            pytest.skip("a matter of docker")
        secret = "http://user:hidden-password@proxy.example:3128"
        (tmp_path / "config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": secret}}}))
        found = container_sandbox()
        bare = [
            "docker",
            "--config",
            str(tmp_path),
            "run",
            "--rm",
            "--network",
            "none",
            found.plan.image.number,
            "env",
        ]
        seen = await asyncio.to_thread(subprocess.run, bare, capture_output=True, check=True)
        assert b"hidden-password" in seen.stdout
        engine = dataclasses.replace(
            found.plan.engine, variables={**found.plan.engine.variables, "DOCKER_CONFIG": str(tmp_path)}
        )
        sandbox = ContainerSandbox(engine, found.plan.image, found.options, os.environ)
        root = tmp_path / "root"
        root.mkdir()
        line = "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
        (result,) = await self.run(root, line, sandbox=sandbox)
        assert "hidden-password" not in result.output
        assert GITHUB_TOKEN not in result.output

    async def test_what_ends_the_waiting_shell_is_left_in_no_other_command(self, tmp_path: Path) -> None:
        hides = "setsid sleep 633 >/dev/null 2>&1 & kill -9 $PPID"
        look = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p | grep '^sleep 633 '; done; :"
        first, second = await self.run(tmp_path, hides, look)
        assert first.exit_code == 137
        assert second.stdout == ""

    async def test_files_belong_to_who_runs_this(self, tmp_path: Path) -> None:
        await self.run(tmp_path, "touch made")
        assert (tmp_path / "made").stat().st_uid == os.getuid()

    async def test_exceeded_limits_are_reported(self, tmp_path: Path) -> None:
        options = with_python(limits=SandboxLimits(memory_bytes=128 << 20, processes=60))
        found = container_sandbox()
        sandbox = ContainerSandbox(found.plan.engine, found.plan.image, options, os.environ)
        fill = f"{sys.executable} -c 'held = [bytearray(1 << 20) for _ in range(1 << 10)]'"
        shared = "dd if=/dev/zero of=/dev/shm/x bs=1M count=200; tail -f /dev/null"
        many = "for i in $(seq 100); do sleep 100 & done; wait"
        ran = await self.run(tmp_path, fill, shared, many, "echo well", sandbox=sandbox)
        assert ran[1].killed_for == "more than 134 MB of memory"
        assert "Cannot fork" in ran[2].output or "retry" in ran[2].output or ran[2].killed_for
        assert ran[3].stdout == "well\n"

    async def test_a_refused_host_is_reported(self, tmp_path: Path) -> None:
        (result,) = await self.run(tmp_path, "curl -s http://example.org/")
        assert result.refused_hosts == ("example.org:80",)

    async def test_a_repository_that_was_made_meanwhile_is_protected(self, tmp_path: Path) -> None:
        here = LocalEnvironment(tmp_path, sandbox=container_sandbox())
        assert (await here.exec_command("touch .git/x || echo refused", timeout_ms=MS)).stdout == "refused\n"
        await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
        result = await here.exec_command(
            "echo x > .git/hooks/pre-commit || git rev-parse --git-dir", timeout_ms=MS
        )
        await here.cleanup()
        assert result.stdout == ".git\n"

    async def test_nothing_is_left_at_the_end(self, tmp_path: Path) -> None:
        await self.run(tmp_path, "true")
        assert list(tmp_path.iterdir()) == []
        opened = container_sandbox().open(SandboxFolder(str(tmp_path)))
        await opened.close()
        with pytest.raises(ToolError, match="the sandbox was closed"):
            await opened.launch(Command("true", str(tmp_path), {}, MS)).start(1, 2)

    def test_it_ends_with_a_program_that_is_killed(self, tmp_path: Path) -> None:
        found = container_sandbox()
        program = """
import asyncio, sys
from orchestrator.engine.environments.local import LocalEnvironment
from tests.doubles import engines
from tests.plugins.containers.sandboxes import container_sandbox, with_python

async def main():
    here = LocalEnvironment(sys.argv[1], sandbox=container_sandbox())
    await here.exec_command("setsid sleep 634 & echo on; wait", timeout_ms=600_000, on_output=lambda text: print(text, flush=True))

asyncio.run(main())
"""
        line = [sys.executable, "-c", program, str(tmp_path)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"on\n"
            asked = [
                found.plan.engine.program,
                "ps",
                "--all",
                "--quiet",
                "--filter",
                f"label=pullwright={running.pid}",
            ]
            assert subprocess.run(asked, capture_output=True, check=True).stdout
            running.send_signal(signal.SIGKILL)
            running.wait()
        while subprocess.run(asked, capture_output=True, check=True).stdout:
            pass  # the test's own time limit


@pytest.mark.parametrize("shell", ["dash", "bash", "sh"])
def test_a_script_that_comes_in_a_variable_is_the_same_and_leaves_the_input_alone(shell: str) -> None:
    """As a command with an input of its own gets it: `printf %b` gives back every byte."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    text = "".join(map(chr, range(1, 256))).replace("'", "") + "\\n\\0101 %s $HOME `x` ü"
    script = f"printf '%s' '{text}'\ncat\n".encode()
    given = {"PULLWRIGHT_SCRIPT": _as_text(script), "PATH": os.environ["PATH"]}
    words = [shell, "-c", 'eval "$(printf %b "$PULLWRIGHT_SCRIPT")"']
    done = subprocess.run(words, env=given, input=b"-input", capture_output=True, check=True)
    assert done.stdout == text.encode() + b"-input"


def test_a_script_in_a_variable_is_not_too_long() -> None:
    with pytest.raises(OSError, match="Argument list too long"):
        _as_text(b"x" * 131_072)
