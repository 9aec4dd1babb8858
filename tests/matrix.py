"""Plays a slice of the suite in other surroundings: other people's git, locale, home, keys, user and Python.

`python -m tests.matrix` plays all of them, `python -m tests.matrix everything user` those that are named. What cannot be
played on this machine is told with its reason. `--python` names further interpreters, whose environments have what the
tests need; `--tests` replaces the slice. The last line of pytest is printed for each, and all of it for one that fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
SLICE = (
    "tests/scenarios/test_local.py::test_a_task_becomes_a_branch_and_a_pull_request",
    "tests/scenarios/test_local.py::test_the_work_tree_that_was_named_is_not_touched",
    "tests/unit/engine/models/test_keys.py",
    "tests/unit/app/config/test_settings.py",
    "tests/unit/bot/git/test_clone.py",
    "tests/unit/bot/git/test_commit.py",
    "tests/unit/bot/git/test_local.py",
    "tests/unit/bot/journal/test_digest.py",
    "tests/unit/bot/journal/test_folders.py",
    "tests/unit/bot/worker/test_schedule.py",
    "tests/unit/core/test_confined.py",
    "tests/unit/core/test_files.py",
    "tests/unit/engine/environments/test_commands.py",
    "tests/unit/engine/environments/test_files.py",
    "tests/unit/engine/models/test_http.py",
    "tests/plugins/web/test_client.py",
)
"""What starts git, programs and servers, opens files, tells times, and reads keys."""
_KEYS = (
    "ANTHROPIC",
    "AZURE_OPENAI",
    "DEEPSEEK",
    "GEMINI",
    "GOOGLE",
    "GROQ",
    "MISTRAL",
    "OPENAI",
    "OPENROUTER",
    "XAI",
)
_NOBODY = 65534
_GIT = """\
[user]
	name = A. Person
	email = person@example.invalid
	signingKey = 0000000000000000
[init]
	defaultBranch = trunk
	templateDir = {folder}/template
	defaultRefFormat = reftable
	defaultObjectFormat = sha256
[core]
	hooksPath = {folder}/hooks
	autocrlf = true
	eol = crlf
	fsmonitor = {folder}/hooks/fails
	attributesFile = {folder}/attributes
	excludesFile = {folder}/excludes
	editor = false
	pager = false
	fileMode = false
	quotePath = false
	untrackedCache = true
[commit]
	gpgSign = true
[tag]
	gpgSign = true
[push]
	gpgSign = if-asked
	default = nothing
[pull]
	rebase = true
[merge]
	ff = only
	conflictStyle = diff3
[diff]
	external = false
	noprefix = true
	mnemonicPrefix = true
[gpg]
	program = false
[url "https://mirror.invalid/"]
	insteadOf = https://github.com/
	insteadOf = /
	insteadOf = file://
[protocol]
	allow = never
[protocol "https"]
	allow = always
[credential]
	helper = !false
