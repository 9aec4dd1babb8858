"""Draw the picture of the README: what `pullwright run --demo` prints on a terminal.

The program runs in a terminal of its own, so the picture shows what a person sees. Only the folder of its state is
shown under another name.
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
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/run.svg"
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
