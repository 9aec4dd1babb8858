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
arguments+=("--statement=$PULLWRIGHT_HOME/statement.json" "--ctrf=$PULLWRIGHT_HOME/ctrf.json")
add_arguments
run_program

case $status in
  0) outcome=holds ;;
  1) outcome=unknown ;;
  6) outcome=refuted ;;
  *) outcome=failed ;;
esac
echo "outcome=$outcome" >> "$output"
if [[ -f $PULLWRIGHT_HOME/statement.json ]]; then
  "$INPUT_PYTHON" -I "$GITHUB_ACTION_PATH/signable.py" < "$PULLWRIGHT_HOME/statement.json" >> "$output"
fi
# What others wrote is dead text in it.
if [[ -f $folder/report.md ]]; then cat "$folder/report.md" >> "$summary"; fi
# Where evidence is required, what could not be checked is refused too.
required=${PULLWRIGHT_REQUIRE_EVIDENCE:-none}
if [[ $outcome == unknown && $INPUT_FAIL_ON_UNKNOWN != true && $required == none ]]; then exit 0; fi
exit "$status"