[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = git-lfs smudge -- %f
	process = git-lfs filter-process
	required = true
[color]
	ui = always
[log]
	showSignature = true
	date = relative
[status]
	short = true
	branch = true
[safe]
	bareRepository = explicit
[fetch]
	prune = true
	fsckObjects = true
[transfer]
	fsckObjects = true
[alias]
	st = status
"""
_HOOKS = (
    "applypatch-msg",
    "commit-msg",
    "pre-commit",
    "pre-push",
    "prepare-commit-msg",
    "post-checkout",
    "update",
    "fails",
)
Variables: TypeAlias = "dict[str, str]"


@dataclass(slots=True)
class Surroundings:
    """Where the slice is played.

    Attributes:
        home: a folder that is the user's home.
        variables: the environment.
        python: the interpreter.
        before: the words of the command before Python.
        why_not: why they cannot be played here.
    """

    folder: Path
    home: Path
    python: str
    variables: Variables = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    why_not: str = ""


def _write_git(folder: Path) -> Path:
    """Write what disturbs git the most: hooks that refuse, templates with hooks, filters, signatures, other endings."""
    for name in ("hooks", "template/hooks"):
        (folder / name).mkdir(parents=True)
        for hook in _HOOKS:
            (folder / name / hook).write_text("#!/bin/sh\necho 'a hook of this user' >&2\nexit 1\n")
            (folder / name / hook).chmod(0o755)
    (folder / "attributes").write_text(
        "*.bin filter=lfs diff=lfs merge=lfs -text\n*.py text eol=crlf ident\n"
    )
    (folder / "excludes").write_text("*.txt\n*.log\ncalc.py\n")
    (folder / "gitconfig").write_text(_GIT.format(folder=folder))
    return folder / "gitconfig"


def git_of_the_user(here: Surroundings) -> None:
    """`~/.gitconfig`: LFS, hooks, signatures, line ends, templates, other addresses, fsmonitor, reftable, a branch name."""
    shutil.copy(_write_git(here.folder / "user git"), here.home / ".gitconfig")


def git_of_the_system(here: Surroundings) -> None:
    """The same in what stands for `/etc/gitconfig`."""
    programs = here.folder / "programs"
    programs.mkdir()
    config, real = _write_git(here.folder / "system git"), shutil.which("git")
    (programs / "git").write_text(
        f"#!/bin/sh\n: ${{GIT_CONFIG_SYSTEM='{config}'}}\nexport GIT_CONFIG_SYSTEM\nexec {real} \"$@\"\n"
    )
    (programs / "git").chmod(0o755)
    here.variables["PATH"] = f"{programs}{os.pathsep}{here.variables['PATH']}"


def git_of_the_environment(here: Surroundings) -> None:
    """The suite is started by a hook of git: variables say where a repository is, and what is set."""
    here.variables |= {
        "GIT_DIR": str(here.folder / "nowhere.git"),
        "GIT_INDEX_FILE": str(here.folder / "index"),
        "GIT_WORK_TREE": str(here.folder),
        "GIT_PREFIX": "sub/",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(_write_git(here.folder / "hook git").parent / "hooks"),
        "EMAIL": "person@example.invalid",
        "PAGER": "false",
    }


def locale(here: Surroundings) -> None:
    """`LANG=C`."""
    here.variables |= {"LANG": "C", "LC_ALL": "C"}


def time_zone(here: Surroundings) -> None:
    """Where it is tomorrow already."""
    here.variables["TZ"] = "Pacific/Apia"


def umask(here: Surroundings) -> None:
    """New files are for their owner alone."""
    here.before += ["sh", "-c", 'umask 077; exec "$@"', "sh"]


def home_with_blanks(here: Surroundings) -> None:
    """Blanks and a letter beyond ASCII in the home folder and in that of temporary files."""
    here.home = here.folder / "a home with blanks é"
    (here.home / "tmp").mkdir(parents=True)
    here.variables |= {"HOME": str(here.home), "TMPDIR": str(here.home / "tmp")}


def proxies(here: Surroundings) -> None:
    """Proxies that do not answer, for every protocol."""
    names = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
    here.variables |= {each: "http://127.0.0.1:9" for name in names for each in (name, name.upper())}


def ci(here: Surroundings) -> None:
    """As in a job of GitHub Actions."""
    here.variables |= {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "octo/demo",
        "GITHUB_TOKEN": "no-token",
        "GITHUB_EVENT_PATH": str(here.folder / "event.json"),
        "RUNNER_DEBUG": "1",
        "RUNNER_TEMP": str(here.folder),
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def terminal(here: Surroundings) -> None:
    """Of a person who likes colours, in a narrow window."""
    here.variables |= {
        "FORCE_COLOR": "1",
        "CLICOLOR_FORCE": "1",
        "COLUMNS": "40",
        "LINES": "10",
        "TERM": "xterm-256color",
    }
    here.variables |= {"PYTHONUTF8": "1", "PYTHONWARNINGS": "always", "PAGER": "false", "EDITOR": "false"}


def keys(here: Surroundings) -> None:
    """Keys and addresses of all vendors."""
    for vendor in _KEYS:
        here.variables |= {
            f"{vendor}_API_KEY": f"key-of-{vendor.lower()}",
            f"{vendor}_BASE_URL": "http://127.0.0.1:9",
        }
    here.variables |= {"GH_TOKEN": "no-token", "OLLAMA_HOST": "http://127.0.0.1:9"}
    here.variables |= {
        "AWS_ACCESS_KEY_ID": "no-key",
        "PULLWRIGHT_MODEL": "mine",
        "PULLWRIGHT_CONFIG": "/no",
    }


def user(here: Surroundings) -> None:
    """As an ordinary user, where root starts it. A Python that only root can open gives way to that of the system."""
    if os.geteuid() != 0:
        here.why_not = "this is an ordinary user already"
    elif shutil.which("setpriv") is None:
        here.why_not = "there is no setpriv"
    elif not _all_can_open(ROOT.resolve()):
        here.why_not = "another user cannot open the tests"
    elif not _all_can_open(Path(_asked(here.python, "sys.executable")).resolve()):
        _take_python_of_the_system(here)
    here.before += ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


def _all_can_open(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in path.parents)


def _asked(python: str, words: str) -> str:
    """Return what an expression is in another Python."""
    code = f"import sys, sysconfig; print({words})"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _take_python_of_the_system(here: Surroundings) -> None:
    """Make an environment on the system's Python of the same version, with the packages of the one that was named."""
    packages = _asked(here.python, "sysconfig.get_path('purelib')")
    system = f"/usr/bin/python{_asked(here.python, 'sysconfig.get_python_version()')}"
    if not Path(system).exists() or not _all_can_open(Path(packages).resolve()):
        here.why_not = f"another user cannot open {here.python}, and there is no {system} in its place"
        return
    environment = here.folder / "python"
    subprocess.run([system, "-m", "venv", "--without-pip", environment], check=True)
    here.python = str(environment / "bin/python")
    # Packages that name others in `.pth` files need `addsitedir`, as in an environment of their own.
    line = f"import site; site.addsitedir({packages!r})\n"
    Path(_asked(here.python, "sysconfig.get_path('purelib')"), "packages.pth").write_text(line)


SINGLE = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(
            git_of_the_user,
            git_of_the_system,
            git_of_the_environment,
            locale,
            time_zone,
            umask,
            home_with_blanks,
        ),
        *(proxies, ci, terminal, keys, user),
    )
}


