"""What a repository asks of whoever contributes, on GitHub, through the whole program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.statements import KNOWN_SENTENCES
from tests.doubles.model_server import Step
from tests.scenarios.hosted import BRANCH, OUR_EMAIL, Hosted
from tests.scenarios.stage import FILES, FINISH, FIX, FIX_IT, PROPOSE, Stage, do, git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="several whole cycles over HTTP; three of this file are in the default tier")

SIGNED = f"Signed-off-by: Pullwright <{OUR_EMAIL}>"
ASSISTED = "Assisted-by: Pullwright:openai-chat:scripted-1"
CO_AUTHORED = f"Co-authored-by: openai-chat:scripted-1 <{OUR_EMAIL}>"
DCO = "Sign your work: every commit needs a Signed-off-by line, see https://developercertificate.org.\n"
AGAINST = "# Contributing\n\nThanks! We do not accept AI-generated contributions. Ask first.\n"


def host(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str | bytes]
) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage, {**FILES, **files})


def trailers(hosted: Hosted, tmp_path: Path) -> list[str]:
    """The trailers of the pushed commit, as git itself finds them."""
    message = tmp_path / "message"
    message.write_text(hosted.git("log", "-1", "--format=%B", BRANCH))
    return git(tmp_path, "interpret-trailers", "--parse", str(message)).splitlines()


CASES: list[tuple[str, dict[str, str], tuple[str, ...], list[str]]] = [
    ("nothing asked", {}, (), []),
    ("a guide asks for a sign-off", {"CONTRIBUTING.md": DCO}, (), [SIGNED]),
    ("the DCO robot asks for it", {".github/dco.yml": "require: {}\n"}, (), [SIGNED]),
    ("never", {"CONTRIBUTING.md": DCO}, ("--signoff", "never"), []),
    ("always", {}, ("--signoff", "always"), [SIGNED]),
    (
        "a guide asks for both",
        {"CONTRIBUTING.md": f"{DCO}\nAI tools are named with an `Assisted-by: NAME` line.\n"},
        (),
        [ASSISTED, SIGNED],
    ),
    ("assisted-by", {}, ("--trailer", "assisted-by"), [ASSISTED]),
    (
        "co-authored-by",
        {"docs/CONTRIBUTING.md": "Commits made with an AI have a Co-authored-by line for it.\n"},
        (),
        [CO_AUTHORED],
    ),
    (
        "a person's word counts more",
        {"CONTRIBUTING.md": "AI tools are named with an `Assisted-by: NAME` line.\n"},
        ("--trailer", "none"),
        [],
    ),
]


@slow
@pytest.mark.parametrize(
    ("files", "flags", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_trailers_are_those_that_the_repository_asks_for(  # noqa: PLR0913, PLR0917  a case table
    github: GitHub,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: dict[str, str],
    flags: tuple[str, ...],
    expected: list[str],
) -> None:
    hosted = host(github, stage, monkeypatch, files)
    hosted.propose(*flags)
    assert trailers(hosted, tmp_path) == expected
    assert hosted.git("log", "-1", "--format=%an <%ae>", BRANCH) == f"Pullwright <{OUR_EMAIL}>"


@slow
def test_a_models_own_sign_off_is_not_the_last_word(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = host(github, stage, monkeypatch, {})
    body = "It subtracted.\n\nSigned-off-by: Ada <ada@example.com>\nReviewed-by: Ada <ada@example.com>"
    stage.script(do(FIX, ("create_pull_request", {"title": "Make add() add", "body": body}), FINISH))
    assert stage.run().code == 0
    assert trailers(hosted, tmp_path) == []


@slow
def test_a_replayed_commit_has_the_trailers_too(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = host(github, stage, monkeypatch, {"CONTRIBUTING.md": DCO})
    pull = hosted.propose()
    hosted.people_commit({"README.md": "# Calc 2\n"}, branch="main")
    pull.mergeable_state = "dirty"
    assert stage.run().code == 0
    assert trailers(hosted, tmp_path) == [SIGNED]
    assert hosted.asked == 1


def test_the_owners_of_what_changed_are_named_and_called_by_nobody(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = "*.md @octo/writers\n*.py @ada @octo/core # and `@grace`\n"
    hosted = host(github, stage, monkeypatch, {".github/CODEOWNERS": owners})
    body = hosted.propose().body or ""
    assert "Code owners of what changed: `@ada`, `@octo/core`." in body
    assert body.replace("`@ada`", "").replace("`@octo/core`", "").count("@") == 0


@slow
def test_owners_that_the_change_itself_names_do_not_count(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(github, stage, monkeypatch, {"CODEOWNERS": "*.py @ada\n"})
    mine = ("write_file", {"path": "CODEOWNERS", "content": "*.py @mallory\n"})
    stage.script(do(FIX, mine, PROPOSE, FINISH))
    assert stage.run().code == 0
    assert "Code owners of what changed: `@ada`." in (hosted.pull.body or "")


@slow
@pytest.mark.parametrize("path", ["CONTRIBUTING.md", ".github/AI_POLICY.md", "docs/contributing.rst"])
def test_where_machines_are_not_wanted_no_model_is_asked(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    hosted = host(github, stage, monkeypatch, {path: AGAINST})
    reason = hosted.left_alone()
    words = "We do not accept AI-generated contributions."
    assert reason == f"the repository refuses changes by a machine: {path}: {words}"
    assert hosted.refs("refs/pullwright/wip/") == []


@slow
def test_a_person_may_go_on_in_spite_of_the_policy(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(github, stage, monkeypatch, {"CONTRIBUTING.md": AGAINST})
    hosted.left_alone()
    hosted.propose("--ai-policy", "ignore", "--issue", "1")
    assert hosted.asked == 1


@slow
def test_the_repository_cannot_ignore_its_policy_for_us(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(
        github,
        stage,
        monkeypatch,
        {"CONTRIBUTING.md": AGAINST, "pullwright.toml": 'ai_policy = "ignore"\n'},
    )
    assert stage.run().result["outcome"] != "proposed"
    assert hosted.asked == 0


def test_the_template_is_kept_and_the_footer_tells_the_cost(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "## What\n\n<!-- say what -->\n\n## Checklist\n\n- [ ] Tests\n"
    hosted = host(github, stage, monkeypatch, {".github/pull_request_template.md": template})
    body = hosted.propose("--price", "1/2").body or ""
    assert "## What" in body
    assert "- [ ] Tests" in body
    footer = body[body.index("<sub>") : body.index("</sub>")]
    assert "model openai-chat:scripted-1; 1 round, 1" in footer
    assert "tokens, $0.00" in footer


@slow
@pytest.mark.parametrize("own", [True, False])
def test_a_workflows_own_token_is_told_of(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    hosted = host(github, stage, monkeypatch, {})
    if own:
        app = github.app(["octo/calc"])
        token, _ = github.installation_token(app, ["octo/calc"])
        grant = github.grants[token]
        github.grants[token] = type(grant)(
            "github-actions[bot]", grant.permissions, grant.repositories, grant.app, grant.expires_at
        )
        monkeypatch.setenv("GITHUB_TOKEN", token)
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stage.script(FIX_IT)
    assert stage.run().code == 0
    (pull,) = hosted.repo.pulls.values()
    assert ("GitHub starts no checks for this pull request" in (pull.body or "")) == own


READS = [Step("contributions, forbidden" if refuses else "software") for refuses in KNOWN_SENTENCES.values()]
DOUBTFUL = "# Calc\n\nThe AI opponent must not cheat.\n"


def test_a_doubtful_sentence_is_asked_about_once(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(github, stage, monkeypatch, {"README.md": DOUBTFUL})
    stage.script(*READS, Step("software"))
    hosted.propose("--issue", "1")
    assert hosted.asked == len(READS) + 2
    assert "The AI opponent must not cheat." in stage.told(len(READS))
    hosted.issue("second")
    hosted.propose("--issue", "3")
    assert hosted.asked == len(READS) + 3


def test_a_doubtful_sentence_that_refuses_ends_the_cycle(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(github, stage, monkeypatch, {"CONTRIBUTING.md": "Keep AI out of your patches.\n"})
    stage.script(*READS, Step("contributions, forbidden"))
    done = stage.run("--issue", "1")
    reason = "the repository refuses changes by a machine: CONTRIBUTING.md: Keep AI out of your patches."
    assert (done.result["outcome"], done.result["reason"]) == ("no_task", reason)
    assert done.result["usage"]["total_tokens"] > 0


def test_a_model_that_misreads_known_sentences_decides_nothing(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(github, stage, monkeypatch, {"CONTRIBUTING.md": "Keep AI out of your patches.\n"})
    stage.script(Step("software"))
    done = stage.run("--issue", "1")
    reason = "the repository refuses changes by a machine: CONTRIBUTING.md: Keep AI out of your patches."
    assert (done.result["outcome"], done.result["reason"]) == ("no_task", reason)
    assert "gives no right answers about known sentences on machine-made work" in done.err


def test_rules_and_instructions_that_cannot_be_read_are_said_in_the_run(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, str | bytes] = {
        "CONTRIBUTING.md": "x" * 600_000,
        "CLAUDE.md": "Привет, мир: проверка\n".encode("cp1251"),
    }
    host(github, stage, monkeypatch, files)
    stage.script(FIX_IT)
    done = stage.run("--issue", "1")
    assert done.result["outcome"] == "proposed", done.err
    missed = "rules for contributions may be missed in"
    assert f"{missed} CONTRIBUTING.md: it is longer than 512 kB" in done.err
    assert f"{missed} CLAUDE.md: its encoding is not sure, so only its ASCII letters are read" in done.err
    assert "CLAUDE.md is not shown to the model: it is too large, generated, or in an encoding" in done.err


NESTED = {
    "pkg/AGENTS.md": "Write tabs in pkg.\n",
    "pkg/a.py": "x = 1\n" * 300,
    "other/CLAUDE.md": "Write spaces.\n",
}


def test_a_folders_own_instructions_are_shown_at_the_first_file_below_it(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = host(github, stage, monkeypatch, NESTED)
    stage.script(
        do(("read_file", {"path": "calc.py"})),
        do(("read_file", {"path": "pkg/a.py"})),
        do(("read_file", {"path": "pkg/a.py"}), FIX),
        do(PROPOSE, FINISH),
    )
    done = stage.run("--issue", "1", "--context-chars", "1000")
    assert done.result["outcome"] == "proposed", done.err
    told = ["Write tabs in pkg." in str(stage.asked(number)) for number in range(4)]
    assert told == [False, False, True, True]
    assert str(stage.asked(3)).count("Write tabs in pkg.") == 1
    assert "Write spaces." not in str(stage.asked(3))
    assert hosted.asked == 4
