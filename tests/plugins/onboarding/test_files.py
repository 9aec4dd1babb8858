"""What `init` writes: rules that keep what a person wrote, and a workflow with the decisions in it.

Which commit a workflow may use, told by what an installer noted and by the state of a checkout; and the copy.
"""

from __future__ import annotations

import io
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.onboarding import files
from orchestrator.plugins.onboarding.files import (
    CHECKOUT,
    ActionPlace,
    WorkflowPlan,
    action_copy,
    read_direct_url,
    read_release,
    rules_text,
    tagged_commit,
    workflow_template,
    workflow_text,
)
from tests.scenarios.stage import git, make_repository
from tests.tables import table

VALUES: dict[str, Any] = {"model": "m:x", "max_usd": 2.5, "test_command": 'make "all" \\ t'}


@given(
    st.dictionaries(st.sampled_from(sorted(VALUES)), st.sampled_from(["old", 'a"b', "x # y"])),
    st.sampled_from(["", "# ours\n", "\n[table]\nmodel = 1\n"]),
    st.booleans(),
)
def test_what_a_file_says_stays_and_what_is_decided_counts(
    there: dict[str, str],
    more: str,
    ends_with_newline: bool,  # noqa: FBT001  a drawn value
) -> None:
    old = "".join(f"{key} = '{value}'\n" for key, value in there.items())
    old += more
    old = old if ends_with_newline else old.rstrip("\n")
    text = rules_text(old, VALUES)
    assert tomllib.loads(text) == {**tomllib.loads(old), **VALUES}
    assert [line for line in old.splitlines() if line.startswith("#") and line not in text] == []


def test_a_value_over_several_lines_is_left_to_the_person() -> None:
    with pytest.raises(ConfigurationError, match="change it by hand"):
        rules_text('model = """\nmodel = 1\n"""\n', {"model": "m:x"})
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        rules_text("model", {})


PLACE = ActionPlace("github.com", "o/p/.github/actions/pullwright@" + "a" * 40)


def step(plan: WorkflowPlan) -> dict[str, Any]:
    content = yaml.safe_load(workflow_text(workflow_template(), plan))
    job = content["jobs"]["work"]
    found = job["steps"][-1]
    return {**found, "if": job.get("if"), "others": [one.get("uses") for one in job["steps"][:-1]]}


def test_a_known_commit_is_used_as_it_is() -> None:
    found = step(WorkflowPlan(PLACE, "me/it", "anthropic:claude", 3.0, has_tests=True, hosts=("a.org",)))
    assert found["uses"] == PLACE.uses
    assert found["others"] == [None]
    assert found["if"].startswith("github.repository == 'me/it' && (")
    given_to = found["with"]
    assert (given_to["model"], given_to["max-usd"]) == ("anthropic:claude", "3")
    assert (given_to["test-command"], given_to["allow-host"].split()) == ("auto", ["a.org"])


def test_what_is_not_decided_is_left_to_variables() -> None:
    found = step(WorkflowPlan(None, None, None, 5.0, has_tests=False))
    assert found["uses"] == "./.github/actions/pullwright"
    assert found["others"][-1].startswith("actions/checkout@")
    assert found["if"].startswith("vars.PULLWRIGHT_MODEL != '' && (")
    assert found["with"]["test-command"] == "${{ vars.PULLWRIGHT_TEST_COMMAND }}"


