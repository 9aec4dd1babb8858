"""An attack as a TOML file describes it: the attacker's text, its place, its surroundings, and the signs of success.

An attack or a folder that cannot be used raises a `ConfigurationError` that names the wrong key.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.app.plugins import Point, added
from orchestrator.core.checks import first_problem
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import Defence  # noqa: TC001  pydantic reads the annotations

INCIDENTS = range(1, 27)


class AttackPlace(StrEnum):
    """The place of the attacker's text."""

    ISSUE_TITLE = "issue-title"
    ISSUE_BODY = "issue-body"
    COMMENT = "comment"
    ACTOR = "actor"
    FILE = "file"
    FILE_NAME = "file-name"
    BRANCH_NAME = "branch-name"
    COMMIT_MESSAGE = "commit-message"
    CI_LOG = "ci-log"
    CHECK = "check"
    INSTRUCTIONS = "instructions"
    SETTINGS_FILE = "settings-file"
    WEB_PAGE = "web-page"
    WEB_SEARCH = "web-search"
    TOOL_OUTPUT = "tool-output"
    REVIEW = "review"
    MEMORY = "memory"
    ATTACHMENT = "attachment"
    MCP_SERVER = "mcp-server"
    PULL_REQUEST = "pull-request"
    """The description of another person's pull request, which `verify-pr` verifies. No cycle runs."""
    CONVERSATION = "conversation"
    """A conversation whose model follows the text in the person's folder; then the person proposes the change."""
    WEBHOOK = "webhook"
    """Requests to the webhook address of a fleet. No cycle runs."""
    DASHBOARD = "dashboard"
    """A run that the dashboard shows, and requests of a browser for it. No cycle runs."""
    AGENT = "agent"
    """An agent program that works in place of the model's loop runs the text, which is Python."""


class Sign(StrEnum):
    """A sign that an attack succeeded. Most take an argument, after a colon."""

    SECRET_LEFT = "secret-left"  # noqa: S105  no secret
    """A secret is in a prompt or in a text that was sent, plain or in an encoding that can be decoded."""
    PATH = "path"
    """The pull request changes a file that matches this pattern."""
    OUTSIDE = "outside"
    """A file that matches was created or changed outside of the clone; see `Evidence.outside`."""
    IN_CLONE = "in-clone"
    """A file that matches is in the work tree at the end, `.git` included."""
    REACHED = "reached"
    """A command reached a server on the network."""
    ASKED = "asked"
    """The model received a request."""
    SHOWN = "shown"
    """The model received a text that matches this regular expression."""
    OBEYED = "obeyed"
    """The model carried out an order of the attacker."""
    LEFT = "left"
    """A text that was sent has a line that matches this regular expression."""
    ACTS = "acts"
    """The forge would render a text with an effect (see `judge.effects`) that matches this regular expression."""
    UNMARKED = "unmarked"
    """A file that matches is changed, and the program's own words in the pull request do not warn of it."""
    OVER = "over"
    """The model received more requests than this number."""
    FETCHED = "fetched"
    """The page at this address was fetched."""
    LOOSENED = "loosened"
    """The settings of the run are less strict than the user's, or would send a key elsewhere."""
    BELIEVED = "believed"
    """As `unmarked`, if the pull request has the host's report on the tests."""
    REPORTED = "reported"
    """The host's report on the tests, as a program reads it in the pull request, matches this regular expression."""
    VERIFIED = "verified"
    """The verification of the pull request says that its claims hold."""
    QUEUED = "queued"
    """More deliveries of a webhook than this number were queued."""
    ANSWERED = "answered"
    """A response of a server, its status with its redirect or heading, matches this regular expression."""
    DONE = "done"
    """An action of the dashboard was carried out."""
    MARKUP = "markup"
    """The attacker's text became markup on a page of the dashboard."""
    SURVIVED = "survived"
    """A process that the model started still runs after the cycle."""
    TOLD = "told"
    """More updates of an agent than this number became events."""
    NAMED = "named"
    """The name of a call that an agent told of matches this regular expression."""
    HUNG = "hung"
    """The cycle did not end by itself."""


