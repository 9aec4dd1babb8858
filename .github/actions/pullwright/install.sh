#!/usr/bin/env bash
# Installs what the program needs, each file checked against its hash; the program itself runs from the
# action's own checkout, which the commit in `uses:` names, or from the archive that `pullwright init` put
# beside this file. Nothing is built.
set -euo pipefail

root=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd -P)
folder=$(mktemp -d "$RUNNER_TEMP/pullwright-XXXXXX")
cd "$folder"  # not the workspace: Python would find modules there

"$PYTHON" -I -m venv venv
if [[ -f $GITHUB_ACTION_PATH/program.zip ]]; then
  root=$folder/program
  venv/bin/python -I -m zipfile -e "$GITHUB_ACTION_PATH/program.zip" "$root"
fi
locks=(--requirement "$root/requirements.lock")
if [[ ${INPUT_AGENT:-} ]]; then locks+=(--requirement "$GITHUB_ACTION_PATH/agents.lock"); fi
venv/bin/python -I -m pip install --quiet --disable-pip-version-check --no-cache-dir \
  --require-hashes --only-binary :all: "${locks[@]}"
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
