"""Contents of Git LFS, given to a server over the batch API."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.git.base import CommitScreen
from orchestrator.bot.git.lfs import LfsServer
from orchestrator.bot.git.remote import parse_remote
from orchestrator.core.errors import PushRefusedError, RemoteRateLimitError, RemoteUnavailableError
from orchestrator.core.redaction import Credential
from tests.doubles.commits import commit_touched
from tests.doubles.lfs_server import GRANT, LfsStorage, LfsStore
from tests.unit.bot.git.rig import clone, git, make_source, write
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/x"
CONTENT = b"\0\1\2 binary " * 20_000
OID = hashlib.sha256(CONTENT).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(CONTENT)}\n"
ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\n"


@pytest.fixture
def lfs() -> Iterator[LfsStorage]:
    with LfsStorage(LfsStore()) as storage:
        yield storage


@pytest.fixture
def server(tmp_path: Path, lfs: LfsStorage) -> Iterator[SmartHttp]:
    yield from serve(tmp_path, lfs, {})


def serve(tmp_path: Path, lfs: LfsStorage, files: dict[str, str]) -> Iterator[SmartHttp]:
    source = make_source(tmp_path / "source", {".gitattributes": ATTRIBUTES, "b": "b\n", **files})
    git(tmp_path, "clone", "-q", "--bare", str(source), "served/repo.git")
    git(tmp_path / "served/repo.git", "config", "http.receivepack", "true")
    with SmartHttp(tmp_path / "served", lfs=lfs.store).running() as running:
        yield running


def opened(server: SmartHttp, tmp_path: Path) -> Clone:
    credential = Credential(f"127.0.0.1:{server.port}", server.user, server.password)
    return clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential)


def refusal(server: SmartHttp, tmp_path: Path) -> str:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        return made.stage({"new.bin"}, include_commands=False).outcome.refused or ""


def why(reason: str) -> str:
    return f"new.bin: its content belongs into Git LFS, {reason}: add the file by hand, with git lfs"


def test_a_new_content_is_uploaded_and_its_pointer_is_committed(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT, "b": "changed\n"})
        outcome = commit_touched(made, {"new.bin", "b"}, "m", include_commands=False)
        assert (outcome.refused, outcome.files) == (None, ["b", "new.bin"])
        assert lfs.store.objects == {}, "nothing is uploaded before the push"
        assert f"+oid sha256:{OID}" in made.diff()
        assert made.changed_paths() == set()
        again = made.stage({"new.bin", "b"}, include_commands=True)
        assert (again.is_new, again.outcome.files) == (False, [])
        made.push(BRANCH, expected=None)
    assert lfs.store.objects == {OID: CONTENT}
    assert git(tmp_path / "served/repo.git", "show", f"{BRANCH}:new.bin") == POINTER.removesuffix("\n")
    asked = {"operation": "upload", "transfers": ["basic"], "hash_algo": "sha256"}
    listed = [{"oid": OID, "size": len(CONTENT)}]
    assert lfs.store.batches == [
        {**asked, "objects": listed},
        {**asked, "objects": listed, "ref": {"name": f"refs/heads/{BRANCH}"}},
    ]
    assert [what for what, _ in lfs.store.shown] == [
        "POST /repo.git/info/lfs/objects/batch",
        "POST /repo.git/info/lfs/objects/batch",
        f"PUT /{OID}",
        "POST /verify",
    ]


@pytest.mark.parametrize("is_authenticated", [True, False])
def test_the_token_goes_to_the_forge_alone(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path, *, is_authenticated: bool
) -> None:
    def change(reply: dict[str, Any]) -> dict[str, Any]:
        for one in reply["objects"]:
            one["authenticated"] = is_authenticated
        return reply

    lfs.store.changes = change
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        made.push(BRANCH, expected=None)
    for what, headers in lfs.store.shown:
        is_batch = what.endswith("/batch")
        assert ("authorization" in headers) == is_batch, what
        assert (headers.get("x-storage-grant") == GRANT) != is_batch, what


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="needs the program git-lfs")
def test_git_lfs_itself_fetches_what_was_uploaded(server: SmartHttp, tmp_path: Path) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT, "small.bin": b"x"})
        commit_touched(made, {"new.bin", "small.bin"}, "m", include_commands=False)
        made.push(BRANCH, expected=None)
    url = f"http://{server.user}:{server.password}@127.0.0.1:{server.port}/repo.git"
    home = {**os.environ, "HOME": str(tmp_path), "GIT_LFS_SKIP_SMUDGE": "1", "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*words: str, at: Path) -> str:
        return subprocess.run(
            ["git", *words], check=True, cwd=at, env=home, capture_output=True, text=True
        ).stdout

    run("lfs", "install", "--skip-repo", at=tmp_path)
    run("clone", "-q", "--branch", BRANCH, url, "fetched", at=tmp_path)
    run("lfs", "pull", at=tmp_path / "fetched")
    assert (tmp_path / "fetched/new.bin").read_bytes() == CONTENT
    assert (tmp_path / "fetched/small.bin").read_bytes() == b"x"
    run("lfs", "fsck", "--pointers", at=tmp_path / "fetched")
    assert run("status", "--porcelain", at=tmp_path / "fetched") == ""


def test_a_content_that_the_server_has_is_not_uploaded(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    lfs.store.objects[OID] = CONTENT
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        made.push(BRANCH, expected=None)
    assert not any(what.startswith("PUT") for what, _ in lfs.store.shown)


def test_a_later_content_replaces_the_first_and_both_pushes_are_whole(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": b"first"})
        commit_touched(made, {"new.bin"}, "one", include_commands=False)
        made.push(BRANCH, expected=None)
        write(made.tree, {"new.bin": CONTENT})
        assert made.changed_paths() == {"new.bin"}
        outcome = commit_touched(made, {"new.bin"}, "two", include_commands=False)
        assert outcome.files == ["new.bin"]
        made.push(BRANCH, expected=None)
    assert set(lfs.store.objects.values()) == {b"first", CONTENT}


def test_what_commands_made_is_stored_too(server: SmartHttp, lfs: LfsStorage, tmp_path: Path) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"built.bin": CONTENT})
        assert commit_touched(made, set(), "m", include_commands=True).files == ["built.bin"]
        made.push(BRANCH, expected=None)
    assert lfs.store.objects == {OID: CONTENT}


def test_contents_are_searched_and_held_back_as_such(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT + b"\nhunter2\n", "b": "changed\n"})
        seen: list[str] = []

        def find(diff: str) -> list[str]:
            seen.append(diff)
            return ["new.bin"]

        screen = CommitScreen(find_secrets=find)
        staged = made.stage({"new.bin", "b"}, include_commands=False, screen=screen)
        assert not staged.is_new
        assert "+hunter2" in seen[0]
        held = CommitScreen(hold=lambda change: "waits" if change.path == "new.bin" else None)
        outcome = commit_touched(made, {"new.bin", "b"}, "m", include_commands=False, screen=held)
        assert (outcome.files, [item.path for item in outcome.held]) == (["b"], ["new.bin"])
        made.push(BRANCH, expected=None)
    assert lfs.store.objects == {}, "what waits for a person is not uploaded"


@pytest.mark.parametrize(
    ("status", "says", "shown"),
    [
        (404, "Not Found", "404: Not Found"),
        (403, "LFS is off", "403: LFS is off"),
        (401, "who?", "401: who?"),
        (507, "", "507"),
        (501, "never\nmind", "501: never mind"),
    ],
)
def test_a_server_that_does_not_take_it_is_the_reason(  # noqa: PLR0913, PLR0917  a row of the table
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path, status: int, says: str, shown: str
) -> None:
    lfs.store.status, lfs.store.says = status, says
    assert refusal(server, tmp_path) == why(f"and the server does not take it ({shown})")


def test_a_server_without_lfs_is_the_reason(server: SmartHttp, tmp_path: Path) -> None:
    server.lfs = None
    assert refusal(server, tmp_path) == why("and the server does not take it (404: Not Found)")


def test_an_error_about_one_object_is_the_reason_without_the_token(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    lfs.store.errors[OID] = 422, "too big"
    assert refusal(server, tmp_path) == why("and the server does not take it (422: too big)")
    lfs.store.errors.clear()
    lfs.store.status, lfs.store.says = 403, f"token {server.password} is not enough"
    said = refusal(server, tmp_path)
    assert "is not enough" in said
    assert server.password not in said


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_is_away_is_no_reason_to_refuse(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path, status: int
) -> None:
    lfs.store.status = status
    with pytest.raises(RemoteUnavailableError, match=f"answered {status}"):
        refusal(server, tmp_path)


def _with(**changed: Any) -> Any:
    return lambda reply: {**reply, **changed}


def _with_action(**changed: Any) -> Any:
    def change(reply: dict[str, Any]) -> dict[str, Any]:
        reply["objects"][0]["actions"]["upload"].update(changed)
        return reply

    return change


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (_with(transfer="tus"), "whose server takes other transfers only than basic ones"),
        (_with(objects=[]), "whose server does not answer about each file"),
        (lambda _reply: b"[" * 200_000, "whose server gives an answer that is none of its protocol"),
        (lambda _reply: b"{", "whose server gives an answer that is none of its protocol"),
        (_with(objects=[1]), "whose server gives an answer that is none of its protocol"),
        (_with(objects=None), "whose server gives an answer that is none of its protocol"),
        (lambda _reply: [], "whose server gives an answer that is none of its protocol"),
        (_with_action(href="file:///etc/passwd"), "whose server names an address that is not used"),
        (
            _with_action(href="http://user:word@storage.invalid/x"),
            "whose server names an address that is not used",
        ),
        (_with_action(href=None), "whose server names an address that is not used"),
        (_with_action(header={"X": "a\r\nY: b"}), "whose server asks for a header field that is none"),
        (_with_action(header={"X Y": "a"}), "whose server asks for a header field that is none"),
    ],
)
def test_an_answer_that_is_not_understood_is_the_reason(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path, changes: Any, reason: str
) -> None:
    lfs.store.changes = changes
    assert refusal(server, tmp_path) == why(reason)


def test_a_redirect_is_followed_to_the_same_host_alone(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    lfs.store.redirects = ["/renamed.git/info/lfs/objects/batch"]
    assert refusal(server, tmp_path) == ""
    assert [what for what, _ in lfs.store.shown][-1] == "POST /renamed.git/info/lfs/objects/batch"
    lfs.store.shown.clear()
    lfs.store.redirects = [f"{lfs.root}/objects/batch"]
    assert refusal(server, tmp_path) == why(
        "whose server sends the request on to another one, which does not get the token"
    )
    assert len(lfs.store.shown) == 1
    lfs.store.redirects = ["/again/objects/batch"] * 9
    assert refusal(server, tmp_path) == why("and the server does not take it (307)")


@pytest.mark.parametrize("key", ["lfs.url", "lfs.pushurl", "remote.origin.lfsurl"])
def test_lfsconfig_names_a_path_of_the_same_host_alone(tmp_path: Path, lfs: LfsStorage, key: str) -> None:
    section, _, name = key.rpartition(".")
    head = '[remote "origin"]' if section.startswith("remote") else f"[{section}]"
    other = f"{head}\n\t{name} = {lfs.root}/else\n"
    for server in serve(tmp_path, lfs, {".lfsconfig": other}):
        own = f"127.0.0.1:{server.port}"
        reason = f"and .lfsconfig names another server than {own}, which does not get the token"
        assert refusal(server, tmp_path) == why(reason)
        assert lfs.store.shown == []
        here = tmp_path / "source"
        for address in (f"http://{own}/other/lfs/", f"http://name@{own}/other/lfs"):
            (here / ".lfsconfig").write_text(f"{head}\n\t{name} = {address}\n")
            git(here, "commit", "-qam", "moved")
            git(here, "push", "-q", str(tmp_path / "served/repo.git"), "main")
            assert refusal(server, tmp_path) == ("" if "@" not in address else why(reason))
        assert [what for what, _ in lfs.store.shown] == ["POST /other/lfs/objects/batch"]


def test_a_lfsconfig_of_the_change_itself_is_not_asked(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT, ".lfsconfig": f"[lfs]\n\turl = {lfs.root}/mine\n"})
        commit_touched(made, {"new.bin", ".lfsconfig"}, "m", include_commands=False)
        made.push(BRANCH, expected=None)
    assert lfs.store.shown[0][0] == "POST /repo.git/info/lfs/objects/batch"


def test_an_upload_on_the_forges_own_host_gets_the_token_if_nothing_else_is_asked_for(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    def change(reply: dict[str, Any]) -> dict[str, Any]:
        one = reply["objects"][0]
        one["authenticated"] = False
        one["actions"] = {"upload": {"href": f"{server.url}/upload"}}
        return reply

    lfs.store.changes = change
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        with pytest.raises(PushRefusedError, match=r"does not take it \(501\)"):
            made.push(BRANCH, expected=None)
        assert server.credentials[-1] == f"{server.user}:{server.password}"


@pytest.mark.parametrize("status", [403, 413, 307])
def test_an_upload_that_is_refused_pushes_nothing(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path, status: int
) -> None:
    lfs.statuses = [status]
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        with pytest.raises(PushRefusedError, match=rf"does not take it \({status}\)") as raised:
            made.push(BRANCH, expected=None)
        assert raised.value.may_differ
        assert made.remote_tip(BRANCH) is None
        made.push(BRANCH, expected=None)
    assert lfs.store.objects == {OID: CONTENT}


def test_a_storage_that_is_away_is_tried_again_later(
    server: SmartHttp, lfs: LfsStorage, tmp_path: Path
) -> None:
    lfs.statuses = [503]
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        with pytest.raises(RemoteUnavailableError, match="answered 503"):
            made.push(BRANCH, expected=None)
        made.push(BRANCH, expected=None)
    assert lfs.store.objects == {OID: CONTENT}


def test_a_storage_that_asks_to_wait_is_not_asked_before(
    tmp_path: Path, server: SmartHttp, lfs: LfsStorage
) -> None:
    lfs.statuses, lfs.retry_after = [429], "40"
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        commit_touched(made, {"new.bin"}, "m", include_commands=False)
        with pytest.raises(RemoteRateLimitError, match="answered 429") as raised:
            made.push(BRANCH, expected=None)
    assert raised.value.seconds == 40


def test_an_upload_that_does_not_end_is_cut_short(tmp_path: Path, server: SmartHttp, lfs: LfsStorage) -> None:
    credential = Credential("127.0.0.1", server.user, server.password)
    remote = replace(parse_remote(f"{server.url}/repo.git", lambda: credential), cancelled=lambda: True)
    with opened(server, tmp_path) as made:
        write(made.tree, {"new.bin": CONTENT})
        made.stage({"new.bin"}, include_commands=False)
        (file,) = made._stager.in_lfs.values()
    gate = lfs.closing

    def hang(reply: dict[str, Any]) -> dict[str, Any]:
        gate.wait(30)
        return reply

    lfs.store.changes = hang
    try:
        with pytest.raises(RemoteUnavailableError, match="interrupted"):
            LfsServer(remote, lambda: "").why_not([file])
    finally:
        gate.set()
