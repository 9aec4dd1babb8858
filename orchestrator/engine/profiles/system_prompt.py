"""Puts the system prompt together, layer by layer; a later one takes precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.prompts import render
from orchestrator.engine.contracts.fence import fenced, one_line

if TYPE_CHECKING:
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.profiles.orientation import GitSnapshot, Orientation

_SUBJECT_CHARS = 100
_FACT_CHARS = 1_000


def system_prompt(
    profile: Profile, *, contract_words: str, orientation: Orientation | None, user_instructions: str = ""
) -> str:
    """The same bytes for the same values: nothing in it changes while a session runs.

    Args:
        profile: its base prompt comes first.
        contract_words: the tools and the form of replies, as the contract describes them; may be empty.
        orientation: the environment, git and the project's documents; None leaves them out.
        user_instructions: what the user wants beyond the task; comes last, if it says anything.
    """
    layers = [
        profile.base_prompt,
        _environment(orientation) if orientation else "",
        contract_words,
        _documents(orientation) if orientation else "",
        _of_user(user_instructions.strip()),
    ]
    return "\n\n".join(layer for layer in layers if layer)


def _environment(orientation: Orientation) -> str:
    git = orientation.git
    facts = {
        "working_directory": orientation.working_directory,
        "is_git": "true" if git else "false",
        "branch": (git.branch or "unknown") if git else "none",
        "platform": orientation.platform,
        "os_version": orientation.os_version,
        "today": orientation.today,
        "model": orientation.model_name,
        "knowledge_cutoff": orientation.knowledge_cutoff or "unknown",
        "status": _status(git) if git else "",
    }
    return render(
        "agent/environment",
        **{name: one_line(fact, limit=_FACT_CHARS) for name, fact in facts.items()},
        git=git is not None,
        commits=fenced(_lines(git)) if git and git.commits else "",
    )


def _lines(git: GitSnapshot) -> str:
    return "\n".join(
        f"{commit} {one_line(subject, limit=_SUBJECT_CHARS, keep='`')}" for commit, subject in git.commits
    )


def _status(git: GitSnapshot) -> str:
    if git.modified is None or git.untracked is None:
        return "unknown"
    return f"{git.modified} modified, {git.untracked} untracked"


def _documents(orientation: Orientation) -> str:
    if not orientation.documents and not orientation.documents_cut:
        return ""
    shown = [
        {"path": one_line(document.path, limit=_FACT_CHARS), "block": fenced(document.text)}
        for document in orientation.documents
    ]
    return render("agent/project_documents", documents=shown, cut=orientation.documents_cut)


def _of_user(instructions: str) -> str:
    return render("agent/user_instructions", instructions=instructions) if instructions else ""
