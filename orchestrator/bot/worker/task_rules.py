"""Rules for choosing tasks: who may cause work, what texts are shown, review limits, and which tasks are not taken again."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from orchestrator.bot.coordination.budget import midnight
from orchestrator.bot.cycle.tasks import ONBOARDING, RETRY_LABEL, Remark, is_ours, issue_of, key_of
from orchestrator.bot.forge.base import ACTIONS_APP, FeedbackKind, PullRequestState
from orchestrator.bot.suggestions import Commands
from orchestrator.core.events import Defence, Guarded
from orchestrator.core.prompts import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from orchestrator.bot.cycle.task_state import KnownTask
    from orchestrator.bot.forge.base import (
        Check,
        Comment,
        Edit,
        Feedback,
        Forge,
        Issue,
        IssueHistory,
        PullRequest,
    )
    from orchestrator.bot.policy.hidden_characters import Cleaned
    from orchestrator.core.events import Event


class TaskAuthorization:
    """Decides who may cause work, by the permissions on the forge, never by names. It asks no model.

    Args:
        forge: gives permissions and histories. Its errors are not caught: without an answer nobody has permission.
        label: the label that asks for work, as for `Forge.open_issues`.
        allow_actors: logins that are treated as if they could write; a bot's with its `[bot]`.

    Attributes:
        wanted: the names of the labels that ask for work, in lower case.
    """

    def __init__(self, forge: Forge, label: str, allow_actors: Collection[str] = ()) -> None:
        self._forge = forge
        self._label = label
        self.wanted = {part.strip().lower() for part in label.split(",")}
        self._allowed = {_comparable(name.strip()) for name in allow_actors}

    def may_cause_work(self, login: str | None) -> bool:
        """Return whether this person or bot may cause work. A deleted account never may."""
        name = _comparable(login or "")
        return bool(name) and (name in self._allowed or self._forge.permission(name).may_write)

    def allows_app(self, app: str) -> bool:
        """Return whether the operator allowed this app to cause work."""
        return bool(app) and _comparable(f"{app}[bot]") in self._allowed

    def why_refused(self, issue: Issue) -> str | None:
        """Return why an issue is not taken, in one line, or None if it may be.

        Read the issue before this call, which reads its history. In the other order, an edit between the two
        could be used without having been judged.
        """
        by_writer = self.may_cause_work(issue.author)
        has_label = self.wanted <= {name.lower() for name in issue.labels}
        if not by_writer and not has_label:
            return f"{_who(issue)}, who may not write to the repository: {self._remedy(issue.author)}"
        if not by_writer:  # most of what strangers label ends here, by one request
            by = self._forge.labelled_by(issue.number, self._label)
            if not self.may_cause_work(by):
                return self._why_untrusted_refused(issue, by)
        history = self._forge.history(issue.number, self._label)
        if not history.is_complete:
            return f"issue #{issue.number} has more edits than can be judged: open a new issue with its text"
        # A trusted author answers for all but others' edits, a trusted labeller for the text at that moment.
        refusal = (
            self._why_edited_refused(issue, history.edits)
            if by_writer
            else self._why_untrusted_refused(issue, history.labelled_by)
        )
        if refusal is None or not has_label or not self.may_cause_work(history.labelled_by):
            return refusal
        return self._why_edited_since_refused(issue, history)

    def why_label_refused(self, number: int, label: str) -> str | None:
        """Return why a label on an issue or pull request does not count, in one line, or None if it counts."""
        by = self._forge.labelled_by(number, label)
        if self.may_cause_work(by):
            return None
        if by is None:
            return f"nobody is known to have put the label {label!r} on #{number}: take it off, and put it on yourself"
        remedy = f", or pass --allow-actor {shlex.quote(by)}" if by else ""
        return (
            f"{name_of_login(by)} put the label {label!r} on #{number} and may not write to the repository: "
            f"take it off, and put it on yourself{remedy}"
        )

    def _why_edited_refused(self, issue: Issue, edits: Iterable[Edit]) -> str | None:
        """Return why an issue by a trusted author is refused because of others' edits, or None."""
        bad = self._first_untrusted(edits)
        if bad is None:
            return None
        return (
            f"the {bad.what} of issue #{issue.number} was edited by {name_of_login(bad.editor)}, "
            f"who may not write to the repository: {self._relabel()}"
        )

    def _why_edited_since_refused(self, issue: Issue, history: IssueHistory) -> str | None:
        """Return why an issue with a trusted labeller is refused because of later edits, or None."""
        at = history.labelled_at
        # An edit in the same second counts as later.
        bad = self._first_untrusted(edit for edit in history.edits if at is None or edit.at >= at)
        if bad is None:
            return None
        return (
            f"the {bad.what} of issue #{issue.number} was edited by {name_of_login(bad.editor)}, who may not write to "
            f"the repository, after {name_of_login(history.labelled_by)} labelled it: {self._relabel()}"
        )

    def _why_untrusted_refused(self, issue: Issue, by: str | None) -> str:
        """Return why an issue is refused if neither its author nor the labeller is trusted."""
        if by is None:
            why = f"and nobody is known to have put the label {self._label!r} on"
            return f"{_who(issue)}, who may not write to the repository, {why}: {self._relabel()}"
        if _comparable(by) == _comparable(issue.author):
            why = "who put the label on and may not write to the repository"
        else:
            why = f"{name_of_login(by)} put the label on, and neither may write to the repository"
        return f"{_who(issue)}, {why}: {self._remedy(issue.author)}"

    def _first_untrusted(self, edits: Iterable[Edit]) -> Edit | None:
        return next((edit for edit in edits if not self.may_cause_work(edit.editor)), None)

    def _relabel(self) -> str:
        return f"read it, take the label {self._label!r} off if it is on, and put it on"

    def _remedy(self, login: str) -> str:
        label = f"read it and put the label {self._label!r} on yourself"
        return f"{label}, or pass --allow-actor {shlex.quote(login)}" if login else label


