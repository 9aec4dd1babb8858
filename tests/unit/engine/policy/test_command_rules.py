from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.policy.destructive import LONGEST_COMMAND
from orchestrator.engine.policy.program_options import STARTS_NOTHING, program_name
from orchestrator.engine.policy.shell import KEYWORDS
from tests.fuzz.growth import grows
from tests.tables import table

RULES = CommandRules.parse(
    [
        "pytest *", "git *", "git fetch *", "git clone *", "git push *", "git rebase *", "git submodule *",
        "git bisect *", "git config *", "git archive *", "git ls-remote *", "echo *", "tail *", "ls *",
        "sed *", "cd * && pytest *", "FOO=* pytest *", "pytest * > *", "pytest * 2>&1", "make test", "find *",
        "tar *", "rg *", "sort *", "python *", "printf *", "test *", "tee *", "make *", "curl *",
        "timeout * git *", "ruff check src/*.py", "env *", "cd * && git *", "read *", "awk *", "split *",
        "man *", "less *", "vim *", "cargo test *", "uv *", "find * -exec git * +", "rsync *",
    ],
    ["git push --force*", "pytest --pdb *", "rm *"],
)  # fmt: skip


@table(
    ("word", "name"),
    [
        ("/usr/bin/python3.11", "python"),
        ("pip3", "pip"),
        ("git", "git"),
        ("7z", "7z"),
        ("gcc-12", "gcc-12"),
        ("12", "12"),
        ("python3", "python"),
        ("3.11", "3.11"),
    ],
)
def test_a_program_is_the_same_with_its_folder_and_its_version(word: str, name: str) -> None:
    assert program_name(word) == name


@table(
    "command",
    [
        "pytest", "pytest -q tests/ -k 'a and b'", "pytest\n", "git diff HEAD~1 -- a b",
        "git -P log --oneline", "git diff --text", "git fetch origin main", "git log --stat -S x",
        "git config get user.name", "git push -u o", "echo a | tail -3", "ls || echo none",
        "cd src && pytest -q", "FOO=1 pytest -q", "pytest -q > out/log.txt", "pytest -q 2>&1 | tail -20",
        "make test", "find . -name '*.py'", "sed -n 1,20p a.py", "sed 's/a/b/g' a.py", "rg -n 'a|b' src",
        "sort -u a", "python -m build", "printf '%s' a", "ls ./*.py", "echo a | tee log",
        "ruff check src/a.py", "pytest -rp --co", "cd src && pytest -q | tail -3", "timeout 5 git status",
        "awk '{ print $1, $NF }' a", "awk -F : -v n=1 -vm=2 -- '{ print $n }' a", "split -l 5 a", "env A=1 ls",
        "uv run pytest -q", "find . -name git", "less a", "echo '$(id)' '`id`' '; id' '&& id' '> x'",
        "ls 'a\\b'", "tar tf a.tar", "tar -tfIMAGES.tar", "git rev-parse --git-dir",
        "echo '~/x'", "read 'a[(id)]'", "awk -F '>' '{ print }' a", "awk -- '{ print }' a", "tee -a log",
    ],
)  # fmt: skip
def test_commands_that_rules_grant_run(command: str) -> None:
    assert RULES.refusal(command) is None


