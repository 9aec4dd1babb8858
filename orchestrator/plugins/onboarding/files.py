"""The files that `init` writes: a repository's rules, the workflow that works on its backlog, and its action.

The action is this installation, as a commit on GitHub or as a copy. A file that cannot be read, written or changed
without losing something raises a `ConfigurationError`.
"""

from __future__ import annotations

import errno
import io
import json
import posixpath
import re
import stat
import subprocess
import tomllib
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from orchestrator.app.config.settings import LOCAL_FILE, as_toml, parse_toml
from orchestrator.app.options import TEST_KEYS
from orchestrator.bot.git.remote import is_commit_id
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core.confined import ConfinedFolder, UnsuitableFileError
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import OWNER_AND_NAME, SSH_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_PACKAGE = Path(__file__).resolve().parents[2]
_IN_REPOSITORY = ".github/actions/pullwright"
_ARCHIVE = "program.zip"
_LOCK = "requirements.lock"
_START = "run_local_agent.py"
_GIT_SECONDS = 10.0
_SKIPPED = frozenset({"__pycache__", "_action"})
_EXECUTABLE, _PLAIN = 0o755, 0o644
_NEW_FOLDER = 0o777  # the process's umask is applied to it
_MOST_PRESENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """A commit on GitHub that contains the action.

    Attributes:
        server: host of the server.
        uses: value of `uses:` in a workflow.
    """

    server: str
    uses: str


@dataclass(frozen=True, slots=True)
class ActionFile:
    """A file of the action's copy. `path` is relative to the top of the repository."""

    path: str
    content: bytes
    is_executable: bool = False


def action_place() -> ActionPlace | str:
    """Return the commit on GitHub with this exact program, or the reason why none is known.

    After `pip install git+https://...`, the installation itself names the commit (PEP 610). In a checkout, or
    after an installation from one that still has the same files, it is the checkout's commit, if that is
    published. A released package names its repository, whose tag of this version is the commit.
    """
    if (_PACKAGE.parent / _START).is_file():
        return _of_checkout(_PACKAGE.parent)
    try:
        installed = metadata.distribution(PROGRAM)
        text = installed.read_text("direct_url.json")
        said = json.loads(text) if text else None
    except (metadata.PackageNotFoundError, ValueError):
        return f"nothing says where {PROGRAM} was installed from"
    if isinstance(said, dict):
        return read_direct_url(said)
    return read_release(installed.metadata.get_all("Project-URL") or [], installed.version)


_LABELS = ("source", "sourcecode", "repository", "github")
"""What a package calls its repository: https://packaging.python.org/specifications/well-known-project-urls/."""


def read_release(urls: Sequence[str], version: str, commit_of: CommitOf | None = None) -> ActionPlace | str:
    """Return the commit of a released version, which its package's repository has under the version's tag.

    Args:
        urls: the addresses of the package, each with its label: `Source, https://...`.
        commit_of: returns the commit of a tag in the repository at an address; None asks git.
    """
    labelled = (line.partition(",") for line in urls)
    known = {re.sub(r"[^a-z]", "", label.lower()): url.strip() for label, _, url in labelled}
    source = next((known[label] for label in _LABELS if known.get(label, "").startswith("https://")), None)
    if source is None:
        return f"{PROGRAM} was installed from a package index, and its package names no repository"
    commit = (commit_of or tagged_commit)(source, f"v{version}")
    if commit is None:
        return f"{source} has no tag v{version}, or cannot be reached"
    return _place_of(source, commit, "")


CommitOf: TypeAlias = "Callable[[str, str], str | None]"


def tagged_commit(address: str, tag: str) -> str | None:
    """Return the commit of a tag in a repository, read now; None if there is none or git fails."""
    name = f"refs/tags/{tag}"
    listed = _git(Path.cwd(), "ls-remote", "--", address, name, f"{name}^{{}}")
    lines = (line.partition("\t") for line in (listed or "").splitlines())
    found = {ref: commit for commit, _, ref in lines}
    return found.get(f"{name}^{{}}") or found.get(name)


