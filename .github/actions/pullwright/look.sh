#!/usr/bin/env bash
# Ends the job before anything is installed where nothing can be to do: in a backlog without an open issue, a pull
# request of the program or a list of tasks, and for an event about a pull request that is closed or not the program's.
# About everything else, and where this cannot be told, the program decides.
set -uo pipefail

if [[ $INPUT_GITHUB_URL != "$GITHUB_SERVER_URL" || ! $GITHUB_TOKEN =~ ^[A-Za-z0-9_.-]+$ ]]; then exit 0; fi

# Every process sees the arguments of the others, so the token goes through the standard input.
ask() {
  printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
    curl --disable --config - --silent --fail --fail-early --globoff --max-time 10 \
      --header 'Accept: application/vnd.github+json' "${@/#/$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/}"
}

end() {
  echo "nothing to do: $1" | tee -a "$GITHUB_STEP_SUMMARY"
  printf '%s\n' outcome=no_task usd=0.0000 >> "$GITHUB_OUTPUT"
  exit 0
}

of_pull_request() {
  local found
  # An issue is not found.
  found=$(ask "pulls/$INPUT_THREAD" | jq --raw-output '"\(.state) \(.head.ref)"') || return
  case $found in
    open\ pullwright/* | open\ pullwright-tasks/*) ;;
    open\ *) end "pull request #$INPUT_THREAD was not opened by the program" ;;
    closed\ *) end "pull request #$INPUT_THREAD is closed" ;;
  esac
}

# Each condition stands for a reason why the program would find a task, or has a label to correct.
nothing_waits='
  length == 4 and all(type == "array") and .[0] == [] and .[1] == []
  and (.[2] | length < 100) and (.[3] | length < 1000)
  and (.[2] | any(.head.ref | test("^pullwright(-tasks)?/")) | not)
  and (.[3] | any(.name | IN("BACKLOG.md", "TODO.md", "ROADMAP.md")) | not)'

of_backlog() {
  local line label
  while IFS= read -r line; do # an argument can name another task, label or repository
    if [[ ! ${line%$'\r'} =~ ^$|^--(max|price|allow|test|setup)[a-z-]*= ]]; then return; fi
  done <<< "$INPUT_ARGS"
  label=${INPUT_LABEL:-pullwright}
  if [[ $label == *,* ]]; then return; fi # two labels, for GitHub
  ask "issues?state=open&per_page=1&labels=$(jq --null-input --raw-output --arg label "$label" '$label | @uri')" \
    'issues?state=all&per_page=1&labels=pullwright:working' 'pulls?state=open&per_page=100' 'contents/' |
    jq --slurp --exit-status "$nothing_waits" > /dev/null || return
  end "no open issue has the label of the backlog, no pull request of the program is open, and no file lists tasks"
}

if [[ ! $INPUT_THREAD$INPUT_ISSUE ]]; then
  of_backlog
elif [[ $INPUT_THREAD =~ ^[1-9][0-9]*$ && ! $INPUT_ISSUE ]]; then
  of_pull_request
fi
exit 0
