"""A path that leads nowhere often has a right file name: says where files of that name are."""

from __future__ import annotations

import glob
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import ToolContext

_MOST_NAMED = 3


async def did_you_mean(context: ToolContext, path: str) -> str:
    """A question that names files with the last part of this path, after a space; empty if there are none."""
    name = PurePosixPath(path).name
    try:
        found = await context.environment.glob(f"**/{glob.escape(name)}", ".") if name else []
    except ToolError:
        return ""
    return f" Did you mean {' or '.join(found[:_MOST_NAMED])}?" if found else ""
