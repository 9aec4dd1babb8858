"""Tasks: what a cycle works on, the names that identify a task, and questions about it with their answers."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core.prompts import cut, decomposed, fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.bot.forge.base import Comment, Issue, PullRequest

BRANCH_FOLDERS = ("pullwright/", "pullwright-tasks/")
"""Folders of our branches. Our pull requests are recognized in all of them.

The first one is used, unless the remote has a branch called `pullwright`: git creates no branch below a branch.
"""

ONBOARDING = tuple(f"{folder}onboarding" for folder in BRANCH_FOLDERS)
"""The branch of the pull request that sets a repository up. While it is open, no task is done."""

REBASE_LABEL = "pullwright:rebase"
"""On an open pull request: rebase it, whoever committed to it."""

RETRY_LABEL = "pullwright:retry"
"""On an issue or a closed pull request: try again, although it was closed unmerged."""

_SLUG_CHARACTERS = 40

_TITLE_CHARACTERS = 120

_KEY_DIGITS = 8

_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?:[-*+]|\d+[.)])[ \t]+\[(?P<mark>[ xX])\][ \t]+(?P<text>\S.*)$")


TASK_KEY = re.compile(rf"issue-(?P<issue>[1-9][0-9]{{0,9}})|(?:text|item)-[0-9a-f]{{{_KEY_DIGITS}}}")
"""The key of a task."""
_BRANCH = re.compile(rf"(?:{'|'.join(BRANCH_FOLDERS)})(?P<key>{TASK_KEY.pattern})-[^/]+")


class TaskKind(StrEnum):
    """The purpose of a cycle."""

    NEW = "new"
    REVIEW = "review"
    """Comments of people on our pull request."""
    CHECKS = "checks"
    """Failed checks of our pull request."""
    REBASE = "rebase"
    """Our pull request has to be put onto the present base."""
    UNFINISHED = "unfinished"
    """Our pull request is open, and the cycle that opened it did not complete."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment on a task. `trusted`: its author may cause work; other comments are only quoted."""

    author: str
    text: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        key: identifies the task in every run: `issue-12`, `text-<hash>`, `item-<hash>`.
        title: one line.
        body: the rest of the text, which is untrusted.
        source: `issue`, `text`, or the file that lists the task.
        number: the issue's number, if it is one.
        url: where the task can be read, if anywhere.
        remarks: comments on it, oldest first.
        kind: the purpose of the cycle. All but a new task are about one of our pull requests.
        pull: that pull request as listed; its branch may have moved since.
        after: what it waits for, as its text says: `#12`, or the key of an item.
        usd_cap: the most US dollars that a person who may cause work allows for it in words; None if nobody set one.
        is_retry: whether a person asked by label for another attempt, whatever the earlier outcomes.
        status_marker: hidden line that our `status` comment on `pull` contains after this cycle, whatever its
            outcome. It prevents the same comments and failed checks from becoming a task again.
        branch_folder: one of `BRANCH_FOLDERS`; `branch_suffix` ends the branch's name. Both are free on the
            remote.
    """

    key: str
    title: str
    body: str
    source: str
    number: int | None = None
    url: str | None = None
    remarks: tuple[Remark, ...] = ()
    kind: TaskKind = TaskKind.NEW
    pull: PullRequest | None = None
    is_retry: bool = False
    status_marker: str = ""
    branch_folder: str = BRANCH_FOLDERS[0]
    branch_suffix: str = ""
    after: tuple[str, ...] = ()
    usd_cap: float | None = None

    @property
    def branch_prefix(self) -> str:
        """The prefix of all branches of this task, whatever its title is now."""
        return f"{self.branch_folder}{self.key}-"

    @property
    def branch(self) -> str:
        """The branch of this task's pull request."""
        return (
            self.pull.branch if self.pull else f"{self.branch_prefix}{slug(self.title)}{self.branch_suffix}"
        )

    def has_branch(self, name: str) -> bool:
        """Return whether a branch belongs to this task, in any folder and with any title."""
        return key_of(name) == self.key

    @property
    def plain_branch(self) -> str:
        """The branch without words of the task's title."""
        return f"{self.branch_prefix}task{self.branch_suffix}"

    @property
    def marker(self) -> str:
        """The hidden line at the end of a pull request's body."""
        return f"<!-- pullwright:task:{self.key} -->"

    def is_marked(self, body: str) -> bool:
        """Return whether a body ends with the marker. Text above it is untrusted and may contain a copy."""
        return body.rstrip().splitlines()[-1:] == [self.marker]