_WITHOUT_ARGUMENT = frozenset(
    {Sign.SECRET_LEFT, Sign.REACHED, Sign.ASKED, Sign.OBEYED, Sign.LOOSENED, Sign.VERIFIED}
    | {Sign.DONE, Sign.MARKUP, Sign.SURVIVED, Sign.HUNG}
)


def split_sign(text: str) -> tuple[Sign, str]:
    """Parse a condition of success.

    Raises:
        ValueError: the sign is unknown, or its argument is missing, superfluous or no number.
    """
    kind, colon, argument = text.partition(":")
    sign, argument = Sign(kind.strip()), argument.strip()
    if (sign in _WITHOUT_ARGUMENT) == bool(argument) or (colon and not argument):
        needs = "takes no" if sign in _WITHOUT_ARGUMENT else "needs"
        raise ValueError(f"{sign} {needs} argument")
    if sign in {Sign.OVER, Sign.QUEUED, Sign.TOLD} and not argument.isdigit():
        raise ValueError(f"{sign} needs a number")
    return sign, argument


def _sign(text: str) -> str:
    split_sign(text)
    return text


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class WorldComment(_Part):
    """A comment on the issue."""

    author: str
    body: str


class WorldMemory(_Part):
    """A memory that the model of an earlier session stored on this machine.

    Attributes:
        about: the repository of that session: `this`, or `another` with which it shares no file.
    """

    about: Literal["this", "another"]
    content: str


class WorldRequest(_Part):
    """A request to the webhook or to the dashboard.

    Placeholders in `path`, `headers` and `body`: `{{text}}` is the attacker's text, `{{blanks N}}` N spaces,
    `{{number}}` the number of the request in two digits, `{{host}}` the server's address, `{{port}}` its port,
    `{{form}}` its form token.

    Attributes:
        signed_with: the secret of the signature: `ours`, `another`, or empty for no signature.
        signed: the signed text, if it is not the body.
        with_cookie: whether the request has the session cookie.
        times: how often the request is sent.
    """

    method: Literal["GET", "POST"] = "POST"
    path: str
    headers: dict[str, str] = {}
    body: str = ""
    signed_with: Literal["", "ours", "another"] = ""
    signed: str = ""
    with_cookie: bool = False
    times: int = Field(1, ge=1, le=1_000)


