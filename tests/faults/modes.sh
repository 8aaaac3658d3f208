#!/usr/bin/env bash
# Which faults does `orrery train --check ref` find in each arithmetic?  Usage: modes.sh BUILD_DIR NAME...
#
# `make faults-modes FAULTS='dp-* loss-*'` calls this with the same variables as run.sh, which builds each fault and runs the checks here in place
# of the fault's own: each layout below in each arithmetic.  It prints a line for each fault and the counts (docs/checking/faults.md).
# Exit status: 0, or 3 if a fault could not be built or a layout fails on the tree as it is.
set -u
build=$1; shift
tab=$'\t' from=${FAULT_DIR:-tests/faults} place=$build/faults-modes
rm -rf "$place"; mkdir -p "$place"

layouts=(
    '--model tiny --seq 20 --batch 4 --steps 2 --dp 2 --tp 2 --zero 2'
    '--model llama-tiny --seq 20 --batch 5 --steps 2 --dtype bf16 --dp 3 --clip 0.1 --allreduce ring'
    '--model qwen3-tiny --seq 20 --batch 6 --steps 2 --pp 2 --micro 3 --dp 2 --optimizer sgd --clip 0'
    '--model mixtral-tiny --balance-over batch --seq 20 --batch 4 --steps 2 --dp 2 --ep 2'
)

arithmetics=(ordinary exact exact2)

names=()
for file in $(for glob in "$@"; do (cd "$from" && ls $glob.fault 2>/dev/null); done | sort -u); do
    names+=("${file%.fault}")
    grep -vE '^(caught by|says|quick): ' "$from/$file" >"$place/$file"
    echo >>"$place/$file"
    for layout in "${layouts[@]}"; do
        for rule in "${arithmetics[@]}"; do
            printf 'caught by: orrery train --arithmetic %s %s --check ref\nsays: .\n' "$rule" "$layout" >>"$place/$file"
        done
    done
done
[ ${#names[@]} -gt 0 ] || { echo "there is no fault called ${*:-}" >&2; exit 2; }
FAULT_DIR=$place bash tests/faults/run.sh "$build" "${names[@]}" >"$place/log" 2>&1
if grep -q 'fails on the tree as it is' "$place/log"; then cat "$place/log"; exit 3; fi

# The checks of a fault stand in the order of its file: each layout has a line for each arithmetic.
for name in "${names[@]}"; do
    awk -F '\t' -v name="$name" -v rules="${arithmetics[*]}" '
        BEGIN { rules_n = split(rules, rule, " ") }
        $1 == "broken" { broken = $4 }
        $1 != "survived" { found[(NR - 1) % rules_n + 1] = 1 }
        END {
            for (i = 1; i <= rules_n; i++) if (i in found) who = who (who == "" ? "" : ", ") rule[i]
            print name "\t" (broken != "" ? "broken: " broken : who != "" ? who : "none")
        }
    ' "$build/faults/$name/result"
done >"$place/found"
expand -t 44 "$place/found"
echo
cut -f 2 "$place/found" | sort | uniq -c | sort -rn
if grep -q "${tab}broken" "$place/found"; then exit 3; fi
