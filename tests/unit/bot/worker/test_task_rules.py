"""Rules for choosing tasks: limits, whose issue it is, another try, and whose remarks count. Tables without a forge."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.task_state import KnownTask, task_state
from orchestrator.bot.cycle.tasks import RETRY_LABEL, from_issue, from_text
from orchestrator.bot.forge.base import Comment, Feedback, FeedbackKind, Issue, PullRequest, PullRequestState
from orchestrator.bot.worker.task_rules import (
    MOST_CHARACTERS,
    MOST_REMARKS,
    CommentsPolicy,
    NotNow,
    ReviewLimits,
    asks_otherwise,
    asks_to_stop,
    cap_in,
    choose_remarks,
    is_reviewed,
    retry_labels,
    why_no_new_task,
    why_taken_by_others,
)
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.cycle.tasks import Remark, Task


NOW = datetime(2026, 3, 5, 23, 50, tzinfo=UTC)
ME = "pullwright-bot"
OPEN, CLOSED, MERGED = PullRequestState.OPEN, PullRequestState.CLOSED, PullRequestState.MERGED


def pull(number: int, state: PullRequestState = OPEN, hours: float = 48, **fields: Any) -> PullRequest:
    """One of ours, that many hours old."""
    made: dict[str, Any] = {"branch": f"pullwright/issue-{number}-x", "author": ME, "labels": (), **fields}
    return PullRequest(
        number,
        "Fix",
        "",
        f"https://forge.example/{number}",
        False,
        state,
        base="main",
        commit="c" * 40,
        created_at=NOW - timedelta(hours=hours),
        **made,
    )


def said(
    author: str, body: str = "Hm.", kind: FeedbackKind = FeedbackKind.COMMENT, state: str = ""
) -> Feedback:
    return Feedback(kind, 1, author, body, NOW, NOW, "", state)


def issue(*assignees: str, labels: tuple[str, ...] = ()) -> Issue:
    return Issue(1, "Broken", "", True, labels, "ada", "", NOW, assignees)


MANNERS = ReviewLimits(max_open_prs=3, max_prs_per_day=2, max_unreviewed=2)
MIDNIGHT = datetime(2026, 3, 6, tzinfo=UTC)
LIMITS: dict[str, tuple[list[PullRequest], set[int], int, str, datetime | None]] = {
    "none": ([], set(), 0, "", None),
    "two open and reviewed": ([pull(2), pull(1)], {1, 2}, 0, "", None),
    "one of two reviewed": ([pull(2), pull(1)], {1}, 0, "", None),
    "three open": (
        [pull(3), pull(2), pull(1)],
        {1, 2, 3},
        0,
        "--max-open-prs is 3: merge or close #3, #2, #1",
        None,
    ),
    "open ones count, others do not": (
        [pull(4), pull(3, CLOSED), pull(2, MERGED), pull(1)],
        {1, 4},
        0,
        "",
        None,
    ),
    "two unreviewed": (
        [pull(2), pull(1)],
        set(),
        0,
        "--max-unreviewed is 2: review or comment on #2, #1",
        None,
    ),
    "two today, whatever became of them": (
        [pull(2, CLOSED, 1), pull(1, MERGED, 23)],
        set(),
        0,
        "--max-prs-per-day is 2: the next one may be at 2026-03-06 00:00 UTC",
        MIDNIGHT,
    ),
    "two in 24 hours, one of them yesterday": (
        [pull(2, CLOSED, 1), pull(1, CLOSED, 23.9)],
        set(),
        0,
        "",
        None,
    ),
    "in flight counts as open": (
        [pull(2), pull(1)],
        {1, 2},
        1,
        "2 pull requests are open and 1 in work",
        None,
    ),
    "in flight counts as today's": ([pull(1, MERGED, 1)], set(), 1, "opened today and 1 in work", MIDNIGHT),
    "in flight counts as unreviewed": (
        [pull(1)],
        set(),
        1,
        "nobody has looked at 1 pull requests yet and 1",
        None,
    ),
    "in flight counts alone": ([], set(), 3, "merge or close one of them", None),
}


@table("case", LIMITS)
def test_when_no_new_task_is_begun(case: str) -> None:
    pulls, reviewed, in_flight, words, until = LIMITS[case]
    found = why_no_new_task(pulls, MANNERS, NOW, lambda one: one.number in reviewed, in_flight)
    assert (found is None) is not bool(words)
    if found is not None:
        assert words in found.reason
        assert found.until == until


def test_a_day_is_one_of_utc() -> None:
    created = datetime(2026, 3, 6, 1, 0, tzinfo=UTC).astimezone(tz=None)
    found = why_no_new_task(
        [pull(1, CLOSED), pull(2, CLOSED)], ReviewLimits(9, 1), created.astimezone(UTC), lambda _pull: True
    )
    assert found is None
    yesterday = pull(1, CLOSED, hours=0.1)
    assert why_no_new_task([yesterday], ReviewLimits(9, 1), NOW, lambda _pull: True) == NotNow(
        "1 pull requests were opened today, and --max-prs-per-day is 1: the next one may be at 2026-03-06 00:00 UTC",
        MIDNIGHT,
    )


def test_whether_somebody_looked_is_asked_only_where_it_matters() -> None:
    asked: list[int] = []

    def look(one: PullRequest) -> bool:
        asked.append(one.number)
        return True

    why_no_new_task([pull(1), pull(9, CLOSED)], ReviewLimits(9, 9, 2), NOW, look)
    assert asked == []
    why_no_new_task([pull(2), pull(1), pull(9, CLOSED)], ReviewLimits(9, 9, 2), NOW, look)
    assert asked == [2, 1]


REVIEW = FeedbackKind.REVIEW


@table(
    ("one", "me", "counts"),
    [
        (said("ada"), ME, True),
        (said("mallory"), ME, True),
        (said("Pullwright-Bot"), ME, False),
        (said("helper[bot]"), ME, False),
        (said("helper[bot]"), None, False),
        (said(""), ME, False),
        (said("ada", " "), ME, False),
        (said("ada", "", REVIEW, "approved"), ME, True),
        (said("ada", "", REVIEW, "changes_requested"), ME, True),
        (said("ada", "", REVIEW, "commented"), ME, False),
        (said(ME, "", REVIEW, "approved"), ME, False),
    ],
)
def test_whose_words_are_a_review(one: Feedback, me: str | None, *, counts: bool) -> None:
    assert is_reviewed([one], me) is counts


@table(
    ("assignees", "linked", "words"),
    [
        ((), [], None),
        ((ME.upper(),), [], None),
        (("ada",), [], "is assigned to ada"),
        ((ME, "ada", "bob"), [], "is assigned to ada, bob:"),
        (("imported",), [], "is assigned to imported"),
        ((), [pull(7, author="eve")], "open pull request of eve, https://forge.example/7"),
        ((), [pull(7, author="")], "open pull request of an account that is gone"),
        ((), [pull(7, author="other[bot]")], "of other[bot]"),
        ((), [pull(7, author=ME)], None),
        ((), [pull(3, author="eve"), pull(7, author=ME)], None),
    ],
)
def test_hands_off_what_is_another_person(
    assignees: tuple[str, ...], linked: list[PullRequest], words: str | None
) -> None:
    found = why_taken_by_others(issue(*assignees), lambda: linked, [3], ME)
    assert (found is None) if words is None else (found is not None and words in found)


def test_a_branch_that_is_called_as_ours_does_not_make_a_pull_request_ours() -> None:
    stranger = pull(7, author="eve", branch="pullwright/issue-1-x")
    assert why_taken_by_others(issue(), lambda: [stranger], [], ME) is not None


def test_who_else_is_at_it_is_not_read_where_somebody_is_assigned() -> None:
    def read() -> list[PullRequest]:
        pytest.fail("read")

    assert why_taken_by_others(issue("ada"), read, [], None) is not None


def again(
    task: Task, pulls: list[PullRequest], labels: tuple[str, ...], is_trusted: Callable[[int, str], bool]
) -> tuple[str | None, tuple[int, ...]]:
    """Why a task is not taken again because of its pull requests, and whose label asks for another try."""
    known = KnownTask(task.key, NOW, task, pulls)
    found = retry_labels(known, labels, is_trusted)
    return task_state(replace(known, is_retry=bool(found))).refusal or None, found


NO = "was declined"
AGAIN: dict[str, tuple[list[PullRequest], tuple[str, ...], str | None, tuple[int, ...]]] = {
    "nothing": ([], (), None, ()),
    "nothing yet, and the label": ([], (RETRY_LABEL,), None, (1,)),
    "open": ([pull(8)], (RETRY_LABEL,), "has an open pull request", ()),
    "merged": ([pull(8, MERGED, labels=(RETRY_LABEL,))], (RETRY_LABEL,), "was done by", ()),
    "closed": ([pull(8, CLOSED)], (), NO, ()),
    "closed, another label": ([pull(8, CLOSED, labels=("retry",))], ("pullwright",), NO, ()),
    "closed, labelled": ([pull(8, CLOSED, labels=("PullWright:Retry",))], (), None, (8,)),
    "closed, issue labelled": ([pull(8, CLOSED)], (RETRY_LABEL,), None, (1,)),
    "closed twice, both labelled": (
        [pull(9, CLOSED), pull(8, CLOSED, labels=(RETRY_LABEL,))],
        (RETRY_LABEL,),
        None,
        (1, 8),
    ),
    "closed and open": (
        [pull(9), pull(8, CLOSED, labels=(RETRY_LABEL,))],
        (),
        "has an open pull request",
        (),
    ),
    "of another issue": ([pull(8, CLOSED, branch="pullwright/issue-12-x")], (), None, ()),
}


@table("case", AGAIN)
def test_a_closed_pull_request_is_a_no_until_the_label(case: str) -> None:
    pulls, labels, words, labelled = AGAIN[case]
    pulls = [one if "12" in one.branch else _of_issue_1(one) for one in pulls]
    reason, found = again(from_issue(issue()), pulls, labels, anybody)
    assert (reason is None) if words is None else (reason is not None and words in reason)
    assert found == labelled


def test_a_text_has_its_label_on_the_closed_pull_request() -> None:
    task = from_text("Fix it")
    closed = pull(8, CLOSED, branch=task.branch, labels=(RETRY_LABEL,))
    assert again(task, [closed], (RETRY_LABEL,), anybody) == (None, (8,))
    unlabelled = pull(8, CLOSED, branch=task.branch)
    assert again(task, [unlabelled], (RETRY_LABEL,), anybody)[0] is not None


WHOSE: dict[str, tuple[set[int], tuple[int, ...]]] = {
    "both": ({1, 8}, (1, 8)),
    "the issue's": ({1}, (1,)),
    "the pull request's": ({8}, (8,)),
}


@table("case", WHOSE)
def test_only_the_label_of_who_may_asks_for_another_try(case: str) -> None:
    counts, expected = WHOSE[case]
    closed = [_of_issue_1(pull(8, CLOSED, labels=(RETRY_LABEL,)))]
    found = again(from_issue(issue()), closed, (RETRY_LABEL,), lambda number, _label: number in counts)
    assert found == (None, expected)


def test_a_label_of_nobody_who_may_leaves_the_no() -> None:
    closed = [_of_issue_1(pull(8, CLOSED, labels=(RETRY_LABEL,)))]
    reason, found = again(from_issue(issue()), closed, (RETRY_LABEL,), lambda *_: False)
    assert reason is not None
    assert NO in reason
    assert found == ()


def test_who_put_a_label_on_is_not_asked_where_there_is_none() -> None:
    def asked(number: int, label: str) -> bool:
        pytest.fail(f"asked for {label} on #{number}")

    pulls = [_of_issue_1(pull(8, CLOSED))]
    assert again(from_issue(issue()), pulls, ("pullwright",), asked)[1] == ()


def anybody(number: int, label: str) -> bool:
    del number, label
    return True


def _of_issue_1(one: PullRequest) -> PullRequest:
    return pull(one.number, one.state, labels=one.labels, branch="pullwright/issue-1-x")


def comment(author: str, body: str) -> Comment:
    return Comment(1, author, body, datetime(2026, 1, 1, tzinfo=UTC), "")


def chosen(*comments: Comment, policy: CommentsPolicy = "quoted") -> tuple[Remark, ...]:
    return choose_remarks(comments, policy, lambda login: login == "ada", lambda text, _author: text)


OURS = "Which one?\n\n<!-- pullwright:question:issue-1 -->"


@table(
    ("author", "body", "kept"),
    [
        ("ada", OURS, False),
        ("ada", OURS.replace("\n", "\r\n") + "\r\n ", False),
        ("ada", "<!-- pullwright:comment:held -->", False),
        ("mallory", OURS, True),
        ("ada", "> Which one?\n> <!-- pullwright:question:issue-1 -->\n\nThat one.", True),
        ("ada", "See <!-- pullwright:question:issue-1 -->", True),
        ("ada", "<!-- pullwright-like -->", True),
        ("ada", " \n", False),
    ],
)
def test_what_we_wrote_ourselves_is_left_out(author: str, body: str, *, kept: bool) -> None:
    assert bool(chosen(comment(author, body))) is kept


def test_many_strangers_do_not_push_out_who_may_write() -> None:
    flood = [comment("mallory", f"Spam {number}") for number in range(80)]
    remarks = chosen(comment("ada", "First."), *flood, comment("ada", "Last."))
    assert len(remarks) == MOST_REMARKS
    assert [remarks[0].text, remarks[1].text, remarks[-2].text, remarks[-1].text] == [
        "First.",
        "Spam 32",
        "Spam 79",
        "Last.",
    ]


def test_the_newest_stay_and_together_they_have_an_end() -> None:
    remarks = chosen(*[comment("ada", f"{number}" * 9_000) for number in range(4)])
    assert [remark.text[0] for remark in remarks] == ["1", "2", "3"]
    assert remarks[0].text.endswith("…")
    assert sum(len(remark.text) for remark in remarks) == MOST_CHARACTERS


def test_the_end_counts_what_is_left_after_cleaning() -> None:
    remarks = choose_remarks(
        [comment("ada", "x" * 30_000), comment("ada", "y" * 30_000)],
        "writers",
        lambda _login: True,
        lambda text, _author: text[:5],
    )
    assert [remark.text for remark in remarks] == ["xxxxx", "yyyyy"]


def test_none_means_none() -> None:
    assert chosen(comment("ada", "Hello."), policy="none") == ()


STOPS = (
    "Please stop.",
    "please stop",
    "stop!",
    "Stop working on this, please.",
    "@pullwright-bot stop",
    "Can you please stop here?",
    "Hold on.",
    "hold off on this for now",
    "Wait, please.",
    "Never mind.",
    "Nevermind, thanks",
    "Please don't do this.",
    "Do not work on this anymore.",
    "don\u2019t open a pull request",
    "This is no longer needed.",
    "Not needed any more.",
    "Please leave this to me.",
    "leave it alone",
    "I'll do this myself",
    "I am working on this.",
    "I have looked at it.\n\nPlease stop.",
    "wontfix",
    "I've changed my mind.",
    "Cancel this.",
    "Stop.",
    "STOP!!!",
    "Please stop working on this.",
    "@pullwright please stop",
    "stop this please",
    "hold on",
    "Hold on, I want to think about it first.",
    "Hang on a second",
    "Let's wait with this",
    "Let's not do this",
    "Let us not do this for now.",
    "Please don't.",
    "Don't do this yet",
    "Please do not open a PR for this",
    "Don't do anything here for now",
    "We don't need this anymore",
    "This isn't needed any more.",
    "Not needed any more, thanks",
    "I'm on it",
    "I am on it.",
    "I got this",
    "I've got it",
    "I already have a fix",
    "I already have a patch for this",
    "I have a PR for this coming",
    "I'm already working on this",
    "Working on this already.",
    "Someone else is working on this",
    "Grace is working on this",
    "Taking this.",
    "I'll take it from here",
    "Assigned to Grace, please leave it",
    "Never mind, works for me",
    "nvm",
    "Abort mission",
    "Please hold",
    "Put this on hold",
    "On hold until next week",
    "Let's put this on hold.",
    "Wait for #12 first",
    "Scratch that",
    "Forget it",
    "Forget about this",
    "Please ignore this issue",
    "Closing in favour of #12",
    "Duplicate of #12",
    "Superseded by #13",
    "No need to fix this",
    "no need",
    "Not a bug",
    "Works as intended, please leave it as it is",
    "Bot, stop",
    "stop it",
    "Bitte aufh\u00f6ren",
    "Bitte stoppen",
    "Stopp!",
    "arr\u00eate",
    "Cancel this task",
    "Please cancel",
    "Do not merge",
    "Don't start yet!",
    "Let me handle this one",
    "I want to do this myself",
    "I'd rather do this myself.",
    "I would like to do this one myself",
    "Please wait until the design is settled",
    "Please wait until the design is settled.",
    "Let's wait until #12 is merged",
    "Please don't start before the RFC is accepted",
    "Hold your horses",
    "This should not be done by a bot.",
    "I don't want the bot to do this",
    "Bot: no.",
    "No bot please",
    "Please back off",
    "@pullwright-bot please stop working on it",
    "Stand down.",
    "Please skip this one",
    "Skip.",
    "Withdrawn",
    "Please withdraw",
    "I withdraw this request.",
    "Retracted.",
    "Out of scope",
    "Out of scope, sorry",
    "This is obsolete",
    "Obsolete.",
    "No longer an issue",
    "Fixed already",
    "Already fixed",
    "This is already fixed.",
    "Already fixed in main",
    "Fixed in 1.2.3",
    "Fixed by #12",
    "Fixed in abc1234",
    "Solved already, thanks",
    "Can't reproduce, closing",
    "Closing as not planned",
    "Closing this.",
    "I'm closing this issue",
    "Invalid",
    "Invalid, sorry",
    "This was a mistake",
    "opened by mistake",
    "Wrong repository, sorry",
    "I've started working on this",
    "I started on this yesterday",
    "I have started a branch for this",
    "Grace will do it",
    "Reserved for new contributors",
    "Please leave this for a first-time contributor",
    "Please pause",
    "pause",
    "Please do nothing",
    "Do nothing here",
    "Let me think about it first",
    "We need to discuss this first",
    "Needs discussion first.",
    "Please discuss first",
    "needs more discussion",
    "This needs a decision first",
    "Blocked by #12",
    "Blocked on #12.",
    "blocked",
    "Por favor, para",
    "Detente",
    "Espera",
    "No lo hagas",
    "S'il vous pla\u00eet arr\u00eatez",
    "Ne faites pas \u00e7a",
    "Bitte warten",
    "Bitte nicht",
    "Bitte noch nicht anfangen",
    "Nicht n\u00f6tig",
    "Halt!",
    "Fermati",
    "Pare",
    "\u505c\u6b62",
    "\u8bf7\u505c\u6b62",
    "\u3084\u3081\u3066\u304f\u3060\u3055\u3044",
    "\u6b62\u3081\u3066",
    "\u0421\u0442\u043e\u043f",
    "\u041d\u0435 \u043d\u0430\u0434\u043e",
    "\U0001f6d1",
    "\u26d4",
    "/stop",
    "!stop",
    "stop.",
    "stop",
    "Please, STOP",
    "Plz stop",
    "pls dont do this",
    "dont",
    "Undo",
    "Revert this please",
)
GOES_ON = (
    "Please keep it short.",
    "Stop the timer when the user leaves.",
    "It should stop at zero.",
    "Please don't use floats.",
    "Don't change the public interface.",
    "Do not open the file twice.",
    "Wait for the lock before writing.",
    "The button is not needed on this page.",
    "Leave the old name alone as an alias.",
    "We stop supporting 3.8.",
    "> please stop\n\nNo, go ahead.",
    "Cancel the request if the user stops it.",
    "The process does not stop.",
    "I will review this tomorrow.",
    "No longer raises an error with 3.12.",
    "Stop the timer at zero",
    "The service should stop when the port is closed.",
    "It waits for the lock. Please fix.",
    "Don't stop at the first error",
    "Do not merge the two lists in place",
    "Cancel the request when the user leaves",
    "Please don't use a regex for this",
    "Don't touch the API",
    "Hold the lock while writing",
    "I'm working on the docs, this one is free",
    "Please continue",
    "Don't forget the tests",
    "This is needed soon",
    "Not a big deal",
    "No need to change the tests",
    "Please ignore whitespace",
    "Never mind the old files, only new ones matter",
    "Thanks!",
    "I changed the title",
    "Abort the loop at 10",
    "leave the comments in place",
    "Forget the cache after an hour",
    "Duplicate entries must be dropped",
    "Wait 5 seconds between tries",
    "I'll take a look at the PR when it is there",
    "On hold calls should be counted",
    "The parser is doing this already.",
    "Nginx is handling this.",
    "Wait, this happens with negative numbers too.",
    "Open the page. Then wait.",
    "Please wait until the file exists before it is read.",
    "",
    "Please wait until the file is written before reading it.",
    "Wait until the socket is closed",
    "It should wait until the design tokens are loaded",
    "Fixed width is fine",
    "Fixed-point numbers would be better.",
    "Already in the docs, see README.",
    "Blocked requests should return 403.",
    "The retry is out of scope here, only fix the timeout.",
    "Skip this test on Windows",
    "Skip empty lines.",
    "Invalid input should raise ValueError",
    "Pause the video when the tab is hidden",
    "Obsolete entries must be removed",
    "No thanks page is shown",
    "Not yet implemented endpoints should return 501",
    "Discuss page needs a fix",
    "Reserved words are not escaped.",
    "I started with the parser, look there first.",
    "I can reproduce this on main.",
    "Can't reproduce with Python 3.12, only 3.11.",
    "This was a regression from #10.",
    "Grace will review.",
    "Undo should restore the cursor.",
    "Revert the change of the default in #10 as part of this.",
    "Stop words are removed twice",
    "Stop codon handling is wrong",
    "Never mind the encoding; use UTF-8",
    "Hold the door, i.e. keep the connection open",
    "Let me know if you have questions",
    "Please do nothing if the list is empty.",
    "Nothing happens when I click.",
    "Wait, actually please use a set",
    "Leave it open if it was open before",
    'The bot should answer "stop" with a menu.',
    "Cancel button does nothing",
    "Ignore case",
    "ignore hidden files",
    "It does not start.",
    "It is not working",
    "The app will not start",
    "Not yet.",
    "No thanks",
    "Is this already fixed?",
    "Will do!",
    "Don't close this",
    "Please don't wait for me",
    "This is not fixed",
    "Still not fixed",
    "It was fixed before, but it came back",
    "This is a duplicate key error",
    "Please go on",
    "Go ahead",
    "Looks good, please continue",
    "I think so",
    "Yes, do it",
    "No need to wait",
    "We discussed this, go ahead",
    "Closing the window leaks memory",
    "Blocked by default is what we want",
)


def test_who_asks_that_work_stops() -> None:
    assert [text for text in STOPS if not asks_to_stop(text)] == []
    assert [text for text in GOES_ON if asks_to_stop(text)] == []


@table(
    ("text", "cap"),
    [
        ("up to $5", 5.0),
        ("Please fix this, up to $5.", 5.0),
        ("Up to US$2.50!", 2.5),
        ("@pullwright budget: up to 12 USD", 12.0),
        ("**up to $3**", 3.0),
        ("Mend the sum (up to $4)", 4.0),
        ("up to $5\nNo: up to $7", 7.0),
        ("you may spend up to $1.", 1.0),
        ("The discount is up to $5.", None),
        ("Prices go up to $5 for members", None),
        ("up to CA$5", None),
        ("up to $5 CAD", None),
        ("up to 5 EUR", None),
        ("up to 5\u20ac", None),
        ("up to $5k", None),
        ("up to $5,000", None),
        ("up to $-5", None),
        ("up to $1e3", None),
        ("up to $99999999", None),
        ("> up to $5", None),
        ("up to five dollars", None),
    ],
)
def test_a_cap_in_words(text: str, cap: float | None) -> None:
    assert cap_in(text) == cap


def test_a_long_text_for_a_cap_takes_no_time() -> None:
    for text in ("up to $" * 100_000, "a " * 200_000, "up to $5 " + "a" * 400_000, "," * 400_000):
        assert cap_in(text) is None


LONG = "Rows with an empty date are counted twice. To see it, load the second sheet and compare the totals."


@table(
    "title, body, new_title, new_body, otherwise",
    [
        ("Totals are wrong", LONG, "Totals are wrong", LONG, False),
        ("Totals are wrong", LONG, "Export to PDF does not work", LONG, True),  # the title alone
        ("Totals are wrong", LONG, "Totals are wrong", "Export to PDF, please.", True),
        ("Totals are wrong", LONG, "Totals are wrong in March", f"{LONG} It began in March.", False),
        ("Bug", LONG, "Rows with an empty date are counted twice", LONG, False),  # said more clearly
        ("Totls aer wrong", LONG, "Totals are wrong", LONG, False),
        ("Ad rows", LONG, "Add rows", LONG, False),
        ("Totals", LONG, "Sums", LONG, True),
        ("Totals are wrong", "", "Export to PDF", "", True),
        ("", LONG, "Export to PDF", LONG, False),
        ("", "", "Export to PDF", "", False),
    ],
)
def test_a_text_that_was_edited_asks_for_the_same_or_not(
    title: str, body: str, new_title: str, new_body: str, *, otherwise: bool
) -> None:
    assert asks_otherwise((title, body), (new_title, new_body)) is otherwise
