from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.scenarios.stage import (
    FILES,
    FINISH,
    FIX,
    FIX_IT,
    PROPOSE,
    Stage,
    add_commit,
    branches,
    content,
    do,
    git,
    make_repository,
    program,
)

TASK = ("--task", "Fix add() in calc.py")

USAGE: list[tuple[str, list[str], str]] = [
    ("nothing named", ["run"], "--repo"),
    ("no model", ["run", "--repo", "{repo}", "--task", "x"], "--model"),
    ("an unknown provider", ["run", "--repo", "{repo}", "--task", "x", "--model", "opnai:x"], "openai"),
    ("a model without a name", ["run", "--repo", "{repo}", "--task", "x", "--model", "gpt"], "PROVIDER:NAME"),
    (
        "a key that is missing",
        ["run", "--repo", "{repo}", "--task", "x", "--model", "openai-chat:gpt-5.2"],
        "OPENAI_API_KEY",
    ),
    (
        "a protocol of a later version",
        ["run", "--repo", "{repo}", "--task", "x", "--model", "gemini:g"],
        "gemini",
    ),
    (
        "a folder that is not there",
        [
            "run",
            "--repo",
            "/no/such",
            "--task",
            "x",
            "--model",
            "openai-chat:x",
            "--api-url",
            "http://127.0.0.1:9",
        ],
        "/no/such",
    ),
    (
        "a name that would change a terminal's colour",
        [
            "run",
            "--repo",
            "/no/such\x1b[31my",
            "--task",
            "x",
            "--model",
            "openai-chat:x",
            "--api-url",
            "http://127.0.0.1:9",
        ],
        "/no/suchy: no such folder",
    ),
    (
        "a folder that is no repository",
        [
            "run",
            "--repo",
            "{tmp}",
            "--task",
            "x",
            "--model",
            "openai-chat:x",
            "--api-url",
            "http://127.0.0.1:9",
        ],
        "not a git repository",
    ),
    ("a mistyped flag", ["run", "--rep", "x"], "--repo"),
    ("a mistyped command", ["rum"], "run"),
    ("no rounds at all", ["run", "--demo", "--max-rounds", "0"], "max-rounds"),
    ("an issue that is no number", ["run", "--repo", "a/b", "--issue", "x"], "--issue"),
    ("issue and task", ["run", "--repo", "a/b", "--issue", "1", "--task", "x"], "--task"),
    ("an empty task", ["run", "--repo", "{repo}", "--task", " ", "--model", "openai-chat:x"], "--task"),
    ("an unknown run", ["show", "20200101"], "no run"),
]


@pytest.mark.parametrize(("argv", "words"), [case[1:] for case in USAGE], ids=[case[0] for case in USAGE])
def test_bad_usage_is_one_line_that_says_what_to_do(
    stage: Stage, repository: Path, tmp_path: Path, argv: list[str], words: str
) -> None:
    filled = [word.format(repo=repository, tmp=tmp_path) for word in argv]
    done = stage.command(*filled)
    assert done.code in {1, 2}
    assert done.out == ""
    assert len(done.err.strip().splitlines()) == 1
    assert words in done.err
    assert "Traceback" not in done.err


def test_with_json_a_run_that_cannot_begin_is_a_result_of_the_same_form(
    stage: Stage, repository: Path
) -> None:
    stage.script(FIX_IT)
    usual = stage.run("--repo", str(repository), *TASK).result
    refused = stage.run("--repo", "/no/such", *TASK)
    assert refused.result.keys() == usual.keys()
    assert refused.result["outcome"] == "failed"
    assert "/no/such" in refused.result["error"]


def test_an_empty_repository_is_named(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "--quiet")
    done = stage.run("--repo", str(folder), *TASK)
    assert done.code == 1
    assert "first commit" in done.result["error"]