@table(
    ("command", "why"),
    [
        ("pytest $(id)", "$ is"),
        ('pytest "$(id)"', "double quote"),
        ("pytest `id`", "backtick"),
        ("pytest <(id)", "redirection"),
        ("pytest >(id)", "redirection"),
        ("pytest; ls", "grants ;"),
        ("pytest && ls", "grants &&"),
        ("pytest & ls", "background"),
        ("pytest\nls", "line break"),
        ("pytest $HOME", "$ is"),
        ("pytest {a,b}", "{ is"),
        ("pytest | id", "`id` is granted by no rule"),
        ("pytest || id", "`id` is granted by no rule"),
        ("cd src && pytest && pytest", "no rule"),
        ("ls > x", "redirection"),
        ("ls 2>&1", "redirection"),
        ("ls < x", "redirection"),
        ("pytest > /etc/x", "redirection"),
        ("pytest > a/../../x", "redirection"),
        ("pytest > .git/config", "redirection"),
        ("pytest > .GIT/config", "redirection"),
        ("pytest > a/.git./config", "redirection"),
        ("pytest >> x", "redirection"),
        ("pytest > x > y", "redirection"),
        ("A=1 pytest", "variable"),
        ("FOO=1 ls", "variable"),
        ("FOO=1 A=1 pytest", "variable"),
        ("id", "granted by no rule"),
        ("./pytest", "granted by no rule"),
        ("/bin/ls", "granted by no rule"),
        ("pytest2", "granted by no rule"),
        ("eval ls", "granted by no rule"),
        (". ./x", "granted by no rule"),
        ("sudo ls", "granted by no rule"),
        ("sh -c ls", "granted by no rule"),
        ("time ls", "word of the shell"),
        ("ls *.py", "could become an option"),
        ("ls -*/x", "could become an option"),
        ("ruff check src/a/b.py", "granted by no rule"),
        ("find . -exec id '{}' +", "-exec"),
        ("find . -delete", "-delete"),
        ("find . -fprint x", "-fprint"),
        ("tar xf a --to-command=id", "--to-command"),
        ("tar xf a --to-c id", "--to-c"),
        ("tar -xIid -f a", "-xIid"),
        ("tar xIf id a", "I and F"),
        ("tar cf a --checkpoint-action=exec=id b", "--checkpoint-action"),
        ("rg --pre id a", "--pre"),
        ("sort --compress-program=id a", "--compress-program"),
        ("sort -uo x a", "-uo"),
        ("sed -i s/a/b/ x", "-i"),
        ("sed '1e id' x", "script"),
        ("sed s/a/id/e x", "script"),
        ("sed 'w x' x", "script"),
        ("sed -n p -e '1e id' x", "-e"),
        ("curl -sK x", "-sK"),
        ("curl --outp x y", "--outp"),
        ("echo a | tee /etc/x", "outside"),
        ("echo a | tee .git/config", "outside"),
        ("printf -v 'a[$(id)]' x", "-v"),
        ("test -v 'a[$(id)]'", "-v"),
        ("read 'a[$(id)]'", "evaluate"),
        ("git -c a=b diff", "never granted"),
        ("git -ca=b diff", "never granted"),
        ("git --exec-path=/x diff", "never granted"),
        ("git --exec-p /x diff", "never granted"),
        ("git --config-env=a=b diff", "never granted"),
        ("git -C sub status", "never granted"),
        ("git --git-dir=x status", "never granted"),
        ("git -p log", "never granted"),
        ("git diff --ext-diff", "never granted"),
        ("git diff --ext", "never granted"),
        ("git diff --textconv", "never granted"),
        ("git diff --output=/x", "never granted"),
        ("git fetch --upload-pack=id x", "never granted"),
        ("git fetch --upl=id x", "never granted"),
        ("git push --receive-pack id", "never granted"),
        ("git push --rec=id", "never granted"),
        ("git push --exec=id", "never granted"),
        ("git fetch ext::sh", "never granted"),
        ("git fetch 'ext::sh -c id'", "never granted"),
        ("git fetch fd::3", "never granted"),
        ("git archive --remote=ext::id", "never granted"),
        ("git archive --exec=id", "never granted"),
        ("git clone -u id x y", "never granted"),
        ("git clone -qcuser.name=x y", "never granted"),
        ("git clone --template=x y", "never granted"),
        ("git ls-remote -u id", "never granted"),
        ("git grep -nOid x", "never granted"),
        ("git grep --open x", "never granted"),
        ("git rebase -x id", "never granted"),
        ("git rebase --exec id", "never granted"),
        ("git rebase -s x/../evil a", "never granted"),
        ("git bisect run id", "never granted"),
        ("git submodule foreach id", "never granted"),
        ("git submodule --quiet foreach id", "never granted"),
        ("git config core.pager id", "never granted"),
        ("git config --global --edit", "never granted"),
        ("git difftool -x id", "never granted"),
        ("git x/../evil", "never granted"),
        ("git remote add a b", "must name this subcommand"),
        ("timeout 5 git -c a=b status", "never granted"),
        ("env A=1 git --exec-path=/x status", "never granted"),
        ("cd sub && git status", "in the root of the clone only"),
        ("git push --force", "denies it"),
        ("git push --force-with-lease", "denies it"),
        ("pytest --pdb a/b", "denies it"),
        ("env A=1 pytest --pdb", "denies it"),
        ("awk 'BEGIN { system(1) }'", "awk"),
        ("awk '{ print | 1 }' a", "awk"),
        ("awk '{ print > 1 }' a", "awk"),
        ("awk -f x a", "awk"),
        ("awk x -F 'BEGIN { system(1) }'", "awk"),
        ("awk -- x -F 'BEGIN { system(1) }'", "awk"),
        ("read 'a[`id`]'", "evaluate"),
        ("awk --source x a", "awk"),
        ("awk -W exec x", "awk"),
        ("awk -We x", "awk"),
        ("rg -nz a", "-nz"),
        ("rg --search-zip a", "--search-zip"),
        ("split --filter=id a", "--filter"),
        ("split --fi id a", "--fi"),
        ("env -S 'git -c a=b diff'", "-S"),
        ("env -vS 'git -c a=b diff'", "-vS"),
        ("man -Pid ls", "-Pid"),
        ("less '+!id' a", "+!id"),
        ("vim '+!id' a", "+!id"),
        ("cargo test --config=a.b=1", "--config"),
        ("rsync --rsync-path=id a b", "--rsync-path"),
        ("rsync --rs=id a b", "--rs"),
        ("rsync -ae id a b", "-ae"),
        ("uv run git -c a=b diff", "never granted"),
        ("find . -exec git -c a=b diff +", "never granted"),
        ("rm -rf /", "at any level"),
    ],
)
def test_commands_that_no_rule_grants_do_not_run(command: str, why: str) -> None:
    refusal = RULES.refusal(command)
    assert refusal
    assert why in refusal
    if "any level" not in why:
        assert "Granted commands: `pytest *`" in refusal


