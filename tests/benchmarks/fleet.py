"""A fleet of worker processes on PostgreSQL, over GitHub's double and a scripted model. What does it take, and lose?

Run with `python -m tests.benchmarks.fleet [--repositories 6] [--tasks 20] [--workers 2]`. Each task has to end as
exactly one pull request, whatever is killed meanwhile (`--kills`); if one does not, the exit status is 1. Linux only.
"""

from __future__ import annotations

import argparse
import hmac
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.benchmarks.measure import children
from tests.doubles.github.server import GitHub
from tests.doubles.model_server import ModelServer, plan
from tests.doubles.postgres import PostgresServer, programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from tests.doubles.github.server import Recorded
    from tests.doubles.model_server import RecordedRequest, Step

LABEL = "pullwright"
_SECRET = "a-long-random-text-of-the-benchmark"
_ROUNDS = 2
_ENDS_WITHIN_SECONDS = 120.0
_KILLED_AT_START = 0.1
_MOST_NAMED = 20
_LOOKS_DONE_SECONDS = 600.0
"""What has changed nothing for so long will not change."""
_AWAY = re.compile(r"pullwright: the fleet's database [^ ]+: .*connection .*")
"""What a worker says that finds no database at its start: whoever started it starts it again."""
_PUSHED = re.compile(rb"[0-9a-f]{40} ([0-9a-f]{40}) refs/heads/(pullwright/[^\x00\n ]+)")


# --- the world: GitHub and the model, in a process of their own ---


class Tally(list["Recorded"]):
    """Counts requests in place of keeping them, and keeps which pull requests' branches were pushed, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()
        self.pushes: dict[str, list[str]] = defaultdict(list)

    def append(self, seen: Recorded) -> None:
        """Count one."""
        if "git-" in seen.path or "/info/refs" in seen.path:
            self.kinds[
                "git, refused without a credential" if seen.status == HTTPStatus.UNAUTHORIZED else "git"
            ] += 1
            if isinstance(seen.body, bytes) and seen.path.endswith("git-receive-pack"):
                repository = seen.path.removeprefix("/").partition(".git/")[0]
                for commit, branch in _PUSHED.findall(seen.body):
                    self.pushes[f"{repository} {branch.decode()}"].append(commit.decode())
            return
        is_query = seen.path.endswith("/graphql")
        self.kinds[
            "GraphQL" if is_query else "REST, unchanged" if seen.status == HTTPStatus.NOT_MODIFIED else "REST"
        ] += 1
        self.kinds["REST that writes"] += seen.method != "GET" and not is_query


class PatientModel(ModelServer):
    """Writes a file of the task, proposes it in the next round, and takes its time for each.

    Attributes:
        asked: when the model was first asked about each task, in seconds of the monotonic clock.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.asked: dict[str, float] = {}
        self.count = 0

    def take(self, request: RecordedRequest) -> Step:
        """The next reply, after a round's share of the cycle's seconds."""
        messages = request.body["messages"]
        task = re.findall(r"Mark task ([0-9]+-[0-9]+)", json.dumps(messages))[-1]
        with self.lock:
            self.asked.setdefault(task, time.monotonic())
            self.count += 1
        self.closing.wait(self._seconds / _ROUNDS)
        write = ("write_file", {"path": f"marks/{task}.txt", "content": f"{task}\n"})
        propose = ("create_pull_request", {"title": f"Mark task {task}", "body": "Done."})
        calls = [write, propose, ("finish", {"reason": "The pull request is open."})]
        said = sum(message["role"] == "assistant" for message in messages)
        return plan(f"Mark {task}.", calls if said else [write])


