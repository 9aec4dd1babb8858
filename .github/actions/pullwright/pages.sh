#!/usr/bin/env bash
# Writes each run as a page beside its journal. A page that cannot be written fails no job.
set -uo pipefail

root=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd -P)
unset GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH GITHUB_STATE GITHUB_STEP_SUMMARY
cd "$PULLWRIGHT_HOME" || exit 0

resume=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$resume"
for run in runs/*/; do
  if [[ -d $run ]]; then
    "$INPUT_PYTHON" "$root/run_local_agent.py" show "$(basename "$run")" --html "${run}run.html" || echo "no page of $run"
  fi
done
printf '\n::%s::\n' "$resume"
