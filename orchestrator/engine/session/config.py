"""The settings of a session, and the callbacks and shared objects of its host program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.checks import check_callable, check_flag, check_kind, check_number
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.todos import TodoList
from orchestrator.engine.session.budget import Limits
from orchestrator.engine.session.calls import DEFAULT_WINDOW, unchanged
from orchestrator.engine.session.gate import allow_all, shows_all
from orchestrator.engine.tools.base import (
    DEFAULT_TIMEOUT_MS,
    MAX_TIMEOUT_MS,
    CommandTimes,
    Ledger,
    OutputLimits,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import OtherModel, Profile, ReplyPrice
    from orchestrator.engine.session.gate import Approve, Gate
    from orchestrator.engine.tools.base import Tool


ASSUMED_WINDOW = 128_000
"""Assumed context window in tokens if the model's own is unknown."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a conversation is compacted, and how much of it stays. None switches a trigger off.

    Attributes:
        share: share of the model's context window at which compaction is due.
        max_turns: inputs, and replies without calls, that a request may have.
        max_tokens: tokens that a request may have.
        keep_turns: newest turns that stay (`recent`), if they fit; else as many as fit.

    Raises:
        ConfigurationError: a value is out of bounds.
    """

    share: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    keep_turns: int | None = None

    def __post_init__(self) -> None:
        share: object = self.share
        if share is not None and (not isinstance(share, float) or not 0.0 < share < 1.0):
            raise ConfigurationError(f"share must be a number between 0 and 1, not {share!r}")
        for name in ("max_turns", "max_tokens", "keep_turns"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, 1)

    def most_tokens(self, window: int | None) -> int:
        """Return the number of tokens at which compaction is due.

        Args:
            window: tokens that the model can read; None if that is unknown.
        """
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if self.share is not None and (window or self.max_tokens is None):
            limits.append(int(self.share * (window or ASSUMED_WINDOW)))
        return min(limits, default=window or ASSUMED_WINDOW)

    def target_tokens(self, window: int | None) -> int:
        """Return the largest length of a compacted conversation: half of the length at which it is due."""
        return self.most_tokens(window) // 2

    def due(self, tokens: int, turns: int, window: int | None) -> str:
        """Return the reason why a conversation of this length is due for compaction; empty if it is not."""
        most = self.most_tokens(window)
        if tokens >= most:
            if self.share is not None and window and most == int(self.share * window):
                return f"{self.share:.0%} of the context window is used"
            return f"it has {most:,} tokens"
        if self.max_turns is not None and turns >= self.max_turns:
            return f"it has {self.max_turns} turns"
        return ""


EXPLORER = CompactionPolicy(max_turns=20, max_tokens=20_000, keep_turns=5)
"""Section "Context Constants" of the teaching agent specification."""


_OF_PROFILE: Mapping[str, CompactionPolicy] = {"explorer": EXPLORER}
"""The profiles whose specification sets a policy of its own."""
AS_PROFILE = CompactionPolicy()
"""Stands for the policy of the session's profile, and for None where the profile has none."""


def compaction_of(profile: str, share: float) -> CompactionPolicy:
    """Return the compaction policy of a profile.

    Args:
        share: of the context window, for every profile except the explorer, whose specification sets its own.
    """
    return _OF_PROFILE.get(profile) or CompactionPolicy(share=share)


MOST_WRAP_UP_SHARE = 0.5

_LEAST = {
    "max_turns": 0,
    "max_tool_rounds_per_input": 0,
    "max_subagent_depth": 0,
    "max_subagents": 1,
    "subagent_timeout_seconds": 1,
    "default_command_timeout_ms": 1,
    "max_command_timeout_ms": 1,
    "loop_detection_window": 2,
    "max_tokens": 0,
    "max_denials": 0,
    "max_same_replies": 0,
    "max_output_tokens": 1,
    "reply_tokens": 1,
    "max_usd": 0,
    "max_minutes": 0,
    "wrap_up_share": 0,
    "temperature": 0,
    "top_p": 0,
    "context_window": 1,
}
"""The lower bound of each numeric setting."""

_MAY_BE_FRACTIONS = frozenset(
    {"max_usd", "max_minutes", "wrap_up_share", "temperature", "top_p", "subagent_timeout_seconds"}
)

