"""Attacks on the host from inside a sandbox. Each one succeeds without the sandbox, or it would prove nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.local import LocalEnvironment
from tests.conformance.environments import this_machines_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.engine.environments.base import ExecResult, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
MS = 20_000


@dataclass(frozen=True, slots=True)
class Attack:
    """A command that prints WON where it succeeds. `{out}` is a folder outside, `{root}` the clone.

    `bare` is False where trying it without a sandbox would do harm, or needs a host of a certain kind.
    """

    name: str
    line: str
    bare: bool = True
    gentle: str = ""
    """What shows without a sandbox that the way is open, where the attack itself would do harm."""


def python(text: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(textwrap.dedent(text))}"


def syscall(number: int, *arguments: int) -> str:
    """WON where the kernel does not refuse it with EPERM or ENOSYS."""
    words = ", ".join(map(str, arguments))
    return python(f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        answer = libc.syscall({number}, {words})
        print("WON" if answer >= 0 or ctypes.get_errno() not in (1, 38) else ctypes.get_errno())
    """)


OPENS = """
import os
for path in {paths!r}:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("WON", path)
    except OSError as error:
        print(path, error.strerror)
"""
WHEN_ROOT = os.getuid() == 0

FILES = [
    Attack("reads a secret beside the clone", "cat {out}/secret && echo WON"),
    Attack("reads it through a link", "ln -s {out}/secret link; cat link && echo WON; rm -f link"),
    Attack("writes beside the clone", "echo x > {out}/written && echo WON"),
    Attack("lists the folder above the clone", "ls {out} && echo WON"),
    Attack("reads the password file", "grep -q ^daemon: /etc/passwd && echo WON"),
    Attack("reads the shadow file", "cat /etc/shadow && echo WON", bare=WHEN_ROOT),
    Attack("reads root's home", "ls /root*/.[a-z]*rc && echo WON", bare=False),
    Attack("reads a home", "cat ~{user}/.profile ~{user}/.bashrc && echo WON", bare=False),
    Attack("reads the host's process", "tr '\\0' '\\n' < /proc/{pid}/cmdline | grep -q . && echo WON"),
    Attack("reads the first process's variables", "test -s /proc/1/environ && cat /proc/1/environ && echo WON", bare=False),
    Attack("sees variables of the host", "env | grep -q HIDDEN_THING && echo WON"),
    Attack("writes to a system folder", "echo x > /usr/local/pullwright-test && echo WON", bare=False,
           gentle="test -w /usr/local && echo WON"),
    Attack("writes to the root folder", "echo x > /pullwright-test && echo WON", bare=False, gentle="test -w / && echo WON"),
    Attack("writes to the device folder", "echo x > /dev/pullwright-test && echo WON", bare=False,
           gentle="test -w /dev && echo WON"),
    Attack("opens kernel settings for writing", python(OPENS.format(paths=[
        "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe",
        "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/sys/fs/binfmt_misc/register",
    ])), bare=WHEN_ROOT),
    Attack("reads keys of package registries", "cat /usr/etc/* /usr/local/etc/* | grep -q . && echo WON", bare=False),
    Attack("reads keyrings and the kernel's names", "cat /proc/keys /proc/kallsyms | grep -q . && echo WON"),
    Attack("changes its processes' settings", "echo 0 > /proc/self/oom_score_adj && echo WON"),
    Attack("is not the first to go without memory", "grep -qx 1000 /proc/self/oom_score_adj || echo WON"),
    Attack("takes turns from what watches it", "test $(nice) -ge 10 || echo WON",
           gentle="test $(nice) -ge 19 || echo WON"),
    Attack("changes its own accounts", "echo x >> /etc/passwd && echo WON", bare=False),
    Attack("reads the kernel's tables", "test -e /sys/kernel && echo WON"),
    Attack("reads disks", "ls /dev/vd* /dev/sd* /dev/nvme* /dev/mem /dev/kmsg 2>/dev/null | grep -q . && echo WON", bare=False),
    Attack("finds open descriptors", "ls /proc/self/fd | grep -q '^[4-9]' && echo WON", bare=False),
    Attack("walks out of a process's root", "cat /proc/1/root{out}/secret || cat /proc/self/root{out}/secret && echo WON"),
]  # fmt: skip

