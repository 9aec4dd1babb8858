"""Ways to make git run a program, each with a plain command that proves it.

`@script` writes the marker, `@folder` is where the plants lie, `@http` is a server that asks for a password.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.unit.bot.git.rig import write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
    *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge"),
    *("pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update"),
    *("reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite", "sendemail-validate"),
    *("fsmonitor-watchman", "post-index-change", "p4-pre-submit"),
)
"""https://git-scm.com/docs/githooks"""

STATUS = "git status"
_FSMONITOR = "[core]\n\tfsmonitor = @script\n"
_ANY = "[protocol]\n\tallow = always\n"
_CONFLICT = (
    "git checkout -qb side && echo a > src/calc.py && git commit -qam side && git checkout -q main &&"
    " echo b > src/calc.py && git commit -qam main; git merge side"
)
_SUBMODULE = (
    "git -c protocol.file.allow=always submodule --quiet add file://$PWD x && git commit -qam x &&"
    " git config submodule.x.update '!@script' && git submodule update --force"
)


@dataclass(frozen=True, slots=True)
class Plant:
    """One way.

    Attributes:
        name: what is planted.
        trigger: a shell's words, run in a work tree with one changed file, under which plain git runs it.
        config: for a configuration of git.
        variables: for the environment.
    """

    name: str
    trigger: str
    config: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _driver(kind: str, setting: str, trigger: str) -> Plant:
    name = f"{kind}.{setting}"
    return Plant(name, trigger, f'[{kind} "trap"]\n\t{setting} = @script\n\trequired = true\n')


def _core(setting: str, trigger: str) -> Plant:
    return Plant(f"core.{setting}", trigger, f"[core]\n\t{setting} = @script\n")


def _variable(name: str, value: str, trigger: str) -> Plant:
    return Plant(f"${name}", trigger, variables={name: value})


_ASK = "git ls-remote @http/repo.git"
_SSH = "git ls-remote ssh://nowhere.invalid/x"
_OTHER = "git ls-remote git://nowhere.invalid/x"
_COPY = "git clone -q file://$PWD @folder/copy"

