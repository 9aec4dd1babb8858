"""Cut the operations that Pullwright uses out of GitHub's OpenAPI description.

Run by hand: `python cut.py path/to/generated/api.github.com.json > openapi-subset.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPERATIONS = {
    "/app/installations/{installation_id}/access_tokens": ("post",),
    "/rate_limit": ("get",),
    "/repos/{owner}/{repo}": ("get",),
    "/repos/{owner}/{repo}/attestations/{subject_digest}": ("get",),
    "/repos/{owner}/{repo}/check-runs": ("post",),
    "/repos/{owner}/{repo}/check-runs/{check_run_id}": ("patch",),
    "/repos/{owner}/{repo}/collaborators/{username}/permission": ("get",),
    "/repos/{owner}/{repo}/commits/{ref}/check-runs": ("get",),
    "/repos/{owner}/{repo}/commits/{ref}/status": ("get",),
    "/repos/{owner}/{repo}/compare/{basehead}": ("get",),
    "/repos/{owner}/{repo}/contents/{path}": ("get",),
    "/repos/{owner}/{repo}/git/ref/{ref}": ("get",),
    "/repos/{owner}/{repo}/installation": ("get",),
    "/repos/{owner}/{repo}/issues": ("get", "post"),
    "/repos/{owner}/{repo}/issues/comments/{comment_id}": ("delete", "patch"),
    "/repos/{owner}/{repo}/issues/{issue_number}": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ("get", "post"),
    "/repos/{owner}/{repo}/issues/{issue_number}/dependencies/blocked_by": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/events": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/labels": ("get", "post"),
    "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}": ("delete",),
    "/repos/{owner}/{repo}/issues/{issue_number}/sub_issues": ("get",),
    "/repos/{owner}/{repo}/labels": ("post",),
    "/repos/{owner}/{repo}/labels/{name}": ("get",),
    "/repos/{owner}/{repo}/pulls": ("get", "post"),
    "/repos/{owner}/{repo}/pulls/{pull_number}": ("get", "patch"),
    "/repos/{owner}/{repo}/rules/branches/{branch}": ("get",),
    "/repos/{owner}/{repo}/rulesets/{ruleset_id}": ("get",),
    "/user": ("get",),
}
TEXT_ONLY = frozenset({"description", "example", "examples", "externalDocs", "summary", "tags", "title"})


def without_text(node: Any, *, names: bool = False) -> Any:
    """The node without words for people.

    Args:
        node: any part of the description.
        names: the keys of this object are names that the API gave (properties, headers), so a
            property called `title` stays.
    """
    if isinstance(node, list):
        return [without_text(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_text(value, names=key in {"properties", "headers", "patternProperties"} and not names)
        for key, value in node.items()
        if names or (key not in TEXT_ONLY and not key.startswith("x-"))
    }


def references(node: Any) -> set[str]:
    """Every local `$ref` below the node."""
    if isinstance(node, list):
        return {found for item in node for found in references(item)}
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    return own | {found for value in node.values() for found in references(value)}


def cut(whole: dict[str, Any]) -> dict[str, Any]:
    """The chosen operations and every component that they lead to."""
    paths = {
        path: {
            "parameters": whole["paths"][path].get("parameters", []),
            **{method: whole["paths"][path][method] for method in methods},
        }
        for path, methods in OPERATIONS.items()
    }
    subset: dict[str, Any] = {
        "openapi": whole["openapi"],
        "info": {"title": whole["info"]["title"], "version": whole["info"]["version"]},
        "paths": without_text(paths, names=True),
        "components": {},
    }
    waiting = references(subset["paths"])
    while waiting:
        _, _, kind, name = waiting.pop().split("/")
        kept = subset["components"].setdefault(kind, {})
        if name not in kept and kind != "examples":
            kept[name] = without_text(whole["components"][kind][name])
            waiting |= references(kept[name])
    subset["components"] = {
        kind: dict(sorted(kept.items())) for kind, kept in sorted(subset["components"].items())
    }
    return subset


if __name__ == "__main__":
    description = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(cut(description), indent=1, ensure_ascii=False) + "\n")
