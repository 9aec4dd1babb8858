"""`pullwright claims`, `pulls`, `accept`, `retry`, `close` and `forget`: show tasks and pull requests, and record decisions."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.app.cli.arguments import DONE, NOTHING, given_settings
from orchestrator.app.cli.output import Unbroken, as_read, print_lines, print_table
from orchestrator.app.config.settings import load_settings
from orchestrator.app.terminal import print_json
from orchestrator.app.wiring.repository import (
    commands_here,
    label_here,
    local_forges,
    open_tasks,
    place_of,
    repository_here,
    states_on_disk,
)
from orchestrator.app.words import agreed, clean, local_time, short_line
from orchestrator.bot.coordination.claim_record import claim_ref
from orchestrator.bot.cycle.propose import left_out_in
from orchestrator.bot.cycle.task_state import TaskStatus
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.git.local import LocalRepository, merge_branch
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.verification.page import proof_in
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ForgeError, PullwrightError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime, timedelta

    from orchestrator.app.wiring.repository import OpenTasks
    from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.forge.local import LocalForge, Question
    from orchestrator.bot.worker.task_decisions import DecisionResult, TaskDecisions


_BY_HAND = "by hand"
_HEADS = ("TASK", "WHO", "NO.", "SINCE", "STATE")
_MOST_CELL_CHARS = 80
_MOST_STATE_CHARS = 200
_MOST_REASON_CHARS = 1_200
_MINUTES_AN_HOUR = 60
_MAX_LINE_CHARS = 300
_SHORT_COMMIT = 10
_QUESTION_FIELDS = ("number", "key", "body", "url")


def claims(options: argparse.Namespace) -> int:
    """List, show or release claims."""
    with _opened(options, writes=options.action == "release") as tasks:
        decisions = tasks.decisions
        if options.action == "release":
            return release(decisions.claims, options.key, as_json=options.json)
        wanted = options.key if options.action == "show" else None
        states = _claimed(decisions, wanted)
        now = SystemClock().now()
        if options.json:
            write_claims_json(states, now, decisions.times)
        elif wanted is not None and not states:
            print_lines([f"nobody ever claimed {short_line(wanted)}"])
        else:
            write_claims(states, now, decisions.times, decisions.commands)
        return DONE


@contextmanager
def _opened(options: argparse.Namespace, *, writes: bool) -> Iterator[OpenTasks]:
    """Open the tasks of the named repository, or of the folder's. What is said of them is for a person in this folder."""
    flags, cwd = given_settings(options), Path.cwd()
    loaded = load_settings(flags, os.environ, cwd)
    repository = options.repo or repository_here(loaded, cwd)
    with open_tasks(repository, flags, os.environ, cwd, writes=writes) as tasks:
        said = commands_here(tasks.decisions.commands, loaded, cwd)
        yield replace(tasks, decisions=replace(tasks.decisions, commands=said))


def _claimed(decisions: TaskDecisions, wanted: str | None) -> list[TaskState]:
    """Return the tasks that were ever claimed or wait for others. If the forge does not answer, only claims are read."""
    if wanted is not None:
        claim_ref(wanted)  # refuses an invalid key
    try:
        states = decisions.states()
    except ForgeError:
        states = decisions.states(with_pulls=False)
    return [
        state
        for state in states
        if (state.claim is not None or state.status is TaskStatus.BLOCKED) and wanted in {None, state.key}
    ]


def release(found: Claims, key: str, *, as_json: bool) -> int:
    """Release a claim, and print who held it."""
    shown = found.show(key)
    released = found.release(key, _BY_HAND, shown) if shown is not None else None
    if as_json:
        print_json({"kind": "release", "task": key, "released": released is not None})
    elif released is None:
        print_lines([f"nobody holds {short_line(key)}"])
    else:
        print_lines([f"released {short_line(key)}, held by {_who(released)}; its next push is refused"])
    return DONE if released is not None else NOTHING


def write_claims(states: Sequence[TaskState], now: datetime, times: LeaseTimes, commands: Commands) -> None:
    """Write a table, and below it the commands that a person may type next."""
    if not states:
        print("no claims")
        return
    print_table(_HEADS, [_row(state, state.claim, now, times) for state in states])
    for state in states:
        if state.status in {TaskStatus.WAITS, TaskStatus.BLOCKED, TaskStatus.LEFT, TaskStatus.CAPPED}:
            print_lines([f"{short_line(state.key)} {short_line(state.describe(), _MOST_REASON_CHARS)}"])
        faulty = state.claim is not None and state.claim.fault is not None
        step = commands.release(state.key) if faulty else state.next_step(commands)
        if step and state.status is not TaskStatus.PROPOSED:
            print_lines([f"{short_line(state.key)}: {short_line(step, _MOST_STATE_CHARS * 2)}"])