@table(
    ("rule", "words"),
    [
        ("*", "begins with the name of a program"),
        ("* --version", "begins with the name of a program"),
        ("", "missing"),
        ("pytest $X", "expanded"),
        ("pytest ?", "only * is a wildcard"),
        ("if x", "a keyword of the shell"),
        ("pytest &", "background"),
        ("git -c * diff", "never granted"),
        ("git push --receive-pack *", "never granted"),
        ("git bisect run *", "never granted"),
        ("git config user.name *", "never granted"),
        ("LD_PRELOAD=* ls", "must give the variable's value"),
        ("GIT_EXTERNAL_DIFF=* git diff *", "must give the variable's value"),
        ("PATH=* ls", "must give the variable's value"),
    ],
)
def test_an_invalid_rule_is_an_error_with_its_reason(rule: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("*", r"\*")):
        CommandRules.parse([rule])


def test_a_rule_that_denies_is_one_command() -> None:
    with pytest.raises(ConfigurationError, match="one command"):
        CommandRules.parse(deny=["a && b"])


def test_a_word_that_a_rule_names_is_granted() -> None:
    rules = CommandRules.parse(
        ["find * -name *.pyc -delete", "node -e 1", "node -r ./x *", "find * -exec wc *"]
    )
    for command in ("find . -name a.pyc -delete", "node -e 1", "node -r ./x a", "find . -exec wc -l"):
        assert rules.refusal(command) is None, command
    for command in (
        "find . -delete -name a.pyc -delete",
        "node -e 2",
        "node -r y a",
        "find -exec id -exec wc",
    ):
        assert rules.refusal(command), command


def test_a_longer_shape_is_covered_by_rules_from_left_to_right() -> None:
    rules = CommandRules.parse(["a", "a && b", "b && a | a", "c; d"])
    for command in ("a", "a && b", "a | a && b", "a && b | a", "b && a | a || a", "c ; d | a"):
        assert rules.refusal(command) is None, command
    for command in ("b", "a && a", "a && b && a", "b | a && b", "a; b", "c; d; c; d", "d"):
        assert rules.refusal(command), command


def test_a_star_after_git_config_covers_reading_alone() -> None:
    rules = CommandRules.parse(["git config *"])
    assert rules.refusal("git config get user.name") is None
    assert "never granted" in (rules.refusal("git config core.pager id") or "")


def test_a_star_covers_no_script_of_sed_that_starts_a_program() -> None:
    rules = CommandRules.parse(["sed -n -e p -e *"])
    assert rules.refusal("sed -n -e p -e 2p x") is None
    assert rules.refusal("sed -n -e p -e '1e id' x")


