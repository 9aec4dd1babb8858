"""The POSIX shell scripts that work on files on the other side. They check each path where they use it.

Every script begins with `_GO`, which walks from the root name by name, so that a link on the way
is refused. Exit codes tell what was found; `VERDICTS` says them in words.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_GO = r"""
root_gone() { exit 48; }
enter() {
  if [ -h "./$1" ]; then exit 41; fi
  if [ ! -e "./$1" ]; then
    if [ "$pw_make" = 1 ]; then mkdir "./$1" 2>/dev/null || [ -d "./$1" ] || exit 47; else exit 40; fi
  fi
  if [ ! -d "./$1" ]; then exit 43; fi
  if [ "$2" = 1 ] && { [ -e .git ] || [ -h .git ]; }; then exit 44; fi
  CDPATH= cd "./$1" 2>/dev/null || exit 45
}
go() {
  CDPATH= cd "$pw_root" 2>/dev/null || root_gone
  pw_below=0; pw_way=$pw_root; [ "$pw_root" != / ] || pw_way=
  for pw_name in "$@"; do enter "$pw_name" "$((pw_make * pw_below))"; pw_below=1; pw_way=$pw_way/$pw_name; done
  if [ "$pw_make$pw_below" = 11 ] && { [ -e .git ] || [ -h .git ]; }; then exit 44; fi
  [ "$(pwd -P)" = "${pw_way:-/}" ] || exit 41
}
must_be_file() {
  if [ -h "./$pw_last" ]; then exit 41; fi
  if [ -d "./$pw_last" ]; then exit 42; fi
  if [ ! -e "./$pw_last" ]; then exit 40; fi
  if [ ! -f "./$pw_last" ]; then exit 46; fi
}
mode() { m=$(stat -c %a "./$pw_last" 2>/dev/null || stat -f %Lp "./$pw_last" 2>/dev/null) || exit 47; }
"""

ROOT = r"""
CDPATH= cd "$pw_root" 2>/dev/null || exit 48
pwd -P && uname -s && uname -r && { command -v bash || command -v sh; } && { command -v rg || echo; }
"""
"""Prints: the root's real path, the system's name and release, the shell, and ripgrep or nothing."""

KIND = r"""
go "$@"
if [ -z "$pw_last" ]; then echo d; exit 0; fi
if [ -h "./$pw_last" ]; then exit 41; fi
if [ ! -e "./$pw_last" ]; then exit 40; fi
if [ -d "./$pw_last" ]; then echo d; elif [ -f "./$pw_last" ]; then echo f; else echo o; fi
"""

READ = r"""
go "$@"; must_be_file
if [ ! -r "./$pw_last" ]; then exit 45; fi
size=$(wc -c < "./$pw_last") || exit 45
echo $((size))
if [ "$size" -le "$limit" ]; then head -c "$((limit + 1))" < "./$pw_last"; fi
"""
"""Prints the size on a line, then the content unless it is over `limit`."""

MODE = r"""
go "$@"; must_be_file; mode
echo "$m"
"""

WRITE = r"""
pw_make=1; go "$@"
fresh=.pullwright-$$
if [ -h "./$pw_last" ]; then exit 41; fi
if [ -d "./$pw_last" ]; then exit 42; fi
if [ -e "./$pw_last" ]; then
  if [ ! -f "./$pw_last" ]; then exit 46; fi
  if [ -z "$chmod" ]; then mode; chmod=$m; fi
