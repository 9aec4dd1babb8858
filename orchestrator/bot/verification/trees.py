"""Decides which changed paths are restored from the base when the base's tests run on the change's code."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from orchestrator.bot.policy.change_checks import PathPolicy
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, is_test_path
from orchestrator.engine.environments.patterns import path_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator.core.changes import FileChange

# Expected outputs, stand-ins and set-up files of tests, as jest, vitest, syrupy, vcrpy, insta and Go name them.
_TEST_DATA = re.compile(
    r"(?:.*/)?(?:__(?:mocks|snapshots|fixtures)__|cassettes|snapshots?|goldens?|fixtures|expected|approvals|baselines?)/.*|.*\.(?:snap|ambr|snap\.new|golden)"
    r"|(?:.*/)?(?:setup-?tests?|(?:test|tests|jest|vitest|mocha|karma|cypress|playwright|spec)[._-]?(?:setup|helpers?|utils?|env|config|base)"
    r"|(?:spec|test|rails)_helper)\.\w+",
    re.IGNORECASE | re.DOTALL,
)
# Scripts that run tests, builds or checks, by their names.
_SCRIPT = re.compile(
    r"(?:.*/)?(?:(?:run|ci|do)[._-]?)?(?:tests?|runtests|check|checks|ci|build|install|setup|bootstrap|lint|verify|coverage|cov|prepare)"
    r"(?:[._-]?(?:all|run|runner|ci|tests?|unit))?(?:\.(?:sh|bash|zsh|fish|ps1|bat|cmd|pl))?",
    re.IGNORECASE | re.DOTALL,
)
_INSTALLED_CODE = re.compile(
    r"(?:.*/)?[^/]+\.(?:egg-info|dist-info|egg-link)(?:/.*)?|.*\.(?:pth|so|pyd|pyc)", re.DOTALL
)
"""Compiled modules, and metadata of installed packages: pytest loads the plug-ins that it names."""
_RECIPE_NAMES = frozenset(
    "makefile gnumakefile justfile taskfile.yml taskfile.yaml tox.ini noxfile.py rakefile package.json".split()  # noqa: SIM905  words read best without quotes
)
_RECIPE_SCRIPT = re.compile(
    r"(?:scripts?|tools?|ci|hack|dev|support|etc)/.*|[^/]+\.(?:sh|bash|zsh|bat|cmd|ps1|pl)", re.DOTALL
)
"""Files that are executed if a recipe names them, and that are not product code, as `bin/cli.js` might be."""
_HOOKS = re.compile(rb"^(?:[ \t]*(?:async[ \t]+)?def[ \t]+pytest_\w+|[ \t]*pytest_plugins\b)", re.MULTILINE)
_RUNNERS = frozenset(
    "pytest _pytest py pluggy iniconfig exceptiongroup xdist execnet coverage hypothesis anyio nose nose2 unittest2 mock tox nox "  # noqa: SIM905  words read best without quotes
    "sitecustomize usercustomize setuptools pkg_resources _distutils_hack".split()
)
"""Modules that a run of Python tests imports before any test."""
_IMPORT_ROOTS = frozenset({"", "src", "lib", "python"})
_RUST_TESTS = re.compile(
    rb"#\[cfg\(test\)\][ \t]*\r?\n(?:#\[[^\n]*\n)*(?:pub(?:\(\w+\))? )?mod \w+ \{[ \t]*\r?\n(?>(?:(?!\}|#\[cfg\(test)[^\n]*\n)*)\}\s*\Z",
)
"""The test module at the end of a source file, as rustfmt lays it out. Other layouts count as code."""
_RUST_TESTS_BEGIN = b"\n#[cfg(test)]"
_PYTHON = (".py", ".pyc", ".so", ".pyd")


@dataclass(frozen=True, slots=True)
class TestFiles:
    """The files that belong to the tests of one repository.

    Attributes:
        patterns: patterns of further test files, as in `.gitignore`.
        commands: the test and set-up commands; files that they name are part of the run.
    """

    __test__ = False  # pytest would collect a class of this name

    patterns: Sequence[str] = ()
    commands: Sequence[str] = ()

    def is_test(self, path: str) -> bool:
        """Return whether a path belongs to the tests."""
        return (
            is_test_path(path)
            or _TEST_DATA.fullmatch(path) is not None
            or _pattern_test(tuple(self.patterns))(path)
        )

    def restored(
        self,
        files: Iterable[FileChange],
        base: Mapping[str, str],
        is_installed: Callable[[str], bool] = lambda _name: False,
        text_of: Callable[[str], str | None] = lambda _path: None,
    ) -> tuple[str, ...]:
        """Return the changed paths that are restored from the base for the base's tests, sorted.

        Args:
            files: all differences between change and base.
            is_installed: returns whether the base's tests import a module of this name that is not in the
                repository.
            text_of: returns a file's text in the base.
        """
        modules = _ShadowingModules(base, is_installed)
        changes = list(files)
        found = {change.path for change in changes if self._is_restored(change, modules)}
        if scripts := {change.path for change in changes if _RECIPE_SCRIPT.fullmatch(change.path)} - found:
            recipes = [
                _executed_text(path, text_of(path) or "") for path in base if path.lower() in _RECIPE_NAMES
            ]
            found |= {path for path in scripts if any(_mentions(recipe, path) for recipe in recipes)}
        return tuple(sorted(found))

    def tests(self, files: Iterable[FileChange]) -> tuple[str, ...]:
        """Return the changed paths that belong to the tests, sorted."""
        return tuple(sorted(change.path for change in files if any(map(self.is_test, _paths_of(change)))))

    def merged_sources(self, files: Iterable[FileChange], *, with_old_code: bool = False) -> dict[str, bytes]:
        """Return changed Rust files that contain code and tests, by path: the change's code with the base's tests.

        Args:
            files: all differences between change and base.
            with_old_code: whether to take the base's code with the change's tests instead.
        """
        merged = {}
        for change in files:
            old, new = (version.content if version else None for version in (change.old, change.new))
            if not change.path.endswith(".rs") or self.is_test(change.path) or old is None or new is None:
                continue
            code, with_tests = (old, new) if with_old_code else (new, old)
            tests = _rust_tests(with_tests)
            if tests != _rust_tests(code):
                code = code.removesuffix(_rust_tests(code))
                merged[change.path] = code + (b"\n" if code and not code.endswith(b"\n") else b"") + tests
        return merged

    def affects_setup(self, change: FileChange) -> bool:
        """Return whether a set-up may depend on a changed file: a manifest, a lock file, a build or a script."""
        return any(self._affects_run(path, change) for path in _paths_of(change))

    def _is_restored(self, change: FileChange, modules: _ShadowingModules) -> bool:
        return (
            any(self.is_test(path) or self._affects_run(path, change) for path in _paths_of(change))
            or modules.includes(change)
            or _becomes_plugin(change)
        )

    def _affects_run(self, path: str, change: FileChange) -> bool:
        return (
            _path_policy()(change) is not None
            or _SCRIPT.fullmatch(path) is not None
            or _INSTALLED_CODE.fullmatch(path) is not None
            or any(_mentions(command, path) for command in self.commands)
        )


@lru_cache(maxsize=8)
def _pattern_test(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return path_test(patterns)


class _ShadowingModules:
    """New modules that Python would import in place of the standard library, the test runner, or what tests import."""

    def __init__(self, base: Mapping[str, str], is_installed: Callable[[str], bool]) -> None:
        self._base, self._is_installed = base, is_installed
        self._roots = _IMPORT_ROOTS | {posixpath.dirname(path) for path in base if is_test_path(path)}
        self._folders = folders_of(base)

    def includes(self, change: FileChange) -> bool:
        """Return whether a change adds such a module."""
        if change.new is None or change.old is not None or not change.path.endswith(_PYTHON):
            return False
        return any(
            self._is_foreign(name)
            for root, name in set(_modules(change.path, self._roots))
            if f"{posixpath.join(root, name)}.py" not in self._base
            and posixpath.join(root, name) not in self._folders
        )

    def _is_foreign(self, name: str) -> bool:
        return (
            name in sys.stdlib_module_names
            or name in _RUNNERS
            or name.startswith(("pytest_", "_pytest"))
            or self._is_installed(name)
        )


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders that contain one of these paths."""
    return {path[:end] for path in paths for end, letter in enumerate(path) if letter == "/"}