@table(
    "rule",
    [
        "mypy *", "nice *", "stdbuf *", "sqlite3 *", "timeout 5 *", "env *", "xargs *", "pytest *", "python *",
        "make *", "npm run *", "tar *", "tar xf *.tar", "curl *", "less *", "diff *", "uniq *", "cp *",
        "./ls *", "/bin/ls *", "ls | nice *", "cd * && pytest *", "FOO=* mypy", "mypy src/*", "git fetch *",
        "git rebase *", "find * -exec wc *", "sort --compress-program=x *", "sed -i s/a/b/ *", "awk -f x *",
        "rg --pre x *", "timeout * git *", "read *", "a-program-of-tomorrow *",
    ],
)  # fmt: skip
def test_a_star_after_a_program_that_may_start_others_is_reported(rule: str) -> None:
    assert CommandRules.parse(["ls *", rule, "pytest"]).open == (rule,)


@table(
    "rule",
    [
        "mypy", "pytest -q", "make test", "ls *", "cat *", "grep * | head *", "find *", "rg *", "sort *",
        "sed -n *", "awk *", "git *", "git diff *", "git log * | head *", "pytest > *",
        "pytest -q 2>&1 | tail *", "cd * && ls", "FOO=* ls *", "find * -name *.py", "awk '{ print $1 }' *",
        "printf *", "tee *",
    ],
)  # fmt: skip
def test_no_star_or_one_after_a_program_that_starts_nothing_is_not_reported(rule: str) -> None:
    assert CommandRules.parse([rule]).open == ()


@given(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789_-./", min_size=1, max_size=12).filter(
        lambda name: name[0] != "-"
    )
)
def test_an_unknown_program_is_always_reported(name: str) -> None:
    assume(name not in {*STARTS_NOTHING, "git", *KEYWORDS})
    assert CommandRules.parse([f"{name} *"]).open == (f"{name} *",)


_STARTS = re.compile(rb"\0(exec[lv]p?e?|execveat|fexecve|posix_spawnp?|system|popen|dlopen)(?=[\0@])")


@pytest.mark.parametrize(
    "name", sorted(STARTS_NOTHING - {"find", "rg", "sed", "sort", "awk", "gawk", "mawk", "nawk"})
)
def test_a_program_that_is_known_imports_no_function_that_starts_another(name: str) -> None:
    """The program's own file is the oracle: its table of dynamic symbols."""
    found = shutil.which(name)
    if found is None or Path(found).resolve().name != name:
        pytest.skip("not here, or one file for many programs")
    content = Path(found).read_bytes()
    if not content.startswith(b"\x7fELF"):
        pytest.skip("no ELF file")
    assert not _STARTS.findall(content)


@pytest.mark.parametrize("name", ["nice", "timeout", "env", "diff", "find"])
def test_the_oracle_sees_programs_that_start_others(name: str) -> None:
    found = shutil.which(name)
    if (
        found is None
        or Path(found).resolve().name != name
        or not Path(found).read_bytes().startswith(b"\x7fELF")
    ):
        pytest.skip("not here, or one file for many programs")
    assert _STARTS.findall(Path(found).read_bytes())


def test_levels() -> None:
    rules = CommandRules.parse(["pytest *"], ["git push *"])
    assert "read-only" in (rules.refusal("pytest", Level.READ_ONLY) or "")
    assert CommandRules().refusal("ls") == "Not run: `ls` is granted by no rule. No command is granted."
    assert rules.refusal("id; echo $(ls) > x", Level.DANGEROUS) is None
    for command in ("git push", "git -C x push a", "/usr/bin/git push", "sh -c 'git push'", "a; (git push)"):
        assert "denies" in (rules.refusal(command, Level.DANGEROUS) or ""), command
    assert rules.refusal("echo git push", Level.DANGEROUS) is None
    folder = CommandRules.parse([], ["rm *"]).refusal("/bin/rm x", Level.DANGEROUS)
    assert folder == "Not run: the rule `rm *` denies it."


def test_git_in_another_folder_is_refused_because_that_folder_can_run_programs(tmp_path: Path) -> None:
    """A folder with the look of a bare repository, which every file tool can write, has a configuration."""

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "--bare", "evil")
    git("-C", "evil", "config", "alias.usual", "!touch ran")
    subprocess.run(["git", "usual"], cwd=tmp_path / "evil", check=False, capture_output=True)
    assert (tmp_path / "evil" / "ran").exists(), "the attack works where nothing stops it"
    assert "root of the clone" in (RULES.refusal("git status", outside_root=True) or "")
    assert "root of the clone" in (RULES.refusal("cd evil && git status") or "")


