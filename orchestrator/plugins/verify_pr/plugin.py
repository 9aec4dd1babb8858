"""What `verify_pr` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_json, add_repo, add_settings, add_switch, add_text
    from orchestrator.app.options import TEST_KEYS
    from orchestrator.bot.suggestions import PROGRAM

    parser.usage = f"{PROGRAM} verify-pr PULL [FLAG ...]"
    text = "a pull request's number or address; or a branch, or a file of git bundle"
    add_text(parser, "pull", "PULL", text)
    add_repo(parser)
    text = "file with the description of a branch or a bundle; - reads standard input"
    add_text(parser, "--body", "FILE", text)
    text = "also write a check run for the head, if the token permits it"
    add_switch(parser, "--check", text)
    add_text(parser, "--html", "FILE", "also write a page")
    add_text(parser, "--markdown", "FILE", "also add the report to a file, such as a job's summary")
    add_text(parser, "--ctrf", "FILE", "also write the results of the tests, as other tools read them")
    add_text(parser, "--statement", "FILE", "also write the in-toto statement about the runs, to be signed")
    add_json(parser, "print one JSON object")
    tests = {*TEST_KEYS, "test_minutes", "test_paths", "max_minutes", "sandbox", "sandbox_read", "allow_host"}
    add_settings(parser, tests | {"base", "github_url", "github_app_id", "mirror", "require_evidence"})


_TEXT = "run a pull request's tests again, and say which claims hold"
PLUGIN = Plugin(
    name="verify_pr",
    text=_TEXT,
    commands={
        "verify-pr": CommandEntry(
            _TEXT,
            "check",
            _add_flags,
            ".command:verify_pr",
            examples=(
                "verify-pr 12 --repo owner/name --test-command auto",
                "verify-pr https://github.com/owner/name/pull/12 --test-command 'pytest -q' --html report.html",
                "verify-pr feature --repo . --test-command auto",
            ),
        )
    },
    options=".options:VerifyOptions",
    adds={Point.ATTACKS: ".attacks:FOLDER"},
    extra="sigstore",
)
