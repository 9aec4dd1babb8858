"""`pullwright digest`: reports what was done, what was not done and why, and the cost."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED
from orchestrator.app.cli.output import print_lines, print_problem
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.words import (
    NO_TESTS,
    clean,
    counted,
    first_lines,
    money,
    outcome_in_words,
    tests_in_words,
)
from orchestrator.bot.cycle.task_state import TaskStatus, status_of_outcome
from orchestrator.bot.cycle.tasks import issue_of
from orchestrator.bot.journal.digest import make_digest
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import find_run
from orchestrator.bot.journal.run_facts import moment
from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.task_decisions import results_of, usd_of_a_month
from orchestrator.core import event_loop
from orchestrator.core.addresses import holds_credential
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, PullwrightError
from orchestrator.core.http_client import NoAnswer, ask_server, asked_seconds
from orchestrator.core.prompts import fenced, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.journal.digest import Digest
    from orchestrator.bot.journal.run_facts import RunSummary
    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Spent


_DEFAULT_SINCE = "24h"
_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_SPAN_HOURS = {"m": 1 / 60, "h": 1, "d": 24, "w": 7 * 24}
_POST = re.compile(r"issue:([1-9]\d{0,17})")
_MOST_ITEMS = 20
_MOST_LINE_CHARS = 300
_PLAN_LINES = 40
_MOST_FILES = 30
# A link that Markdown, a terminal and a chat show unchanged.
_LINK = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'*+,;=%-]+")
_WEBHOOK_VARIABLE = "PULLWRIGHT_WEBHOOK"
MOST_MESSAGE_CHARS = 1_900
"""Maximum characters of a message. Discord accepts 2,000, the other services more.
https://docs.discord.com/developers/resources/webhook#execute-webhook
"""
_SECONDS = 10.0
_RETRY_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 60.0
_TRIES = 2
_MOST_URL_CHARS = 2_000
_OK = range(200, 300)
_BUSY = frozenset({429, *range(500, 600)})
_COMMENT = "digest"
# Slack calls people and channels with <!...>: https://docs.slack.dev/messaging/formatting-message-text
_NO_TAGS = str.maketrans({"<": "\u2039", ">": "\u203a"})


def digest(options: argparse.Namespace) -> int:
    """Print the digest of a period or of one run. A period's digest also goes to the webhook, if one is set."""
    home, clock = Home.of(os.environ), SystemClock()
    safe = SafeMarkdown(known_secrets(os.environ).redact)
    if options.run is not None:
        if options.post is not None or options.since is not None:
            raise ConfigurationError("digest --run prints one run: leave out --since and --post")
        note = summarise(find_run(home, options.run))
        if options.json:
            print_json(_run_fields(note))
        else:
            print_lines([run_as_markdown(note, safe)])
        return DONE
    number = _issue(options.post)
    if number is not None and not options.repo:
        raise ConfigurationError("digest --post needs --repo owner/name, the repository of the issue")
    now = clock.now()
    since = since_time(options.since or _DEFAULT_SINCE, now)
    found = make_digest(home, since, now, _label(options.repo))
    states = _states(options.repo, home, clock)
    text = clean(as_markdown(found, safe, states))
    if options.json:
        print_json(_fields(found, states))
    else:
        print_lines([text])
    if number is not None:
        url = _post_comment(options.repo, number, text, clock)
        print_problem(f"the digest is at {url}")
    return _send(text, clock)


def _states(repository: str | None, home: Home, clock: Clock) -> list[TaskState]:
    """Return the states of tasks: of repositories on this disk, or of the one that is named, whose forge is asked."""
    from orchestrator.app.wiring.repository import local_forges, open_tasks, states_on_disk

    states: list[TaskState] = []
    try:
        forges = (
            local_forges(home, repository, clock) if repository is None or Path(repository).exists() else []
        )
        for forge in forges:
            states += states_on_disk(forge, home=home, environ=os.environ, cwd=Path.cwd()) or []
        if repository is not None and not forges:
            with open_tasks(repository, {}, os.environ, Path.cwd(), writes=False) as tasks:
                states += tasks.decisions.states()
    except PullwrightError as error:  # the journals say the rest
        print_problem(f"what became of pull requests is not known: {error}")
    return states