@pytest.mark.parametrize(
    ("command", "is_git"),
    [
        ("printf -v 'a[$(touch ran)]' x", False),
        ("sed '1e touch ran' file", False),
        ("find . -maxdepth 0 -exec touch ran '{}' +", False),
        ("tar cf x --checkpoint=1 --checkpoint-act=exec='touch ran' file", False),
        ("git -c alias.x='!touch ran' x", True),
        ("git ls-remote --upl='touch ran;' .", True),
        ("git ls-remote 'ext::touch ran'", True),
        ("git grep -O'touch ran;' a", True),
    ],
)
def test_the_attacks_that_are_refused_do_work(tmp_path: Path, command: str, *, is_git: bool) -> None:
    (tmp_path / "file").write_text("a\n")
    (tmp_path / "evil").write_text("#!/bin/sh\ntouch ran\ncat\n")
    (tmp_path / "evil").chmod(0o755)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "file"], cwd=tmp_path, check=True)
    line = command.replace("git ls-remote 'ext", "git -c protocol.ext.allow=always ls-remote 'ext")
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=False, capture_output=True, timeout=20)
    assert (tmp_path / "ran").exists()
    words = RULES.refusal(command) or ""
    assert ("never granted" in words) if is_git else words


@table("where", ["allow", "deny", "value"])
def test_many_stars_are_matched(where: str) -> None:
    """A match that tries every way takes years."""
    stars = "*a" * 50 + "*b"
    rules = {
        "allow": CommandRules.parse([f"ls {stars}"]),
        "deny": CommandRules.parse(["ls *"], [f"ls {stars}"]),
        "value": CommandRules.parse([f"FOO={stars} ls"]),
    }[where]
    command = f"FOO={'a' * 8_000} ls" if where == "value" else f"ls {'a' * 8_000}"
    rules.refusal(command)


@table(
    ("rule", "word", "fits"),
    [
        ("a*b*c", "abc", True),
        ("a*b*c", "axbxbxc", True),
        ("a*b*c", "ab/c", False),
        ("a*b*b", "ab", False),
        ("a*b*b", "abb", True),
        ("*a*", "a", True),
        ("**a", "xa", True),
        ("a*", "a", True),
        ("x*", "a", False),
        ("*ab*ab", "abab", True),
        ("*ab*ab", "aab", False),
    ],
)
def test_a_star_inside_a_word(rule: str, word: str, *, fits: bool) -> None:
    assert (CommandRules.parse([f"ls {rule}"]).refusal(f"ls {word}") is None) is fits
    if "/" not in word:
        assert (CommandRules.parse(["ls *"], [f"ls {rule}"]).refusal(f"ls {word}") is not None) is fits


_STAR = (
    "git status", "git diff", "git add -A", "git add .", "git commit -m 'Fix add'",
    "git commit --amend --no-edit", "git stash", "git stash pop", "git log --oneline -5", "git branch x",
    "git checkout -b x", "git switch x", "git reset --hard HEAD~1", "git restore .", "git tag v1",
    "git blame calc.py", "git mv a b", "git rm a",
)  # fmt: skip
_NAMED = (
    "git bisect start",
    "git bisect good HEAD",
    "git merge x",
    "git rebase main",
    "git clean -fd",
    "git gc",
)


@table("command", [*_STAR, *_NAMED])
def test_git_in_the_model_s_own_repository(command: str) -> None:
    """At the level of the shell all of it runs; below, what the user grants, with one star or by name."""
    named = CommandRules.parse([f"git {command.split()[1]} *"])
    star = CommandRules.parse(["git *"])
    assert CommandRules.parse([]).refusal(command, Level.DANGEROUS) is None
    assert named.refusal(command) is None
    assert (star.refusal(command) is None) is (command in _STAR)
    assert CommandRules.parse([]).refusal(command) is not None
    assert star.refusal(command, Level.READ_ONLY) is not None


LONG = ("git a ", "pytest *", "$(", "`", "<<a\n", "'", "~a", "a|", "-", '"$(', "sed 's/a/", "\\", "awk -F ")


@pytest.mark.slow(reason="growth: commands of many thousands of characters")
@table("piece", LONG)
@table("level", [Level.SAFE, Level.DANGEROUS])
def test_no_command_stalls_the_check(piece: str, level: Level) -> None:
    rules = CommandRules.parse(["git *", "pytest *", "a *"], ["rm *"])
    grows(lambda text: rules.refusal(text, level), ("", piece, ""), small_chars=LONGEST_COMMAND // 4)
