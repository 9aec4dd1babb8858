"""How often a model repairs small programs, through this program and without it.

    python -m tests.evaluation --data FOLDER --out FOLDER --contracts whole-file --with-tests --without
        --baselines direct --label after

`FOLDER` of `--data` is like QuixBugs. Any server of Chat Completions does (`--api-url`); llama.cpp's with a coder
model of 1.5 billion parameters is what the figures were taken with, at 4 to 6 tokens a second: a reply takes half a
minute, a program with its tests two to five.

A result is one line of `results.jsonl` in the folder of `--out`; what is there already is not run again, so an
interrupted measurement goes on where it stopped. The table is printed at the end, and alone with `--table`. Each
run has a folder with its repository, its output and its journal (`PULLWRIGHT_HOME`), to see why it failed. A
proposal is right if the program's own tests pass on the proposed file. The range behind a number of right ones is
the 95 % interval of Wilson: that of one program more or less is wide.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.evaluation.baselines import REPLY_SECONDS, Server, direct, mini_swe_agent
from tests.evaluation.programs import TEST_COMMAND, Judgement, Program, git, judge, judge_branch, load, names

BASELINES = ("direct", "direct-tests", "mini")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Way:
    """How a program is given to the model. Where it is a baseline, the rest is empty.

    Attributes:
        label: which state of this program was measured, in the words of who measures.
        tests: `with`: the host runs the tests; `without`.
    """

    label: str
    baseline: str = ""
    contract: str = ""
    profile: str = ""
    tests: str = ""

    @property
    def name(self) -> str:
        """A column's title, and a folder's name."""
        return "-".join(filter(None, (self.label, self.baseline, self.contract, self.profile, self.tests)))


@dataclass(frozen=True, slots=True)
class Result:
    """One program, given in one way.

    Attributes:
        ended: the outcome of the cycle, or how a baseline ended.
        proposed: there is a proposal.
        passed: it is right.
    """

    program: str
    way: Way
    ended: str
    proposed: bool
    passed: bool
    detail: str
    tests_changed: bool
    rounds: int
    tokens: int
    seconds: float


def main() -> int:
    """Run what is not there yet, and print the table."""
    args = _arguments().parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "results.jsonl"
    done = [_read(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    if not args.table:
        known = {(one.program, one.way) for one in done}
        for name in args.programs or names(args.data):
            program = load(args.data, name)
            for way in _ways(args):
                if (name, way) in known:
                    continue
                result = _measure(program, way, args)
                done.append(result)
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(f"{json.dumps(asdict(result))}\n")
                print(f"{name:30} {way.name:40} {_mark(result):12} {result.seconds:6.0f} s  {result.detail}")
    print(_table(done))
    return 0


def _arguments() -> argparse.ArgumentParser:
    words = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.evaluation",
        description=words[0],
        epilog=words[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder like QuixBugs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--api-url", default="http://localhost:8090/v1", help="speaks Chat Completions")
    parser.add_argument("--model", default="coder", help="its name at the server")
    parser.add_argument("--programs", type=_words, default=(), help="default: all that have tests")
    parser.add_argument(
        "--contracts", type=_words, default=(), help="whole-file, json-plan, native, single-step"
    )
    parser.add_argument("--profiles", type=_words, default=("",), help="default: the contract's own")
    parser.add_argument("--with-tests", action="store_true", help="the host runs the tests")
    parser.add_argument("--without", action="store_true", help="nobody runs them (the default)")
    parser.add_argument("--baselines", type=_words, default=(), help=", ".join(BASELINES))
    parser.add_argument("--label", default="now", help="names the state that is measured")
    parser.add_argument("--rounds", type=int, default=8, help="most replies of the model (default: 8)")
    parser.add_argument("--minutes", type=float, default=60.0, help="most minutes of a run (default: 60)")
    parser.add_argument("--temperature", default="", help="of the model (default: as the profile has it)")
    parser.add_argument("--extra", type=_words, default=(), help="more flags for `run`, with commas between")
    parser.add_argument("--table", action="store_true", help="run nothing")
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _ways(args: argparse.Namespace) -> list[Way]:
    ways = [Way("", baseline=name) for name in args.baselines]
    settings = ["with"] * args.with_tests + ["without"] * (args.without or not args.with_tests)
    return ways + [
        Way(args.label, contract=contract, profile=profile, tests=tests)
        for contract in args.contracts
        for profile in args.profiles
        for tests in settings
    ]


def _measure(program: Program, way: Way, args: argparse.Namespace) -> Result:
    folder = args.out / "runs" / way.name / program.name
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
    folder.mkdir(parents=True)
    began = time.monotonic()
    run = _baseline if way.baseline else _cycle
    judged, ended, proposed, rounds, tokens = run(program, way, folder.resolve(), args)
    seconds = round(time.monotonic() - began, 1)
    said = judged.passed, judged.detail, judged.tests_changed
    return Result(program.name, way, ended, proposed, *said, rounds, tokens, seconds)


def _baseline(
    program: Program, way: Way, folder: Path, args: argparse.Namespace
) -> tuple[Judgement, str, bool, int, int]:
    server = Server(args.api_url, args.model)
    if way.baseline == "mini":
        text, ended = mini_swe_agent(program, server, folder / "repository", steps=args.rounds)
    else:
        text, ended = direct(program, server, with_tests=way.baseline == "direct-tests"), "answered"
    (folder / program.path).write_text(text, encoding="utf-8")
    changed = text != program.files[program.path]
    judged = judge(program, text) if changed else Judgement(passed=False, detail="the file is as it was")
    return judged, ended, changed, 1, server.tokens


def _cycle(
    program: Program, way: Way, folder: Path, args: argparse.Namespace
) -> tuple[Judgement, str, bool, int, int]:
    """One cycle of the program, started as a person starts it."""
    repository = folder / "repository"
    program.write(repository)
    command = [sys.executable, str(_ROOT / "run_local_agent.py"), "run", "--plain", "--json"]
    command += ["--repo", str(repository), "--task", program.task, "--api-url", args.api_url]
    command += ["--model", f"openai-chat:{args.model}", "--contract", way.contract]
    command += ["--profile", way.profile] if way.profile else []
    command += ["--temperature", args.temperature] if args.temperature else []
    command += ["--max-rounds", str(args.rounds), "--max-minutes", str(args.minutes), *args.extra]
    if way.tests == "with":
        command += ["--test-command", f"{TEST_COMMAND} {program.tests}", "--sandbox-read", sys.prefix]
        command += ["--sandbox-read", sys.base_prefix, "--test-minutes", "1"]
    variables = os.environ | {"PULLWRIGHT_HOME": str(folder / "home"), "HOME": str(folder)}
    variables["PULLWRIGHT_REQUEST_TIMEOUT_SECONDS"] = str(REPLY_SECONDS)  # a busy machine decides nothing
    with (folder / "output.txt").open("w", encoding="utf-8") as said:
        done = subprocess.run(
            command, cwd=_ROOT, env=variables, stdout=subprocess.PIPE, stderr=said, text=True, check=False
        )
    (folder / "result.json").write_text(done.stdout, encoding="utf-8")
    result = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    branches = git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    branch = next((name for name in branches if name != "main"), "")
    usage = result.get("usage") or {}
    tokens = sum(usage.get(key) or 0 for key in ("input_tokens", "output_tokens"))
    judged = judge_branch(program, repository, branch) if branch else Judgement(passed=False, detail="")
    if not branch:
        detail = result.get("error") or result.get("question") or result.get("reason") or "no result"
        judged = Judgement(passed=False, detail=" ".join(detail.split())[:150])
    return judged, result.get("outcome", "crashed"), bool(branch), result.get("rounds") or 0, tokens


def _read(line: str) -> Result:
    value = json.loads(line)
    return Result(**value | {"way": Way(**value["way"])})


def _mark(result: Result) -> str:
    right = "right" if result.passed else "wrong"
    return right if result.proposed else result.ended


def _table(results: list[Result]) -> str:
    """Programs down, ways across, and how many of each were right."""
    ways = list(dict.fromkeys(one.way for one in results))
    by_cell = {(one.program, one.way): one for one in results}
    rows = [["", *(way.name for way in ways)]]
    for program in sorted({one.program for one in results}):
        cells = [by_cell.get((program, way)) for way in ways]
        rows.append([program, *(_mark(cell) if cell else "" for cell in cells)])
    for title, counts in (("right", "passed"), ("proposed", "proposed")):
        mine = [[one for one in results if one.way == way] for way in ways]
        rows.append([title, *(_share(sum(getattr(one, counts) for one in run), len(run)) for run in mine)])
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *rest])


def _share(count: int, number: int) -> str:
    """How many of how many, with the 95 % interval of Wilson, "Probable Inference" (1927)."""
    z = 1.96
    share, room = count / number, z * z / number
    middle = (share + room / 2) / (1 + room)
    half = z * math.sqrt(share * (1 - share) / number + room / (4 * number)) / (1 + room)
    return f"{count} of {number} ({max(middle - half, 0):.0%} to {min(middle + half, 1):.0%})"


if __name__ == "__main__":
    sys.exit(main())
