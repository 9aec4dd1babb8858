"""`python -m orchestrator` is the command `pullwright`.

A Python that is too old for the program can read this file, and one without its packages can run it: both say
in one line what to do. So nothing here is newer than Python 3.8.
"""

import os
import sys
from pathlib import Path

LEAST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")
USAGE = 2  # as in orchestrator/app/cli/arguments.py
HERE = Path(__file__).resolve().parents[1]
NEEDS_NO_PACKAGES = {"-h", "--help", "--version"}
EXPLAINING = {"help", "completion"}
SHOWN_PACKAGES = 3


def check_python() -> str:
    """What to do about a Python that is too old, or nothing."""
    if sys.version_info >= LEAST_PYTHON:
        return ""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [name for name in NEWER_PYTHONS if any(os.access(Path(at, name), os.X_OK) for at in folders)]
    instead = f"use {found[0]}, which is here" if found else "install one, for example with uv or pyenv"
    version = ".".join(map(str, sys.version_info[:3]))
    return f"Pullwright needs Python 3.11 or newer; this is {version}: {instead}"


def check_packages() -> str:
    """What to do about packages that are missing, or nothing."""
    import re
    import tomllib
    from importlib import metadata

    described = HERE / "pyproject.toml"
    if not described.exists():  # somebody copied only the program
        return ""
    missing = []
    for requirement in tomllib.loads(described.read_text("utf-8"))["project"]["dependencies"]:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            if ";" not in requirement:  # else it may not be for this machine
                metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if not missing:
        return ""
    own = HERE / ".venv"
    if (own / "bin/python").exists() and Path(sys.prefix).resolve() != own.resolve():
        return f"this Python has not the packages that Pullwright needs: run it with {own}/bin/python"
    more = len(missing) - SHOWN_PACKAGES
    shown = ", ".join(missing[:SHOWN_PACKAGES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"this Python has not the packages that Pullwright needs ({shown}): set them up with "
        f"cd {HERE} && python3 -m venv .venv && .venv/bin/pip install -r requirements.lock, "
        "and run it with .venv/bin/python"
    )


def start() -> int:
    """Run the command, and return its exit status."""
    problem = check_python()
    typed = sys.argv[1:]
    if not problem and typed and typed[0] not in EXPLAINING and not NEEDS_NO_PACKAGES.intersection(typed):
        problem = check_packages()
    if problem:
        sys.stderr.write(f"pullwright: {problem}\n")
        return USAGE

    from orchestrator.app.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