def from_issue(issue: Issue, remarks: tuple[Remark, ...] = ()) -> Task:
    """Create the task of an issue, with comments on it."""
    title = _one_line(issue.title) or f"Issue {issue.number}"
    after = listed_in(issue.body, issue.url.rpartition("/")[0])
    key = f"issue-{issue.number}"
    return Task(key, title, issue.body, "issue", issue.number, issue.url, remarks, after=after)


def from_text(text: str) -> Task:
    """Create the task of a typed text. Equal texts are the same task."""
    return Task(f"text-{_digest(text)}", _first_line(text), text.strip(), "text")


def from_conversation(run: str, title: str, part: int = 1) -> Task:
    """Create the task of a person's conversation with a model. Its title may change, its key does not.

    Args:
        run: the first run of the conversation.
        part: counts from 1: once its pull request is merged, later work is another task.
    """
    text = f"What was changed in conversation {run}{f', part {part}' if part > 1 else ''}"
    return replace(from_text(text), title=_first_line(title))


def key_of(branch: str) -> str:
    """Return the key of the task of a branch; empty if the branch belongs to no task."""
    found = _BRANCH.fullmatch(branch)
    return found["key"] if found else ""


def name_of(task: Task) -> str:
    """Return the name of a task in messages."""
    return f"issue #{task.number}" if task.number else f"the task {task.title!r}"


def issue_of(key: str) -> int | None:
    """Return the number of the issue that a task's key names; None if the task is no issue."""
    found = TASK_KEY.fullmatch(key)
    return int(found["issue"]) if found and found["issue"] else None


def checklist(file: str, text: str) -> Iterator[Task]:
    """Yield the open items of a Markdown checklist, in order. Nested lines belong to the item above.

    The format is GitHub's task list: https://github.github.com/gfm/#task-list-items-extension-
    An item inside a fenced code block, below a heading such as "Done" or "Won't do", struck through or marked as done
    is no task. Equal items at different places are different tasks.
    """
    found = list(_items(text))
    times = Counter(_one_line(item.text) for item in found)
    seen: Counter[str] = Counter()
    for item in found:
        place = "\0".join((*item.headings, item.words))
        seen[place] += 1
        if not item.is_open:
            continue
        # An item that the file has once keeps its key wherever it is moved.
        name = item.text if times[_one_line(item.text)] == 1 else f"{place}\0{seen[place]}"
        yield Task(f"item-{_digest(name)}", _first_line(item.words), item.body, file, after=item.after)


@dataclass(frozen=True, slots=True)
class _Item:
    """An item of a checklist.

    Attributes:
        text: its first line; `words` are all lines of its first paragraph, on one line.
        headings: the titles above it, the outermost first.
        after: what it waits for, as `(after #12, item-0a1b2c3d)` says. These words are no part of the texts above, so
            that an item keeps its key when they are added.
    """

    text: str
    words: str
    body: str
    headings: tuple[str, ...]
    is_open: bool
    after: tuple[str, ...] = ()


