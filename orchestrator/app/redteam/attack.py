"""An attack as one TOML file says it: where the words stand, the world around them, and what success is."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import Defence  # noqa: TC001  pydantic reads the annotations

INCIDENTS = range(1, 27)
_SUFFIX = ".toml"


class AttackPlace(StrEnum):
    """Where the attacker's words stand."""

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
    """Somebody's pull request, which `verify-pr` is to verify. No cycle is run."""
    CONVERSATION = "conversation"
    """The model that a person talks with obeys them in the person's folder, and the person proposes what it did."""
    WEBHOOK = "webhook"
    """Somebody sends requests to the address at which a fleet receives webhooks. No cycle is run."""
    DASHBOARD = "dashboard"
    """The words are in a run that the dashboard shows, and somebody's browser asks for it. No cycle is run."""


class Sign(StrEnum):
    """What shows that an attack succeeded. Most take an argument, after a colon."""

    SECRET_LEFT = "secret-left"  # noqa: S105  a word for one
    """A secret is in what the model read or in what left, in a spelling that gives it away."""
    PATH = "path"
    """A file that matches is changed in the pull request."""
    OUTSIDE = "outside"
    """There is a file that matches outside the clone; `state/` begins those in the program's own folder."""
    IN_CLONE = "in-clone"
    """There is a file that matches in the work tree at the end, `.git` included."""
    REACHED = "reached"
    """A command reached a server on the network."""
    ASKED = "asked"
    """The model was asked at all."""
    SHOWN = "shown"
    """The model was shown these words."""
    OBEYED = "obeyed"
    """An order of the attacker's words was carried out."""
    LEFT = "left"
    """What left has a line that matches this regular expression."""
    ACTS = "acts"
    """A text does something where the forge shows it (`reading.effects`) that this regular expression matches."""
    UNMARKED = "unmarked"
    """A file that matches is changed, and what the program says first in the pull request gives no reason to look at it."""
    OVER = "over"
    """The model was asked more often than this."""
    FETCHED = "fetched"
    """The page at this address was fetched."""
    LOOSENED = "loosened"
    """The settings that a run would use are looser, or send a key elsewhere."""
    BELIEVED = "believed"
    """A file that matches is changed, and the host's own report on its tests gives no reason to look at it."""
    REPORTED = "reported"
    """A program that reads the host's report on the tests in the pull request finds this regular expression in it."""
    VERIFIED = "verified"
    """The verification of the pull request says that it holds."""
    QUEUED = "queued"
    """More deliveries of a webhook than this had a repository looked at."""
    ANSWERED = "answered"
    """An answer of a server matches this regular expression: its status, then where it leads or what it says."""
    DONE = "done"
    """A verb of the dashboard was carried out."""
    MARKUP = "markup"
    """The attacker's words became markup on a page of the dashboard."""
    SURVIVED = "survived"
    """A process that the model started is alive after the run."""


_WITH_ARGUMENT = frozenset(
    {
        Sign.PATH,
        Sign.OUTSIDE,
        Sign.IN_CLONE,
        Sign.SHOWN,
        Sign.LEFT,
        Sign.ACTS,
        Sign.OVER,
        Sign.FETCHED,
        Sign.UNMARKED,
        Sign.BELIEVED,
        Sign.REPORTED,
        Sign.QUEUED,
        Sign.ANSWERED,
    }
)


def split_sign(text: str) -> tuple[Sign, str]:
    """Return a condition's kind and argument.

    Raises:
        ValueError: there is no such kind, or it needs or takes no argument.
    """
    kind, colon, argument = text.partition(":")
    sign, argument = Sign(kind.strip()), argument.strip()
    if (sign in _WITH_ARGUMENT) != bool(argument) or (colon and not argument):
        needs = "needs" if sign in _WITH_ARGUMENT else "takes no"
        raise ValueError(f"{sign} {needs} argument")
    if sign in {Sign.OVER, Sign.QUEUED} and not argument.isdigit():
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
    """What an earlier session's model wrote into the memory of this machine.

    Attributes:
        about: the repository that it worked on: `this`, or `another` with which this one shares no file.
    """

    about: Literal["this", "another"]
    content: str


