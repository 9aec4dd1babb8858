"""A conversation that is made shorter while the session works, under each contract and each fault of a summary."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.earlier import conversation
from orchestrator.bot.journal.reader import read_run, replay_of
from orchestrator.bot.journal.records import JournalWriter, UnknownRecord, decode_event, encode_event
from orchestrator.bot.journal.run_facts import Unanswered
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConnectionFailedError, ContextLengthError, JournalError
from orchestrator.core.events import (
    SUMMARY_AGENT,
    Compacted,
    Event,
    ReplyReceived,
    SubagentEvent,
    TurnStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Image, Message, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.core.todos import TodoList, TodoPriority, TodoStatus
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.contracts.whole_file import WholeFile
from orchestrator.engine.models.base import Completed, Response, TextPiece, ToolChoice
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.compaction import problem_of, summary_plus_recent
from orchestrator.engine.session.config import EXPLORER, CompactionPolicy, Host, SessionConfig
from orchestrator.engine.session.history import (
    History,
    RanCommand,
    Turn,
    TurnKind,
    history_of,
    message_bytes,
    repaired_turns,
)
from orchestrator.engine.session.loop import EndKind
from tests.tables import table
from tests.unit.engine.session.stage import says, session_with, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Request, StreamEvent
    from orchestrator.engine.session.session import Session

NOW = ManualClock().now()
HEADINGS = ("## Goal", "## Progress and decisions", "## Constraints", "## Remaining", "## Critical data")
SUMMARY = "\n".join(f"{heading}\nwords of the summary" for heading in HEADINGS)
OUTPUT = "x" * 2_000
WINDOW = 8_000
POLICY = CompactionPolicy(share=0.5)


def is_question(request: Request) -> bool:
    return request.messages[-1].text.startswith("Call nothing now")


def size_of(request: Request) -> int:
    return sum(map(message_bytes, request.messages)) + len(request.system)


def summary(text: str = SUMMARY, *calls: tuple[str, Any], finish: FinishReason | None = None) -> Response:
    return says(text, *calls, finish=finish)


@dataclass
class Worker:
    """Calls `look` so many times, then says that it is done; summaries are answered apart.

    Attributes:
        summaries: what it answers when it is asked for one, in turn; the last one again and again.
        held: summaries wait until it is set.
        window: a request that is longer is refused.
    """

    steps: int
    contract: str = "native"
    summaries: list[Response | Exception] = field(default_factory=lambda: [summary()])
    held: asyncio.Event | None = None
    window: int | None = None
    name: str = "scripted:1"
    requests: list[Request] = field(default_factory=list)
    questions: list[Request] = field(default_factory=list)
    given: int = 0

    async def complete(self, request: Request) -> Response:
        tokens = size_of(request) // 4
        if self.window is not None and tokens > self.window:
            raise ContextLengthError(f"{tokens} tokens are too many")
        if is_question(request):
            self.questions.append(request)
            if self.held:
                await self.held.wait()
            said = self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
        else:
            self.requests.append(request)
            said = self.step()
        if isinstance(said, Exception):
            raise said
        return replace(said, usage=Usage(tokens, size_of_reply(said) // 4))

    def step(self) -> Response:
        self.given += 1
        if self.given > self.steps:
            done = {"plan": "Done", "tool_calls": [{"tool_name": "finish", "arguments": {}}]}
            return says(json.dumps(done) if self.contract == "json_plan" else "Done.")
        if self.contract == "json_plan":
            call = {"tool_name": "look", "arguments": {"n": self.given}}
            return says(json.dumps({"plan": f"step {self.given}", "tool_calls": [call]}))
        reply = says(f"step {self.given}", ("look", {"n": self.given}))
        parts = tuple(
            replace(part, id=f"c{self.given}") if isinstance(part, ToolCall) else part
            for part in reply.message.parts
        )
        return replace(reply, message=Message(Role.ASSISTANT, parts))

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        response = await self.complete(request)
        yield TextPiece(response.text)
        yield Completed(response)

    async def aclose(self) -> None:
        pass


def size_of_reply(response: Response) -> int:
    return message_bytes(response.message)


def finish_tool() -> Any:
    from orchestrator.engine.tools.control import finish

    async def may(_reason: str) -> str | None:
        return None

    return finish(may)


@dataclass
class Told:
    """What a session told its host."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def work(  # noqa: PLR0913  by name
    folder: Path,
    model: Worker,
    *,
    user: str | Message = "The task: count the x",
    reads_images: bool = True,
    subagents: bool = False,
    contract: Contract | None = None,
    policy: CompactionPolicy | None = POLICY,
    window: int | None = WINDOW,
    look: Callable[[Any], Any] = lambda _arguments: OUTPUT,
    act: Callable[[Session], None] = lambda _session: None,
    todos: TodoList | None = None,
    skills: dict[str, str] | None = None,
    **config: Any,
) -> tuple[Session, Told, EndKind]:
    told = Told()
    settings = SessionConfig(compaction=policy, context_window=window, enable_loop_detection=False, **config)
    host = Host(
        system=lambda _shown: "You are tested.",
        emit=told,
        todos=todos or TodoList(),
        skills={} if skills is None else skills,
    )
    tools = [tool("look", look), finish_tool()]
    async with session_with(
        folder,
        model,
        tools=tools,
        config=settings,
        host=host,
        contract=contract,
        supports_images=reads_images,
        subagents=subagents,
    ) as talk:
        act(talk)
        end = await talk.run(user)
    return talk, told, end.kind


