#!/usr/bin/env bash
# Install hamtarget from a folder of wheels where there is no compiler, and test what was installed, not the source:
#
#     packages/test_wheel.sh PYTHON FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "$2" && pwd)
environment=$(mktemp -d)
trap '/bin/rm -rf "$environment"' EXIT
"$1" -m venv "$environment"
cd "$environment"

# The environment's own programs alone: no compiler, no CMake, no checkout.
export PATH="$environment/bin"
unset PYTHONPATH
python -m pip --quiet --disable-pip-version-check install --only-binary :all: -c "$root/constraints.txt" \
    --find-links "$dist" "hamtarget[cli,onnx,text,vision]" hypothesis pytest pytest-xdist PyYAML scipy
/bin/bash "$root/packages/test_installed.sh"
