from __future__ import annotations

import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records, RemoteRecord
from orchestrator.bot.coordination.saved_work import (
    MOST_PAGES_BYTES,
    drop_wip,
    list_wip,
    load_wip,
    parse_wip,
    save_wip,
    wip_message,
    wip_ref,
)
from orchestrator.bot.git.base import LeftOut
from orchestrator.bot.git.remote import Update
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError
from tests.doubles.commits import commit_touched
from tests.doubles.github.server import GitHub
from tests.tables import table
from tests.unit.bot.coordination.records_rig import NoClaim
from tests.unit.bot.git.rig import clone, git, make_source, over_ssh, show, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.bot.coordination.saved_work import SavedWork
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.remote import Fence

KEY = "issue-12"
REF = "refs/pullwright/wip/issue-12"
AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
PAGES = {"state.json": b'{"round": 3}', "session.jsonl": b"\xff\0\n" * 10}


@pytest.fixture
def records(source: Path, tmp_path: Path) -> Iterator[Records]:
    with records_of(source, tmp_path) as opened:
        yield opened


def records_of(source: Path | str, tmp_path: Path) -> Records:
    return Records(tmp_path, str(source), lambda: None, clock=ManualClock(), sleep=lambda _: None)


def save(  # noqa: PLR0913  the defaults of a save
    opened: Clone,
    touched: set[str],
    *,
    continues: str | None = None,
    pages: Mapping[str, bytes] | None = None,
    stamp: str = "run-1",
    include_commands: bool = False,
    lease: Fence | None = None,
    **more: Any,
) -> SavedWork:
    return save_wip(
        opened,
        KEY,
        PAGES if pages is None else pages,
        touched=touched,
        include_commands=include_commands,
        continues=continues,
        saved_at=AT,
        stamp=stamp,
        lease=lease or NoClaim(opened.remote),
        **more,
    )


def move_base(source: Path, files: Mapping[str, str | bytes]) -> None:
    write(source, files)
    git(source, "add", ".")
    git(source, "commit", "-qm", "base moved")


def test_work_survives_the_machine(source: Path, tmp_path: Path, records: Records) -> None:
    with clone(source, tmp_path / "runs") as first:
        write(first.tree, {"committed.txt": "1", "src/calc.py": "half"})
        commit_touched(first, {"committed.txt"}, "one", include_commands=False)
        (first.tree / "src/old.py").unlink()
        saved = save(first, {"src/calc.py", "src/old.py"})
        assert saved.left_out == ()
        assert first.changed_paths() == {"src/calc.py", "src/old.py"}
        base = first.base_commit
    assert saved.ref == REF == wip_ref(KEY)
    assert git(source, "rev-parse", REF) == saved.commit
    assert git(source, "rev-parse", f"{REF}^", f"{REF}^^").split() == [saved.work, base]
    loaded = load_wip(records, KEY)
    assert loaded is not None
    assert (loaded.commit, loaded.work, loaded.base) == (saved.commit, saved.work, base)
    assert (loaded.pages, loaded.fault) == (PAGES, None)
    assert list_wip(records) == {KEY: saved.commit}
    assert loaded.work is not None
    with clone(source, tmp_path / "runs") as second:
        applied = second.apply_work(loaded.work, reference=REF)
        assert applied.paths == {"committed.txt", "src/calc.py", "src/old.py"}
        assert not applied.base_moved
        assert (second.tree / "src/calc.py").read_text() == "half"
        assert not (second.tree / "src/old.py").exists()


def test_pages_without_any_change(source: Path, tmp_path: Path, records: Records) -> None:
    with clone(source, tmp_path / "runs") as first:
        saved = save(first, set())
        assert saved.work is None
        assert git(source, "rev-parse", f"{REF}^") == first.base_commit
    loaded = load_wip(records, KEY)
    assert loaded is not None
    assert (loaded.work, loaded.base) == (None, git(source, "rev-parse", "main"))


