"""The filter of kernel calls: what it answers, how that differs from others' filters, and that programs work behind it."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox.seccomp import CallVerdict, syscall_filter, verdicts
from tests.conformance.environments import this_machines_sandbox
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

X86, ARM = "x86_64", "aarch64"
ARCHITECTURES = {X86: 0xC000003E, ARM: 0xC00000B7}
I386 = 0x40000003
ALLOW = 0x7FFF0000
MS = 60_000
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


def answer(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the kernel makes of a call: 0 lets it through, else the error. It reads the program as the kernel does."""
    program = syscall_filter(machine)
    assert program
    ops = list(struct.iter_unpack("<HBBI", program))
    given_arguments = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack(
        "<IIQ6Q", number, ARCHITECTURES[machine] if arch is None else arch, 0, *given_arguments
    )
    place = loaded = 0
    while True:
        code, yes, no, value = ops[place]
        place += 1
        match code:
            case 0x20:
                loaded = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                place += yes if loaded == value else no
            case 0x45:
                place += yes if loaded & value else no
            case 0x35:
                place += yes if loaded >= value else no
            case 0x06:
                return 0 if value == ALLOW else value & 0xFFFF
            case _:
                raise AssertionError(code)


EXPECTED = {CallVerdict.ALLOWED: 0, CallVerdict.REFUSED: errno.EPERM, CallVerdict.MISSING: errno.ENOSYS}


@pytest.mark.parametrize("machine", [X86, ARM])
def test_each_number_gets_the_verdict_of_the_table_and_no_other_number_exists(machine: str) -> None:
    by_number = dict(verdicts(machine).values())
    assert len(by_number) == len(verdicts(machine)), "a number stands twice"
    for number in range(700):
        verdict = by_number.get(number, CallVerdict.MISSING)
        if verdict is not CallVerdict.CHECKED:
            assert answer(machine, number) == EXPECTED[verdict], number


@given(st.sampled_from([X86, ARM]), st.integers(600, 2**32 - 1))
def test_calls_of_later_kernels_and_of_the_second_table_do_not_exist(machine: str, number: int) -> None:
    assert answer(machine, number) == errno.ENOSYS


@given(st.integers(0, 600), st.integers(0, 2**32 - 1).filter(lambda arch: arch != ARCHITECTURES[X86]))
def test_calls_of_another_architecture_are_refused(number: int, arch: int) -> None:
    assert answer(X86, number, arch=arch) == errno.EPERM
    assert answer(X86, number, arch=I386) == errno.EPERM


@table(
    ("name", "arguments", "error"),
    [
        ("socket", (1, 1), 0), ("socket", (2, 1), 0), ("socket", (10, 2), 0), ("socket", (16, 3), 0),
        ("socket", (17, 3), errno.EAFNOSUPPORT), ("socket", (38, 5), errno.EAFNOSUPPORT), ("socket", (40, 1), errno.EAFNOSUPPORT),
        ("socketpair", (1, 1), 0), ("socketpair", (30, 1), errno.EAFNOSUPPORT),
        ("ioctl", (0, 0x5401), 0), ("ioctl", (0, 0x5412), errno.EPERM), ("ioctl", (0, 0x541C), errno.EPERM),
        ("ioctl", (0, 1 << 32 | 0x5412), errno.EPERM),
        ("clone", (0x1200011,), 0), ("clone", (0x3D0F00,), 0), ("clone", (0x10000011,), errno.EPERM),
        ("clone", (0x20000,), errno.EPERM), ("clone", (0x40000000,), errno.EPERM), ("clone", (0x02000000,), errno.EPERM),
        ("unshare", (0x400,), 0), ("unshare", (0x200,), 0), ("unshare", (0x10000000,), errno.EPERM), ("unshare", (0x80,), errno.EPERM),
        ("personality", (0,), 0), ("personality", (0xFFFFFFFF,), 0), ("personality", (0x40000,), 0), ("personality", (8,), 0),
        ("personality", (0x400000,), errno.EPERM), ("personality", (0x100000,), errno.EPERM),
    ],
)  # fmt: skip
def test_arguments_that_decide(name: str, arguments: tuple[int, ...], error: int) -> None:
    for machine in (X86, ARM):
        number, verdict = verdicts(machine)[name]
        assert verdict is CallVerdict.CHECKED
        assert answer(machine, number, *arguments) == error