def write_claims_json(states: Sequence[TaskState], now: datetime, times: LeaseTimes) -> None:
    """Write a JSON line for each claim."""
    for state in states:
        claim: dict[str, Any] = {"kind": "task", "task": state.key}
        if state.claim is not None or state.status is TaskStatus.BLOCKED:
            fields = (_fields(state.claim, now, times) if state.claim is not None else claim) | _answer(state)
            print_json(fields)


def _answer(state: TaskState) -> dict[str, Any]:
    """Return whether a task may be taken now, and if not, why, and until when."""
    return {
        "task_state": str(state.status),
        "may_be_taken": not state.refusal,
        "why_not": state.refusal or None,
        "until": state.until.isoformat() if state.until is not None else None,
    }


def _row(state: TaskState, record: ClaimRecord | None, now: datetime, times: LeaseTimes) -> tuple[str, ...]:
    if record is None:
        return (state.key, "-", "-", "-", short_line(state.describe(), _MOST_STATE_CHARS))
    if record.fault is not None:
        fault = short_line(f"cannot be read: {record.fault}", _MOST_STATE_CHARS)
        return (record.task, record.owner, "-", "-", fault)
    text = short_line(state.describe(), _MOST_STATE_CHARS)
    if state.status is TaskStatus.WORKING:
        text = f"{text}, {_expiry(record, now, times)}"
    return (record.task, _who(record), str(record.number), local_time(record.taken_at), text)


def _who(record: ClaimRecord) -> str:
    return short_line(f"{record.owner}/{record.run}" if record.run else record.owner, _MOST_CELL_CHARS)


def _expiry(record: ClaimRecord, now: datetime, times: LeaseTimes) -> str:
    if record.is_free(now, times):
        return "expired, free"
    if now > record.expires_at:
        return f"expired {_minutes(now - record.expires_at)} ago, free soon"
    return f"expires in {_minutes(record.expires_at - now)}"


def _minutes(duration: timedelta) -> str:
    minutes = max(round(duration.total_seconds() / 60), 0)
    return f"{minutes} min" if minutes < 2 * _MINUTES_AN_HOUR else f"{minutes // _MINUTES_AN_HOUR} h"


def _fields(record: ClaimRecord, now: datetime, times: LeaseTimes) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": "claim", "task": record.task, "owner": record.owner}
    if record.fault is not None:
        return fields | {"state": "unreadable", "fault": record.fault, "free": False}
    return fields | {
        "state": record.state,
        "run": record.run,
        "number": record.number,
        "taken_at": record.taken_at.isoformat(),
        "renewed_at": record.renewed_at.isoformat(),
        "expires_at": record.expires_at.isoformat(),
        "outcome": record.outcome,
        "why": record.why or None,
        "deaths": record.deaths,
        "pull": record.pull,
        "spent": asdict(record.spent),
        "free": record.is_free(now, times),
    }


def retry(options: argparse.Namespace) -> int:
    """Let the next cycle take a task again."""
    return _decide(options, lambda tasks: tasks.decisions.retry(tasks.decisions.find(options.task)))


def accept(options: argparse.Namespace) -> int:
    """Merge a pull request of a local repository, and remove its branch."""
    [forge] = local_forges(Home.of(os.environ), options.repo or ".", SystemClock())
    pull = forge.merge_pull_request(options.number, merge_branch)
    words = f"merged #{pull.number} into {pull.base}: {pull.title}"
    if options.json:
        print_json({"kind": "accept", "pull": pull.number, "base": pull.base, "said": words})
    else:
        print_lines([short_line(words, _MAX_LINE_CHARS)])
    return DONE


def close(options: argparse.Namespace) -> int:
    """Close a pull request of Pullwright without merging it."""
    return _decide(options, lambda tasks: tasks.decisions.close(options.number))


def forget(options: argparse.Namespace) -> int:
    """Delete what is stored about a task."""
    return _decide(options, lambda tasks: _forget(tasks, options))


def _forget(tasks: OpenTasks, options: argparse.Namespace) -> DecisionResult:
    decisions = tasks.decisions
    state = decisions.find(options.task)
    lost = decisions.would_lose(state)
    if lost and not options.yes and not agreed(f"{state.key}: this deletes {lost}"):
        again = f"{decisions.commands.forget(state.key)} --yes"
        raise ConfigurationError(f"{state.key} was not forgotten: this deletes {lost}; to do so: {again}")
    decided = decisions.forget(state)
    if decided.changed:
        tasks.close_dead_runs(state.key)
    return decided


