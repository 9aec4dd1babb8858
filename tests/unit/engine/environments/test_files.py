"""The files of one folder: no path leads out of it, and no tool reads what is no file."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.environments.files import ConfinedTree
from orchestrator.engine.environments.local import LocalEnvironment
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

BIG = 1_000_000
NOBODY = 65_534


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "README.md").write_text("# Read me\n")
    return folder


@pytest.fixture
def tree(root: Path) -> Iterator[ConfinedTree]:
    with ConfinedTree(root) as opened:
        yield opened


def test_reads_what_it_wrote(tree: ConfinedTree, root: Path) -> None:
    tree.write("new/deep/file.txt", b"text")
    assert (root / "new/deep/file.txt").read_bytes() == b"text"
    assert tree.read("new/deep/file.txt", max_bytes=4) == b"text"
    assert tree.exists(str(root / "new/deep/file.txt"))
    assert [entry.name for entry in tree.entries(("new", "deep"))] == ["file.txt"]


def test_no_folder_at_the_root(tmp_path: Path, root: Path) -> None:
    with pytest.raises(FileMissingError):
        ConfinedTree(tmp_path / "missing")
    with pytest.raises(FileUnreadableError):
        ConfinedTree(root / "README.md")


def test_a_root_reached_through_a_link_takes_both_spellings(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    with ConfinedTree(tmp_path / "alias") as tree:
        assert tree.relative(str(tmp_path / "alias/src/a.py")) == "src/a.py"
        assert tree.relative(str(root / "src/a.py")) == "src/a.py"


LINKS = {
    "file": "../outside/secret.txt",
    "folder": "../outside",
    "absolute": "/etc/passwd",
    "dangling": "../outside/new.txt",
    "dangling_inside": "nowhere.txt",
    "inside": "README.md",
    "proc": "/proc/self/environ",
    "device": "/dev/zero",
    "loop": "loop",
}


@pytest.mark.parametrize("kind", LINKS)
def test_no_link_is_followed(kind: str, tree: ConfinedTree, root: Path, outside: Path) -> None:
    (root / kind).symlink_to(LINKS[kind])
    for path in (kind, f"{kind}/new.txt", f"{kind}/x/y"):
        with pytest.raises(PathRefusedError, match="symbolic link"):
            tree.read(path, max_bytes=BIG)
        with pytest.raises(PathRefusedError, match="symbolic link"):
            tree.write(path, b"gotcha")
        with pytest.raises(PathRefusedError, match="symbolic link"):
            tree.exists(path)
    with pytest.raises(PathRefusedError):
        tree.entries((kind,))
    assert names_in(outside) == ["secret.txt"]
    assert (root / kind).is_symlink()


def test_names_are_checked_again_at_the_file_system(tree: ConfinedTree) -> None:
    for names in (("..",), ("src", "..", ".."), (".git",), ("src/..",), ("",)):
        with pytest.raises(PathRefusedError):
            tree.entries(names)


def test_what_is_no_regular_file_is_neither_read_nor_replaced(tree: ConfinedTree, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(root):  # a socket's path must be short
        server.bind("sock")
    for name, kind in (("pipe", "named pipe"), ("sock", "socket"), ("src", "folder")):
        with pytest.raises(FileUnreadableError, match=kind):
            tree.read(name, max_bytes=BIG)
        with pytest.raises(ToolError, match=kind):
            tree.write(name, b"")
        assert not tree.exists(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_device_is_not_read(tree: ConfinedTree, root: Path) -> None:
    try:
        os.mknod(root / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container allows no device nodes")
    with pytest.raises(FileUnreadableError, match="device"):
        tree.read("zero", max_bytes=BIG)


def test_a_200_mb_file_is_refused_without_being_read(tree: ConfinedTree, root: Path) -> None:
    with (root / "big.bin").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(FileUnreadableError, match="200,000,000 bytes"):
        tree.read("big.bin", max_bytes=10_000_000)


def test_missing_and_misplaced(tree: ConfinedTree) -> None:
    with pytest.raises(FileMissingError, match=r"nope\.txt does not exist"):
        tree.read("nope.txt", max_bytes=BIG)
    with pytest.raises(FileUnreadableError, match=r"README\.md is not a folder"):
        tree.read("README.md/x", max_bytes=BIG)
    with pytest.raises(FileUnreadableError, match=r"README\.md is not a folder"):
        tree.write("README.md/x", b"")
    with pytest.raises(ToolError, match="names a folder"):
        tree.write("new/", b"")
    with pytest.raises(ToolError, match="names a folder"):
        tree.write(".", b"")
    assert not tree.exists("README.md/x")


def test_mode_is_kept_and_a_new_file_gets_the_usual_one(tree: ConfinedTree, root: Path) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    tree.write("run.sh", b"new")
    tree.write("fresh.txt", b"")
    (root / "plain.txt").touch()
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (root / "fresh.txt").stat().st_mode == (root / "plain.txt").stat().st_mode


def test_another_name_of_the_file_keeps_its_content(tree: ConfinedTree, root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "hard.txt")
    tree.write("hard.txt", b"new")
    assert (outside / "secret.txt").read_text() == "secret"
    assert (root / "hard.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("existing", "asked"),
    [("README.md", "readme.md"), ("é.txt", "e\u0301.txt"), ("src", "SRC/b.py"), ("src", "Src")],
)
def test_spellings_that_collide_elsewhere_are_refused(
    existing: str, asked: str, root: Path, tree: ConfinedTree
) -> None:
    (root / "é.txt").touch()
    before = names_in(root)
    with pytest.raises(PathRefusedError, match=f"{existing} exists"):
        tree.write(asked, b"")
    assert names_in(root) == before


def test_an_existing_git_folder_in_capitals_is_never_entered(tree: ConfinedTree, root: Path) -> None:
    (root / ".GIT").mkdir()
    for path in (".GIT/config", ".git/config"):
        with pytest.raises(PathRefusedError):
            tree.write(path, b"")
    assert names_in(root / ".GIT") == []
    assert ".GIT" not in [entry.name for entry in tree.entries(())]


@pytest.mark.parametrize("kind", ["folder", "file", "capitals"])
def test_nothing_is_written_into_a_nested_repository(kind: str, tree: ConfinedTree, root: Path) -> None:
    inner = root / "vendor" / "lib"
    (inner / "deep").mkdir(parents=True)
    (inner / "x.py").write_text("old")
    if kind == "file":
        (inner / ".git").write_text("gitdir: ../../.git/modules/lib")
    else:
        (inner / (".GIT" if kind == "capitals" else ".git")).mkdir()
    for path in ("vendor/lib/x.py", "vendor/lib/new.py", "vendor/lib/deep/new.py", "vendor/lib/made/new.py"):
        with pytest.raises(PathRefusedError, match="another repository"):
            tree.write(path, b"new")
    (inner / "deep" / "y.py").write_text("old")
    for path in ("vendor/lib/x.py", "vendor/lib/deep/y.py"):
        with pytest.raises(PathRefusedError, match="another repository"):
            tree.remove(path)
        assert tree.read(path, max_bytes=BIG) == b"old"
    tree.write("vendor/other.py", b"fine")


def test_nothing_is_written_into_a_submodule_that_is_not_checked_out(root: Path) -> None:
    (root / "sub").mkdir()
    with ConfinedTree(root, submodules=["sub"]) as tree:
        for path in ("sub", "sub/x.py"):
            with pytest.raises(PathRefusedError, match="another repository"):
                tree.write(path, b"")
        (root / "sub/x.py").touch()
        with pytest.raises(PathRefusedError, match="another repository"):
            tree.remove("sub/x.py")
        tree.write("subject.py", b"fine")


def test_names_that_are_not_utf8_are_listed_and_do_not_stop_writes(tree: ConfinedTree, root: Path) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt"))).write_bytes(b"x")
    assert "caf\udce9.txt" in [entry.name for entry in tree.entries(())]
    tree.write("other.txt", b"fine")
    with pytest.raises(PathRefusedError, match="not valid Unicode"):
        tree.read("caf\udce9.txt", max_bytes=BIG)


def test_missing_permission_is_an_error(tree: ConfinedTree, root: Path) -> None:
    (root / "closed").mkdir()
    (root / "closed.txt").write_text("x")
    for path in (root / "closed", root / "closed.txt"):
        path.chmod(0)
    me = os.geteuid()
    if me == 0:  # to whom nothing is closed
        os.seteuid(NOBODY)
    try:
        with pytest.raises(FileUnreadableError, match="no permission"):
            tree.read("closed.txt", max_bytes=BIG)
        with pytest.raises(FileUnreadableError, match="no permission"):
            tree.write("closed/x", b"")
    finally:
        os.seteuid(me)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with ConfinedTree(small) as tree:
            tree.write("a.txt", b"old")
            with pytest.raises(ToolError, match=r"a\.txt was not written: no space is left"):
                tree.write("a.txt", b"x" * 100_000)
            assert tree.read("a.txt", max_bytes=BIG) == b"old"
            assert names_in(small) == ["a.txt"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_failed_write_leaves_no_temporary_file(tree: ConfinedTree, root: Path) -> None:
    (root / "taken").mkdir()
    with pytest.raises(ToolError):
        tree.write("taken", b"x")
    assert names_in(root) == ["README.md", "src", "taken"]


def test_after_closing_nothing_is_opened(root: Path) -> None:
    tree = ConfinedTree(root)
    tree.close()
    tree.close()
    with pytest.raises(ToolError, match="was closed"):
        tree.read("README.md", max_bytes=BIG)


def test_a_swapped_folder_never_leads_outside(tree: ConfinedTree, root: Path, outside: Path) -> None:
    """While writes and reads run, a thread swaps a folder for a link to the outside, and back."""
    door, aside = root / "door", root / "aside"
    door.mkdir()
    (outside / "deep").mkdir()
    done = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            try:
                door.rename(aside)
                door.symlink_to(outside)
                swaps += 1
                door.unlink()
                aside.rename(door)
            except OSError:  # a write made the folder anew in between
                shutil.rmtree(aside, ignore_errors=True)
                door.mkdir(exist_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    written = refused = 0
    try:
        for number in range(800):
            try:
                tree.write(f"door/{number % 7}.txt", b"inside")
                written += 1
                tree.write("door/deep/x.txt", b"inside")
                assert tree.read("door/secret.txt", max_bytes=BIG) != b"secret"
            except ToolError:
                refused += 1
    finally:
        done.set()
        thread.join()
    assert swaps > 10
    assert written > 10
    assert refused > 10
    assert names_in(outside) == ["deep", "secret.txt"]
    assert names_in(outside / "deep") == []
    assert (outside / "secret.txt").read_text() == "secret"


NAMES = st.sampled_from(
    [
        "src",
        "a.py",
        "README.md",
        "..",
        ".",
        "",
        "in",
        "out",
        "up",
        "dangling",
        "loop",
        ".git",
        "new",
        "new.txt",
        "é",
    ]
)


@settings(
    max_examples=2 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(NAMES, max_size=6), st.sampled_from(["", "/"]))
def test_no_accepted_path_resolves_outside(
    tree: ConfinedTree, root: Path, names: list[str], start: str
) -> None:
    """Whatever is read or written, the kernel's own resolution agrees that it is inside."""
    outside = root.parent / "out"
    outside.mkdir(exist_ok=True)
    (outside / "a.py").write_text("outside")
    for link, target in (
        ("in", "src"),
        ("out", "../out"),
        ("up", ".."),
        ("dangling", "../out/new"),
        ("loop", "loop"),
    ):
        with suppress(FileExistsError):
            (root / link).symlink_to(target)
    path = "/".join(names)
    if start:
        path = f"{root}/{path}"
    real_root = os.path.realpath(root)
    try:
        content = tree.read(path, max_bytes=BIG)
    except ToolError:
        pass
    else:
        real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118  the kernel's own rules
        assert real.startswith(real_root + os.sep)
        assert content == Path(real).read_bytes()
    with suppress(ToolError):
        tree.write(path, b"inside")
        assert (root / tree.relative(path)).read_bytes() == b"inside"
        assert os.path.realpath(root / tree.relative(path)) == os.path.join(real_root, tree.relative(path))  # noqa: PTH118
    assert names_in(outside) == ["a.py"]
    assert (outside / "a.py").read_text() == "outside"