def world(folder: Path, pipe: Connection, repositories: int, tasks: int, seconds: float) -> None:
    """Answer the questions that come through the pipe, by name; None is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with GitHub(folder) as github, PatientModel(seconds) as model:
        tally = github.requests = github.queries = Tally()
        github.reset_at = 2_000_000_000
        github.remaining = 10_000_000
        for number in range(repositories):
            github.add_repository(f"octo/r{number}", private=True)
            for task in range(number, tasks, repositories):
                _add_task(github, number, task)
        pipe.send((github.web_url, model.url, github.token()))
        while (question := pipe.recv()) is not None:
            name, *arguments = question
            with github.lock:
                if name == "add":
                    pipe.send(_add_task(github, *arguments))
                elif name == "asked":
                    pipe.send(model.asked.get(arguments[0]))
                elif name == "pulls":
                    pipe.send(sum(len(repo.pulls) for repo in github.repositories))
                else:
                    pulls = {
                        repo.full_name: [
                            (pull.title, pull.head, pull.head_sha) for pull in repo.pulls.values()
                        ]
                        for repo in github.repositories
                    }
                    pipe.send((pulls, dict(tally.kinds), dict(tally.pushes), github.violations, model.count))


def _add_task(github: GitHub, repository: int, task: int) -> float:
    """An open issue; when it was opened."""
    title = f"Mark task {repository}-{task}"
    github.add_issue(github.repositories[repository], title, f"{title}, in a file of its own.", [LABEL])
    return time.monotonic()


# --- one fleet ---

Process = multiprocessing.process.BaseProcess
_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = (
    "orchestrator.plugins.fleet.command",
    "orchestrator.app.wiring.model",
    "orchestrator.bot.cycle.cycle",
    "orchestrator.plugins.worker.engine",
    "github",
    "psycopg",
)
"""What a worker loads takes most of the time of its start; where hundreds are killed, it is loaded once."""


def run_preloaded(arguments: list[str], environ: dict[str, str], out: Path, said: Path) -> None:
    """Run the program in this process, which has loaded its modules already."""
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    for path, number in ((out, 1), (said, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    from orchestrator.app.cli import main as program

    sys.exit(program(arguments))


@dataclass(slots=True)
class Worker:
    """A worker's process. Its folder stays when it is killed, as that of a machine does.

    Attributes:
        said: what it prints; the words of those that were killed before it end at `skipped`.
    """

    number: int
    process: subprocess.Popen[bytes] | Process
    said: Path
    skipped: int

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid or 0

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        if isinstance(self.process, subprocess.Popen):
            return self.process.poll() is not None
        return self.process.exitcode is not None

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        if isinstance(self.process, subprocess.Popen):
            self.process.wait()
        else:
            self.process.join()

    def words(self) -> str:
        """What it has said on standard error."""
        return self.said.read_bytes()[self.skipped :].decode()

    def takes_turns(self) -> bool:
        """Whether it has come so far."""
        return "takes turns from" in self.words()


@dataclass(slots=True)
class Chaos:
    """What was killed."""

    workers: int = 0
    database: int = 0
    used_seconds: float = 0.0
    ended: list[str] = field(default_factory=list)
    """The last line of workers that ended by themselves."""


@dataclass(slots=True)
class Bench:
    """A fleet that runs."""

    options: argparse.Namespace
    folder: Path
    pipe: Connection
    world: Process
    postgres: PostgresServer
    url: str
    environ: dict[str, str]
    workers: list[Worker] = field(default_factory=list)
    chaos: Chaos = field(default_factory=Chaos)

    def ask(self, *question: object) -> Any:
        """Ask the world."""
        self.pipe.send(question)
        return self.pipe.recv()

    def start(self, number: int) -> Worker:
        """Start the worker of one machine."""
        home = self.folder / f"machine{number}"
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        said = self.folder / f"err{number}"
        said.touch()
        skipped = said.stat().st_size
        places = {"PULLWRIGHT_HOME": str(home), "TMPDIR": str(home / "tmp")}
        environ, out = self.environ | places, self.folder / f"out{number}"
        arguments = ["fleet", "run", "--config", str(self.folder / "fleet.toml"), "--json"]
        process: subprocess.Popen[bytes] | Process
        if self.options.kills:
            process = _CONTEXT.Process(target=run_preloaded, args=(arguments, environ, out, said))
            process.start()
        else:
            command = [sys.executable, "-m", "orchestrator", *arguments]
            with out.open("ab") as printed, said.open("ab") as errors:
                process = subprocess.Popen(command, stdout=printed, stderr=errors, env=environ)
        return Worker(number, process, said, skipped)

    def restart(self, worker: Worker) -> None:
        """Kill a worker, and start it again on the same machine."""
        if worker.has_ended():
            self.chaos.ended.append((worker.words().splitlines() or ["nothing was said"])[-1])
        self.chaos.used_seconds += cpu_seconds(worker.pid)
        worker.kill()
        self.workers[worker.number] = self.start(worker.number)

    def end(self) -> None:
        """End all workers properly."""
        for worker in self.workers:
            os.kill(worker.pid, signal.SIGTERM)
        end = time.monotonic() + _ENDS_WITHIN_SECONDS
        while not all(worker.has_ended() for worker in self.workers) and time.monotonic() < end:
            time.sleep(0.1)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database says."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Bench]:
    """GitHub, a model, a database and a fleet's file, in a temporary folder."""
    found = programs()
    if found is None:
        raise SystemExit("fleet: there is no PostgreSQL: install the system's package postgresql")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pullwright-fleet-")))
        if options.kills:
            _CONTEXT.set_forkserver_preload(list(_LOADED))
        ours, theirs = _CONTEXT.Pipe()
        sizes = (options.repositories, options.tasks, options.model_seconds)
        process = _CONTEXT.Process(target=world, args=(folder / "github", theirs, *sizes))
        process.start()
        stack.callback(process.join, 30)
        stack.callback(ours.send, None)
        theirs.close()
        web_url, model_url, token = ours.recv()
        postgres = stack.enter_context(PostgresServer.started(found))
        url = postgres.new_database()
        (folder / "config.toml").touch()
        _write_file(folder / "fleet.toml", options, web_url, model_url)
        environ = {
            "PATH": os.environ["PATH"],
            "GITHUB_TOKEN": token,
            "PULLWRIGHT_CONFIG": str(folder / "config.toml"),
            "PULLWRIGHT_DATABASE_URL": url,
            "PULLWRIGHT_WEBHOOK_SECRET": _SECRET,
        }
        bench = Bench(options, folder, ours, process, postgres, url, environ)
        try:
            yield bench
        finally:
            for worker in bench.workers:
                worker.kill()


