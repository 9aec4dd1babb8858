"""One HTTP request to the double: who asks, REST or git, faults, and the check of the reply."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import socket
import struct
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.doubles.github import git_http, people_routes
from tests.doubles.github.contract import github_contract
from tests.doubles.github.routes import Answer, Call
from tests.doubles.github.state import Caller, Rejected

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.faults import Fault
    from tests.doubles.github.server import GitHub

API_PREFIX = "/api/v3"
GRAPHQL = "/api/graphql"
VIOLATION = 599
_LONGEST_SIGNED_SECONDS = 600
DOCUMENTATION = "https://docs.github.com/rest"


@dataclass(slots=True)
class _Reply:
    status: int
    headers: dict[str, str]
    payload: bytes


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.1 with kept connections, as GitHub does."""

    protocol_version = "HTTP/1.1"
    server_version = "github.com"
    sys_version = ""
    disable_nagle_algorithm = True

    @property
    def github(self) -> GitHub:
        """The double that this connection belongs to."""
        github: GitHub = self.server.github  # type: ignore[attr-defined]  # the stdlib types the server as its base
        return github

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the stdlib's name
        """Print nothing: requests are recorded."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        self._headers = {name.lower(): value for name, value in self.headers.items()}
        self._query = dict(parse_qsl(url.query, keep_blank_values=True))
        self._raw = self._read_body()
        is_rest = url.path.startswith(API_PREFIX + "/")
        path = url.path.removeprefix(API_PREFIX) if is_rest else url.path
        if is_rest and path == "/meta":
            self._tell_what_it_is()
            return
        fault = next((f for f in self.github.faults if f.strikes(self.command, path)), None)
        if fault is not None and fault.delay:
            threading.Event().wait(fault.delay)
        if fault is not None and fault.refused:
            self._reset()
            return
        if fault is not None and fault.status is not None:
            reply = _scripted(fault)
        elif path == GRAPHQL:
            reply = self._graphql()
        elif path in self.github.attachments:
            reply = (
                _Reply(200, {}, self.github.attachments[path])
                if self._shown_token()
                else _Reply(404, {}, b"")
            )
        else:
            reply = self._rest(path) if is_rest else self._git(url.path, url.query)
        self._record(path, reply.status)
        if fault is not None and fault.lost_reply:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(reply)

    def _reset(self) -> None:
        """End the connection as a machine does on which nothing listens."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _tell_what_it_is(self) -> None:
        """What a client asks before it shows a credential: kept apart from the requests of its work."""
        token = self._shown_token()
        self.github.violations += ["GET /meta shows a credential"] if token else []
        self.github.probes += 1
        self._send(
            _Reply(200, {"x-github-request-id": "0001"}, b'{"verifiable_password_authentication": true}')
        )

    def _send(self, reply: _Reply) -> None:
        self.send_response_only(reply.status)
        self.send_header("Server", self.version_string())
        if self.github.skew is not None:
            self.send_header("Date", format_datetime(datetime.now(UTC) + self.github.skew, usegmt=True))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status not in {204, 304}:
            self.send_header("Content-Length", str(len(reply.payload)))
        self.end_headers()
        self.wfile.write(reply.payload)

    def _read_body(self) -> bytes:
        if self._headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self._headers.get("content-length", "0")))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _record(self, path: str, status: int) -> None:
        from tests.doubles.github.server import Recorded

        try:
            body = json.loads(self._raw) if self._raw else None
        except ValueError:
            body = self._raw
        seen = Recorded(
            self.command, unquote(path), self._query, self._headers, self._shown_token(), body, status
        )
        (self.github.queries if path == GRAPHQL else self.github.requests).append(seen)

    # REST.

    def _rest(self, path: str) -> _Reply:
        github = self.github
        with github.lock:
            github.remaining -= 1
            answer, problems = self._answer(self._named(unquote(path)))
        if problems:
            github.violations += [f"{self.command} {self.path}: {problem}" for problem in problems]
            answer = Answer(VIOLATION, {"message": "; ".join(problems)})
        payload = b"" if answer.status == 204 else json.dumps(answer.body).encode()
        etag = f'W/"{hashlib.sha256(payload).hexdigest()}"'
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "x-github-request-id": f"{len(github.requests):04X}",
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": str(github.remaining),
            "x-ratelimit-reset": str(github.reset_at),
            "x-ratelimit-resource": "core",
            **self._about_token(),
            **answer.headers,
        }
        if self.command == "GET" and answer.status == 200:
            headers["ETag"] = etag
            if self._headers.get("if-none-match") == etag:
                github.remaining += 1
                headers["x-ratelimit-remaining"] = str(github.remaining)
                return _Reply(304, headers, b"")
        return _Reply(answer.status, headers, payload)

    def _named(self, path: str) -> str:
        """`/repositories/ID/...` is another name of `/repos/OWNER/NAME/...`."""
        parts = path.split("/")
        if parts[1] == "repositories":
            for repo in self.github.repositories:
                if str(repo.id) == parts[2]:
                    return "/".join(["", "repos", repo.full_name, *parts[3:]])
        return path

    def _answer(self, path: str) -> tuple[Answer, list[str]]:
        """The answer, and where it or the request breaks GitHub's description."""
        operation = github_contract().operation(self.command, path)
        if operation is None:
            return Answer(404, {}), [f"{self.command} {path} is not in the kept part of the description"]
        try:
            body = json.loads(self._raw) if self._raw else None
        except ValueError:
            return Answer(400, {}), ["the body is not JSON"]
        if problems := list(github_contract().request_problems(operation, self._query, body)):
            return Answer(422, {}), problems
        try:
            call = Call(self.command, path, self._query, body, self._caller())
            answer = self.github.routes.answer(call)
            if "full+json" in self._headers.get("accept", "") and "body" in answer.body:
                answer.body["body_html"] = _as_html(answer.body["body"] or "")
        except Rejected as no:
            answer = _rejection(no)
        return answer, list(github_contract().reply_problems(operation, answer.status, answer.body))

    # GraphQL.

    def _graphql(self) -> _Reply:
        github = self.github
        with github.lock:
            try:
                body = json.loads(self._raw)
                status, answer, problems = people_routes.answer_query(github, self._caller(), body)
            except Rejected as no:
                status, answer, problems = no.status, _rejection(no).body, []
            github.violations += problems
        headers = {"Content-Type": "application/json; charset=utf-8"}
        return _Reply(status, headers, json.dumps(answer).encode())

    # Who asks.

    def _shown_token(self) -> str | None:
        kind, _, value = self._headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                value = base64.b64decode(value).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return None
        return value or None

    def _about_token(self) -> dict[str, str]:
        """What GitHub says of a personal access token beside every answer."""
        grant = self.github.grants.get(self._shown_token() or "")
        if grant is None or grant.app is not None:
            return {}
        headers = {} if grant.scopes is None else {"x-oauth-scopes": grant.scopes}
        if grant.expires_at is not None:
            ends = grant.expires_at.strftime("%Y-%m-%d %H:%M:%S UTC")
            headers["github-authentication-token-expiration"] = ends
        return headers

    def _caller(self) -> Caller:
        token = self._shown_token()
        if token is None:
            return Caller()
        grant = self.github.grants.get(token)
        if grant is not None and (grant.expires_at is None or grant.expires_at > self.github.now()):
            return Caller(grant)
        app = self._app_of(token)
        if app is None:
            raise Rejected(401, "Bad credentials")
        return Caller(app=app)

    def _app_of(self, token: str) -> Any:
        import jwt

        for app in self.github.apps:
            try:
                own: Any = {"verify_exp": False, "verify_iat": False}
                claims = jwt.decode(token, app.public_key, algorithms=["RS256"], options=own)
            except jwt.InvalidTokenError:
                continue
            now = (datetime.now(UTC) + (self.github.skew or timedelta(0))).timestamp()
            if not (claims["iat"] <= now < claims["exp"] <= now + _LONGEST_SIGNED_SECONDS):
                continue
            if str(claims.get("iss")) == str(app.id):
                return app
        return None

    # git.

    def _git(self, path: str, query: str) -> _Reply:
        name, found, rest = path.removeprefix("/").partition(".git")
        repo = self.github.repository(unquote(name)) if found else None
        try:
            caller = self._caller()
        except Rejected:
            return _git_refusal(401, "Invalid username or token.")
        grant = caller.grant
        request = git_http.GitRequest(self.command, rest, query, self._headers, self._raw)
        push = request.is_push
        may_read = repo is not None and (
            not repo.private or (grant is not None and grant.allows(repo, "contents", "read"))
        )
        if grant is None and (push or not may_read):
            return _git_refusal(401, "Authentication required.")
        if repo is None or not may_read:
            return _git_refusal(404, "Repository not found.")
        if push and (grant is None or not grant.allows(repo, "contents", "write")):
            return _git_refusal(403, f"Permission to {repo.full_name}.git denied to {caller.login}.")
        if push and repo.archived:
            return _git_refusal(403, "This repository was archived so it is read-only.")
        if repo.pulls and "service=git-upload-pack" in query:
            repo.refresh_pull_refs()
        return self._served(repo.path, path, request)

    def _served(self, folder: Path, path: str, request: git_http.GitRequest) -> _Reply:
        if not path.endswith("/objects/batch"):
            done = git_http.serve(folder, request)
            return _Reply(done.status, dict(done.headers), done.body)
        if self.github.lfs is None:
            return _git_refusal(404, "Not Found")
        return _Reply(*self.github.lfs.batch(path, self._headers, self._raw))


