from __future__ import annotations

import re

from orchestrator.app.plugins import own_names


def is_of_absent_plugin(text: str) -> bool:
    """Return whether a text names a file of a plug-in whose folder is not there, so that a table of files goes on."""
    return any(name not in own_names() for name in re.findall(r"\bplugins/(\w+)/", text))