def test_numbers_are_those_of_each_machine() -> None:
    known = {"read": (0, 63), "openat": (257, 56), "ptrace": (101, 117), "mmap": (9, 222), "execve": (59, 221),
             "process_vm_readv": (310, 270), "kcmp": (312, 272), "pidfd_getfd": (438, 438), "mseal": (462, 462)}  # fmt: skip
    for name, (x86, arm) in known.items():
        assert (verdicts(X86)[name][0], verdicts(ARM)[name][0]) == (x86, arm)
    assert "fork" not in verdicts(ARM)
    assert verdicts("pdp11") == {}
    assert syscall_filter("pdp11") is None


DOCKER_REFUSES = """
_sysctl acct afs_syscall bpf chroot clock_settime clone3 create_module delete_module fanotify_init file_getattr
file_setattr finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy getpmsg init_module io_uring_enter
io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load lookup_dcookie lsm_get_self_attr
lsm_list_modules lsm_set_self_attr mbind migrate_pages mount mount_setattr move_mount move_pages nfsservctl
open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise putpmsg query_module
quotactl quotactl_fd reboot security set_mempolicy set_mempolicy_home_node setdomainname sethostname setns settimeofday
swapoff swapon sysfs syslog tuxcall umount2 unshare uselib userfaultfd ustat vhangup vserver
"""
"""What a container without capabilities may not call: the calls of our table that are on no list of
https://github.com/moby/profiles/blob/190fa92cb2750186268c960ce30718d3495a228d/seccomp/default.json (read 2026-11)."""

SYSTEMD_REFUSES = """
_sysctl acct adjtimex afs_syscall bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
fanotify_mark finit_module fsconfig fsmount fsopen fspick get_kernel_syms getpmsg init_module ioperm iopl kexec_file_load
kexec_load landlock_add_rule landlock_create_ruleset landlock_restrict_self lookup_dcookie memfd_secret mincore
modify_ldt mount mount_setattr move_mount nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root
pkey_alloc pkey_free pkey_mprotect process_mrelease ptrace putpmsg query_module quotactl quotactl_fd reboot seccomp
security setdomainname sethostname settimeofday swapoff swapon sysfs syslog tuxcall umount2 uselib ustat vhangup vserver
"""
"""What is neither in `@system-service` nor in `@default`: `systemd-analyze syscall-filter` of systemd 252 (2022-10)."""
SYSTEMD_KNOWS_TO = 450
"""The last number that systemd 252 has a name for."""

STRICTER = {
    "one process of the sandbox takes over another, or its first one": "ptrace process_vm_readv process_vm_writev "
    "process_madvise kcmp",
    "calls are made in the kernel, past the filter": "io_uring_enter io_uring_register io_uring_setup",
    "keys of a user are not in a namespace": "add_key keyctl request_key",
    "faults of the kernel are held up by the program": "userfaultfd",
    "a file is opened by its number, past the mounts": "name_to_handle_at",
    "the machine's clock and its name stay": "adjtimex clock_adjtime",
    "only programs of long ago need it, and its mistakes were ways in": "modify_ldt epoll_ctl_old epoll_wait_old",
    "memory that nobody can count or look at": "memfd_secret",
    "events of files that others own": "fanotify_mark",
    "a machine with several memories serves others too": "mbind migrate_pages move_pages set_mempolicy "
    "set_mempolicy_home_node",
    "how the machine is mounted is not told twice": "listmount statmount",
    "namespaces are not entered": "setns",
    "nothing needs it, so programs do without": "clone3 process_mrelease",
}
LOOSER = {
    "reads where the caller's own memory is": "get_mempolicy",
    "flags of files, which `ioctl` gives and takes as well": "file_getattr file_setattr",
    "makes no namespace here, and shells use the rest": "unshare",
    "only takes rights away": "landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp",
    "changes the caller's own memory only": "mincore pkey_alloc pkey_free pkey_mprotect",
}
"""Where ours differs from Docker's or systemd's, by the reason."""