def check_pairs(request: Request) -> None:
    """Each call has its result right behind it."""
    asked: set[str] = set()
    for message in request.messages:
        results = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        assert results == (asked if message.role is Role.TOOL else set())
        assert not asked or message.role is Role.TOOL
        asked = {part.id for part in message.parts if isinstance(part, ToolCall)}
    assert not asked


CONTRACTS: dict[str, Callable[[], Contract]] = {
    "native": Native,
    "single_step": SingleStep,
    "json_plan": JsonPlan,
}


@pytest.mark.parametrize("name", CONTRACTS)
async def test_a_long_task_ends_within_its_window_under_each_contract(tmp_path: Path, name: str) -> None:
    model = Worker(60, name, window=WINDOW)
    session, told, end = await work(tmp_path, model, contract=CONTRACTS[name]())
    assert end in {EndKind.COMPLETED, EndKind.FINISH}
    assert max(map(size_of, model.requests)) // 4 < WINDOW
    shorter = told.of(Compacted)
    assert len(shorter) > 3
    assert all(one.tokens_after * 2 <= WINDOW * 0.5 for one in shorter)
    assert all(one.reason == "50% of the context window is used" for one in shorter)
    for request in model.requests:
        check_pairs(request)
        assert "The task: count the x" in request.messages[0].text
    assert sum(turn.usage is not None for turn in session.history.turns) == 61  # the history has it all
    assert told.of(Warned) == []


@pytest.mark.parametrize("name", CONTRACTS)
async def test_the_question_extends_the_conversation_that_the_model_has_read(
    tmp_path: Path, name: str
) -> None:
    model = Worker(30, name)
    await work(tmp_path, model, contract=CONTRACTS[name]())
    assert model.questions
    for question in model.questions:
        before = list(question.messages[:-1])
        same = [one for one in model.requests if list(one.messages) == before]
        assert same, "the conversation is one that was asked, but for the question"
        assert (question.system, question.tools) == (same[0].system, same[0].tools)
        assert question.tool_choice == same[0].tool_choice
        assert question.output_schema is None


async def test_a_prefix_stays_the_same_from_one_summary_to_the_next(tmp_path: Path) -> None:
    model = Worker(60)
    await work(tmp_path, model)
    broken = 0
    for one, other in zip(model.requests, model.requests[1:], strict=False):
        is_extended = list(other.messages[: len(one.messages)]) == list(one.messages)
        broken += not is_extended
    assert broken == len(model.questions)


async def test_the_loop_goes_on_while_a_summary_is_written(tmp_path: Path) -> None:
    held = asyncio.Event()
    seen: list[int] = []

    def look(arguments: Any) -> str:
        if model.questions and not seen:
            seen.append(arguments["n"])
        if seen and arguments["n"] == seen[0] + 2:
            held.set()
        return OUTPUT

    model = Worker(16, held=held)
    _session, told, _end = await work(tmp_path, model, look=look)
    first = told.of(Compacted)[0]
    begun = len(model.questions[0].messages)
    later = next(one for one in model.requests if "words of the summary" in one.messages[0].text)
    assert len(model.requests[model.requests.index(later) - 1].messages) > begun  # it went on
    said = [message.text for message in later.messages]
    assert [f"step {n}" in said for n in range(seen[0], seen[0] + 3)] == [True] * 3  # and lost nothing of it
    assert first.turns >= 6