def _comparable(login: str) -> str:
    """Return a login in the form that is compared; empty if it is not ASCII, so that no look-alike letters match."""
    return login.lower() if login.isascii() else ""


def why_untrusted(check: Check) -> str:
    """Return why a check's text is not trusted, and what to do about it."""
    if not check.app:
        return "it is a commit status, which anybody with a token may set: --comments quoted shows it to the model"
    if check.app == ACTIONS_APP:
        return "the pull request may have changed the workflow: look at the check yourself"
    return (
        f"no rule for the base branch requires it of the app {check.app}: add one, or pass "
        f"--allow-actor {shlex.quote(f'{check.app}[bot]')}"
    )


def name_of_login(login: str | None) -> str:
    """Return a login in messages."""
    return login or "an account that is gone"


def _who(issue: Issue) -> str:
    return f"issue #{issue.number} is by {name_of_login(issue.author)}"


class VisibleText(NamedTuple):
    """A text as people see it.

    Attributes:
        hidden: a line for each removed thing that people do not see.
        kept: a line for each thing that stays in the text although people do not see it as it stands.
    """

    text: str
    hidden: Sequence[str] = ()
    kept: Sequence[str] = ()


_MOST_KEPT = 20


def as_lines(clean: Callable[[str], Cleaned], redact: Callable[[str], str]) -> Callable[[str], VisibleText]:
    """Return the check of foreign texts for the backlog, which reports its findings as lines."""

    def told(text: str) -> VisibleText:
        cleaned = clean(text)
        # Each finding is reported once, because the same tag may be in every line of a log.
        kept = {(one.kind, one.text): str(one) for one in reversed(cleaned.kept)}
        hidden = [str(one) for one in cleaned.removed]
        return VisibleText(redact(cleaned.text), hidden, list(reversed(kept.values()))[:_MOST_KEPT])

    return told