def read_direct_url(said: dict[str, object]) -> ActionPlace | str:
    """Read the installer's record: https://packaging.python.org/specifications/direct-url-data-structure/."""
    url, vcs = str(said.get("url", "")), said.get("vcs_info")
    if isinstance(vcs, dict):
        folder = str(said.get("subdirectory", "")).strip("/")
        return _place_of(url, str(vcs.get("commit_id", "")), folder)
    if "dir_info" in said and urlsplit(url).scheme == "file":
        checkout = Path(unquote(urlsplit(url).path))
        if _same_program(checkout):
            return _of_checkout(checkout)
        return f"the files in {checkout}, from which {PROGRAM} was installed, have changed"
    return f"{PROGRAM} was installed from a file"


def _same_program(checkout: Path) -> bool:
    """Return whether a folder has the installed files."""
    there, here = checkout / "orchestrator", _PACKAGE
    if not there.is_dir():
        return False
    theirs = {path.relative_to(there): path for path in _files(there)}
    ours = {path.relative_to(here): path for path in _files(here) if "_prompts" not in path.parts}
    return theirs.keys() == ours.keys() and all(
        path.read_bytes() == theirs[name].read_bytes() for name, path in ours.items()
    )


def _of_checkout(folder: Path) -> ActionPlace | str:
    """Return the commit of a checkout, if the checkout is unchanged and the commit is published.

    Otherwise return the reason.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "rev-parse", "--show-toplevel") != str(folder.resolve()):
        return f"{folder} is not a checkout of git"
    if _git(folder, "status", "--porcelain") != "":
        return f"the checkout {folder} has changes that are not committed"
    remote = _git(folder, "remote", "get-url", "origin")
    if remote is None:
        return f"the checkout {folder} has no remote `origin`"
    if not _git(folder, "branch", "--remotes", "--contains", commit):
        return f"the commit of the checkout {folder} is not pushed"
    return _place_of(remote, commit, "")


def _git(folder: Path, *words: str) -> str | None:
    """Run a git query that executes nothing of the repository's; return None if git fails."""
    quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    # A server that asks for a password has no public release: nobody is asked for one.
    quiet += ["-c", "credential.helper=", "-c", "core.askPass=true"]
    try:
        done = subprocess.run(  # noqa: S603  these words, in the program's own folder
            ["git", "-C", str(folder), *quiet, *words],  # noqa: S607  git is found on the path
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _place_of(url: str, commit: str, folder: str) -> ActionPlace | str:
    parts, ssh = urlsplit(url), SSH_ADDRESS.fullmatch(url)
    host, path = (ssh["host"], ssh["path"]) if ssh else (parts.hostname or "", parts.path)
    name = OWNER_AND_NAME.fullmatch(path.strip("/").removesuffix(".git"))
    if name is None or not is_commit_id(commit):
        return f"the address that {PROGRAM} was installed from is not a repository on a server"
    below = "/".join(filter(None, (folder, _IN_REPOSITORY)))
    return ActionPlace(host.lower(), f"{name['owner']}/{name['name']}/{below}@{commit}")


def workflow_template() -> str:
    """Return the workflow that is part of this program, as its own repository uses it."""
    return _installed_or_source("workflow.yml", WORKFLOW_FILE).read_text(encoding="utf-8")


def action_copy() -> list[ActionFile]:
    """Return the action as files for another repository, with the program in one archive.

    The same program always gives the same bytes.
    """
    folder = _installed_or_source("pullwright", _IN_REPOSITORY)
    files = [
        # A wheel does not always keep the executable bit.
        ActionFile(
            f"{_IN_REPOSITORY}/{path.name}",
            path.read_bytes(),
            is_executable=path.suffix == ".sh" or bool(path.stat().st_mode & stat.S_IXUSR),
        )
        for path in _files(folder)
    ]
    return [*files, ActionFile(f"{_IN_REPOSITORY}/{_ARCHIVE}", _archive())]


def _installed_or_source(installed: str, source: str) -> Path:
    """Return the path of a file in the installed package, or in the source tree."""
    inside = _PACKAGE / "_action" / installed
    return inside if inside.exists() else _PACKAGE.parent / source


def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(_program_files()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | _PLAIN) << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _program_files() -> Iterator[tuple[str, Path]]:
    """Yield the files that the program needs to run from a folder, with their names in it."""
    for name in (_LOCK, _START):
        yield name, _installed_or_source(name, name)
    for path in _files(_PACKAGE):
        yield f"orchestrator/{path.relative_to(_PACKAGE).as_posix()}", path
    if not (_PACKAGE / "_prompts").is_dir():
        prompts = _PACKAGE.parent / "prompts"
        for path in _files(prompts):
            yield f"prompts/{path.relative_to(prompts).as_posix()}", path


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not _SKIPPED.intersection(path.relative_to(folder).parts)
    )