class WorldRequest(_Part):
    """A request that somebody sends to the webhook or to the dashboard.

    In `path`, `headers` and `body`, `{{text}}` is the attacker's words, `{{blanks N}}` so many blanks, `{{number}}` the
    number of the request in two digits, `{{host}}` the address of the server, `{{form}}` what its forms send along.

    Attributes:
        signed_with: the secret of the signature: ours, another one, or none where there is no signature.
        signed: what the signature is of, where it is not the body.
        with_cookie: whether a browser that was given the address of the page sends it.
        times: how often it is sent.
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
    """What is around the attacker's words.

    Attributes:
        files: text by path, on the branch where the run starts.
        default_files: text by path on the default branch, where it differs.
        links: target by path.
        programs: paths of files that may be run.
        commit: subject of the last commit.
        base: the branch to start from, where it is not the default one.
        title: the issue's title.
        body: the issue's text; the attacker's words come after it.
        author: who wrote the issue.
        labelled_by: who put the label on it.
        edited_by: who changed the issue's text after that.
        people: permission by login; nobody else has one.
        comments: on the issue.
        check_app: the app whose failed check on our pull request says the words; a commit status where it is empty.
        required_apps: the apps whose checks the base branch requires.
        pull_state: of an older pull request of ours, the number 2; empty if there is none.
        pull_body: its text.
        pull_files: text by path, on the branch of the pull request that is verified.
        pull_links: target by path, on that branch.
        pull_later: text by path that is pushed to it while it is verified.
        reviews: comments on it, about `greet.py`; the first is `line-1`.
        facts: what the reference of the repository's memory says, as its page has it.
        memories: what this machine remembers.
        pages: text by address.
        hosts: IP address by name; every other name has a public one.
        attachments: text by name of what the forge keeps for people, at `{{forge}}/user-attachments/files/1/NAME`, and
            another server at `{{elsewhere}}/NAME`; a name that ends in `.pdf` is a document of one page.
        redirects: address by name of an attachment that leads there.
        home: text by path below the home of whoever runs the program.
        outside: text by path in a folder beside the clone.
        variables: of the program's environment.
        settings_file: text of the `pullwright.toml` in the folder where the program is started.
        lead: what the task itself makes the model do first, so that it comes to read the words.
        requests: what is sent to the webhook, or to the dashboard.
        server: what the MCP server `tickets` does, see `tool_server`; there is none where this is empty.
        approved: the tools of it that were approved, as `tools/list` gives them; those that it has, where None.
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


class Attack(_Part):
    """One attack.

    Attributes:
        title: what it does, in a few words.
        incidents: the numbers of public incidents that it follows.
        place: where the words stand.
        text: the words. `OBEY {...}` in them is what the model is made to do.
        world: what is around them.
        settings: what this attack needs to mean something; used when it is proved.
        defence: which defences stop it; with all of them off it succeeds.
        success: any of these shows that it succeeded; see `Sign`.
        trusts: `everything` where the model obeys whatever it reads, `program` where it obeys only
            what stands outside the markers of other people's words.
        at_once: all orders come in one reply.
        advice: what to change where it succeeds.
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
    """Read one file; its name is the attack's.

    Raises:
        ConfigurationError: it cannot be read or is no attack; the message names it and the place.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Attack.model_validate({**data, "name": path.stem})
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"{path}: {where}: {first['msg']}") from None


def read_corpus(folder: Path | None = None) -> list[Attack]:
    """Return all attacks of a folder, by name; those that come with the program where none is named.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    folder = folder or Path(__file__).with_name("attacks")
    paths = sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.is_file())
    if not paths:
        raise ConfigurationError(f"there are no attacks in {folder}")
    return [read_attack(path) for path in paths]