def test_where_it_differs_from_docker_and_systemd_has_a_reason() -> None:
    table = {**verdicts(ARM), **verdicts(X86)}
    ours = {
        name for name, (_, verdict) in table.items() if verdict in {CallVerdict.REFUSED, CallVerdict.MISSING}
    }
    docker = set(DOCKER_REFUSES.split())
    assert docker <= table.keys()
    systemd = set(SYSTEMD_REFUSES.split()) | {
        name for name, (number, _) in table.items() if number > SYSTEMD_KNOWS_TO and name in ours
    }
    stricter = {name for names in STRICTER.values() for name in names.split()}
    looser = {name for names in LOOSER.values() for name in names.split()}
    assert stricter == (ours - docker) | (ours - systemd)
    assert (docker | systemd) - ours == looser


PROBES = {
    name: verdicts(os.uname().machine)[name][0]
    for name, (_, verdict) in verdicts(os.uname().machine).items()
    if verdict in {CallVerdict.REFUSED, CallVerdict.MISSING}
}
ASK = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for word in sys.argv[1:]:
    name, number = word.split(":")
    answer = libc.syscall(int(number), *[ctypes.c_long(-1)] * 6)
    print(name, ctypes.get_errno() if answer == -1 else "done")
"""


@pytest.fixture
def python_inside(tmp_path: Path) -> str:
    (tmp_path / "ask.py").write_text(ASK)
    return f"{sys.executable} ask.py"


@LINUX_ONLY
async def test_each_is_refused_by_the_kernel_in_the_sandbox(tmp_path: Path, python_inside: str) -> None:
    later = {"a later one": 600}
    words = " ".join(f"{name.replace(' ', '-')}:{number}" for name, number in {**PROBES, **later}.items())
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    result = await environment.exec_command(f"{python_inside} {words}", timeout_ms=MS)
    await environment.cleanup()
    said = dict(line.rsplit(" ", 1) for line in result.stdout.splitlines())
    assert len(said) == len(PROBES) + 1, result.output
    assert {
        name: error for name, error in said.items() if error not in {str(errno.EPERM), str(errno.ENOSYS)}
    } == {}
    assert said["ptrace"] == said["pidfd_getfd"] == str(errno.EPERM)


C_PROGRAM = """
#include <pthread.h>
#include <stdio.h>
static void *say(void *word) { puts(word); return 0; }
int main(void) { pthread_t t; pthread_create(&t, 0, say, "in a thread"); return pthread_join(t, 0); }
"""
BUILDS = {
    "python": (("import asyncio, multiprocessing, subprocess, sys, threading, tempfile\n"
               "async def main():\n"
               "    process = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(6 * 7)')\n"
               "    await process.wait()\n"
               "if __name__ == '__main__':\n"
               "    multiprocessing.set_start_method('fork')\n"
               "    with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n"
               "    queue = multiprocessing.Queue(); queue.put('queued'); print(queue.get())\n"
               "    asyncio.run(main())\n"), f"{sys.executable} -W error::DeprecationWarning:x program", "42"),
    "git": ("", "git init -q x && cd x && touch a && git add a && git -c user.name=a -c user.email=b commit -qm one && git log --format=%s", "one"),
    "gcc": (C_PROGRAM, "cp program program.c && printf 'program: program.c\\n\\tgcc -pthread -fsanitize=undefined -o p program.c\\n' > Makefile && make -sj2 && ./p", "in a thread"),
    "node": (("const {Worker} = require('worker_threads'); const {execFileSync} = require('child_process');"
             "new Worker('console.log(6*7)', {eval: true}); execFileSync('true');"), "node program", "42"),
}  # fmt: skip


@LINUX_ONLY
@pytest.mark.parametrize("name", BUILDS)
async def test_ordinary_programs_work_behind_it(name: str, tmp_path: Path) -> None:
    if name != "python" and shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    text, line, said = BUILDS[name]
    (tmp_path / "program").write_text(text)
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    result = await environment.exec_command(line, timeout_ms=MS)
    await environment.cleanup()
    assert result.exit_code == 0, result.output
    assert said in result.stdout