WORKFLOW_FILE = ".github/workflows/pullwright.yml"
_RULES_HEAD = """\
# What Pullwright may do in this repository, as this file is on the default branch.
# It makes the rules of whoever runs Pullwright stricter, never looser.
# `pullwright config` lists all options, with their values.
"""
TEST_KEYS_HEAD = "# Used where the person who runs it says --test-command auto:\n"
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
CHECKOUT = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0"
_PLAIN_MODEL = re.compile(r"[A-Za-z0-9._:/@+-]+")
_KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}


def key_variable(model: str | None) -> str:
    """Return the variable for the key of a vendor's model; all variables if no vendor is named."""
    provider = (model or "").partition(":")[0].lower()
    return _KEYS.get(provider, "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY")


def write_action_file(top: Path, file: ActionFile) -> None:
    """Write a file below `top` atomically, but never through a symbolic link."""
    path = top / file.path
    above = posixpath.dirname(file.path)
    try:
        with ConfinedFolder(top) as folder:
            if above:
                folder.make_folder(above, _NEW_FOLDER)
            folder.write(file.path, file.content, _EXECUTABLE if file.is_executable else _PLAIN)
    except UnsuitableFileError as error:
        if error.errno == errno.ELOOP:
            raise ConfigurationError(f"{path} is behind a symbolic link: nothing is written there") from None
        raise ConfigurationError(f"{path} {error.strerror}: nothing is written there") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error