_TITLE = re.compile(r"(?P<marks>#{1,6})[ \t]+(?P<title>\S[^\n]*)")
_NO_TASKS = re.compile(
    r"(?:already |recently |things )?(?:done|completed?|finished|closed|shipped|released|resolved|fixed|archived?|rejected|declined"
    r"|cancell?ed|abandoned|obsolete|won['\u2019]?t ?(?:do|fix)|will not (?:do|be done)|not planned|out of scope|non-?goals?|not doing|dropped|superseded"
    r"|icebox|someday(?: ?/ ?maybe)?|maybe(?: (?:later|someday))?|not now|on hold|parked|parking lot|deferred|postponed|backburner|blocked)"
    r"(?: (?:tasks?|items?|work|ideas?|features?|issues|bugs|requests|things|list))?"
    r"(?: (?:in|since|for) v?[\w.-]{1,20}(?: [\w.-]{1,20})?| ?[(\[][^()\[\]]{0,60}[)\]])?",
    re.IGNORECASE,
)
"""Titles whose items nobody asks for, or nobody any more."""
_AROUND_TITLE = " \t#*_`:.!\u2705\u2714\u2713\u2611\ufe0f\u274c"
_LABEL = re.compile(r"(?:(\*\*|__)[^*_\n]{1,80}(?:\*\*|__):?|[^\n:]{1,80}:)\s*")
"""A line that is a title without being a heading: bold, or with a colon at its end."""
_UNDERLINE = re.compile(r"(?:=+|-{2,})[ \t]*")
_OVER = r"(?:already )?(?:done|completed|finished|fixed|implemented|merged|shipped|released|obsolete|won['\u2019]?t (?:do|fix)|wontfix|rejected|declined|dropped|superseded|duplicate|no longer needed)"
_STRUCK = re.compile(
    rf"(?:~~(?:[^~]|~(?!~))+~~|<(?P<tag>del|s|strike)>[^<]+</(?P=tag)>)(?:[.!]|[ \t]*\([^()]*\)[.!]?|[ \t]*[-\u2013\u2014:][ \t]*{_OVER}\b[^\n]*)?",
    re.IGNORECASE,
)
_MARKED_DONE = re.compile(
    rf"(?:[\u2705\u2714\u2713\u2611\u274c]|\[{_OVER}\]|\({_OVER}\)|{_OVER}: )[^\n]*"
    rf"|[^\n]*(?:[\u2705\u2714\u2713\u2611\u274c]\ufe0f?|\[{_OVER}\]|\({_OVER}\b[^()\n]{{0,60}}\)|\u2013 done|\u2014 done|- done)[.!]?",
    re.IGNORECASE,
)
_INDENTED_CODE = ("    ", "\t")
"""What a line of code begins with where no list is above it."""
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")


@dataclass(slots=True)
class _Over:
    """Whether titles that are no headings of `#` say that the items below them are over.

    These are underlined headings, lines in bold or with a colon at their end, and items without a box. They are no part
    of an item's place, so that a file's tasks keep their keys.
    """

    _underlined: bool = False
    _label: bool = False
    _indent: int | None = None

    def read(self, line: str, following: str, *, is_heading: bool) -> None:
        """Read a line outside of code, given the next one."""
        if not line.strip():
            return
        if self._indent is not None and _indent(line) <= self._indent:
            self._indent = None
        title = line.strip(_AROUND_TITLE)
        if is_heading:
            self._underlined = self._label = False
        elif _ITEM.match(line):
            return
        elif item := _LIST_ITEM.match(line):
            if self._indent is None and _NO_TASKS.fullmatch(line[item.end() :].strip(_AROUND_TITLE)):
                self._indent = _indent(line)
        elif _indent(line) == 0 and not _UNDERLINE.fullmatch(line):
            is_underlined = _UNDERLINE.fullmatch(following) is not None
            if is_underlined:
                self._underlined = _NO_TASKS.fullmatch(title) is not None
            self._label = bool(not is_underlined and _LABEL.fullmatch(line) and _NO_TASKS.fullmatch(title))

    def holds_for(self, item: str) -> bool:
        """Return whether the item on this line is over."""
        return self._underlined or self._label or (self._indent is not None and _indent(item) > self._indent)


