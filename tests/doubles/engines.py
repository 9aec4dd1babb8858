"""Container engines of this machine, and images made of its own programs: no registry is asked."""

from __future__ import annotations

import functools
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

ENGINES = ("docker", "podman")
PROGRAMS = (
    "awk base64 bash basename cat chmod cp curl date dd dirname dash env expr find git grep head id ln ls mkdir mktemp "
    "mount mv nice od printf ps pwd readlink realpath rev rm rmdir sed seq setsid sh sleep sort stat tail tee test "
    "timeout touch tr true umount uname unshare wc whoami xargs"
)
IMAGE, SMALL_IMAGE = "pullwright-test:programs", "pullwright-test:busybox"
SECONDS = 120
NO_ENGINE = "no container engine can run a container here (start dockerd, or install podman)"


@functools.cache
def engine() -> str:
    """The engine that `PULLWRIGHT_TEST_ENGINE` names, else the first that can run a container.

    The test is skipped where no engine can: one that answers may still lack what it starts containers with.
    """
    named = os.environ.get("PULLWRIGHT_TEST_ENGINE")
    for name in named.split() if named else ENGINES:
        if shutil.which(name) and _run(name, "info").returncode == 0 and (named or _can_run(name)):
            return name
    pytest.skip(NO_ENGINE)


def _can_run(name: str) -> bool:
    ensure_image(name, IMAGE)
    return _run(name, "run", "--rm", "--network", "none", IMAGE, "true").returncode == 0


def ensure_image(engine_name: str, image: str) -> None:
    """Make an image of this machine's programs if the engine does not have it."""
    if _run(engine_name, "image", "inspect", image).returncode:
        content = _programs() if image == IMAGE else _busybox()
        made = _run(engine_name, "import", "-", image, content=content)
        assert made.returncode == 0, made.stderr


def _run(name: str, *words: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([name, *words], input=content, capture_output=True, check=False, timeout=SECONDS)


def _programs() -> bytes:
    """Programs of this machine with their libraries, as a tar file."""
    files: dict[str, str] = {}
    for name in PROGRAMS.split():
        if program := shutil.which(name, path="/usr/bin:/bin"):
            files[f"usr/bin/{name}"] = os.path.realpath(program)
    extensions = Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so")
    for file in [*files.values(), sys.executable, *map(str, extensions)]:
        said = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", said):
            inside = re.sub(r"^/(?=lib)", "usr/", library).lstrip("/")
            files[inside] = os.path.realpath(library)
    return _tar(files, {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"})


def _busybox() -> bytes:
    program = shutil.which("busybox")
    if program is None or b"dynamically linked" in _run("file", "-L", program).stdout:
        pytest.skip("no busybox that runs by itself (install busybox-static)")
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in names if name != "busybox"}
    return _tar({"bin/busybox": program}, links)


def _tar(files: dict[str, str], links: dict[str, str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for folder in sorted({"tmp", "etc", *(str(Path(name).parent) for name in files)}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        for name, source in files.items():
            tar.add(source, arcname=name, recursive=False)
    return written.getvalue()