def test_a_detached_head_asks_for_a_base(stage: Stage, repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 1
    assert "--base" in done.result["error"]
    stage.script(FIX_IT)
    assert stage.run("--repo", str(repository), *TASK, "--base", "main").code == 0


def test_a_branch_that_is_not_there(stage: Stage, repository: Path) -> None:
    done = stage.run("--repo", str(repository), *TASK, "--base", "nope")
    assert "nope" in done.result["error"]


def test_an_issue_of_a_local_repository_is_refused(stage: Stage, repository: Path) -> None:
    done = stage.run("--repo", str(repository), "--issue", "3")
    assert done.code in {1, 2}
    assert "--task" in done.result["error"]


def test_a_remote_that_takes_no_push_costs_nothing(stage: Stage, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    git(tmp_path / "bare.git", "config", "receive.hideRefs", "refs")
    done = stage.run("--repo", str(tmp_path / "bare.git"), *TASK)
    assert done.code == 1
    assert done.result["outcome"] == "failed"
    assert "does not accept refs/pullwright/claims/" in done.result["error"]
    assert stage.model.requests == []


def test_a_remote_that_takes_no_branch_loses_no_work(stage: Stage, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    git(tmp_path / "bare.git", "config", "receive.hideRefs", "refs/heads")
    stage.script(FIX_IT)
    done = stage.run("--repo", str(tmp_path / "bare.git"), *TASK)
    assert done.code == 1
    assert done.result["outcome"] == "failed"
    assert "deny updating a hidden ref" in done.result["error"]
    assert done.result["pull_request"] is None
    git(repository, "apply", "--check", done.result["patch"])


def test_a_protected_default_branch_is_no_obstacle(stage: Stage, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    git(tmp_path / "bare.git", "config", "receive.hideRefs", "refs/heads/main")
    stage.script(FIX_IT)
    assert stage.run("--repo", str(tmp_path / "bare.git"), *TASK).code == 0


def test_awkward_files_do_no_harm(stage: Stage, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.txt")
    repository = make_repository(
        tmp_path / "odd",
        {
            **FILES,
            "logo.png": b"\x89PNG\r\n\x1a\n\0\0",
            "dos.txt": b"one\r\ntwo\r\n",
            odd: "not utf-8\n",
            "empty.txt": "",
        },
    )
    with (repository / "huge.bin").open("wb") as sparse:
        sparse.truncate(30_000_000)
    git(repository, "-c", "core.compression=0", "add", "huge.bin")
    git(repository, "commit", "--quiet", "-m", "Huge")
    edit = ("edit_file", {"path": "dos.txt", "old_text": "two", "new_text": "three"})
    stage.script(
        do(("read_file", {"path": "logo.png"})),
        do(("read_file", {"path": "huge.bin"})),
        do(FIX, edit, PROPOSE, FINISH),
    )
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    assert "logo.png is an image" in stage.told(1)
    assert "FAILED" in stage.told(2)
    (branch,) = branches(repository)
    shown = subprocess.run(
        ["git", "-C", repository, "show", f"{branch}:dos.txt"], capture_output=True, check=True
    )
    assert shown.stdout == b"one\r\nthree\r\n"
    assert "huge.bin" in stage.told(0)


def test_a_submodule_is_not_written_into(stage: Stage, repository: Path, tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner", {"a.txt": "a\n"})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, "commit", "--quiet", "-m", "Submodule")
    stage.script(do(("write_file", {"path": "sub/b.txt", "content": "b\n"})), FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    assert "FAILED" in stage.told(1)
    assert git(repository, "diff", "--name-only", f"main..{done.result['branch']}") == "calc.py"


def test_a_repository_without_a_readable_template_is_no_problem(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"PULL_REQUEST_TEMPLATE.md": b"\xff\xfe\0"}, "Broken template")
    stage.script(FIX_IT)
    assert stage.run("--repo", str(repository), *TASK).code == 0


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_without_git_the_message_says_so(repository: Path, tmp_path: Path) -> None:
    done = program("run", "--demo", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "git" in done.stderr
    assert "Traceback" not in done.stderr
    assert repository.is_dir()


@pytest.mark.slow(reason="fills a disk")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_loses_no_work(repository: Path, tmp_path: Path, stage: Stage) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], check=True)
    try:
        (small / "ballast").write_bytes(b"x" * 150_000)
        ballast = ("write_file", {"path": "big.txt", "content": "x" * 400_000})
        stage.script(do(FIX, ballast), FIX_IT)
        model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
        words = ["run", "--repo", str(repository), *TASK, *model, "--json", "--plain"]
        done = program(*words, PULLWRIGHT_HOME=str(small / "home"))
        assert done.returncode == 1
        assert "no space" in done.stderr
        result = json.loads(done.stdout)
        assert result["outcome"] == "failed"
        assert result["patch"] is None, "the repository has all of the work"
        assert git(repository, "cat-file", "-s", f"{result['saved']}^:big.txt").strip() == "400000"
        assert len(stage.model.requests) == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_the_working_folder_of_the_user_is_not_a_source_of_keys(
    stage: Stage, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pullwright.toml").write_text(f'api_url = "{stage.model.url}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    done = stage.command("run", "--model", "openai-chat:x", "--repo", str(repository), *TASK)
    assert done.code == 2
    assert "--api-url" in done.err
    assert stage.model.requests == []
    assert content(repository, "main", "calc.py")
    assert Path.cwd() == tmp_path
