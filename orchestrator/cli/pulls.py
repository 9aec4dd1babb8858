"""`pullwright pulls`: the pull requests and questions of local repositories."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from orchestrator.cli.exit_codes import DONE
from orchestrator.cli.text import clean, one_line
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ForgeNotFoundError, PullwrightError
from orchestrator.journal.folders import Home

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from orchestrator.forge.base import PullRequest, Repository

_MAX_LINE_CHARS = 300
_SHORT_COMMIT = 10


class ListedQuestion(Protocol):
    """A question that waits for a person. `body` is Markdown; `url` is where it is kept."""

    @property
    def number(self) -> int:
        """Counts from 1."""

    @property
    def key(self) -> str:
        """Names what it is about."""

    @property
    def body(self) -> str:
        """What is asked."""

    @property
    def url(self) -> str:
        """Where it is kept."""


class ListedForge(Protocol):
    """What the list needs to know of a local repository's forge."""

    def repository(self) -> Repository:
        """The repository."""

    def pull_requests(self) -> Sequence[PullRequest]:
        """All of them, newest first."""

    def questions(self) -> Sequence[ListedQuestion]:
        """Those that were asked."""

    def close(self, number: int) -> PullRequest:
        """Close a pull request without merging it."""


def pulls(options: argparse.Namespace) -> int:
    """List, or close one.

    Raises:
        ForgeError: the state cannot be read, or there is no such pull request.
        ConfigurationError: `--repo` names no local repository.
    """
    from orchestrator.assembly.forge import local_forges

    forges = local_forges(Home.of(os.environ), options.repo, SystemClock())
    if options.action == "close":
        return close(forges, options.number, sys.stdout)
    (write_json if options.json else write_text)(forges, sys.stdout)
    return DONE


def close(forges: Sequence[ListedForge], number: int, out: TextIO) -> int:
    """Close the pull request of the one repository that was named.

    Raises:
        ForgeNotFoundError: the repository has no pull requests.
    """
    if not forges:
        raise ForgeNotFoundError("this repository has no pull requests of ours")
    forges[0].close(number)
    print(f"closed #{number} of {one_line(forges[0].repository().name)}", file=out)
    return DONE


def write_text(forges: Sequence[ListedForge], out: TextIO) -> None:
    """A block for each repository that has something to show, or that cannot be read."""
    blocks = [lines for forge in forges if (lines := _block(forge))]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    print(text or "no pull requests and no questions", file=out)


def _block(forge: ListedForge) -> list[str]:
    try:
        name, requests, questions = forge.repository().clone_url, forge.pull_requests(), forge.questions()
    except PullwrightError as error:  # one repository that is gone does not hide the others
        return [one_line(str(error), _MAX_LINE_CHARS)]
    lines = []
    for request in requests:
        draft = ", draft" if request.draft else ""
        lines.append(f"  #{request.number}  {one_line(request.title)}  ({request.state}{draft})")
        lines.append(
            f"      {one_line(request.branch)} -> {one_line(request.base)}, {request.commit[:_SHORT_COMMIT]}"
        )
        lines.append(f"      {one_line(request.url, _MAX_LINE_CHARS)}")
    for question in questions:
        lines.append(f"  ?{question.number}  {one_line(question.body, _MAX_LINE_CHARS)}")
        lines.append(f"      {one_line(question.url, _MAX_LINE_CHARS)}")
    return [clean(name), *lines] if lines else []


def write_json(forges: Sequence[ListedForge], out: TextIO) -> None:
    """A line for each pull request and each question."""
    for forge in forges:
        for record in _records(forge):
            print(json.dumps(record), file=out)


def _records(forge: ListedForge) -> list[dict[str, Any]]:
    try:
        name, requests, questions = forge.repository().clone_url, forge.pull_requests(), forge.questions()
    except PullwrightError as error:
        return [{"kind": "error", "error": str(error)}]
    return [
        *(
            {"kind": "pull_request", "repository": name, **dataclasses.asdict(request)}
            for request in requests
        ),
        *(
            {
                "kind": "question",
                "repository": name,
                "number": one.number,
                "key": one.key,
                "body": one.body,
                "url": one.url,
            }
            for one in questions
        ),
    ]