GIT = [
    Attack("writes a hook", "echo x > .git/hooks/pre-commit && echo WON"),
    Attack("changes the configuration", "git config core.fsmonitor false && echo WON"),
    Attack("appends by a hard link", "ln .git/config inner && echo >> inner && echo WON"),
    Attack("renames the folder", "mv .git .git2 && echo WON && mv .git2 .git"),
    Attack("removes it", "rm -rf .git; test -e .git || echo WON"),
    Attack("writes through another spelling", "cd .git/hooks/.. && echo x > x && echo WON"),
    Attack("writes through a process's folder", "echo x > /proc/self/cwd/.git/x && echo WON"),
    Attack("mounts over it", "mount --bind /tmp .git && echo WON", bare=False),
    Attack("takes the mount away", "umount .git && echo WON", bare=False),
    Attack("makes it writable", "mount -o remount,rw .git && echo WON", bare=False),
]

POWERS = [
    Attack("has capabilities", "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo WON", bare=WHEN_ROOT),
    Attack("may gain privileges", "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo WON"),
    Attack("signals the host's process", "kill -0 {pid} && echo WON"),
    Attack("traces the host's process", python("""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        print("WON" if libc.ptrace(0x4206, {pid}, 0, 0) == 0 else ctypes.get_errno())
    """), bare=WHEN_ROOT),
    Attack("traces the sandbox's first process", syscall({"x86_64": 101, "aarch64": 117}[os.uname().machine], 0x4206, 1, 0, 0), bare=False),
    Attack("takes a descriptor of the sandbox's first process", python("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print("WON" if libc.syscall(438, os.pidfd_open(1), 0, 0) >= 0 else ctypes.get_errno())
    """), bare=False),
    Attack("traces its own child", python("""
        import ctypes, os, time
        libc = ctypes.CDLL(None, use_errno=True)
        child = os.fork()
        if child == 0:
            time.sleep(5)
        print("WON" if libc.ptrace(0x4206, child, 0, 0) == 0 else ctypes.get_errno())
        os.kill(child, 9)
    """)),
    Attack("reads its own child's memory", python("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        number = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
        word = ctypes.create_string_buffer(b"word")
        piece = (ctypes.c_size_t * 2)(ctypes.addressof(word), 4)
        print("WON" if libc.syscall(number, os.getpid(), piece, 1, piece, 1, ctypes.c_long(0)) == 4 else ctypes.get_errno())
    """)),
    Attack("makes a user namespace", "unshare -Ur true && echo WON"),
    Attack("makes one by clone", python("""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        child = libc.syscall({clone}, 0x10000000 | 17, 0, 0, 0, 0)
        if child == 0:
            libc._exit(0)
        print("WON" if child > 0 else ctypes.get_errno())
    """)),
    Attack("changes its root", "chroot / true && echo WON", bare=WHEN_ROOT),
    Attack("mounts", "mount -t tmpfs none /tmp && echo WON", bare=False),
    Attack("changes the host's name", "hostname pullwright-test && echo WON", bare=False),
    Attack("asks the keyrings", syscall({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3 & 0xFFFFFFFF, 0)),
    Attack("sets up an io_uring", syscall(425, 0, 0)),
    Attack("loads a program into the kernel", syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, 0, 0), bare=False),
    Attack("types into a terminal", python("""
        import fcntl, os, pty, termios
        if os.fork() == 0:
            pass
        main, other = pty.openpty()
        os.setsid() if os.getpid() != os.getsid(0) else None
        fcntl.ioctl(other, termios.TIOCSCTTY, 0)
        fcntl.ioctl(other, termios.TIOCSTI, b"x")
        print("WON")
    """), bare=False),
]  # fmt: skip

NETWORK = [
    Attack("reaches the host by TCP", python("""
        import socket
        socket.create_connection(("127.0.0.1", {port}), 3)
        print("WON")
    """)),
    Attack("reaches the host by UDP", python("""
        import socket
        near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        near.settimeout(1)
        near.connect(("127.0.0.1", {udp}))
        near.send(b"hello")
        print("WON" if near.recv(9) else "")
    """)),
    Attack("reaches a name of the host's by an abstract socket", python("""
        import socket
        socket.socket(socket.AF_UNIX).connect(chr(0) + "{abstract}")
        print("WON")
    """)),
    Attack("reaches a socket outside", python("""
        import socket
        socket.socket(socket.AF_UNIX).connect("{out}/socket")
        print("WON")
    """)),
    Attack("finds anything of the host's in /run", "ls -A /run /var/run | grep -v : | grep -q . && echo WON"),
    Attack("asks for cloud credentials", python("""
        import socket
        socket.create_connection(("169.254.169.254", 80), 2)
        print("WON")
    """), bare=False),
    Attack("asks for them through the proxy", python("""
        import os, urllib.request
        print(urllib.request.urlopen("http://169.254.169.254/latest/meta-data/", timeout=3).read(), "WON")
    """), bare=False),
    Attack("opens a socket to the machine below", python("""
        import socket
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        print("WON")
    """)),
    Attack("opens a packet socket", python("""
        import socket
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        print("WON")
    """), bare=WHEN_ROOT),
    Attack("resolves a name", python("""
        import socket
        socket.getaddrinfo("example.org", 80)
        print("WON")
    """), bare=False),
]  # fmt: skip

