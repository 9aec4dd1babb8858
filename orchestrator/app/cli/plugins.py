"""`pullwright plugins`: lists the plug-ins, with what each adds and how many lines it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE
from orchestrator.app.cli.output import text_columns
from orchestrator.app.options import flag_of, options_of
from orchestrator.app.plugins import FOLDER, HOMES, installed
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from orchestrator.app.plugins import InstalledPlugin

_INDENT = "    "


def plugins(options: argparse.Namespace) -> int:
    """List the plug-ins, and those of the program that are not there."""
    found = {name: _description(one) for name, one in installed().items()}
    found |= {name: {"name": name, "is_there": False} for name in HOMES if name not in found}
    for name in sorted(found):
        if options.json:
            print_json(found[name])
        else:
            print("\n".join(_lines(found[name])))
    return DONE


def _description(one: InstalledPlugin) -> dict[str, Any]:
    plugin = one.plugin
    return {
        "name": plugin.name,
        "is_there": True,
        "text": plugin.text,
        "lines": one.lines(),
        "commands": list(plugin.commands),
        "options": list(options_of(one)),
        "tables": list(plugin.tables),
        "adds": sorted(plugin.adds),
        "needs": list(plugin.needs),
        "uses": list(plugin.uses),
        "extra": plugin.extra,
        "folder": "" if one.folder.startswith(f"{FOLDER}/") else one.folder,
    }


def _lines(one: dict[str, Any]) -> Iterator[str]:
    import textwrap

    if not one["is_there"]:
        yield f"{one['name']}: its folder is not there"
        return
    yield f"{clean(one['name'])}: {clean(one['text'])} ({counted(one['lines'], 'line')})"
    parts = (
        ("commands", one["commands"]),
        ("options", [flag_of(key) for key in one["options"]]),
        ("tables of config.toml", [f"[{table}]" for table in one["tables"]]),
        ("also adds", one["adds"]),
        ("needs the plug-ins", one["needs"]),
        ("uses the plug-ins", one["uses"]),
        ("needs the extra", [one["extra"]] if one["extra"] else []),
        ("from", [one["folder"]] if one["folder"] else []),
    )
    for title, values in parts:
        if values:
            line = f"{title}: {', '.join(map(clean, values))}"
            yield textwrap.fill(
                line,
                text_columns(),
                initial_indent=_INDENT,
                subsequent_indent=_INDENT * 2,
                break_on_hyphens=False,
                break_long_words=False,
            )