def _label(repository: str | None) -> str | None:
    """Return the name by which journals know the repository."""
    if repository is None:
        return None
    from orchestrator.app.config.settings import load_settings
    from orchestrator.app.wiring.repository import label_of

    return label_of(repository, load_settings({}, os.environ, Path.cwd()).settings)


def since_time(text: str, now: datetime) -> datetime:
    """Return the time that `24h`, `7d` or `2026-11-20` (UTC) names."""
    if match := _SPAN.fullmatch(text.strip()):
        return now - timedelta(hours=min(int(match[1]) * _SPAN_HOURS[match[2]], 24 * 365_000))
    at = moment(text.strip())
    if at is None:
        raise ConfigurationError(
            f"--since {clean(text)[:40]!r} is not a time: write 24h, 7d, or a date such as 2026-11-20"
        )
    if at > now:
        raise ConfigurationError(f"--since {clean(text)[:40]!r} is in the future: name a time in the past")
    return at


def _issue(post: str | None) -> int | None:
    if post is None:
        return None
    match = _POST.fullmatch(post)
    if match is None:
        raise ConfigurationError(f"--post {clean(post)[:40]!r} is not a place to post to: write issue:N")
    return int(match[1])


def _send(text: str, clock: Clock) -> int:
    address = webhook_of(os.environ)
    if address is None:
        return DONE
    try:
        event_loop.run(send_webhook(address, as_message(text), clock))
    except ConnectionFailedError as error:
        print_problem(str(error))
        return FAILED
    return DONE


def _fields(found: Digest, states: Sequence[TaskState]) -> dict[str, Any]:
    results = results_of(states)

    def ids(runs: list[RunSummary]) -> list[str]:
        return [run.id for run in runs]

    return {
        "since": found.since.isoformat(timespec="seconds"),
        "now": found.now.isoformat(timespec="seconds"),
        "pull_requests": ids(found.pulls),
        "questions": ids(found.questions),
        "waiting": [
            {"repository": run.repository, "task": task, "why": why} for run, task, why in found.waiting
        ],
        "undone": [{"run": one.run.id, "times": one.times} for one in found.undone],
        "kept": ids(found.kept),
        "working": ids(found.working),
        "skipped": [{"reason": why, "times": times} for why, times in found.skipped],
        "costs": [
            {"repository": where, "model": model, **_spent_fields(spent)}
            for (where, model), spent in found.costs.items()
        ],
        "spent": _spent_fields(found.spent),
        "requests": found.requests,
        "results": {
            "merged": results.merged,
            "declined": results.declined,
            "abandoned": results.abandoned,
            "spent": _spent_fields(results.spent),
            "usd_of_a_merged_one": results.usd_each,
        },
        "usd_of_a_month": usd_of_a_month(found.spent, found.now - found.since),
        "next": {name: pause.until.isoformat() for name, pause in found.waking.items()},
        "runs": [_run_fields(run) for run in found.runs],
    }


def _run_fields(run: RunSummary) -> dict[str, Any]:
    task, pull = run.task, run.pull
    return {
        "run": run.id,
        "started": run.started.isoformat(timespec="seconds") if run.started else None,
        "repository": run.repository,
        "model": run.model,
        "outcome": run.outcome,
        "task": {"key": task.key, "title": task.title, "number": task.number, "url": run.task_url}
        if task
        else None,
        "pull_request": dataclasses.asdict(pull) if pull else None,
        "question": run.question or None,
        "question_url": run.question_url or None,
        "reason": run.reason or None,
        "error": run.error or None,
        "patch": run.patch or None,
        "saved": run.saved or None,
        "touched": list(run.touched),
        **_spent_fields(run.spent),
        "requests": run.requests,
    }


def _spent_fields(spent: Spent) -> dict[str, Any]:
    return {
        "usd": spent.usd,
        "tokens": spent.tokens,
        "rounds": spent.rounds,
        "minutes": round(spent.minutes, 2),
    }