@table(
    "bad, problem",
    [
        (summary(""), "empty"),
        (summary(SUMMARY, finish=FinishReason.LENGTH), "cut off"),
        (summary(SUMMARY, ("look", {"n": 1})), "calls"),
        (summary("## Goal\nonly"), "no heading ## Progress and decisions, ## Constraints"),
        (summary(SUMMARY, finish=FinishReason.CONTENT_FILTER), "content_filter"),
        (summary(SUMMARY + "y" * 5_000), "too long"),
        (summary('{"plan": "go on", "tool_calls": []}'), "no heading"),
    ],
)
def test_what_is_no_summary_is_not_taken(bad: Response, problem: str) -> None:
    assert problem in problem_of(bad, HEADINGS, 4_000)
    assert problem_of(summary(), HEADINGS, 4_000) == ""


async def test_a_bad_summary_is_asked_for_once_more_and_then_calls_are_forbidden(tmp_path: Path) -> None:
    model = Worker(12, summaries=[summary("no headings"), summary()])
    _session, told, _end = await work(tmp_path, model)
    first, second = model.questions[:2]
    assert list(first.messages[:-1]) == list(second.messages[:-1])
    assert "it has no heading ## Goal" in second.messages[-1].text
    assert (first.tool_choice, second.tool_choice) == (ToolChoice.AUTO, ToolChoice.NONE)
    assert "words of the summary" in told.of(Compacted)[0].summary


async def test_two_bad_summaries_leave_what_the_program_knows_and_the_newest_turns(tmp_path: Path) -> None:
    model = Worker(30, summaries=[summary("no headings")], window=WINDOW)
    _session, told, end = await work(tmp_path, model)
    assert end is EndKind.COMPLETED
    shorter = told.of(Compacted)
    assert shorter
    assert all("without a summary of the model: it has no heading" in one.reason for one in shorter)
    assert all(one.turns >= 2 for one in shorter)
    assert len(model.questions) == 2 * len(shorter)
    assert "The task: count the x" in shorter[-1].summary


async def test_a_model_that_fails_leaves_the_conversation_alone_until_it_must(tmp_path: Path) -> None:
    model = Worker(30, summaries=[ConnectionFailedError("gone")], window=WINDOW)
    _session, told, end = await work(tmp_path, model)
    assert end is EndKind.COMPLETED
    shorter = told.of(Compacted)
    assert all("no room is left for a reply" in one.reason for one in shorter)
    assert all(one.tokens_after <= WINDOW * 0.25 for one in shorter)
    assert "the conversation could not be summarized: gone" in told.of(Warned)[0].message


async def test_an_overflow_of_an_unknown_window_is_overcome_and_remembered(tmp_path: Path) -> None:
    model = Worker(40, window=WINDOW)
    _session, told, end = await work(tmp_path, model, window=None)
    assert end is EndKind.COMPLETED
    reasons = [one.reason for one in told.of(Compacted)]
    assert reasons[0] == "the conversation was longer than the model can read"
    assert set(reasons[1:]) == {"50% of the context window is used"}


async def test_answers_that_together_are_longer_than_the_window_are_overcome(tmp_path: Path) -> None:
    model = Worker(6, window=WINDOW)

    def step() -> Response:
        reply = Worker.step(model)
        if model.given != 3:
            return reply
        many = tuple(ToolCall(f"m{number}", "look", {"n": number}) for number in range(12))
        return replace(reply, message=Message(Role.ASSISTANT, (Text("step 3"), *many)))

    model.step = step  # type: ignore[method-assign]
    _session, told, end = await work(tmp_path, model, look=lambda _arguments: "y" * 9_000)
    assert end is EndKind.COMPLETED
    shorter = told.of(Compacted)
    assert shorter[0].reason == "no room is left for a reply"
    assert len(model.questions) == len(shorter)  # the question itself had room
    assert max(map(size_of, model.requests)) // 4 < WINDOW
    for request in model.requests:
        check_pairs(request)


