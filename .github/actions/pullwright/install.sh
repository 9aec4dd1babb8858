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
venv/bin/python -I -m pip install --quiet --disable-pip-version-check --no-cache-dir \
  --require-hashes --only-binary :all: --requirement "$root/requirements.lock"
{
  echo "python=$folder/venv/bin/python"
  echo "program=$root/run_local_agent.py"
} >> "$GITHUB_OUTPUT"
