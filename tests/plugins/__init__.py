from __future__ import annotations

import re
from typing import Any

import pytest

from orchestrator.app.plugins import installed, own_names


def is_of_absent_plugin(text: str) -> bool:
    """Return whether a text names a file of a plug-in whose folder is not there, so that a table of files goes on."""
    return any(name not in own_names() for name in re.findall(r"\bplugins/(\w+)/", text))


def part_of(plugin: str, reference: str) -> Any:
    """Return what a plug-in has at `.module:attribute`, for a test of the rest. The test is skipped without the plug-in."""
    if plugin not in own_names():
        pytest.skip(f"the plug-in {plugin} is not there")
    return installed()[plugin].load(reference)