def test_compare_and_swap(source: Path, tmp_path: Path, records: Records) -> None:
    with clone(source, tmp_path / "runs") as first, clone(source, tmp_path / "runs") as second:
        write(first.tree, {"a": "1"})
        one = save(first, {"a"})
        with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
            save(second, set(), stamp="run-2")
        two = save(first, {"a"}, continues=one.commit, stamp="run-3")
        with pytest.raises(PushRejectedError):
            save(second, set(), continues=one.commit, stamp="run-4")
        assert git(source, "rev-parse", REF) == two.commit
        # The answer was lost, and the same is pushed again.
        assert save(first, {"a"}, continues=one.commit, stamp="run-3") == two
        assert not drop_wip(records, KEY, one.commit, NoClaim(records.remote))
        assert drop_wip(records, KEY, two.commit, NoClaim(records.remote))
        assert drop_wip(records, KEY, two.commit, NoClaim(records.remote))
        assert load_wip(records, KEY) is None
        assert list_wip(records) == {}


def test_work_that_was_brought_back_is_saved_again_untouched(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as first:
        write(first.tree, {"a": "1"})
        saved = save(first, {"a"})
    assert saved.work is not None
    with clone(source, tmp_path / "runs") as second:
        second.apply_work(saved.work, reference=REF)
        write(second.tree, {"b": "1"})
        again = save(second, {"b"}, continues=saved.commit, stamp="run-2")
        assert b"b/a" in second.pending_patch({"b"}, include_commands=False)
    assert again.work is not None
    assert git(source, "diff", "--name-only", "main", again.work).split() == ["a", "b"]


def find_word(made: str) -> list[str]:
    return [line for line in made.splitlines() if line.startswith("+") and "hunter2" in line]


def test_a_file_with_a_secret_stays_here(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"a.txt": "fine", "src/calc.py": "hunter2\n", "d/b.bin": b"\0hunter2\n"})
        saved = save(opened, {"a.txt", "src/calc.py", "d/b.bin"}, find_secrets=find_word)
        reason = "it holds a secret"
        assert saved.left_out == (LeftOut("d/b.bin", reason), LeftOut("src/calc.py", reason))
    assert git(source, "diff", "--name-only", "main", f"{REF}^") == "a.txt"
    assert "hunter2" not in git(source, "log", "-p", "--text", REF)


def test_the_rest_of_a_file_with_a_secret_is_saved(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as opened:
        write(
            opened.tree,
            {"src/calc.py": "work = 1\nkey = 'hunter2'\nmore = 2\n", "d/b.bin": b"\0\xffhunter2\n"},
        )
        saved = save(
            opened,
            {"src/calc.py", "d/b.bin"},
            find_secrets=find_word,
            redact=lambda text: text.replace("hunter2", "[redacted]"),
        )
        assert saved.left_out == (LeftOut("d/b.bin", "it holds a secret"),)
    assert git(source, "show", f"{REF}^:src/calc.py") == "work = 1\nkey = '[redacted]'\nmore = 2"
    assert "hunter2" not in git(source, "log", "-p", "--text", REF)


def test_a_secret_that_no_file_alone_has_keeps_all_of_them_here(source: Path, tmp_path: Path) -> None:
    def together(made: str) -> list[str]:
        return ["both"] if "+one" in made and "+two" in made else []

    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"a.txt": "one\n", "b.txt": "two\n"})
        saved = save(opened, {"a.txt", "b.txt"}, find_secrets=together)
        assert saved.work is None
        assert {item.path for item in saved.left_out} == {"a.txt", "b.txt"}


def test_what_commit_leaves_out_is_left_out_and_named(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"x.log": "1", "a": "1"})
        (opened.tree / "out").symlink_to("/")
        saved = save(opened, {"x.log", "a", "out", "../b", ".git/config"})
        assert {item.path for item in saved.left_out} == {"x.log", "out", "../b", ".git/config"}
    assert git(source, "diff", "--name-only", "main", f"{REF}^") == "a"