def test_a_swapped_file_never_leads_outside(tree: ConfinedTree, root: Path, outside: Path) -> None:
    """While reads run, another process puts a link in the file's place, and the file back."""
    (root / "real").write_text("mine")
    swap = "i=0; while test $i -lt 40; do i=$((i+1)); ln real a; mv -f a file; ln -s ../outside/secret.txt b; mv -f b file; done"
    os.link(root / "real", root / "file")
    assert (root / ".." / "outside").resolve() == outside
    with subprocess.Popen(["/bin/sh", "-c", swap], cwd=root) as swapping:
        seen = set()
        while swapping.poll() is None:
            with suppress(ToolError):
                seen.add(tree.read("file", max_bytes=BIG))
    assert seen == {b"mine"}


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
PATHS = [
    "/proc/self/environ",
    "/proc/1/environ",
    "/proc/self/fd/0",
    "/proc/self/cwd/file",
    f"/proc/self/{'root'}/etc/passwd",
    "/dev/fd/0",
    "/dev/stdin",
    "/dev/zero",
    "/dev/../proc/self/maps",
    "//proc//self/./environ",
    "/sys/kernel/notes",
    "/sys",
    "../../../../../../../../proc/self/environ",
    "to-proc/self/environ",
    "to-environ",
    "to-zero",
    "to-fd/0",
    "sub/../to-zero",
]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    for name, target in {
        "to-proc": "/proc", "to-environ": "/proc/self/environ", "to-zero": "/dev/zero", "to-fd": "/dev/fd",
    }.items():  # fmt: skip
        (tmp_path / name).symlink_to(target)
    environment = LocalEnvironment(tmp_path)
    yield environment
    await environment.cleanup()