def _write_file(file: Path, options: argparse.Namespace, web_url: str, model_url: str) -> None:
    most = f"most_running = {options.most_running}\n" if options.most_running else ""
    text = (
        f'[fleet]\nparallel = {options.parallel}\nlease_seconds = {options.lease}\nwebhook = "127.0.0.1:0"\n{most}'
        f'[defaults]\nmodel = "openai-chat:scripted-1"\napi_url = "{model_url}"\ngithub_url = "{web_url}"\n'
        f'label = "{LABEL}"\nevery = "{options.every}"\n'
        "max_open_prs = 1000\nmax_prs_per_day = 1000\nmax_unreviewed = 1000\n"
    )
    names = (f'[[repository]]\nname = "octo/r{number}"\n' for number in range(options.repositories))
    file.write_text(text + "".join(names), encoding="utf-8")


# --- what it takes ---


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of the processor so far, and the database's transactions."""

    at: float
    workers: float
    world: float
    database: float
    transactions: int
    requests: Counter[str]

    @classmethod
    def now(cls, bench: Bench) -> Usage:
        """Read it."""
        committed = bench.rows(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
        server = bench.postgres.process_id
        return cls(
            time.monotonic(),
            sum(cpu_seconds(one.pid) for one in bench.workers) + bench.chaos.used_seconds,
            cpu_seconds(bench.world.pid or 0),
            cpu_seconds(server) + sum(cpu_seconds(child) for child in children(server)),
            int(committed[0][0]),
            Counter(bench.ask("report")[1]),
        )


_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> float:
    """The seconds of a process, and of its children that ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICKS


def megabytes(process: int) -> float:
    """The memory of a process that it shares with nobody, as the kernel counts it."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    return sum(map(int, re.findall(r"^Private_\w+: +(\d+)", text, re.MULTILINE))) / 1024


def open_files(process: int) -> int:
    """How many files and connections a process has open."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def spread(values: Sequence[float]) -> str:
    """Least, median and most."""
    if not values:
        return "none"
    return f"{min(values):.1f} / {statistics.median(values):.1f} / {max(values):.1f}"


def row(name: str, value: object) -> None:
    """Print a line of the table."""
    print(f"{name:62}{value}", flush=True)


# --- the story ---


def measure(options: argparse.Namespace) -> bool:
    """Run it, print the table, and tell whether nothing was lost or doubled."""
    with running(options) as bench:
        source = random.Random(options.seed)  # noqa: S311  no secret
        began = time.monotonic()
        bench.workers += [bench.start(number) for number in range(options.workers)]
        until_all_work(bench)
        up = time.monotonic()
        row("seconds until all workers take turns", f"{up - began:.1f}")
        before = Usage.now(bench)
        if options.kills:
            until_done(bench, source)
        else:
            until_done(bench, None)
        after = Usage.now(bench)
        print_work(bench, before, after, began)
        print_waits(bench)
        if options.idle_seconds:
            measure_idle(bench)
        if options.webhooks:
            measure_webhooks(bench)
        is_right = print_check(bench)
        bench.end()
        print_last_words(bench)
    return is_right


def until_all_work(bench: Bench) -> None:
    """Wait until each worker has said that it takes turns."""
    for worker in bench.workers:
        while not worker.takes_turns():
            if worker.has_ended():
                raise SystemExit(f"fleet: a worker ended: {worker.words()}")
            time.sleep(0.05)


def until_done(bench: Bench, source: random.Random | None) -> None:
    """Wait until each task has a pull request, and nothing runs; kill something now and then, if that is wanted."""
    options, changed, most = bench.options, time.monotonic(), -1
    end = changed + options.most_seconds
    while time.monotonic() < end:
        time.sleep(options.kill_seconds * source.uniform(0.2, 1.8) if source else 0.25)
        done = bench.ask("pulls")
        if done > most:
            changed, most = time.monotonic(), done
        is_over = done >= options.tasks and (
            source is None or bench.chaos.workers + bench.chaos.database >= 1
        )
        if is_over or time.monotonic() - changed > _LOOKS_DONE_SECONDS:
            break
        if source is not None and bench.chaos.workers + bench.chaos.database < options.kills:
            strike(bench, source)
    else:
        row("ended before all was done, after seconds", options.most_seconds)
        return
    until_idle(bench)


def strike(bench: Bench, source: random.Random) -> None:
    """Kill one worker, or the database. Most workers that are killed have come so far that they take turns."""
    if source.random() < bench.options.database_share:
        bench.postgres.stop()
        time.sleep(source.uniform(0.0, 3.0))
        bench.postgres.start()
        bench.chaos.database += 1
    else:
        is_any = source.random() < _KILLED_AT_START
        chosen = [one for one in bench.workers if is_any or one.takes_turns()]
        if chosen:
            bench.restart(source.choice(chosen))
            bench.chaos.workers += 1
    for worker in tuple(bench.workers):
        if worker.has_ended():
            bench.restart(worker)


def until_idle(bench: Bench) -> None:
    """Wait until all turns are looks that wait for the next time of their schedule."""
    busy = (
        "SELECT count(*) FROM dbos.workflow_status WHERE name = 'turn' AND status IN ('ENQUEUED', 'PENDING')"
    )
    end = time.monotonic() + _LOOKS_DONE_SECONDS
    while bench.rows(busy)[0][0] and time.monotonic() < end:
        time.sleep(0.5)


def print_work(bench: Bench, before: Usage, after: Usage, began: float) -> None:
    """Throughput, and what a cycle takes."""
    ended = [at for (at,) in bench.rows("SELECT ended FROM pullwright_cycles WHERE outcome = 'proposed'")]
    seconds = after.at - began
    last = (max(ended) - min(ended)) / 1000 if len(ended) > 1 else seconds
    row("tasks with a pull request", len(ended))
    row("seconds from the first start to the last task's end", f"{seconds:.1f}")
    row(
        "cycles a minute, from the first end to the last",
        f"{60 * (len(ended) - 1) / last:.1f}" if last else "-",
    )
    tasks = max(len(ended), 1)
    row(
        "processor seconds a cycle, workers with their git", f"{(after.workers - before.workers) / tasks:.2f}"
    )
    row(
        "processor seconds a cycle, GitHub's double and the model's",
        f"{(after.world - before.world) / tasks:.2f}",
    )
    row("processor seconds a cycle, PostgreSQL", f"{(after.database - before.database) / tasks:.3f}")
    row(
        "transactions of the database a second",
        f"{(after.transactions - before.transactions) / (after.at - before.at):.1f}",
    )
    for kind, count in sorted((after.requests - before.requests).items()):
        row(f"requests a cycle: {kind}", f"{count / tasks:.1f}")
    row(
        "megabytes of a worker, least / median / most",
        spread([megabytes(w.pid) for w in bench.workers]),
    )
    connected = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    row("connections of the database, each worker", f"{bench.rows(connected)[0][0] / len(bench.workers):.1f}")
    row("open files of a worker", spread([open_files(w.pid) for w in bench.workers]))


def print_waits(bench: Bench) -> None:
    """Fairness: how long turns waited, by repository."""
    query = (
        "SELECT c.repository, w.started_at_epoch_ms - w.created_at, c.began FROM pullwright_cycles c "
        "JOIN dbos.workflow_status w ON w.workflow_uuid = c.workflow "
        "WHERE c.task <> '' AND w.started_at_epoch_ms IS NOT NULL"
    )
    waits, begun = defaultdict(list), []
    for repository, waited, at in bench.rows(query):
        waits[repository].append(waited / 1000)
        begun.append((at, repository))
    means = [statistics.mean(values) for values in waits.values()]
    row("seconds a cycle waited in the queue, mean by repository", spread(means))
    row(
        "seconds a cycle waited in the queue, longest by repository", spread([max(v) for v in waits.values()])
    )
    half = Counter(repository for _, repository in sorted(begun)[: len(begun) // 2])
    row("cycles of a repository begun when half were", spread([half[name] for name in waits]))


def measure_idle(bench: Bench) -> None:
    """What the fleet takes while there is nothing to do but to look at the repositories by their schedule."""
    counted = "SELECT coalesce(sum(number), 0) FROM pullwright_repositories"
    before, turns = Usage.now(bench), bench.rows(counted)[0][0]
    time.sleep(bench.options.idle_seconds)
    after, looks = Usage.now(bench), int(bench.rows(counted)[0][0] - turns)
    seconds, workers = after.at - before.at, len(bench.workers)
    row("idle: seconds watched, and looks in them", f"{seconds:.0f}, {looks}")
    busy = after.workers - before.workers
    row("idle: percent of a core, each worker", f"{100 * busy / seconds / workers:.2f}")
    row("idle: percent of a core, PostgreSQL", f"{100 * (after.database - before.database) / seconds:.2f}")
    rate = (after.transactions - before.transactions) / seconds / workers
    row("idle: transactions a second, each worker", f"{rate:.2f}")
    row("idle: megabytes of a worker", spread([megabytes(w.pid) for w in bench.workers]))
    if looks:
        row("processor seconds a look, with what idling takes", f"{busy / looks:.2f}")
    for kind, count in sorted((after.requests - before.requests).items()):
        row(f"requests a look: {kind}", f"{count / max(looks, 1):.1f}")


def measure_webhooks(bench: Bench) -> None:
    """From a delivery to the first request to the model, and what of it is the worker's answer."""
    port = re.findall(r"webhooks at port (\d+)", bench.workers[0].words())[0]
    answers, waits = [], []
    for number in range(bench.options.webhooks):
        repository, task = number % bench.options.repositories, 100_000 + number
        bench.ask("add", repository, task)
        name = f"octo/r{repository}"
        body = {
            "action": "labeled",
            "number": number,
            "repository": {"html_url": f"{_web_url(bench)}/{name}"},
        }
        began = time.monotonic()
        _deliver(port, json.dumps(body).encode())
        answers.append(time.monotonic() - began)
        while (asked := bench.ask("asked", f"{repository}-{task}")) is None:
            time.sleep(0.02)
        waits.append(asked - began)
        bench.options.tasks += 1
        until_idle(bench)
    row("webhook: seconds to the worker's answer", spread(answers))
    row("webhook: seconds to the first request to the model", spread(waits))


def _web_url(bench: Bench) -> str:
    text = (bench.folder / "fleet.toml").read_text(encoding="utf-8")
    return str(re.findall(r'github_url = "(.+)"', text)[0])


def _deliver(port: str, body: bytes) -> None:
    digest = hmac.new(_SECRET.encode(), body, "sha256").hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "issues"}
    posted = urllib.request.Request(f"http://127.0.0.1:{port}/webhook", body, headers)
    with urllib.request.urlopen(posted) as answer:  # noqa: S310  loopback
        answer.read()


