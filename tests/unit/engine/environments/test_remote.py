"""Containers and SSH: the command lines, what is refused before anything runs, and a far side that is gone."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigurationError, PullwrightError, ToolError
from orchestrator.engine.environments.docker import DockerEnvironment, FreshContainer, RunningContainer
from orchestrator.engine.environments.marked import Marked
from orchestrator.engine.environments.remote_search import to_extended
from orchestrator.engine.environments.ssh import SshCarrier, SshEnvironment, SshTarget
from tests.doubles.containers import FakeDocker, fake_docker
from tests.tables import table

MS = 600_000
"""No command has that long: a test that waits for one fails by its own time limit."""


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    (tmp_path / "root").mkdir()
    return fake_docker(tmp_path / "docker")


def in_container(docker: FakeDocker, name: str = "web") -> DockerEnvironment:
    source = RunningContainer(name, str(docker.folder.parent / "root"))
    return DockerEnvironment(source, program="docker", inherited=docker.variables)


async def test_no_value_is_ever_in_an_argument(docker: FakeDocker) -> None:
    here = in_container(docker)
    await here.initialize()
    result = await here.exec_command("env; echo $KEY", timeout_ms=MS, env={"KEY": "given-secret"})
    await here.write_file("name.txt", b"content")
    await here.cleanup()
    assert "KEY=given-secret" in result.stdout
    assert "HOST_SECRET" not in result.stdout
    inspect, *calls = docker.calls()
    assert inspect == ["inspect", "--format", "{{.State.Running}}", "web"]
    assert all(call[:5] == ["exec", "-i", "web", "sh", "-c"] and len(call) == 6 for call in calls)
    assert not any("secret" in word or "name.txt" in word for call in calls for word in call)


async def test_an_image_is_started_and_removed(docker: FakeDocker) -> None:
    root = docker.folder.parent / "root"
    source = FreshContainer("image:1", root, str(root), ("--network", "none"))
    here = DockerEnvironment(source, program="docker", inherited=docker.variables)
    await here.initialize()
    await here.cleanup()
    run, *_, remove = docker.calls()
    assert run[:5] == ["run", "--detach", "--rm", "--init", "--cidfile"]
    assert f"type=bind,source={root},target={root}" in run
    assert run[-7:-1] == ["--network", "none", "--entrypoint", "sh", "image:1", "-c"]
    assert remove == ["rm", "--force", "fresh1"]
    with pytest.raises(ToolError):
        await here.exec_command("true", timeout_ms=MS)


async def test_a_container_that_is_not_there(docker: FakeDocker, tmp_path: Path) -> None:
    for name, words in (("missing", "No such object: missing"), ("stopped", "stopped is not running")):
        with pytest.raises(ConfigurationError, match=words):
            await in_container(docker, name).initialize()
    source = FreshContainer("no/such:image", tmp_path)
    with pytest.raises(ConfigurationError, match="pull access denied"):
        await DockerEnvironment(source, program="docker", inherited=docker.variables).initialize()
    elsewhere = RunningContainer("web", "/no/such/folder")
    with pytest.raises(ConfigurationError, match="no usable folder"):
        await DockerEnvironment(elsewhere, program="docker", inherited=docker.variables).initialize()


async def test_a_container_that_goes_away(docker: FakeDocker) -> None:
    here = in_container(docker)
    await here.initialize()
    docker.remove_container("web")
    for act in (
        here.read_file("x", max_bytes=1),
        here.exec_command("true", timeout_ms=MS),
        here.glob("*", "."),
    ):
        with pytest.raises(
            ToolError, match=r"the container web cannot be reached: .*No such container"
        ) as raised:
            await act
        assert "\n" not in str(raised.value)


async def test_cleanup_ends_what_runs_and_ignores_sigterm(docker: FakeDocker) -> None:
    here = in_container(docker)
    await here.initialize()
    started = asyncio.Event()
    command = "trap '' TERM; echo on; while :; do sleep 0.1; done"
    task = asyncio.create_task(here.exec_command(command, timeout_ms=MS, on_output=lambda _: started.set()))
    await started.wait()
    await here.cleanup()
    assert (await task).exit_code == -9
    with pytest.raises(ToolError, match="closed"):
        await here.exec_command("true", timeout_ms=MS)


@table("destination", ["", "-oProxyCommand=x", "a b", "me@-x", "host:port", "h;x:1:2"])
def test_a_destination_that_makes_no_sense(destination: str) -> None:
    with pytest.raises(ConfigurationError, match="no SSH destination"):
        SshCarrier(SshTarget(destination, "/srv"))


def test_options_that_keep_us_safe_cannot_be_changed() -> None:
    carrier = SshCarrier(SshTarget("host", "/srv", {"batchmode": "no"}))
    carrier._private = Path("/private")
    with pytest.raises(ConfigurationError, match="batchmode"):
        carrier.argv("exit 0")


def test_names_that_would_be_options(tmp_path: Path, docker: FakeDocker) -> None:
    for source in (
        RunningContainer("-v", "/srv"),
        FreshContainer("--privileged", tmp_path),
        FreshContainer("image", tmp_path, "relative"),
        FreshContainer("image", tmp_path / "a,readonly"),
    ):
        with pytest.raises(ConfigurationError):
            DockerEnvironment(source, program="docker", inherited=docker.variables)
    with pytest.raises(ConfigurationError, match="install one"):
        DockerEnvironment(RunningContainer("web", "/srv"), inherited={"PATH": str(tmp_path)})


async def test_a_host_that_does_not_answer() -> None:
    here = SshEnvironment(SshTarget("me@127.0.0.1:1", "/srv"))
    with pytest.raises(PullwrightError, match=r"127\.0\.0\.1:1 cannot be reached: .*refused"):
        await here.initialize()


def test_words_are_told_from_text_however_they_are_cut() -> None:
    stream = b"a\0pullwrigh\0pullwright-7 12\nb\0pullwright-8 1\n\0pullwright-7 end 3\nc\0pull"
    for size in (1, 2, 5, 13, 100):
        text, words = bytearray(), list[bytes]()
        marked = Marked("7", text.extend, words.append)
        for start in range(0, len(stream), size):
            marked.add(stream[start : start + size])
        marked.end()
        assert words == [b"12", b"end 3"]
        assert bytes(text) == b"a\0pullwrighb\0pullwright-8 1\nc\0pull"


@table(
    ("pattern", "extended"),
    [(r"\d+", "[0-9]+"), (r"[\d_]", "[0-9_]"), (r"(?:a|b)\S", "(a|b)[^[:space:]]"), (r"a\.b\(", r"a\.b\(")],
)
def test_expressions_for_grep(pattern: str, extended: str) -> None:
    assert to_extended(pattern) == extended


@table("pattern", ["(?=x)", "a*?", r"\p{L}"])
def test_expressions_that_grep_does_not_know(pattern: str) -> None:
    with pytest.raises(ToolError, match="needs ripgrep"):
        to_extended(pattern)


DESCRIPTORS = Path("/proc/self/fd")


def descriptors() -> list[str]:
    return sorted(path.name for path in DESCRIPTORS.iterdir())


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="this system does not list a process's descriptors")
async def test_a_call_cancelled_at_any_time_leaves_no_descriptor(docker: FakeDocker) -> None:
    """Cancelled after each number of steps of the event loop until it is under way."""
    here = in_container(docker)
    await here.initialize()
    before = descriptors()
    for steps in range(30):
        running = asyncio.create_task(here.exec_command("exec sleep 9", timeout_ms=MS))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    async with asyncio.timeout(60):
        # Not more: one from before may still have been closing. Nothing tells of the end of that.
        while len(descriptors()) > len(before):  # noqa: ASYNC110
            await asyncio.sleep(0)
    await here.cleanup()


async def test_a_start_that_is_cancelled_leaves_no_folder(
    docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = Path(tempfile.mkdtemp(dir="/tmp"))  # a longer path has no room for a socket
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    ssh = SshTarget("127.0.0.1:1", "x", {"StrictHostKeyChecking": "yes"})
    source = FreshContainer("image:1", tmp_path / "root", str(tmp_path / "root"))
    for steps in range(8):
        for here in (
            SshEnvironment(ssh),
            DockerEnvironment(source, program="docker", inherited=docker.variables),
        ):
            starting = asyncio.create_task(here.initialize())
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            await here.cleanup()
    await asyncio.get_running_loop().shutdown_default_executor()
    temporary.rmdir()  # it is empty
