"""Draw the pictures of the documentation: a run on a terminal, the packages with their layers, and a cycle.

The program runs in a terminal of its own, so the picture shows what a person sees. Only the folder of its state is
shown under another name. The layers are those that import-linter checks.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import tomllib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from orchestrator.core.cycle_events import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
PICTURE = IMAGES / "run.svg"
COMMAND = ("run", "--demo")

_COLUMNS = 104
"""Of the picture. The program itself gets a terminal so wide that it breaks no line."""
_WIDE = 400
_SHOWN_HOME = "/home/ada/.local/state/pullwright"
_CONTROL = re.compile(r"\x1b\[(\d*)([AK])|\x1b\[\?25[hl]|\r|\n|(?:\x1b\[[\d;]*m|[^\x1b\r\n])+")
_REMOTE_FONTS = re.compile(r"\s*@font-face \{\{.*?\}\}", re.DOTALL)
_FONT = "Fira Code, monospace"
_LOCAL_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
_TEXTS = re.compile(r'<text class="(terminal-\w+)"[^>]*>([^<]*)</text>')
_CHANGING = re.compile(r"[^\s&;]*\d[^\s&;]*|\b[a-f]{10}\b")
"""What may differ from run to run: every word with a digit, and a commit's id."""


def printed(*argv: str) -> str:
    """What the program writes to a terminal, with its colours and cursor movements.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="pullwright-picture-") as home:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PULLWRIGHT_HOME": home,
            "TERM": "xterm-256color",
        }
        environ |= {"LANG": "C.UTF-8", "COLUMNS": str(_WIDE)}
        ours, programs = pty.openpty()
        fcntl.ioctl(programs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _WIDE, 0, 0))
        read = io.BytesIO()
        reader = threading.Thread(target=_read_all, args=(ours, read))
        reader.start()
        try:
            command = [sys.executable, str(ROOT / "run_local_agent.py"), *argv]
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=programs, stderr=programs, env=environ, check=True
            )
        finally:
            os.close(programs)
            reader.join()
            os.close(ours)
        return read.getvalue().decode().replace(home, _SHOWN_HOME)


def _read_all(terminal: int, into: io.BytesIO) -> None:
    while True:
        try:
            into.write(os.read(terminal, 65_536))
        except OSError:  # Linux says so when the program has closed its side
            return


def screen(output: str) -> list[str]:
    """The lines that stay on the terminal, with their colours. It obeys what rich's live display writes."""
    rows, row = [""], 0
    for found in _CONTROL.finditer(output):
        number, letter = found.groups()
        if letter == "A":
            row -= int(number or 1)
        elif letter == "K":
            rows[row] = ""
        elif found.group() == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif not found.group().startswith(("\r", "\x1b[?")):
            rows[row] += found.group()
    return [line.rstrip() for line in rows]


def draw(lines: list[str], title: str) -> str:
    """The lines as a picture of a terminal, which loads nothing from elsewhere."""
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    for line in [f"$ {title}", *lines]:
        text = Text.from_ansi(line)
        console.print(text, overflow="fold", no_wrap=False)
    template = _REMOTE_FONTS.sub("", CONSOLE_SVG_FORMAT).replace(_FONT, _LOCAL_FONTS)
    picture = console.export_svg(title=title, code_format=template, unique_id="terminal")
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def steady(picture: str) -> list[tuple[str, str]]:
    """The styles and texts of a picture, without what differs from run to run."""
    texts = [(style, text.replace("&#160;", " ")) for style, text in _TEXTS.findall(picture)]
    return [(style, _CHANGING.sub("#", text)) for style, text in texts]


def run_picture() -> str:
    """The picture of the README, drawn anew."""
    lines = screen(printed(*COMMAND))
    while lines and not lines[-1]:
        lines.pop()
    return draw(lines, f"pullwright {' '.join(COMMAND)}")


