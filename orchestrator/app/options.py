"""Every option of the program: its default, what it may be, who may set it, and one line that describes it.

An option is added here and nowhere else: flag, variable, files, messages and `pullwright config` follow. Nothing here
imports a package, so that `--help` starts at once; `config.settings` makes the values of it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

    from orchestrator.app.forms import (
        Address,
        AppId,
        Branch,
        CommandLine,
        Cron,
        Duration,
        Email,
        Hosts,
        Line,
        Logins,
        Patterns,
        Person,
        Price,
        ProfileName,
        Prose,
        Report,
        SandboxChoice,
        Texts,
        Word,
        Zone,
    )

MOST_ITEMS = 1_000
"""Of an option that is a list."""
MOST_COMMAND_CHARS = 1_000

A_COMMAND = f"one command line of at most {MOST_COMMAND_CHARS:,} characters"
A_REPORT = "a path or pattern inside the repository, such as report.xml or build/test-results/**/*.xml"
ADDRESS = "an http:// or https:// address without a user name, a password or a #"
ONE_LINE = "one line of text, not empty, of at most 200 characters"
A_HOST = "a host's name such as pypi.org, *.example.com or example.com:8443"
A_PATTERN = "a path pattern as in .gitignore"

AUTO = "auto"
"""The test command that stands for what the repository's own file names, or for what is proposed."""
RENAMED = {"strict_tests": "require_tests"}
"""Options by the names that they had, with those that they have."""


class Reach(StrEnum):
    """How far a file that a repository may bring along reaches with an option."""

    FREE = "free"
    """It may set the option: nothing that is kept from the model or from strangers depends on it."""
    TIGHTEN = "tighten"
    """It may make the rule stricter than the person's other choices, never looser. Of choices the earlier one is
    stricter, of switches `true`, of numbers the smaller one; of lists both count."""
    PROPOSE = "propose"
    """What it names counts only where the person chose `test_command = "auto"`, and as on the default branch."""
    NEVER = "never"
    """It may not set the option."""
    TYPED = "typed"
    """No file and no variable may: the person types the flag."""


class Bounds(NamedTuple):
    """The least and the most that a number may be: whole ones or not, as `most` is. `above` leaves the least out."""

    least: float
    most: float
    above: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if isinstance(self.most, int) else "a number"
        least, most = (f"{int(one):,}" if one == int(one) else f"{one:g}" for one in self[:2])
        return f"{kind} above {least} and up to {most}" if self.above else f"{kind} from {least} to {most}"


class Option(NamedTuple):
    """What there is to say of an option.

    Attributes:
        description: a sentence, for `--help`, the documentation and `pullwright config`.
        allowed: ends the sentence "must be ...".
        reach: see `Reach`.
        begins: the title of the group in `--help` that begins with this option; empty goes on with the one before.
        bounds: of a number.
        is_list: several values are given.
    """

    default: Any
    description: str
    allowed: str
    reach: Reach = Reach.FREE
    begins: str = ""
    bounds: Bounds | None = None
    is_list: bool = False


def option(default: Any, description: str, allowed: str, reach: Reach = Reach.FREE, begins: str = "") -> Any:
    """An option that is a text, a choice or a switch."""
    return Option(default, description, allowed, reach, begins)


def number(
    default: float | None, description: str, bounds: Bounds, reach: Reach = Reach.FREE, begins: str = ""
) -> Any:
    """An option that is a number."""
    return Option(default, description, str(bounds), reach, begins, bounds)


def several(description: str, allowed: str, reach: Reach, begins: str = "") -> Any:
    """An option that is a list, each item of which is `allowed`."""
    return Option((), description, f"a list, each {allowed}", reach, begins, is_list=True)


_USD = Bounds(0.0, 100_000.0, above=True)
_TOKENS = Bounds(1, 1_000_000_000)
_MINUTES = Bounds(0.0, 7 * 24 * 60.0, above=True)
_TEST_MINUTES = Bounds(0.0, 24 * 60.0, above=True)
_ROUNDS = Bounds(1, 10_000)
_PULL_REQUESTS = Bounds(1, 1_000)


