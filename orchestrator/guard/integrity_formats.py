"""Reads files of settings: TOML, JSON and INI."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ERRORS = (ValueError, configparser.Error, RecursionError)
_MANY = 20_000


def read(reader: Callable[[bytes], Any], source: bytes) -> dict[str, Any] | None:
    """Each setting of a file by its dotted key, or None where the file cannot be read."""
    try:
        return _flat(reader(source)) if source.strip() else {}
    except _ERRORS:
        return None


def reader_for(name: str) -> Callable[[bytes], Any] | None:
    """What reads a settings file of this name, or None where no parser does."""
    if name.endswith(".toml"):
        return lambda source: tomllib.loads(source.decode("utf-8"))
    if name.endswith((".json", ".jsonc")) or name in {
        ".nycrc",
        ".eslintrc",
        ".mocharc",
        ".jshintrc",
        ".c8rc",
    }:
        return _json
    if name.endswith((".cfg", ".ini")) or name in {
        ".coveragerc",
        ".flake8",
        ".pylintrc",
        "pylintrc",
        ".importlinter",
    }:
        return _ini
    return None


def _json(source: bytes) -> Any:
    """JSON with comments and trailing commas, as editors' settings have them."""
    text = source.decode("utf-8-sig")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        bare = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//"))
        return json.loads(re.sub(r",(\s*+[}\]])", r"\1", bare))


def _ini(source: bytes) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(source.decode("utf-8"))
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _flat(data: Any) -> dict[str, Any]:
    """Each setting by its dotted key. Lists stay whole; overrides are named by their modules."""
    flat: dict[str, Any] = {}
    todo: list[tuple[str, Any]] = [("", data)]
    while todo and len(flat) < _MANY:
        key, value = todo.pop()
        if isinstance(value, dict):
            todo.extend((f"{key}.{name}" if key else str(name), inner) for name, inner in value.items())
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            for one in value:
                module = str(one.get("module", one.get("name", one.get("files", ""))))
                todo.extend((f"{key}[{module}].{name}", inner) for name, inner in one.items())
        else:
            flat[key] = value
    return flat
