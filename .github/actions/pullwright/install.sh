#!/usr/bin/env bash
# Installs what the program needs, each file checked against its hash; the program itself runs from the
# action's own checkout, which the commit in `uses:` names, or from the archive that `pullwright init` put
# beside this file. Nothing is built.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd -P)
folder=$(mktemp -d "$RUNNER_TEMP/pullwright-XXXXXX")
cd "$folder"  # not the workspace: Python would find modules there

"$PYTHON" -I -m venv --without-pip venv
if [[ -f $GITHUB_ACTION_PATH/program.zip ]]; then
  root=$folder/program
  venv/bin/python -I -m zipfile -e "$GITHUB_ACTION_PATH/program.zip" "$root"
fi

locks=(-r "$root/requirements.lock")
if [[ ${INPUT_AGENT:-} ]]; then locks+=(-r "$here/agents.lock"); fi
with_pip() {
  local folder=$1
  shift
  "$PYTHON" -I -m pip --python "$folder/bin/python" install --quiet --disable-pip-version-check --no-cache-dir \
    --no-compile --no-deps --require-hashes --only-binary :all: "$@"
}
# uv takes a tenth of pip's time. An index that only pip is told of is pip's.
with_uv() {
  "$PYTHON" -I -m venv --without-pip installer
  with_pip installer -r "$here/installer.lock"
  installer/bin/uv pip install --python venv/bin/python --quiet --no-cache --no-config \
    --no-deps --require-hashes --only-binary :all: "${locks[@]}"
}
if [[ ${PIP_INDEX_URL:-} ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}; fi
with_uv || with_pip venv "${locks[@]}"

if [[ ${INPUT_AGENT:-} ]]; then
  package=$(venv/bin/python -I -c 'import sys; sys.path.insert(0, sys.argv[1])
from orchestrator.plugins.agents.known import agent_named
kind = agent_named(sys.argv[2]); print(kind.package and kind.install)' "$root" "$INPUT_AGENT")
  if [[ $package ]]; then  # not an agent of the caller's own
    npm install --silent --ignore-scripts --no-audit --no-fund --prefix "$folder/agents" "$package"
    echo "agents=$folder/agents/node_modules/.bin" >> "$GITHUB_OUTPUT"
  fi
fi
{
  echo "python=$folder/venv/bin/python"
  echo "program=$root/run_local_agent.py"
} >> "$GITHUB_OUTPUT"
