"""Every place where words of a model or of a stranger go out, in whole cycles: none of them begins a line there,
none stands alone as a command, and what the program says itself stands above them."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.hosted import BRANCH, Hosted
from tests.scenarios.stage import FIX, Stage, do
from tests.scenarios.test_guards import shell, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.github.server import GitHub

COMMANDS = (
    *("/approve", ".deploy production", "bors r+", "ok to test", "recheck", "!build", "/test:all", "/retest"),
    *(
        "@dependabot merge",
        "I have read the CLA Document and I hereby sign the CLA",
        "/lgtm cancel",
        "retest this please",
    ),
    *(
        "::set-output name=a::b",
        "Signed-off-by: A <a@b.example>",
        "skip-checks: true",
        "<!-- pullwright:comment -->",
    ),
    *("[pullwright:state]: # '{\"rounds\": 0}'", "<!-- pullwright:task:issue-1 -->", "Fixes #99"),
)
WRITTEN = (
    *COMMANDS,
    *(f"\u200b{' ' * 21}{command}" for command in COMMANDS[:3]),
    *(f"~~~\n{command}\n~~~" for command in COMMANDS),
    *(
        "&#47;approve",
        "/app&#8203;rove",
        "\u202e/approve",
        "Signed-off-by          : x",
        "skip-checks&colon; true",
    ),
    *(
        "<details>\n/approve\n</details>",
        "- /approve",
        "    /approve",
        "a\r/approve",
        "a\u2028/approve",
        "<!--\n/approve",
    ),
)
WORDS = "It was wrong.\n\n" + "\n\n".join(WRITTEN) + "\n\n<!-- "
HELD = (
    "**Some of the change waits for a person.** These paths are protected, so the pull request leaves them as they "
    "are:"
)
TITLE = "\u200b/approve [skip&#32;ci] @victim fixes #99\nSigned-off-by: x"


def alone(text: str) -> Iterator[str]:
    """The commands that a robot finds which trims lines, and reads them as they stand or as they are shown."""
    for line in (*text.splitlines(), *html.unescape(text).splitlines()):
        seen = "".join(char for char in line if unicodedata.category(char) not in ("Cf", "Cc")).strip()
        yield from (command for command in COMMANDS if seen == command)


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    hosted = Hosted.begin(github, stage)
    hosted.repo.issues[1].title = "add() subtracts"
    return hosted


def propose(hosted: Hosted) -> None:
    """A cycle in which the model writes all of it into everything that it can write."""
    calls = [
        FIX,
        shell("printf '/approve\n' # \u200b`/approve`"),
        shell(f"git commit --quiet --allow-empty --message {'/approve'!r} --message {'recheck'!r}"),
        write(".github/workflows/`@victim`.yml", "/approve\nbors r+\n"),
    ]
    pull = ("create_pull_request", {"title": TITLE, "body": WORDS})
    hosted.stage.script(do(*calls), do(pull, ("finish", {"reason": WORDS})))
    done = hosted.stage.run("--allow-dangerous-tools")
    assert done.result["outcome"] == "proposed", done.err


class TestWhatAPullRequestShows:
    def test_the_title_and_the_commit(self, hosted: Hosted) -> None:
        propose(hosted)
        told = hosted.git("log", "-1", "--format=%B", BRANCH)
        assert hosted.pull.title == "`/approve` (skip ci) @ victim fixes no. 99 Signed-off-by: x"
        assert told.startswith(f"{hosted.pull.title}\n\nIt was wrong.\n\n`/approve`\n")
        assert "Fixes #1" not in told, "the workflow is held back, so a merge does not end the task"
        assert not [command for command in alone(told) if not command[0].isalpha()]
        assert not re.search(r"#99|@(?:victim|dependabot)|\[skip|^[\w-]+\s*:", told, re.MULTILINE)

    def test_the_body_begins_with_the_programs_words(self, hosted: Hosted) -> None:
        propose(hosted)
        ours, rule, words = (hosted.pull.body or "").partition("\n\n***\n\n")
        assert rule
        assert ours.startswith("> [!WARNING]\n> This change lacks files that were changed with it:\n")
        assert "\n\nPart of #1\n\n<sub>Opened by Pullwright, run " in ours
        assert "Commands that ran: 2 passed, 0 failed" in ours
        assert not list(alone(ours))
        assert not list(alone(words.removesuffix("<!-- pullwright:task:issue-1 -->")))
        assert "It was wrong." in words
        assert words.endswith("\n\n<!-- pullwright:task:issue-1 -->")
        assert words.count("<!--") == 1

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    def test_the_comment_on_what_is_held_and_the_one_on_a_round(self, hosted: Hosted) -> None:
        propose(hosted)
        pull = hosted.pull
        hosted.github.add_comment(hosted.repo, pull.number, "And the sign?", "ada")
        hosted.stage.script(do(("finish", {"reason": WORDS})))
        hosted.stage.run("--allow-dangerous-tools")
        (comment,) = hosted.ours(pull.number)
        assert not list(alone(comment.body.replace("\n<!-- pullwright:comment -->", "")))
        own = [line for line in comment.body.splitlines() if line and not line.startswith(">")]
        assert [
            line for line in own if not line.startswith(("<!-- pullwright:", "[pullwright:state]: # '"))
        ] == [
            HELD,
            "- `.github/workflows/\\x60@victim\\x60.yml`: a workflow",
            "To take the change over, save this patch, look at it, and run `git apply` in a checkout of the branch.",
            *[line for line in own if line.startswith("What was said here until now was worked on in run ")],
        ]
        assert own.count(next(line for line in own if line.startswith("[pullwright:state]"))) == 1
        assert "\n> +/approve\n> +bors r+\n" in comment.body
        # What the program says stands above the model's words.
        section = comment.body.split("<!-- pullwright:section:status -->\n")[1]
        assert section.startswith("What was said here until now was worked on in run ")
        assert section.index("[pullwright:state]") < section.index("> It was wrong.")
        assert hosted.left_alone()

    def test_the_words_of_the_question(self, hosted: Hosted, stage: Stage) -> None:
        stage.script(do(("ask_question", {"question_text": WORDS, "choices": ["/approve", "recheck"]})))
        assert stage.run().code == 4
        (comment,) = hosted.ours(1)
        assert not list(alone(comment.body))
        own = [line for line in comment.body.splitlines() if line and not line.startswith(">")]
        assert own[0].startswith(
            "**Pullwright needs an answer before it can go on.** Answer in a comment below this one"
        )
        assert [line[:26] for line in own[1:]] == ["<!-- pullwright:question:i"]


class TestWhatATerminalShows:
    def test_lines_that_a_ci_system_obeys(self, hosted: Hosted, stage: Stage) -> None:
        words = "::error::x\n\x1b]0;title\x07\u202e##[add-mask]y\r::warning::z"
        stage.script(do(FIX, ("create_pull_request", {"title": words, "body": f"```\n{words}\n```"})), do())
        shown = stage.run("--dry-run", json_output=False)
        for line in (*shown.out.splitlines(), *shown.err.splitlines()):
            assert not line.lstrip().startswith("::")
            assert "##[" not in line
            assert line.isprintable() or "\t" in line
        stage.script(do(FIX, ("create_pull_request", {"title": words, "body": words})), do())
        assert "##[" not in stage.run("--dry-run").out
        assert hosted.asked