class Options:
    """All options with the types of their values. Of choices that a repository may tighten the strictest is first."""

    model: Line | None = option(None, "The model, as PROVIDER:NAME.", ONE_LINE, begins="the model")
    api_url: Address | None = option(
        None, "Address of a model server other than the vendor's.", ADDRESS, Reach.NEVER
    )
    contract: Literal["json-plan", "native", "single-step", "whole-file"] | None = option(
        None,
        "How replies become actions: one JSON plan, the vendor's function calling, one call a step, or the changed "
        "file itself. If not set, whole files for a model that is known to be small, else a JSON plan.",
        "json-plan, native, single-step or whole-file",
    )
    profile: ProfileName | None = option(
        None,
        "Tools and prompt, such as planner or openai; those that suit contract and model if not set.",
        "the name of a profile: planner, openai, anthropic, gemini, minimal, small or an added one",
    )
    web: Literal["tavily", "brave", "exa"] | None = option(
        None,
        "Search engine of the web tools; without one the model has none.",
        "tavily, brave or exa",
        Reach.NEVER,
    )
    stream: bool = option(True, "Take the model's reply piece by piece.", "true or false")
    temperature: float | None = number(None, "Sampling temperature; not sent if not set.", Bounds(0.0, 2.0))
    reasoning_effort: Word | None = option(
        None,
        "How much a model should think; not sent if not set.",
        "one word in small letters, such as low or high",
    )
    max_output_tokens: int | None = number(None, "Longest reply in tokens; not sent if not set.", _TOKENS)
    context_chars: int = number(
        60_000, "Most characters of the repository in the first prompt.", Bounds(1_000, 10_000_000)
    )
    context_window: int | None = number(
        None, "How many tokens the model can read; what is known of the model if not set.", _TOKENS
    )
    compact_at: float = number(
        0.4,
        "Share of the context window from which on a conversation is summed up.",
        Bounds(0.0, 0.95, above=True),
    )
    request_timeout_seconds: float = number(
        600.0, "Longest wait for a model's reply, in seconds.", Bounds(0.0, 24 * 3600.0, above=True)
    )
    github_url: Address = option(
        "https://github.com", "GitHub, or an Enterprise server.", ADDRESS, Reach.NEVER, begins="GitHub"
    )
    # Who puts this label on an issue lets it in, so that another label would be another permission.
    label: Line = option("pullwright", "Open issues with this label are the backlog.", ONE_LINE, Reach.NEVER)
    base: Branch | None = option(
        None,
        "Branch to start from and to propose to; the default branch if not set.",
        "a name that git allows",
    )
    draft: bool = option(True, "Open pull requests as drafts.", "true or false", Reach.TIGHTEN)
    github_app_id: AppId | None = option(
        None,
        "Id of the GitHub App to act as; its key comes from the environment.",
        "an App's id or client id",
        Reach.NEVER,
    )
    author_name: Person = option("Pullwright", "Author of the commits.", f"{ONE_LINE}, without < and >")
    author_email: Email = option(
        "pullwright@users.noreply.github.com", "E-mail address of the commits' author.", "an e-mail address"
    )
    allow_actor: Logins = several(
        "Who may cause work without write permission.", "a GitHub login", Reach.NEVER, begins="what comes in"
    )
    comments: Literal["none", "writers", "quoted"] = option(
        "writers",
        "Comments in the prompt: none, those of people who may write, or all, strangers' marked as such.",
        "none, writers or quoted",
        Reach.TIGHTEN,
    )
    permission: Literal["read-only", "safe", "dangerous"] = option(
        "safe",
        "What the model may do: look, also change files of the clone, or also run any command.",
        "read-only, safe or dangerous",
        Reach.TIGHTEN,
        begins="what may run",
    )
    allow_command: Texts = several(
        "Commands that run below the level dangerous, such as 'pytest *'.", ONE_LINE, Reach.NEVER
    )
    deny_command: Texts = several("Commands that never run.", ONE_LINE, Reach.TIGHTEN)
    sandbox: SandboxChoice = option(
        "auto",
        "Where commands run: in the system's sandbox, in a container of an image, or as you.",
        "auto, docker:IMAGE, podman:IMAGE or off",
        Reach.TYPED,
    )
    sandbox_read: Texts = several(
        "Folders beside the system's that commands may read.", ONE_LINE, Reach.NEVER
    )
    allow_host: Hosts = several("Hosts that commands may reach.", A_HOST, Reach.NEVER)
    mcp_config: Line | None = option(
        None,
        "A file with MCP servers in the common JSON form, beside those of your own file.",
        ONE_LINE,
        Reach.NEVER,
        begins="MCP servers, whose tools the model may use",
    )
    mcp_unconfined: Texts = several(
        "Names of MCP servers that run as you, without a sandbox.", ONE_LINE, Reach.TYPED
    )
    allow_path: Patterns = several(
        "Protected paths that may be changed.", A_PATTERN, Reach.NEVER, begins="what goes out"
    )
    protect_path: Patterns = several("More paths that wait for a person.", A_PATTERN, Reach.TIGHTEN)
    allow_link: Hosts = several("Hosts beside the forge's that texts may link to.", A_HOST, Reach.NEVER)
    max_files: int = number(50, "Most files that a pull request changes.", Bounds(1, 100_000), Reach.TIGHTEN)
    max_lines: int = number(
        5_000, "Most lines that a pull request adds and removes.", Bounds(1, 10_000_000), Reach.TIGHTEN
    )
    max_bytes: int = number(
        1_000_000,
        "Most bytes of the files that a pull request changes.",
        Bounds(1, 1_000_000_000),
        Reach.TIGHTEN,
    )
    test_command: CommandLine | None = option(
        None,
        "Runs the repository's tests, in the sandbox; auto takes what the repository has. Without it none are run.",
        f"auto, or {A_COMMAND}",
        Reach.PROPOSE,
        begins="tests",
    )
    setup_command: CommandLine | None = option(
        None, "Installs what the tests need, in the same sandbox.", A_COMMAND, Reach.PROPOSE
    )
    test_report: Report | None = option(
        None, "Where the test command writes its report; for pytest not needed.", A_REPORT, Reach.PROPOSE
    )
    test_minutes: float = number(
        10.0, "Most minutes that one run of the tests takes, or its set-up.", _TEST_MINUTES, Reach.TIGHTEN
    )
    test_paths: Patterns = several(
        "More paths that belong to the tests, beside those whose names say so.", A_PATTERN, Reach.TIGHTEN
    )
    require_tests: bool = option(
        False,
        "Propose nothing whose tests were not run and found good; without a command, nothing that drops tests.",
        "true or false",
        Reach.TIGHTEN,
    )
    max_rounds: int = number(
        20,
        "Most requests to the model in a cycle.",
        _ROUNDS,
        Reach.TIGHTEN,
        begins="limits; work that is not proposed is saved",
    )
    max_usd: float | None = number(None, "Most US dollars spent in a cycle.", _USD, Reach.TIGHTEN)
    max_tokens: int | None = number(None, "Most tokens, in and out, in a cycle.", _TOKENS, Reach.TIGHTEN)
    max_minutes: float | None = number(None, "Most minutes that a cycle takes.", _MINUTES, Reach.TIGHTEN)
    max_cycles: int | None = number(
        None, "Most cycles of a continuous run.", Bounds(1, 1_000_000), Reach.TIGHTEN
    )
    max_usd_per_task: float | None = number(
        None, "Most US dollars for a task, all its cycles together.", _USD, Reach.TIGHTEN
    )
    max_tokens_per_task: int | None = number(None, "Most tokens for a task.", _TOKENS, Reach.TIGHTEN)
    max_minutes_per_task: float | None = number(None, "Most minutes for a task.", _MINUTES, Reach.TIGHTEN)
    max_rounds_per_task: int | None = number(
        None, "Most requests to the model for a task.", _ROUNDS, Reach.TIGHTEN
    )
    max_usd_per_day: float | None = number(
        None, "Most US dollars that this machine spends in a UTC day.", _USD, Reach.NEVER
    )
    max_tokens_per_day: int | None = number(
        None, "Most tokens that this machine spends in a UTC day.", _TOKENS, Reach.NEVER
    )
    max_minutes_per_day: float | None = number(
        None, "Most minutes of cycles on this machine in a UTC day.", _MINUTES, Reach.NEVER
    )
    max_rounds_per_day: int | None = number(
        None, "Most requests to the model on this machine in a UTC day.", _ROUNDS, Reach.NEVER
    )
    max_usd_per_repo: float | None = number(
        None, "Most US dollars for the repository in a UTC day, on all machines.", _USD, Reach.TIGHTEN
    )
    max_tokens_per_repo: int | None = number(
        None, "Most tokens for the repository in a UTC day, on all machines.", _TOKENS, Reach.TIGHTEN
    )
    max_minutes_per_repo: float | None = number(
        None,
        "Most minutes of cycles for the repository in a UTC day, on all machines.",
        _MINUTES,
        Reach.TIGHTEN,
    )
    max_rounds_per_repo: int | None = number(
        None,
        "Most requests to the model for the repository in a UTC day, on all machines.",
        _ROUNDS,
        Reach.TIGHTEN,
    )
    price: Price | None = option(
        None,
        "What a model of unknown price costs: US dollars a million tokens, in and out, such as 3/15.",
        "two numbers such as 3/15",
        Reach.NEVER,
    )
    fallback_model: Texts = several(
        "Models to ask where the first one has no quota left or is down, in order.", ONE_LINE, Reach.NEVER
    )
    max_open_prs: int = number(
        3,
        "Most open pull requests of ours; then no new task is begun.",
        _PULL_REQUESTS,
        Reach.TIGHTEN,
        begins="how it treats a repository",
    )
    max_prs_per_day: int = number(
        10, "Most pull requests opened in a UTC day.", _PULL_REQUESTS, Reach.TIGHTEN
    )
    max_unreviewed: int = number(
        2,
        "Most open pull requests of ours that nobody reviewed; then no new task is begun.",
        _PULL_REQUESTS,
        Reach.TIGHTEN,
    )
    review_rounds: int = number(
        3,
        "How often a pull request is worked over after reviews and failed checks.",
        Bounds(0, 100),
        Reach.TIGHTEN,
    )
    quiet_minutes: float = number(
        10.0, "Minutes without a new word before a review is acted on.", Bounds(0.0, 24 * 60.0)
    )
    signoff: Literal["auto", "always", "never"] = option(
        "auto", "Sign commits off (DCO): as the repository asks, always or never.", "auto, always or never"
    )
    ai_policy: Literal["respect", "ignore"] = option(
        "respect",
        "Whether a repository that wants nothing from machines is left alone.",
        "respect or ignore",
        Reach.NEVER,
    )
    trailer: Literal["auto", "none", "assisted-by", "co-authored-by"] = option(
        "auto",
        "How commits name the model: as the repository asks, not at all, or by a trailer.",
        "auto, none, assisted-by or co-authored-by",
    )
    every: Duration | None = option(
        None, "Begin a cycle so often: 30m, 2h, 1d.", "a number with s, m, h or d", Reach.NEVER, begins="when"
    )
    cron: Cron | None = option(
        None,
        "Begin cycles at these times: minute, hour, day, month, weekday.",
        "five fields as in crontab",
        Reach.NEVER,
    )
    timezone: Zone = option(
        "UTC", "Time zone of the times in cron.", "a name such as Europe/Berlin", Reach.NEVER
    )
    claim_minutes: float = number(
        20.0,
        "Minutes after which the task of a worker that died is free again.",
        Bounds(0.0, 24 * 60.0, above=True),
        Reach.NEVER,
    )
    mirror: bool = option(
        True,
        "Keep a copy of the repository's objects, so that later clones fetch little.",
        "true or false",
        Reach.NEVER,
    )
    memory: bool = option(
        False,
        "Let the model remember things on this machine, and recall them with each message.",
        "true or false",
        Reach.NEVER,
        begins="memory",
    )
    repository_memory: bool = option(
        True,
        "Remember what reviews taught, for all machines, on a hidden reference of the repository.",
        "true or false",
        Reach.NEVER,
    )
    embedding_api_url: Address | None = option(
        None,
        "Server of embeddings for the memory; without one and without the extra embed, words are compared.",
        ADDRESS,
        Reach.NEVER,
    )
    embedding_model: Line | None = option(
        None,
        "The model at that server; text-embedding-3-small if not set. Without a server: all-MiniLM-L6-v2 or letters.",
        ONE_LINE,
        Reach.NEVER,
    )
    embedding_dimension: int | None = number(
        None,
        "How many numbers a vector of that server is to have; its own if not set.",
        Bounds(1, 8_192),
        Reach.NEVER,
    )
    skill: Texts = several(
        "Skills that the model is given from the start.", "the name of a skill", Reach.NEVER, begins="skills"
    )
    disable_skills: bool = option(
        False,
        "Offer the model no skills, neither yours nor the repository's.",
        "true or false",
        Reach.TIGHTEN,
    )
    skill_bytes: int | None = number(
        None,
        "Most bytes of a skill that the model is given; 4,096 of the profile explorer and 20,480 of others if not set.",
        Bounds(256, 1_000_000),
        Reach.TIGHTEN,
    )
    system_prompt: Prose | None = option(
        None,
        "What you want of the model in every session; it counts more than all else in its prompt.",
        "text, not empty, of at most 20,000 characters",
        Reach.NEVER,
        begins="sessions",
    )
    max_subagents: int | None = number(
        None,
        "Most subagents of a session at the same time; 5 of the profile assistant and 16 of others if not set.",
        Bounds(1, 100),
        Reach.TIGHTEN,
    )
    subagent_timeout_seconds: float | None = number(
        None,
        "Seconds after which a subagent of the profile assistant is stopped; 300 if not set.",
        Bounds(1.0, 24 * 3600.0),
        Reach.TIGHTEN,
    )