def webhook_of(environ: Mapping[str, str]) -> str | None:
    """Return the webhook's address, or None if none is set.

    Raises:
        ConfigurationError: the value is not a valid address. The message does not contain it.
    """
    from urllib.parse import urlsplit

    address = environ.get(_WEBHOOK_VARIABLE, "").strip()
    if not address:
        return None
    try:
        parts = urlsplit(address)
        good = parts.scheme == "https" and bool(parts.hostname) and not holds_credential(address)
    except ValueError:
        good = False
    good = good and address.isascii() and address.isprintable() and " " not in address
    if not good or len(address) > _MOST_URL_CHARS:
        raise ConfigurationError(
            f"{_WEBHOOK_VARIABLE} must hold one https:// address of at most {_MOST_URL_CHARS:,} characters"
        )
    return address


def as_message(markdown: str) -> str:
    """Convert the text for a chat: no mentions, no tags, cut at the end of a line."""
    text = markdown.translate(_NO_TAGS)
    if len(text) <= MOST_MESSAGE_CHARS:
        return text
    kept = text[: MOST_MESSAGE_CHARS - 2]
    return f"{kept[: kept.rfind(chr(10))] if chr(10) in kept else kept}\n…"


async def send_webhook(address: str, text: str, clock: Clock) -> None:
    """Post a message as `{"text": ...}`, which Slack, Teams and Discord accept.

    Discord needs `/slack` at the end of its address.

    Raises:
        ConnectionFailedError: two attempts failed. The message does not contain the address.
    """
    problem, wait = "", 0.0
    content = json.dumps({"text": text}).encode()
    for attempt in range(_TRIES):
        if attempt:
            await clock.sleep(wait)
        # Its body is not read, and no redirect is followed: the address is a secret, and no other server may get it.
        answer = await ask_server(
            "POST",
            address,
            {"content-type": "application/json"},
            content,
            most_bytes=0,
            silent_seconds=_SECONDS,
            connect_seconds=_SECONDS,
        )
        wait = _RETRY_SECONDS
        if isinstance(answer, NoAnswer):
            problem = f"cannot be reached ({answer.name})"
            continue
        if answer.status in _OK:
            return
        problem = f"answered {answer.status}"
        if answer.status not in _BUSY:
            break
        wait = min(max(asked_seconds(answer.headers, clock.now()) or 0.0, wait), _LONGEST_WAIT_SECONDS)
    raise ConnectionFailedError(f"the webhook {problem}; the digest was not sent to it")


def _post_comment(repository: str, number: int, body: str, clock: Clock) -> str:
    """Create the digest's comment on an issue, or replace its text. Return its address."""
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import choose_site, label_of

    named = partial(label_of, repository)
    context = BuildContext.of({}, os.environ, Path.cwd(), clock=clock, named=named)
    return choose_site(repository, context, writes=True).forge.ensure_comment(number, _COMMENT, body)


@dataclass(frozen=True, slots=True)
class SafeMarkdown:
    """Makes foreign text safe: without secrets, and without what a forge, a chat or a browser interprets."""

    redact: Callable[[str], str]

    def line(self, text: str, most_chars: int = _MOST_LINE_CHARS) -> str:
        """Return a text as one line."""
        # Redacted again, because the removed characters may have separated the letters of a secret.
        return self.redact(in_markdown(self.redact(clean(text)), most_chars))

    def code(self, text: str) -> str:
        """Return a name or path as code."""
        return f"`{self.redact(one_line(self.redact(text), limit=_MOST_LINE_CHARS))}`"

    def link(self, url: str) -> str:
        """Return the address, or an empty string if the text is not a valid one."""
        plain = self.redact(url)
        return plain if _LINK.fullmatch(plain) else ""

    def block(self, text: str, most_lines: int) -> str:
        """Return several lines as a fenced block that nothing in the text can end."""
        lines = [self.redact(line) for line in first_lines(self.redact(text), most_lines)]
        return fenced("".join(f"{line}\n" for line in lines), "text")