_WIDTH, _ROW, _GAP, _LABEL = 860, 30, 8, 150
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .name { font-weight: 600; font-size: 15px }
  .small { font-size: 12px; fill: #59636e }
  .package { fill: #f6f8fa; stroke: #d1d9e0 }
  .box { fill: #fff; stroke: #8c959f }
  .line { stroke: #59636e; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .package { fill: #151b23; stroke: #3d444d }
    .box { fill: #0d1117; stroke: #656c76 } .line { stroke: #9198a1 }
  }
"""
_PACKAGES = {
    "app": "the program: what a person starts",
    "bot": "the pull-request bot",
    "engine": "the agent loop: a library",
    "core": "words that all share",
}
_STEPS = {
    Phase.CHOOSE: ("claim", "a task, so that no other worker does it"),
    Phase.CLONE: ("clone", "into a temporary folder"),
    Phase.PLAN: ("plan", "the model replies with a plan and calls"),
    Phase.ACT: ("act", "the calls run, results go back, until it is done"),
    Phase.VERIFY: ("verify", "the host runs the repository's tests"),
    Phase.PROPOSE: ("propose", "the host commits, pushes, and opens the pull request"),
    Phase.FINISH: ("finish", "outcome, comment, journal; the clone is removed"),
}
"""Each phase of a cycle, by its name in the documentation, with what happens in it."""


def packages_picture() -> str:
    """The packages and the layers inside them, each of which imports only from those below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}
    parts, top = [], 10
    for package in (one for one in layers["orchestrator"] if one in _PACKAGES):
        rows = layers.get(f"orchestrator.{package}", [])
        height = max(len(rows), 1) * (_ROW + _GAP) + 2 * _GAP
        parts.append(
            f'<rect class="package" x="10" y="{top}" width="{_WIDTH - 20}" height="{height}" rx="6"/>'
        )
        parts.append(_text(24, top + 26, package, "name"))
        parts += [
            _text(24, top + 46 + 16 * number, line, "small")
            for number, line in enumerate(_two_lines(_PACKAGES[package]))
        ]
        for number, row in enumerate(rows):
            parts += _boxes(
                [name.strip() for name in row.split("|")], top + 2 * _GAP + number * (_ROW + _GAP)
            )
        top += height + _GAP
    return _svg(parts, top + 2, "The packages of Pullwright and their layers")


def cycle_picture() -> str:
    """The parts of a cycle, from top to bottom."""
    parts, top = [], 10
    for phase in Phase:
        name, words = _STEPS[phase]
        parts.append(f'<rect class="box" x="10" y="{top}" width="130" height="{_ROW}" rx="6"/>')
        parts.append(f'<text class="name" x="75" y="{top + 20}" text-anchor="middle">{escape(name)}</text>')
        parts.append(_text(160, top + 20, words))
        if phase is not Phase.FINISH:
            parts.append(f'<path class="line" d="M75 {top + _ROW} v{_GAP + 6} m-4 -5 l4 5 l4 -5"/>')
        top += _ROW + _GAP + 6
    return _svg(parts, top, "One cycle, from top to bottom", width=560)


def _boxes(names: Sequence[str], top: int) -> list[str]:
    room = _WIDTH - _LABEL - 40
    width = (room - _GAP * (len(names) - 1)) / len(names)
    parts = []
    for number, name in enumerate(names):
        left = _LABEL + 20 + number * (width + _GAP)
        parts.append(
            f'<rect class="box" x="{left:.0f}" y="{top}" width="{width:.0f}" height="{_ROW}" rx="4"/>'
        )
        parts.append(
            f'<text x="{left + width / 2:.0f}" y="{top + 20}" text-anchor="middle">{escape(name)}</text>'
        )
    return parts


def _two_lines(words: str) -> list[str]:
    head, colon, rest = words.partition(": ")
    return [f"{head}{colon}".strip(), rest] if rest else [head]


def _text(left: int, top: int, words: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{left}" y="{top}">{escape(words)}</text>'


def _svg(parts: Sequence[str], height: int, title: str, width: int = _WIDTH) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return (
        "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", *parts, "</svg>"])
        + "\n"
    )


PICTURES: dict[Path, Callable[[], str]] = {
    PICTURE: run_picture,
    IMAGES / "packages.svg": packages_picture,
    IMAGES / "cycle.svg": cycle_picture,
}