def test_a_token_that_may_not_edit_workflows_saves_the_rest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source / ".git/hooks/update"
    path.parent.mkdir(exist_ok=True)
    said = "refusing to allow an OAuth App to create or update workflow `x` without `workflow` scope"
    path.write_text(f"#!/bin/sh\ngit diff --quiet main $3^ -- .github || {{ echo '{said}' >&2; exit 1; }}\n")
    path.chmod(0o755)
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "runs") as opened:
        write(opened.tree, {"a": "1", ".github/workflows/x.yml": "1"})
        saved = save(opened, {"a", ".github/workflows/x.yml"})
        assert [item.path for item in saved.left_out] == [".github/workflows/x.yml"]
    assert git(source, "diff", "--name-only", "main", f"{REF}^") == "a"


@pytest.mark.parametrize(
    ("key", "pages", "expected", "said"),
    [
        ("Issue-12", {}, None, "is not the key of a task"),
        ("../heads/main", {}, None, "is not the key of a task"),
        ("a.lock", {}, None, "is not the key of a task"),
        (KEY, {".git": b""}, None, "cannot be the name of a page"),
        (KEY, {"a/b": b""}, None, "cannot be the name of a page"),
        (KEY, {"a\tb\n": b""}, None, "cannot be the name of a page"),
        (KEY, {"a": bytes(MOST_PAGES_BYTES), "b": b"1"}, None, "its pages have"),
        (KEY, {}, "main", "is not a commit id"),
    ],
)
def test_what_cannot_be_saved_is_said(
    key: str, pages: dict[str, bytes], expected: str | None, said: str, safe: Clone
) -> None:
    with pytest.raises(WorkspaceError, match=said):
        save_wip(
            safe,
            key,
            pages,
            touched=set(),
            include_commands=False,
            continues=expected,
            saved_at=AT,
            stamp="run",
            lease=NoClaim(safe.remote),
        )


# Base moved, rewritten, and branches that are continued.