def _decide(options: argparse.Namespace, decide: Callable[[OpenTasks], DecisionResult]) -> int:
    with _opened(options, writes=True) as tasks:
        decided = decide(tasks)
        if decided.changed:
            tasks.note(decided)
    write_decision(decided, options.command, as_json=options.json)
    return DONE if decided.changed else NOTHING


def write_decision(decided: DecisionResult, command: str, *, as_json: bool) -> None:
    """Write the decision as one line, without terminal commands."""
    after = decided.after
    if not as_json:
        print_lines([decided.words])
        return
    fields: dict[str, Any] = {
        "kind": command,
        "task": after.key,
        "changed": decided.changed,
        "state": str(after.status),
        "pull": after.pull.number if after.pull is not None else None,
        "said": decided.words,
    }
    print_json(fields)


States: TypeAlias = "Callable[[LocalForge], Sequence[TaskState] | None]"
"""Returns the states of a repository's tasks; None if they are not known."""


def pulls(options: argparse.Namespace) -> int:
    """List the pull requests and questions, or show one pull request whole."""
    home, cwd = Home.of(os.environ), Path.cwd()
    if options.number is not None:
        named = options.repo or ("." if place_of(cwd).is_repository else None)
        _show_pull(local_forges(home, named, SystemClock()), options)
        return DONE
    forges = local_forges(home, options.repo, SystemClock())
    states = partial(states_on_disk, home=home, environ=os.environ, cwd=cwd)
    if options.json:
        write_pulls_json(forges, states)
    else:
        write_pulls(forges, states, _commands_in(cwd))
    return DONE


def _commands_in(cwd: Path) -> Callable[[str], Commands]:
    """Return what makes the commands about a repository for a person in this folder."""
    here = label_here(load_settings({}, os.environ, cwd), cwd)
    return lambda name: Commands(name, is_here=name == here)


def _show_pull(forges: Sequence[LocalForge], options: argparse.Namespace) -> None:
    if len(forges) != 1:
        raise ConfigurationError(
            f"{len(forges)} local repositories are known: name the one of #{options.number} with --repo PATH"
        )
    [forge] = forges
    pull, place = forge.pull_request(options.number), Path(forge.repository().clone_url)
    comments, change = (
        forge.our_comments(pull.number),
        LocalRepository(place).change_of(pull.commit, pull.base),
    )
    if options.json:
        fields = {"kind": "pull_request", "repository": str(place), **asdict(pull)}
        print_json(fields | {"comments": comments, "diff": change, "proof": proof_in(pull.body)})
        return
    print_lines(_whole(pull, comments, change, _commands_in(Path.cwd())(str(place))))


def _whole(pull: PullRequest, comments: Sequence[str], change: str, commands: Commands) -> Iterator[str]:
    """Yield the lines of a pull request as a person reads it on a forge."""
    yield f"#{pull.number}  {pull.title}  ({_state_in_words(pull)})"
    yield f"{pull.branch} -> {pull.base}, {pull.commit[:_SHORT_COMMIT]}"
    if proof := proof_in(pull.body):
        yield proof.sentence
    yield from (f"without {item}" for item in left_out_in(pull.body))
    yield from ("", *as_read(pull.body).strip().splitlines())
    for comment in comments:
        yield from ("", "Comment:", *as_read(comment).strip().splitlines())
    yield from ("", Unbroken(change.rstrip("\n")) or "No change is left: its branch is part of the base.")
    if pull.state is PullRequestState.OPEN:
        yield from (
            "",
            f"  merge   {commands.merge(pull.number)}",
            f"  close   {commands.close(pull.number)}",
        )


def _state_in_words(pull: PullRequest) -> str:
    """Return the state of a pull request. Whether it was a draft does not matter any more once it is not open."""
    return f"{pull.state}{', draft' if pull.draft and pull.state is PullRequestState.OPEN else ''}"


def write_pulls(
    forges: Sequence[LocalForge],
    states: States = lambda _forge: None,
    commands: Callable[[str], Commands] = Commands,
) -> None:
    """Write a block for each repository that has something to show, or that cannot be read.

    Args:
        commands: makes the commands about the repository with a name.
    """
    blocks = [lines for forge in forges if (lines := _block(forge, states, commands))]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    print_lines(
        [
            text
            or "no local pull requests and no questions; those on a forge are there, and in pullwright digest"
        ]
    )


