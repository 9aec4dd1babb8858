"""A repository whose settings name programs: looking at it runs none of them."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.unit.engine.profiles.places import Machine, git, look, repository, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Trap:
    """How it is laid in a repository, given a program, and an ordinary command that falls into it."""

    lay: Callable[[Path, Path], None]
    command: str


def _config(repo: Path, **settings: str) -> None:
    for name, value in settings.items():
        git(repo, "config", name.replace("__", "."), value)


def _monitor(repo: Path, program: Path) -> None:
    _config(repo, core__fsmonitor=str(program))


def _hook(repo: Path, program: Path) -> None:
    shutil.copy(program, repo / ".git" / "hooks" / "post-index-change")
    os.utime(repo / "a.txt", (1, 1))


def _hooks_path(repo: Path, program: Path) -> None:
    (repo / "tools").mkdir()
    shutil.copy(program, repo / "tools" / "post-index-change")
    _config(repo, core__hooksPath="tools")
    os.utime(repo / "a.txt", (1, 1))


def _pager(repo: Path, program: Path) -> None:
    _config(repo, core__pager=str(program), pager__log=str(program), pager__status=str(program))


def _alias(repo: Path, program: Path) -> None:
    for command in ("x", "log", "status", "config", "rev-parse", "symbolic-ref"):
        git(repo, "config", f"alias.{command}", f"!{program}")


def _filter(driver: str, kind: str) -> Callable[[Path, Path], None]:
    def lay(repo: Path, program: Path) -> None:
        write(repo / ".gitattributes", "* filter=" + driver)
        git(repo, "config", f"filter.{driver}.{kind}", str(program))
        git(repo, "config", f"filter.{driver}.required", "true")
        os.utime(repo / "a.txt", (1, 1))

    return lay


def _filter_by_include(repo: Path, program: Path) -> None:
    _filter("evil", "clean")(repo, program)
    (repo / ".git" / "config").rename(repo / ".git" / "more")
    write(repo / ".git" / "config", "[core]\nrepositoryformatversion = 0\n[include]\npath = more\n")


def _signature(repo: Path, program: Path) -> None:
    _config(repo, log__showSignature="true", gpg__program=str(program))
    _, _, body = git(repo, "cat-file", "commit", "HEAD").partition("\n\n")
    tree = git(repo, "rev-parse", "HEAD^{tree}")
    person = "Ann <ann@example.org> 1 +0000"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    commit = f"tree {tree}\nauthor {person}\ncommitter {person}\n{signature}\n\n{body}\n"
    written = git(repo, "hash-object", "-t", "commit", "-w", str(write(repo.parent / "commit", commit)))
    git(repo, "reset", "-q", "--soft", written)


def _partial_clone(repo: Path, program: Path) -> None:
    """What is missing is fetched, over a transport that is a program."""
    _config(repo, core__repositoryFormatVersion="1", extensions__partialClone="origin")
    _config(repo, remote__origin__url=f"ext::{program}", remote__origin__promisor="true")
    _config(repo, protocol__allow="always")
    tree = git(repo, "rev-parse", "HEAD^{tree}")
    (repo / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


def _upload_pack(repo: Path, program: Path) -> None:
    _partial_clone(repo, program)
    _config(repo, remote__origin__url=str(repo), remote__origin__uploadpack=str(program))


def _submodule(repo: Path, program: Path) -> None:
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "part")
    git(repo, "commit", "-q", "-m", "Part")
    _filter("evil", "clean")(repo / "part", program)


TRAPS = {
    "fsmonitor": Trap(_monitor, "status"),
    "hook": Trap(_hook, "status"),
    "hooks path": Trap(_hooks_path, "status"),
    "pager": Trap(_pager, "log"),
    "alias": Trap(_alias, "x"),
    "clean filter": Trap(_filter("evil", "clean"), "status"),
    "process filter": Trap(_filter("evil", "process"), "status"),
    "filter with an equals sign": Trap(_filter("e=v.i$l", "clean"), "status"),
    "filter with blanks": Trap(_filter("ev'il", "clean"), "status"),
    "included filter": Trap(_filter_by_include, "status"),
    "signature": Trap(_signature, "log -1"),
    "partial clone": Trap(_partial_clone, "status"),
    "upload pack": Trap(_upload_pack, "status"),
    "submodule": Trap(_submodule, "status"),
}


@pytest.mark.parametrize("name", TRAPS)
async def test_looking_runs_nothing(tmp_path: Path, name: str) -> None:
    trap = TRAPS[name]
    repo = repository(tmp_path / "repo", "First", "Second")
    write(repo / "AGENTS.md", "rules")
    mark = tmp_path / "mark"
    program = write(tmp_path / "evil", f"#!/bin/sh\necho >> '{mark}'\nexit 1\n")
    program.chmod(0o755)
    trap.lay(repo, program)
    twin = tmp_path / "twin"
    shutil.copytree(repo, twin, symlinks=True)
    os.utime(twin / "a.txt", (1, 1))

    seen = await look(repo)
    assert not mark.exists()
    assert seen.git is not None
    assert [document.text for document in seen.documents] == ["rules"]

    # The trap is a trap: git as a person calls it falls in.
    await asyncio.to_thread(_run_as_a_person, trap.command, twin)
    assert mark.exists()


def _run_as_a_person(command: str, folder: Path) -> None:
    """On a terminal, with a pager of their own that asks for no key."""
    terminal, end = pty.openpty()
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "TERM": "dumb"}
    pager = ["-c", "core.pager=cat"] if "pager" not in git(folder, "config", "--list") else []
    subprocess.run(
        ["git", *pager, *command.split()],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=end,
        check=False,
        timeout=10,
    )
    os.close(end)
    os.close(terminal)


async def test_programs_are_not_looked_for_in_the_folder(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "First")
    mark = tmp_path / "mark"
    for program in ("git", "head", "od", "tr", "cut", "sort", "uniq", "sed", "readlink"):
        for folder in (repo, repo / "bin"):
            write(folder / program, f"#!/bin/sh\necho >> '{mark}'\n").chmod(0o755)
    seen = await look(repo, machine=Machine(path=f".:bin:{os.environ['PATH']}:"))
    assert not mark.exists()
    assert seen.git is not None
    assert seen.git.branch == "main"