def as_markdown(digest: Digest, safe: SafeMarkdown, states: Sequence[TaskState] = ()) -> str:
    """Return the digest of a period as Markdown. `states`: of the tasks, as far as they were read."""
    if not digest.runs:
        return f"Pullwright: no runs since {_time(digest.since)}."
    counts = (
        counted(len(digest.runs), "run"),
        counted(len(digest.pulls), "pull request"),
        f"{counted(len(digest.questions), 'question')} waiting",
    )
    head = f"**Pullwright since {_time(digest.since)}**: {', '.join(counts)}, {_spent(digest.spent)}"
    places = {run.repository for run in digest.pulls}
    pulls = [
        f"{safe.code(run.repository)} {_pull(run, safe)}" if len(places) > 1 else _pull(run, safe)
        for run in digest.pulls
    ]
    sections = (
        ("Pull requests", pulls),
        ("Questions that wait for an answer", [_question(run, safe) for run in digest.questions]),
        ("Tasks that wait for a person", [_waiting(*one, safe) for one in digest.waiting]),
        ("Not finished", [_undone(one.run, one.times, safe) for one in digest.undone]),
        ("Work that is kept", [f"{_what(run, safe)}: {_places(run, safe)}" for run in digest.kept]),
        ("At work now", [f"{_what(run, safe)} ({safe.code(run.id)})" for run in digest.working]),
        ("Left alone, and why", [f"{safe.line(why)}{_times(times)}" for why, times in digest.skipped]),
        ("Cost", [*_costs(digest, safe), *_rates(digest, states)]),
        (
            "Next",
            [
                f"{safe.code(name)} not before {_time(pause.until)}: {safe.line(pause.reason) or 'nothing to do'}"
                for name, pause in digest.waking.items()
            ],
        ),
    )
    return "\n\n".join([head, *(_section(title, items) for title, items in sections if items)])


def _rates(digest: Digest, states: Sequence[TaskState]) -> Iterator[str]:
    """Yield what became of the tasks, what a merged one cost, and what a month would cost."""
    results = results_of(states)
    if results.merged or results.declined or results.abandoned:
        each = f"; a merged one cost {money(results.usd_each, 'an unknown sum')}" if results.merged else ""
        yield f"Of the tasks that are kept: {results}{each}"
    if digest.spent.rounds:
        month = usd_of_a_month(digest.spent, digest.now - digest.since)
        yield f"A month at this rate: {money(month, 'unknown')}"


def run_as_markdown(run: RunSummary, safe: SafeMarkdown) -> str:
    """Return the digest of one run as Markdown, for the summary of a workflow job."""
    lines = [f"### Pullwright: {_outcome(run)}", ""]
    if run.repository:
        lines.append(f"- repository {safe.code(run.repository)}, run {safe.code(run.id)}")
    if run.task is not None:
        link = safe.link(run.task_url)
        lines.append(f"- task: {safe.line(run.task.title)}{f' {link}' if link else ''}")
    if run.pull is not None:
        lines.append(f"- pull request {_pull(run, safe)}")
    lines += [f"- tests: {text}" for text in _tests(run, safe)]
    if run.question:
        lines.append(
            f"- question: {safe.line(run.question, 2 * _MOST_LINE_CHARS)} {safe.link(run.question_url)}".rstrip()
        )
    for name, text in (("reason", run.reason), ("error", run.error)):
        if text:
            lines.append(f"- {name}: {safe.line(text)}")
    lines.extend(f"- not taken: {safe.line(text)}" for text in run.refused[:_MOST_ITEMS])
    if run.patch or run.saved:
        lines.append(f"- kept: {_places(run, safe)}")
    if run.pause is not None:
        lines.append(
            f"- nothing before {_time(run.pause.until)}: {safe.line(run.pause.reason) or 'nothing to do'}"
        )
    lines += [f"- changed: {text}" for text in _changes(run, safe)]
    lines.append(f"- cost: {_spent(run.spent)}; {run.requests:,} requests to the forge")
    lines += [
        f"- of it {safe.code(model)}: {_spent(spent, timed=False)}" for model, spent in run.costs.items()
    ]
    if run.plan.strip():
        lines += [
            "",
            "<details><summary>Plan</summary>",
            "",
            safe.block(run.plan, _PLAN_LINES),
            "",
            "</details>",
        ]
    return "\n".join(lines)


def _section(title: str, items: list[str]) -> str:
    shown = [f"- {item}" for item in items[:_MOST_ITEMS]]
    if len(items) > _MOST_ITEMS:
        shown.append(f"- … {len(items) - _MOST_ITEMS:,} more")
    return "\n".join([f"**{title}**", "", *shown])


def _outcome(run: RunSummary) -> str:
    return outcome_in_words(run.outcome) if re.fullmatch(r"[a-z_]{1,30}", run.outcome) else "ended"


