#!/usr/bin/env bash
# Write digests of some hundreds of plans, before and after a change that is not meant to change a result; diff shows what changed.
#
#     bash tests/digests.sh before.txt        # with the program as it was
#     bash tests/digests.sh after.txt         # with the new one
#     diff before.txt after.txt
#
# $ORRERY is the program (./orrery), $PART the part of all cases on 1 to 4 devices (1/16: about 300 plans, 4 minutes of 2 cores).
set -eu
[ $# = 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1         # the number of threads decides no bit, but the time
exec "${ORRERY:-./orrery}" verify --devices 4 --part "${PART:-1/16}" --quiet --digests "$1"
