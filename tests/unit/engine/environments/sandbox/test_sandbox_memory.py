"""What a command makes the kernel hold counts as its memory: with a control group, and without one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestrator.engine.environments.base import SandboxLimits, SandboxOptions
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.sandbox import limits as sandbox_limits
from orchestrator.engine.environments.sandbox.limits import ControlGroup, LimitWatch, make_group

slow = pytest.mark.slow(reason="fills memory until the kernel or the watch ends it")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
MS = 60_000
MIB = 1 << 20
FULL = "more than 268 MB of memory"


VERSION_2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()


def groups_work() -> bool:
    group = make_group(MIB)
    if group is not None:
        group.close()
    return group is not None


MODES = pytest.mark.parametrize(
    "grouped",
    [
        pytest.param(
            True, marks=pytest.mark.skipif(not groups_work(), reason="no control group for this user")
        ),
        False,
    ],
    ids=["grouped", "summed"],
)

HEAD = """
import array, ctypes, fcntl, mmap, os, resource, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.shmat.restype = ctypes.c_void_p
BLOCK = bytes(1 << 16)
def fill(near):
    near.setblocking(False)
    try:
        while True:
            near.send(BLOCK)
    except OSError:
        pass
def buffered():
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_000_000)
    fill(near)
    return near, far
"""
NETWORK = "sockets of the network"
ATTACKS = {
    "sockets": """
        kept = []
        for n in range(7):
            if os.fork() == 0:
                break
        while len(kept) < 950:
            kept.append(buffered())
    """,
    NETWORK: """
        listener = socket.create_server(("127.0.0.1", 0))
        kept = []
        for n in range(400):
            near = socket.create_connection(listener.getsockname())
            kept += [near, listener.accept()[0]]
            fill(near)
    """,
    "descriptors on their way": """
        near, far = socket.socketpair()
        for n in range(900):
            one, other = buffered()
            socket.send_fds(near, [b"x"], [one.fileno(), other.fileno()])
            one.close(), other.close()
    """,
    "pipes": """
        for n in range(200):
            if os.fork() == 0:
                break
        kept = []
        for n in range(1_000):
            near, far = os.pipe()
            os.set_blocking(far, False)
            kept.append(near)
            try:
                fcntl.fcntl(far, 1031, 1 << 20)
            except OSError:
                pass
            try:
                while True:
                    os.write(far, BLOCK)
            except OSError:
                pass
            os.close(far)
    """,
    "shared memory of System V": """
        for n in range(100):
            number = libc.shmget(0, 1 << 23, 0o1600)
            place = libc.shmat(number, None, 0)
            ctypes.memset(place, 1, 1 << 23)
            libc.shmdt(ctypes.c_void_p(place))
    """,
    "files in memory": """
        for n in range(400):
            os.write(os.memfd_create("x"), bytes(1_900_000))
    """,
    "shared pages that no process maps any more": """
        kept = []
        for n in range(80):
            kept.append(mmap.mmap(-1, 1 << 23))
            kept[-1].write(bytes(1 << 23))
            kept[-1].madvise(mmap.MADV_DONTNEED)
    """,
    "temporary files": """
        with open("/tmp/file", "wb") as file:
            for n in range(800):
                file.write(bytes(1 << 20))
    """,
    "names": """
        for n in range(2_000_000):
            os.mkdir(f"/tmp/{n}")
    """,
    "tables of pages": """
        with open("/tmp/page", "wb+") as file:
            file.write(bytes(4_096))
            file.flush()
            for n in range(7):
                if os.fork() == 0:
                    break
            base = libc.mmap(None, ctypes.c_size_t(40_000 << 21), 0, 0x4022, -1, ctypes.c_long(0))
            for n in range(40_000):
                place = base + (n << 21)
                libc.mmap(ctypes.c_void_p(place), ctypes.c_size_t(4_096), 1, 0x11, file.fileno(), ctypes.c_long(0))
                ctypes.string_at(place, 1)
    """,
    "private pages that pipes hold": """
        for n in range(200):
            if os.fork() == 0:
                break
        kept = []
        for n in range(900):
            page = libc.mmap(None, ctypes.c_size_t(8_192), 3, 0x22, -1, ctypes.c_long(0))
            ctypes.memset(page, 1, 8_192)
            near, far = os.pipe()
            kept.append(near)
            pair = (ctypes.c_size_t * 2)(page, 8_192)
            libc.vmsplice(far, pair, 1, 0)
            libc.munmap(ctypes.c_void_p(page), ctypes.c_size_t(8_192))
            os.close(far)
    """,
}


async def run(folder: Path, program: str, limits: SandboxLimits, *, ms: int = MS) -> tuple[str, str]:
    """The limit that it passed, and its output."""
    (folder / "program.py").write_text(HEAD + textwrap.dedent(program))
    environment = LocalEnvironment(folder, sandbox=find_sandbox(SandboxOptions(limits=limits)))
    result = await environment.exec_command(f"{shlex.quote(sys.executable)} program.py", timeout_ms=ms)
    await environment.cleanup()
    return result.killed_for, f"{result.exit_code} {result.output[-500:]}"


@slow
@MODES
@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_the_kernel_holds_counts(attack: str, grouped: bool, tmp_path: Path) -> None:  # noqa: FBT001  a column
    if grouped and attack == NETWORK and not VERSION_2:
        pytest.skip("version 1 gives sockets of the network a limit of their own, at which they wait")
    settled = "" if grouped else "time.sleep(1)  # the kernel gives back what the last test's command held\n"
    program = settled + textwrap.dedent(ATTACKS[attack]) + "\ntime.sleep(600)\n"
    limits = SandboxLimits(memory_bytes=256 * MIB, grouped=grouped)
    killed_for, output = await run(tmp_path, program, limits, ms=MS if grouped else MS // 4)
    for ms in (MS // 4, MS):
        if killed_for == FULL or grouped:
            break
        # What other programs give back in this time hides as much of what this one takes: see `LimitWatch`. And on a busy
        # machine it takes longer.
        killed_for, output = await run(tmp_path, program, limits, ms=ms)
    assert killed_for == FULL, output


ORDINARY = """
import multiprocessing, subprocess
text = bytearray(80_000_000)
children = [multiprocessing.Process(target=time.sleep, args=(1,)) for n in range(8)]
for child in children:
    child.start()
