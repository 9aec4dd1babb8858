"""A runner for one composite action: its contexts, its files, its shell, and what it takes for commands.

It knows exactly the expressions that the action uses; any other one fails the test.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
_EXPRESSION = re.compile(r"\$\{\{ ([^}]*) \}\}")
_VALUE = re.compile(r"(inputs)\.([\w-]+)|(github)\.([\w.-]+)|steps\.(\w+)\.outputs\.([\w-]+)")
_CONDITION = re.compile(r"(always\(\) && )?steps\.(\w+)\.outputs\.([\w-]+) (==|!=) ''")
# https://github.com/actions/runner, ActionCommand.cs: the new form begins a line, the old one stands anywhere.
_COMMAND = re.compile(r"^\s*::([^\s:]+)(?: [^:]*)?::(.*)|.*##\[([^\]\s]+)[^\]]*\](.*)")

Replaced = dict[str, "Callable[[Mapping[str, str]], Mapping[str, str]]"]


@dataclass(slots=True)
class ActionsRunner:
    """Runs the steps of an action.

    Attributes:
        action: the folder with `action.yml`.
        temp: the runner's own folder.
        github: the context `github`.
        environ: what every step finds in its environment.
        replaced: steps by id, or by the action that they use, that are not really run; each gets its inputs
            and gives its outputs.
        log: everything that steps printed.
        failed: the names of steps that failed.
    """

    action: Path
    temp: Path
    github: Mapping[str, str]
    environ: Mapping[str, str]
    replaced: Replaced
    log: str = ""
    failed: list[str] = field(default_factory=list)
    _steps: dict[str, dict[str, str]] = field(default_factory=dict)
    _inputs: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The job's summary."""
        path = self.temp / "summary.md"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def run(self, **inputs: str) -> dict[str, str]:
        """Run all steps as a job would; the action's outputs. Inputs are written with `_` for `-`."""
        content = yaml.safe_load((self.action / "action.yml").read_text(encoding="utf-8"))
        self.temp.mkdir(parents=True, exist_ok=True)
        self._steps.clear()
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(given) <= set(content["inputs"])
        for name, entry in content["inputs"].items():
            assert name in given or not entry.get("required"), f"the input {name} is missing"
            self._inputs[name] = given.get(name, self.resolved(str(entry.get("default", ""))))
        for step in content["runs"]["steps"]:
            if self._is_due(step.get("if")):
                self._step(step)
        return {name: self.resolved(entry["value"]) for name, entry in content["outputs"].items()}

    def resolved(self, text: str) -> str:
        """The text with its expressions replaced by their values."""
        return _EXPRESSION.sub(lambda match: self._value(match[1]), text)

    def _value(self, expression: str) -> str:
        first, _, others = expression.partition(" || ")
        if others:
            return self._value(first) or self._value(others)
        match = _VALUE.fullmatch(expression)
        assert match, f"this runner does not know the expression {expression}"
        if match[1]:
            return self._inputs[match[2]]
        if match[3]:
            return self.github[match[4]]
        return self._steps.get(match[5], {}).get(match[6], "")

    def _is_due(self, condition: str | None) -> bool:
        if condition is None:
            return not self.failed
        match = _CONDITION.fullmatch(condition)
        assert match, f"this runner does not know the condition {condition}"
        if self.failed and not match[1]:
            return False
        return (self._steps.get(match[2], {}).get(match[3], "") == "") == (match[4] == "==")

    def _step(self, step: dict[str, Any]) -> None:
        name = step.get("id") or step.get("uses", "").partition("@")[0] or step["name"]
        values = {
            key: self.resolved(str(value))
            for key, value in {**step.get("env", {}), **step.get("with", {})}.items()
        }
        if name in self.replaced:
            self._steps[name] = dict(self.replaced[name](values))
            return
        assert "run" in step, f"{name} is not replaced, and this runner has no actions"
        assert step["shell"] == "bash"
        files = {
            file: self.temp / f"{name}-{file.lower()}"
            for file in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")
        }
        for path in files.values():
            path.write_text("", encoding="utf-8")
        script = self.temp / f"{name}.sh"
        script.write_text(self.resolved(step["run"]), encoding="utf-8")
        done = subprocess.run(
            [*SHELL, str(script)],
            cwd=self.github["workspace"],
            env={
                **self.environ,
                **{f"GITHUB_{key.upper()}": value for key, value in self.github.items() if key != "token"},
                **{file: str(path) for file, path in files.items()},
                "GITHUB_ACTION_PATH": str(self.action),
                "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
                "RUNNER_TEMP": str(self.temp),
                **values,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.log += done.stdout
        assert files["GITHUB_ENV"].read_text() == files["GITHUB_PATH"].read_text() == ""
        lines = files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines()
        self._steps[name] = {key: value for key, _, value in (line.partition("=") for line in lines)}
        if done.returncode:
            self.failed.append(name)


def obeyed(log: str) -> list[str]:
    """The commands that a runner would obey, without those that stop and start it."""
    found: list[str] = []
    resume = ""
    for line in log.splitlines():
        match = _COMMAND.match(line)
        if match is None:
            continue
        name, value = match[1] or match[3], match[2] or match[4] or ""
        if resume:
            resume = "" if name == resume else resume
        elif name == "stop-commands":
            resume = value
        else:
            found.append(name)
    return found
