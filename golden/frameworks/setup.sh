#!/bin/bash
# The virtual environment of `make frameworks`: golden/frameworks/setup.sh FOLDER.  Made again when this folder's requirements change.
set -eu
here=$(cd "$(dirname "$0")" && pwd) venv=$1
wanted=$(cat "$here/requirements.txt" "$here/requirements-alone.txt" "$here/pyproject.toml" "$0" | sha256sum)
[ "$(cat "$venv/made" 2>/dev/null)" = "$wanted" ] && exit 0
echo "  VENV $venv (several gigabytes, some minutes)"
rm -f "$venv/made"
${PYTHON:-python3} -m venv "$venv"
"$venv/bin/pip" install -q -r "$here/requirements.txt"
# Their dependencies are for GPUs, or older than those above; what the runs need of them is above.  Kernels are compiled when used.
DS_BUILD_OPS=0 "$venv/bin/pip" install -q --no-deps --no-build-isolation -r "$here/requirements-alone.txt"
"$venv/bin/pip" install -q --no-deps --no-build-isolation -e "$here"
echo "$wanted" >"$venv/made"