def test_the_base_moved_without_and_with_a_conflict(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as first:
        write(first.tree, {"src/calc.py": "ours\n", "a": "1"})
        saved = save(first, {"src/calc.py", "a"})
    assert saved.work is not None
    move_base(source, {"other.txt": "1"})
    with clone(source, tmp_path / "runs") as second:
        applied = second.apply_work(saved.work, reference=REF)
        assert (applied.base_moved, applied.conflicts) == (True, [])
        assert (second.tree / "other.txt").read_text() == "1"
    move_base(source, {"src/calc.py": "theirs\n"})
    with clone(source, tmp_path / "runs") as third:
        applied = third.apply_work(saved.work, reference=REF)
        assert (applied.base_moved, applied.conflicts) == (True, ["src/calc.py"])
        # Saved again as it is: the conflict is known to the next run, although nothing is merged there.
        again = save(third, applied.paths, continues=saved.commit, stamp="run-2")
    assert again.work is not None
    with clone(source, tmp_path / "runs") as fourth:
        applied = fourth.apply_work(again.work, reference=REF)
        assert (applied.base_moved, applied.conflicts) == (False, ["src/calc.py"])
        outcome = commit_touched(fourth, applied.paths, "x", include_commands=False)
        assert outcome.refused == "conflict markers are left in src/calc.py"


def test_a_base_that_was_forced_away_lives_on_below_the_work(source: Path, tmp_path: Path) -> None:
    move_base(source, {"gone.txt": "1"})
    with clone(source, tmp_path / "runs") as first:
        write(first.tree, {"a": "1"})
        saved = save(first, {"a"})
    assert saved.work is not None
    git(source, "reset", "-q", "--hard", "main~1")
    move_base(source, {"instead.txt": "1"})
    git(source, "reflog", "expire", "--expire=now", "--all")
    git(source, "gc", "-q", "--prune=now")
    with clone(source, tmp_path / "runs") as second:
        applied = second.apply_work(saved.work, reference=REF)
        assert (applied.paths, applied.base_moved, applied.conflicts) == ({"a"}, True, [])
        assert not (second.tree / "gone.txt").exists()


def test_work_on_a_branch_that_is_continued(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-qb", "people")
    move_base(source, {"src/calc.py": "people\n", "theirs.txt": "1"})
    git(source, "checkout", "-q", "main")
    move_base(source, {"src/calc.py": "base\n"})
    with clone(source, tmp_path / "runs") as first:
        applied = first.continue_branch("people")
        assert applied.conflicts == ["src/calc.py"]
        write(first.tree, {"src/calc.py": "solved\n", "ours.txt": "1"})
        saved = save(first, {"ours.txt"})
    assert saved.work is not None
    assert git(source, "diff", "--name-only", f"{saved.work}^", saved.work).split() == [
        "ours.txt",
        "src/calc.py",
    ]
    with clone(source, tmp_path / "runs") as second:
        joined = second.continue_branch("people")
        applied = second.apply_work(saved.work, reference=REF)
        assert applied.conflicts == []
        assert applied.paths == {"ours.txt", "src/calc.py"}
        assert not applied.base_moved
        outcome = commit_touched(second, applied.paths, "x", include_commands=False)
        assert outcome.commit is not None
        second.push("people", expected=joined.tip)
    assert show(source, "people", "src/calc.py") == b"solved\n"
    assert git(source, "rev-parse", "people^1", "people^2").split() == [
        joined.tip,
        git(source, "rev-parse", "main"),
    ]


# With a claim.


def test_a_release_removes_the_work_in_the_same_push(source: Path, tmp_path: Path, records: Records) -> None:
    stamps = iter(map(str, range(1000)))
    claims = Claims(records, "here", ManualClock(), LeaseTimes(), lambda: next(stamps))
    lease = claims.take(KEY, "run-1")
    assert isinstance(lease, Lease)
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"a": "1"})
        saved = save(opened, {"a"}, lease=lease)
    with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
        lease.release("no_task", drops=Update(REF, lease.record.nonce.zfill(40), None))
    shown = claims.show(KEY)
    assert shown is not None
    assert (shown.state, git(source, "rev-parse", REF)) == ("held", saved.commit)
    assert lease.release("no_task", drops=Update(REF, saved.commit, None))
    assert lease.release("no_task", drops=Update(REF, saved.commit, None))
    shown = claims.show(KEY)
    assert shown is not None
    assert (shown.state, shown.outcome, git(source, "for-each-ref", REF)) == ("released", "no_task", "")


def test_the_claim_moves_with_the_work(source: Path, tmp_path: Path, records: Records) -> None:
    clock = ManualClock()
    stamps = iter(map(str, range(1000)))
    claims = Claims(records, "here", clock, LeaseTimes(), lambda: next(stamps))
    lease = claims.take(KEY, "run-1")
    assert isinstance(lease, Lease)
    claim = git(source, "rev-parse", "refs/pullwright/claims/issue-12")
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"a": "1"})
        saved = save(opened, {"a"}, lease=lease)
        assert git(source, "rev-parse", REF) == saved.commit
        assert git(source, "rev-parse", "refs/pullwright/claims/issue-12") != claim
        assert not drop_wip(records, KEY, claim, lease)
        assert drop_wip(records, KEY, saved.commit, lease)
        assert git(source, "for-each-ref", REF) == ""
        git(source, "update-ref", "refs/pullwright/claims/issue-12", claim)
        git(source, "update-ref", "-d", "refs/pullwright/claims/issue-12")
        with pytest.raises(ClaimLostError):
            save(opened, {"a"}, lease=lease, stamp="zombie")
    assert git(source, "for-each-ref", "refs/pullwright") == ""