def _what(run: RunSummary, safe: SafeMarkdown) -> str:
    if run.task is None:
        return f"in {safe.code(run.repository)}" if run.repository else f"run {safe.code(run.id)}"
    title = safe.line(run.task.title)
    named = f"#{run.task.number} {title}" if run.task.number else f'"{title}"'
    return f"{named} in {safe.code(run.repository)}"


def _pull(run: RunSummary, safe: SafeMarkdown) -> str:
    pull = run.pull
    if pull is None:
        return ""
    done = "" if pull.created else " (updated)"
    done += f" ({run.verified.proof.sentence if run.verified is not None else NO_TESTS})"
    return f"#{pull.number} {safe.line(pull.title)}{done} {safe.link(pull.url)}".rstrip()


def _tests(run: RunSummary, safe: SafeMarkdown) -> Iterator[str]:
    if run.verified is None:
        if run.pull is not None:
            yield NO_TESTS
        return
    if results := tests_in_words(run.verified.tests):
        yield safe.line(results)
    shown = filter(None, (*run.verified.reasons[:_MOST_ITEMS], run.verified.base_fails))
    yield from map(safe.line, shown)


def _question(run: RunSummary, safe: SafeMarkdown) -> str:
    answer = ""
    if run.task is not None and not run.question_url.startswith("http"):
        answer = safe.code(Commands(run.repository).answer(run.task.key))
    question = f"{_what(run, safe)}: {safe.line(run.question)}"
    return " ".join(filter(None, (question, safe.link(run.question_url), answer)))


def _waiting(run: RunSummary, task: str, why: str, safe: SafeMarkdown) -> str:
    again = safe.code(Commands(run.repository).retry(task))
    named = f"#{issue}" if (issue := issue_of(task)) is not None else safe.code(task)
    return f"{named} in {safe.code(run.repository)}: {safe.line(why)}; for another try: {again}"


def _undone(run: RunSummary, times: int, safe: SafeMarkdown) -> str:
    why = run.error or run.reason
    if not why and run.outcome == "unfinished":
        why = "the process died before the end"
    reason = f": {safe.line(why)}" if why else ""
    kind = status_of_outcome(run.outcome)
    state = (
        str(kind)
        if kind in {TaskStatus.FAILED, TaskStatus.TESTS_FAIL, TaskStatus.OPEN} or kind == run.outcome
        else f"{kind} ({_outcome(run)})"
    )
    again = ""
    if kind in {TaskStatus.FAILED, TaskStatus.TESTS_FAIL} and run.task is not None:
        again = f"; for another try: {safe.code(Commands(run.repository).retry(run.task.key))}"
    if kind is TaskStatus.TESTS_FAIL and run.task is not None:
        again += f"; as a draft: {safe.code(Commands(run.repository).propose_failing(run.task.key))}"
    return f"{state}, {_what(run, safe)}{reason}{_times(times)} ({safe.code(run.id)}){again}"


def _places(run: RunSummary, safe: SafeMarkdown) -> str:
    return " and ".join(safe.code(place) for place in (run.saved, run.patch) if place)


def _changes(run: RunSummary, safe: SafeMarkdown) -> Iterator[str]:
    """Yield the files and lines of the pull request, or the files that tools wrote."""
    listed = run.changed.files or tuple(dict.fromkeys(run.touched))
    if not listed:
        return
    changed = run.changed
    lines = f" (+{changed.added:,} -{changed.removed:,})" if changed.added or changed.removed else ""
    shown = ", ".join(safe.code(name) for name in listed[:_MOST_FILES])
    more = f" and {len(listed) - _MOST_FILES:,} more" if len(listed) > _MOST_FILES else ""
    yield f"{counted(len(listed), 'file')}{lines}: {shown}{more}"


def _costs(digest: Digest, safe: SafeMarkdown) -> Iterator[str]:
    for (repository, model), spent in digest.costs.items():
        yield f"{safe.code(repository)} by {safe.code(model)}: {_spent(spent)}"
    yield f"{digest.requests:,} requests to the forge"


def _spent(spent: Spent, *, timed: bool = True) -> str:
    minutes = f", {spent.minutes:,.1f} minutes" if timed else ""
    return f"{money(spent.usd)}, {spent.tokens:,} tokens, {counted(spent.rounds, 'round')}{minutes}"


def _times(count: int) -> str:
    return f" ({count:,} times)" if count > 1 else ""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