@on_linux
async def test_no_way_of_any_tool_leads_to_what_is_no_file(here: LocalEnvironment) -> None:
    for path in PATHS:
        for act in (
            here.read_file(path, max_bytes=10**9),
            here.write_file(path, b"x"),
            here.write_file("fine", b"x", mode_of=path),
            here.remove_file(path),
            here.list_directory(path, depth=1),
            here.grep("x", path, GrepOptions()),
            here.glob("*", path),
            here.exec_command("true", timeout_ms=9_000, working_dir=path),
        ):
            with pytest.raises(PathRefusedError):
                await act


@on_linux
@table("root", ["/", "/proc", "/proc/self", "/sys/kernel", "/dev", "/dev/fd/.."])
def test_folders_of_the_kernel_are_refused_as_root(root: str) -> None:
    with pytest.raises(PathRefusedError, match="system"):
        ConfinedTree(Path(root))


MOUNTED = """
import sys
from pathlib import Path
from orchestrator.core.errors import PathRefusedError
from orchestrator.engine.environments.files import ConfinedTree
with ConfinedTree(Path(sys.argv[1])) as tree:
    for path in ("inner/self/environ", "inner/version", "zero"):
        try:
            tree.read(path, max_bytes=10**6)
        except Exception as error:
            print(path, type(error).__name__)
    try:
        print(tree.entries(("inner",)))
    except PathRefusedError:
        print("inner refused")
"""


@on_linux
@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
def test_a_mount_inside_is_not_entered(tmp_path: Path) -> None:
    """In a mount namespace of its own, which ends with the command."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "zero").touch()
    line = 'mount -t proc none "$1/inner" && mount --bind /dev/zero "$1/zero" && exec "$2" -c "$3" "$1"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-ec", line, "sh", tmp_path, sys.executable, MOUNTED],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [
        "inner/self/environ PathRefusedError",
        "inner/version PathRefusedError",
        "zero FileUnreadableError",
        "inner refused",
    ]


def test_a_file_that_grows_is_read_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 1_000)
    stop = threading.Event()

    def grow() -> None:
        with file.open("ab", buffering=0) as log:
            while not stop.is_set() and log.tell() < 10**8:
                log.write(b"x" * 10_000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with ConfinedTree(tmp_path) as tree:
            for _ in range(50):
                try:
                    assert len(tree.read("log", max_bytes=1_000_000)) <= 1_000_001
                except FileUnreadableError as error:
                    assert "over the limit" in str(error)  # noqa: PT017  both ends are right
    finally:
        stop.set()
        writer.join()