pairs = [socket.socketpair() for n in range(100)]
pipes = [os.pipe() for n in range(100)]
for n in range(500):
    open(f"/tmp/{n}", "wb").write(bytes(10_000))
with open("large", "wb") as file:
    for n in range(400):
        file.write(bytes(1 << 20))
open("large", "rb").read(1 << 20)
for child in children:
    child.join()
print("built")
"""
"""Eight processes share 80 MB, and the disk's copies in memory are larger than the limit."""


@slow
@MODES
async def test_an_ordinary_build_is_left_alone(grouped: bool, tmp_path: Path) -> None:  # noqa: FBT001  a column
    limits = SandboxLimits(memory_bytes=(256 if grouped else 4_096) * MIB, grouped=grouped)
    killed_for, output = await run(
        tmp_path, f"if __name__ == '__main__':\n{textwrap.indent(ORDINARY, '    ')}", limits
    )
    assert (killed_for, output) == ("", "0 built\n")


def watch(folder: Path, proc: Path, held: list[int]) -> LimitWatch:
    """Of a `/proc` that is a plain folder, and a machine that holds so many MB, one number a look."""
    for number, fields in {"1": "Threads: 1", "2": "Threads: 2\nRssAnon: 102400 kB\nVmSwap: 0 kB",
                           "3": "Threads: 1\nRssAnon: 102400 kB\nVmSwap: 1024 kB"}.items():  # fmt: skip
        (proc / number).mkdir(parents=True)
        (proc / number / "status").write_text(fields)
    descriptor = os.open(proc, os.O_RDONLY)
    return LimitWatch(
        descriptor, str(folder), SandboxLimits(memory_bytes=256 * MIB), shared_bytes=lambda: held.pop(0) * MIB
    )