def _scripted(fault: Fault) -> _Reply:
    is_text = isinstance(fault.body, str)
    payload = (
        fault.body.encode() if is_text else json.dumps({} if fault.body is None else fault.body).encode()
    )
    kind = "text/html; charset=utf-8" if is_text else "application/json; charset=utf-8"
    return _Reply(fault.status or 500, {"Content-Type": kind, **fault.headers}, payload)


def _rejection(no: Rejected) -> Answer:
    body: dict[str, Any] = {"message": no.message, "documentation_url": DOCUMENTATION, **no.extra}
    if no.status not in {301, 307}:
        body["status"] = str(no.status)
    if no.errors is not None:
        body["errors"] = no.errors
    return Answer(no.status, body, no.headers)


def _git_refusal(status: int, text: str) -> _Reply:
    headers = {"Content-Type": "text/plain"}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="GitHub"'
    return _Reply(status, headers, text.encode())


def _as_html(body: str) -> str:
    """A body as GitHub renders it, as far as pictures go: those that were dropped into it have signed addresses."""
    signed = r'<img src="https://private-user-images.githubusercontent.com/1/2-\1.png?jwt=a&amp;b=c">'
    return (
        "<p>" + re.sub(r"!\[[^]]*\]\([^)]*/user-attachments/assets/([0-9a-f-]{36})\)", signed, body) + "</p>"
    )
