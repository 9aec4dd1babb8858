#!/usr/bin/env bash
# Writes each run as a page beside its journal, and names their folder. A page that cannot be written fails no job.
set -uo pipefail

output=$GITHUB_OUTPUT
unset GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH GITHUB_STATE GITHUB_STEP_SUMMARY
cd "$PULLWRIGHT_HOME" || exit 0

resume=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$resume"
for run in runs/*/; do
  if [[ -d $run ]]; then
    runs=$PULLWRIGHT_HOME/runs
    "$INPUT_PYTHON" "$INPUT_PROGRAM" show "$(basename "$run")" --html "${run}run.html" || echo "no page of $run"
  fi
done
printf '\n::%s::\n' "$resume"
# A look without a task leaves nothing to keep.
if [[ ${runs:-} ]]; then echo "runs=$runs" >> "$output"; fi
