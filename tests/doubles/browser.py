"""The system's Chromium, driven by Playwright; and axe-core, where `PULLWRIGHT_TEST_AXE` names a folder that has it.

`npm install --prefix FOLDER` with `AXE` makes the folder. Playwright brings no browser of its own along.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

AXE = "axe-core@4.14.1"
FOLDER = os.environ.get("PULLWRIGHT_TEST_AXE", "")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, or the test is skipped."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def axe(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, with the place of each; or the test is skipped."""
    script = Path(FOLDER) / "node_modules" / "axe-core" / "axe.min.js"
    if not FOLDER or not script.is_file():
        pytest.skip("PULLWRIGHT_TEST_AXE names no folder with axe-core")
    page.evaluate(script.read_text(encoding="utf-8"))  # not as a script of the page: its policy allows none
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
