"""The settings of a run, merged from flags, environment and files, each with its origin."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from orchestrator.app import forms
from orchestrator.app.config import CONFIG_VARIABLE, PLUGINS, user_file
from orchestrator.app.options import (
    AUTO,
    LIMIT_FORM,
    LIMITS,
    MOST_ITEMS,
    RENAMED,
    Option,
    Options,
    Reach,
    all_options,
    choices,
    classes_of_options,
    flag_of,
    kind,
    limits_in_words,
)
from orchestrator.app.plugins import absence_of, installed
from orchestrator.core.confined import ConfinedFolder, UnsuitableFileError
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import read_named
from orchestrator.core.prompts import cut
from orchestrator.core.redaction import is_secret_name
from orchestrator.engine.models.keys import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

PREFIX = "PULLWRIGHT_"
LOCAL_FILE = "pullwright.toml"
_EXTRAS = frozenset(
    {
        "PULLWRIGHT_HOME",
        "PULLWRIGHT_MODEL_PORTS",
        CONFIG_VARIABLE,
        *(name for names in VARIABLES.values() for name in names if name.startswith(PREFIX)),
    }
)
SUITE_VARIABLES = frozenset(
    f"PULLWRIGHT_TEST_{name}"
    for name in ("AGENTS", "AXE", "BASE_URL", "CHAOS", "ENGINE", "EVERY_RECORD", "MCP")
)
"""Variables of Pullwright's own test suite. A run does not read them."""

_NAMES = frozenset({*all_options(), *RENAMED, LIMITS})
_TABLES = frozenset(table for one in installed().values() for table in one.plugin.tables)
"""The tables of the user's own file that plug-ins read themselves."""
_PERSONS = "your own config.toml"
REPOSITORIES = "repository"
"""The tables of the user's own file with the options for one repository: `[repository."owner/name"]`."""

_SWITCH_VALUES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_MAX_SHOWN_CHARS = 60
MOST_FILE_BYTES = 1_000_000
_CLOSE = 0.8
_FAR = 0.3

_SECRET_PLACES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "google": "GEMINI_API_KEY",
    "app": "PULLWRIGHT_GITHUB_APP_KEY",
    "token": "GITHUB_TOKEN",
    "github": "GITHUB_TOKEN",
    "api": "PULLWRIGHT_API_KEY",
}
_RUN_LIMITS = frozenset({"max_cycles"})
"""The limits that count for a whole run, so that a repository's file cannot set them for a cycle."""
_MAY_BE_FOREIGN = ", because that file may come from a repository; "

_PERSONAL = {
    **dict.fromkeys(sorted(_TABLES), "may set it"),
    PLUGINS: "adds plug-ins",
    REPOSITORIES: "sets options for one repository",
}
"""What only the user's own file may have beside options, and what a person does with it. `add_named_plugins` and
`_repository_tables` read it, and the plug-ins their own tables."""

if TYPE_CHECKING:

    class Settings(Options, BaseModel):
        """All options of a run. Instances are immutable."""

        def __init__(self, **values: Any) -> None:
            """Validate the values.

            Raises:
                ValidationError: a value is not allowed.
            """

else:

    def _field(option: Option) -> Any:
        limits = {"max_length": MOST_ITEMS} if option.is_list else {}
        if option.bounds:
            limits = {"gt" if option.bounds.above else "ge": option.bounds.least, "le": option.bounds.most}
        return Field(option.default, description=option.description, **limits)

    _TYPES = {
        key: value
        for one in classes_of_options()
        for key, value in get_type_hints(one, vars(forms) | {"Literal": Literal}, include_extras=True).items()
    }
    Settings = create_model(
        "Settings",
        __config__=ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False),
        __module__=__name__,
        **{key: (_TYPES[key], _field(option)) for key, option in all_options().items()},
    )


def stricter(key: str, one: Any, other: Any) -> Any:
    """Return the stricter of two values of an option that a repository may tighten."""
    if isinstance(one, tuple):
        return (*one, *(item for item in other if item not in one))
    if ranks := choices(key):
        return min(one, other, key=ranks.index)
    return min((value for value in (one, other) if value is not None), default=None)


def loosens(key: str, present: Any, wanted: Any) -> bool:
    """Return whether a wanted value is looser than the present one."""
    return not isinstance(present, tuple) and bool(stricter(key, present, wanted) != wanted)