def present_content(top: Path, path: str) -> bytes | None:
    """Return the content of a file below `top`; None if there is nothing at the path."""
    try:
        with ConfinedFolder(top) as folder:
            return folder.read(path, _MOST_PRESENT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        is_ours = isinstance(error, UnsuitableFileError)
        why = error.strerror if is_ours else f"cannot be read: {error.strerror or error}"
        raise ConfigurationError(f"{top / path} {why}: make it a regular file, or remove it") from None


def rules_text(old: str | None, values: Mapping[str, Any]) -> str:
    """Return the repository's file with these options set. Its other content is kept unchanged."""
    if old is None:
        return _RULES_HEAD + _lines(values)
    present = parse_toml(old, LOCAL_FILE)
    text, added = old, {}
    for key, value in values.items():
        if key not in present:
            added[key] = value
        elif present[key] != value:
            line = f"{key} = {as_toml(value)}".replace("\\", "\\\\")
            text = re.sub(rf"^{key}[ \t]*=.*$", line, text, count=1, flags=re.MULTILINE)
    text = _above_tables(text, _lines(added))
    with suppress(ValueError):  # the replacement can break a value of several lines
        if tomllib.loads(text) == present | dict(values):
            return text
    raise ConfigurationError(f"{LOCAL_FILE} cannot be changed by a program: change it by hand")


def _lines(values: Mapping[str, Any]) -> str:
    others = "".join(f"{key} = {as_toml(value)}\n" for key, value in values.items() if key not in TEST_KEYS)
    tests = "".join(f"{key} = {as_toml(value)}\n" for key, value in values.items() if key in TEST_KEYS)
    return others + (TEST_KEYS_HEAD + tests if tests else "")


def _above_tables(text: str, lines: str) -> str:
    """Insert lines before the first table."""
    table = _TABLE.search(text)
    end = table.start() if table else len(text)
    before = text[:end]
    gap = "" if not before or before.endswith("\n") else "\n"
    return f"{before}{gap}{lines}{text[end:]}"


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """The contents of a workflow.

    Attributes:
        place: commit of the action; None for the copy in the workflow's own repository.
        repository: `owner/name` where it runs; None if that is not known.
        model: `PROVIDER:NAME` of a vendor's model; None to use a variable of the repository.
        has_tests: whether the repository's file sets the test command.
        hosts: hosts that the tests' set-up may connect to.
    """

    place: ActionPlace | None
    repository: str | None
    model: str | None
    max_usd: float
    has_tests: bool
    hosts: tuple[str, ...] = ()


def workflow_text(template: str, plan: WorkflowPlan) -> str:
    """Return the workflow for a repository, based on this program's own workflow."""
    if plan.model is not None and not _PLAIN_MODEL.fullmatch(plan.model):
        raise ConfigurationError(f"the model {plan.model!r} cannot be named in a workflow: name another one")
    notes, _, rest = template.partition("\nname: ")
    text = f"{_workflow_head(notes, plan)}name: {rest}"
    uses = (
        plan.place.uses
        if plan.place
        else f"./{_IN_REPOSITORY} # zizmor: ignore[self-repository] known to every runner"
    )
    step = f"- uses: {uses}"
    if plan.place is None:
        step = f"- uses: {CHECKOUT}\n        with:\n          persist-credentials: false\n      {step}"
    text = _once(text, r"- uses: \$/\.github/actions/pullwright.*$", step)
    text = _once(text, r'max-usd: "[^"]*"', f'max-usd: "{plan.max_usd:g}"')
    if plan.model is not None:
        text = _once(text, r"model: \$\{\{ vars\.PULLWRIGHT_MODEL \}\}", f"model: {json.dumps(plan.model)}")
        not_in_forks = f"github.repository == '{plan.repository}'" if plan.repository else "true"
        text = _once(text, r"vars\.PULLWRIGHT_MODEL != ''", not_in_forks)
    if plan.has_tests:
        text = _once(text, r"test-command: \$\{\{[^{}\n]*\}\}", f"test-command: auto # as {LOCAL_FILE} says")
        text = _once(text, r" *setup-command: \$\{\{[^{}\n]*\}\}\n", "")
        hosts = "".join(f"\n            {host}" for host in plan.hosts)
        line = f"          allow-host: |{hosts}\n" if hosts else ""
        text = _once(text, r" *allow-host: \$\{\{[^{}\n]*\}\}\n", line)
    return text


def _once(text: str, pattern: str, new: str) -> str:
    changed, count = re.subn(pattern, lambda _match: new, text, flags=re.MULTILINE)
    if count != 1:
        raise AssertionError(f"the workflow has {count} places like {pattern}")
    return changed


def _workflow_head(notes: str, plan: WorkflowPlan) -> str:
    """Return the head comment: the remaining steps, and the template's note about the job's token."""
    of_token = notes[notes.index("# Pull requests that the job's own token opens") :]
    lines = [
        "# Works through the issues that carry the label `pullwright`: at once when something happens, and a task an hour",
        "# besides. Made by `pullwright init`.",
        "#",
        "# What is left to do in this repository's settings:",
    ]
    if plan.model is None:
        lines.append(
            "#   - the variable PULLWRIGHT_MODEL, as PROVIDER:NAME; while it is not set, the job does nothing;"
        )
    lines.append(f"#   - a secret for Actions: {key_variable(plan.model)};")
    if not plan.has_tests:
        lines.append(
            "#   - for tests before each pull request, the variable PULLWRIGHT_TEST_COMMAND, which runs them;"
        )
    lines += [
        "#   - in Actions, General: allow GitHub Actions to create and approve pull requests;",
        "#   - the label `pullwright`, on an issue;",
        "#   - below, under `workflow_run`, the names of the workflows whose failures on its pull requests it repairs;",
        "#   - in a private repository without GitHub Enterprise Cloud, the variable PULLWRIGHT_ATTEST, as `false`.",
        "#",
        of_token.rstrip(),
    ]
    return "\n".join(lines) + "\n"