@pytest.mark.parametrize("model", ["a:${{ secrets.X }}", 'a:"b', "a:b\nc", "a b"])
def test_no_model_writes_into_the_workflow(model: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be named in a workflow"):
        workflow_text(workflow_template(), WorkflowPlan(PLACE, None, model, 5.0, has_tests=False))


ROOT = Path(__file__).parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
VCS = {"vcs": "git", "commit_id": COMMIT}
ACTION = ".github/actions/pullwright"


@table(
    ("said", "uses"),
    [
        ({"url": "https://github.com/o/p.git", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
        ({"url": "https://github.com/o/p", "vcs_info": VCS, "subdirectory": "bots/pw"}, f"o/p/bots/pw/{ACTION}@{COMMIT}"),
        ({"url": "ssh://git@github.com/o/p.git", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
        ({"url": "https://user:secret@github.com/o/p", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
    ],
)  # fmt: skip
def test_an_installer_says_the_place_and_the_commit(said: dict[str, Any], uses: str) -> None:
    assert read_direct_url(said) == ActionPlace("github.com", uses)


@table(
    ("said", "why"),
    [
        ({}, "from a file"),
        ({"url": "https://example.com/p.whl", "archive_info": {}}, "from a file"),
        (
            {"url": "https://github.com/o/p", "vcs_info": {"commit_id": "main"}},
            "is not a repository on a server",
        ),
        ({"url": "https://example.com/p", "vcs_info": VCS}, "is not a repository on a server"),
        ({"url": "file:///nowhere/at/all", "dir_info": {}}, "have changed"),
        ({"url": 3, "vcs_info": VCS}, "is not a repository on a server"),
    ],
)
def test_where_it_says_neither_there_is_a_reason(said: dict[str, Any], why: str) -> None:
    found = read_direct_url(said)
    assert isinstance(found, str)
    assert why in found


def test_a_checkout_counts_as_it_is_published(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "pw")

    def found() -> ActionPlace | str:
        return files._of_checkout(folder)

    assert "no remote" in str(found())
    git(folder, "remote", "add", "origin", "git@github.com:o/p.git")
    assert "is not pushed" in str(found())
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    commit = git(folder, "rev-parse", "HEAD")
    assert found() == ActionPlace("github.com", f"o/p/{ACTION}@{commit}")
    (folder / "new.py").touch()
    assert "has changes that are not committed" in str(found())
    assert "is not a checkout of git" in str(files._of_checkout(tmp_path))


@pytest.mark.skipif(not (ROOT / ACTION).is_dir(), reason="the built wheel brings its own files along")
def test_the_copy_has_what_the_action_runs_and_is_always_the_same() -> None:
    files = {Path(file.path).name: file for file in action_copy()}
    assert files["install.sh"].is_executable
    assert not files["action.yml"].is_executable
    content = files["program.zip"].content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert {"run_local_agent.py", "requirements.lock", "orchestrator/__main__.py"} <= set(names)
    assert "prompts/plugins/onboarding/pull_request.md" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", "tests/"))]
    assert {Path(file.path).name: file for file in action_copy()}["program.zip"].content == content


def test_the_action_that_a_copy_is_checked_out_by_is_the_one_of_our_own_workflows() -> None:
    if (ROOT / ".github/workflows/ci.yml").exists():
        assert CHECKOUT in (ROOT / ".github/workflows/ci.yml").read_text()
    assert "jobs:" in workflow_template()


@table(
    ("urls", "version", "place"),
    [
        (["Documentation, https://d.org", "Source, https://github.com/o/p"], "1.2", f"o/p/{ACTION}@{COMMIT}"),
        (["Source Code, https://github.com/o/p.git"], "1.2", f"o/p/{ACTION}@{COMMIT}"),
        (["Repository, https://github.com/o/p"], "1.3", "https://github.com/o/p has no tag v1.3, or cannot be reached"),
        (["Source, git://github.com/o/p"], "1.2", "its package names no repository"),
        ([], "1.2", "its package names no repository"),
    ],
)  # fmt: skip
def test_a_released_package_names_the_commit_of_its_version(
    urls: list[str], version: str, place: str
) -> None:
    found = read_release(urls, version, lambda _address, tag: COMMIT if tag == "v1.2" else None)
    assert (found.uses if isinstance(found, ActionPlace) else found).endswith(place)


def test_the_commit_of_a_tag_is_read_from_the_repository(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "p")
    commit = git(folder, "rev-parse", "HEAD")
    git(folder, "tag", "v1")
    git(folder, "tag", "--annotate", "--message", "two", "v2")
    assert [tagged_commit(str(folder), tag) for tag in ("v1", "v2", "v3")] == [commit, commit, None]
    assert tagged_commit(str(tmp_path / "none"), "v1") is None


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="the built wheel brings no build hook along")
@pytest.mark.parametrize(
    ("remote", "source"),
    [
        ("https://github.com/octo/pullwright.git", "https://github.com/octo/pullwright"),
        ("https://x:secret@GitHub.com/octo/pullwright", "https://github.com/octo/pullwright"),
        ("git@github.com:octo/pullwright.git", "https://github.com/octo/pullwright"),
        ("/srv/pullwright.git", ""),
        ("", ""),
    ],
)
def test_a_built_package_names_the_place_from_which_it_is_built(
    tmp_path: Path, remote: str, source: str
) -> None:
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        ".ci/source_address.py",
        "orchestrator/core/version.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    if remote:
        git(tmp_path, "init", "-q")
        git(tmp_path, "remote", "add", "origin", remote)
    urls = ProjectMetadata(str(tmp_path), PluginManager()).core.urls
    assert urls == ({"Source": source} if source else {})
    # A source distribution keeps it.
    shutil.rmtree(tmp_path / ".git", ignore_errors=True)
    lines = [f"Project-URL: {label}, {url}" for label, url in urls.items()]
    (tmp_path / "PKG-INFO").write_text(
        "\n".join(["Metadata-Version: 2.4", "Name: pullwright", "Version: 1.0.0", *lines]) + "\n"
    )
    assert ProjectMetadata(str(tmp_path), PluginManager()).core.urls == urls
    place = read_release([f"Source, {url}" for url in urls.values()], "1.0.0", lambda _url, _tag: "a" * 40)
    assert (
        place == ActionPlace("github.com", f"octo/pullwright/.github/actions/pullwright@{'a' * 40}")
    ) is bool(source)