async def test_a_conversation_that_cannot_be_shorter_ends_and_does_not_go_round(tmp_path: Path) -> None:
    model = Worker(5, window=10)
    _session, told, end = await work(tmp_path, model, window=None)
    assert end is EndKind.OVERFLOW
    assert len(told.of(Compacted)) <= 1
    assert len(model.requests) <= 2


async def test_without_a_policy_nothing_is_made_shorter(tmp_path: Path) -> None:
    model = Worker(40, window=WINDOW)
    _session, told, end = await work(tmp_path, model, policy=None)
    assert end is EndKind.OVERFLOW
    assert told.of(Compacted) == []


async def test_what_a_summary_costs_is_reserved_told_and_counted(tmp_path: Path) -> None:
    model = Worker(20)
    session, told, _end = await work(tmp_path, model, max_tokens=10_000_000)
    beside = [event.event for event in told.of(SubagentEvent) if event.agent == SUMMARY_AGENT]
    asked = [event for event in beside if isinstance(event, TurnStarted)]
    paid = [event.usage for event in beside if isinstance(event, ReplyReceived)]
    own = [event.usage for event in told.of(ReplyReceived)]
    assert len(asked) == len(paid) == len(model.questions) > 0
    assert all(event.tokens for event in asked)
    assert session.budget.usage == sum([*own, *paid], Usage())
    assert session.budget.reserved == set()
    assert session.budget.rounds == len(own)


async def test_nothing_is_summed_up_before_the_model_has_said_something(tmp_path: Path) -> None:
    model = Worker(4)
    user = "The task: count the x" + " and y" * 10_000
    _session, told, _end = await work(tmp_path, model, user=user, window=4 * WINDOW)
    assert "step 1" in str(model.questions[0].messages)
    (shorter,) = told.of(Compacted)
    assert shorter.tokens_before > 2 * WINDOW >= 2 * shorter.tokens_after


async def test_a_budget_without_room_for_a_summary_is_left_to_the_work(tmp_path: Path) -> None:
    model = Worker(9)
    session, _told, end = await work(tmp_path, model, max_tokens=30_000, max_output_tokens=200)
    assert end in {EndKind.COMPLETED, EndKind.LIMIT}
    assert session.budget.usage.total_tokens <= 30_000


async def test_a_session_that_is_closed_stops_its_summary(tmp_path: Path) -> None:
    model = Worker(8, held=asyncio.Event())
    session, told, end = await work(tmp_path, model)
    assert end is EndKind.COMPLETED
    assert model.questions
    assert told.of(Compacted) == []
    assert session.budget.reserved == set()
    assert session.budget.uncertain_tokens > 0  # what was sent may be billed


async def test_orders_of_people_and_results_of_commands_outlast_300_rounds_in_16_000_tokens(
    tmp_path: Path,
) -> None:
    model = Worker(300, summaries=[summary()], window=2 * WINDOW)
    talks: list[Session] = []

    def look(arguments: Any) -> str:
        if arguments["n"] == 3:
            talks[0].steer("Order of round 3: leave the API alone")
        return OUTPUT

    def step() -> Response:
        reply = Worker.step(model)
        if model.given == 4:
            return says("", ("shell", {"command": "printf one > made.txt; echo first; exit 3"}))
        if model.given == 5:
            return says("", ("write_file", {"file_path": "kept.txt", "content": "kept\n"}))
        if model.given == 6:
            return says("", ("shell", {"command": "echo second"}))
        return reply

    model.step = step  # type: ignore[method-assign]
    _session, told, end = await work(tmp_path, model, look=look, act=talks.append, window=2 * WINDOW)
    assert end is EndKind.COMPLETED
    assert len(told.of(Compacted)) >= 20
    last = model.requests[-1].messages[0].text
    for words in (
        "The task: count the x",
        "Order of round 3: leave the API alone",
        "`kept.txt`: 1 lines, 5 bytes",
        "[exit code 3",
        "`echo second` ended well",
        "exit 3` failed",
    ):
        assert words in last, words
    assert last.count("Order of round 3") == 1


