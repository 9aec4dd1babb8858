"""Records on hidden references, and their git objects."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.records import (
    Records,
    RemoteRecord,
    _Growth,
    write_object,
    write_record,
    write_tree_object,
)
from orchestrator.bot.git.folders import sweep
from orchestrator.core.errors import PushRejectedError, RemoteUnavailableError, WorkspaceError
from orchestrator.core.redaction import Credential
from tests.unit.bot.coordination.records_rig import LOST, REF, Naps, bare, broken_git, logged_git, opened, put
from tests.unit.bot.git.rig import git, make_source, over_ssh
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.git.local import IdKind


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(params=["bare", "work tree", "sha256"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "work tree":
        return make_source(tmp_path / "source", {"README.md": "# Example\n"})
    return bare(tmp_path, *(("--object-format=sha256",) if request.param == "sha256" else ()))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return bare(tmp_path)


@pytest.fixture
def records(remote: Path, tmp_path: Path) -> Iterator[Records]:
    with opened(remote, tmp_path) as found:
        yield found


def test_a_record_is_written_once_and_read_elsewhere(records: Records, remote: Path, tmp_path: Path) -> None:
    assert records.list("refs/pullwright/claims/") == {}
    assert records.read(REF) is None
    made = records.commit("hello\n\nworld", None, {"state.json": b"{}", "session.jsonl": b"\0\xff" * 40_000})
    assert records.list("refs/pullwright/claims/") == {}
    assert records.swap(REF, None, made)
    with opened(remote, tmp_path) as other:
        assert other.list("refs/pullwright/claims/", "refs/pullwright/wip/") == {REF: made}
        pages = {"session.jsonl": b"\0\xff" * 40_000, "state.json": b"{}"}
        assert other.read(REF, pages=True) == RemoteRecord(REF, made, None, "hello\n\nworld\n", pages)
        after = other.commit("second", made)
        assert other.swap(REF, made, after)
        assert not other.swap(REF, made, other.commit("third", made))
        assert not other.swap(REF, None, other.commit("third", None))
    assert records.read(after) == RemoteRecord("", after, made, "second\n")
    assert not records.delete(REF, made)
    assert records.delete(REF, after)
    assert records.list("refs/pullwright/") == {}


def test_nothing_is_made_before_the_first_use_and_nothing_stays(plain: Path, tmp_path: Path) -> None:
    home = tmp_path / "not" / "there"
    with opened(plain, home) as records:
        assert not home.parent.exists()
        records.commit("x", None)
        assert len(list((home / "scratch").iterdir())) == 1
    assert list((home / "scratch").iterdir()) == []


def test_what_a_dead_process_left_is_swept(plain: Path, tmp_path: Path) -> None:
    script = "import sys, pathlib, os\nfrom orchestrator.bot.coordination.records import Records\n"
    script += "Records(pathlib.Path(sys.argv[1]), sys.argv[2], lambda: None).commit('x', None)\nos._exit(1)"
    scratch = tmp_path / "scratch"
    subprocess.run([sys.executable, "-c", script, str(scratch), str(plain)], check=False)
    with opened(plain, tmp_path) as records:
        records.commit("x", None)
        assert len(list(scratch.iterdir())) == 2
        assert len(sweep(scratch)) == 1
        records.commit("y", None)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {}, 60.0),
        (429, {"Retry-After": "90"}, 90.0),
        (503, {"Retry-After": "7"}, 7.0),
        (
            429,
            {"Date": "Sun, 22 Nov 2026 12:00:00 GMT", "Retry-After": "Sun, 22 Nov 2026 12:02:00 GMT"},
            120.0,
        ),
    ],
)
def test_a_git_server_that_wants_a_pause_is_not_asked_at_once(
    plain: Path, tmp_path: Path, status: int, headers: dict[str, str], seconds: float
) -> None:
    """With real git over HTTP."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        server.status = None if len(slept) >= 2 else status

    git(plain, "config", "http.receivepack", "true")
    with SmartHttp(plain.parent).running() as server:
        server.status, server.headers = status, headers
        login = Credential("127.0.0.1", server.user, server.password)
        url = f"{server.url}/{plain.name}"
        with Records(tmp_path / "scratch", url, lambda: login, sleep=sleep) as records:
            assert records.list("refs/pullwright/claims/") == {}
            assert slept == [seconds, seconds]
            server.status = status
            slept.clear()
            assert records.swap(REF, None, records.commit("hello", None))
            assert slept == [seconds, seconds]


