"""Every option with its default, its bounds and one line that describes it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

_MAX_ROUNDS = 10_000
_MAX_TOKENS = 1_000_000_000
_MAX_MINUTES = 7 * 24 * 60.0
_MAX_USD = 100_000.0
_MAX_CYCLES = 1_000_000
_MAX_CONTEXT_CHARS = 10_000_000
_MAX_TIMEOUT_SECONDS = 24 * 3600.0
_MAX_FILES = 100_000
_MAX_LINES = 10_000_000
_MAX_BYTES = 1_000_000_000
_MAX_SEVERAL = 1_000


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError
    if not value.isprintable() or " " in value or parts.fragment or parts.port == 0:
        raise ValueError
    return value.rstrip("/")


def _branch(value: str) -> str:
    # https://git-scm.com/docs/git-check-ref-format
    bad = re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/.]|^@$|/\.|[/.]$|\.lock(?:/|$)", value)
    if bad:
        raise ValueError
    return value


def _line(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError
    return value


def _host(value: str) -> str:
    if not re.fullmatch(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?", value.lower()):
        raise ValueError
    return value.lower()


def _as_tuple(value: Any) -> Any:
    """TOML has lists only, and values do not change after they were loaded."""
    return tuple(value) if isinstance(value, list) else value


def _person(value: str) -> str:
    if set("<>") & set(value):
        raise ValueError
    return _line(value)


class Reach(StrEnum):
    """How far a file that a repository may bring along reaches with an option."""

    FREE = "free"
    """It may set the option: nothing that is kept from the model or from strangers depends on it."""
    TIGHTEN = "tighten"
    """It may make the rule stricter than the person's other choices, never looser."""
    NEVER = "never"
    """It may not set the option."""
    TYPED = "typed"
    """No file and no variable may: the person types the flag."""


def _option(default: Any, description: str, allowed: str, reach: Reach = Reach.FREE, **bounds: Any) -> Any:
    """A field. `allowed` ends the sentence "must be ..."."""
    extra: dict[str, JsonValue] = {"allowed": allowed, "reach": str(reach)}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def _number(
    default: float | None,
    description: str,
    least: float,
    most: float,
    reach: Reach = Reach.FREE,
    **exclusive: bool,
) -> Any:
    kind = "a whole number" if isinstance(most, int) else "a number"
    if exclusive:
        words = f"{kind} above {int(least):,} and up to {int(most):,}"
        return _option(default, description, words, reach, gt=least, le=most)
    words = f"{kind} from {int(least):,} to {int(most):,}"
    return _option(default, description, words, reach, ge=least, le=most)


def _several(description: str, allowed: str, reach: Reach) -> Any:
    return _option((), description, f"a list, each {allowed}", reach, max_length=_MAX_SEVERAL)


_Line = Annotated[str, AfterValidator(_line), Field(min_length=1, max_length=200)]
_Address = Annotated[str, AfterValidator(_address)]
_Branch = Annotated[str, AfterValidator(_branch), Field(min_length=1, max_length=200)]
_Person = Annotated[str, AfterValidator(_person), Field(min_length=1, max_length=200)]
_Email = Annotated[str, AfterValidator(_person), Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=200)]
_Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
_Texts = Annotated[tuple[_Line, ...], BeforeValidator(_as_tuple)]
_Hosts = Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], BeforeValidator(_as_tuple)]
_Logins = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")], ...], BeforeValidator(_as_tuple)
]
_Price = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?/[0-9]{1,6}(\.[0-9]{1,6})?$")]
_Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[smhd]$")]
_Cron = Annotated[str, Field(pattern=r"^[0-9A-Za-z*/,#-]{1,60}( [0-9A-Za-z*/,#-]{1,60}){4}$")]
_Zone = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,60}$")]
_AppId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]

_ADDRESS = "an http:// or https:// address without a user name, a password or a #"
_ONE_LINE = "one line of text, not empty, of at most 200 characters"
_A_HOST = "a host's name such as pypi.org, *.example.com or example.com:8443"
_A_PATTERN = "a path pattern as in .gitignore"