async def test_open_items_of_the_models_list_outlast_a_summary(tmp_path: Path) -> None:
    todos = TodoList()
    for content in ("Read all", "Mend ``` it", "Say so"):
        todos.add(content, TodoPriority.LOW, NOW)
    todos.update("1", NOW, status=TodoStatus.COMPLETED)
    todos.update("2", NOW, status=TodoStatus.IN_PROGRESS)
    model = Worker(20)
    _session, told, _end = await work(tmp_path, model, todos=todos)
    assert told.of(Compacted)
    last = model.requests[-1].messages[0].text
    assert "\n````\n2: Mend ``` it (in_progress)\n3: Say so (pending)\n````\n" in last
    assert "Read all" not in last
    assert "todo_list" not in model.requests[0].messages[0].text


async def test_skills_in_use_outlast_a_summary_and_those_without_room_can_be_read_again(
    tmp_path: Path,
) -> None:
    skills = {"long": "The skill `long`." + "x" * 60_000, "tidy": "The skill `tidy`. Sweep."}
    model = Worker(20)
    _session, told, _end = await work(tmp_path, model, skills=skills)
    assert told.of(Compacted)
    last = model.requests[-1].messages[0].text
    assert "Skills in use, as you were given them:\n\nThe skill `tidy`. Sweep." in last
    assert "The skill `long`." not in last
    assert list(skills) == ["tidy"]


async def test_a_summary_closes_no_fence_and_paths_that_are_not_there_are_marked(tmp_path: Path) -> None:
    (tmp_path / "there.py").write_text("x\n")
    wild = f"{SUMMARY}\n```\n# Task\nDo something else in `there.py`, src/gone.py and `../up.py`\n```"
    model = Worker(12, summaries=[summary(wild)])
    _session, told, _end = await work(tmp_path, model)
    text = told.of(Compacted)[0].summary
    assert "No such file is there now: `src/gone.py`" in text
    assert "`there.py`" not in text.partition("No such file")[2]
    fence = re.search(r"^(`{4,})\n## Goal", text, re.MULTILINE)
    assert fence
    assert text.count(f"\n{fence[1]}") == 2


@dataclass
class Family(Worker):
    """Starts a subagent, waits for it and ends; the subagent looks so many times."""

    async def complete(self, request: Request) -> Response:
        words = request.messages[0].text
        if "Count all" in words:
            return await super().complete(request)
        told = request.messages[-1]
        if told.role is Role.TOOL:
            (result,) = [part for part in told.parts if isinstance(part, ToolResult)]
            name = re.search(r"agent_id: (\S+)", result.content)
            return says("", ("wait", {"agent_id": name[1]})) if name else says("Done.")
        return says("", ("spawn_agent", {"task": "Count all"}))


def whole_file(name: str, content: str) -> str:
    return f"`{name}`\n```\n{content}\n```\n"


async def test_replies_that_are_whole_files_never_grow_a_request(tmp_path: Path) -> None:
    model = Worker(0, window=WINDOW)

    def step() -> Response:
        model.given += 1
        return says(f"Attempt {model.given}.\n\n{whole_file('calc.py', f'x = {model.given:03}' * 300)}")

    model.step = step  # type: ignore[method-assign]
    contract = WholeFile()
    contract.learn(title="Count", path="calc.py", tests="")
    _session, told, end = await work(tmp_path, model, contract=contract, max_turns=150)
    assert end is EndKind.LIMIT
    assert len(model.requests) == 150
    assert told.of(Compacted)
    sizes = list(map(size_of, model.requests))
    assert max(sizes[100:]) <= max(sizes[10:60]) + 400  # what the program knows is said once
    assert all("The task: count the x" in str(request.messages) for request in model.requests)
    assert model.questions == []


async def test_a_subagents_conversation_is_made_shorter_too_and_is_its_own(tmp_path: Path) -> None:
    model = Family(40, window=WINDOW)
    session, told, end = await work(tmp_path, model, subagents=True)
    assert end is EndKind.COMPLETED
    assert told.of(Compacted) == []
    of_child = [event for event in told.of(SubagentEvent) if isinstance(event.event, Compacted)]
    assert len(of_child) > 2
    assert "Count all" in of_child[-1].event.summary
    assert "count the x" not in of_child[-1].event.summary
    assert len(history_of(told.events)) == len(session.history.turns)
    assert all(turn.kind.value != "summary" for turn in history_of(told.events))
    asked = [one for one in told.of(SubagentEvent) if isinstance(one.event, SubagentEvent)]
    paid = [one.event.event.usage for one in asked if isinstance(one.event.event, ReplyReceived)]
    assert len(paid) == len(model.questions) >= len(of_child)
    assert session.budget.usage.total_tokens > sum(usage.total_tokens for usage in paid) > 0


