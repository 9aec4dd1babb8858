from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.modules import modules
from tests.matrix import SLICE

if TYPE_CHECKING:
    from tests.architecture.modules import Module

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("orchestrator", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_python_folder_lacks_an_init() -> None:
    bare = {str(path.parent) for path in SOURCES if not (path.parent / "__init__.py").exists()}
    assert bare == set()


def test_the_top_level_has_what_was_agreed_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.split("/")[0] for name in listed.splitlines()} == {
        *(
            ".ci",
            ".github",
            ".gitignore",
            "AGENTS.md",
            "CHANGELOG.md",
            "LICENSE",
            "README.md",
            "docs",
            "orchestrator",
        ),
        *("prompts", "pyproject.toml", "requirements.lock", "run_local_agent.py", "tests"),
    }


def test_packages_import_only_from_those_below() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def imported(module: Module, known: set[str]) -> set[str]:
    """The modules of the program that a module imports, in annotations too."""
    found = set()
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & known


def test_no_modules_import_each_other_in_a_circle_not_even_for_annotations() -> None:
    files = {
        f"orchestrator.{module.name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__"): module
        for module in modules()
    }
    graph = {name: imported(module, files.keys() - {name}) for name, module in files.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_a_public_name_stands_for_one_thing_in_the_whole_program() -> None:
    homes: dict[str, set[str]] = {}
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                homes.setdefault(node.name, set()).add(module.name)
    twice = {name for name, where in homes.items() if len(where) > 1 and not name.startswith("_")}
    # A program's beginning, in each file that is one; the command `run`, and what runs a coroutine.
    assert twice == {"main", "run"}


@pytest.mark.parametrize(
    "name",
    [
        *("requirements.lock", "tests/requirements.lock", "docs/requirements.lock", "docs/docker/fleet.lock"),
        ".github/actions/pullwright/installer.lock",
    ],
)
def test_a_lock_file_is_hashed_and_names_no_registry(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [at for at, line in enumerate(lines) if line[:1].isalnum()]
    assert pins
    assert all("--hash=sha256:" in lines[at + 1] for at in pins)
    assert not [
        line
        for line in lines
        if "://" in line or line.lstrip().startswith(("-i ", "--index", "--extra", "--find"))
    ]


def test_the_locks_agree_with_each_other_and_cover_the_dependencies() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        named = [
            re.sub(r"\[.*?\]", "", line.split(" ")[0]).split("==")
            for line in lines
            if "==" in line and line[:1].isalnum()
        ]
        return {package.lower(): version for package, version in named}

    runtime, fleet = pins("requirements.lock"), pins("docs/docker/fleet.lock")
    tests = pins("tests/requirements.lock")
    assert {name: tests.get(name) for name in runtime | fleet} == runtime | fleet
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.split(">")[0].lower() for line in project["dependencies"]}
    assert named <= set(runtime)
    extra = {line.split(">")[0].lower() for line in project["optional-dependencies"]["fleet"]}
    assert extra <= set(fleet)


def test_no_file_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    words = ["/" + "work/", "/" + "root/", "py" + "pi.org/simple", "files.python" + "hosted"]
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [(name, word) for word in words if word in text]
    assert found == []


def test_a_lock_names_the_extras_that_its_packages_ask_for() -> None:
    # pip before 23.3 looks for PACKAGE[EXTRA] without the version and hashes of a line that says PACKAGE,
    # and fails as soon as the index has a newer version than the lock.
    for name in ("requirements.lock", "tests/requirements.lock", "docs/docker/fleet.lock"):
        pins = _pinned_extras(name)
        asked = {
            (canonicalize_name(needed.name), extra)
            for package in pins
            for needed in map(Requirement, _requires(package))
            if needed.marker is None or _applies(needed, pins[package])
            for extra in needed.extras
        }
        assert {one for one in asked if one[1] not in pins.get(one[0], {one[1]})} == set(), name


def _pinned_extras(name: str) -> dict[str, set[str]]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line.rstrip("\\ ")) for line in lines if line[:1].isalnum()]
    return {canonicalize_name(pin.name): pin.extras for pin in pins}


def _requires(package: str) -> list[str]:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # for another system or version of Python
        return []


def _applies(needed: Requirement, extras: set[str]) -> bool:
    assert needed.marker is not None
    return any(needed.marker.evaluate({"extra": extra}) for extra in {"", *extras})


def test_what_the_matrix_plays_is_there() -> None:
    assert [name for name in SLICE if not (ROOT / name.partition("::")[0]).is_file()] == []
