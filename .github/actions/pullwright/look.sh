#!/usr/bin/env bash
# Ends the job before anything is installed where the event is about a pull request that is closed, or that the program
# did not open. About everything else, and where this cannot be told, the program decides.
set -uo pipefail

if [[ ! $INPUT_THREAD =~ ^[1-9][0-9]*$ || $INPUT_ISSUE ]]; then exit 0; fi
if [[ $INPUT_GITHUB_URL != "$GITHUB_SERVER_URL" || ! $GITHUB_TOKEN =~ ^[A-Za-z0-9_.-]+$ ]]; then exit 0; fi

# Every process sees the arguments of the others, so the token goes through the standard input. An issue is not found.
found=$(
  printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
    curl --disable --config - --silent --fail --max-time 10 --header 'Accept: application/vnd.github+json' \
      "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/pulls/$INPUT_THREAD" |
    jq --raw-output '"\(.state) \(.head.ref)"'
) || exit 0

case $found in
  open\ pullwright/* | open\ pullwright-tasks/*) exit 0 ;;
  open\ *) reason="was not opened by the program" ;;
  closed\ *) reason="is closed" ;;
  *) exit 0 ;;
esac
echo "nothing to do: pull request #$INPUT_THREAD $reason" | tee -a "$GITHUB_STEP_SUMMARY"
printf '%s\n' outcome=no_task usd=0.0000 >> "$GITHUB_OUTPUT"
