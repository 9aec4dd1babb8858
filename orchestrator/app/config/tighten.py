"""What a file that a repository brings along may do with an option: make a rule stricter, never looser."""

from __future__ import annotations

import tomllib
from typing import Any

from pydantic import ValidationError

from orchestrator.app.config.settings import Settings
from orchestrator.app.options import AUTO, KEYS, OPTIONS, RENAMED, Reach, choices
from orchestrator.core.errors import ConfigurationError

_OF_THE_WHOLE_RUN = frozenset({"max_cycles"})


def stricter(key: str, one: Any, other: Any) -> Any:
    """The stricter of two values of an option that may be tightened."""
    if isinstance(one, tuple):
        return (*one, *(item for item in other if item not in one))
    if ranks := choices(key):
        return min(one, other, key=ranks.index)
    return min((value for value in (one, other) if value is not None), default=None)


def loosens(key: str, present: Any, wanted: Any) -> bool:
    """Whether a wanted value is looser than the present one."""
    return not isinstance(present, tuple) and bool(stricter(key, present, wanted) != wanted)


def tightened(settings: Settings, text: str, place: str) -> tuple[Settings, list[str]]:
    """The settings as a repository's own file makes them stricter.

    Where the person chose `test_command = "auto"`, the file may also name how the tests are run.

    Args:
        settings: what the person who runs the program chose.
        text: the file, TOML, as it is on the default branch.
        place: names the file in messages.

    Returns:
        The settings, and a line for each value that has no effect, or has another name now.
        Options that are no rules, such as the model, are the business of those who run the
        program in that folder: they are passed over.

    Raises:
        ConfigurationError: the file cannot be read, or a rule in it has no valid value. Whoever
            wrote it wanted something stricter, so the run does not go on without it.
    """
    values, notes = _values(text, place)
    changes: dict[str, Any] = {}
    for key in [key for key in KEYS if key in values]:
        match OPTIONS[key].reach:
            case Reach.TIGHTEN if key in _OF_THE_WHOLE_RUN:
                notes.append(f"{key} in {place} has no effect: it counts for the whole run, not for a cycle")
            case Reach.TIGHTEN:
                wanted = _valid(key, values[key], place)
                present = getattr(settings, key)
                changes[key] = stricter(key, present, wanted)
                if loosens(key, present, wanted):
                    notes.append(f"{key} in {place} would loosen a rule and has no effect")
            case Reach.PROPOSE if settings.test_command != AUTO:
                notes.append(f"{key} in {place} has no effect: it counts with --test-command {AUTO} only")
            case Reach.PROPOSE:
                person = getattr(settings, key)
                changes[key] = _valid(key, values[key], place) if person in (None, AUTO) else person
            case Reach.NEVER | Reach.TYPED:
                notes.append(f"{key} in {place} has no effect: only the person who runs this may set it")
            case Reach.FREE:
                pass
    return settings.model_copy(update=changes), notes


def _values(text: str, place: str) -> tuple[dict[str, Any], list[str]]:
    """What the file says, under the names that options have now, and a line for each other name."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a plain ValueError: more digits than Python reads
        raise ConfigurationError(f"{place} is not valid TOML: {error}") from None
    old_names = [old for old in RENAMED if old in values]
    renamed = {RENAMED[old]: values[old] for old in old_names}
    return renamed | values, [f"{old} in {place} is called {RENAMED[old]} now" for old in old_names]


def _valid(key: str, value: Any, place: str) -> Any:
    try:
        return getattr(Settings(**{key: value}), key)
    except ValidationError:
        raise ConfigurationError(f"{key} in {place}: must be {OPTIONS[key].allowed}") from None