def test_an_empty_remote_and_one_whose_head_names_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "empty.git")
    with opened(tmp_path / "empty.git", tmp_path) as records:
        assert records.swap(REF, None, records.commit("x", None))
    path = bare(tmp_path, "--object-format=sha256")
    git(path, "symbolic-ref", "HEAD", "refs/heads/gone")
    with opened(path, tmp_path) as records:
        assert records.swap(REF, None, records.commit("x", None))


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/main",
        "refs/pullwright/../heads/main",
        "refs/pullwright/a b",
        "refs/pullwright/a:refs/heads/main",
        "refs/pullwright/-x",
        "refs/pullwright/*",
        "refs/pullwright/x.lock",
        "--upload-pack=x",
        "",
    ],
)
def test_only_our_own_names(plain: Path, tmp_path: Path, name: str) -> None:
    with opened(plain, tmp_path) as records:
        made = records.commit("x", None)
        for work in (lambda: records.list(name), lambda: records.swap(name, None, made)):
            with pytest.raises(WorkspaceError, match="cannot be the name of a record"):
                work()
        with pytest.raises(WorkspaceError, match="cannot be the name of a page"):
            records.commit("x", None, {"../x": b""})


def test_what_others_wrote_is_data(plain: Path, tmp_path: Path) -> None:
    first = put(plain, REF, b"\xff\xfe" + b"x" * 100)
    put(plain, f"{REF}-large", b"x" * 70_000)
    blob = git(plain, "hash-object", "-w", "--stdin", stdin=b"no commit")
    git(plain, "update-ref", f"{REF}-blob", blob)
    git(plain, "tag", "-a", "-m", "a tag", "v1", "main")
    git(plain, "update-ref", f"{REF}-tag", git(plain, "rev-parse", "v1"))
    git(plain, "update-ref", f"{REF}-tree", git(plain, "rev-parse", "main^{tree}"))
    git(plain, "update-ref", f"refs/heads/{REF}", "main")
    with opened(plain, tmp_path) as records:
        found = records.list("refs/pullwright/claims/")
        assert len(found) == 5
        read = records.read_all(found)
        assert read[REF] == RemoteRecord(REF, first, None, "\ufffd\ufffd" + "x" * 100)
        faults = {ref.removeprefix(REF): record.fault for ref, record in read.items()}
        assert faults.pop("") is None
        assert "larger than" in (faults.pop("-large") or "")
        assert all(faults.values()), faults
        assert records.list(REF) == {REF: first}


def test_pages_that_are_none(plain: Path, tmp_path: Path) -> None:
    blob = git(plain, "hash-object", "-w", "--stdin", stdin=b"/etc/passwd")
    trees = [
        f"120000 blob {blob}\tlink\n",
        f"100755 blob {blob}\tprogram\n",
        f"160000 commit {'1' * 40}\tmodule\n",
        "".join(f"100644 blob {blob}\t{number}\n" for number in range(33)),
        "".join(f"100644 blob {blob}\t{number}\n" for number in range(1000)),
    ]
    with opened(plain, tmp_path) as records:
        for tree in trees:
            made = git(plain, "mktree", "--missing", stdin=tree.encode())
            git(plain, "update-ref", REF, git(plain, "commit-tree", made, "-m", "x"))
            record = records.read(REF, pages=True)
            assert record is not None
            assert record.fault is not None
            assert record.pages == {}


def test_a_record_that_is_too_large_is_not_fetched_whole(plain: Path, tmp_path: Path) -> None:
    good = put(plain, f"{REF}-good", "good")
    blob = git(plain, "hash-object", "-w", "--stdin", stdin=os.urandom(4_000_000))
    tree = git(plain, "mktree", stdin=f"100644 blob {blob}\tlarge\n".encode())
    git(plain, "update-ref", REF, git(plain, "commit-tree", tree, "-m", "x"))
    with opened(plain, tmp_path) as records:
        read = records.read_all(records.list("refs/pullwright/claims/"))
    assert read[f"{REF}-good"] == RemoteRecord(f"{REF}-good", good, None, "good")
    assert "larger than" in (read[REF].fault or "")