_MAY_BE_NONE = _LEAST.keys() - {
    "max_subagent_depth",
    "default_command_timeout_ms",
    "max_command_timeout_ms",
    "loop_detection_window",
    "wrap_up_share",
}
"""Settings for which None means no limit, or the provider's own value."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Limits and settings of a session (section 2.2 of the coding agent loop specification).

    `Session.config` may be replaced between any two turns; see there.

    Attributes:
        max_turns: replies of the model in the whole session; 0 is no limit.
        max_tool_rounds_per_input: rounds with tool calls for one input; 0 is no limit.
        default_command_timeout_ms: time-out of a command if neither the model nor the profile sets one.
        max_command_timeout_ms: upper bound of every command's time-out.
        reasoning_effort: `low`, `medium`, `high` or another word that the provider knows; None leaves it to
            the provider.
        tool_output_limits: by tool: characters of its output that the model is shown.
        tool_line_limits: by tool: lines of its output; None switches the limit off.
        enable_loop_detection: whether repeated calls lead to a warning to the model.
        loop_detection_window: how many calls must follow one pattern.
        max_subagent_depth: how deep subagents may be nested; 0 allows none.
        max_subagents: subagents that the session may have at the same time. None means 5 if they work in the
            background (`Profile.subagents_in_background`), else 16.
        subagent_timeout_seconds: time after which a subagent in the background is stopped; None means 300.
        max_tokens: input and output of the session and its subagents together; None is no limit.
        max_usd: cost in US dollars, if the model's price is known.
        max_minutes: wall time since the session was created.
        max_denials: calls that the gate may refuse in the whole session, subagents' included; the last of
            them ends it. 0 is no limit.
        max_same_replies: equal replies in a row of which no call succeeds; the last of them ends the session. 0 is
            no limit.
        max_output_tokens: tokens of one reply.
        reply_tokens: the model's own longest reply, used if `max_output_tokens` is None. It must fit under
            the caps on tokens and cost before a request is sent. It is not sent itself; if only a shorter
            reply fits, that limit is sent. None: 32,000 are assumed.
        wrap_up_share: the part of `max_tokens`, `max_usd` and `max_minutes` that is reserved, with the last
            of `max_turns`, for one last turn in which the model is told to wrap up; 0 switches that turn off.
        temperature: sent only if set; so is `top_p`.
        user_instructions: the last part of the system prompt.
        context_window: tokens that the model can read; None uses the known size.
        compaction: when the conversation is compacted; None never does. By default only a session of the
            explorer is, as its specification says.

    Raises:
        ConfigurationError: a value has the wrong type, a number is out of bounds, or the effort is empty.
    """

    max_turns: int = 0
    max_tool_rounds_per_input: int = 0
    default_command_timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_command_timeout_ms: int = MAX_TIMEOUT_MS
    reasoning_effort: str | None = None
    tool_output_limits: Mapping[str, int] = field(default_factory=dict)
    tool_line_limits: Mapping[str, int | None] = field(default_factory=dict)
    enable_loop_detection: bool = True
    loop_detection_window: int = DEFAULT_WINDOW
    max_subagent_depth: int = 1
    max_subagents: int | None = None
    subagent_timeout_seconds: float | None = None
    max_tokens: int | None = None
    max_usd: float | None = None
    max_minutes: float | None = None
    max_denials: int = 3
    max_same_replies: int = 0
    max_output_tokens: int | None = None
    reply_tokens: int | None = None
    wrap_up_share: float = 0.1
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = True
    user_instructions: str = ""
    context_window: int | None = None
    compaction: CompactionPolicy | None = AS_PROFILE

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check_number(name, value, least, whole=name not in _MAY_BE_FRACTIONS)
        for name in ("enable_loop_detection", "stream"):
            check_flag(name, getattr(self, name))
        check_kind("user_instructions", self.user_instructions, str, "a text")
        if self.compaction is not None:
            check_kind("compaction", self.compaction, CompactionPolicy, "a CompactionPolicy")
        if self.wrap_up_share > MOST_WRAP_UP_SHARE:
            raise ConfigurationError(
                f"wrap_up_share must be {MOST_WRAP_UP_SHARE} or less, not {self.wrap_up_share!r}"
            )
        for name in ("tool_output_limits", "tool_line_limits"):
            check_kind(name, getattr(self, name), Mapping, 'a number by tool, such as {"shell": 50_000}')
            for tool, most in getattr(self, name).items():
                if most is not None or name == "tool_output_limits":  # None is not allowed there
                    check_number(f"{name}[{tool!r}]", most, 0)
        effort: object = self.reasoning_effort
        if effort is not None and (not isinstance(effort, str) or not effort.strip()):
            raise ConfigurationError(
                f"reasoning_effort must be a word such as low, medium or high, or None, not {effort!r}"
            )

    @property
    def limits(self) -> Limits:
        """The caps of a budget."""
        return Limits(
            rounds=self.max_turns or None,
            tokens=self.max_tokens,
            usd=self.max_usd,
            minutes=self.max_minutes,
            tool_rounds=self.max_tool_rounds_per_input or None,
            denials=self.max_denials or None,
            same_replies=self.max_same_replies or None,
        )

    def resolved(self, profile: str) -> SessionConfig:
        """Return the settings with what the profile decides where nothing was given."""
        if self.compaction is not AS_PROFILE:
            return self
        return replace(self, compaction=_OF_PROFILE.get(profile))

    @property
    def output_limits(self) -> OutputLimits:
        """The replacements for the defaults of truncation."""
        return OutputLimits(self.tool_output_limits, self.tool_line_limits)

    def command_times(self, profile: Profile) -> CommandTimes:
        """Return the time-outs of commands under this profile."""
        longest = self.max_command_timeout_ms
        default = profile.command_timeout_ms or self.default_command_timeout_ms
        return CommandTimes(min(default, longest), longest)

    def for_subagent(
        self, max_turns: int, reasoning_effort: str | None, *, same_model: bool = True
    ) -> SessionConfig:
        """Return the settings of a subagent's session, whose spending the parent's caps limit."""
        return replace(
            self,
            max_turns=max_turns,
            reasoning_effort=reasoning_effort,
            reply_tokens=self.reply_tokens if same_model else None,
            context_window=self.context_window if same_model else None,
            max_tokens=None,
            max_usd=None,
            max_minutes=None,
            max_denials=0,
        )


