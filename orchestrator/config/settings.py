"""Every option with its default, its bounds and one line that describes it."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.config.forms import (
    A_COMMAND,
    A_HOST,
    A_PATTERN,
    A_REPORT,
    ADDRESS,
    ONE_LINE,
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
    Report,
    Texts,
    Word,
    Zone,
)
from orchestrator.config.option import Bounds, Reach, number, option, several

_USD = Bounds(0.0, 100_000.0, above=True)
_TOKENS = Bounds(1, 1_000_000_000)
_MINUTES = Bounds(0.0, 7 * 24 * 60.0, above=True)
_TEST_MINUTES = Bounds(0.0, 24 * 60.0, above=True)
_ROUNDS = Bounds(1, 10_000)
_PULL_REQUESTS = Bounds(1, 1_000)

AUTO = "auto"
"""The test command that stands for what the repository's own file names, or for what is proposed."""
RENAMED = {"strict_tests": "require_tests"}
"""Options by the names that they had, with those that they have."""


class Settings(BaseModel):
    """All options of a run. They are values: nothing changes them after they were loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: Line | None = option(None, "The model, as PROVIDER:NAME.", ONE_LINE)
    api_url: Address | None = option(
        None, "Address of a model server other than the vendor's.", ADDRESS, Reach.NEVER
    )
    contract: Literal["json-plan", "native", "single-step", "whole-file"] | None = option(
        None,
        "How replies become actions: one JSON plan, the vendor's function calling, one call a step, or the changed "
        "file itself. If not set, whole files for a model that is known to be small, else a JSON plan.",
        "json-plan, native, single-step or whole-file",
    )
    profile: Literal["planner", "openai", "anthropic", "gemini", "minimal", "small"] | None = option(
        None,
        "Tools and words; those that suit contract and model if not set.",
        "planner, openai, anthropic, gemini, minimal or small",
    )
    github_url: Address = option(
        "https://github.com", "GitHub, or an Enterprise server.", ADDRESS, Reach.NEVER
    )
    # Who puts this label on an issue lets it in, so that another label would be another permission.
    label: Line = option("pullwright", "Open issues with this label are the backlog.", ONE_LINE, Reach.NEVER)
    base: Branch | None = option(
        None,
        "Branch to start from and to propose to; the default branch if not set.",
        "a name that git allows",
    )
    draft: bool = option(True, "Open pull requests as drafts.", "true or false", Reach.TIGHTEN)
    permission: Literal["read-only", "safe", "dangerous"] = option(
        "safe",
        "What the model may do: look, also change files of the clone, or also run any command.",
        "read-only, safe or dangerous",
        Reach.TIGHTEN,
    )
    allow_command: Texts = several(
        "Commands that run below the level dangerous, such as 'pytest *'.", ONE_LINE, Reach.NEVER
    )
    deny_command: Texts = several("Commands that never run.", ONE_LINE, Reach.TIGHTEN)
    sandbox: Literal["auto", "off"] = option(
        "auto", "Where commands run: in the system's sandbox, or as you.", "auto or off", Reach.TYPED
    )
    sandbox_read: Texts = several(
        "Folders beside the system's that commands may read.", ONE_LINE, Reach.NEVER
    )
    allow_host: Hosts = several("Hosts that commands may reach.", A_HOST, Reach.NEVER)
    web: Literal["tavily", "brave", "exa"] | None = option(
        None,
        "Search engine of the web tools; without one the model has none.",
        "tavily, brave or exa",
        Reach.NEVER,
    )
    allow_actor: Logins = several(
        "Who may cause work without write permission.", "a GitHub login", Reach.NEVER
    )
    comments: Literal["none", "writers", "quoted"] = option(
        "writers",
        "Comments in the prompt: none, those of people who may write, or all, strangers' marked as such.",
        "none, writers or quoted",
        Reach.TIGHTEN,
    )
    allow_path: Patterns = several("Protected paths that may be changed.", A_PATTERN, Reach.NEVER)
    protect_path: Patterns = several("More paths that wait for a person.", A_PATTERN, Reach.TIGHTEN)
    allow_link: Hosts = several("Hosts beside the forge's that texts may link to.", A_HOST, Reach.NEVER)
    test_command: CommandLine | None = option(
        None,
        "Runs the repository's tests, in the sandbox; auto takes what the repository has. Without it none are run.",
        f"auto, or {A_COMMAND}",
        Reach.PROPOSE,
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
    stream: bool = option(True, "Take the model's reply piece by piece.", "true or false")
    temperature: float | None = number(None, "Sampling temperature; not sent if not set.", Bounds(0.0, 2.0))
    max_output_tokens: int | None = number(None, "Longest reply in tokens; not sent if not set.", _TOKENS)
    reasoning_effort: Word | None = option(
        None,
        "How much a model should think; not sent if not set.",
        "one word in small letters, such as low or high",
    )
    max_rounds: int = number(20, "Most requests to the model in a cycle.", _ROUNDS, Reach.TIGHTEN)
    max_usd: float | None = number(None, "Most US dollars spent in a cycle.", _USD, Reach.TIGHTEN)
    max_tokens: int | None = number(None, "Most tokens, in and out, in a cycle.", _TOKENS, Reach.TIGHTEN)
    max_minutes: float | None = number(None, "Most minutes that a cycle takes.", _MINUTES, Reach.TIGHTEN)
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
    max_cycles: int | None = number(
        None, "Most cycles of a continuous run.", Bounds(1, 1_000_000), Reach.TIGHTEN
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
    claim_minutes: float = number(
        20.0,
        "Minutes after which the task of a worker that died is free again.",
        Bounds(0.0, 24 * 60.0, above=True),
        Reach.NEVER,
    )
    max_open_prs: int = number(
        3, "Most open pull requests of ours; then no new task is begun.", _PULL_REQUESTS, Reach.TIGHTEN
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
    trailer: Literal["auto", "none", "assisted-by", "co-authored-by"] = option(
        "auto",
        "How commits name the model: as the repository asks, not at all, or by a trailer.",
        "auto, none, assisted-by or co-authored-by",
    )
    ai_policy: Literal["respect", "ignore"] = option(
        "respect",
        "Whether a repository that wants nothing from machines is left alone.",
        "respect or ignore",
        Reach.NEVER,
    )
    mirror: bool = option(
        True,
        "Keep a copy of the repository's objects, so that later clones fetch little.",
        "true or false",
        Reach.NEVER,
    )
    every: Duration | None = option(
        None, "Begin a cycle so often: 30m, 2h, 1d.", "a number with s, m, h or d", Reach.NEVER
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
    context_chars: int = number(
        60_000, "Most characters of the repository in the first prompt.", Bounds(1_000, 10_000_000)
    )
    author_name: Person = option("Pullwright", "Author of the commits.", f"{ONE_LINE}, without < and >")
    author_email: Email = option(
        "pullwright@users.noreply.github.com", "E-mail address of the commits' author.", "an e-mail address"
    )
    request_timeout_seconds: float = number(
        600.0, "Longest wait for a model's reply, in seconds.", Bounds(0.0, 24 * 3600.0, above=True)
    )
    github_app_id: AppId | None = option(
        None,
        "Id of the GitHub App to act as; its key comes from the environment.",
        "an App's id or client id",
        Reach.NEVER,
    )


KEYS: tuple[str, ...] = tuple(Settings.model_fields)
"""The names of all options, in the order in which they are shown."""


def description(key: str) -> str:
    """One line that says what an option is for."""
    return Settings.model_fields[key].description or ""


def allowed(key: str) -> str:
    """What an option may be; ends the sentence "must be ..."."""
    extra = Settings.model_fields[key].json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else "another value"


def reach(key: str) -> Reach:
    """How far a file that a repository may bring along reaches with an option."""
    extra = Settings.model_fields[key].json_schema_extra
    return Reach(str(extra["reach"])) if isinstance(extra, dict) else Reach.NEVER


def kind(key: str) -> type:
    """The type of an option's value: `str`, `bool`, `int`, `float` or `tuple`."""
    text = str(Settings.model_fields[key].annotation)
    if "tuple" in text:
        return tuple
    return next((one for one in (bool, int, float) if re.search(rf"\b{one.__name__}\b", text)), str)