def test_private_memory_and_what_the_kernel_holds_are_one_sum(tmp_path: Path) -> None:
    seen = watch(tmp_path, tmp_path / "proc", [900, 900, 950, 956])
    assert [seen.exceeded(), seen.exceeded(), seen.exceeded()] == ["", "", FULL]
    seen.close()


def test_what_is_given_back_by_others_hides_nothing(tmp_path: Path) -> None:
    seen = watch(tmp_path, tmp_path / "proc", [900, 300, 360])
    assert [seen.exceeded(), seen.exceeded()] == ["", FULL]
    seen.close()


def test_pages_that_processes_share_since_a_fork_count_once(tmp_path: Path) -> None:
    seen = watch(tmp_path, tmp_path / "proc", [900, 1_000])
    for number in "23":
        (tmp_path / "proc" / number / "smaps_rollup").write_text(
            "Pss: 99 kB\nPss_Anon: 51200 kB\nSwapPss: 0 kB"
        )
    assert seen.exceeded() == ""
    seen.close()


@pytest.mark.parametrize(("lines", "inner"), [("4:memory:/a/b\n0::/\n", "memory/a/b"), ("0::/a/b\n", "a/b")])
def test_where_no_group_can_be_made_nothing_is_left(lines: str, inner: str, tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "root"
    own.write_text(lines)
    assert make_group(MIB, own=str(tmp_path / "none"), root=str(root)) is None
    assert make_group(MIB, own=str(own), root=str(root)) is None
    (root / inner).mkdir(parents=True)
    (root / "cgroup.controllers").touch()
    assert make_group(MIB, own=str(own), root=str(root)) is None  # folders without the kernel's files
    assert not list(root.rglob("pullwright*"))


def test_no_group_is_above_a_limit_of_this_program(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/user/app/ours\n")
    for name, limit in {"user/app/ours": "max", "user/app": "1000000", "user": "max"}.items():
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "cgroup.controllers").touch()
    parents = [path for path, _ in sandbox_limits._parents(tmp_path / "own", tmp_path)]
    assert parents == [tmp_path / "user/app/ours", tmp_path / "user/app"]


def test_a_group_of_version_2(tmp_path: Path) -> None:
    """Its files are made here, because a kernel has memory in one version only."""
    files = {"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "cgroup.procs": ""}
    for name, text in {**files, "memory.events": "low 0\noom 1\noom_kill 0\noom_group_kill 0\n"}.items():
        (tmp_path / name).write_text(text)
    group = ControlGroup(tmp_path, sandbox_limits._V2, 256 * MIB)
    os.write(group.entrance, b"12")
    written = {name: (tmp_path / name).read_text() for name in files}
    assert written == {
        "memory.max": "268435456", "memory.swap.max": "0ax", "memory.oom.group": "1", "cgroup.procs": "12"
    }  # fmt: skip
    assert not group.was_full()
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    seen = LimitWatch(
        os.open(tmp_path, os.O_RDONLY), str(tmp_path), SandboxLimits(memory_bytes=256 * MIB), group=group
    )
    assert seen.reason == FULL
    seen.close()
    assert seen.reason == FULL


@pytest.mark.skipif(not groups_work(), reason="no control group for this user")
def test_groups_that_were_left_are_removed() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    group = make_group(MIB * 64)
    assert group is not None
    folder = group._folder
    os.write(group.entrance, str(child.pid).encode())
    group.close()
    assert folder.exists()
    child.communicate()
    dead = folder.with_name(f"pullwright-{child.pid}-0")
    dead.mkdir()
    sandbox_limits._known.clear()
    other = make_group(MIB)
    assert other is not None
    assert not folder.exists()
    assert not dead.exists()
    other.close()
    assert not other._folder.exists()