@dataclass(frozen=True, slots=True)
class TextFilter:
    """Removes from texts what people do not see, and records events about what was removed or refused.

    Attributes:
        clean: returns a text as people see it; `clean_name` does the same for a title or a name.
        noticed: the recorded events.
    """

    clean: Callable[[str], VisibleText]
    clean_name: Callable[[str], VisibleText]
    noticed: list[Event]

    def text(self, text: str, place: str) -> str:
        """Return a text as people see it. The event about what they do not see names the place."""
        seen = self.clean(text)
        self.report_hidden(place, seen.hidden, seen.kept)
        return seen.text

    def line(self, text: str) -> str:
        """Return a title or a name as people see it."""
        seen = self.clean_name(text)
        self.report_hidden("a title or a name", seen.hidden)
        return seen.text

    def report_hidden(self, place: str, hidden: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Record what was removed from a text, and what stays in it although people do not see it as it stands."""
        removed = "the model would have seen this; you did not"
        shown = "the model sees this; the page does not show it as it stands"
        for message, details in ((removed, hidden), (shown, kept)):
            if details:
                self._notice(Guarded(Defence.HIDDEN_TEXT, f"{place}: {message}", tuple(details)))

    def refused(self, reason: str) -> None:
        """Record that a person's request was refused."""
        self._notice(Guarded(Defence.ADMISSION, reason))

    def _notice(self, event: Guarded) -> None:
        if event not in self.noticed:
            self.noticed.append(event)


def filter_answers(
    clean: Callable[[str], VisibleText], emit: Callable[[Event], None]
) -> Callable[[str, str], str]:
    """Return a function of an answer and its author that emits what people do not see, and returns the rest."""

    def shown(text: str, author: str) -> str:
        noticed: list[Event] = []
        seen = TextFilter(clean, clean, noticed).text(text, f"comment by {name_of_login(author)}")
        for event in noticed:
            emit(event)
        return seen

    return shown


CommentsPolicy: TypeAlias = Literal["none", "writers", "quoted"]
"""Whose comments a model sees: nobody's, those of people who may cause work, or all, with strangers marked."""

MOST_REMARKS = 50
MOST_CHARACTERS = 20_000
"""The most characters of all remarks together."""


def choose_remarks(
    comments: Sequence[Comment],
    policy: CommentsPolicy,
    may: Callable[[str], bool],
    clean: Callable[[str, str], str],
) -> tuple[Remark, ...]:
    """Return the remarks that the policy allows, oldest first.

    The program's own comments are left out, because they may contain a model's words under the name of an
    account that may write. If there are too many remarks, the newest stay, and strangers' are dropped first.

    Args:
        comments: oldest first.
        may: returns whether a login may cause work.
        clean: takes a text and its author, and returns the text as people see it.
    """
    if policy == "none":
        return ()
    judged = [(comment, may(comment.author)) for comment in comments]
    wanted = [
        (at, comment, trusted)
        for at, (comment, trusted) in enumerate(judged)
        if (trusted and not is_ours(comment.body)) or (not trusted and policy == "quoted")
    ]
    wanted.sort(key=lambda entry: (not entry[2], -entry[0]))
    kept: dict[int, Remark] = {}
    left = MOST_CHARACTERS
    for at, comment, trusted in wanted[:MOST_REMARKS]:
        text = clean(comment.body, comment.author).strip()
        if text and left > 0:
            kept[at] = Remark(comment.author, cut(text, left), trusted)
            left -= len(kept[at].text)
    return tuple(kept[at] for at in sorted(kept))


_FILLER = frozenset(
    re.findall(
        r"\w+",
        "a all and any anymore bot day everyone everything for good hello here hey hi immediately is issue it just longer "
        "more myself now ok okay on one please pls sorry thank thanks that the this to with you "
        "already anything bit bitte currently first minute moment sec second task team thing today tomorrow yesterday yet",
    )
)
"""Words around a request to stop that do not change what it says."""
_STOPS = re.compile(
    r"(?:can|could|would) you (?:please )?(?:stop|wait|pause)|(?:stop|pause)(?: (?:the )?work(?:ing)?)?|halt|cancel|abort(?: mission)?|wait(?: for)?"
    r"|hold|hold off|hang|never ?mind|nvm|scratch|forget(?: about)?|ignore|leave"
    r"|(?:do not|don'?t)(?: (?:do|fix|implement|touch|continue|proceed|bother|start|merge|open|go|propose|work))?"
    r"(?: (?:a|any|the) (?:pull request|pr|change))?"
    r"|let(?:'?s| us) (?:not(?: (?:do|fix|change|touch|start|merge))?|wait|stop|pause|hold(?: off)?|skip|drop|leave|cancel)"
    r"|(?:(?:i|we) )?(?:do not|don'?t) (?:need|want)"
    r"|(?:no longer|not|isn'?t|aren'?t) (?:be )?(?:needed|wanted|relevant|valid|necessary|required)"
    r"|(?:leave|keep) (?:this|it)(?: alone| to me| as)?|no need(?: to (?:do|fix|change|implement))?|not a bug|by design|works as (?:intended|designed)"
    r"|won'?t ?fix|(?:closing|closed)(?: in favou?r of| as (?:duplicate|invalid|wontfix))?|duplicate of|superseded by|i(?: have|'ve)? changed my mind"
    r"|(?:i'?ll|i will|i'?m|i am|let me|we'?ll|we are|we'?re) (?:already |currently )?(?:do|doing|fix|fixing|take|taking|handle|handling|working)"
    r"|i(?:'d| would)? (?:want|like|prefer|rather)(?: to)? (?:do|fix|take|handle|solve)"
    r"|back off|stand down|hands off|(?:do|change) nothing|out of scope|no longer an(?: issue| problem)?|wrong (?:repo|repository)|[!/](?:stop|cancel|abort|pause)"
    r"|closing as not planned|let(?:'?s| us| me) (?:think|discuss|talk|decide)(?: about)?"
    r"|(?:i|i'?ve|i have|we|we'?ve|we have) (?:already )?started(?: (?:work|working|a (?:branch|fix|patch|pr)))?(?: (?:on|for|with))?"
    r"|[a-z]{2,30} (?:will|wants to|is going to) (?:do|take|fix|handle)"
    r"|(?:leave|keep|save) (?:this|it)(?: one)? for (?:a |an |our |the )?(?:new|first|good|someone|somebody|beginner|newcomer|other)[\w' -]{0,30}"
    r"|stopp|stoppen|aufhören|abbrechen|warten|(?:noch )?nicht(?: (?:anfangen|machen|nötig))?|arr\w{1,9}|alto|det[eé]n\w{0,3}"
    r"|por favor para|para|pare|espera|espere|no lo hagas|fermati|aspetta|s'il vous plaît arr\w{1,9}|ne (?:faites|fais|le faites) pas(?: ça| cela)?"
    r"|стоп|остановись|не надо|не делай|请?(?:停止|停下|等一下|不要做)|(?:やめて|止めて|待って)(?:ください)?"
)
_HOLDS = re.compile(
    r"(?:(?:let'?s |please )?put (?:this|it) )?on hold(?: (?:until|till|for) [\w' ]{1,60})?"
    r"|(?:sorry |hey |no )?(?:i'?m|i am|we are|we'?re) (?:already )?on (?:this|it)(?: (?:one|now|already))?|i(?:'?ve)? got (?:this|it)(?: one)?"
    r"|(?:i )?(?:already )?(?:have|got) (?:already )?(?:a|my own) (?:fix|patch|pr|pull request|branch|solution)"
    r"(?: (?:for|of|coming|ready|open|up|here|locally|this|it|on|soon|the|way)){0,5}"
    r"|(?:(?:already|currently) )?working on (?:this|it)(?: (?:one|already|now|myself))?|taking (?:this|it)(?: (?:one|over))?"
    r"|(?:someone|somebody)(?: else)? is (?:already )?(?:working on|doing|fixing|handling|taking) (?:this|it)(?: (?:one|already))?"
    r"|[a-z]{2,30} is (?:already )?working on (?:this|it)(?: (?:one|already))?"
    r"|(?:i'?ll|i will) take (?:this|it)(?: (?:one|over|from here))?"
)
"""Sentences that say it as a whole: their own words are also such as stand around others."""
_FIRST_CLAUSE = re.compile(
    r"hold|hang|never ?mind|nvm|stop|scratch|forget|cancel|abort|ignore|no need|not a bug"
)
"""What a sentence may begin with, before a comma and its reason."""
_WORDS_OF_STOPS = frozenset(
    re.findall(
        r"\w+",
        "stop halt hold wait waiting pause cancel cancelled canceled abort aborted drop dropped skip withdraw withdrawn retract "
        "retracted shelved postpone postponed defer deferred parked obsolete outdated moot invalid duplicate superseded wontfix "
        "mistake blocked closing fixed solved resolved implemented undo revert reserved unnecessary",
    )
)
_WORDS_OF_TALK = frozenset(
    ["discuss", "discussed", "discussion", "decision", "design", "rfc", "consensus", "think", "talk"]
)
_WORDS_OF_WORK = frozenset(
    [
        "start",
        "begin",
        "proceed",
        "continue",
        "fix",
        "implement",
        "bot",
        "bots",
        "pr",
        "merge",
        "propose",
        "ready",
        "touch",
        "do",
    ]
)
_NEGATIONS = frozenset(["not", "no", "don't", "dont", "never"])
_STATEMENTS = frozenset(["does", "doesn't", "did", "didn't", "will", "won't", "can't", "cannot", "it"])
"""With one of these a negation tells what the program does: `it does not start`."""
_AROUND = (
    _FILLER
    | _WORDS_OF_TALK
    | _WORDS_OF_WORK
    | _NEGATIONS
    | frozenset(
        re.findall(
            r"[\w']+",
            "accepted agreed after an approved are as at back be been before being bot branch but by can commit contributor contributors "
            "could decide decided decides did done duplicate elsewhere favour from further had has have he her here his horses i i'd "
            "i'm i've in it its later lets let's main maintainer maintainers master maybe meeting merged milestone month need needs new next "
            "of off only opened or our owner owners people plan planned plz pull really release released repository request "
            "resolved review reviewed rfc settled she should since so somebody someone sprint still them there they they're ticket till "
            "time triage trunk until up upstream us version vote want wanted was we we'd we'll we're we've week were while will would wrong your",
        )
    )
)
"""Words of a sentence that names nothing of the program."""
_CLAUSE = re.compile(r"[,\u2013\u2014]| - ")
_SENTENCE_END = re.compile(r"[.!?;\n]")
_NO_WORD = re.compile(r"[^\w' ]|[\d_]")
_SIGNS = frozenset(["\U0001f6d1", "\u26d4", "\u26d4\ufe0f", "\u270b"])
_LONGEST_SENTENCE = 120


def _core(words: list[str]) -> str:
    """Return a sentence without the filler words around it."""
    after = list(dropwhile(_FILLER.__contains__, words))
    return " ".join(reversed(list(dropwhile(_FILLER.__contains__, reversed(after)))))


def asks_to_stop(text: str) -> bool:
    """Return whether a comment asks that work on its issue stops: a sentence of it says that and nothing else.

    Quoted lines are other people's. A sentence about the program, such as "stop the timer at zero", is none.
    """
    own = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(">"))
    for sentence, is_question in _sentences(own.lower().replace("\u2019", "'")):
        if len(sentence) > _LONGEST_SENTENCE:
            continue
        if not is_question and _is_only_about_the_work(sentence):
            return True
        clauses = _CLAUSE.split(sentence)
        if sentence.strip() in _SIGNS or clauses[-1].strip() == "closing":
            return True
        if _says_stop(sentence) or _FIRST_CLAUSE.fullmatch(_core(_words(clauses[0]))):
            return True
        if "please" in clauses[-1] and _says_stop(clauses[-1]):
            return True
    return False


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a text, and whether each ends with a question mark."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start()], end[0] == "?"
        start = end.end()
    yield text[start:], False


