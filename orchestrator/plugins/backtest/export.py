"""Writes cases as tasks of Harbor, and results in the Common Test Report Format, so that strangers can run and compare them.

The form of a task: https://harborframework.com/docs/tasks. Its environment has the code before the change, and nothing of
what came later: no history, no tests of the change. The tests come when the work is done.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.verification.ctrf import CtrfStatus, CtrfTest, ctrf_report
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.suggestions import PROGRAM
from orchestrator.plugins.backtest.cases import Judged
from orchestrator.plugins.backtest.past_changes import patch_between

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    from orchestrator.bot.verification.base import RunOptions
    from orchestrator.plugins.backtest.cases import ReadyCase
    from orchestrator.plugins.backtest.summary import BacktestResult
    from orchestrator.plugins.backtest.trials import TryResult

_IMAGE = "python:3.13"
_WORK = "/workspace"
_BUILD_SECONDS, _AGENT_SECONDS = 1_800.0, 2_700.0
_SPARE_SECONDS = 60.0

_STATUSES: Mapping[str, CtrfStatus] = {
    Judged.SOLVED: "passed",
    Judged.WRONG: "failed",
    Judged.BROKEN: "failed",
    Judged.INVALID: "other",
    Judged.NOTHING: "skipped",
}


def results_as_ctrf(result: BacktestResult, ended: datetime) -> dict[str, Any]:
    """Return a backtest's results: a test for each try, in the suites of its arm and case."""
    tries = [result.done[one.key] for one in result.wanted if one.key in result.done]
    waiting = [one for one in result.wanted if one.key not in result.done]
    tests = [_as_test(one) for one in tries]
    tests += [
        CtrfTest(f"try {one.number}", "pending", suite=(one.arm.name, one.case.case.id)) for one in waiting
    ]
    return ctrf_report(
        tests,
        tool=f"{PROGRAM} backtest",
        ended=ended,
        seconds=60 * sum(one.minutes for one in tries),
        extra={"repository": result.repository, "arms": result.to_json()["arms"]},
    )


def _as_test(one: TryResult) -> CtrfTest:
    known = {"usd": one.usd, "tokens": one.tokens, "rounds": one.rounds}
    return CtrfTest(
        f"try {one.number}",
        _STATUSES.get(one.judged, "other"),
        60 * one.minutes,
        (one.arm, one.case),
        one.detail,
        one.judged,
        labels={name: value for name, value in known.items() if value is not None},
    )


def write_harbor_task(
    ready: ReadyCase, options: RunOptions, folder: Path, redact: Callable[[str], str]
) -> str:
    """Write a case as a task of Harbor into a new folder.

    The exit status of the test command decides, which a stranger can run without this program; our own judge compares
    each test.

    Args:
        redact: removes secrets from texts.

    Returns:
        Why it cannot be written so; empty if it was.
    """
    case, hidden = ready.case, ready.hidden
    if hidden.exit != 0:
        return (
            f"with the real change its test command ends with {hidden.exit}, so that no exit status can judge"
        )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigurationError(f"{folder} is there already: name a new folder") from None
    trees = Trees(HostGit(case.store, case.store))
    code, tests = folder / "environment" / "code", folder / "tests" / "files"
    for tree, place in ((case.base, code), (case.tests, tests)):
        place.mkdir(parents=True)
        trees.export(tree, place)
    present, before = trees.entries(case.tests), trees.entries(case.base)
    given = [path for path in case.given if path in present]
    for path in present:
        if path not in given:
            (tests / path).unlink(missing_ok=True)
    for place in sorted((one for one in tests.rglob("*") if one.is_dir()), reverse=True):
        if not any(place.iterdir()):
            place.rmdir()
    gone = [path for path in case.given if path not in present and path in before]
    texts = {
        "task.toml": _settings(ready, options),
        "instruction.md": f"{case.text.whole.strip()}\n",
        "environment/Dockerfile": _environment(options),
        "tests/test.sh": _test_script(options, gone),
        "solution/solve.sh": f"#!/bin/bash\nset -euo pipefail\ncd {_WORK}\ngit apply --whitespace=nowarn /solution/change.diff\n",
        "solution/change.diff": patch_between(case.store, case.base, case.head),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(redact(text), encoding="utf-8", errors="surrogateescape")
    for name in ("tests/test.sh", "solution/solve.sh"):
        (folder / name).chmod(0o755)
    return ""


def _settings(ready: ReadyCase, options: RunOptions) -> str:
    change = ready.case.change
    metadata = {
        "must_pass": list(ready.hidden.must_pass),
        "must_still_pass": len(ready.hidden.must_still_pass),
        "unstable": ready.hidden.unstable,
        "real_change": change.url or change.head,
    }
    facts = "\n".join(f"{name} = {json.dumps(value)}" for name, value in metadata.items())
    return f"""\
schema_version = "1.1"

[task]
name = {json.dumps(f"{PROGRAM}/{change.id}")}
description = {json.dumps(ready.case.text.title)}

[metadata]
{facts}

[verifier]
timeout_sec = {2 * 60 * options.minutes + _SPARE_SECONDS}

[agent]
timeout_sec = {_AGENT_SECONDS}

[environment]
build_timeout_sec = {_BUILD_SECONDS}
"""


def _environment(options: RunOptions) -> str:
    setup = (
        f"RUN {json.dumps(['/bin/bash', '-c', options.setup], ensure_ascii=False)}\n" if options.setup else ""
    )
    who = "-c user.name=Task -c user.email=task@example.com"
    return f"""\
# Your tests may need another image, or more packages.
FROM {_IMAGE}
WORKDIR {_WORK}
COPY code/ {_WORK}/
{setup}RUN git init --quiet && git add --all && git {who} commit --quiet --message "The code as it is"
"""


def _test_script(options: RunOptions, gone: list[str]) -> str:
    removed = f"rm -rf -- {shlex.join(gone)}\n" if gone else ""
    return f"""\
#!/bin/bash
# The tests, settings and scripts of the real change take the place of what is there.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
cd {_WORK} || exit 1
{removed}cp -R /tests/files/. .
if {{ {options.command}
}}; then echo 1 > /logs/verifier/reward.txt; fi
"""