PLANTS = (
    Plant("hooks", "git commit -qam x", "[core]\n\thooksPath = @folder/hooks\n"),
    _core("fsmonitor", STATUS),
    _driver("filter", "clean", "git add ."),
    _driver("filter", "smudge", "rm src/calc.py; git checkout -- src"),
    _driver("filter", "process", "git add ."),
    _driver("diff", "textconv", "git diff"),
    _driver("diff", "command", "git diff"),
    Plant("diff.external", "git diff", "[diff]\n\texternal = @script\n"),
    _driver("merge", "driver", _CONFLICT),
    Plant("insteadOf", "git ls-remote file://$PWD", f'{_ANY}[url "ext::@script "]\n\tinsteadOf = file://\n'),
    Plant(
        "pushInsteadOf",
        "git push file://$PWD HEAD:x",
        f'{_ANY}[url "ext::@script "]\n\tpushInsteadOf = file://\n',
    ),
    Plant(
        "remote.URL.uploadpack",
        "git ls-remote file://@folder/source",
        '[remote "file://@folder/source"]\n\tuploadpack = @script\n',
    ),
    Plant(
        "remote.URL.receivepack",
        "git push file://@folder/source HEAD:x",
        '[remote "file://@folder/source"]\n\treceivepack = @script\n',
    ),
    _core("sshCommand", _SSH),
    _core("gitProxy", _OTHER),
    _core("askPass", _ASK),
    Plant("credential.helper", _ASK, "[credential]\n\thelper = !@script\n"),
    Plant("include.path", STATUS, "[include]\n\tpath = @folder/more\n"),
    Plant("includeIf", STATUS, '[includeIf "gitdir:/"]\n\tpath = @folder/more\n'),
    Plant(
        "core.alternateRefsCommand",
        "git clone -qs . @folder/shared && git commit -qam x && git -C @folder/shared fetch -q",
        "[core]\n\talternateRefsCommand = @script\n",
    ),
    Plant("uploadpack.packObjectsHook", _COPY, "[uploadpack]\n\tpackObjectsHook = @script\n"),
    Plant("init.templateDir", _COPY, "[init]\n\ttemplateDir = @folder\n"),
    Plant("submodule.update", _SUBMODULE),
    Plant("gpg.program", "git commit -qam x", "[gpg]\n\tprogram = @script\n[commit]\n\tgpgSign = true\n"),
    _core("editor", "git commit -a"),
    Plant("alias", "git x", "[alias]\n\tx = !@script\n\tstatus = !@script\n\tcommit-tree = !@script\n"),
    _variable("GIT_SSH_COMMAND", "@script", _SSH),
    _variable("GIT_SSH", "@script", _SSH),
    _variable("GIT_EXTERNAL_DIFF", "@script", "git diff"),
    _variable("GIT_EDITOR", "@script", "git commit -a"),
    _variable("GIT_ASKPASS", "@script", _ASK),
    _variable("SSH_ASKPASS", "@script", _ASK),
    _variable("GIT_PROXY_COMMAND", "@script", _OTHER),
    _variable("GIT_CONFIG_PARAMETERS", "'core.fsmonitor'='@script'", STATUS),
    Plant(
        "$GIT_CONFIG_COUNT",
        STATUS,
        variables={
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.fsmonitor",
            "GIT_CONFIG_VALUE_0": "@script",
        },
    ),
    _variable("GIT_TEMPLATE_DIR", "@folder", _COPY),
    _variable("GIT_EXEC_PATH", "@folder/programs", _ASK),
    _variable("GIT_TRACE", "@folder/marker", STATUS),
    _variable("GIT_TRACE2_EVENT", "@folder/marker", STATUS),
    _variable("GIT_CONFIG_GLOBAL", "@folder/more", STATUS),
    _variable("GIT_CONFIG_SYSTEM", "@folder/more", STATUS),
    _variable("XDG_CONFIG_HOME", "@folder/xdg", STATUS),
)


class Field:
    """A folder with everything that plants need.

    Attributes:
        configuration: of all plants, one after another.
        variables: of all plants.
    """

    def __init__(self, folder: Path, plants: Sequence[Plant], server: str = "") -> None:
        self.folder = folder
        self._server = server
        self.marker = folder / "marker"
        script = f'#!/bin/sh\necho "$0 $*" >> {self.marker}\n'
        programs = ["script", *(f"hooks/{name}" for name in HOOKS)]
        programs += [f"programs/git-remote-{name}" for name in ("http", "https", "file")]
        write(folder, dict.fromkeys(programs, script))
        for name in programs:
            (folder / name).chmod(0o755)
        config = self.filled(_FSMONITOR)
        self.configuration = "".join(self.filled(plant.config) for plant in plants)
        write(folder, {"more": config, "xdg/git/config": config, "home/.gitconfig": self.configuration})
        self.variables = {
            name: self.filled(value) for plant in plants for name, value in plant.variables.items()
        }
        self.variables["HOME"] = str(folder / "home")

    def filled(self, text: str) -> str:
        """The text with its places filled in."""
        text = text.replace("@script", str(self.folder / "script")).replace("@http", self._server)
        return text.replace("@folder", str(self.folder))

    def run(self, work_tree: Path, command: str) -> None:
        """Run a shell's words as a person would, who has a name but no password."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "XDG_"))},
            **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "ext:file:http:ssh:git",
            **self.variables,
        }
        subprocess.run(
            ["sh", "-c", self.filled(command)],
            cwd=work_tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=20,
        )

    def ran(self) -> str:
        """What ran, empty if nothing did."""
        return self.marker.read_text("utf-8", "replace") if self.marker.exists() else ""