def test_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.core.redaction import Credential

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with GitHub(tmp_path / "hub") as hub:
        repo = hub.add_repository("acme/app", {"a.txt": "1\n"})
        url = f"{hub.web_url}/acme/app.git"
        credential = Credential(hub.web_url.partition("//")[2], "x-access-token", hub.token())
        with clone(url, tmp_path / "runs", credential=lambda: credential) as first:
            write(first.tree, {"a.txt": "2\n"})
            saved = save(first, {"a.txt"})
        assert saved.work is not None
        with clone(url, tmp_path / "runs", credential=lambda: credential) as second:
            assert second.apply_work(saved.work, reference=REF).paths == {"a.txt"}
            with Records(tmp_path, url, lambda: credential, clock=ManualClock()) as records:
                loaded = load_wip(records, KEY)
                assert loaded is not None
                assert loaded.pages == PAGES
                assert drop_wip(records, KEY, saved.commit, NoClaim(records.remote))
        assert git(repo.path, "for-each-ref", "refs/pullwright") == ""


# What others may write there.

ID, OTHER = "1" * 40, "2" * 40
NO_COMMITS: tuple[object, ...] = (OTHER, "x", 1, [], "HEAD", "--all")
NO_BASES: tuple[object, ...] = (ID, None, "main", {}, "")


def record(
    fields: object, *, parent: str | None = ID, pages: Mapping[str, bytes] | None = None
) -> RemoteRecord:
    return RemoteRecord(REF, "3" * 40, parent, f"line\n\n{json.dumps(fields)}", pages or {})


GOOD = {"version": 1, "key": KEY, "work": ID, "base": OTHER, "saved_at": AT.isoformat(), "stamp": "x"}


@table(
    "fields",
    [
        *([], None, "x", 1, {}),
        *({**GOOD, "version": value} for value in (2, "1", None)),
        *({**GOOD, "key": value} for value in ("issue-13", 12, None)),
        *({**GOOD, "work": value} for value in NO_COMMITS),
        *({**GOOD, "base": value} for value in NO_BASES),
        {**GOOD, "work": None},
    ],
)
def test_a_record_that_is_not_believed(fields: object) -> None:
    found = parse_wip(KEY, record(fields))
    assert found.fault
    assert (found.commit, found.work, found.pages) == ("3" * 40, None, {})


def test_a_record_that_is_believed() -> None:
    assert parse_wip(KEY, record(GOOD)).fault is None
    assert parse_wip(KEY, record(GOOD, parent=OTHER)).fault
    assert parse_wip(KEY, record({**GOOD, "work": None}, parent=OTHER)).fault is None
    assert parse_wip(KEY, record(GOOD, pages={"a": bytes(MOST_PAGES_BYTES + 1)})).fault
    assert parse_wip(KEY, RemoteRecord(REF, ID, fault="it is a tag and no commit")).fault
    message = wip_message(KEY, ID, OTHER, AT, "x")
    assert parse_wip(KEY, RemoteRecord(REF, OTHER, ID, message)).fault is None


@given(
    st.text() | st.binary().map(lambda text: text.decode("utf-8", "replace")) | st.just("\n" + "[" * 100_000)
)
def test_any_message_is_read(text: str) -> None:
    assert parse_wip(KEY, RemoteRecord(REF, ID, OTHER, text)).fault
    assert parse_wip(KEY, RemoteRecord(REF, ID, OTHER, f"x\n{text}")).fault


def test_hostile_references(source: Path, records: Records) -> None:
    tree = git(source, "rev-parse", "main^{tree}")
    commit = git(source, "commit-tree", tree, "-p", "main", "-m", "x\n\n" + json.dumps(GOOD))
    git(source, "update-ref", REF, commit)
    git(source, "update-ref", "refs/pullwright/wip/UPPER", commit)
    git(source, "update-ref", "refs/pullwright/wip/a/b", commit)
    assert list_wip(records) == {KEY: commit}
    found = load_wip(records, KEY)
    assert found is not None
    assert found.fault
    assert drop_wip(records, KEY, commit, NoClaim(records.remote))


# Anything that was edited comes back byte for byte.

NAMES = st.sampled_from(
    ["a", "b.txt", "d/a", "d/e/f", "caf\xe9", os.fsdecode(b"\xff\xfe"), "-x", ":(top)", "sp ace"]
)
CONTENTS = st.binary(max_size=40) | st.sampled_from([b"a\r\nb\r\n", b"", b"1\n" * 50, b"\0\r\n"])
FILES = st.dictionaries(NAMES, CONTENTS | st.just("link") | st.tuples(CONTENTS), max_size=6)


