#!/usr/bin/env bash
# The patterns of patterns.c by our clock, replayed, and under SimGrid's SMPI.  Usage: run.sh FOLDER, which has the programs
# patterns and smpi; $ORRERY writes the platforms.
#
# Exit status 1 if a replayed time, without what SimGrid does not know of, differs from SimGrid's by more than $bound and
# a few of its nanoseconds, to which it rounds every event.
set -euo pipefail
folder=$1
bound=0.0002 slack=20000                # of the time; and picoseconds

simulate() {                            # simulate NUMBER CLUSTER DEVICES: prints picoseconds
    "$ORRERY" show cluster "$2" --devices "$3" --simgrid "$folder/$1.xml" >/dev/null
    seq 0 $(($3 - 1)) >"$folder/hosts"
    timeout 300 smpirun -no-privatize -platform "$folder/$1.xml" -hostfile "$folder/hosts" -np "$3" "$folder/smpi" "$folder/$1.events" \
        2>"$folder/$1.err" </dev/null >"$folder/$1.out" || true
    if grep -qE '^[0-9]+$' "$folder/$1.out"; then grep -E '^[0-9]+$' "$folder/$1.out"; else
        echo "SimGrid: pattern $1 did not end:" >&2; tail -n 5 "$folder/$1.err" >&2; echo 0
    fi
}

# Where links are shared, a gap also changes who shares them when; rows of gap.json compare gaps alone.
for shipped in frontier tpu-v4; do
    sed -E 's/ "gap_ns": [0-9]+,//' "emulated_devices/device/clusters/$shipped.json" >"$folder/$shipped.json"
done

"$folder/patterns" "$folder" >"$folder/rows"
number=0
while read -r name cluster devices clock replayed unknown; do
    echo "$name $(basename "$cluster" .json) $devices $clock $replayed $unknown $(simulate $number "$cluster" "$devices")"
    number=$((number + 1))
done <"$folder/rows" | awk -v bound="$bound" -v slack="$slack" '
    BEGIN { printf "%-14s %-10s %3s %12s %12s %12s  %s\n", "pattern", "cluster", "P", "clock us", "replay us", "SimGrid us", "differs" }
    {
        left = $5 - $6 - $7; if (left < 0) left = -left
        good = $7 > 0 && left <= bound * $7 + slack
        differs = 0; if ($7 > 0) differs = ($5 - $7) / $7
        why = ""; if ($6 > 0) why = ", of which " $6 * 1e-6 " us are gaps"
        if (!good) { why = why "  WRONG"; wrong++ } else if (left / $7 > worst) worst = left / $7
        printf "%-14s %-10s %3d %12.3f %12.3f %12.3f  %+.4f %%%s\n", $1, $2, $3, $4 * 1e-6, $5 * 1e-6, $7 * 1e-6, 100 * differs, why
    }
    END {
        printf "%d of %d patterns as SimGrid has them; the largest unexplained difference is %.4f %%\n", NR - wrong, NR, 100 * worst
        exit (wrong > 0 || NR == 0)
    }'
