"""The command lines that only read, with bash as the oracle of what they do."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from orchestrator.engine.policy.reading import VALUES, arguments_of, why_not_reading
from orchestrator.engine.policy.shell import parse_words
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

READS = (
    "ls", "ls -la", "ls ~", 'ls -la "$HOME"', "ls src/*.py", "ls *.py", "cat {a,b}.py", "cat a.py b.py",
    "cat src/{core,app}/*.py | head -50", "head -n 20 README.md", "tail -5 CHANGELOG.md",
    'grep -n "def\\|class" a.py', 'grep -c "x = 1$" a.py', 'grep -rn "def \\w" .',
    "grep -rn 'TODO' --include='*.py' src", 'grep -E "^(a|b)$" x.txt',
    "uniq -c a", "uniq -c -d a", "uniq -f 1 a", "base64 -- a", "tree --version", 'ls "${HOME}"', "cat ~/x", "sort --version-sort a",
    'grep -v "^#" x | sort | uniq -c | sort -rn | head', 'grep -rl "foo(bar)" . || echo none',
    'grep "a;b && c" x', "grep '$(x)' a.sh", "grep '`x`' a.sh", 'grep -n "\\$HOME" a.sh', "egrep -o '[a-z]+' x",
    "wc -l src/*.py | sort -n", "wc -l < a.py", "find . -name '*.py' -not -path './x/*'",
    "find . -type f -newer a.py | wc -l", "find . -maxdepth 2 -type d", 'find src -name "*.py" | head',
    "find . \\( -name a -o -name b \\) -print", "sed -n '1,20p' a.py", "sed -n 5p a.py", "sed 's/a/b/' a.py",
    "awk '{print $1}' x", "awk -F: '{print $1}' /etc/passwd", "awk -F'|' '{ print $2 }' x", "awk 'NR==5' a.py",
    "awk '$3 > 100' x", 'awk \'$1 == "a" || $2 == "b"\' x', "cut -d: -f1 x", "tr a-z A-Z < x", "sort -u x",
    "sort -t, -k2 -n x", "uniq x", "diff a b", "diff -u a b | head", "cmp a b", "comm -12 a b", "file a.py",
    "stat a.py", "du -sh .", "du -a | sort -n | tail", "df -h", "tree -L 2", "pwd", "date", "date +%F",
    "which python", "type ls", "command -v git", "[ -f a.py ] || echo no", "test -d src || echo no",
    "true || false", "echo hello", 'echo "it\'s $HOME"', "printf '%s\\n' a b", "basename a/b.py",
    "dirname a/b.py", "realpath a", "readlink -f a", "git log -5", "git log --oneline | head -2",
    "git log -p -- a.py", "git show HEAD", "git show HEAD:a.py", "git diff HEAD~1", "git diff --stat",
    "git status", "git status -s", "git blame a.py", "git grep -n foo", "git ls-files | wc -l", "git branch -a",
    "git tag -l", "git remote -v", "git stash list", "git rev-parse HEAD", "git config --get user.name",
    "git --no-pager log -1", "rg -n foo", 'rg -n "def \\w+\\(" -g \'*.py\'', "jq . a.json",
    "jq -r '.a[] | .b' a.json", "md5sum a", "od -c a | head", "hexdump -C a", "nl a.py", "rev a", "tac a",
    "ls 2>/dev/null", "ls x 2>&1 | head", "cat < a.py", "ls nothere >/dev/null 2>&1 || echo none",
    "grep -n '^class \\|^def ' a.py", "seq 3", "id", "whoami", "uname -a", "ls [a-c]*", "cat ~/notes.txt",
    "base64 -d a", "base64 -w0 a", "git cat-file -p HEAD",
)  # fmt: skip

DOES_MORE = (
    "ls; rm x", "ls && rm x", "ls & rm x", "echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', 'echo "`rm x`"',
    "(rm x)", "{ rm x; }", "ls |& rm", "cat <(rm x)", "ls > out", "ls >> out", "ls >| out", "ls &> out",
    "ls 2> out", "echo x | tee out", "rm x", "python x.py", "find . -delete", "find . -exec touch ran ;",
    "find . -exec touch ran {} +", "find . -ok touch ran ;", "find . -fprint out", "find . -fls out",
    "find . {-delete,}", "find . $X", "sed -i s/a/b/ a", "sed -n 'w out' a", "sed 's/a/b/w out' a",
    "sed '1e touch ran' a", "sed -f x a", 'awk \'BEGIN{system("touch ran")}\'',
    'awk \'BEGIN{print 1 > "out"}\'', 'awk \'BEGIN{print 1 | "sh"}\'', 'awk \'BEGIN{"touch ran" | getline}\'',
    "awk -f x", "gawk -i inplace 1 a", "awk -v a=1 -f x", "sort -o out a", "sort --output=out a",
    "sort --compress-program=x a", "uniq a out", "uniq -c a out", "uniq -f1 a out", "uniq -- -a out",
    "date -s 12:00", "date --set=12:00", "ls ~root", "git stash push list", "xargs touch < a", "ls | xargs touch", "tar cf out a",
    "tar xf a", "cp a b", "mv a b", "env touch x", "X=1 ls", "git commit -m x", "git branch x",
    "git branch -D x", "git tag v1", "git config a b", "git stash", "git checkout x", "git diff --output=out",
    "git log --output=out", "git grep -Otouch x", "git -c alias.x='!touch ran' x", "git --exec-path=. log",
    "git reflog expire --all", "git remote add a b", "git worktree add x", "git diff *.py", "sort *",
    "tree -o out", "file -C", "date -s 2020", "date 010100002020", "diff -l a b", "rg --pre x y",
    "cat < /dev/tcp/a/80", "./ls", "bash -c ls", "$HOME/x", 'ls "$SECRET"', "echo $SECRET", "if ls", "time ls",
    "! ls", "printf -v 'a[$(touch ran)]' x", "[ -v 'a[$(touch ran)]' ]", "test -v 'a[$(touch ran)]'",
    "command ls", "nohup ls", "rm x", "split a", "csplit a", "touch a", "mkdir a", "ln -s a b", "dd if=a",
    "less a", "vi a", "curl x", "wget x", "ssh x", "column -t a | sh", "xxd -r a out", "eval ls", "source a",
    ". a", "exec ls", 'ls "', "ls '", "kill 1", "awk -F -F 'BEGIN{system(1)}'", 'awk \'{print $1 >> "out"}\'',
    "find . -fprintf out x", "ls *>out", "ls\nrm x", "ls \\\nrm x", "A=1 ls", "ls | $X", "ls {a,b}; x",
    "cat <<E\nE", "cat <<< x > out", "uniq -f 1 a out", "git -C . log",
    "git config --get-urlmatch a b c d --global x y", "git branch --list -D x", "git stash show; x",
    "sort -T . a", "fd -x rm", "date 0101", "file -z a", "tail a | tee b", "printf -v x y", "egrep x a || rm b",
    "command -p rm x", "type a; b", "ls $(echo a)", "git log -p --ext-diff", "git diff --textconv a",
    "base64 -o out a", "base64 -Do out a", "base64 --output=out a", "git cat-file --filters HEAD:a",
    "git cat-file --filt HEAD:a",
)  # fmt: skip


@table("command", READS)
def test_ordinary_reading_is_allowed(command: str) -> None:
    assert why_not_reading(command) is None


def test_a_program_gets_the_values_of_what_is_known() -> None:
    (command,) = parse_words('ls ~ ~/x $HOME "${HOME}"/y $PWD').commands
    home = VALUES["HOME"]
    assert [one.text for one in arguments_of(command)] == [
        home,
        f"{home}/x",
        home,
        f"{home}/y",
        VALUES["PWD"],
    ]


@table("command", DOES_MORE)
def test_what_could_write_or_start_another_program_is_not(command: str) -> None:
    reason = why_not_reading(command)
    assert reason
    assert "\n" not in reason


PROGRAMS = (
    "[ awk cat cmp command comm cut date diff du echo egrep env expr false fgrep file find fold git grep head jq join ls mawk "  # noqa: SIM905
    "nl od paste printenv printf readlink rev sed seq sort stat tac tar tee test touch tr tree type uniq wc which "
    "xargs xxd column sh cp mv rm".split()
)
WORDS = (
    "a", "b", "x.py", "*", "./*", "out", "ran", ">", ">>", "2>&1", ">/dev/null", "<", "a*", "-o", "-oout", "--output=out",
    "--output", "out", "-i", "-n", "-e", "-f", "script", "-exec", "touch", "ran", ";", "\\;", "+", "{}", "-delete", "-ok",
    "-fprint", "-fls", "-name", "'*'", "-print", "s/a/b/", "'w out'", "1p", "'1e touch ran'", "'s/a/touch ran/e'", "-F", "-v",
    "x=1", "'BEGIN{system(\"touch ran\")}'", "'{print > \"out\"}'", "'{print | \"sh\"}'", "'$1 > 1'", "--", "-", "|", "||", "&&",
    "&", "$(touch ran)", "`touch ran`", '"$(touch ran)"', "'a[$(touch ran)]'", "$HOME", "~", "{a,-delete}", "{a,b}", "-T", "-C",
    "-r", "-c", "-l", "-u", "-z", "-s", "log", "diff", "branch", "tag", "status", "stash", "config", "grep", "show", "--list",
    "--ext-diff", "-Otouch", "-p", "user.name", "]", "!", "{", "}", "(", ")", "<(touch ran)", "--compress-program=./script",
    "--to-command=./script", "-I", "-x", "\n", "#", "[a-z]*", '"a\\|b"', '"a$"', "-V", "A=1", "--files0-from=a", "--reg",
)  # fmt: skip


def some_commands(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)  # noqa: S311  no secret
    pieces = ([chance.choice(PROGRAMS), *chance.choices(WORDS, k=chance.randint(0, 5))] for _ in range(count))
    texts = (" ".join(some) for some in pieces)
    return [f"{text} | {chance.choice(PROGRAMS)}" if chance.random() < 0.2 else text for text in texts]


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "index")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@settings(max_examples=1, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_what_is_allowed_writes_nothing_and_starts_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("reads")
    for name in ("a", "b", "x.py", "script", "-delete", "-oout"):
        (folder / name).write_text("#!/bin/sh\ntouch ran\n")
        (folder / name).chmod(0o755)
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    allowed = [text for text in some_commands(seed, 800) if why_not_reading(text) is None]
    assert len(allowed) > 50
    before = contents(folder)
    script = "\n".join(f"( {text}\n) </dev/null >/dev/null 2>&1" for text in allowed)
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_PAGER": "cat"}
    subprocess.run(["bash"], input=script, text=True, cwd=folder, env=variables, check=False, timeout=60)
    assert contents(folder) == before


SPOKEN = (
    *" '\"\\$|{}[],~=-./Aa1*?", "$HOME", "${USER}", "{a,b}", "'x'", '"y"', '"a$"', '"\\w"', "\\ ", "~/a", "{a,{b,c}}", "\\|",
)  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_bash_gives_a_program_the_words_that_were_checked(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    texts = ["echo " + "".join(chance.choices(SPOKEN, k=chance.randint(1, 10))) for _ in range(3_000)]
    known = [
        text
        for text in texts
        if why_not_reading(text) is None and "|" not in re.sub(r"'[^']*'|\"[^\"]*\"|\\.", "", text)
    ]
    assert len(known) > 300
    script = "set -f\n" + "".join(
        f"echo() {{ printf '%s\\037' \"$@\"; }}; {text}; printf '\\036'\n" for text in known
    )
    folder = tmp_path_factory.mktemp("empty")
    done = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, cwd=folder, env={**VALUES, "PATH": os.environ["PATH"]},
        check=True, timeout=60,
    )  # fmt: skip
    for text, record in zip(known, done.stdout.split("\036")[:-1], strict=True):
        given_words = set(record.split("\037")[:-1])
        (command,) = parse_words(text).commands
        assert given_words == {one.text for one in arguments_of(command)} or command.argv == ("echo",), text


@pytest.mark.slow(reason="growth: commands of many thousands of characters")
@table(
    "piece", ("{a,", "{a,b}", "$HOME", '"$a', "a ", "-F ", "|ls ", "'", "[", "~", "{", "$", "print>", "\\")
)
def test_no_command_stalls_the_check(piece: str) -> None:
    grows(why_not_reading, ("awk ", piece, ""), small_chars=2_000)