def _modules(path: str, roots: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names under which a file can be imported, each with the folder that Python would search."""
    for root in roots:
        if not root or path.startswith(f"{root}/"):
            yield root, path.removeprefix(f"{root}/").partition("/")[0].partition(".")[0]


_path_policy = cache(PathPolicy)


def _paths_of(change: FileChange) -> tuple[str, ...]:
    """Return the path, and one below it if it may be a folder."""
    modes = {version.mode for version in (change.old, change.new) if version is not None}
    return (change.path, f"{change.path}/_") if modes & {LINK_MODE, SUBMODULE_MODE} else (change.path,)


def _executed_text(path: str, text: str) -> str:
    """Return the part of a file of commands that is executed: all of it, or the scripts of a package."""
    if not path.lower().endswith(".json"):
        return text
    try:
        scripts = json.loads(text)["scripts"].values()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ""
    return "\n".join(map(str, scripts))


def _rust_tests(source: bytes) -> bytes:
    """Return the test module at the end of a source file; empty if there is none."""
    start = source.rfind(_RUST_TESTS_BEGIN)
    found = _RUST_TESTS.match(source, start + 1 if start >= 0 else 0)
    return found[0] if found else b""


def _becomes_plugin(change: FileChange) -> bool:
    """Return whether a Python file becomes a plug-in of pytest."""
    if not change.path.endswith(".py") or change.new is None:
        return False
    old = change.old.content if change.old else b""
    return bool(_HOOKS.search(change.new.content or b"")) and not _HOOKS.search(old or b"")


def _mentions(command: str, path: str) -> bool:
    """Return whether a command names a file."""
    return re.search(rf"(?<![\w./-])(?:\./)?{re.escape(path)}(?![\w/-]|\.\w)", command) is not None