def print_check(bench: Bench) -> bool:
    """Whether each task has exactly one pull request, and nobody pushed to one that was open."""
    pulls, _, pushes, violations, asked = bench.ask("report")
    titles = Counter(title for listed in pulls.values() for title, *_ in listed)
    twice = sorted(title for title, count in titles.items() if count > 1)
    wanted = {
        f"Mark task {number}-{task}"
        for number in range(bench.options.repositories)
        for task in range(number, bench.options.tasks, bench.options.repositories)
    }
    forgotten = sorted(wanted - titles.keys()) if not bench.options.webhooks else []
    repeated = {name: commits for name, commits in pushes.items() if len(set(commits)) > 1}
    defects = [said for said in bench.chaos.ended if not _AWAY.fullmatch(said)]
    if bench.options.kills:
        row(
            "kills: workers (SIGKILL) / database (immediate stop)",
            f"{bench.chaos.workers} / {bench.chaos.database}",
        )
        lost = bench.rows("SELECT count(*) FROM pullwright_cycles WHERE outcome = 'lost' AND task <> ''")
        row("cycles that were taken over from a dead worker", lost[0][0])
        row(
            "workers that were started while the database was away, and said so",
            len(bench.chaos.ended) - len(defects),
        )
        row("workers that ended by themselves otherwise", len(defects))
    row("requests to the model a task", f"{asked / max(len(titles), 1):.2f}")
    row("branches that got two different commits", len(repeated))
    row("tasks with two pull requests", len(twice))
    row("tasks without one", len(forgotten))
    row("requests that GitHub would refuse", len(violations))
    for name in (*twice, *forgotten[:_MOST_NAMED], *repeated, *violations[:_MOST_NAMED], *defects):
        row("  look at", name)
    return not (twice or forgotten or violations or defects)


