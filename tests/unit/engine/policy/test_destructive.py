"""The commands that no level runs, in many spellings, and commands that only look like them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.policy.destructive import LONGEST_COMMAND, blocked
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

DESTRUCTIVE = [
    "function f { rm -rf /; }; f", "function f() { rm -rf /; }; f", "systemd-run --wait rm -rf /",
    "rm -rf /", "rm -rf /*", 'rm   -r -f  "/"', "rm -fr /*", "rm -r /", "rm / -rf", "rm -rf -- /", "rm --rec /",
    "sudo rm --recursive --force /", "sudo -u root rm -rf /", "/bin/rm -rf //", "r\\m -rf /", "r''m -rf /",
    "rm -rf /./", "rm -rf /tmp/..", "rm -rf '/'*", "rm -rf /.*", "rm -rf $'/'", "rm -rf $'\\x2f'", "rm -rf ~",
    "rm -rf ~/*", "rm -rf $HOME", "rm -rf ${HOME}/../..", "cd / && rm -rf *", "cd /; rm -rf .",
    "sh -c 'rm -rf *'; cd /; sh -c 'rm -rf *'; cd /tmp", "echo hi; rm -rf /", "true\nrm -rf /", "rm \\\n -rf /",
    "echo $(rm -rf /)", "echo `rm -rf /`", 'echo "$(rm -rf /)"', "bash -c 'rm -rf /'",
    'sh -lc "echo; rm -rf /"', "env -i bash -c 'sudo rm -rf /'", "eval 'rm -rf' /",
    "if true; then rm -rf /; fi", "(rm -rf /)", "{ rm -rf /; }", "! rm -rf /", "A=1 rm -rf /",
    "xargs rm -rf / < x", "timeout 5 rm -rf /", "bash <<EOF\nrm -rf /\nEOF", "find / -delete", "rm -rf / # hi",
    "find . -exec rm -rf / ';'", "uv run sh -c 'rm -rf /'", "A=1 cd / && rm -rf *", "x 2>a\n2>b rm -rf /",
    "echo \\ #; rm -rf /", "echo a\r#; rm -rf /", "`true #`; rm -rf /", "rm -rf / \\\n# x",
    "cat <<A | bash\nrm -rf /\nA", "<<A sh\nrm -rf /\nA", "sudo bash <<A\nrm -rf /\nA",
    "bash <<A\nit's\nA\nrm -rf /", "bash <<A\nsh <<B\nrm -rf /\nB\nA", "sh <<A\ncat <<B\n'\nB\nrm -rf /\nA",
    'bash -c "$(cat <<A\nrm -rf /\nA\n)"', "mkfs.ext4 /dev/sda1", "mkfs /dev/x", "sudo mkfs -t ext4 x",
    "dd if=/dev/zero of=x", "dd of=/dev/sda bs=1", "cat x > /dev/sda", "chmod -R 777 /",
    "chmod 777 --recursive /*", "chown -R a:b /", ":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb",
    "f(){ f & f & };f", "function x { x|x& }; x", "$0 & $0", "rm -r -f /", "rm --recursive --force /",
    "rm -rf //", "rm -rf /.", 'rm -rf "$HOME"/', "rm -rf ~/", "rm -rf --no-preserve-root /", "X=/; rm -rf $X",
    'X=/ ; rm -rf "$X"', "a=rm; b=-rf; $a $b /", "rm -rf /{bin,etc}", "rm -rf {/,x}", "{rm,-rf,/}",
    "$(echo rm) -rf /", "$(echo rm -rf /)", "`echo rm` -rf /", "rm -rf $(echo /)", 'rm -rf "$(printf /)"',
    "rm -rf $(printf '%s' /)", "$(which rm) -rf /", "echo 'rm -rf /' | sh", "printf 'rm -rf /\\n' | bash",
    "bash <<< 'rm -rf /'", "echo / | xargs rm -rf", "find / | xargs rm -rf",
    "find / -type f -print0 | xargs -0 -n 1 rm -rf", "xargs -n 1 rm -rf / < x", "sudo -u root -E rm -rf /",
    "timeout -s KILL 5 rm -rf /", "timeout -k 5 10 rm -rf /", "nice -n 10 rm -rf /", "nice rm -rf /",
    "nohup rm -rf / &", "ionice -c 3 rm -rf /", "setsid -w rm -rf /", "busybox rm -rf /",
    "env -i PATH=/bin rm -rf /", "env -u X rm -rf /", "env -S 'rm -rf /'", "stdbuf -oL rm -rf /",
    "su -c 'rm -rf /'", "su root -c 'rm -rf /'", "script -c 'rm -rf /' x", "flock /tmp/l rm -rf /",
    "flock /tmp/l -c 'rm -rf /'", "chroot /mnt rm -rf /", "watch 'rm -rf /'", "trap 'rm -rf /' EXIT",
    'eval "rm -rf /"', "rm${IFS}-rf${IFS}/", "rm$IFS-rf$IFS/", "r$@m -rf /", "r${x}m -rf /", "rm -rf $UNSET/",
    'rm -rf "$UNSET"/*', "rm -rf /e*", "rm -rf /[a-z]*", "rm -rf /usr", "rm -rf /etc/*", "rm -rf /home/me",
    "rm -rf /root", "cd / && rm -rf ./*", "cd /; rm -rf ..", "cd ~ && rm -rf *", "cd && rm -rf *",
    "for d in / /x; do rm -rf $d; done", 'for d in /etc; do rm -rf "$d"; done',
    "while read f; do rm -rf /; done", "export X=/; rm -rf $X", "bash -O extglob -c 'rm -rf /'",
    "bash -lc 'rm -rf /'", 'sh -ec "rm -rf /"', "time rm -rf /", "command rm -rf /", "exec rm -rf /",
    "if rm -rf /; then :; fi", "mkfs.xfs /dev/nvme0n1", "mke2fs x", "wipefs -a /dev/sda", "shred /dev/sda",
    "shred -v -n 1 /dev/sda", "dd of=/dev/sda", "dd bs=1M if=/dev/zero of=/dev/sda", "> /dev/sda",
    "echo x >/dev/sda", "cat x | tee /dev/sda", "cp x /dev/nvme0n1", "truncate -s 0 /dev/sda",
    "blkdiscard /dev/sda", "cryptsetup luksFormat /dev/sda", "fdisk /dev/sda", "parted /dev/sda mklabel gpt",
    "parted -s /dev/sda mklabel gpt", "sgdisk -Z /dev/sda", "sfdisk /dev/sda < x", "chmod -R 000 /",
    "chmod -R 777 /*", "chmod -Rv 777 /etc", "chown -R me:me /usr", "chown --recursive me /", "chgrp -R x /",
    "mv / /x", "mv /* /tmp", "mv /etc /tmp/x", "mv ~ /dev/null", "rsync -a --delete empty/ /",
    "find / -exec rm {} +", "find ~ -type f -delete", "find . -exec rm -rf / ;", "shutdown -h now", "reboot",
    "halt", "sudo reboot", "poweroff -f", "init 0", "telinit 6", "systemctl poweroff", "systemctl reboot -i",
    "kill -9 -1", "kill -KILL -1", "kill -- -1", "killall5", "pkill -9 .", "echo b > /proc/sysrq-trigger",
    ":() { : | : & } ; :", "b(){ b|b& };b", "f(){ f & f; }; f", "f() ( f | f & ) ; f",
    "function f { f | f & }; f", "f(){ (f)|(f)& }; f", "f(){ f 2>/dev/null | f & }; f",
    "perl -e 'fork while fork'", 'python3 -c "import os;\nwhile True: os.fork()"',
    "python -c 'while 1: os.fork()'", "ruby -e 'loop { fork }'", "pvremove /dev/sda",
    "time -p rm -rf /", "find / -exec chmod 777 {} +", "find / -type d | xargs chmod 777",
    "find / -print0 | xargs -0 chown me", "find / -type f | xargs rm", "mv -t /tmp /etc", "mv -t/tmp /x /usr",
    "mv --target-directory=/tmp /etc", "mv --target-directory /tmp /home/me", 'rm -rf "${HOME}"/.[!.]*',
    "rm -rf ~/.[^.]*", 'for i in bin etc; do rm -rf "/$i"; done', "for i in x usr; do rm -rf /$i/*; done",
    "echo ':(){ :|:& };:' | sh", "echo ':(){ :|:& };:'; :(){ :|:& };:", "sh <(echo ':(){ :|:& };:')",
    ":(){ :|:& };: # ':(){ :|:& };:'\necho ':(){ :|:& };:'", 'echo "$(:(){ :|:& };:)"',
    "# don't\n:(){ :|:& };:\n# can't", "env '-Srm -rf /'", "env -vS 'rm -rf /'", "env -iS'rm -rf /'", "env -0iS rm -rf /",
    "env --split-string='rm -rf /'", "env --split-string 'rm -rf /'", "env --split 'rm -rf /'", "env --s='rm -rf /'",
    "env -S'rm -rf' / x", "env - rm -rf /", "sudo -Eu me rm -rf /", "su --command='rm -rf /'", "sh -c -e 'rm -rf /'",
    "$nothing rm -rf /", "$nothing $none rm -rf /", "find . -exec rm -rf / {} + -exec", "find -L / -delete", "find -O3 / -delete",
    'rm -rf "${nothing:-/}"', 'rm -rf "${PWD:+/usr}"', "grep x a; rm -rf /$x", "rm -rf /usr/$nothing", "rm -rf ~/$nothing", "Y=/; Y+=usr; rm -rf $Y", "sh 0<<< 'rm -rf /'",
    "tee /dev/sda x < y", "echo 'rm -rf /' | sh -s", "init -v 0", "systemctl --force poweroff", "/sbin/reboot", "rm -rf ~root",
    "rm -rf ~me", "cd -L / && rm -rf *",
    'cd "$unset/.." && rm -rf *', "cd $unset/ && rm -rf *", 'cd "${unset}" && rm -rf *', 'cd "$unset/etc"; rm -rf .', 'pushd "$unset/../" && rm -rf ./*',
    'cd "$TMPDIR/.." && rm -rf *', 'd=$(mktemp -d); cd "$d/.." && rm -rf *', 'cd "$(pwd)/../../usr" && rm -rf .',
    'cd "$(git rev-parse --show-toplevel)/a/../.." && rm -rf *', 'cd "$unset/.." && cd etc && rm -rf *',
]  # fmt: skip

HARMLESS = [
    "rm -rf ./build", "rm -rf build/*", "rm -rf *", "cd src && rm -rf *", "cd /tmp/a && rm -rf *",
    "rm -rf /tmp/x", "rm -rf ~/.cache/x", 'rm -rf "$TMPDIR/x"', "rm -f /x",
    "for i in 1 2; do rm -rf build/$i; done", 'grep "rm -rf /" file', "echo rm -rf /", "# rm -rf /\nls",
    "ls # rm -rf /", "case x in a) rm -rf b;; esac", "cat <<EOF\nrm -rf /\nEOF\nls",
    "python - <<'E'\nprint('rm -rf /')\nE", "git commit -m 'mkfs and dd if=x'", "grep -r dd src", "git add dd",
    "dd --version", "mkfsx", "chmod -R 755 .", "chmod +x /", "ls /", "find . -delete", "f() { echo; }; f &",
    "serve() { python x & }; serve", "build() { make | tee log; }; build", "ls > /dev/null",
    'rm -rf "$TMPDIR"/*', "rm -rf ../build", "rm -rf '~'", "rm -rf '$HOME'", 'rm -rf "$d"/x',
    'd=$(mktemp -d); rm -rf "$d"/*', 'for d in a b; do rm -rf "$d"/*; done', "chmod -R u+w .",
    "chmod -R 755 ./x", "chown -R a:b src", 'echo "rm -rf /"', "echo rm -rf / > notes.txt", "grep -rn mkfs .",
    'grep -rn "shutdown" src | xargs grep -n reboot', "find . -name mkfs", "find / -name python3",
    "find . -name '*.pyc' -delete", 'find . -type f -exec grep -n "rm -rf /" {} +', "timeout 5 grep -rn mkfs .",
    "sudo grep -rn reboot /etc", "env X=1 grep mkfs a", "xargs grep -n dd < files", "man dd", "which mkfs",
    "command -v reboot", 'git commit -m "rm -rf / is refused, mkfs too"', "git log --grep 'fork while fork'",
    'python -c "print(\'rm -rf /\')"', "python manage.py reboot", "make halt", "npm run shutdown", "./shutdown",
    "kill -1 1234", "kill -9 1234", "kill %1", "killall node", "pkill -f server.py", "systemctl status ssh",
    "systemctl restart nginx", "fdisk -l", "parted /dev/sda print", "hdparm -I /dev/sda",
    "truncate -s 0 log.txt", "cp /dev/null x", "echo x > /dev/stderr", "ls 2>/dev/null", "ls > /dev/tty",
    "tee /dev/stderr", "mv a b", "mv /tmp/x /tmp/y", "mv ~/x .", "rm -rf ~/.cache/pip",
    "rm -rf /tmp/x /var/tmp/y", "rm -rf /tmp/*", "rm -f /etc/x", "rm x", "rm -rf node_modules dist {a,b}/c",
    "rm -rf src/*/build", 'rm -rf "a b"', "rm -rf -- -x", "rsync -a --delete src/ dst/", "rsync -a / /backup",
    "fib() { if [ $1 -lt 2 ]; then echo 1; else echo $(( $(fib $(($1-1))) + $(fib $(($1-2))) )); fi; }; fib 5",
    "dd of=disk.img bs=1 count=0 seek=1M", "for i in $(seq 3); do echo $i; done",
    "while true; do sleep 1; done", "cat /etc/passwd", "du -sh /* 2>/dev/null", "find / -maxdepth 1",
    "tar czf x.tgz -C / etc", "docker run --rm x rm -rf /tmp/a", "sed -i 's/reboot/restart/' a",
    "awk '/halt/ {print}' x", "cd /etc && ls", "(cd / && ls)", "X=/; ls $X", 'printf \'%s\\n\' "rm -rf /"',
    "cat <<'E' > notes.md\nrm -rf /\nE", "mv -t /usr/local/bin x", "mv -t /usr x", "mv x /usr", "time -p make",
    "find . | xargs chmod 644", "find . -exec chmod 644 {} +", "find . -type f | xargs rm", "rm -rf build/[a-c]*",
    "for d in bin lib; do rm -rf $d; done", "for d in bin lib; do rm -rf ./build/$d; done",
    "git commit -m 'No more :(){ :|:& };: in the examples'", "grep -rn ':(){ :|:& };:' docs",
    "echo ':(){ :|:& };:' >> README.md", "rm -f /etc", "rm -f -- /etc", "rm r /", "rsync -a x/ /usr", "fd --delete-me /",
    "rm\ue009-rf /", "env -u S ls", "env --unset=S ls", "env -S'ls -l' x", "find / -exec",
    "for i; do rm -rf /$i; done", "for", "echo / | sudo rm -rf build", "echo / | xargs chmod 777", "rm -rf ~/.[",
    "cd /usr; cd -; rm -rf ../*", "nice 5 echo rm -rf /", 'rm -rf "${PWD:-/}"', 'rm -rf "${PWD:-+/../../../../../../../../../usr}"',
    "sudo -E echo rm -rf /", "read x; rm -rf /$x", "rm -rf /tmp/$nothing", "rm -rf build/$nothing", "cp /dev/sda x", "rsync -a --delete /usr/ backup/", "chmod -R 755 ~",
    'd=$(mktemp -d); cd "$d" && rm -rf *', 'cd "$(mktemp -d)" && rm -rf *', 'cd "$TMPDIR/x" && rm -rf *', 'cd "$(pwd)/a/.." && rm -rf *',
    'cd "$unset" && ls && rm -rf build/*', 'cd "$unset/src/build" && rm -rf *', 'cd "$unset"; cd -; rm -rf *', 'cd "$unset" && cd /tmp/x && rm -rf *',
    "cd '' && rm -rf *", "systemctl status reboot", "telinit 5 0", "echo 'rm -rf /' | sh build.sh",
    "git commit -m 'run $0 & $0'", "uv run echo rm -rf /", "setarch x86_64 echo rm -rf /", "poetry run echo rm -rf /",
]  # fmt: skip


@table("command", DESTRUCTIVE)
def test_commands_that_destroy_a_machine_run_at_no_level(command: str) -> None:
    assert blocked(command)
    assert "at any level" in (CommandRules().refusal(command, Level.DANGEROUS) or "")


@table("command", HARMLESS)
def test_commands_that_only_look_destructive_run(command: str) -> None:
    assert blocked(command) is None
    assert CommandRules().refusal(command, Level.DANGEROUS) is None


def test_as_many_programs_that_start_others_are_examined_as_anybody_writes() -> None:
    assert "rm would delete" in (blocked(f"{'nice ' * 99}rm -rf /") or "")
    assert "more shells" in (blocked(f"{'nice ' * 100}rm -rf build") or "")


def test_the_folder_of_the_command_decides_about_relative_paths() -> None:
    for command, folder in (
        ("rm -rf ..", "/etc/x"),
        ("rm -rf *", "/"),
        ("rm -rf .", "/root"),
        ("mv ../etc x", "/x"),
    ):
        assert blocked(command, folder), command
        assert blocked(command, "/x/a/b") is None, command


PREFIXES = (
    "sudo {}", "sudo -u root -E {}", "env A=1 {}", "env -i {}", "nice -n 5 {}", "timeout -k 3 -s INT 9 {}",
    "xargs -n 1 {}", "setsid {}", "ionice -c 3 {}", "stdbuf -oL {}", "sudo nice env {}", "chroot /m {}", "flock /l {}",
    "nohup {}",
)  # fmt: skip
"""What stands in front of one command."""
SCRIPTS = ("sh -c {q}", "bash -lc {q}", "busybox sh -c {q}", "su -c {q}", "env -S {q}")
"""What makes one command of any text."""
AROUND = (
    "({})", "{{ {}; }}", "if true; then {}; fi", "true && {}", "x=$({})", "for i in 1; do {}; done", "{} &", "! {}",
    "echo hi\n{}", "eval {q}", "echo {q} | sh", "bash <<< {q}", "bash <<'E'\n{}\nE", "trap {q} EXIT", "time {}",
    "x 2>&1 | {}",
)  # fmt: skip
CORES = (
    "rm -rf /", "rm -r /etc/*", "rm -fr ~", "mkfs.ext4 /dev/sda", "chmod -R 777 /", "chown -R a /usr", "mv /usr /x",
    "dd of=/dev/sda", "shred /dev/sda", "reboot", "kill -9 -1", "wipefs -a x", "systemctl poweroff",
)  # fmt: skip


@given(
    st.sampled_from(CORES), st.lists(st.sampled_from((*PREFIXES, *SCRIPTS, *AROUND)), max_size=4), st.data()
)
def test_no_wrapper_and_no_quote_hides_a_command(core: str, wrappers: list[str], data: st.DataObject) -> None:
    program, _, rest = core.partition(" ")
    place = data.draw(st.integers(0, len(program) - 1))
    spelt = (
        core,
        f"{program[:place]}\\{program[place:]} {rest}",
        f"'{program}' {rest}",
        f"$(echo {program}) {rest}",
    )
    text, is_one = data.draw(st.sampled_from(spelt)), True
    for wrapper in wrappers:
        if is_one or wrapper not in PREFIXES:
            text = wrapper.format(text, q=shlex.quote(text))
            is_one = wrapper not in AROUND
    assert blocked(text), text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_words_are_those_that_bash_gives_to_the_program(tmp_path: Path) -> None:
    """Bash is the oracle: `rm` is a function here that says its arguments."""
    found = [
        command
        for command in DESTRUCTIVE
        if command.partition(" ")[0] in {"X=/;", "a=rm;", "{rm,-rf,/}", "$(echo", "r$@m"}
    ]
    assert len(found) > 4
    for command in found:
        script = f"rm() {{ printf '%s ' rm \"$@\"; }}; cd {shlex.quote(str(tmp_path))}; {command}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == "rm -rf / ", (command, done)


def test_a_command_has_at_most_8192_characters_and_no_nul() -> None:
    assert blocked("x" * LONGEST_COMMAND) is None
    assert "8,193" in (blocked("x" * (LONGEST_COMMAND + 1)) or "")
    assert blocked("ls \0")


LONG = (
    "$(", "`", "a()", "a(){", "<<a\n", "'", "~a", "sh -c '", "env ", "sudo sh -c 'a' ", "a|", "eval ", "sudo eval ",
    "eval 'a b' ", "time eval sh -c ", "rm / ", "-", "f(){f|", '"$(', "\\", "{a,", "{a,b}", "$a", "${a}", "a=$a$a;", "~",
    "f f", "fork while ", "while ", "x=/;", "$(echo ", "|xargs ", "find ", "rm -r /*", "/", "<<<a ", "-exec a ",
)  # fmt: skip


@pytest.mark.slow(reason="growth: commands of many thousands of characters")
@table("piece", LONG)
def test_no_command_stalls_the_check(piece: str) -> None:
    grows(blocked, ("", piece, ""), small_chars=LONGEST_COMMAND // 4)


@table(
    ("command", "why"),
    [
        ("rm -rf /etc", "rm would delete all of /etc"),
        ('rm -rf "$UNSET"/*', "rm would delete all of (a variable that is not set)/*"),
        ("mv /usr x", "mv would move /usr away"),
        ("chmod -R 777 /", "chmod would change all of /"),
        (f"echo {'{a,b}' * 8}", "its braces make more words than can be examined"),
    ],
)
def test_the_reason_says_what_would_happen(command: str, why: str) -> None:
    assert blocked(command) == why


def test_shells_inside_of_shells_are_examined_or_refused() -> None:
    deep = "rm -rf /"
    for _ in range(12):
        deep = f"sh -c {shlex.quote(deep)}"[: LONGEST_COMMAND - 20]
        assert blocked(deep), deep
    for most, made in ((5, _nested), (20, _in_a_row)):
        assert blocked(made(most)) is None
        assert "it runs more shells" in (blocked(made(most + 1)) or "")


def _nested(count: int) -> str:
    text = "ls"
    for _ in range(count):
        text = f"sh -c {shlex.quote(text)}"
    return text


def _in_a_row(count: int) -> str:
    return "; ".join(f"sh -c 'echo {number}'" for number in range(count))


def test_a_folder_that_is_not_known_is_named_in_the_reason() -> None:
    assert blocked('cd "$unset/.." && rm -rf *') == (
        "rm would delete all of * in a folder that a variable or a command names"
    )
    assert blocked("cd / && rm -rf *") == "rm would delete all of *"