def everything(here: Surroundings) -> None:
    """All of the others at once, but the user."""
    for change in (home_with_blanks, *SINGLE.values()):
        if change is not user and (change is not home_with_blanks or not here.home.name.endswith("é")):
            change(here)


ALL = {"as-it-is": lambda _here: None, **SINGLE, "everything": everything}


def play(name: str, python: str, tests: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Play the slice; print how it went, and return whether it passed."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        folder = Path(scratch).resolve()
        folder.chmod(0o755)
        here = Surroundings(folder, folder / "home", python)
        here.home.mkdir()
        (folder / "tmp").mkdir()
        here.variables = {"PATH": environ["PATH"], "HOME": str(here.home), "TMPDIR": str(folder / "tmp")}
        ALL[name](here)
        if here.why_not:
            _say(f"{name}: not played, because {here.why_not}")
            return True
        if "setpriv" in here.before:
            for each in (folder, *folder.rglob("*")):
                os.chown(each, _NOBODY, _NOBODY, follow_symlinks=False)
        command = [*here.before, here.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        begun = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=here.variables, capture_output=True, text=True, check=False
        )
        last = (done.stdout.splitlines() or ["no word"])[-1]
        if done.returncode:
            _say(done.stdout + done.stderr)
        _say(f"{name}: {last.strip('=')} ({time.monotonic() - begun:.0f} s)")
        return done.returncode == 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the output of the command


def main(arguments: list[str]) -> int:
    """Play what is named; return 1 if a slice failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; all, if there is none"
    )
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="interpreters; this one, if there is none"
    )
    parser.add_argument("--tests", nargs="+", default=SLICE, help="what is played; else the slice")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in ALL]:
        parser.error(f"{', '.join(unknown)}: there is no such name; there are {', '.join(ALL)}")
    passed = []
    for python in options.python:
        version = subprocess.run(
            [python, "--version"], check=True, capture_output=True, text=True
        ).stdout.strip()
        _say(f"{version} at {python}, {'root' if os.geteuid() == 0 else 'an ordinary user'}")
        passed += [play(name, python, options.tests, os.environ) for name in options.names or ALL]
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
