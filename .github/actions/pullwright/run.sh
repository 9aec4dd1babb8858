#!/usr/bin/env bash
# Runs the cycles. Only what the scripts print themselves may be a command to the runner.
set -euo pipefail

summary=$GITHUB_STEP_SUMMARY
# shellcheck source-path=SCRIPTDIR
. "$GITHUB_ACTION_PATH/begin.sh"

arguments=(run --repo "$GITHUB_REPOSITORY" --json --plain)
if [[ $INPUT_ISSUE ]]; then
  arguments+=("--issue=$INPUT_ISSUE")
elif [[ $INPUT_THREAD ]]; then
  arguments+=("--thread=$INPUT_THREAD")
else
  arguments+=(--continuous "--max-cycles=$INPUT_MAX_CYCLES")
fi
add_arguments
if [[ ${INPUT_AGENTS:-} ]]; then PATH=$PATH:$INPUT_AGENTS; fi
run_program

"$INPUT_PYTHON" -I "$GITHUB_ACTION_PATH/outputs.py" "$summary" < "$folder/results" >> "$output"
case $status in
  0 | 3 | 4 | 5 | 6) ;; # done, nothing to do, a question, a limit, failing tests: the summary says which
  *) exit "$status" ;;
esac