def _items(text: str) -> Iterator[_Item]:
    """Yield all items that are not within another open one."""
    lines, plain, fence = text.removeprefix("\ufeff").splitlines(), [], ""
    for line in lines:
        before, fence = fence, fence_after(line.lstrip(), fence)
        plain.append(not (before or fence))
    headings: list[tuple[int, str]] = []
    over = _Over()
    at, has_list = 0, False
    while at < len(lines):
        line, is_plain = lines[at], plain[at]
        at += 1
        if not is_plain:
            continue
        if title := _TITLE.match(line):
            has_list = False
            depth = len(title["marks"])
            headings = [one for one in headings if one[0] < depth] + [
                (depth, title["title"].strip(_AROUND_TITLE))
            ]
        over.read(line, lines[at] if at < len(lines) else "", is_heading=bool(title))
        is_code = not has_list and line.startswith(_INDENTED_CODE)
        has_list |= not is_code and _LIST_ITEM.match(line) is not None
        if is_code or (item := _ITEM.match(line)) is None:
            continue
        words, start = [item["text"].strip()], at
        while at < len(lines) and _continues(
            lines[at], plain[at], item[0], is_paragraph=at - start < len(words)
        ):
            if (
                at - start == len(words) - 1
                and _is_words(lines[at], plain[at])
                and not lines[at].lstrip().startswith("<")
                and _is_wrapped(words[-1], lines[at])
            ):
                words.append(lines[at].strip())
            at += 1
        whole = " ".join(words)
        is_over = over.holds_for(line) or any(_NO_TASKS.fullmatch(one) for _, one in headings)
        is_open = item["mark"] == " " and not (
            is_over or _STRUCK.fullmatch(whole) or _MARKED_DONE.fullmatch(whole)
        )
        text, after = _without_after(item["text"])
        body = "\n".join([text.strip(), *lines[start:at]]).strip()
        whole, more = _without_after(whole)
        yield _Item(text, whole, body, tuple(one for _, one in headings), is_open, more or after)
        if item["mark"] != " ":
            at = start  # open items within a done one are tasks


_REFERENCE = rf"(?:#[1-9][0-9]{{0,9}}|item-[0-9a-f]{{{_KEY_DIGITS}}})"
_AFTER = re.compile(
    rf"[ \t]?\(after[ \t:]+(?P<names>{_REFERENCE}(?:[ \t,]{{1,4}}{_REFERENCE}){{0,19}})\)", re.IGNORECASE
)
_LISTED = re.compile(r"(?:#|(?P<address>https?://[^\s#?]{1,300})/)(?P<number>[1-9][0-9]{0,9})(?![\w/])")
_MOST_LISTED = 20