def fill(tree: Path, files: Mapping[str, bytes | str | tuple[bytes]]) -> None:
    for path in tree.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content[0])
            path.chmod(0o755 if isinstance(content, tuple) else 0o644)


def picture(tree: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(tree)): (
            os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes(),
            path.is_symlink() or bool(path.stat().st_mode & 0o100),
        )
        for path in tree.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=FILES, after=FILES)
def test_any_edit_survives_byte_for_byte(
    before: Mapping[str, bytes | str | tuple[bytes]], after: Mapping[str, bytes | str | tuple[bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        source = make_source(place / "source", {"kept": "1", "src/x": "2"})
        git(source, "config", "core.autocrlf", "false")
        fill_beside_git(source, before)
        with clone(source, place / "runs") as first:
            fill(first.tree, after)
            saved = save(first, set(), include_commands=True)
            assert saved.left_out == ()
            wanted = picture(first.tree)
        with clone(source, place / "runs") as second:
            if saved.work is not None:
                assert second.apply_work(saved.work, reference=REF).conflicts == []
            assert picture(second.tree) == wanted


def fill_beside_git(source: Path, files: Mapping[str, bytes | str | tuple[bytes]]) -> None:
    (source / ".git").rename(source.with_name("aside"))
    fill(source, files)
    source.with_name("aside").rename(source / ".git")
    git(source, "add", "-A")
    git(source, "commit", "-q", "--allow-empty", "-m", "before")


def test_a_server_that_moves_nothing_backwards_gets_the_newer_work_all_the_same(
    source: Path, tmp_path: Path, records: Records
) -> None:
    git(source, "config", "receive.denyNonFastForwards", "true")
    clock = ManualClock()
    lease = Claims(records, "host", clock, LeaseTimes(), lambda: os.urandom(4).hex()).take(KEY, "run-1")
    assert isinstance(lease, Lease)
    with clone(source, tmp_path / "runs") as first:
        write(first.tree, {"a": "1"})
        one = save(first, {"a"}, lease=lease)
        write(first.tree, {"a": "2"})
        two = save(first, {"a"}, continues=one.commit, stamp="run-2", lease=lease)
    assert git(source, "rev-parse", REF) == two.commit
    assert git(source, "show", f"{two.work}:a") == "2"


@pytest.mark.parametrize("leaves_it", [False, True])
def test_a_refusal_for_another_reason_removes_no_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves_it: bool
) -> None:
    """The first copy stays where it is if the server refuses the second for a reason of its own."""
    hook = source / ".git/hooks/update"
    hook.parent.mkdir(exist_ok=True)
    zero = "0" * 40
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "runs") as opened:
        write(opened.tree, {"a": "1"})
        one = save(opened, {"a"})
        refused = f"[ $2 = {zero} ] || [ $3 = {zero} ]" if leaves_it else "false"
        hook.write_text(f"#!/bin/sh\n{refused} || {{ echo 'frozen today' >&2; exit 1; }}\n")
        hook.chmod(0o755)
        write(opened.tree, {"a": "2"})
        with pytest.raises(PushRejectedError, match=r"frozen today|hook declined"):
            save(opened, {"a"}, continues=one.commit, stamp="run-2")
    assert git(source, "rev-parse", REF) == one.commit
    assert git(source, "show", f"{one.work}:a") == "1"


def test_nothing_is_left_out_if_the_server_refuses_for_another_reason(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = source / ".git/hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\ngit diff --quiet main $3^ -- .github || { echo 'frozen today' >&2; exit 1; }\n"
    )
    hook.chmod(0o755)
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "runs") as opened:
        write(opened.tree, {"a": "1", ".github/dependabot.yml": "1", ".github/workflows/x.yml": "1"})
        with pytest.raises(PushRejectedError):
            save(opened, {"a", ".github/workflows/x.yml"})
    assert git(source, "for-each-ref", REF) == ""
