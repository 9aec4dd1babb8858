"""The routes by which somebody finds out what a token may do: labels, rules for branches, a new issue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.doubles.github.state import Rejected

if TYPE_CHECKING:
    from tests.doubles.github.render import Renderer
    from tests.doubles.github.state import Repo

Json = dict[str, Any]


def label(render: Renderer, repo: Repo, name: str) -> Json:
    """A label that was made, or that some issue has; the others are not there."""
    for there in (*repo.labels, *(one for thread in repo.threads.values() for one in thread.labels)):
        if there.lower() == name.lower():
            return render.labels(repo, [there])[0]
    raise Rejected(404, "Not Found")


def make_label(render: Renderer, repo: Repo, name: str) -> Json:
    """A new label; its name is compared without case."""
    try:
        label(render, repo, name)
    except Rejected:
        repo.labels.append(name)
    else:
        errors: list[dict[str, object]] = [{"resource": "Label", "code": "already_exists", "field": "name"}]
        raise Rejected(422, "Validation Failed", errors=errors)
    return render.labels(repo, [name])[0]


def rules(repo: Repo) -> list[Json]:
    """The rules for any branch."""
    return [
        {
            "type": rule.kind,
            "ruleset_source_type": "Repository",
            "ruleset_source": repo.full_name,
            "ruleset_id": number,
            **({"parameters": rule.parameters} if rule.parameters else {}),
        }
        for number, rule in repo.rules.items()
    ]


def ruleset(repo: Repo, number: int) -> Json:
    """A ruleset, with what the caller may."""
    rule = repo.rules.get(number)
    if rule is None:
        raise Rejected(404, "Not Found")
    return {
        "id": number,
        "name": f"Ruleset {number}",
        "target": "branch",
        "source_type": "Repository",
        "source": repo.full_name,
        "enforcement": "active",
        "current_user_can_bypass": rule.bypass,
        "conditions": {"ref_name": {"include": ["~ALL"], "exclude": []}},
        "rules": [],
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }


def no_issue(body: Json) -> Rejected:
    """Issues are opened by people; only what GitHub refuses is asked of the double."""
    if body["title"]:
        return Rejected(500, "the double opens no issues: use add_issue")
    return Rejected(
        422,
        "Validation Failed",
        errors=[{"resource": "Issue", "code": "missing_field", "field": "title"}],
    )
