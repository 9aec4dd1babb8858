#!/usr/bin/env bash
# Writes a summary of each run, and tells the webhook where something was done. Where there was nothing to do, run.sh has
# said so. A summary that fails fails no job.
set -uo pipefail

summary=$GITHUB_STEP_SUMMARY
unset GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH GITHUB_STATE GITHUB_STEP_SUMMARY
cd "$PULLWRIGHT_HOME" || exit 0

webhook=${PULLWRIGHT_WEBHOOK:-}
unset PULLWRIGHT_WEBHOOK
digest() { "$INPUT_PYTHON" "$INPUT_PROGRAM" digest "$@"; }

resume=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$resume"
for run in runs/*/; do
  if [[ -d $run ]]; then
    digest --run "$(basename "$run")" >> "$summary" || echo "no summary of $run"
    if [[ $INPUT_ARTIFACT && -f ${run}run.html ]]; then
      echo "- every step as a page: $(basename "$run")/run.html in [what this job kept]($INPUT_ARTIFACT)" >> "$summary"
    fi
    echo >> "$summary"
  fi
done
# A backlog without a task is no news.
if [[ $webhook && $INPUT_OUTCOME != no_task ]]; then
  PULLWRIGHT_WEBHOOK=$webhook digest --since 7d || echo "the webhook was not told"
fi
printf '\n::%s::\n' "$resume"
