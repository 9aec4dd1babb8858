"""How the tools are called that a request offers, and which parameters they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.engine.models.base import Request

SHELLS = ("run_shell_command", "shell_command", "shell")
_NAMES = {
    "shell": SHELLS,
    "read": ("read_file",),
    "write": ("write_file", "apply_patch"),
    "edit": ("edit_file", "apply_patch"),
    "remove": ("apply_patch",),
    "list": ("list_dir",),
    "grep": ("grep", "grep_files"),
    "glob": ("glob",),
    "fetch": ("web_open", "web_fetch"),
    "search": ("web_search",),
    "propose": ("create_pull_request",),
    "ask": ("ask_question",),
    "finish": ("finish",),
}
_PARAMETERS = {
    "path": ("path", "file_path", "dir_path"),
    "old": ("old_text", "old_string"),
    "new": ("new_text", "new_string"),
    "question": ("question_text",),
}


def offered_tools(request: Request) -> dict[str, tuple[str, ...]]:
    """The names of the tools on offer, each with its parameters."""
    if request.tools:
        return {tool.name: tuple(tool.parameters.get("properties", {})) for tool in request.tools}
    found: dict[str, tuple[str, ...]] = {}
    if request.output_schema is not None:
        _collect(request.output_schema.schema, found)
    return found


def _collect(schema: Any, found: dict[str, tuple[str, ...]]) -> None:
    """Find every call that a plan's schema allows, wherever it stands."""
    if isinstance(schema, list):
        for item in schema:
            _collect(item, found)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict) and {"tool_name", "arguments"} <= set(properties):
            for name in properties["tool_name"].get("enum", ()):
                found[name] = tuple(properties["arguments"].get("properties", {}))
            return
        for item in schema.values():
            _collect(item, found)


def as_call(
    tool: str, arguments: Mapping[str, Any], offered: Mapping[str, tuple[str, ...]]
) -> tuple[str, dict[str, Any]]:
    """An order's tool and arguments as the profile at hand names them.

    A tool that is not on offer is called by its usual name all the same: a model does that, too.
    """
    names = _NAMES.get(tool, (tool,))
    name = next((name for name in names if name in offered), names[0])
    if name == "apply_patch" and tool in {"write", "edit", "remove"}:
        return name, {"patch": _patch(tool, arguments, unified="grep_files" in offered)}
    known = offered.get(name)
    return name, {_parameter(key, known): value for key, value in arguments.items()}


def _parameter(key: str, known: tuple[str, ...] | None) -> str:
    choices = _PARAMETERS.get(key, (key,))
    return next((name for name in choices if known and name in known), choices[0])


def _patch(tool: str, arguments: Mapping[str, Any], *, unified: bool) -> str:
    path = str(arguments.get("path", ""))
    if tool == "write":
        added = str(arguments.get("content", "")).split("\n")
        lines = [f"+{line}" for line in (added[:-1] if added[-1:] == [""] else added)]
        if unified:
            head = ["--- /dev/null", f"+++ b/{path}", f"@@ -0,0 +1,{len(lines)} @@"]
            return "\n".join([*head, *lines, ""])
        return "\n".join(["*** Begin Patch", f"*** Add File: {path}", *lines, "*** End Patch"])
    old = str(arguments.get("old", "")).rstrip("\n").split("\n")
    new = str(arguments.get("new", "")).rstrip("\n").split("\n")
    changed = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    if unified:
        head = [f"--- a/{path}", f"+++ b/{path}", f"@@ -1,{len(old)} +1,{len(new)} @@"]
        return "\n".join([*head, *changed, ""])
    if tool == "remove":
        return "\n".join(["*** Begin Patch", f"*** Delete File: {path}", "*** End Patch"])
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", "@@", *changed, "*** End Patch"])