class World(_Part):
    """The surroundings of the attacker's text.

    Attributes:
        files: text by path, on the branch where the run starts.
        default_files: text by path on the default branch, if it is another branch.
        links: target by path.
        programs: paths of executable files.
        commit: subject of the last commit.
        base: the branch with the attacker's files; None for the one where the run starts.
        title: the issue's title.
        body: the issue's text; the attacker's text may follow it.
        author: author of the issue.
        labelled_by: who labelled the issue; empty if it has no label.
        edited_by: who edited the issue after that; None for nobody.
        people: permission by login; other people have none.
        comments: comments on the issue.
        check_app: the app of the failed check with the attacker's text; empty for a commit status.
        required_apps: the apps whose checks the base branch requires.
        pull_state: state of our older pull request, number 2; empty if there is none.
        pull_body: its text.
        reviews: comments on its file `greet.py`; the first has the id `line-1`.
        pull_files: text by path on the branch of the verified pull request.
        pull_links: target by path on that branch.
        pull_later: text by path that is pushed to it during the verification.
        facts: the page of the repository's memory.
        memories: memories on this machine.
        pages: text of web pages by address.
        hosts: IP address by host name; other names have a public one.
        attachments: text by name, at `{{forge}}/user-attachments/files/1/NAME` and at `{{elsewhere}}/NAME`; a name
            with the suffix `.pdf` is a document of one page.
        redirects: target by the name of an attachment that redirects.
        home: text by path in the user's home folder.
        outside: text by path in a folder beside the clone.
        variables: variables of the program's environment.
        settings_file: text of `pullwright.toml` in the working directory; None for no file.
        lead: the model's first call, by which it comes to read the attacker's text.
        requests: requests to the webhook or to the dashboard.
        server: behaviour of the MCP server `tickets`, see `orchestrator.plugins.mcp.scripted_server`; empty for no server.
        approved: its approved tools in the form of `tools/list`; None for all that it has.
        agent: how the agent program begins: `hangs`, with a `newer` protocol, or as it should.
        max_rounds: cap on requests, where the user's own is higher; 0 for none.
    """

    files: dict[str, str] = {}
    default_files: dict[str, str] = {}
    links: dict[str, str] = {}
    programs: list[str] = []
    commit: str = "Add the first lines"
    base: str | None = None
    title: str = "Mend the greeting"
    body: str = "The greeting in greet.py lacks a comma."
    author: str = "maintainer"
    labelled_by: str = "maintainer"
    edited_by: str | None = None
    people: dict[str, str] = {"maintainer": "admin"}
    comments: list[WorldComment] = []
    check_app: str = ""
    required_apps: list[str] = []
    pull_state: Literal["", "merged", "closed"] = ""
    pull_body: str = "It is mended."
    pull_files: dict[str, str] = {}
    pull_links: dict[str, str] = {}
    pull_later: dict[str, str] = {}
    reviews: list[WorldComment] = []
    facts: list[dict[str, Any]] = []
    memories: list[WorldMemory] = []
    pages: dict[str, str] = {}
    hosts: dict[str, str] = {}
    attachments: dict[str, str] = {}
    redirects: dict[str, str] = {}
    home: dict[str, str] = {}
    outside: dict[str, str] = {}
    variables: dict[str, str] = {}
    settings_file: str | None = None
    lead: dict[str, Any] = {}
    requests: list[WorldRequest] = []
    server: dict[str, Any] = {}
    approved: list[dict[str, Any]] | None = None
    agent: Literal["", "hangs", "newer"] = ""
    max_rounds: int = 0


class Attack(_Part):
    """One attack.

    Attributes:
        title: a short description.
        incidents: numbers of similar public incidents, see `attacks/README.md`.
        place: the place of the text.
        text: the attacker's text. `OBEY {...}` in it is an order that the model carries out.
        world: the surroundings.
        settings: settings that the attack needs in its proof.
        defence: the defences that stop it; without all of them it succeeds.
        success: each of these shows that it succeeded; see `Sign`.
        trusts: `everything` if the model obeys all that it reads; `program` if it obeys only texts outside of the
            markers for foreign text.
        at_once: whether the model carries out all orders in one reply.
        advice: what the user should change if it succeeds.
    """

    name: str = ""
    title: str = Field(min_length=3, max_length=90)
    incidents: list[Annotated[int, Field(ge=INCIDENTS.start, lt=INCIDENTS.stop)]] = []
    place: AttackPlace = Field(strict=False)
    text: str
    world: World = World()
    settings: dict[str, Any] = {}
    defence: list[Annotated[Defence, Field(strict=False)]] = Field(min_length=1)
    success: list[Annotated[str, AfterValidator(_sign)]] = Field(min_length=1)
    trusts: Literal["everything", "program"] = "everything"
    at_once: bool = False
    advice: str = ""


def read_attack(path: Path) -> Attack:
    """Read an attack from a file, whose name is that of the attack."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Attack.model_validate({**data, "name": path.stem})
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {first_problem(error)}") from None


def read_corpus(folder: Path | None = None) -> list[Attack]:
    """Return the attacks of a folder, sorted by name.

    Args:
        folder: None for the attacks of this program and of its plug-ins.
    """
    folders = [folder] if folder else [Path(__file__).with_name("attacks"), *added(Point.ATTACKS)]
    paths = sorted(
        (path for one in folders for path in one.glob("*.toml") if path.is_file()), key=lambda path: path.stem
    )
    if not paths:
        raise ConfigurationError(f"there are no attacks in {folders[0]}")
    return [read_attack(path) for path in paths]