def _is_only_about_the_work(sentence: str) -> bool:
    """Return whether a sentence asks that the work waits or ends, or says that it is needless, in words of no program.

    `Please wait until the design is settled` is such a sentence, `wait until the file is there` is none.
    """
    words = [word for word in sentence.split() if not (word.startswith("@") or any(map(str.isdigit, word)))]
    found = set(re.findall(r"[^\W_]+(?:'[^\W_]+)?", " ".join(words)))
    if not found <= _AROUND | _WORDS_OF_STOPS:
        return False
    if found & _NEGATIONS:
        return bool(found & _WORDS_OF_WORK) and not found & (_STATEMENTS | _WORDS_OF_STOPS)
    if found & _WORDS_OF_TALK and found & {"first", "need", "needs", "before"}:
        return True
    return bool(found & _WORDS_OF_STOPS)


def _words(text: str) -> list[str]:
    """Return the words of a text without names of people."""
    return _NO_WORD.sub(" ", " ".join(word for word in text.split() if not word.startswith("@"))).split()


def _says_stop(text: str) -> bool:
    words = _words(text)
    return bool(_STOPS.fullmatch(_core(words)) or _HOLDS.fullmatch(" ".join(words)))


_LEAST_KEPT = 0.5


def asks_otherwise(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Return whether a title and a body were edited so that they ask for something else.

    Most words of both are gone, or most of the title's, and most of the new title's words were nowhere. What is only
    added, or said more clearly, asks for the same.
    """
    title, new_title = _vocabulary(before[0]), _vocabulary(now[0])
    words = title | _vocabulary(before[1])
    if _is_mostly_gone(words, new_title | _vocabulary(now[1])):
        return True
    return _is_mostly_gone(title, new_title) and _is_mostly_gone(new_title, words)


def _vocabulary(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _is_mostly_gone(words: set[str], now: set[str]) -> bool:
    return bool(words) and len(words & now) < _LEAST_KEPT * len(words)


_CAP_WORDS = _FILLER | frozenset(
    [
        "budget",
        "can",
        "cap",
        "cost",
        "do",
        "fix",
        "go",
        "ahead",
        "implement",
        "limit",
        "may",
        "maximum",
        "must",
        "no",
        "not",
        "of",
        "pullwright",
        "should",
        "solve",
        "spend",
        "spending",
        "try",
        "use",
    ]
)
"""Words that may stand before a cap without another meaning: `the discount is up to $5` sets none."""
_CAP = re.compile(
    r"(?P<before>[a-z' ,:]{0,80})\bup to (?:(?:us)?\$ ?(?P<dollars>\d{1,6}(?:\.\d{1,2})?)(?: usd)?|(?P<usd>\d{1,6}(?:\.\d{1,2})?) ?usd)"
    r"(?P<after>[a-z' ,:]{0,80})"
)
_CAP_END = re.compile(r"[!?;\n()]|\.(?=\s|$)")


def cap_in(text: str) -> float | None:
    """Return the cap in US dollars that a text sets in words, such as `up to $5`: the last one; None if it sets none.

    A sentence has to say that and nothing else. Quoted lines are other people's. Other currencies are no caps.
    """
    found = None
    own = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(">"))
    for sentence in _CAP_END.split(own.lower()):
        if len(sentence) > _LONGEST_SENTENCE:
            continue
        named = " ".join(word.strip("*_`") for word in sentence.split() if not word.startswith("@"))
        cap = _CAP.fullmatch(named)
        words = re.findall(r"[a-z']+", cap["before"] + " " + cap["after"]) if cap is not None else ()
        if cap is not None and all(word in _CAP_WORDS for word in words):
            found = float(cap["dollars"] or cap["usd"])
    return found


_NAMED = 5


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """Limits on how much is asked of the people who review.

    Attributes:
        max_open_prs: no new task begins while this many of our pull requests are open.
        max_prs_per_day: no new task begins after this many of them were opened in the UTC day.
        max_unreviewed: no new task begins while this many are open without any feedback of a person.
        review_rounds: how often one pull request is revised for reviews and failed checks.
        quiet_minutes: how long no further remark may come before remarks become a task.
    """

    max_open_prs: int = 3
    max_prs_per_day: int = 10
    max_unreviewed: int = 2
    review_rounds: int = 3
    quiet_minutes: float = 10.0


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why something waits.

    Attributes:
        until: when it may be done; None if unknown or up to people.
        warning: a message that a person should see; empty for none.
    """

    reason: str
    until: datetime | None = None
    warning: str = ""


def why_not_set_up(pulls: Iterable[PullRequest]) -> str | None:
    """Return why no task at all is done, or None: the pull request that sets up the repository is still open."""
    for pull in pulls:
        if pull.branch in ONBOARDING and pull.state is PullRequestState.OPEN:
            return f"{pull.url} sets Pullwright up and is open: merge it first, or close it"
    return None


def why_no_new_task(  # noqa: PLR0913, PLR0917  what there is, the limits, and the commands in the reason
    pulls: Sequence[PullRequest],
    limits: ReviewLimits,
    now: datetime,
    is_reviewed: Callable[[PullRequest], bool],
    in_flight: int = 0,
    commands: Commands = Commands(),  # noqa: B008  a frozen value
) -> NotNow | None:
    """Return why no new task is begun, or None.

    Args:
        is_reviewed: returns whether a person gave feedback on an open pull request; called only if it matters.
        in_flight: tasks that other workers have begun and not proposed yet; each counts as a pull request.
    """
    is_open = [pull for pull in pulls if pull.state is PullRequestState.OPEN]
    others = f" and {in_flight} in work elsewhere" if in_flight else ""
    if len(is_open) + in_flight >= limits.max_open_prs:
        return NotNow(
            f"{len(is_open)} pull requests are open{others}, and --max-open-prs is {limits.max_open_prs}: "
            f"merge or close {_list(is_open)}{f' ({commands.close(is_open[-1].number)})' if is_open else ''}"
        )
    today = [
        pull for pull in pulls if pull.created_at and pull.created_at.astimezone(UTC).date() == now.date()
    ]
    if len(today) + in_flight >= limits.max_prs_per_day:
        next_day = midnight(now)
        return NotNow(
            f"{len(today)} pull requests were opened today{others}, and --max-prs-per-day is "
            f"{limits.max_prs_per_day}: the next one may be at {next_day:%Y-%m-%d %H:%M} UTC",
            next_day,
        )
    if len(is_open) + in_flight < limits.max_unreviewed:
        return None
    unseen = [pull for pull in is_open if not is_reviewed(pull)]
    if len(unseen) + in_flight < limits.max_unreviewed:
        return None
    return NotNow(
        f"nobody has looked at {len(unseen)} pull requests yet{others}, and --max-unreviewed is "
        f"{limits.max_unreviewed}: review or comment on {_list(unseen)}"
    )


def is_reviewed(feedback: Iterable[Feedback], me: str | None) -> bool:
    """Return whether a person other than us reviewed or commented. A dismissed review counts."""
    return any(
        is_another_person(one.author, me)
        and (one.body.strip() or (one.kind is FeedbackKind.REVIEW and one.state != "commented"))
        for one in feedback
    )


def is_us(author: str, me: str | None) -> bool:
    """Return whether a login is ours. If the forge does not tell our login, every bot counts as us."""
    return author.endswith("[bot]") if me is None else author.lower() == me.lower()


def is_another_person(author: str, me: str | None) -> bool:
    """Return whether an author is a person other than us. Bots and deleted accounts are not."""
    return bool(author) and not author.endswith("[bot]") and (me is None or author.lower() != me.lower())


def why_taken_by_others(
    issue: Issue, linked: Callable[[], Iterable[PullRequest]], ours: Iterable[int], me: str | None
) -> str | None:
    """Return why an issue is left to other people, or None.

    Args:
        linked: reads the open pull requests that say they close the issue; called if nobody else is assigned.
        ours: numbers of our own pull requests.
    """
    others = [name for name in issue.assignees if me is None or name.lower() != me.lower()]
    if others:
        return f"issue #{issue.number} is assigned to {', '.join(others[:_NAMED])}: unassign it to have it done here"
    mine = set(ours)
    for pull in linked():
        if pull.number in mine or (me is not None and pull.author.lower() == me.lower()):
            continue
        author = name_of_login(pull.author)
        return f"issue #{issue.number} has an open pull request of {author}, {pull.url}"
    return None


def retry_labels(
    known: KnownTask, labels: Iterable[str], is_label_trusted: Callable[[int, str], bool]
) -> tuple[int, ...]:
    """Return the numbers of the task's issue and closed pull requests whose label asks for another try.

    Args:
        labels: of the issue.
        is_label_trusted: returns whether an account that may cause work put this label on this number. It is not
            asked if the task's pull request is open or merged, when the label asks for nothing.
    """
    if known.pull is not None and known.pull.state is not PullRequestState.CLOSED:
        return ()
    ours = (pull for pull in known.pulls if key_of(pull.branch) == known.key)
    labelled = [pull.number for pull in ours if has_label(pull.labels, RETRY_LABEL)]
    if (issue := issue_of(known.key)) is not None and has_label(labels, RETRY_LABEL):
        labelled.insert(0, issue)
    return tuple(number for number in labelled if is_label_trusted(number, RETRY_LABEL))


def id_of(feedback: Feedback) -> str:
    """Return a name of a review, a line comment or a comment that is unique on its pull request."""
    return f"{feedback.kind}-{feedback.id}"


def has_label(labels: Iterable[str], label: str) -> bool:
    """Return whether the labels include a label, which is given in lower case."""
    return label in {name.lower() for name in labels}


def _list(pulls: Sequence[PullRequest]) -> str:
    named = ", ".join(f"#{pull.number}" for pull in pulls[:_NAMED])
    more = len(pulls) - _NAMED
    return (f"{named} and {more} more" if more > 0 else named) or "one of them"