async def _is_done() -> bool:
    return False


async def recalls_nothing(_message: str) -> str:
    """Return an empty text: the session has no memory."""
    return ""


async def _may_end(_text: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Host:
    """What the host program provides to a session. Everything has a default.

    Attributes:
        gate: decides which calls may run.
        shows: returns whether a tool is visible to the model. A hidden tool does not run either if the model
            guesses its name. None asks the gate's own `shows` (a `Gatekeeper` has it), else shows all.
        approve: asks a person about a call that the gate refuses and a higher level would allow. None asks
            nobody, and the call does not run.
        clean: returns a text as the model may see it, given a description (`the answer of read_file`) and the
            text. The event of a call has the original text.
        price: computes the cost of a reply; None uses the profile's.
        stopped: returns whether the session is to end after the current round.
        may_end: called when a reply without calls would end the work; returns a message to the model that
            keeps it working, or None to let it end.
        recall: returns the memories that match a user message, as Markdown; empty if there are none. They are
            appended to that message.
        is_done: returns whether all work has left the session, so that a reply without calls ends it.
        task: returns the task's text for a compacted conversation; None uses the first input.
        facts: returns further facts that a compacted conversation must keep, as Markdown.
        wrap_up: the message to the model before its last turn; empty uses the contract's, or
            `prompts/agent/wrap_up.md`.
        other_model: creates a subagent's model by name; None uses the profile's, which may refuse.
        system: builds the whole system prompt from the tools shown; None lets the session build it.
        ledger: the shared memory of the tools.
        todos: the model's to-do list; `history.todos_of` returns that of an earlier session.
        skills: the skill texts that the model was given, by name; a compacted conversation keeps them.
        emit: receives the same events as the streams of `submit`; a subagent's come as `SubagentEvent`.
        owns_environment: whether the session initializes the environment and cleans it up. Of two sessions in
            one environment neither may own it.

    Raises:
        ConfigurationError: a callback is not callable, or a value has the wrong type.
    """

    gate: Gate = allow_all
    shows: Callable[[Tool], bool] | None = None
    approve: Approve | None = None
    clean: Callable[[str, str], str] = unchanged
    price: ReplyPrice | None = None
    stopped: Callable[[], bool] = lambda: False
    may_end: Callable[[str], Awaitable[str | None]] = _may_end
    is_done: Callable[[], Awaitable[bool]] = _is_done
    task: Callable[[], str] | None = None
    facts: Callable[[], str] | None = None
    recall: Callable[[str], Awaitable[str]] = recalls_nothing
    wrap_up: str = ""
    other_model: OtherModel | None = None
    system: Callable[[tuple[ToolDefinition, ...]], str] | None = None
    ledger: Ledger = field(default_factory=Ledger)
    todos: TodoList = field(default_factory=TodoList)
    skills: dict[str, str] = field(default_factory=dict)
    emit: Emit | None = None
    owns_environment: bool = True

    def __post_init__(self) -> None:
        for name in ("gate", "clean", "stopped", "may_end", "recall"):
            check_callable(name, getattr(self, name))
        for name in ("shows", "approve", "price", "other_model", "system", "emit", "task", "facts"):
            if (called := getattr(self, name)) is not None:
                check_callable(name, called)
        check_kind("wrap_up", self.wrap_up, str, "a text")
        check_kind("ledger", self.ledger, Ledger, "a Ledger")
        check_kind("todos", self.todos, TodoList, "a TodoList")
        check_kind("skills", self.skills, dict, "a dict")
        check_flag("owns_environment", self.owns_environment)

    def shows_tool(self, tool: Tool) -> bool:
        """Return whether a tool is visible to the model."""
        if self.shows is not None:
            return self.shows(tool)
        shows: Callable[[Tool], bool] = getattr(self.gate, "shows", shows_all)
        return shows(tool)

    def for_subagent(self, ledger: Ledger, price: ReplyPrice) -> Host:
        """Return the host of a subagent's session."""
        return Host(
            gate=self.gate,
            shows=self.shows,
            approve=self.approve,
            clean=self.clean,
            price=price,
            stopped=self.stopped,
            other_model=self.other_model,
            ledger=ledger,
            owns_environment=False,
        )


@dataclass(frozen=True, slots=True)
class SessionParts:
    """All parts of a session except its model."""

    profile: Profile
    environment: ExecutionEnvironment
    contract: Contract
    config: SessionConfig
    host: Host
    clock: Clock

    def shows(self, tool: Tool) -> bool:
        """Return whether the model is shown a tool: the answer for every request, message and call."""
        return self.host.shows_tool(tool) and not (self.profile.only_reads and tool.changes)
