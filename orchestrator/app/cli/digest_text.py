"""The digest as Markdown. Titles, reasons and questions are other people's words: they command and load nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.app.cli.lines import money
from orchestrator.app.cli.text import clean, counted, shortened, tests_in_words
from orchestrator.bot.policy.lines import in_markdown
from orchestrator.bot.worker.task_states import Kind, kind_of_outcome
from orchestrator.core.repositories import Commands
from orchestrator.engine.contracts.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from orchestrator.bot.journal.digest import Digest
    from orchestrator.bot.journal.run_note import RunNote
    from orchestrator.core.changes import DiffStat
    from orchestrator.core.spent import Spent

_MOST_ITEMS = 20
_MOST_CHARS = 300
_PLAN_LINES = 40
_MOST_FILES = 30
# A link that is shown as it is, in Markdown, in a terminal and in a chat.
_LINK = re.compile(r"(?:https?|file)://[A-Za-z0-9._~:/?#@!$&'*+,;=%-]+")


@dataclass(frozen=True, slots=True)
class Words:
    """Makes text harmless: without secrets, and without what a forge, a chat or a browser would act on."""

    redact: Callable[[str], str]

    def line(self, text: str, most_chars: int = _MOST_CHARS) -> str:
        """One line, to stand behind a word of ours."""
        # Redacted again: what is taken away may have stood between the letters of a secret.
        return self.redact(in_markdown(self.redact(clean(text)), most_chars))

    def code(self, text: str) -> str:
        """A name or path as code."""
        return f"`{self.redact(one_line(self.redact(text), limit=_MOST_CHARS))}`"

    def link(self, url: str) -> str:
        """An address of ours, or nothing if it is none."""
        plain = self.redact(url)
        return plain if _LINK.fullmatch(plain) else ""

    def block(self, text: str, most_lines: int) -> str:
        """Several lines, in a block that nothing in them ends."""
        lines = [self.redact(line) for line in shortened(self.redact(text), most_lines)]
        longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
        fence = "`" * max(longest + 1, 3)
        return "\n".join([f"{fence}text", *lines, fence])


def as_markdown(digest: Digest, words: Words) -> str:
    """The digest of a time."""
    if not digest.runs:
        return f"Pullwright: no runs since {_time(digest.since)}."
    counts = (
        counted(len(digest.runs), "run"),
        counted(len(digest.pulls), "pull request"),
        f"{counted(len(digest.questions), 'question')} waiting",
    )
    head = f"**Pullwright since {_time(digest.since)}**: {', '.join(counts)}, {_spent(digest.spent)}"
    sections = (
        ("Pull requests", [_pull(run, words) for run in digest.pulls]),
        ("Questions that wait for an answer", [_question(run, words) for run in digest.questions]),
        ("Not finished", [_undone(one.run, one.times, words) for one in digest.undone]),
        ("Work that is kept", [_kept(run, words) for run in digest.kept]),
        ("At work now", [f"{_what(run, words)} ({words.code(run.id)})" for run in digest.working]),
        ("Left alone, and why", [f"{words.line(why)}{_times(times)}" for why, times in digest.skipped]),
        ("Cost", list(_costs(digest, words))),
        (
            "Next",
            [
                f"{words.code(name)} not before {_time(pause.until)}: {words.line(pause.reason) or 'nothing to do'}"
                for name, pause in digest.waking.items()
            ],
        ),
    )
    return "\n\n".join([head, *(_section(title, items) for title, items in sections if items)])


def run_as_markdown(run: RunNote, words: Words) -> str:
    """One run, for the summary of a job."""
    lines = [f"### Pullwright: {_outcome(run)}", ""]
    if run.repository:
        lines.append(f"- repository {words.code(run.repository)}, run {words.code(run.id)}")
    if run.task is not None:
        link = words.link(run.task_url)
        lines.append(f"- task: {words.line(run.task.title)}{f' {link}' if link else ''}")
    if run.pull is not None:
        lines.append(f"- pull request {_pull(run, words)}")
    lines += [f"- tests: {text}" for text in _tests(run, words)]
    if run.question:
        lines.append(
            f"- question: {words.line(run.question, 2 * _MOST_CHARS)} {words.link(run.question_url)}".rstrip()
        )
    for name, text in (("reason", run.reason), ("error", run.error)):
        if text:
            lines.append(f"- {name}: {words.line(text)}")
    lines.extend(f"- not taken: {words.line(text)}" for text in run.refused[:_MOST_ITEMS])
    if run.patch or run.saved:
        lines.append(f"- kept: {_places(run, words)}")
    if run.pause is not None:
        lines.append(
            f"- nothing before {_time(run.pause.until)}: {words.line(run.pause.reason) or 'nothing to do'}"
        )
    lines += [f"- changed: {text}" for text in _changes(run, words)]
    lines.append(f"- cost: {_spent(run.spent)}; {run.requests:,} requests to the forge")
    lines += [
        f"- of it {words.code(model)}: {_spent(spent, timed=False)}" for model, spent in run.costs.items()
    ]
    if run.plan.strip():
        lines += [
            "",
            "<details><summary>Plan</summary>",
            "",
            words.block(run.plan, _PLAN_LINES),
            "",
            "</details>",
        ]
    return "\n".join(lines)


def _section(title: str, items: list[str]) -> str:
    shown = [f"- {item}" for item in items[:_MOST_ITEMS]]
    if len(items) > _MOST_ITEMS:
        shown.append(f"- … {len(items) - _MOST_ITEMS:,} more")
    return "\n".join([f"**{title}**", "", *shown])


def _outcome(run: RunNote) -> str:
    return run.outcome.replace("_", " ") if re.fullmatch(r"[a-z_]{1,30}", run.outcome) else "ended"


def _what(run: RunNote, words: Words) -> str:
    if run.task is None:
        return f"in {words.code(run.repository)}" if run.repository else f"run {words.code(run.id)}"
    title = words.line(run.task.title)
    named = f"#{run.task.number} {title}" if run.task.number else f'"{title}"'
    return f"{named} in {words.code(run.repository)}"


def _pull(run: RunNote, words: Words) -> str:
    pull = run.pull
    if pull is None:
        return ""
    done = "" if pull.created else " (updated)"
    done += " (its tests do not pass)" if run.verified is not None and run.verified.is_red else ""
    return f"#{pull.number} {words.line(pull.title)}{done} {words.link(pull.url)}".rstrip()


def _tests(run: RunNote, words: Words) -> Iterator[str]:
    """The runs of the repository's tests, and why a person should look at them."""
    if run.verified is None:
        return
    if told := tests_in_words(run.verified.tests):
        yield words.line(told)
    yield from (words.line(reason) for reason in run.verified.reasons[:_MOST_ITEMS])


