#!/usr/bin/env bash
# Verifies one pull request. Only what the scripts print themselves may be a command to the runner.
set -euo pipefail

summary=$GITHUB_STEP_SUMMARY
# shellcheck source-path=SCRIPTDIR/../pullwright
. "$GITHUB_ACTION_PATH/../pullwright/begin.sh"

if [[ ! $INPUT_PULL_REQUEST =~ ^[1-9][0-9]*$ ]]; then
  echo "the input pull-request is no number: run on pull_request, or set it"
  echo "outcome=failed" >> "$output"
  exit 2
fi
arguments=(verify-pr "$INPUT_PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --json --check)
arguments+=("--max-minutes=$INPUT_MAX_MINUTES" "--html=$PULLWRIGHT_HOME/report.html" "--markdown=$folder/report.md")
add_arguments
run_program

case $status in
  0) outcome=holds ;;
  1) outcome=unknown ;;
  6) outcome=refuted ;;
  *) outcome=failed ;;
esac
echo "outcome=$outcome" >> "$output"
# What others wrote is dead text in it.
if [[ -f $folder/report.md ]]; then cat "$folder/report.md" >> "$summary"; fi
if [[ $outcome == unknown && $INPUT_FAIL_ON_UNKNOWN != true ]]; then exit 0; fi
exit "$status"