def tightened(settings: Settings, text: str, place: str) -> tuple[Settings, list[str]]:
    """Apply the stricter rules of a repository's own file to the settings.

    If the person chose `test_command = "auto"`, the file may also say how the tests are run. Options that are
    not rules, such as the model, are ignored: they belong to the people who run the program in that folder.

    Args:
        text: the TOML file as it is on the default branch.
        place: name of the file in messages.

    Returns:
        The settings, and a line for each value that has no effect or has another name now.

    Raises:
        ConfigurationError: the file cannot be read, or a rule in it has no valid value. The author wanted a
            stricter rule, so the run must not continue without it.
    """
    values, notes = _values(text, place)
    changes: dict[str, Any] = {}
    unused = [key for key in values if key in all_options() and all_options()[key].reach is Reach.PROPOSE]
    if unused and settings.test_command != AUTO:
        notes.append(f"{', '.join(unused)} in {place}: used only with --test-command {AUTO}")
    notes += [
        f"{_as_written(table)} in {place} has no effect: only the person who runs this {does}"
        for table, does in _PERSONAL.items()
        if table in values
    ]
    for key in [key for key in all_options() if key in values]:
        match all_options()[key].reach:
            case Reach.TIGHTEN if key in _RUN_LIMITS:
                notes.append(f"{key} in {place} has no effect: it counts for the whole run, not for a cycle")
            case Reach.TIGHTEN:
                wanted = _valid(key, values[key], place)
                present = getattr(settings, key)
                changes[key] = stricter(key, present, wanted)
                if loosens(key, present, wanted):
                    notes.append(f"{key} in {place} would loosen a rule and has no effect")
            case Reach.PROPOSE if settings.test_command == AUTO:
                person = getattr(settings, key)
                changes[key] = _valid(key, values[key], place) if person in (None, AUTO) else person
            case Reach.NEVER | Reach.TYPED:
                notes.append(f"{key} in {place} has no effect: only the person who runs this may set it")
            case _:
                pass
    return settings.model_copy(update=changes), notes


def _values(text: str, place: str) -> tuple[dict[str, Any], list[str]]:
    """Parse the file. Old option names are replaced by the new ones, with a note for each."""
    values = parse_toml(text, place)
    old_names = [old for old in RENAMED if old in values]
    renamed = {RENAMED[old]: values[old] for old in old_names}
    if LIMITS in values:
        present = {key: f"{key} in {place}" for key in values}
        values |= _limits(values.pop(LIMITS), f"{LIMITS} in {place}", present)
    return renamed | values, [f"{old} in {place} is called {RENAMED[old]} now" for old in old_names]


def _valid(key: str, value: Any, place: str) -> Any:
    try:
        return getattr(Settings(**{key: value}), key)
    except ValidationError:
        # Without the value: the onboarding pull request publishes this message.
        raise ConfigurationError(f"{key} in {place}: must be {all_options()[key].allowed}") from None


