"""Write what the documentation tells of the program by itself: the table of options, and the README's picture.

python -m tests.pages
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.app.options import OPTIONS, flag_of, kind
from tests.pictures import PICTURE, run_picture

OPTIONS_PAGE = Path(__file__).parents[1] / "docs/options.md"
_HEAD = "| key | flag | default | what it is |\n|---|---|---|---|\n"
_TABLE = re.compile(rf"{re.escape(_HEAD)}(?:\|.*\n)*")


def option_table() -> str:
    """The table of all options, as Markdown."""
    return _HEAD + "".join(map(_row, OPTIONS))


def _row(key: str) -> str:
    option = OPTIONS[key]
    default = str(option.default).lower() if kind(key) is bool else option.default
    shown = "" if default in {None, ()} else f"`{default}`"
    return f"| `{key}` | `{flag_of(key)}` | {shown} | {option.description} |\n"


if __name__ == "__main__":
    page = OPTIONS_PAGE.read_text(encoding="utf-8")
    OPTIONS_PAGE.write_text(_TABLE.sub(lambda _: option_table(), page), encoding="utf-8")
    PICTURE.write_text(run_picture(), encoding="utf-8")
