# Sourced by the scripts of the actions: a folder of its own for the program, and a runner that obeys nothing which
# the program prints. Needs GITHUB_OUTPUT, RUNNER_TEMP, and the Python and the program
# that install.sh named.
# What is set here and not used is used by who sources it.
# shellcheck shell=bash disable=SC2034

folder=$(mktemp -d "$RUNNER_TEMP/pullwright-XXXXXX")
export PULLWRIGHT_HOME=$folder/home
export PULLWRIGHT_CONFIG=$folder/config.toml
mkdir "$PULLWRIGHT_HOME" "$folder/empty"
touch "$PULLWRIGHT_CONFIG"

output=$GITHUB_OUTPUT
echo "home=$PULLWRIGHT_HOME" >> "$output"
echo "artifact=pullwright-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT-${folder##*-}" >> "$output"
# Who can write to these files commands the steps that follow.
unset GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH GITHUB_STATE GITHUB_STEP_SUMMARY
unset ACTIONS_RUNTIME_TOKEN ACTIONS_RUNTIME_URL ACTIONS_RESULTS_URL ACTIONS_CACHE_URL
unset ACTIONS_ID_TOKEN_REQUEST_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL

# The arguments of the program, from INPUT_ARGS, one a line.
add_arguments() {
  local line
  while IFS= read -r line; do
    line=${line%$'\r'}
    if [[ $line ]]; then arguments+=("$line"); fi
  done <<< "$INPUT_ARGS"
}

# Runs the program with `arguments`. Its exit status is in `status`, its standard output in $folder/results.
run_program() {
  # https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#stopping-and-starting-workflow-commands
  resume=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  echo "::remove-matcher owner=python::"
  echo "::stop-commands::$resume"
  trap 'printf "\n::%s::\n" "$resume"' EXIT

  cd "$folder/empty" || return  # a configuration in the workspace is not the user's
  # shellcheck disable=SC2069  # standard error goes to the log, standard output to the file
  "$INPUT_PYTHON" "$INPUT_PROGRAM" "${arguments[@]}" 2>&1 > "$folder/results" &
  program=$!
  # A runner that cancels kills after some seconds: the program keeps its work if it is told at once.
  # A signal ends `wait`, maybe just when the program ends: only a wait without one has the program's status.
  signalled=yes
  trap 'signalled=yes; kill -TERM "$program" 2> /dev/null || true' INT TERM
  while [[ $signalled ]]; do
    signalled='' status=0
    wait "$program" || status=$?
  done
  cat "$folder/results"
}