class SourceKind(StrEnum):
    """The sources of a value, in order of precedence."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    LOCAL_FILE = "folder's file"
    USER_FILE = "user's file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a value. `place` is the flag, the variable or the file's path; empty for a default."""

    kind: SourceKind
    place: str

    def names(self, key: str) -> str:
        """Return the name of this key at this place, for a message."""
        if self.kind in (SourceKind.FLAG, SourceKind.ENVIRONMENT):
            return self.place
        return f"{key} in {self.place}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, the origin of each, and notices for the person, one line each.

    Attributes:
        tables: the tables of the user's own file that plug-ins read themselves.
        repositories: the repositories for which the user's own file has options, as journals name them.
    """

    settings: Settings
    origin: Mapping[str, Origin]
    notices: tuple[str, ...] = ()
    tables: frozenset[str] = frozenset()
    repositories: frozenset[str] = frozenset()

    @property
    def named_key(self) -> tuple[str | None, str]:
        """The variable with the key for the model's server, if the person names one, and the server's address."""
        named = self.settings.api_key_variable
        return named, _server_of_model(self.settings.model, self.settings.api_url) if named else ""

    @property
    def typed(self) -> dict[str, Any]:
        """The options that the person typed as flags."""
        kinds = {key: origin.kind for key, origin in self.origin.items()}
        return {key: getattr(self.settings, key) for key, kind in kinds.items() if kind is SourceKind.FLAG}


def load_settings(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    named: Callable[[Settings], str] | None = None,
) -> Loaded:
    """Load the settings: flags over environment over `./pullwright.toml` over the user's file.

    Args:
        flags: the flags that were given, by key. Text is converted as in the environment.
        environ: the environment. An empty variable counts as not set.
        named: returns the name of the run's repository in journals, given the settings without the repository's own.
            The table of the user's file for it has precedence over the rest of that file.
    """
    users, local = user_file(environ), cwd / LOCAL_FILE
    tables = _repository_tables(users)
    notices: list[str] = []
    own = _with_new_names(
        _from_file(SourceKind.USER_FILE, users, required=bool(environ.get(CONFIG_VARIABLE))), notices
    )
    folders = {} if _is_same_file(cwd, users) else _from_file(SourceKind.LOCAL_FILE, local)
    others = (folders, _from_environment(environ), _from_flags(flags))
    if named is not None and tables:
        sources = (_from_others(environ), dict(own), *map(dict, others))
        table = tables.get(named(_merged(sources, []).settings), {})
        everywhere = _server_named((own,))
        if "model" in table:  # it is at the table's address, or at its vendor's
            own.pop("api_url", None)
        own |= table
        if (
            _KEY_VARIABLE not in table and _server_named((own,)) != everywhere
        ):  # the key is for the other server
            own.pop(_KEY_VARIABLE, None)
    _leave_out_address(own, others[1:], notices)
    _leave_out_key((own, *others), notices)
    loaded = _merged((_from_others(environ), own, *others), notices)
    return replace(
        loaded,
        notices=tuple(notices),
        tables=_TABLES & (read_toml(users) or {}).keys(),
        repositories=frozenset(tables),
    )


def _leave_out_address(own: _Source, typed: Sequence[_Source], notices: list[str]) -> None:
    """Leave out the saved server's address where the person names a model of another provider than the saved one's.

    The saved model is at that address. A vendor's model, which is asked for by its provider, is not.
    """
    named = next((source["model"] for source in reversed(typed) if "model" in source), None)
    if named is None or not {"model", "api_url"} <= own.keys() or any("api_url" in one for one in typed):
        return
    from orchestrator.engine.models.catalog import UNCONNECTED, detect_provider, provider_in

    (model, by), (saved, _), (url, place) = named, own["model"], own["api_url"]
    asked = provider_in(str(model))
    if (
        asked is None
        or asked in UNCONNECTED
        or asked is (provider_in(str(saved)) or detect_provider(str(url)))
    ):
        return
    del own["api_url"]
    notices.append(
        f"{place.names('api_url')} is for {saved}, so {by.names('model')} {model} is asked at its vendor's server"
    )


_KEY_VARIABLE = "api_key_variable"


def _leave_out_key(sources: Sequence[_Source], notices: list[str]) -> None:
    """Leave out the named variable of a key where a later source names another server: the key is not for that one.

    Args:
        sources: the one with the highest precedence last.
    """
    named = [at for at, source in enumerate(sources) if _KEY_VARIABLE in source]
    if not named or sources[named[-1]][_KEY_VARIABLE][1].kind is SourceKind.LOCAL_FILE:
        return
    before, now = (_server_named(some) for some in (sources[: named[-1] + 1], sources))
    if before == now:
        return
    variable, place = sources[named[-1]][_KEY_VARIABLE]
    for source in sources:
        source.pop(_KEY_VARIABLE, None)
    is_asked = now or not before  # the echo and a recorded run ask no server
    if is_asked and not any(variable in usual for usual in VARIABLES.values()):
        notices.append(
            f"{place.names(_KEY_VARIABLE)} is for {before or 'the model beside it, and there is none'}, "
            f"so {variable} is not used"
        )


def _server_named(sources: Iterable[_Source]) -> str:
    """Return the address of the model's server, as some sources name it; empty if they do not."""
    found: dict[str, str] = {}
    for source in sources:
        found |= {key: str(source[key][0]) for key in ("model", "api_url") if key in source}
    return _server_of_model(found.get("model"), found.get("api_url"))


def _server_of_model(model: str | None, api_url: str | None) -> str:
    """Return the address of a model's server; empty if nothing names it."""
    from orchestrator.engine.models.catalog import OFFICIAL_URLS, provider_in

    provider = provider_in(model or "")
    return (api_url or (OFFICIAL_URLS.get(provider, "") if provider else "")).rstrip("/")


