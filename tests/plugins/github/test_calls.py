"""Calls: one at a time from many threads, nothing during a limit, the count of requests, and replies that are kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import Traffic
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ForgeError, ForgeRateLimitError, ForgeUnavailableError
from orchestrator.plugins.github.calls import (
    LONGEST_LIMIT_SECONDS,
    ApiRequest,
    Calls,
    CallTiming,
    Reply,
    ReplyCache,
)
from orchestrator.plugins.github.parsing import to_listed_pull_request
from orchestrator.plugins.github.transport import GitHubApp
from tests.doubles.github.faults import Fault, lost_reply, secondary_limit, server_error
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugins.github.conftest import Bench

GET = ApiRequest("GET", "/x", "look")
POST = ApiRequest("POST", "/x", "write", body={})
QUERY = ApiRequest("POST", "", "ask", body={}, is_graphql=True)
SPENT = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767229200"}
"""Spent for an hour from where `ManualClock` starts."""


@dataclass
class Script:
    """A line that answers from a list, and from the last entry for ever."""

    replies: list[Reply]
    sent: list[ApiRequest] = field(default_factory=list)
    has_token: bool = True
    token_variable: str = "GITHUB_TOKEN"

    def send(self, request: ApiRequest) -> Reply:
        self.sent.append(request)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def close(self) -> None:
        pass


def calls_on(line: Script, clock: ManualClock, *, longest: float = 120.0) -> Calls:
    return Calls(line, CallTiming(clock, clock.advance, longest_wait_seconds=longest))


# A list with something odd in it.


ITEMS = '[{"number": 1, "id": 10}, {"number": 2}, "a word", null, {"number": 3, "id": 30}]'


def test_what_has_not_githubs_form_is_left_out_of_a_list_and_told_once() -> None:
    clock, told = ManualClock(), list[str]()
    calls = Calls(
        Script([Reply(200, {}, ITEMS)]), CallTiming(clock, clock.advance, on_unreadable=told.append)
    )
    for _ in range(2):
        assert calls.pages(GET, lambda item: item["id"], skips=True) == [10, 30]
    assert [text.split(",")[0] for text in told] == ["#2 is left out", "an item is left out"]
    with pytest.raises(ForgeError, match="does not have GitHub's form"):
        calls.pages(GET, lambda item: item["id"])


def test_a_list_without_anything_of_githubs_form_is_an_error() -> None:
    calls = calls_on(Script([Reply(200, {}, '[{"number": 1}, {"number": 2}]')]), ManualClock())
    with pytest.raises(ForgeError, match="does not have GitHub's form"):
        calls.pages(GET, lambda item: item["id"], skips=True)
    nothing = calls_on(Script([Reply(200, {}, "[]")]), ManualClock())
    assert nothing.pages(GET, lambda item: item["id"], skips=True) == []


@table(("said", "state"), [("open", "open"), (None, "open"), ("odd", "open"), ("closed", "closed")])
def test_a_pull_request_that_cannot_be_read_is_still_known_by_its_branch(
    said: str | None, state: str
) -> None:
    """Else its task would be proposed again."""
    item = {"number": 7, "state": said, "head": {"ref": "pullwright/issue-1-a"}, "html_url": None}
    found = to_listed_pull_request(item)
    assert found is not None
    assert (found.number, found.branch, found.state, found.author) == (7, "pullwright/issue-1-a", state, "")
    with pytest.raises(KeyError):
        to_listed_pull_request({**item, "head": {}})


# One at a time.


class Crowded:
    """A line that notes how many are in it at once; each waits there for the others, in vain."""

    has_token = True
    token_variable = "GITHUB_TOKEN"

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.together = threading.Barrier(2)

    def send(self, request: ApiRequest) -> Reply:  # noqa: ARG002  it does not matter what is asked
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            self.together.wait(0.05)
        except threading.BrokenBarrierError:
            self.together.reset()
        self.inside -= 1
        return Reply(200, {}, "{}")

    def close(self) -> None:
        pass


def test_threads_send_one_at_a_time() -> None:
    line, clock = Crowded(), ManualClock()
    calls = Calls(line, CallTiming(clock, clock.advance))
    threads = [threading.Thread(target=calls.call, args=(GET,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert line.most == 1
    assert calls.traffic() == Traffic(requests=4)


def test_writes_of_two_threads_keep_their_distance() -> None:
    clock = ManualClock()
    at: list[float] = []

    class Watch(Script):
        def send(self, request: ApiRequest) -> Reply:
            at.append(clock.monotonic())
            return super().send(request)

    calls = calls_on(Watch([Reply(200, {}, "{}")]), clock)
    threads = [threading.Thread(target=calls.call, args=(POST,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at == [0.0, 1.0, 2.0]


# Silence.


def test_nothing_is_sent_before_a_limit_ends() -> None:
    clock = ManualClock()
    line = Script([Reply(403, {"retry-after": "600"}, "{}"), Reply(200, {}, "{}")])
    calls = calls_on(line, clock)
    resume_at = clock.now() + timedelta(seconds=600)
    for request in (GET, POST, QUERY):
        with pytest.raises(ForgeRateLimitError, match=f"before {resume_at:%Y-%m-%d %H:%M:%S} UTC") as caught:
            calls.call(request)
        assert caught.value.resume_at == resume_at
    assert len(line.sent) == 1
    clock.advance(600)
    assert calls.call(GET).status == 200


def test_a_spent_quota_of_one_interface_leaves_the_other() -> None:
    clock = ManualClock()
    line = Script([Reply(403, SPENT, "{}"), Reply(200, {}, '{"data": {}}')])
    calls = calls_on(line, clock)
    with pytest.raises(ForgeRateLimitError):
        calls.call(GET)
    assert calls.call(QUERY).status == 200
    with pytest.raises(ForgeRateLimitError):
        calls.call(GET)
    assert [request.is_graphql for request in line.sent] == [False, True]


def test_a_thread_that_may_wait_waits_for_the_limit_that_another_met() -> None:
    clock = ManualClock()
    line = Script([Reply(429, {"retry-after": "30"}, "{}"), Reply(200, {}, "{}")])
    calls = calls_on(line, clock)
    calls.call(GET)
    assert clock.monotonic() == 30.0
    assert len(line.sent) == 2


def test_no_reply_stops_us_for_longer_than_a_quota_lasts() -> None:
    clock = ManualClock()
    line = Script([Reply(429, {"retry-after": "99999999999"}, "{}"), Reply(200, {}, "{}")])
    calls = calls_on(line, clock)
    with pytest.raises(ForgeRateLimitError):
        calls.call(GET)
    clock.advance(LONGEST_LIMIT_SECONDS)
    assert calls.call(GET).status == 200


def test_an_interrupted_wait_lets_others_go_on() -> None:
    clock = ManualClock()

    def stopped(_seconds: float) -> None:
        raise KeyboardInterrupt

    line = Script([Reply(200, {}, "{}")])
    calls = Calls(line, CallTiming(clock, stopped))
    calls.call(POST)
    with pytest.raises(KeyboardInterrupt):
        calls.call(POST)
    done = threading.Thread(target=calls.call, args=(GET,), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive()
    assert len(line.sent) == 2


# The ledger.


def test_every_request_is_counted_with_and_without_a_reply(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    bench.github.faults += [
        server_error("GET", "/repos/octo/demo"),
        lost_reply("POST", ".*/labels"),
        secondary_limit("POST", ".*/labels", retry_after=1),
    ]
    forge = bench.forge()
    assert forge.traffic() == Traffic()
    forge.ensure_label(issue.number, "bug")
    forge.history(issue.number, "bug")
    forge.repository()
    spent = forge.traffic()
    assert spent.requests == len(bench.github.requests) + len(bench.github.queries)
    assert spent.writes == len(bench.github.calls("POST")) == 3
    assert spent.unchanged == sum(seen.status == 304 for seen in bench.github.requests) > 0
    assert len(bench.github.queries) == 1


def test_requests_for_an_apps_token_are_counted(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    forge.repository()
    assert forge.traffic().requests == len(bench.github.requests) > 2
    assert forge.traffic().writes == len(bench.github.calls("POST")) == 1


# Replies that are kept.


def test_what_has_not_changed_costs_nothing(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()

    def look() -> tuple[object, ...]:
        return (
            forge.repository(),
            forge.issue(issue.number),
            forge.read_file("README.md"),
            forge.read_file("BACKLOG.md"),
            forge.comments(issue.number),
        )

    for _ in range(3):
        look()
        bench.clock.advance(61)
    first, remaining = look(), bench.github.remaining
    before = forge.traffic()
    assert look() == first
    assert bench.github.remaining == remaining
    spent = forge.traffic() - before
    assert spent.unchanged == spent.requests > 0


def test_a_file_that_was_missing_is_found_when_it_comes(bench: Bench) -> None:
    forge = bench.forge()
    for _ in range(4):
        assert forge.read_file("BACKLOG.md") is None
        bench.clock.advance(61)
    assert len(bench.github.calls("GET", "BACKLOG.md")) == 3
    bench.github.commit(bench.repo, {"BACKLOG.md": "- Mend it\n"})
    assert forge.read_file("BACKLOG.md") == "- Mend it\n"
    bench.github.commit(bench.repo, {"BACKLOG.md": None})
    assert forge.read_file("BACKLOG.md") is None


def test_an_answer_that_lags_behind_the_branch_is_not_believed_for_long(bench: Bench) -> None:
    forge = bench.forge()
    for _ in range(4):
        forge.read_file("BACKLOG.md")
        bench.clock.advance(61)
    bench.github.commit(bench.repo, {"BACKLOG.md": "- Mend it\n"})
    late = Fault("GET", ".*/contents/BACKLOG.md", status=404, body={"message": "Not Found"})
    bench.github.faults.append(late)
    assert forge.read_file("BACKLOG.md") is None
    bench.clock.advance(61)
    assert forge.read_file("BACKLOG.md") == "- Mend it\n"


def test_an_unasked_for_304_is_no_answer() -> None:
    clock = ManualClock()
    calls = calls_on(Script([Reply(304, {}, "")]), clock)
    with pytest.raises(ForgeError):
        calls.read_cached(GET, lambda data: data["x"])


def test_a_kept_refusal_is_not_taken_for_an_answer_by_others() -> None:
    clock = ManualClock()
    line = Script([Reply(404, {"etag": '"a"'}, "{}"), Reply(200, {"etag": '"b"'}, "{}")])
    calls = calls_on(line, clock)
    assert calls.get(GET, accept=(404,)).status == 404
    assert calls.get(GET).status == 200
    assert "If-None-Match" not in line.sent[1].headers


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda: ReplyCache(most_replies=2), ["b", "c"]),
        (lambda: ReplyCache(most_characters=25), ["b", "c"]),
    ],
)
def test_the_replies_used_last_are_kept(make: Callable[[], ReplyCache], kept: list[str]) -> None:
    memory = make()
    for key in "abc":
        memory.put((key,), Reply(200, {"etag": key}, "x" * 10))
    assert [key for key in "abc" if memory.get((key,))] == kept
    memory.get(("b",))
    memory.put(("d",), Reply(200, {"etag": "d"}, "x" * 10))
    assert [key for key in "abcd" if memory.get((key,))] == ["b", "d"]
    memory.put(("e",), Reply(200, {"etag": "e"}, "x" * 60_000_000))
    memory.put(("d",), Reply(200, {}, ""))
    assert memory.get(("d",)) is None


def test_a_reply_that_is_too_large_is_not_kept() -> None:
    memory = ReplyCache(most_characters=10)
    memory.put(("a",), Reply(200, {"etag": "a"}, "x" * 11))
    assert len(memory) == 0
    memory.put(("a",), Reply(200, {"etag": "a"}, "x" * 10))
    assert len(memory) == 1


def test_a_newer_reply_takes_the_place_of_an_older_one() -> None:
    memory = ReplyCache(most_characters=30)
    for key in "aaab":
        memory.put((key,), Reply(200, {"etag": key}, "x" * 15))
    assert [key for key in "ab" if memory.get((key,))] == ["a", "b"]


def test_an_outage_is_no_limit(bench: Bench) -> None:
    bench.github.faults.append(server_error("GET", ".*", times=4))
    forge = bench.forge()
    with pytest.raises(ForgeUnavailableError):
        forge.repository()
    assert forge.repository().name == "octo/demo"