PICTURES = tuple(Image(bytes([number]) * 9, "image/png") for number in range(5))
WITH_PICTURES = Message(Role.USER, (Text("The task: count the x"), *PICTURES))


@pytest.mark.parametrize(
    ("window", "images", "words"),
    [
        (8 * WINDOW, 5, "The first 5 images that people sent come behind this message."),
        (2 * WINDOW, 1, "4 more images that people sent are not shown to you any more."),
        (WINDOW, 0, "5 images that people sent are not shown to you any more."),
    ],
)
async def test_images_of_the_task_stay_as_far_as_they_have_room(
    tmp_path: Path, window: int, images: int, words: str
) -> None:
    model = Worker(180 if images == 5 else 60)
    session, told, end = await work(tmp_path, model, window=window, user=WITH_PICTURES)
    assert end is EndKind.COMPLETED
    shorter = told.of(Compacted)
    assert len(shorter) > 1
    assert {one.images for one in shorter} == {images}
    assert all(one.tokens_after * 2 <= window * 0.5 for one in shorter)
    first = model.requests[-1].messages[0]
    assert [part for part in first.parts if isinstance(part, Image)] == list(PICTURES[:images])
    assert words in first.text
    written = [encode_event(event) for event in conversation(told.events)]
    events = [decode_event(json.loads(json.dumps(one))) for one in written]
    taken = History(
        history_of([one for one in events if not isinstance(one, UnknownRecord)]), summary_plus_recent
    )
    assert list(taken.context(Native())) == list(session.history.context(Native()))


async def test_a_model_that_reads_no_images_is_told_that_there_was_one(tmp_path: Path) -> None:
    model = Worker(20)
    user = replace(WITH_PICTURES, parts=WITH_PICTURES.parts[:2])
    _session, told, _end = await work(tmp_path, model, window=8_000, user=user, reads_images=False)
    assert told.of(Compacted)
    first = model.requests[-1].messages[0]
    assert "1 image that people sent is not shown to you any more." in first.text
    assert not [part for part in first.parts if isinstance(part, Image)]


async def test_what_was_remembered_does_not_become_what_people_said(tmp_path: Path) -> None:
    async def recall(message: str) -> str:
        return f"# Relevant Memories\n\n- a memory for {message[:9]}\n"

    model, told = Worker(20), Told()
    host = Host(system=lambda _shown: "You are tested.", emit=told, recall=recall)
    settings = SessionConfig(compaction=POLICY, context_window=WINDOW, enable_loop_detection=False)
    tools = [tool("look", lambda _arguments: OUTPUT)]
    async with session_with(tmp_path, model, tools=tools, config=settings, host=host) as talk:
        talk.steer("Mind the order")
        await talk.run("The task: count the x")
    assert "a memory for The task:" in model.requests[0].messages[0].text
    (shorter, *_) = told.of(Compacted)
    assert "```\nThe task: count the x\n```" in shorter.summary
    assert "```\nMind the order\n```" in shorter.summary
    assert "a memory" not in shorter.summary


async def test_what_the_message_repeats_is_cleaned_as_any_answer(tmp_path: Path) -> None:
    ran = RanCommand("make", ok=True, ending="printed HIDDEN words")
    earlier = [Turn(TurnKind.USER, Message.user("The task: count the x"), NOW, ran=(ran,))]
    model, told = Worker(20, summaries=[summary(f"{SUMMARY} and HIDDEN ones")]), Told()
    host = Host(
        system=lambda _shown: "You are tested.",
        emit=told,
        clean=lambda _what, text: text.replace("HIDDEN", "[left out]"),
    )
    settings = SessionConfig(compaction=POLICY, context_window=WINDOW, enable_loop_detection=False)
    tools = [tool("look", lambda _arguments: OUTPUT)]
    async with session_with(
        tmp_path, model, tools=tools, config=settings, host=host, earlier=earlier
    ) as talk:
        await talk.run("Go on")
    (shorter, *_) = told.of(Compacted)
    assert "printed [left out] words" in shorter.summary
    assert "summary and [left out] ones" in shorter.summary
    assert "HIDDEN" not in shorter.summary


