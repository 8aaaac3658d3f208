#!/usr/bin/env bash
# Complete a teacher's tree: the autograder, as a folder and as a zip.  Usage: kit.sh TEACHER_TREE VARIANT, from the top of the sources.
set -euo pipefail
tree=$1 variant=$2 kit=$1/autograder
mkdir "$kit"
cp tutorials/teacher/setup.sh tutorials/teacher/run_autograder "$kit"
chmod 755 "$kit/setup.sh" "$kit/run_autograder"
cp "$tree/secret" "$kit/secret"
echo "$variant" >"$kit/variant"
ls -d tutorials/[0-9][0-9]_* | sed 's/.*\///; s/_.*//' | paste -sd, >"$kit/lessons"

# The sources, without what gives a solution away.
solutions=$(find tutorials/[0-9][0-9]_* \( -name '*.c' -o -name '*.cu' -o -name '*.txt' \) ! -name check.c ! -name 'calls.*' | sed 's/^/--exclude=/')
# shellcheck disable=SC2086  # names of lessons have no blanks
tar czf "$kit/orrery.tar.gz" $solutions --exclude=tutorials/teacher Makefile LICENSE docs/requirements.sh ref emulated_devices tutorials

# The files must be at the top of the archive.
if command -v zip >/dev/null; then (cd "$kit" && zip -q ../autograder.zip ./*)
elif command -v python3 >/dev/null; then (cd "$kit" && python3 -m zipfile -c ../autograder.zip ./*)
else echo 'kit.sh: neither zip nor python3 is here: make autograder.zip of the files in autograder/ by yourself' >&2
fi
