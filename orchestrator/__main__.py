"""`python -m orchestrator` is the command `pullwright`; in a source tree, `set-up` installs what it needs.

A Python that is too old for the program can read this file, and one without its packages can run it: both print
one line that says what to do. So the file uses no syntax that is newer than Python 3.8.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LEAST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")
USAGE = 2  # as in orchestrator/app/cli/arguments.py
NEEDS_NO_PACKAGES = {"-h", "--help", "--version"}
EXPLAINING = {"help", "completion"}
SHOWN_PACKAGES = 3
SET_UP = "set-up"
FAILED = 1
LAST_LINES = 5


def source_tree() -> "Path":
    """Return the folder that contains the package."""
    from pathlib import Path

    return Path(__file__).resolve().parents[1]


def check_python() -> str:
    """Return what to do about a Python that is too old; empty if it is not."""
    if sys.version_info >= LEAST_PYTHON:
        return ""
    from pathlib import Path

    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [name for name in NEWER_PYTHONS if any(os.access(Path(at, name), os.X_OK) for at in folders)]
    instead = f"use {found[0]}, which is here" if found else "install one, for example with uv or pyenv"
    version = ".".join(map(str, sys.version_info[:3]))
    return f"Pullwright needs Python 3.11 or newer; this is {version}: {instead}"


def check_packages() -> str:
    """Return what to do about missing packages; empty if there are none."""
    import re
    import tomllib
    from importlib import metadata

    described = source_tree() / "pyproject.toml"
    if not described.exists():  # somebody copied only the program
        return ""
    missing = []
    for requirement in tomllib.loads(described.read_text("utf-8"))["project"]["dependencies"]:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            if ";" not in requirement:  # a condition may exclude this machine
                metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if not missing:
        return ""
    own = source_tree() / ".venv"
    if (own / "bin/python").exists() and not own.samefile(sys.prefix):
        return f"this Python lacks packages that Pullwright needs: run it with {own}/bin/python"
    more = len(missing) - SHOWN_PACKAGES
    shown = ", ".join(missing[:SHOWN_PACKAGES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"this Python lacks packages that Pullwright needs ({shown}): set them up with "
        f"python3 {source_tree()}/run_local_agent.py {SET_UP}, and run it with {own}/bin/python"
    )


def set_up(words: "list[str]") -> int:
    """Make `.venv` in a source tree, with what the program needs; with `--tests` also what its tests need."""
    import shutil
    import subprocess

    here = source_tree()
    lock = here / ("tests/requirements.lock" if words == ["--tests"] else "requirements.lock")
    problem = "" if words in ([], ["--tests"]) else f"{SET_UP} knows --tests only, not {' '.join(words)}"
    if not problem and not lock.exists():
        problem = (
            f"{SET_UP} is for a clone of the source; this is an installed package, which needs no set-up"
        )
    if not problem and shutil.which("git") is None:
        problem = "git is missing: install it (apt install git, dnf install git, brew install git)"
    if problem:
        sys.stderr.write(f"pullwright: {problem}\n")
        return USAGE
    began = time.monotonic()
    python = here / ".venv/bin/python"
    if not python.exists():
        tell(f"making {here}/.venv, with Python {'.'.join(map(str, sys.version_info[:3]))} ...")
        command = [sys.executable, "-m", "venv", str(here / ".venv")]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:  # noqa: S603  Python itself
            sys.stderr.write("pullwright: python3 cannot make environments: install python3-venv\n")
            return FAILED
    if install(python, lock):
        return FAILED
    tell(f"done in {time.monotonic() - began:.0f} s")
    return 0


def install(python: "Path", lock: "Path") -> int:
    """Install the packages of a lock file, each checked against its hash, and show the progress."""
    import subprocess

    wanted = sum("==" in line and not line.startswith("#") for line in lock.read_text("utf-8").splitlines())
    tell(f"installing {wanted} packages from {lock.relative_to(source_tree())} ...")
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    done = subprocess.Popen(  # noqa: S603  pip, in the environment that was made for it
        [*command, "-r", str(lock)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    lines, seen = [], set()
    for line in done.stdout or ():
        lines.append(line.rstrip())
        name = line.partition(":")[2] if line.startswith("Requirement already") else line[len("Collecting") :]
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            seen.add(name.strip().partition("==")[0])
            show_progress(f"  {len(seen)} of {wanted}: {name.strip().partition('==')[0]}")
        elif line.startswith("Installing collected"):
            show_progress("  unpacking ...")
    show_progress("")
    if done.wait():
        sys.stderr.write("".join(f"  {line}\n" for line in lines[-LAST_LINES:]))
        sys.stderr.write("pullwright: pip failed as shown: check the network and the package index\n")
    return done.returncode


def tell(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_progress(text: str) -> None:
    """Show a line that the next one replaces, on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\x1b[K{text[:70]}")
        sys.stdout.flush()


def start() -> int:
    """Run the command, and return its exit status."""
    problem = check_python()
    typed = sys.argv[1:]
    if not problem and typed[:1] == [SET_UP]:
        return set_up(typed[1:])
    if not problem and typed and typed[0] not in EXPLAINING and not NEEDS_NO_PACKAGES.intersection(typed):
        problem = check_packages()
    if problem:
        sys.stderr.write(f"pullwright: {problem}\n")
        return USAGE

    if typed and typed[0] not in EXPLAINING and not NEEDS_NO_PACKAGES.intersection(typed):
        from orchestrator.core.watchdog import leave_first_process, leave_within_grace, start_watchdog

        leave_first_process()
        start_watchdog()
        status = FAILED
        try:
            status = run_command()
        finally:
            leave_within_grace(status)
        return status
    return run_command()


def run_command() -> int:
    """Run the command that was typed, and return its exit status."""
    from orchestrator.app.cli import main
    from orchestrator.app.terminal import redact_terminal

    redact_terminal()  # to the very end: Python itself prints an error that nobody handled
    return main()


if __name__ == "__main__":
    sys.exit(start())