def test_a_lost_answer_is_found_out(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(plain, tmp_path) as records:
        made = records.commit("x", None)
        broken_git(tmp_path, monkeypatch, f'case " $* " in *" push "*) $real "$@" >&2; {LOST};; esac')
        assert records.swap(REF, None, made)
        assert not records.swap(REF, None, records.commit("y", None))
        assert records.delete(REF, made)


def test_a_request_that_never_arrived_is_sent_again(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "once"
    naps = Naps()
    with Records(tmp_path / "scratch", str(plain), lambda: None, sleep=naps) as records:
        made = records.commit("x", None)
        script = f'case " $* " in *" push "*) test -e {once} || {{ touch {once}; {LOST}; }};; esac'
        broken_git(tmp_path, monkeypatch, script)
        assert records.swap(REF, None, made)
    assert len(naps.seconds) == 1


@pytest.mark.parametrize("command", ["push", "ls-remote"])
def test_a_network_that_is_gone(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    naps = Naps()
    with Records(tmp_path / "scratch", str(plain), lambda: None, sleep=naps) as records:
        made = records.commit("x", None)
        broken_git(tmp_path, monkeypatch, f'case " $* " in *" {command} "*) {LOST};; esac')
        with pytest.raises(RemoteUnavailableError, match="hung up"):
            records.swap(REF, None, made) if command == "push" else records.list(REF)
    assert naps.seconds == sorted(naps.seconds)
    assert len(naps.seconds) == 5


def test_the_server_says_no(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = plain / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'GH013: no hidden references'\nexit 1\n")
    hook.chmod(0o755)
    with Records(tmp_path / "scratch", over_ssh(plain, tmp_path, monkeypatch), lambda: None) as records:
        made = records.commit("x", None)
        with pytest.raises(PushRejectedError, match="GH013: no hidden references"):
            records.swap(REF, None, made)


def test_a_reference_that_is_locked_is_tried_again(plain: Path, tmp_path: Path) -> None:
    lock = plain / f"{REF}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    def sleep(_seconds: float) -> None:
        lock.unlink(missing_ok=True)

    with Records(tmp_path / "scratch", str(plain), lambda: None, sleep=sleep) as records:
        assert records.swap(REF, None, records.commit("x", None))


ALLOW = r"let this account create, move and remove refs/pullwright/\* on the server"


def test_a_server_that_hides_our_names(plain: Path, tmp_path: Path) -> None:
    git(plain, "config", "receive.hideRefs", "refs/pullwright")
    with opened(plain, tmp_path) as records:
        made = records.commit("x", None)
        with pytest.raises(
            PushRejectedError, match=rf"does not accept {REF} \(deny updating a hidden ref\); {ALLOW}"
        ):
            records.swap(REF, None, made)


@pytest.mark.parametrize(
    ("ref", "reason", "said"),
    [
        (REF, "prohibited by Gerrit: not permitted: create", f"{REF} \\(prohibited by Gerrit.*{ALLOW}"),
        (REF, "funny refname", f"does not accept {REF} \\(funny refname\\); {ALLOW}"),
        (REF, "pre-receive hook declined", f"declined; if the server refuses the name {REF}, {ALLOW}"),
        (REF, "push declined due to repository rule violations", "rule violations$"),
        ("refs/heads/x", "pre-receive hook declined", "pre-receive hook declined$"),
        ("refs/heads/x", "prohibited by Gerrit: not permitted: create", "not permitted: create$"),
    ],
)
def test_which_name_a_server_refuses(  # noqa: PLR0913, PLR0917  one case and three fixtures
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ref: str, reason: str, said: str
) -> None:
    with opened(plain, tmp_path) as records:
        made = records.commit("x", None)
        line = rf"!\t{made}:{ref}\t[remote rejected] ({reason})\n"
        broken_git(tmp_path, monkeypatch, f'case " $* " in *" push "*) printf \'{line}\'; exit 1;; esac')
        with pytest.raises(PushRejectedError, match=said):
            records.swap(REF, None, made)


KINDS: tuple[IdKind, ...] = ("sha1", "sha256")


@pytest.mark.parametrize("ids", KINDS)
@pytest.mark.parametrize("content", [b"", b"x", b"\0\xff\n" * 50_000], ids=["empty", "short", "long"])
def test_a_blob_is_what_git_would_have_made(tmp_path: Path, ids: IdKind, content: bytes) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    name = write_object(path / "objects", "blob", content, ids)
    assert name == git(path, "hash-object", "--stdin", stdin=content)
    assert int(git(path, "cat-file", "-s", name)) == len(content)
    assert git(path, "cat-file", "-t", name) == "blob"
    before = sorted(path.rglob("*"))
    assert write_object(path / "objects", "blob", content, ids) == name
    assert sorted(path.rglob("*")) == before, "a second time writes nothing, and leaves nothing"


@pytest.mark.parametrize("ids", KINDS)
def test_a_tree_is_in_gits_order(tmp_path: Path, ids: IdKind) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    blob = write_object(path / "objects", "blob", b"x", ids)
    names = ["b", "a.txt", "a-1", "a", "a0"]
    tree = write_tree_object(path / "objects", dict.fromkeys(names, blob), ids)
    listed = "".join(f"100644 blob {blob}\t{name}\n" for name in names)
    assert tree == git(path, "mktree", stdin=listed.encode())


@pytest.mark.parametrize("ids", KINDS)
def test_git_finds_nothing_wrong_with_a_record(tmp_path: Path, ids: IdKind) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    with opened(path, tmp_path) as records:
        first = records.commit("one", None)
        second = records.commit("two \ud800 é\n\n{}", first, {"state.json": b"{}", "a.log": b""})
        place = records.objects.parent
        assert git(place, "cat-file", "-p", f"{second}^{{tree}}").split("\t")[1:]
        git(place, "fsck", "--strict", "--no-dangling", second)
        assert git(place, "log", "--format=%s %P", "-1", second) == f"two ? é {first}"
        assert git(place, "log", "--format=%an %ae %ad", "-1", first).startswith(
            "Pullwright pullwright@invalid"
        )
        with pytest.raises(WorkspaceError, match="is not a commit id"):
            records.commit("three", "main\nauthor somebody else")


def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot write a record: No such file"):
        write_object(tmp_path / "gone", "blob", b"x", "sha1")


def test_what_the_remote_has_no_more_hides_no_other_record(plain: Path, tmp_path: Path) -> None:
    made = put(plain, REF, "one")
    other = f"{REF}-2"
    with opened(plain, tmp_path) as records:
        found = records.read_all({REF: made, other: "e" * len(made)})
    assert (found[REF].fault, found[REF].message) == (None, "one")
    assert found[other].fault == "the remote does not have it any more"


@pytest.mark.parametrize(("size", "fits"), [(100_000, True), (100_001, False)])
def test_the_pages_of_a_record_have_a_bound(tmp_path: Path, size: int, *, fits: bool) -> None:
    remote = bare(tmp_path)
    made = write_record(
        remote / "objects", "sha1", "x", None, {"a": bytes(400), "b": bytes(size - 400)}, NOON
    )
    git(remote, "update-ref", REF, made)
    with opened(remote, tmp_path) as records:
        record = records.read_all({REF: made}, pages=True, most_bytes=100_000)[REF]
    if fits:
        assert {name: len(page) for name, page in record.pages.items()} == {"a": 400, "b": 99_600}
    else:
        assert record.fault is not None
        assert not record.pages


def test_records_come_in_one_fetch(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was answered is not taken for one that failed, and asked for again alone."""
    found = {f"{REF}-{number}": put(plain, f"{REF}-{number}", f"text {number}") for number in range(3)}
    with opened(plain, tmp_path) as records:
        commands = logged_git(tmp_path, monkeypatch)
        read = records.read_all(found)
        assert commands().count("fetch") == 1
        assert sorted(record.message for record in read.values()) == ["text 0", "text 1", "text 2"]
        records.read_all(found)
        assert "fetch" not in commands(), "what is here is not fetched again"


class LeftBehind(type(Path())):  # type: ignore[misc]
    """A folder of packs from which a git that is ending removes its own file while it is read."""

    def iterdir(self) -> Iterator[Path]:
        yield from super().iterdir()
        yield self / "tmp_pack_gone"


def test_what_was_fetched_above_the_limit_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "before.pack").write_bytes(b"x" * 100)
    growth = _Growth(tmp_path, 10, lambda: False)
    (tmp_path / "new.pack").write_bytes(b"x" * 10)
    assert not growth()
    growth.require_limit()
    (tmp_path / "tmp_pack").write_bytes(b"x")
    growth._packs = LeftBehind(tmp_path)
    assert growth()
    with pytest.raises(WorkspaceError, match="it is larger than 10 bytes"):
        growth.require_limit()
    assert [path.name for path in tmp_path.iterdir()] == ["before.pack"]
    assert _Growth(tmp_path, 10, lambda: True)(), "or it is cancelled"