OPTIONS: dict[str, Option] = {key: vars(Options)[key] for key in Options.__annotations__}
"""All options by key, in the order in which they are shown."""
KEYS: tuple[str, ...] = tuple(OPTIONS)


def kind(key: str) -> type:
    """The type of an option's value: `str`, `bool`, `int`, `float` or `tuple`."""
    known = OPTIONS[key]
    if known.is_list:
        return tuple
    if known.bounds:
        return type(known.bounds.most)
    return bool if isinstance(known.default, bool) else str


def choices(key: str) -> tuple[Any, ...]:
    """The values of an option that has only a few; empty if it may have others."""
    if kind(key) is bool:
        return (True, False)
    annotation = str(Options.__annotations__[key])
    return tuple(re.findall(r"'([^']+)'", annotation)) if annotation.startswith("Literal[") else ()


def flag_of(key: str) -> str:
    """The flag of an option."""
    return f"--{key.replace('_', '-')}"


SETTING_KEYS = frozenset((*KEYS, *RENAMED))
"""What a flag may set, by key."""

_AS_DANGEROUS = "--allow-dangerous-tools"


def add_settings(
    parser: argparse.ArgumentParser, only: Collection[str] = (), without: Collection[str] = ()
) -> None:
    """Add a flag for each option, in groups. The flag of a list may be given several times, one item each.

    Values are read as text here: the configuration knows what each may be.

    Args:
        only: the options that get one, without groups; all where none is named.
        without: options that the command has in a form of its own.
    """
    import argparse

    group: argparse._ActionsContainer = parser
    for key, option in OPTIONS.items():
        if only and key not in only:
            continue
        if option.begins and not only:
            group = parser.add_argument_group(option.begins)
        if key in without:
            continue
        group.add_argument(flag_of(key), default=argparse.SUPPRESS, help=_help(key), **_shape(key))
        if key == "permission":
            group.add_argument(
                _AS_DANGEROUS,
                action="store_const",
                const="dangerous",
                dest=key,
                default=argparse.SUPPRESS,
                help="the same as --permission dangerous",
            )
    for old, new in () if only else RENAMED.items():
        parser.add_argument(flag_of(old), default=argparse.SUPPRESS, help=argparse.SUPPRESS, **_shape(new))


def _help(key: str) -> str:
    option = OPTIONS[key]
    text = option.description.removesuffix(".")
    if option.default in {None, ()}:
        return text
    return f"{text} (default: {({True: 'yes', False: 'no'} if kind(key) is bool else {}).get(option.default, option.default)})"


def _shape(key: str) -> dict[str, Any]:
    import argparse

    if kind(key) is bool:
        return {"action": argparse.BooleanOptionalAction}
    if OPTIONS[key].bounds:
        return {"metavar": "N"}
    metavar = "|".join(choices(key)) or key.rpartition("_")[2].upper()
    return {"metavar": metavar, "action": "append" if OPTIONS[key].is_list else "store"}
