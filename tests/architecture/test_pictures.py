from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pictures import PICTURE, PICTURES, run_picture, screen, steady

if TYPE_CHECKING:
    from pathlib import Path


def test_the_readmes_picture_is_what_the_program_draws() -> None:
    drawn, committed = steady(run_picture()), steady(PICTURE.read_text("utf-8"))
    assert ("terminal-r1", "$ pullwright run --demo") in committed
    assert drawn == committed, "draw it anew: python -m tests.pages"


@pytest.mark.parametrize("path", [path for path in PICTURES if path != PICTURE], ids=lambda path: path.name)
def test_a_drawing_is_what_the_code_says(path: Path) -> None:
    assert PICTURES[path]() == path.read_text("utf-8"), "draw it anew: python -m tests.pages"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_loads_nothing(path: Path) -> None:
    picture = path.read_text("utf-8")
    assert "url(" not in picture.replace("url(#terminal-", "")
    assert "href" not in picture


def test_a_screen_keeps_what_stays_on_a_terminal() -> None:
    status = "\x1b[?25lone\r\n\x1b[1mworks\r\n  more\x1b[0m\r\x1b[2K\x1b[1A\x1b[2Kdone\r\n\x1b[?25h"
    assert screen(status) == ["one", "done", ""]