def print_last_words(bench: Bench) -> None:
    """How the cycles ended, and what workers said that was not said at the start."""
    outcomes: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for file in sorted(bench.folder.glob("out*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                ended = json.loads(line)
            except ValueError:
                outcomes["unreadable"] += 1
                continue
            outcomes[ended["outcome"]] += 1
            if ended["outcome"] in {"failed", "paused"}:
                failures[str(ended.get("error") or ended.get("reason"))[:160]] += 1
    row("results that workers printed", dict(outcomes))
    for text, count in failures.most_common(5):
        row(f"  {count} times", text)
    if bench.options.keep:
        shutil.copytree(bench.folder, bench.options.keep, dirs_exist_ok=True, symlinks=True)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says; None is this program's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=int, default=6)
    parser.add_argument("--tasks", type=int, default=20, help="in all, dealt out in turns")
    parser.add_argument("--workers", type=int, default=2, help="processes, each a machine of its own")
    parser.add_argument("--parallel", type=int, default=1, help="turns at a time of each worker")
    parser.add_argument("--most-running", type=int, default=0, help="of the whole fleet; 0 is no limit")
    parser.add_argument("--model-seconds", type=float, default=0.0, help="of a cycle, in two rounds")
    parser.add_argument("--every", default="1d", help="the schedule of each repository")
    parser.add_argument("--lease", type=int, default=30, help="seconds")
    parser.add_argument("--kills", type=int, default=0, help="at most so many, until all tasks are done")
    parser.add_argument("--kill-seconds", type=float, default=2.0, help="between two kills, on average")
    parser.add_argument(
        "--database-share", type=float, default=0.1, help="of the kills that hit the database"
    )
    parser.add_argument("--idle-seconds", type=float, default=0.0, help="watch it so long when all is done")
    parser.add_argument(
        "--webhooks", type=int, default=0, help="so many, one after another, when all is done"
    )
    parser.add_argument(
        "--most-seconds", type=float, default=36_000.0, help="end after so long at the latest"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    parser.add_argument("--keep", help="copy the workers' folders and output here")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and print the table."""
    options = options_of(None)
    print(" ".join(f"{name}={value}" for name, value in vars(options).items() if value), flush=True)
    sys.exit(0 if measure(options) else 1)


if __name__ == "__main__":
    main()
