"""Small repositories with a change each: one that makes a failing test pass without mending anything, or an honest one.

`weakenings.toml` holds them as data; here they become git repositories of two commits.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = Path(__file__).with_name("weakenings.toml")
_AUTHOR = ("-c", "user.name=Tests", "-c", "user.email=tests@example.invalid", "-c", "commit.gpgsign=false")


@dataclass(frozen=True, slots=True)
class Case:
    """A repository and a change to it.

    Attributes:
        name: says what is done.
        is_honest: the change may not be reported; else it must be.
        adds: the honest change brings tests that must fail on its parent.
        command: what runs the tests.
        task: what was asked for.
        report: the file that the command itself writes its report to; empty if there is none.
        needs: a program without which the case cannot be run; empty if Python is enough.
        known_limit: why no run can tell this one; empty where one can.
        before: the files of the parent, by path.
        after: the files of the change.
    """

    name: str
    is_honest: bool
    adds: bool
    command: str
    task: str
    report: str
    needs: str
    known_limit: str
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def can_run(self) -> bool:
        """Whether this machine has what the case needs."""
        return not self.needs or shutil.which(self.needs) is not None

    def write(self, folder: Path) -> tuple[str, str]:
        """Make a repository in an empty folder; the ids of the parent and of the change."""
        _git(folder, "init", "-q", "-b", "main")
        return self._commit(folder, self.before), self._commit(folder, self.after)

    def _commit(self, folder: Path, files: Mapping[str, str]) -> str:
        _git(folder, "rm", "-rqf", "--ignore-unmatch", ".")
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        _git(folder, "add", "-Af", ".")
        _git(folder, *_AUTHOR, "commit", "-q", "--allow-empty", "-m", self.task)
        return _git(folder, "rev-parse", "HEAD").strip()


def cases(python: str = sys.executable) -> list[Case]:
    """Every weakening and every honest change, in the order of the file. `python` is what `{python}` stands for."""
    data = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    return [
        _case(data["bases"][entry["base"]], entry, python, is_honest=kind == "honest")
        for kind in ("weakening", "honest")
        for entry in data[kind]
    ]


def _case(base: Mapping[str, Any], entry: Mapping[str, Any], python: str, *, is_honest: bool) -> Case:
    before = {**base["files"], **entry.get("base_files", {})}
    gone = entry.get("remove", ())
    after = {path: text for path, text in {**before, **entry.get("files", {})}.items() if path not in gone}
    command = entry.get("command", base["command"])
    return Case(
        name=entry["name"],
        is_honest=is_honest,
        adds=entry.get("adds", False),
        command=command.replace("{python}", python),
        task=entry.get("task", base["task"]),
        report=entry.get("report", ""),
        needs=base.get("needs", ""),
        known_limit=entry.get("known_limit", ""),
        before=before,
        after=after,
    )


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout
