"""Every option of the program: default, allowed values, who may set it, and description.

An option is added here only: flag, variable, files, messages and `pullwright config` are derived from it.
This module imports no library, so that `--help` starts at once. `config.settings` creates the values.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from orchestrator.app.plugins import installed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping

    from orchestrator.app.forms import (
        Address,
        Branch,
        CommandLine,
        Cron,
        Duration,
        Email,
        Hosts,
        KeyHosts,
        KeyVariable,
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
    from orchestrator.app.plugins import InstalledPlugin

MOST_ITEMS = 1_000
"""Maximum items of an option that is a list."""

_A_COMMAND = "one command line of at most 1,000 characters"
_A_REPORT = "a path or pattern inside the repository, such as report.xml or build/test-results/**/*.xml"
ADDRESS_FORM = "an http:// or https:// address without a user name, a password or a #"
_ONE_LINE = "one line of text, not empty, of at most 200 characters"
_A_HOST = "a host's name such as pypi.org, *.example.com or example.com:8443"
_A_PATTERN = "a path pattern as in .gitignore"

AUTO = "auto"
"""The value of `test_command` that selects the command of the repository's own file, or the proposed one."""
TEST_KEYS = ("test_command", "setup_command", "test_report")
"""The options that say how a repository's tests are run."""
RENAMED = {"strict_tests": "require_tests"}
"""Present names of options, by their former names."""


class Reach(StrEnum):
    """What a configuration file from a repository may do with an option."""

    FREE = "free"
    """The file may set the option: no protection against the model or strangers depends on it."""
    TIGHTEN = "tighten"
    """The file may make the rule stricter than the person's other settings, never looser. The stricter value is the
    earlier choice, `true` for a switch, and the smaller number; lists are joined."""
    PROPOSE = "propose"
    """The file's value is used only with the person's `test_command = "auto"`, as it is on the default branch."""
    NEVER = "never"
    """The file may not set the option."""
    TYPED = "typed"
    """No file and no variable may set the option: the person types the flag."""


class Bounds(NamedTuple):
    """The range of a number. An `int` as `most` allows whole numbers only; `above` excludes `least` itself."""

    least: float
    most: float
    above: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if isinstance(self.most, int) else "a number"
        least, most = (f"{int(one):,}" if one == int(one) else f"{one:g}" for one in self[:2])
        return f"{kind} above {least} and up to {most}" if self.above else f"{kind} from {least} to {most}"


class Option(NamedTuple):
    """The definition of an option.

    Attributes:
        description: one or two sentences for `--help`, the documentation and `pullwright config`.
        allowed: the end of the sentence "must be ...".
        reach: see `Reach`.
        begins: the title of the group in `--help` that begins with this option; empty continues the group before.
        bounds: the range of a number.
        is_list: whether the option takes several values.
        values: the values of a choice or a switch, as a person types them. The type of the option has them.
        variable: a variable of other programs that sets it too, if no file and no variable of ours does.
        names_server: whether it says on which server a repository is, so that commands about its tasks have it too.
    """

    default: Any
    description: str
    allowed: str
    reach: Reach = Reach.FREE
    begins: str = ""
    bounds: Bounds | None = None
    is_list: bool = False
    values: tuple[str, ...] = ()
    variable: str = ""
    names_server: bool = False


def option(  # noqa: PLR0913  the last ones are given by name
    default: Any,
    description: str,
    allowed: str,
    reach: Reach = Reach.FREE,
    begins: str = "",
    *,
    variable: str = "",
    names_server: bool = False,
) -> Any:
    """Define an option that is a text."""
    return Option(default, description, allowed, reach, begins, variable=variable, names_server=names_server)


def choice(default: Any, description: str, reach: Reach = Reach.FREE, begins: str = "") -> Any:
    """Define an option that is a choice or a switch. Its type says what is allowed."""
    return Option(default, description, "", reach, begins)


def number(
    default: float | None, description: str, bounds: Bounds, reach: Reach = Reach.FREE, begins: str = ""
) -> Any:
    """Define an option that is a number."""
    return Option(default, description, str(bounds), reach, begins, bounds)


def limit(description: str, bounds: Bounds) -> Any:
    """Define an option that is a limit: not set by default, and a repository may tighten it."""
    return number(None, description, bounds, Reach.TIGHTEN)


def several(description: str, allowed: str, reach: Reach, begins: str = "") -> Any:
    """Define an option that is a list; `allowed` describes one item."""
    return Option((), description, f"a list, each {allowed}", reach, begins, is_list=True)


def _definitions(options: type) -> dict[str, Option]:
    """Return the options that a class defines, by key."""
    found = {}
    for key, annotation in options.__annotations__.items():
        option: Option = vars(options)[key]
        values = _values_of(str(annotation))
        allowed = f"{', '.join(values[:-1])} or {values[-1]}" if values else option.allowed
        found[key] = option._replace(allowed=allowed, values=values)
    return found


def _values_of(annotation: str) -> tuple[str, ...]:
    """Return the values of a choice or a switch, as a person types them; empty for other options."""
    if annotation == "bool":
        return ("true", "false")
    return tuple(re.findall(r"'([^']+)'", annotation)) if annotation.startswith("Literal[") else ()


_USD = Bounds(0.0, 100_000.0, above=True)
_TOKENS = Bounds(1, 1_000_000_000)
_MINUTES = Bounds(0.0, 7 * 24 * 60.0, above=True)
_TEST_MINUTES = Bounds(0.0, 24 * 60.0, above=True)
_ROUNDS = Bounds(1, 10_000)
_PULL_REQUESTS = Bounds(1, 1_000)


class Options:
    """All options with the types of their values. Choices that a repository may tighten begin with the strictest."""

    model: Line | None = option(None, "The model, as PROVIDER:NAME.", _ONE_LINE, begins="the model")
    api_url: Address | None = option(
        None, "Address of a model server other than the vendor's.", ADDRESS_FORM, Reach.NEVER
    )
    api_key_variable: KeyVariable | None = option(
        None,
        "Environment variable with the key for the model's server. If not set, the vendor's own variable, or "
        "PULLWRIGHT_API_KEY.",
        "the name of an environment variable that says that it has a secret, such as TEAM_API_KEY",
        Reach.NEVER,
    )
    key_host: KeyHosts = several(
        "Other servers that a vendor's key may go to, each as VENDOR=HOST or VENDOR=HOST:PORT, where the vendor is "
        "openai, anthropic or gemini. A vendor's own servers get its key without this.",
        "such as openai=llm.example.com or openai=localhost:4000",
        Reach.NEVER,
    )
    contract: Literal["json-plan", "native", "single-step", "whole-file"] | None = choice(
        None,
        "Form of the model's replies: one JSON plan, the vendor's function calling, one call per step, or the whole "
        "changed file. If not set, whole files for a model that is known to be small, otherwise a JSON plan.",
    )
    profile: ProfileName | None = option(
        None,
        "Set of tools and prompt, such as planner or openai. If not set, the one that suits contract and model.",
        "the name of a profile: planner, openai, anthropic, gemini, minimal, small or an added one",
    )
    stream: bool = choice(True, "Stream the model's replies.")
    temperature: float | None = number(None, "Sampling temperature. Not sent if not set.", Bounds(0.0, 2.0))
    reasoning_effort: Word | None = option(
        None,
        "Reasoning effort of the model. Not sent if not set.",
        "one word in small letters, such as low or high",
    )
    max_output_tokens: int | None = number(None, "Maximum tokens of one reply. Not sent if not set.", _TOKENS)
    context_chars: int = number(
        60_000, "Maximum characters of the repository's files in the first prompt.", Bounds(1_000, 10_000_000)
    )
    context_window: int | None = number(
        None, "Context window of the model, in tokens. If not set, the known value for the model.", _TOKENS
    )
    compact_at: float = number(
        0.4,
        "Share of the context window at which a conversation is summarized.",
        Bounds(0.0, 0.95, above=True),
    )
    request_timeout_seconds: float = number(
        600.0, "Maximum wait for a model's reply, in seconds.", Bounds(0.0, 24 * 3600.0, above=True)
    )
    # The label on an issue permits work on it, so a repository's file must not choose another label.
    label: Line = option(
        "pullwright",
        "Label of the open issues that form the backlog.",
        _ONE_LINE,
        Reach.NEVER,
        begins="issues and pull requests",
    )
    base: Branch | None = option(
        None,
        "Branch to start from and to propose to. If not set, the repository's default branch.",
        "a name that git allows",
    )
    draft: bool = choice(True, "Open pull requests as drafts.", Reach.TIGHTEN)
    author_name: Person = option("Pullwright", "Author of the commits.", f"{_ONE_LINE}, without < and >")
    author_email: Email = option(
        "pullwright@users.noreply.github.com", "E-mail address of the commits' author.", "an e-mail address"
    )
    allow_actor: Logins = several(
        "GitHub logins that may cause work without write permission.",
        "a GitHub login",
        Reach.NEVER,
        begins="what comes in",
    )
    comments: Literal["none", "writers", "quoted"] = choice(
        "writers",
        "Comments in the prompt: none, those of people with write permission, or all, with strangers' comments marked.",
        Reach.TIGHTEN,
    )
    permission: Literal["read-only", "safe", "dangerous"] = choice(
        "safe",
        "What the model may do: only read, also change files of the clone, or also run any command.",
        Reach.TIGHTEN,
        begins="what may run",
    )
    allow_command: Texts = several(
        "Commands that may run below the permission level dangerous, such as 'pytest *'.",
        _ONE_LINE,
        Reach.NEVER,
    )
    deny_command: Texts = several("Commands that never run.", _ONE_LINE, Reach.TIGHTEN)
    sandbox: SandboxChoice = option(
        "auto",
        "Where commands run: in the system's sandbox, in a container of an image, or as you without a sandbox.",
        "auto, docker:IMAGE, podman:IMAGE or off",
        Reach.TYPED,
    )
    sandbox_read: Texts = several(
        "Folders that commands may read, in addition to the system's.", _ONE_LINE, Reach.NEVER
    )
    allow_host: Hosts = several("Hosts that commands may connect to.", _A_HOST, Reach.NEVER)
    allow_path: Patterns = several(
        "Protected paths that may be changed without waiting for a person, and ignored ones that are proposed.",
        _A_PATTERN,
        Reach.NEVER,
        begins="what goes out",
    )
    protect_path: Patterns = several("More paths whose changes wait for a person.", _A_PATTERN, Reach.TIGHTEN)
    allow_link: Hosts = several(
        "Hosts that published texts may link to, in addition to the forge's.", _A_HOST, Reach.NEVER
    )
    max_files: int = number(
        50, "Maximum files that a pull request may change.", Bounds(1, 100_000), Reach.TIGHTEN
    )
    max_lines: int = number(
        5_000, "Maximum lines that a pull request may add and remove.", Bounds(1, 10_000_000), Reach.TIGHTEN
    )
    max_bytes: int = number(
        1_000_000,
        "Maximum bytes of the files that a pull request changes.",
        Bounds(1, 1_000_000_000),
        Reach.TIGHTEN,
    )
    test_command: CommandLine | None = option(
        None,
        "Command that runs the tests, in the sandbox. auto uses the repository's own command. If not set, no tests run.",
        f"auto, or {_A_COMMAND}",
        Reach.PROPOSE,
        begins="tests",
    )
    setup_command: CommandLine | None = option(
        None, "Command that installs what the tests need, in the same sandbox.", _A_COMMAND, Reach.PROPOSE
    )
    test_report: Report | None = option(
        None,
        "Path of the report that the test command writes. Not needed for pytest.",
        _A_REPORT,
        Reach.PROPOSE,
    )
    test_minutes: float = number(
        10.0, "Maximum minutes of one run of the tests, or of its set-up.", _TEST_MINUTES, Reach.TIGHTEN
    )
    test_paths: Patterns = several(
        "More paths that belong to the tests, in addition to those recognized by their names.",
        _A_PATTERN,
        Reach.TIGHTEN,
    )
    require_tests: bool = choice(
        False,
        "Propose only changes that passed the tests. Without a test command, propose none that removes or skips tests.",
        Reach.TIGHTEN,
    )
    untested: bool = choice(
        False,
        "Go on where the set-up of the tests fails. Without it the run ends before a model is asked.",
        Reach.NEVER,
    )
    propose_failing: bool = choice(
        False,
        "Propose a change even if it breaks tests, as a draft. Without it such work is kept, and not proposed.",
        Reach.NEVER,
    )
    max_rounds: int = number(
        20,
        "Maximum requests to the model in a cycle.",
        _ROUNDS,
        Reach.TIGHTEN,
        begins="limits; work that is not proposed is saved",
    )
    max_usd: float | None = limit("Maximum US dollars spent in a cycle.", _USD)
    max_tokens: int | None = limit("Maximum tokens, input and output, in a cycle.", _TOKENS)
    max_minutes: float | None = limit("Maximum minutes of a cycle.", _MINUTES)
    max_cycles: int | None = limit("Maximum cycles of a continuous run.", Bounds(1, 1_000_000))
    max_usd_per_task: float | None = limit("Maximum US dollars for a task, over all its cycles.", _USD)
    max_tokens_per_task: int | None = limit("Maximum tokens for a task.", _TOKENS)
    max_minutes_per_task: float | None = limit("Maximum minutes for a task.", _MINUTES)
    max_rounds_per_task: int | None = limit("Maximum requests to the model for a task.", _ROUNDS)
    max_usd_per_day: float | None = number(
        None, "Maximum US dollars that this machine spends in a UTC day.", _USD, Reach.NEVER
    )
    max_tokens_per_day: int | None = number(
        None, "Maximum tokens that this machine spends in a UTC day.", _TOKENS, Reach.NEVER
    )
    max_minutes_per_day: float | None = number(
        None, "Maximum minutes of cycles on this machine in a UTC day.", _MINUTES, Reach.NEVER
    )
    max_rounds_per_day: int | None = number(
        None, "Maximum requests to the model on this machine in a UTC day.", _ROUNDS, Reach.NEVER
    )
    max_usd_per_repo: float | None = limit(
        "Maximum US dollars for the repository in a UTC day, on all machines.", _USD
    )
    max_tokens_per_repo: int | None = limit(
        "Maximum tokens for the repository in a UTC day, on all machines.", _TOKENS
    )
    max_minutes_per_repo: float | None = limit(
        "Maximum minutes of cycles for the repository in a UTC day, on all machines.", _MINUTES
    )
    max_rounds_per_repo: int | None = limit(
        "Maximum requests to the model for the repository in a UTC day, on all machines.", _ROUNDS
    )
    price: Price | None = option(
        None,
        "Price of a model whose price is unknown: US dollars per million tokens, input and output, such as 3/15.",
        "two numbers such as 3/15",
        Reach.NEVER,
    )
    fallback_model: Texts = several(
        "Models to ask, in this order, when the first one has no quota left or is down.",
        _ONE_LINE,
        Reach.NEVER,
    )
    max_open_prs: int = number(
        3,
        "Maximum open pull requests of Pullwright. At this number no new task is started.",
        _PULL_REQUESTS,
        Reach.TIGHTEN,
        begins="how it treats a repository",
    )
    max_prs_per_day: int = number(
        10, "Maximum pull requests opened in a UTC day.", _PULL_REQUESTS, Reach.TIGHTEN
    )
    max_unreviewed: int = number(
        2,
        "Maximum open pull requests of Pullwright without a review. At this number no new task is started.",
        _PULL_REQUESTS,
        Reach.TIGHTEN,
    )
    review_rounds: int = number(
        3,
        "How often a pull request is revised after reviews and failed checks.",
        Bounds(0, 100),
        Reach.TIGHTEN,
    )
    quiet_minutes: float = number(
        10.0, "Minutes without a new comment before Pullwright acts on a review.", Bounds(0.0, 24 * 60.0)
    )
    signoff: Literal["auto", "always", "never"] = choice(
        "auto", "Sign commits off (DCO): as the repository asks, always or never."
    )
    ai_policy: Literal["respect", "ignore"] = choice(
        "respect",
        "Respect or ignore a repository's statement that it wants no contributions from machines.",
        Reach.NEVER,
    )
    trailer: Literal["auto", "none", "assisted-by", "generated-by", "co-authored-by"] = choice(
        "auto", "How commits name the model: as the repository asks, not at all, or in a trailer."
    )
    every: Duration | None = option(
        None,
        "Interval between the starts of cycles, such as 30m, 2h or 1d.",
        "a number with s, m, h or d",
        Reach.NEVER,
        begins="when",
    )
    cron: Cron | None = option(
        None,
        "Times at which cycles start: minute, hour, day, month, weekday.",
        "five fields as in crontab",
        Reach.NEVER,
    )
    timezone: Zone = option(
        "UTC", "Time zone of the times in cron.", "a name such as Europe/Berlin", Reach.NEVER
    )
    claim_minutes: float = number(
        20.0,
        "Minutes after which the task of a worker that died may be taken by another.",
        Bounds(0.0, 24 * 60.0, above=True),
        Reach.NEVER,
    )
    mirror: bool = choice(
        True, "Keep a copy of the repository's git objects, so that later clones fetch little.", Reach.NEVER
    )
    runs_days: float = number(
        90.0,
        "Days after which the folder of a completed run is removed. 0 is never.",
        Bounds(0.0, 36_500.0),
        Reach.NEVER,
    )
    runs_mb: int = number(
        1_000,
        "Megabytes that the folders of all runs may have together; the oldest completed ones are removed first. "
        "0 is no limit.",
        Bounds(0, 1_000_000_000),
        Reach.NEVER,
    )
    system_prompt: Prose | None = option(
        None,
        "Your instructions to the model in every session. They take precedence over the rest of its prompt.",
        "text, not empty, of at most 20,000 characters",
        Reach.NEVER,
        begins="sessions",
    )
    max_subagents: int | None = limit(
        "Maximum subagents of a session at the same time. If not set, 5 with the profile assistant, else 16.",
        Bounds(1, 100),
    )
    subagent_timeout_seconds: float | None = limit(
        "Seconds after which a subagent of the profile assistant is stopped. If not set, 300.",
        Bounds(1.0, 24 * 3600.0),
    )


@functools.cache
def all_options() -> Mapping[str, Option]:
    """Return all options by key, in display order: the program's own, then those of the plug-ins."""
    found = _definitions(Options)
    for one in installed().values():
        found |= options_of(one)
    return MappingProxyType(found)


def options_of(plugin: InstalledPlugin) -> dict[str, Option]:
    """Return the options of a plug-in by key."""
    return _definitions(plugin.load(plugin.plugin.options)) if plugin.plugin.options else {}


def classes_of_options() -> list[type]:
    """Return the classes with the types of all options."""
    named = [one.load(one.plugin.options) for one in installed().values() if one.plugin.options]
    return [Options, *named]


def kind(key: str) -> type:
    """Return the type of an option's value: `str`, `bool`, `int`, `float` or `tuple`."""
    known = all_options()[key]
    if known.is_list:
        return tuple
    if known.bounds:
        return type(known.bounds.most)
    return bool if isinstance(known.default, bool) else str


def choices(key: str) -> tuple[Any, ...]:
    """Return the allowed values of a choice or switch; empty for other options."""
    return (True, False) if kind(key) is bool else all_options()[key].values


def flag_of(key: str) -> str:
    """Return the flag of an option."""
    return f"--{key.replace('_', '-')}"


LIMITS = "max"
"""The key of limits in words: `2usd`, `5usd/day`. They stand for the options that `limits_in_words` names."""
FIRST = {
    "model": "the model, as PROVIDER:NAME",
    "api_url": "the model's server, if it is not the vendor's",
    "label": "the label of the issues to work on",
    "base": "the branch to start from and to propose to",
    "draft": "open pull requests as drafts (the default), or not",
    "permission": "what the model may do: read-only, safe, dangerous",
    "allow_command": "a command that may run, such as 'pytest *'",
    "allow_host": "a host that commands may connect to",
    "test_command": "the command that runs the tests, or auto",
    "setup_command": "the command that installs what they need",
    "require_tests": "propose only what passed the tests",
    LIMITS: "2usd, 5usd/day, 3usd/task, 200k/task, 30min, 20rounds",
}
"""The options that a first week needs, with their words in the short help."""

_LIMIT = re.compile(r"\$?(\d{1,9}(?:\.\d{1,6})?)([a-zA-Z$]*)(?:/([a-z]+))?")
_UNITS = {
    **dict.fromkeys(("usd", "$", "dollar", "dollars"), ("usd", 1)),
    **dict.fromkeys(("tokens", "token"), ("tokens", 1)),
    **dict.fromkeys(("k", "ktokens"), ("tokens", 1_000)),
    **dict.fromkeys(("M", "Mtokens"), ("tokens", 1_000_000)),
    **dict.fromkeys(("min", "minutes", "minute"), ("minutes", 1)),
    **dict.fromkeys(("h", "hours", "hour"), ("minutes", 60)),
    **dict.fromkeys(("rounds", "round"), ("rounds", 1)),
}
_SCOPES = {"": "", "cycle": "", "task": "_per_task", "day": "_per_day", "repo": "_per_repo"}
LIMIT_FORM = (
    "2usd, 5usd/day, 3usd/task, 200k/task, 30min or 20rounds (of a cycle without /task, /day or /repo)"
)


def setting_keys() -> frozenset[str]:
    """Return the keys that a flag may set."""
    return frozenset((*all_options(), *RENAMED, LIMITS))


def limits_in_words(text: str) -> dict[str, float]:
    """Return the options that limits in words stand for, such as `max_usd` and `max_tokens_per_task`.

    Args:
        text: limits with commas or blanks between them.

    Raises:
        ValueError: a limit is not in the form, or two are about the same; the message is the end of a sentence.
    """
    found: dict[str, float] = {}
    for item in text.replace(",", " ").split():
        match = _LIMIT.fullmatch(item)
        number, unit, scope = match.groups("") if match else ("", "", "")
        unit = unit or ("$" if item.startswith("$") else "")
        if unit not in _UNITS or scope not in _SCOPES:
            raise ValueError(f"{item[:40]!r} is no limit: write limits like {LIMIT_FORM}")
        name, factor = _UNITS[unit]
        key = f"max_{name}{_SCOPES[scope]}"
        if key in found:
            raise ValueError(f"{item[:40]!r} is the second limit of its kind: leave out one")
        amount = round(float(number) * factor, 6)
        if kind(key) is int and amount != int(amount):
            raise ValueError(f"{item[:40]!r} is no whole number")
        found[key] = amount if kind(key) is float else int(amount)
    return found


def add_option_flags(
    parser: argparse._ActionsContainer, only: Collection[str] = (), without: Collection[str] = ()
) -> None:
    """Add a flag for each option, in groups. The flag of a list may be given several times, one item each.

    Values stay text here. The configuration converts and checks them.

    Args:
        only: the options to add, without groups; all options if empty.
        without: options that the command defines itself.
    """
    import argparse

    group = parser
    for key, option in all_options().items():
        if only and key not in only:
            continue
        if option.begins and not only:
            group = parser.add_argument_group(option.begins)
        if key == "max_rounds" and not only:
            group.add_argument(
                flag_of(LIMITS),
                default=argparse.SUPPRESS,
                action="append",
                metavar="LIMIT",
                help=f"Limits, like {LIMIT_FORM}",
            )
        if key in without:
            continue
        group.add_argument(flag_of(key), default=argparse.SUPPRESS, help=_help(key), **_shape(key))
        if key == "permission":
            group.add_argument(
                "--allow-dangerous-tools",
                action="store_const",
                const="dangerous",
                dest=key,
                default=argparse.SUPPRESS,
                help="the same as --permission dangerous",
            )
    for old, new in () if only else RENAMED.items():
        parser.add_argument(flag_of(old), default=argparse.SUPPRESS, help=argparse.SUPPRESS, **_shape(new))


def _help(key: str) -> str:
    text, default = all_options()[key].description.removesuffix("."), all_options()[key].default
    if kind(key) is bool:
        default = "yes" if default else "no"
    return text if default in {None, ()} else f"{text} (default: {default})"


def _shape(key: str) -> dict[str, Any]:
    import argparse

    if kind(key) is bool:
        return {"action": argparse.BooleanOptionalAction}
    if all_options()[key].bounds:
        return {"metavar": "N"}
    metavar = "|".join(choices(key)) or key.rpartition("_")[2].upper()
    return {"metavar": metavar, "action": "append" if all_options()[key].is_list else "store"}