def question_text(body: str) -> str:
    """Return the question without the program's introduction. Older versions did not quote the question."""
    quoted = [line.removeprefix(">") for line in body.splitlines() if line.startswith(">")]
    return "\n".join(quoted) or body


@dataclass(frozen=True, slots=True)
class _LocalWork:
    """What a local repository has.

    Attributes:
        pulls: each pull request, with the task that it is the newest one of.
        questions: those without an answer; all of them if the tasks are not known.
        others: the tasks without a pull request.
    """

    name: str
    pulls: list[tuple[PullRequest, TaskState | None]]
    questions: Sequence[Question]
    others: list[TaskState]

    @classmethod
    def of(cls, forge: LocalForge, states: States) -> _LocalWork:
        name, pulls, questions = forge.repository().clone_url, forge.pull_requests(), forge.questions()
        tasks = states(forge)
        if tasks is not None:
            urls = {one.left.question_url for one in tasks if one.status is TaskStatus.ASKED and one.left}
            questions = [question for question in questions if question.url in urls]
        by_pull = {task.pull.number: task for task in tasks or () if task.pull is not None}
        others = [task for task in tasks or () if task.pull is None]
        return cls(name, [(pull, by_pull.get(pull.number)) for pull in pulls], questions, others)


def _block(forge: LocalForge, states: States, commands_of: Callable[[str], Commands]) -> list[str]:
    try:
        found = _LocalWork.of(forge, states)
    except PullwrightError as error:  # a repository that cannot be read does not hide the others
        return [short_line(str(error), _MAX_LINE_CHARS)]
    lines, commands = [], commands_of(found.name)
    for pull, task in found.pulls:
        branch, base = short_line(pull.branch), short_line(pull.base)
        show = commands.pull(pull.number)
        lines.append(f"  #{pull.number}  {short_line(pull.title)}  ({_state_in_words(pull)})")
        lines.append(f"      {branch} -> {base}, {pull.commit[:_SHORT_COMMIT]}")
        lines.append(f"      {short_line(show, _MAX_LINE_CHARS)}")
        lines += [f"      without {short_line(item, _MAX_LINE_CHARS)}" for item in left_out_in(pull.body)]
        if proof := proof_in(pull.body):
            lines.append(f"      {proof.sentence}")
        if pull.state is PullRequestState.OPEN:
            lines.append(f"      {short_line(commands.merge(pull.number), _MAX_LINE_CHARS)}")
        if task is not None:
            lines += _task_lines(task, commands, "      ")
    for question in found.questions:
        lines.append(f"  ?{question.number}  {short_line(question_text(question.body), _MAX_LINE_CHARS)}")
    for task in found.others:
        if task.status is not TaskStatus.OPEN:
            lines += _task_lines(task, commands, "  ")
    return [clean(found.name), *lines] if lines else []


def _task_lines(task: TaskState, commands: Commands, indent: str) -> list[str]:
    """Return a task's state and the commands that a person may type next."""
    step = task.next_step(commands)
    lines = [f"{indent}{short_line(task.key)}: {short_line(task.describe(), _MAX_LINE_CHARS)}"]
    return [*lines, f"{indent}    {short_line(step, _MAX_LINE_CHARS)}"] if step else lines


def write_pulls_json(forges: Sequence[LocalForge], states: States = lambda _forge: None) -> None:
    """Write a JSON line for each pull request with its task's state, each open question, and each other task."""
    for forge in forges:
        for record in _records(forge, states):
            print_json(record)


def _records(forge: LocalForge, states: States) -> list[dict[str, Any]]:
    try:
        found = _LocalWork.of(forge, states)
    except PullwrightError as error:
        return [{"kind": "error", "error": str(error)}]
    repository = {"repository": found.name}
    return [
        *(
            {
                "kind": "pull_request",
                **repository,
                **asdict(pull),
                "left_out": left_out_in(pull.body),
                "proof": proof_in(pull.body),
                **_task_fields(task),
            }
            for pull, task in found.pulls
        ),
        *(
            {"kind": "question", **repository, **{name: getattr(one, name) for name in _QUESTION_FIELDS}}
            for one in found.questions
        ),
        *({"kind": "task", **repository, **_task_fields(task)} for task in found.others),
    ]


def _task_fields(task: TaskState | None) -> dict[str, str | None]:
    return {"task": task.key if task else None, "task_state": str(task.status) if task else None}
