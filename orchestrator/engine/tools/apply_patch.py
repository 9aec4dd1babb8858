"""`apply_patch`: several changes to several files in one call, as v4a or as a unified diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.tools.base import Order, Tool, ToolContext, ToolOutcome, define
from orchestrator.engine.tools.patching import apply_changes
from orchestrator.engine.tools.textfile import check_text
from orchestrator.engine.tools.unified import parse_unified
from orchestrator.engine.tools.v4a import parse_v4a

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.engine.tools.changes import FileChange


def apply_patch() -> Tool:
    """The tool for patches between `*** Begin Patch` and `*** End Patch`."""
    return _tool("apply_patch_v4a", parse_v4a)


def apply_unified_patch() -> Tool:
    """The tool for unified diffs; the model calls it `apply_patch` as well."""
    return _tool("apply_patch_unified", parse_unified)


def _tool(words: str, parse: Callable[[str], tuple[FileChange, ...]]) -> Tool:
    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        patch = arguments["patch"]
        check_text("patch", patch)
        return await apply_changes(context, parse(patch))

    definition = define("apply_patch", {"patch": {"type": "string"}}, ("patch",), words=words)
    return Tool(definition, execute, order=Order.ALONE)
