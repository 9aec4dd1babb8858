"""The folders of languages' tools: their variables, and what of them is seen in the sandbox."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.commands import EnvPolicy, child_variables
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.sandbox.seatbelt import SeatbeltSandbox
from orchestrator.engine.environments.sandbox.visible import toolchains

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC = ("GOPATH", "CARGO_HOME", "NVM_DIR")
MS = 60_000


def make(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {path.name} ran\n", "utf-8")
        path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with tools, and with a key and a cache beside each."""
    home = tmp_path / "home" / "me"
    make(
        *(home / ".cargo" / name for name in ("bin/cargo-mine", "credentials.toml", "config.toml")),
        home / ".cargo/registry/cache/private.crate",
        *(home / "go" / name for name in ("bin/gotool", "pkg/mod/cache/download/private.mod")),
        *(home / ".nvm" / name for name in ("nvm.sh", ".npmrc", "versions/node/v22/bin/node22")),
        *(home / ".nvm/versions/node/v22" / name for name in ("etc/npmrc", ".npmrc")),
        *(home / ".pyenv" / name for name in ("shims/mine", "versions/3.12/bin/python3.12")),
        home / ".pyenv/versions/3.12/pip.conf",
    )
    (tmp_path / "clone").mkdir()
    return home


def variables(home: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GOPATH": f"{home}/go",
        "CARGO_HOME": f"{home}/.cargo",
        "NVM_DIR": f"{home}/.nvm",
        "PYENV_ROOT": f"{home}/.pyenv",
        **more,
    }


async def run(root: Path, line: str, inherited: Mapping[str, str], *granted: str) -> str:
    sandbox = find_sandbox(SandboxOptions(readable=granted), inherited=inherited)
    environment = LocalEnvironment(root, sandbox=sandbox, inherited=inherited)
    try:
        result = await environment.exec_command(line, timeout_ms=MS)
    finally:
        await environment.cleanup()
    return result.output.strip()


@pytest.mark.parametrize("policy", [EnvPolicy.FILTERED, EnvPolicy.CORE])
def test_without_a_sandbox_the_variables_are_as_they_are(policy: EnvPolicy) -> None:
    set_ = {name: f"/opt/{name.lower()}" for name in SPEC}
    assert child_variables(set_, policy) == set_


async def test_the_variables_keep_their_values_in_the_sandbox(home: Path, tmp_path: Path) -> None:
    inherited = variables(home)
    told = await run(tmp_path / "clone", 'echo "$GOPATH $CARGO_HOME $NVM_DIR $PYENV_ROOT"', inherited)
    assert told == f"{home}/go {home}/.cargo {home}/.nvm {home}/.pyenv"


async def test_folders_that_are_not_there_yet_can_be_used(home: Path, tmp_path: Path) -> None:
    inherited = variables(home, CARGO_HOME="/nowhere/cargo", GOPATH=f"{tmp_path}/a:{tmp_path}/b")
    line = 'echo x > "$CARGO_HOME/x" && mkdir -p "${GOPATH%%:*}/pkg/mod" && echo "$GOPATH" && cat "$CARGO_HOME/x"'
    assert await run(tmp_path / "clone", line, inherited) == f"{tmp_path}/a:{tmp_path}/b\nx"
    assert not Path("/nowhere").exists()
    assert not (tmp_path / "a").exists()


async def test_tools_run_and_keys_and_caches_are_not_there(home: Path, tmp_path: Path) -> None:
    line = (
        '"$CARGO_HOME/bin/cargo-mine"; "$GOPATH/bin/gotool"; "$PYENV_ROOT/shims/mine";'
        '"$NVM_DIR/versions/node/v22/bin/node22"; "$PYENV_ROOT/versions/3.12/bin/python3.12";'
        'find "$CARGO_HOME" "$GOPATH" "$NVM_DIR" "$PYENV_ROOT" -type f -size +0'
    )
    told = (await run(tmp_path / "clone", line, variables(home))).splitlines()
    assert told[:5] == [f"{name} ran" for name in ("cargo-mine", "gotool", "mine", "node22", "python3.12")]
    seen = {str(Path(path).relative_to(home)) for path in told[5:]}
    assert seen == {
        ".cargo/bin/cargo-mine",
        "go/bin/gotool",
        ".nvm/nvm.sh",
        ".nvm/versions/node/v22/bin/node22",
        ".pyenv/shims/mine",
        ".pyenv/versions/3.12/bin/python3.12",
    }


