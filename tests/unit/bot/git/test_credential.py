from __future__ import annotations

import base64
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.hostgit import write_helper
from orchestrator.bot.git.remote import parse_remote
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.redaction import Credential
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import clone, git, write
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCH = "pullwright/x"


@pytest.fixture
def server(source: Path, tmp_path: Path) -> Iterator[SmartHttp]:
    root = tmp_path / "served"
    root.mkdir()
    git(tmp_path, "clone", "-q", "--bare", str(source), "served/repo.git")
    git(root / "repo.git", "config", "http.receivepack", "true")
    with SmartHttp(root).running() as running:
        yield running


def credential_for(server: SmartHttp, host: str = "127.0.0.1") -> Credential:
    return Credential(host, server.user, server.password)


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `git` first on the PATH that writes down its arguments and environment, then becomes git."""
    real = shutil.which("git")
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "git"
    program.write_text(
        "#!/bin/sh\n"
        f'printf "%s\\n" "$@" >> {tmp_path}/argv\n'
        f"echo -- >> {tmp_path}/argv\n"
        f"env >> {tmp_path}/env\n"
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("host", ["127.0.0.1", "with port"])
def test_clone_commit_and_push_with_a_token(server: SmartHttp, tmp_path: Path, host: str) -> None:
    wanted = f"127.0.0.1:{server.port}" if host == "with port" else host
    with clone(
        f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server, wanted)
    ) as opened:
        write(opened.tree, {"a.txt": "1\n"})
        made = commit_touched(opened, {"a.txt"}, "one", include_commands=False).commit
        assert opened.remote_tip(BRANCH) is None
        assert opened.push(BRANCH, expected=None) == made
    assert git(server.root / "repo.git", "rev-parse", BRANCH) == made


@pytest.mark.parametrize("username", ["x-access-token", "a b", "wei@rd/+%é!$&'()*,;=~._-", "u"])
def test_odd_user_names_and_passwords(server: SmartHttp, tmp_path: Path, username: str) -> None:
    server.user, server.password = username, "p '\"$(touch x)`\\%s* é"
    with clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server)):
        pass


def test_the_secret_is_in_no_argument_and_no_file(
    server: SmartHttp, witness: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-git")
    monkeypatch.setenv("GIT_TRACE_CURL", str(tmp_path / "trace"))
    with clone(
        f"{server.url}/repo.git",
        tmp_path / "runs",
        with_git=True,
        credential=lambda: credential_for(server),
    ) as opened:
        write(opened.tree, {"a.txt": "1\n"})
        commit_touched(opened, {"a.txt"}, "one", include_commands=True)
        opened.push(BRANCH, expected=None)
        argv = (witness / "argv").read_text()
        assert "clone" in argv
        assert "push" in argv
        forms = (server.password, base64.b64encode(f"{server.user}:{server.password}".encode()).decode())
        assert not any(form in argv for form in forms)
        # The environment had it while the server was spoken to: the proof that this test looks at the right place.
        assert server.password in (witness / "env").read_text()
        assert "sk-not-for-git" not in (witness / "env").read_text()
        for folder, _, names in os.walk(opened.tree.parent):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH123, PTH118  os.walk gives texts
                    content = file.read()
                assert not any(form.encode() in content for form in forms), name
        helper = opened.tree.parent / "askpass"
        assert helper.stat().st_mode & 0o777 == 0o700
        assert opened.tree.parent.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "trace").exists()


def test_local_commands_never_have_the_secret(server: SmartHttp, witness: Path, tmp_path: Path) -> None:
    with clone(
        f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server)
    ) as opened:
        (witness / "env").unlink()
        write(opened.tree, {"a.txt": "1\n"})
        commit_touched(opened, {"a.txt"}, "one", include_commands=True)
        opened.diff()
        assert server.password not in (witness / "env").read_text()


def test_another_host_gets_nothing(server: SmartHttp, source: Path, tmp_path: Path) -> None:
    with SmartHttp(source).running() as other:
        server.redirect = other.url.replace("127.0.0.1", "localhost")
        with pytest.raises(WorkspaceError, match="asks for a credential and accepted none"):
            clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server))
    assert other.credentials
    assert set(other.credentials) == {None}


def test_a_redirect_to_another_port_gets_nothing(server: SmartHttp, source: Path, tmp_path: Path) -> None:
    with SmartHttp(source).running() as other:
        server.redirect = other.url
        with pytest.raises(WorkspaceError):
            clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server))
    assert set(other.credentials) == {None}


@pytest.mark.parametrize("host", ["example.invalid", "127.0.0.1:1", "127.0.0", "", "27.0.0.1"])
def test_a_credential_of_another_server_is_not_shown(server: SmartHttp, tmp_path: Path, host: str) -> None:
    with pytest.raises(WorkspaceError, match="asks for a credential and accepted none"):
        clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server, host))
    assert set(server.credentials) == {None}


def test_a_bad_token_and_none(server: SmartHttp, tmp_path: Path) -> None:
    bad = Credential("127.0.0.1", "x", "wrong-token-123")
    with pytest.raises(WorkspaceError, match="check the token") as caught:
        clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: bad)
    assert "wrong-token" not in str(caught.value)
    with pytest.raises(WorkspaceError, match="check the token"):
        clone(f"{server.url}/repo.git", tmp_path / "runs")


@pytest.mark.parametrize(
    ("status", "said"), [(403, "no permission"), (404, "no such repository"), (500, "cannot be reached")]
)
def test_what_the_server_answers(server: SmartHttp, tmp_path: Path, status: int, said: str) -> None:
    server.status = status
    with pytest.raises(WorkspaceError, match=said) as caught:
        clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server))
    assert "\n" not in str(caught.value)


def test_the_helper_answers_one_servers_questions_only(tmp_path: Path) -> None:
    helper = write_helper(tmp_path)
    credential = Credential("example.invalid", "user", "word")
    variables = parse_remote("https://example.invalid/a/b", lambda: None).variables(credential, helper)

    def ask(question: str) -> tuple[int, bytes]:
        done = subprocess.run([helper, question], env=variables, capture_output=True, check=False)
        return done.returncode, done.stdout

    assert ask("Username for 'https://example.invalid': ") == (0, b"user\n")
    assert ask("Password for 'https://user@example.invalid': ") == (0, b"word\n")
    for question in (
        "Password for 'http://user@example.invalid': ",
        "Password for 'https://user@example.invalid:444': ",
        "Password for 'https://user@evil.invalid': ",
        "Password for 'https://example.invalid@evil.invalid': ",
        "Password: ",
        "*",
        "",
    ):
        assert ask(question) == (1, b"")


def test_what_git_prints_is_redacted(
    server: SmartHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text('#!/bin/sh\necho "fatal: bad $PULLWRIGHT_GIT_PASSWORD here" >&2\nexit 128\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(WorkspaceError, match=r"bad \[redacted\] here"):
        clone(f"{server.url}/repo.git", tmp_path / "runs", credential=lambda: credential_for(server))


def test_what_is_no_credential(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="control character"):
        parse_remote("https://h/a/b", lambda: None).variables(Credential("h", "u", "a\nb"), tmp_path)


def test_redaction_knows_the_forms() -> None:
    credential = Credential("h", "u", "a/b c d+e")
    basic = base64.b64encode(b"u:a/b c d+e").decode()
    assert credential.redact(f"a/b c d+e, a%2Fb%20c%20d%2Be, {basic}") == "[redacted], [redacted], [redacted]"