ATTACKS = [*FILES, *GIT, *POWERS, *NETWORK]


@dataclass(frozen=True, slots=True)
class Field:
    """A clone, a folder that is none of its business, and services of the host."""

    root: Path
    out: Path
    words: dict[str, object]

    def line(self, text: str) -> str:
        for name, value in self.words.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    async def run(
        self, line: str, sandbox: Sandbox | None, timeout_ms: int = MS, *, read_only: bool = False
    ) -> ExecResult:
        variables = {"PATH": os.environ["PATH"], "HIDDEN_THING": "x", "HOME": str(Path.home())}
        environment = LocalEnvironment(self.root, sandbox=sandbox or "off", inherited=variables)
        try:
            return await environment.exec_command(self.line(line), timeout_ms=timeout_ms, read_only=read_only)
        finally:
            await environment.cleanup()


@contextmanager
def echo_of_datagrams() -> Iterator[int]:
    """A service of the host; it ends with the first empty datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                data, sender = service.recvfrom(99)
                if not data:
                    return
                service.sendto(data, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield service.getsockname()[1]
        finally:
            service.sendto(b"", service.getsockname())
            thread.join()


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    root, out = tmp_path / "clone", tmp_path / "outside"
    root.mkdir()
    out.mkdir()
    (out / "secret").write_text("secret")
    subprocess.run(["git", "init", "-q", root], check=True)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract, \
            socket.socket(socket.AF_UNIX) as named, echo_of_datagrams() as udp:  # fmt: skip
        name = f"pullwright-{os.getpid()}-{tmp_path.name}"[:90]
        abstract.bind(f"\0{name}")
        abstract.listen()
        here = Path.cwd()
        os.chdir(out)  # a socket's path is short
        named.bind("socket")
        os.chdir(here)
        named.listen()
        words = {
            "root": root, "out": out, "pid": os.getpid(), "port": server.getsockname()[1], "udp": udp,
            "abstract": name, "user": "root", "clone": {"x86_64": 56, "aarch64": 220}[os.uname().machine],
        }  # fmt: skip
        yield Field(root, out, words)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_an_attack_fails_inside(attack: Attack, field: Field) -> None:
    result = await field.run(attack.line, this_machines_sandbox())
    assert "WON" not in result.stdout, result.output
    assert (field.out / "secret").read_text() == "secret"
    assert not (field.out / "written").exists()


@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.bare or (WHEN_ROOT and attack.gentle)],
    ids=lambda attack: attack.name,
)
async def test_the_same_attack_succeeds_outside(attack: Attack, field: Field) -> None:
    result = await field.run(attack.gentle or attack.line, None)
    assert "WON" in result.stdout, result.output


WRITES = (
    "echo x > new",
    "echo x >> kept",
    ": > kept",
    "rm -f kept",
    "mv kept other",
    "ln kept other",
    "ln -s kept other",
    "mkfifo other",
    "mkdir other",
    "chmod 600 kept",
    "touch -d 2001-01-01 kept",
    "truncate -s 1 kept",
    "echo x > inner/new",
    "echo x > {root}/new",
    "echo x > /proc/self/cwd/new",
    "echo x > .git/hooks/pre-commit",
    "git config core.fsmonitor false",
    "exec 3<> kept; echo x >&3",
    "cp kept /tmp/copy && mv /tmp/copy kept",
    "umount . ; mount -o remount,rw,bind {root} ; echo x > new",
    "rmdir inner",
    python("import os; os.setxattr('kept', 'user.x', b'1'); os.utime('kept')"),
    python("import mmap; file = open('kept', 'r+b'); mmap.mmap(file.fileno(), 0)[0] = 65"),
)


def state(root: Path) -> dict[str, tuple[int, ...] | bytes]:
    """What a change of a folder changes: names, types, modes, contents, times of files, without times of reading."""
    found: dict[str, tuple[int, ...] | bytes] = {}
    for path in sorted([root, *root.rglob("*")]):
        at = path.lstat()
        found[str(path)] = at.st_mode, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
        if path.is_file() and not path.is_symlink():
            found[f"{path}:"] = path.read_bytes()
    return found


@pytest.mark.parametrize("line", WRITES)
async def test_a_command_that_only_reads_has_no_folder_to_write(line: str, field: Field) -> None:
    (field.root / "inner").mkdir()
    (field.root / "kept").write_text("kept\n")
    before = state(field.root)
    result = await field.run(f"{line}; cat kept; ls", this_machines_sandbox(), read_only=True)
    assert state(field.root) == before, result.output
    assert result.stdout.endswith("kept\ninner\nkept\n")
    await field.run(
        line, this_machines_sandbox() if "/hooks" not in line and "fsmonitor" not in line else None
    )
    assert state(field.root) != before


async def test_a_folder_without_a_repository_gets_none_while_it_is_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    before = state(root)
    environment = LocalEnvironment(root, sandbox=this_machines_sandbox())
    try:
        read = await environment.exec_command("ls -A; git init -q .", timeout_ms=MS, read_only=True)
        assert read.exit_code != 0
        assert read.stdout == ""
        assert state(root) == before
        written = await environment.exec_command("echo x > new", timeout_ms=MS)
        assert written.exit_code == 0  # the same environment, for another session
    finally:
        await environment.cleanup()
    assert [path.name for path in root.iterdir()] == ["new"]


async def run(root: Path, *lines: str, submodules: tuple[str, ...] = ()) -> str:
    environment = LocalEnvironment(root, sandbox=this_machines_sandbox(), submodules=submodules)
    try:
        return "".join([(await environment.exec_command(line, timeout_ms=MS)).output for line in lines])
    finally:
        await environment.cleanup()


@pytest.mark.parametrize(
    "line",
    ["git init -q .", "mkdir -p .git/hooks", "echo gitdir: /x > .git", "rm -rf .git; ln -s /tmp .git", "mv .git x; mkdir .git"],
)  # fmt: skip
async def test_a_root_without_a_repository_gets_none(line: str, tmp_path: Path) -> None:
    await run(tmp_path, line, "true")
    assert list(tmp_path.iterdir()) == []


async def test_two_commands_at_once_do_not_open_it(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    began = asyncio.Event()
    line = "echo began; while ! test -e go; do sleep 0.01; done; mkdir .git/hooks; rm go"
    slow = asyncio.create_task(environment.exec_command(line, timeout_ms=MS, on_output=lambda _: began.set()))
    await began.wait()
    await environment.exec_command("touch go", timeout_ms=MS)
    await slow
    await environment.cleanup()
    assert list(tmp_path.iterdir()) == []


async def test_a_submodule_that_became_a_link_shows_no_other_repository(
    tmp_path: Path, git: Callable[..., str]
) -> None:
    root, other = tmp_path / "clone", tmp_path / "other"
    git("init", "-q", str(root / "sub"))
    git("init", "-q", str(other))
    (other / ".git" / "config").write_text("[secret]\n")
    lines = (f"mv sub sub2; ln -s {other} sub", "cat sub/.git/config")
    assert "[secret]" not in await run(root, *lines, submodules=("sub",))


async def test_a_submodule_keeps_its_repository(tmp_path: Path) -> None:
    """A folder is covered, a file that leads to the repository is shown as it was, none is made."""
    for name in ("folder", "file", "none"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / ".git").mkdir()
    (tmp_path / "folder" / ".git" / "config").write_text("here")
    (tmp_path / "file" / ".git").write_text("gitdir: ../x\n")
    line = "for n in folder file none; do echo x > $n/.git; echo x > $n/.git/config; done; cat file/.git"
    output = await run(tmp_path, line, submodules=("folder", "file", "none", "missing"))
    assert output.endswith("gitdir: ../x\n")
    assert (tmp_path / "folder" / ".git" / "config").read_text() == "here"
    assert (tmp_path / "file" / ".git").read_text() == "gitdir: ../x\n"
    assert list((tmp_path / "none").iterdir()) == []


@pytest.mark.parametrize("name", [".git", "sub/.git"])
async def test_a_git_folder_that_is_a_link_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(ToolError, match="symbolic link"):
        await run(tmp_path, "true", submodules=("sub",))