async def test_what_a_tool_writes_stays_in_the_sandbox(home: Path, tmp_path: Path) -> None:
    line = (
        'mkdir -p "$CARGO_HOME/registry" "$GOPATH/pkg/mod" && echo mine > "$CARGO_HOME/credentials.toml"'
        ' && echo mine > "$CARGO_HOME/bin/cargo-mine"; cat "$CARGO_HOME/credentials.toml"'
    )
    told = await run(tmp_path / "clone", line, variables(home))
    assert told.endswith("Read-only file system\nmine")
    assert "cargo-mine ran" in (home / ".cargo/bin/cargo-mine").read_text("utf-8")
    assert "credentials.toml ran" in (home / ".cargo/credentials.toml").read_text("utf-8")
    assert sorted(path.name for path in (home / "go/pkg/mod").iterdir()) == ["cache"]


async def test_a_cache_that_was_granted_is_where_its_tool_looks(home: Path, tmp_path: Path) -> None:
    inherited = variables(home)
    for name in ("GOPATH", "CARGO_HOME"):  # as they are for most people: not set
        del inherited[name]
    paths = (f"{home}/.cargo/registry", f"{home}/go/pkg/mod")
    line = (
        'cat "$CARGO_HOME/registry/cache/private.crate" "$GOMODCACHE/cache/download/private.mod"; echo "$GOPATH";'
        'ls -A "$CARGO_HOME"'
    )
    told = (await run(tmp_path / "clone", line, inherited, *paths)).splitlines()
    assert told[1] == "echo private.crate ran"
    assert told[3:] == ["echo private.mod ran", f"{home}/go", "bin", "registry"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/usr",
        "/tmp",  # noqa: S108  refused
        "/etc/x",
        "/proc/x",
        "/dev/shm",  # noqa: S108  refused
        "/run/x",
        "/usr/no/such/folder",
        "go",
        "",
        "/a\nb",
    ],
)
async def test_a_folder_that_would_cover_what_a_command_needs_is_left_out(
    home: Path, tmp_path: Path, path: str
) -> None:
    inherited = variables(home, CARGO_HOME=path, GOPATH=path, GEM_HOME=path)
    told = await run(
        tmp_path / "clone", 'echo "<$CARGO_HOME$GOPATH$GEM_HOME>"; test -x /bin/sh && echo runs', inherited
    )
    assert told.splitlines() == ["<>", "runs"]


async def test_a_clone_below_such_a_folder_is_there(home: Path) -> None:
    clone = home / "go/src/project"
    clone.mkdir(parents=True)
    (clone / "main.go").write_text("package main\n", "utf-8")
    assert await run(clone, "cat main.go; pwd; ls ../..", variables(home)) == (
        f"package main\n{clone}\nbin\nsrc"
    )


@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust here")
async def test_cargo_builds_with_its_own_home(home: Path, tmp_path: Path) -> None:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME")} | {"CARGO_HOME": f"{home}/.cargo"}
    line = "cargo init --quiet --name mine --vcs none . && cargo run --quiet --offline"
    assert (await run(tmp_path / "clone", line, inherited)).endswith("Hello, world!")


async def test_a_command_that_starts_clean_has_none_of_them(home: Path, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path / "clone", inherited=variables(home), env_policy=EnvPolicy.NONE)
    told = await environment.exec_command('echo "<$CARGO_HOME$GOPATH$NVM_DIR>"', timeout_ms=MS)
    await environment.cleanup()
    assert told.output == "<>\n"


def test_what_is_read_is_programs_and_what_is_written_to_is_private(home: Path) -> None:
    found = toolchains(variables(home))
    assert set(found.variables) == {"GOPATH", "CARGO_HOME", "NVM_DIR", "PYENV_ROOT"}
    assert found.private == (f"{home}/.cargo", f"{home}/go")
    assert not [path for path in found.readable if "credentials" in path or "registry" in path]


def test_on_macos_only_folders_that_nothing_is_written_to_keep_their_variable(home: Path) -> None:
    sandbox = SeatbeltSandbox(SandboxOptions(), variables(home))
    assert sandbox.tools() == {"NVM_DIR": f"{home}/.nvm", "PYENV_ROOT": f"{home}/.pyenv"}
