#!/usr/bin/env bash
# Complete a teacher's tree: the autograder, as a folder and as a zip.  Usage: kit.sh COURSE VARIANT, from the top of the sources; COURSE has
# teacher/, and student/ with the sources from which graders are built.
set -euo pipefail
tree=$1/teacher variant=$2 kit=$1/teacher/autograder
mkdir "$kit"
cp tutorials/teacher/setup.sh tutorials/teacher/run_autograder "$kit"
chmod 755 "$kit/setup.sh" "$kit/run_autograder"
cp "$tree/secret" "$kit/secret"
echo "$variant" >"$kit/variant"
ls -d tutorials/[0-9][0-9]_* | sed 's/.*\///; s/_.*//' | paste -sd, >"$kit/lessons"
tar czf "$kit/orrery.tar.gz" -C "$1/student" Makefile LICENSE docs golden ref emulated_devices tutorials

# The files must be at the top of the archive.
if command -v zip >/dev/null; then (cd "$kit" && zip -q ../autograder.zip ./*)
elif command -v python3 >/dev/null; then (cd "$kit" && python3 -m zipfile -c ../autograder.zip ./*)
else echo 'kit.sh: neither zip nor python3 is here: make autograder.zip of the files in autograder/ by yourself' >&2
fi