def _without_after(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of an item without the words that say what it waits for, and what these name."""
    found = _AFTER.search(text)
    if found is None:
        return text, ()
    names = tuple(re.findall(_REFERENCE, found["names"].lower()))
    return text[: found.start()] + text[found.end() :], names


def listed_in(body: str, address: str) -> tuple[str, ...]:
    """Return the issues that the open items of a task list in an issue's text begin with, as `#12`.

    Args:
        address: where the repository's issues are; those of others are not named here.
    """
    found: dict[str, None] = {}
    fence = ""
    for line in body.splitlines():
        before, fence = fence, fence_after(line.lstrip(), fence)
        item = None if before or fence else _ITEM.match(line)
        named = _LISTED.match(item["text"]) if item is not None and item["mark"] == " " else None
        if named is not None and named["address"] in {None, address}:
            found[f"#{named['number']}"] = None
    return tuple(found)[:_MOST_LISTED]


_LONG_LINE = 60
"""The next line of so long a one goes on with it, also if it begins with a capital letter."""


def _is_words(line: str, is_plain: bool) -> bool:  # noqa: FBT001  two facts of a line
    return is_plain and bool(line.strip()) and not _LIST_ITEM.match(line) and not _TITLE.match(line)


def _is_wrapped(before: str, line: str) -> bool:
    """Return whether a line goes on with the sentence of the line before it, which was too long for one line."""
    is_long = len(before) >= _LONG_LINE
    return not before.endswith((".", "!", "?", ":")) and (is_long or not line.strip()[0].isupper())


def _continues(line: str, is_plain: bool, item: str, *, is_paragraph: bool) -> bool:  # noqa: FBT001
    """Return whether a line belongs to an item: it is further in, or goes on with the item's first paragraph."""
    if not line.strip():
        return True
    return _indent(line) > _indent(item) or (is_paragraph and _is_words(line, is_plain))


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


def slug(title: str) -> str:
    """Return a title as a short part of a branch name: ASCII letters, digits and hyphens, never empty."""
    ascii_only = decomposed(title, "NFKD").encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9]+", "-", ascii_only.lower()).strip("-")
    return words[:_SLUG_CHARACTERS].strip("-") or "task"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_line(text: str) -> str:
    return cut(_one_line(text.strip().splitlines()[0]), _TITLE_CHARACTERS)


def _digest(text: str) -> str:
    return hashlib.sha256(_one_line(text).encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGITS]


CHOICE = re.compile(r"^(?P<number>[1-9])\. (?P<text>\S.*)$", re.MULTILINE)
"""A choice below a question, in the format of `ask_question`."""

OUR_COMMENT = re.compile(r"<!-- pullwright:[^\n<>]* -->")


def asked_at(task: Task) -> int | None:
    """Return the number of the issue, or else our pull request, for questions on this task; None without either."""
    if task.number is None and task.pull is not None:
        return task.pull.number
    return task.number


def is_ours(body: str) -> bool:
    """Return whether a text ends with our marker. People who quote it write more after it."""
    lines = body.strip().splitlines()
    return bool(lines) and OUR_COMMENT.fullmatch(lines[-1].strip()) is not None


_MOST_ANSWER_CHARACTERS = 10_000

_CHOSEN_NUMBER = re.compile(
    r"\s*(?:option |choice )?\(?#?(?P<number>[1-9])[.):]?(?:\s+(?P<rest>\S.*))?", re.DOTALL | re.IGNORECASE
)


def find_answer(
    comments: Sequence[Comment],
    question: str,
    question_url: str,
    may: Callable[[str], bool],
    clean: Callable[[str, str], str],
) -> Remark | None:
    """Return the first comment after the question by somebody with write permission; None if there is none.

    Args:
        comments: of the issue, oldest first.
        question: the question with its numbered choices.
        question_url: the address of its comment. Its text does not identify it: anybody can write that.
        may: returns whether a person has permission to cause work.
        clean: removes what people do not see from a text, given its author.
    """
    asked = next((comment for comment in comments if comment.url == question_url), None)
    if asked is None:
        return None
    for comment in comments:
        later = (comment.created_at, comment.id) > (asked.created_at, asked.id)
        if not later or is_ours(comment.body) or not may(comment.author):
            continue
        text = clean(comment.body, comment.author).strip()[:_MOST_ANSWER_CHARACTERS]
        if text:
            return Remark(comment.author, with_choice(text, question), trusted=True)
    return None


def with_choice(answer: str, question: str) -> str:
    """Return an answer in which the number of a choice is followed by the choice's text."""
    choices = {found["number"]: found["text"] for found in CHOICE.finditer(question)}
    named = _CHOSEN_NUMBER.fullmatch(answer.strip())
    if named is None or named["number"] not in choices:
        return answer
    chosen = f"{named['number']}. {choices[named['number']]}"
    return f"{chosen}\n\n{named['rest'].strip()}" if named["rest"] else chosen