class Settings(BaseModel):
    """All options of a run. They are values: nothing changes them after they were loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: _Line | None = _option(None, "The model, as PROVIDER:NAME.", _ONE_LINE)
    api_url: _Address | None = _option(
        None, "Address of a model server other than the vendor's.", _ADDRESS, Reach.NEVER
    )
    contract: Literal["json-plan", "native", "single-step"] = _option(
        "json-plan",
        "How replies become actions: one JSON plan, the vendor's function calling, or one call a step.",
        "json-plan, native or single-step",
    )
    profile: Literal["planner", "openai", "anthropic", "gemini", "minimal"] | None = _option(
        None,
        "Tools and words; those that suit contract and model if not set.",
        "planner, openai, anthropic, gemini or minimal",
    )
    github_url: _Address = _option(
        "https://github.com", "GitHub, or an Enterprise server.", _ADDRESS, Reach.NEVER
    )
    # Who puts this label on an issue lets it in, so that another label would be another permission.
    label: _Line = _option(
        "pullwright", "Open issues with this label are the backlog.", _ONE_LINE, Reach.NEVER
    )
    base: _Branch | None = _option(
        None,
        "Branch to start from and to propose to; the default branch if not set.",
        "a name that git allows",
    )
    draft: bool = _option(True, "Open pull requests as drafts.", "true or false", Reach.TIGHTEN)
    permission: Literal["read-only", "safe", "dangerous"] = _option(
        "safe",
        "What the model may do: look, also change files of the clone, or also run any command.",
        "read-only, safe or dangerous",
        Reach.TIGHTEN,
    )
    allow_command: _Texts = _several(
        "Commands that run below the level dangerous, such as 'pytest *'.", _ONE_LINE, Reach.NEVER
    )
    deny_command: _Texts = _several("Commands that never run.", _ONE_LINE, Reach.TIGHTEN)
    sandbox: Literal["auto", "off"] = _option(
        "auto", "Where commands run: in the system's sandbox, or as you.", "auto or off", Reach.TYPED
    )
    sandbox_read: _Texts = _several(
        "Folders beside the system's that commands may read.", _ONE_LINE, Reach.NEVER
    )
    allow_host: _Hosts = _several("Hosts that commands may reach.", _A_HOST, Reach.NEVER)
    web: Literal["tavily", "brave", "exa"] | None = _option(
        None,
        "Search engine of the web tools; without one the model has none.",
        "tavily, brave or exa",
        Reach.NEVER,
    )
    allow_actor: _Logins = _several(
        "Who may cause work without write permission.", "a GitHub login", Reach.NEVER
    )
    comments: Literal["none", "writers", "quoted"] = _option(
        "writers",
        "Comments in the prompt: none, those of people who may write, or all, strangers' marked as such.",
        "none, writers or quoted",
        Reach.TIGHTEN,
    )
    allow_path: _Texts = _several("Protected paths that may be changed.", _A_PATTERN, Reach.NEVER)
    protect_path: _Texts = _several("More paths that wait for a person.", _A_PATTERN, Reach.TIGHTEN)
    allow_link: _Hosts = _several("Hosts beside the forge's that texts may link to.", _A_HOST, Reach.NEVER)
    strict_tests: bool = _option(False, "Refuse a change that weakens tests.", "true or false", Reach.TIGHTEN)
    stream: bool = _option(True, "Take the model's reply piece by piece.", "true or false")
    temperature: float | None = _number(None, "Sampling temperature; not sent if not set.", 0.0, 2.0)
    max_output_tokens: int | None = _number(
        None, "Longest reply in tokens; not sent if not set.", 1, _MAX_TOKENS
    )
    reasoning_effort: _Word | None = _option(
        None,
        "How much a model should think; not sent if not set.",
        "one word in small letters, such as low or high",
    )
    max_rounds: int = _number(20, "Most requests to the model in a cycle.", 1, _MAX_ROUNDS, Reach.TIGHTEN)
    max_usd: float | None = _number(
        None, "Most US dollars spent in a cycle.", 0.0, _MAX_USD, Reach.TIGHTEN, exclusive=True
    )
    max_tokens: int | None = _number(
        None, "Most tokens, in and out, in a cycle.", 1, _MAX_TOKENS, Reach.TIGHTEN
    )
    max_minutes: float | None = _number(
        None, "Most minutes that a cycle takes.", 0.0, _MAX_MINUTES, Reach.TIGHTEN, exclusive=True
    )
    max_usd_per_task: float | None = _number(
        None,
        "Most US dollars for a task, all its cycles together.",
        0.0,
        _MAX_USD,
        Reach.TIGHTEN,
        exclusive=True,
    )
    max_tokens_per_task: int | None = _number(None, "Most tokens for a task.", 1, _MAX_TOKENS, Reach.TIGHTEN)
    max_minutes_per_task: float | None = _number(
        None, "Most minutes for a task.", 0.0, _MAX_MINUTES, Reach.TIGHTEN, exclusive=True
    )
    max_rounds_per_task: int | None = _number(
        None, "Most requests to the model for a task.", 1, _MAX_ROUNDS, Reach.TIGHTEN
    )
    max_usd_per_day: float | None = _number(
        None,
        "Most US dollars that this machine spends in a UTC day.",
        0.0,
        _MAX_USD,
        Reach.NEVER,
        exclusive=True,
    )
    max_tokens_per_day: int | None = _number(
        None, "Most tokens that this machine spends in a UTC day.", 1, _MAX_TOKENS, Reach.NEVER
    )
    max_minutes_per_day: float | None = _number(
        None,
        "Most minutes of cycles on this machine in a UTC day.",
        0.0,
        _MAX_MINUTES,
        Reach.NEVER,
        exclusive=True,
    )
    max_rounds_per_day: int | None = _number(
        None, "Most requests to the model on this machine in a UTC day.", 1, _MAX_ROUNDS, Reach.NEVER
    )
    max_usd_per_repo: float | None = _number(
        None,
        "Most US dollars for the repository in a UTC day, on all machines.",
        0.0,
        _MAX_USD,
        Reach.TIGHTEN,
        exclusive=True,
    )
    max_tokens_per_repo: int | None = _number(
        None, "Most tokens for the repository in a UTC day, on all machines.", 1, _MAX_TOKENS, Reach.TIGHTEN
    )
    max_minutes_per_repo: float | None = _number(
        None,
        "Most minutes of cycles for the repository in a UTC day, on all machines.",
        0.0,
        _MAX_MINUTES,
        Reach.TIGHTEN,
        exclusive=True,
    )
    max_rounds_per_repo: int | None = _number(
        None,
        "Most requests to the model for the repository in a UTC day, on all machines.",
        1,
        _MAX_ROUNDS,
        Reach.TIGHTEN,
    )
    max_cycles: int | None = _number(None, "Most cycles of a continuous run.", 1, _MAX_CYCLES, Reach.TIGHTEN)
    price: _Price | None = _option(
        None,
        "What a model of unknown price costs: US dollars a million tokens, in and out, such as 3/15.",
        "two numbers such as 3/15",
        Reach.NEVER,
    )
    fallback_model: _Texts = _several(
        "Models to ask where the first one has no quota left or is down, in order.", _ONE_LINE, Reach.NEVER
    )
    claim_minutes: float = _number(
        20.0,
        "Minutes after which the task of a worker that died is free again.",
        0.0,
        24 * 60.0,
        Reach.NEVER,
        exclusive=True,
    )
    max_open_prs: int = _number(
        3, "Most open pull requests of ours; then no new task is begun.", 1, _MAX_SEVERAL, Reach.TIGHTEN
    )
    max_prs_per_day: int = _number(
        10, "Most pull requests opened in a UTC day.", 1, _MAX_SEVERAL, Reach.TIGHTEN
    )
    max_unreviewed: int = _number(
        2,
        "Most open pull requests of ours that nobody reviewed; then no new task is begun.",
        1,
        _MAX_SEVERAL,
        Reach.TIGHTEN,
    )
    review_rounds: int = _number(
        3, "How often a pull request is worked over after reviews and failed checks.", 0, 100, Reach.TIGHTEN
    )
    quiet_minutes: float = _number(
        10.0, "Minutes without a new word before a review is acted on.", 0.0, 24 * 60.0
    )
    signoff: Literal["auto", "always", "never"] = _option(
        "auto", "Sign commits off (DCO): as the repository asks, always or never.", "auto, always or never"
    )
    trailer: Literal["auto", "none", "assisted-by", "co-authored-by"] = _option(
        "auto",
        "How commits name the model: as the repository asks, not at all, or by a trailer.",
        "auto, none, assisted-by or co-authored-by",
    )
    ai_policy: Literal["respect", "ignore"] = _option(
        "respect",
        "Whether a repository that wants nothing from machines is left alone.",
        "respect or ignore",
        Reach.NEVER,
    )
    mirror: bool = _option(
        True,
        "Keep a copy of the repository's objects, so that later clones fetch little.",
        "true or false",
        Reach.NEVER,
    )
    every: _Duration | None = _option(
        None, "Begin a cycle so often: 30m, 2h, 1d.", "a number with s, m, h or d", Reach.NEVER
    )
    cron: _Cron | None = _option(
        None,
        "Begin cycles at these times: minute, hour, day, month, weekday.",
        "five fields as in crontab",
        Reach.NEVER,
    )
    timezone: _Zone = _option(
        "UTC", "Time zone of the times in cron.", "a name such as Europe/Berlin", Reach.NEVER
    )
    max_files: int = _number(50, "Most files that a pull request changes.", 1, _MAX_FILES, Reach.TIGHTEN)
    max_lines: int = _number(
        5_000, "Most lines that a pull request adds and removes.", 1, _MAX_LINES, Reach.TIGHTEN
    )
    max_bytes: int = _number(
        1_000_000, "Most bytes of the files that a pull request changes.", 1, _MAX_BYTES, Reach.TIGHTEN
    )
    context_chars: int = _number(
        60_000, "Most characters of the repository in the first prompt.", 1_000, _MAX_CONTEXT_CHARS
    )
    author_name: _Person = _option("Pullwright", "Author of the commits.", f"{_ONE_LINE}, without < and >")
    author_email: _Email = _option(
        "pullwright@users.noreply.github.com", "E-mail address of the commits' author.", "an e-mail address"
    )
    request_timeout_seconds: float = _number(
        600.0, "Longest wait for a model's reply, in seconds.", 0.0, _MAX_TIMEOUT_SECONDS, exclusive=True
    )
    github_app_id: _AppId | None = _option(
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
