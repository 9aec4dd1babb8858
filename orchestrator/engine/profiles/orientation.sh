# Prints what a session is told of its folder, a fact a line. Runs in any POSIX shell.
# Given by what stands before it: names (one a line), from_root (0 or 1), left (bytes), commits (a number).
# Nothing that the repository brings is run: no hook, monitor, filter, pager, signature check or transport.
LC_ALL=C GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_ADVICE=0
export LC_ALL GIT_OPTIONAL_LOCKS GIT_TERMINAL_PROMPT GIT_NO_LAZY_FETCH GIT_ALLOW_PROTOCOL GIT_ADVICE
set -f
newline='
'
IFS=$newline

safe_git() {
    git --no-pager --no-optional-locks -C "$here/" -c core.fsmonitor=false -c core.hooksPath=/dev/null \
        -c core.untrackedCache=false -c safe.bareRepository=explicit -c log.showSignature=false -c i18n.logOutputEncoding=UTF-8 "$@" 2>/dev/null
}

in_hex() {
    od -An -v -tx1 | tr -s ' \n' '  '
}

# Of a folder ($1, so many steps above the working directory: $2) each document that is a plain text file.
# A link counts only where it leads to a document beside it that is not read by itself.
look_at() {
    for name in $names; do
        [ "$left" -ge 0 ] || return 0
        file=$1/$name
        case $name in */*) [ ! -L "$1/${name%%/*}" ] || continue ;; esac
        if [ -L "$file" ]; then
            target=$(readlink "$file")
            target=${target#./}
            case $target in AGENTS.md | CLAUDE.md | GEMINI.md) ;; *) continue ;; esac
            case $newline$names$newline in *"$newline$target$newline"*) continue ;; esac
            file=${file%/*}/$target
            [ ! -L "$file" ] || continue
        fi
        [ -f "$file" ] && [ -r "$file" ] || continue
        hex=$(head -c $((left + 1)) <"$file" | in_hex)
        case $hex in *' 00'*) continue ;; esac
        left=$((left - ${#hex} / 3))
        printf 'document %s|%s|%s\n' "$2" "$hex" "$name"
    done
}

# The folders from the top down to this one.
climb() {
    if [ "$1" != "$top" ]; then
        climb "${1%/*}" $(($2 + 1))
    fi
    look_at "$1" "$2"
}

# The x keeps line ends that belong to a folder's name.
here=$(pwd -P && echo x)
here=${here%?x}
here=${here%/}
# Programs are not looked for in the folder, even where PATH has an entry that is relative.
cd / || exit 1
printf 'here %s\n' "$(printf '%s' "$here" | in_hex)"

top=$here
repository=0
if command -v git >/dev/null; then
    if found=$(safe_git rev-parse --show-toplevel && echo x); then
        repository=1
        found=${found%?x}
        found=${found%/}
        case $here/ in "$found"/*) top=$found ;; esac
    fi
else
    folder=$here
    while [ -n "$folder" ] && [ ! -e "$folder/.git" ]; do folder=${folder%/*}; done
    if [ -n "$folder" ]; then
        repository=1
        top=$folder
    fi
fi
[ "$from_root" = 0 ] || top=
printf 'repository %s\n' "$repository"
climb "$here" 0

if [ "$repository" = 1 ]; then
    if branch=$(safe_git symbolic-ref --quiet --short HEAD); then
        printf 'branch %s\n' "$branch"
    elif commit=$(safe_git rev-parse --quiet --short HEAD); then
        printf 'detached %s\n' "$commit"
    fi
    safe_git log "-$commits" --format='commit %h %s' | head -c 100000
    echo
    # Filters would be run to compare files. Their drivers come from configuration only: each is made empty.
    filters=$(safe_git config --name-only --get-regexp '^filter[.]')
    set --
    for key in $filters; do
        case $key in *=*) exit 0 ;; esac
        set -- "$@" -c "$key="
    done
    if status=$(safe_git "$@" status --porcelain --untracked-files=normal --ignore-submodules=dirty); then
        printf '%s\n' "$status" | cut -c1-2 | sort | uniq -c | sed 's/^/status /'
        echo 'status done'
    fi
fi