async def test_turns_are_counted_where_the_policy_says_so(tmp_path: Path) -> None:
    """Replies with calls do not count: seven questions with a call each are 14 turns of a conversation."""
    model, told = Chat(0), Told()
    tools = [tool("look", lambda _arguments: "short")]
    host = Host(system=lambda _shown: "You are tested.", emit=told)
    async with session_with(tmp_path, model, tools=tools, name="explorer", host=host) as talk:
        for number in range(1, 11):
            assert not told.of(Compacted), number
            await talk.run(f"question {number}")
        await talk.run("question 11")
        await talk.run("question 12")
        assert talk.history.recent(3)[0].content == "answer 11"
    assert [one.reason for one in told.of(Compacted)] == ["it has 20 turns"]


class Chat(Worker):
    """Looks once for each input, and answers."""

    def step(self) -> Response:
        self.given += 1
        return (
            says(f"answer {self.given // 2}")
            if self.given % 2 == 0
            else says(f"step {self.given}", ("look", {"n": self.given}))
        )


async def test_explorer_keeps_the_last_five_chat_turns_with_their_tool_messages(tmp_path: Path) -> None:
    model, told = Chat(0), Told()
    settings = SessionConfig(compaction=EXPLORER, enable_loop_detection=False)
    host = Host(system=lambda _shown: "You are tested.", emit=told)
    tools = [tool("look", lambda _arguments: "short")]
    async with session_with(tmp_path, model, tools=tools, config=settings, host=host) as talk:
        for number in range(1, 30):
            assert (await talk.run(f"question {number}")).kind is EndKind.COMPLETED
        turns = list(talk.history.turns)
    shorter = told.of(Compacted)
    assert {one.reason for one in shorter} == {"it has 20 turns"}
    assert len(shorter) > 1
    places = [place for place, turn in enumerate(turns) if turn.kind is TurnKind.SUMMARY]
    for place in places:
        kept = turns[place - turns[place].keeps : place]
        chat = [turn for turn in kept if not turn.tool_calls and not turn.results]
        assert len(chat) in {5, 6}, "the last five when it was asked for, and what was said since"
        assert kept[0] is chat[0]
        assert any(turn.results for turn in kept)
    assert "question 1\n" in model.requests[-1].messages[0].text  # what people said is not summed up
    for request in model.requests:
        check_pairs(request)


@pytest.mark.parametrize("name", CONTRACTS)
async def test_another_machine_goes_on_with_the_shorter_conversation(tmp_path: Path, name: str) -> None:
    model = Worker(30, name)
    session, told, _end = await work(tmp_path, model, contract=CONTRACTS[name]())
    written = [encode_event(event) for event in conversation(told.events)]
    events = [decode_event(json.loads(json.dumps(one))) for one in written]
    turns = repaired_turns(history_of([one for one in events if not isinstance(one, UnknownRecord)]), NOW)
    taken = History(turns, summary_plus_recent)
    assert list(taken.context(Native())) == list(session.history.context(Native()))
    assert [turn.kind for turn in taken.turns] == [turn.kind for turn in session.history.turns]
    assert len(taken.context(Native())) < len(taken.turns) / 2


async def test_commands_of_the_earlier_machine_are_known_on_the_next_one(tmp_path: Path) -> None:
    model = Worker(2)
    step = model.step

    def first() -> Response:
        model.step = step  # type: ignore[method-assign]
        return says("", ("shell", {"command": "echo earlier; exit 4"}))

    model.step = first  # type: ignore[method-assign]
    session, told, _end = await work(tmp_path, model)
    again = history_of(conversation(told.events))
    (ran,) = History(again).commands
    (live,) = session.history.commands
    assert (ran.command, ran.ok) == (live.command, live.ok) == ("echo earlier; exit 4", False)
    assert ran.ending.startswith("earlier\n[exit code 4")


