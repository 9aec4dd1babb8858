from __future__ import annotations

import shlex

from orchestrator.engine.policy.blocked import LONGEST_COMMAND, blocked
from orchestrator.engine.policy.command_rules import CommandRules, Level
from tests.fuzz.growth import grows
from tests.tables import table

DESTRUCTIVE = [
    "rm -rf /", "rm -rf /*", 'rm   -r -f  "/"', "rm -fr /*", "rm -r /", "rm / -rf", "rm -rf -- /", "rm --rec /",
    "sudo rm --recursive --force /", "sudo -u root rm -rf /", "/bin/rm -rf //", "r\\m -rf /", "r''m -rf /",
    "rm -rf /./", "rm -rf /tmp/..", "rm -rf '/'*", "rm -rf /.*", "rm -rf $'/'", "rm -rf $'\\x2f'",
    "rm -rf ~", "rm -rf ~/*", "rm -rf $HOME", "rm -rf ${HOME}/../..", "cd / && rm -rf *", "cd /; rm -rf .",
    "sh -c 'rm -rf *'; cd /; sh -c 'rm -rf *'; cd /tmp",
    "echo hi; rm -rf /", "true\nrm -rf /", "rm \\\n -rf /", "echo $(rm -rf /)", "echo `rm -rf /`",
    'echo "$(rm -rf /)"', "bash -c 'rm -rf /'", 'sh -lc "echo; rm -rf /"', "env -i bash -c 'sudo rm -rf /'",
    "eval 'rm -rf' /", "if true; then rm -rf /; fi", "(rm -rf /)", "{ rm -rf /; }", "! rm -rf /", "A=1 rm -rf /",
    "xargs rm -rf / < x", "timeout 5 rm -rf /", "bash <<EOF\nrm -rf /\nEOF", "find / -delete", "rm -rf / # hi",
    "find . -exec rm -rf / ';'", "uv run sh -c 'rm -rf /'",
    "mkfs.ext4 /dev/sda1", "mkfs /dev/x", "sudo mkfs -t ext4 x", "dd if=/dev/zero of=x", "dd of=/dev/sda bs=1",
    "cat x > /dev/sda", "chmod -R 777 /", "chmod 777 --recursive /*", "chown -R a:b /",
    ":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "f(){ f & f & };f", "function x { x|x& }; x", "$0 & $0",
]  # fmt: skip

HARMLESS = [
    "rm -rf ./build", "rm -rf build/*", "rm -rf *", "cd src && rm -rf *", "cd /tmp/a && rm -rf *", "rm -rf /tmp/x",
    "rm -rf ~/.cache/x", 'rm -rf "$TMPDIR/x"', "rm -f /x", "for i in 1 2; do rm -rf build/$i; done",
    'grep "rm -rf /" file', "echo rm -rf /", "# rm -rf /\nls", "ls # rm -rf /", "case x in a) rm -rf b;; esac",
    "cat <<EOF\nrm -rf /\nEOF\nls", "python - <<'E'\nprint('rm -rf /')\nE", "git commit -m 'mkfs and dd if=x'",
    "grep -r dd src", "git add dd", "dd --version", "mkfsx", "chmod -R 755 .", "chmod +x /", "ls /", "find . -delete",
    "f() { echo; }; f &", "serve() { python x & }; serve", "build() { make | tee log; }; build", "ls > /dev/null",
]  # fmt: skip


@table("command", DESTRUCTIVE)
def test_what_destroys_a_machine_runs_at_no_level(command: str) -> None:
    assert blocked(command)
    assert "at any level" in (CommandRules().refusal(command, Level.DANGEROUS) or "")


@table("command", HARMLESS)
def test_what_only_looks_like_it_runs(command: str) -> None:
    assert blocked(command) is None
    assert CommandRules().refusal(command, Level.DANGEROUS) is None


def test_a_command_has_at_most_8192_characters_and_no_nul() -> None:
    assert blocked("x" * LONGEST_COMMAND) is None
    assert "8,193" in (blocked("x" * (LONGEST_COMMAND + 1)) or "")
    assert blocked("ls \0")


LONG = (
    *(
        "git a ",
        "pytest *",
        "$(",
        "`",
        "a()",
        "a(){",
        "<<a\n",
        "'",
        "~a",
        "sh -c '",
        "env ",
        "sudo sh -c 'a' ",
        "a|",
    ),
    *("eval ", "sudo eval ", "eval 'a b' ", "time eval sh -c "),
    *("rm / ", "-", "f(){f|", '"$(', "sed 's/a/", "\\"),
)


@table("piece", LONG)
@table("level", [Level.SAFE, Level.DANGEROUS])
def test_no_command_stalls_the_check(piece: str, level: Level) -> None:
    rules = CommandRules.parse(["git *", "pytest *", "a *"], ["rm *"])
    grows(lambda text: rules.refusal(text, level), ("", piece, ""), small_chars=LONGEST_COMMAND // 4)


def test_shells_inside_of_shells_are_looked_into_or_refused() -> None:
    deep = "rm -rf /"
    for _ in range(12):
        deep = f"sh -c {shlex.quote(deep)}"[: LONGEST_COMMAND - 20]
        assert blocked(deep), deep
    assert blocked("; ".join(f"sh -c 'echo {number}'" for number in range(30)))
    assert blocked("; ".join(f"sh -c 'echo {number}'" for number in range(5))) is None