def _question(run: RunNote, words: Words) -> str:
    answer = ""
    if run.task is not None and not run.question_url.startswith("http"):
        answer = words.code(Commands(run.repository).answer(run.task.key))
    asked = f"{_what(run, words)}: {words.line(run.question)}"
    return " ".join(filter(None, (asked, words.link(run.question_url), answer)))


def _undone(run: RunNote, times: int, words: Words) -> str:
    why = run.error or run.reason or "the process died before the end" * (run.outcome == "unfinished")
    said = f": {words.line(why)}" if why else ""
    kind = kind_of_outcome(run.outcome)
    state = (
        str(kind) if kind in {Kind.FAILED, Kind.OPEN} or kind == run.outcome else f"{kind} ({_outcome(run)})"
    )
    again = ""
    if kind is Kind.FAILED and run.task is not None:
        again = f"; for another try: {words.code(Commands(run.repository).retry(run.task.key))}"
    return f"{state}, {_what(run, words)}{said}{_times(times)} ({words.code(run.id)}){again}"


def _kept(run: RunNote, words: Words) -> str:
    return f"{_what(run, words)}: {_places(run, words)}"


def _places(run: RunNote, words: Words) -> str:
    return " and ".join(words.code(place) for place in (run.saved, run.patch) if place)


def _changes(run: RunNote, words: Words) -> Iterator[str]:
    """Files and lines of the pull request; where there is none, the files that tools wrote."""
    listed = run.changed.files or tuple(dict.fromkeys(run.touched))
    if not listed:
        return
    shown = ", ".join(words.code(name) for name in listed[:_MOST_FILES])
    more = f" and {len(listed) - _MOST_FILES:,} more" if len(listed) > _MOST_FILES else ""
    yield f"{counted(len(listed), 'file')}{_line_counts(run.changed)}: {shown}{more}"


def _line_counts(changed: DiffStat) -> str:
    if not changed.added and not changed.removed:
        return ""
    return f" (+{changed.added:,} -{changed.removed:,})"


def _costs(digest: Digest, words: Words) -> Iterator[str]:
    for (repository, model), spent in digest.costs.items():
        yield f"{words.code(repository)} by {words.code(model)}: {_spent(spent)}"
    yield f"{digest.requests:,} requests to the forge"


def _spent(spent: Spent, *, timed: bool = True) -> str:
    minutes = f", {spent.minutes:,.1f} minutes" if timed else ""
    return f"{money(spent.usd)}, {spent.tokens:,} tokens, {counted(spent.rounds, 'round')}{minutes}"


def _times(count: int) -> str:
    return f" ({count:,} times)" if count > 1 else ""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
