"""`pullwright pulls`: the pull requests and questions of local repositories."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from orchestrator.cli import exit_codes
from orchestrator.cli.text import clean, one_line
from orchestrator.core.errors import ForgeNotFoundError
from orchestrator.journal.folders import Home

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from orchestrator.forge.base import PullRequest, Repository

_MAX_LINE_CHARS = 300


class ListedQuestion(Protocol):
    """A question that waits for a person."""

    @property
    def key(self) -> str:
        """Names the question."""

    @property
    def body(self) -> str:
        """Markdown."""


class ListedForge(Protocol):
    """What the list needs to know of a local repository's forge."""

    def repository(self) -> Repository:
        """The repository."""

    def pull_requests(self) -> Sequence[PullRequest]:
        """All of them, newest first."""

    def questions(self) -> Sequence[ListedQuestion]:
        """Those that were asked."""

    def close(self, number: int) -> PullRequest | None:
        """Close a pull request without merging it."""


def pulls(options: argparse.Namespace) -> int:
    """List, or close one.

    Raises:
        ForgeError: the state cannot be read, or there is no such pull request.
        ConfigurationError: `--repo` names no local repository.
    """
    from orchestrator.assembly import local_forges

    forges = local_forges(Home.of(os.environ).root, options.repo)
    if options.action == "close":
        return close(forges, options.number, sys.stdout)
    (write_json if options.json else write_text)(forges, sys.stdout)
    return exit_codes.DONE


def close(forges: Sequence[ListedForge], number: int, out: TextIO) -> int:
    """Close the pull request of the one repository that was named.

    Raises:
        ForgeNotFoundError: the repository has no pull requests.
    """
    if not forges:
        raise ForgeNotFoundError("this repository has no pull requests of ours")
    forges[0].close(number)
    print(f"closed #{number} of {one_line(forges[0].repository().name)}", file=out)
    return exit_codes.DONE


def write_text(forges: Sequence[ListedForge], out: TextIO) -> None:
    """A block for each repository that has something to show."""
    shown = False
    for forge in forges:
        requests, questions = forge.pull_requests(), forge.questions()
        if not requests and not questions:
            continue
        print(f"{chr(10) if shown else ''}{clean(forge.repository().clone_url)}", file=out)
        for request in requests:
            draft = ", draft" if request.draft else ""
            print(f"  #{request.number}  {one_line(request.title)}  ({request.state}{draft})", file=out)
            print(
                f"      {one_line(request.branch)} -> {one_line(request.base)}  {request.commit[:12]}",
                file=out,
            )
        for question in questions:
            print(f"  ?  {one_line(question.body, _MAX_LINE_CHARS)}", file=out)
        shown = True
    if not shown:
        print("no pull requests and no questions", file=out)


def write_json(forges: Sequence[ListedForge], out: TextIO) -> None:
    """A line for each pull request and each question."""
    for forge in forges:
        name = forge.repository().clone_url
        for request in forge.pull_requests():
            print(json.dumps({"repository": name, "kind": "pull_request", **_fields(request)}), file=out)
        for question in forge.questions():
            record = {"repository": name, "kind": "question", "key": question.key, "body": question.body}
            print(json.dumps(record), file=out)


def _fields(request: PullRequest) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(request)