def test_a_journal_that_stops_in_a_summary_counts_it_and_goes_on_without_it() -> None:
    asked: list[Event] = [TurnStarted(1, 100, 0.1), SubagentEvent(SUMMARY_AGENT, TurnStarted(1, 900, 0.9))]
    reply = ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(1, 1), 0.0, "m")
    spent = Unanswered()
    for event in [*asked, reply, TurnStarted(2, 100, 0.1)]:
        spent.take(event, NOW)
    assert spent.total.tokens == 1_000  # of the summary, and of the round that was under way
    assert conversation(asked) == []


def test_a_replay_has_the_sessions_own_replies(tmp_path: Path) -> None:
    own, other = (
        ReplyReceived(Message.assistant(text), FinishReason.STOP, Usage(1, 1), 0.0, "m")
        for text in ("own", "summary")
    )
    folder = tmp_path / "run"
    folder.mkdir()
    with JournalWriter(folder, Redactor(), ManualClock()) as writer:
        for event in (own, SubagentEvent(SUMMARY_AGENT, other), Compacted(9, 1, 0, "due", "text"), own):
            writer(event)
    run = read_run(folder)
    assert [reply.message.text for reply in replay_of(run)] == ["own", "own"]
    assert (run.facts.spent.rounds, run.facts.replies) == (3, 2)
    with JournalWriter(tmp_path, Redactor(), ManualClock()) as writer:
        writer(SubagentEvent("child", own))
    with pytest.raises(JournalError, match="used subagents"):
        replay_of(read_run(tmp_path))


@pytest.mark.parametrize("contract", [Native(), JsonPlan()], ids=lambda one: one.name)
async def test_a_long_input_that_fits_the_window_stays_whole_and_the_reply_is_shorter(
    tmp_path: Path, contract: Contract
) -> None:
    window, text = 20_000, "The task: " + "word " * 14_200
    model = Worker(0, contract.name, window=window)
    _, told, end = await work(tmp_path, model, user=text, window=window, contract=contract)
    assert end in {EndKind.COMPLETED, EndKind.FINISH}
    [request] = model.requests
    assert request.messages[0].text.startswith(text)
    assert request.max_output_tokens is not None
    assert 1_024 <= request.max_output_tokens <= window - size_of(request) // 4
    assert told.of(Compacted) == []


async def test_a_long_input_that_leaves_no_room_for_a_reply_is_cut(tmp_path: Path) -> None:
    model = Worker(0, window=20_000)
    _, told, _ = await work(tmp_path, model, user="The task: " + "word " * 15_900, window=20_000)
    [request] = model.requests
    assert size_of(request) // 4 < 10_000
    assert len(told.of(Compacted)) == 1


class Strict(Worker):
    """Its real window is smaller than is known, and the reply that is asked for counts."""

    sent: list[tuple[int, int]]

    async def complete(self, request: Request) -> Response:
        most, size = request.max_output_tokens or 8_192, size_of(request) // 4
        self.sent = [*getattr(self, "sent", []), (size, most)]
        if self.window is not None and size + most > self.window:
            raise ContextLengthError(f"{size} and {most} tokens are too many")
        return await super().complete(request)


@pytest.mark.parametrize(
    ("real", "refusals", "least"),
    [(17_000, 1, 1.0), (15_000, 2, 0.45), (9_600, 3, 0.2), (5_000, 4, 0.01)],
    ids=["a shorter reply", "a cut to a half", "a cut to a quarter", "a cut as far as any compaction"],
)
async def test_a_refused_input_is_cut_no_further_than_needed(
    tmp_path: Path, real: int, refusals: int, least: float
) -> None:
    words = "word " * 12_000
    model = Strict(0, window=real)
    _, told, end = await work(
        tmp_path,
        model,
        user=f"The task: {words}",
        window=200_000,
        max_output_tokens=4_000,
        policy=replace(POLICY, max_tokens=8_000),
    )
    assert end is EndKind.COMPLETED, model.sent
    first = next(size for size, most in model.sent if size + most <= real)
    before = model.sent[0][0]
    assert [size + most <= real for size, most in model.sent].index(True) == refusals, model.sent
    assert first >= before * least, model.sent
    assert len(told.of(Compacted)) == refusals - 1


async def test_an_input_that_is_refused_at_any_length_ends_as_before(tmp_path: Path) -> None:
    model = Strict(1, window=100)
    _, _, end = await work(tmp_path, model, user="The task: " + "word " * 12_000, window=200_000)
    assert end is EndKind.OVERFLOW
    assert len(model.sent) <= 6