def _merged(sources: Iterable[_Source], notices: list[str]) -> Loaded:
    """Merge sources, the one with the highest precedence last, and add lines for the person to `notices`."""
    values: dict[str, Any] = {}
    origin = dict.fromkeys(all_options(), Origin(SourceKind.DEFAULT, ""))
    proposed: dict[str, list[str]] = {}
    for source in sources:
        for key, (value, place) in _with_new_names(source, notices).items():
            check_value(key, value, place)
            if all_options()[key].reach is Reach.PROPOSE and place.kind is SourceKind.LOCAL_FILE:
                proposed.setdefault(place.place, []).append(key)
                continue
            present = values.get(key, all_options()[key].default)
            wanted = tuple(value) if isinstance(value, list) else value
            values[key], origin[key] = _within_reach(key, wanted, present, place), place
    if proposed and values.get("test_command") != AUTO:
        notices += [
            f"{', '.join(keys)} in {file}: used only with --test-command {AUTO}, and as it is on the default branch"
            for file, keys in proposed.items()
        ]
    return Loaded(Settings(**values), origin)


def _repository_tables(users: Path) -> dict[str, _Source]:
    """Read the tables of the user's file for single repositories, by the repository's name."""
    tables = (read_toml(users) or {}).get(REPOSITORIES, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigurationError(
            f'{REPOSITORIES} in {users} must have a table for each repository, such as [{REPOSITORIES}."owner/name"]'
        )
    found: dict[str, _Source] = {}
    for name, table in tables.items():
        place = Origin(SourceKind.USER_FILE, f"{users}, {REPOSITORIES} {name}")
        for key in table:
            if key not in _NAMES:
                raise ConfigurationError(unknown_key(key, place.place))
        source = _with_new_names({key: (value, place) for key, value in table.items()}, [])
        for key, (value, _) in source.items():
            check_value(key, value, place)
        found[name] = source
    return found


def _is_same_file(folder: Path, users: Path) -> bool:
    """Return whether the user's file is that of the folder, too."""
    try:
        with ConfinedFolder(folder) as opened:
            return os.path.samestat(opened.stat(LOCAL_FILE).status, users.stat())
    except OSError:
        return False


_Source: TypeAlias = dict[str, tuple[Any, Origin]]


def _with_new_names(source: _Source, notices: list[str]) -> _Source:
    """Replace old names of options. A value under the new name has precedence."""
    for old, new in RENAMED.items():
        if old in source:
            value, place = source.pop(old)
            notices.append(f"{place.names(old)} is called {_named_as(place, new)} now")
            source.setdefault(new, (value, place))
    if LIMITS in source:
        words, place = source.pop(LIMITS)
        present = {key: origin.names(key) for key, (_, origin) in source.items()}
        limits = _limits(words, place.names(LIMITS), present)
        source |= {key: (value, place) for key, value in limits.items()}
    return source


def _limits(words: Any, named: str, present: Mapping[str, str]) -> dict[str, float]:
    """Return the options that limits in words stand for.

    Args:
        words: a text, or a list of texts.
        named: where they stand, for a message.
        present: the options that the same source sets by their own names, and where, for a message.
    """
    texts = [words] if isinstance(words, str) else words
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigurationError(f"{named} must be a text or a list of texts, like {LIMIT_FORM}")
    try:
        limits = limits_in_words(" ".join(texts))
    except ValueError as error:
        raise ConfigurationError(f"{named}: {error}") from None
    for key in limits.keys() & present.keys():
        raise ConfigurationError(f"{named} and {present[key]} are the same limit: leave out one")
    return limits


def _from_flags(flags: Mapping[str, Any]) -> _Source:
    source: _Source = {}
    for key, value in flags.items():
        if key not in _NAMES:
            raise ConfigurationError(f"there is no option {key!r}; {_nearest(key)}")
        source[key] = typed(key, value), Origin(SourceKind.FLAG, flag_of(key))
    return source


def _from_others(environ: Mapping[str, str]) -> _Source:
    """Read the variables of other programs, such as `GITHUB_SERVER_URL`, which GitHub Actions sets."""
    named = {key: one.variable for key, one in all_options().items() if one.variable}
    said = {key: environ.get(variable, "").strip() for key, variable in named.items()}
    return {key: (value, Origin(SourceKind.ENVIRONMENT, named[key])) for key, value in said.items() if value}


def _from_environment(environ: Mapping[str, str]) -> _Source:
    source: _Source = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in _EXTRAS or variable in SUITE_VARIABLES:
            continue
        key = variable.removeprefix(PREFIX).lower()
        if absent := absence_of(flag_of(key)):
            raise ConfigurationError(f"{variable} in the environment: {absent}")
        if key not in _NAMES or variable != variable.upper():
            near = nearest_to(variable, [*(f"{PREFIX}{key.upper()}" for key in all_options()), *_EXTRAS])
            raise ConfigurationError(
                f"the environment variable {variable} names no option; the nearest is {near}"
            )
        if environ[variable]:
            source[key] = typed(key, environ[variable]), Origin(SourceKind.ENVIRONMENT, variable)
    return source


def read_toml(path: Path, *, is_read_once: bool = False) -> dict[str, Any] | None:
    """Read a TOML file that a person names, or their own one; return None if there is no such file.

    Args:
        is_read_once: whether the file may be a pipe.
    """
    try:
        content = read_named(path, MOST_FILE_BYTES, is_read_once=is_read_once)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    return _toml_of(content, path)


def read_local_toml(folder: Path) -> dict[str, Any] | None:
    """Read the file of a repository's folder; return None if there is none. Nothing but a regular file is opened."""
    text = read_local_text(folder)
    return None if text is None else parse_toml(text, folder / LOCAL_FILE)


def read_local_text(folder: Path) -> str | None:
    """Return the text of the file of a repository's folder; see `read_local_toml`."""
    path = folder / LOCAL_FILE
    try:
        with ConfinedFolder(folder) as opened:
            return opened.read(LOCAL_FILE, MOST_FILE_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsuitableFileError as error:
        raise ConfigurationError(f"{path} {error.strerror}: make it a regular file, or remove it") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


def _toml_of(content: bytes, path: Path) -> dict[str, Any]:
    try:
        return parse_toml(content.decode(), path)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


def parse_toml(text: str, place: str | Path) -> dict[str, Any]:
    """Parse TOML.

    Args:
        place: name of the file in the message.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a plain ValueError: more digits than Python reads
        raise ConfigurationError(f"{place} is not valid TOML: {error}") from None


def as_toml(value: Any) -> str:
    """Return a text or a number as TOML."""
    if not isinstance(value, str):
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_json_file(path: Path, *, flag: str = "") -> Any:
    """Read a JSON file in UTF-8, UTF-16 or UTF-32, with or without a byte order mark; else in Windows' encoding.

    Comments and commas before closing brackets are accepted, as VS Code's files have them.

    Args:
        flag: the flag that names the file, for error messages.
    """
    named = f"{flag} {path}".strip()
    try:
        data = read_named(path, MOST_FILE_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{named} cannot be read: {error.strerror or error}") from error
    try:
        text = _decoded(data)
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(_plain_json(text))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{named} is not valid JSON: {str(error)[:200]}") from None


_MARK = re.compile(r'\\.|"|//|/\*|\*/|[\n,}\]]', re.DOTALL)
_ENDS = {'"': '"', "//": "\n", "/*": "*/"}


def _plain_json(text: str) -> str:
    """Return a JSON text without comments, and without commas before closing brackets."""
    kept: list[str] = []
    start, awaited, comma = 0, "", -1
    for match in _MARK.finditer(text):
        mark = match[0]
        if awaited:
            if mark == awaited:
                start = start if mark == '"' else match.start() if mark == "\n" else match.end()
                awaited = ""
            continue
        awaited = _ENDS.get(mark, "")
        if awaited and mark != '"':
            kept.append(text[start : match.start()])
        elif mark in "}]" and comma >= start and not text[comma + 1 : match.start()].strip():
            kept.append(text[start:comma])
            start = comma + 1
        comma = match.start() if mark == "," else comma
    return "".join([*kept, text[start:] if awaited in {"", '"'} else ""])


def _decoded(data: bytes) -> str:
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("cp1252")


def _from_file(kind: SourceKind, path: Path, *, required: bool = False) -> _Source:
    is_local = kind is SourceKind.LOCAL_FILE
    values = read_local_toml(path.parent) if is_local else read_toml(path)
    if values is None:
        if required:
            raise ConfigurationError(f"{CONFIG_VARIABLE} names {path}, which does not exist")
        return {}
    for table in _PERSONAL:
        if values.pop(table, None) is not None and kind is not SourceKind.USER_FILE:
            raise ConfigurationError(
                f"{_as_written(table)} in {path} has no effect there{_MAY_BE_FOREIGN}write it into {_PERSONS}"
            )
    for key in values:
        if key not in _NAMES:
            raise ConfigurationError(unknown_key(key, path))
    return {key: (value, Origin(kind, str(path))) for key, value in values.items()}


def _as_written(table: str) -> str:
    return table if table == PLUGINS else f"[{table}]"


def unknown_key(key: str, path: Path | str) -> str:
    """Return a message for an unknown key in a file: the nearest option, or where a secret belongs."""
    plain = key.lower().replace("-", "_")
    if absent := absence_of(flag_of(plain)) or absence_of(f"[{key}]"):
        return f"{key} in {path}: {absent}"
    similar = difflib.get_close_matches(plain, all_options(), n=1, cutoff=_CLOSE)
    if not similar and is_secret_name(plain):
        variable = next(
            (name for word, name in _SECRET_PLACES.items() if word in plain), "PULLWRIGHT_API_KEY"
        )
        return f"{path} holds {key!r}: keys do not belong in files; set the environment variable {variable} instead"
    return f"{path} holds the unknown key {key!r}; {_nearest(plain)}"


def _nearest(key: str) -> str:
    return f"the nearest known one is {nearest_to(key, all_options())!r}"


def nearest_to(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to this one."""
    choices = sorted(known)
    return next(iter(difflib.get_close_matches(name, choices, n=1, cutoff=_FAR)), choices[0])


def typed(key: str, value: Any) -> Any:
    """Convert text from a flag or the environment to the option's type.

    Text that cannot be converted stays text, and validation refuses it.
    """
    if not isinstance(value, str) or key == LIMITS:
        return value
    wanted, text = kind(RENAMED.get(key, key)), value.strip()
    if wanted is bool:
        return _SWITCH_VALUES.get(text.lower(), value)
    if wanted is str:
        return value
    if wanted is tuple:
        between = "\n" if "\n" in text else ","
        return [item.strip() for item in text.split(between) if item.strip()]
    try:
        return wanted(text)
    except ValueError:
        return value


def check_value(key: str, value: Any, origin: Origin) -> None:
    """Check that an option allows this value."""
    try:
        Settings(**{key: value})
    except ValidationError:
        shown = "" if key == _KEY_VARIABLE else f" = {_shown(value)}"  # somebody may give the key itself
        raise ConfigurationError(
            f"{origin.names(key)}{shown}: must be {all_options()[key].allowed}"
        ) from None


def _shown(value: Any) -> str:
    try:
        shown = (
            str(value).lower() if isinstance(value, bool) else repr(value)
        )  # as it was typed, so that it is redacted
    except ValueError:  # a hexadecimal number of TOML may have more decimal digits than Python converts
        return "a number with too many digits"
    return cut(shown, _MAX_SHOWN_CHARS)


def _within_reach(key: str, value: Any, present: Any, origin: Origin) -> Any:
    """Return the value if this source may set it. The folder's file may come from a repository.

    Args:
        value: the value of this source.
        present: the value of the sources with lower precedence.
    """
    match all_options()[key].reach, origin.kind:
        case Reach.TYPED, SourceKind.ENVIRONMENT | SourceKind.LOCAL_FILE | SourceKind.USER_FILE if (
            value != present
        ):
            raise ConfigurationError(f"{origin.names(key)} has no effect there: type {flag_of(key)}")
        case Reach.NEVER, SourceKind.LOCAL_FILE:
            raise ConfigurationError(
                f"{origin.names(key)} has no effect there{_MAY_BE_FOREIGN}{_elsewhere(key)}"
            )
        case Reach.TIGHTEN, SourceKind.LOCAL_FILE:
            if loosens(key, present, value):
                raise ConfigurationError(
                    f"{origin.names(key)} may only be stricter there{_MAY_BE_FOREIGN}{_elsewhere(key)}"
                )
            return stricter(key, present, value)
        case _:
            return value


def _elsewhere(key: str) -> str:
    return f"pass {flag_of(key)} or set {PREFIX}{key.upper()}"


def _named_as(place: Origin, key: str) -> str:
    """Return the name of an option in a source of this kind."""
    match place.kind:
        case SourceKind.FLAG:
            return flag_of(key)
        case SourceKind.ENVIRONMENT:
            return f"{PREFIX}{key.upper()}"
        case _:
            return key