fi
trap 'rm -f "./$fresh"' EXIT
trap 'exit 47' HUP INT TERM
( set -C; cat > "./$fresh" ) 2>/dev/null || { [ -w . ] || exit 45; exit 47; }
[ "$(($(wc -c < "./$fresh")))" -eq "$size" ] || exit 47
if [ -n "$chmod" ]; then chmod "$(printf %s "$chmod" | sed 's/.*\(...\)$/\1/')" "./$fresh" || exit 47; fi
mv -f "./$fresh" "./$pw_last" 2>/dev/null || exit 45
"""
"""Takes the content on standard input; `size` is its length, `chmod` a mode or empty."""

REMOVE = r"""
go "$@"; must_be_file
if [ $# -gt 0 ] && { [ -e .git ] || [ -h .git ]; }; then exit 44; fi
rm -f "./$pw_last" 2>/dev/null || exit 45
"""

LIST = r"""
go "$@"
if [ -n "$pw_last" ]; then enter "$pw_last" 0; [ "$(pwd -P)" = "$pw_way/$pw_last" ] || exit 41; fi
if [ ! -r . ]; then exit 45; fi
set -f
set -- .
if [ -n "$depth" ]; then set -- . -maxdepth "$depth"; fi
prune='-name .[gG][iI][tT] -prune -o ! -name .'
if find . -prune -printf '' 2>/dev/null; then
  find "$@" $prune -printf '%y %s %T@ %P\0' 2>/dev/null
else
  find "$@" $prune -exec sh -c '
    for f do
      k=o; if [ -h "$f" ]; then k=l; elif [ -d "$f" ]; then k=d; elif [ -f "$f" ]; then k=f; fi
      s=$(stat -c "%s %Y" "$f" 2>/dev/null || stat -f "%z %m" "$f" 2>/dev/null) &&
      printf "%s %s %s\0" "$k" "$s" "${f#./}"
    done' sh {} +
fi
exit 0
"""
"""Prints `kind size modified name`, each with a NUL behind it, for all that is below; `depth` may be empty."""

FETCH = r"""
go "$@"
xargs -0 sh -c '
  for f do
    if [ -f "$f" ] && [ ! -h "$f" ] && [ -r "$f" ]; then
      n=$(($(head -c "$0" < "$f" | wc -c))); printf "%s %s\0" "$n" "$f"; head -c "$n" < "$f"
    fi
  done' "$limit"
exit 0
"""
"""For each path on standard input (NUL between them): `bytes path`, a NUL, and at most `limit` bytes."""

RIPGREP = r"""
go "$@"
CDPATH= cd "$pw_root" || root_gone
eval "$command"
"""

GREP = r"""
go "$@"
CDPATH= cd "$pw_root" || root_gone
text=; if printf x | grep -a -q x 2>/dev/null; then text=-a; fi
if [ -n "$text" ]; then export LC_ALL="${LC_ALL:-C.UTF-8}"; fi
printf 'x\n' | grep -E -q -e "$pattern" 2>&1; if [ $? -gt 1 ]; then exit 49; fi
export pattern most case text
xargs -0 -n 200 sh -c '
  grep -E $case $text -q -e "$pattern" -- "$@" 2>/dev/null || exit 0
  for f do
    grep -E $case $text -q -e "$pattern" -- "$f" 2>/dev/null || continue
    [ "$(($(tr -d "\000" < "$f" | wc -c)))" -eq "$(($(wc -c < "$f")))" ] || continue
    printf "%s\0" "$f"; grep -E $case $text -n -m "$most" -e "$pattern" -- "$f"; printf "\0"
  done' sh
exit 0
"""
"""For each path on standard input that has lines that match: the path, a NUL, `number:line` lines, a NUL."""

FOLDER = r"""
go "$@"
if [ -n "$pw_last" ]; then enter "$pw_last" 0; [ "$(pwd -P)" = "$pw_way/$pw_last" ] || exit 41; fi
"""
"""Stays in the folder: a command follows."""

VERDICTS = {
    40: (FileMissingError, "{label} does not exist"),
    41: (PathRefusedError, "{label} is refused: it is a symbolic link, and links are not followed"),
    42: (FileUnreadableError, "{label} is a folder, not a regular file"),
    43: (FileUnreadableError, "{label} is not a folder"),
    44: (
        PathRefusedError,
        "{label} is refused: it is inside another repository (a submodule or a nested clone)",
    ),
    45: (FileUnreadableError, "{label} cannot be {verb}: no permission"),
    46: (FileUnreadableError, "{label} is a named pipe, a socket or a device, not a regular file"),
    47: (ToolError, "{label} was not {verb}: no permission, or no space is left"),
    48: (ToolError, "the working folder is gone: start again with one that exists"),
}


def script_on(root: str, names: Sequence[str], script: str, **variables: str) -> str:
    """A script about one path, with its variables set.

    Args:
        root: the working folder.
        names: from the root to the path.
        script: one of this module.
        variables: what else the script uses.
    """
    *above, last = names or ("",)
    given = {"pw_root": root, "pw_last": last, "pw_make": "0", **variables}
    lines = [f"{name}={shlex.quote(value)}" for name, value in given.items()]
    return "\n".join([*lines, f"set -- {shlex.join(above)}", _GO, script])


def refusal(code: int, label: str, verb: str) -> ToolError:
    """What an exit code of a script means, as an error."""
    if code in VERDICTS:
        kind, words = VERDICTS[code]
        return kind(words.format(label=label, verb=verb))
    return ToolError(f"{label} could not be {verb}: the script there ended with {code}")
