#!/usr/bin/env bash
# Add Orrery's sources to a student's folder, so that `make` builds ./orrery there: without solutions, wrong solutions, and the command that
# makes them.  Usage: student_tree.sh FOLDER PROGRAM, from the top of the sources; PROGRAM is ./orrery, which cuts out the solutions.
set -euo pipefail
folder=$1 program=$2
tar cf - --exclude=emulated_devices/cli/teacher --exclude=emulated_devices/course/teacher --exclude=tutorials/teacher --exclude='mutants*.txt' --exclude=__pycache__ --exclude='*.egg-info' --exclude=tutorials/python/build \
    Makefile LICENSE docs/requirements.sh docs/install.sh docs/concepts golden/bugs ref emulated_devices tutorials | tar xof - -C "$folder"
"$program" course --skeletons "$folder/tutorials"
printf '/build*/\n/orrery\n/faults/\n/.progress.json\n' >"$folder/.gitignore"
