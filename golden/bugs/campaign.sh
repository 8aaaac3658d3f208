# campaign.sh -- how many of the seeded bugs `orrery check` finds, names and diagnoses; and that it is silent on right runs.
#
#     golden/bugs/campaign.sh bugs [REGEX]        every bug whose line in `buggy list` matches, in each format that can show it
#     golden/bugs/campaign.sh two [REGEX]         of each such bug: whether --first, and --against a right run, name what the whole check names
#     golden/bugs/campaign.sh clean COUNT [MODEL] so many right runs, each with another order of addition, storage, mesh, ...
#     golden/bugs/campaign.sh copies COUNT        so many with more ranks along tp than heads of keys and values
#
# A line for each run, then a table.  Status 0: all as in golden/bugs/list.h; 1: not.  ORRERY: the program; CC: any C compiler;
# PLACE: a folder for what is built, which is kept for the next call.
here=$(cd "$(dirname "$0")" && pwd)
orrery=$(realpath "${ORRERY:-./orrery}")
place=${PLACE:-}
[ -n "$place" ] || { place=$(mktemp -d); trap 'rm -rf "$place"' EXIT; }
cd "$place" || exit 1
formats=(fp32 bf16 fp16)

# A model, its batches, and the golden file of three steps on them.  dropout and warmup are gpt2's model: with dropout, and with another
# learning rate in each step.
golden() {
    [ ! -e "$1.safetensors" ] || return 0
    printf '0.004\n0.01\n0.007\n' >rates
    ./buggy model "$1" "model-$1" &&
        "$orrery" golden make --out "$1.safetensors" --model "model-$1" --batch "model-$1/batch.safetensors" \
            $([ "$1" != dropout ] || echo --dropout 0.25) $([ "$1" = warmup ] && echo --lr-file rates || echo --lr 0.01) --optimizer adamw,sgd --clip 0.3 --eps 1e-4 >making 2>&1 || { cat making; exit 1; }
}

# The first operation that is wrong: what the program's one line begins with.
operation() { sed -nE 's/^orrery: ([^ ]+) .*/\1/p' err; }

# What is said of it: in the block of the operation by itself, or of the first tensor that differs.
said() {
    awk -v name="$1" '$1 == "wrong" && $2 == name "," { getline; print; exit }' out | sed -E 's/^ +//; s/;[^;]*$//' >one
    [ -s one ] && cat one || sed -nE 's/^  (it is|by itself|why) +//p' out
}

any_numbers() { sed -E 's/[0-9]+(, [0-9]+)*/N/g; s/sequences/sequence/g'; }

is_one_of() {                           # is_one_of NAME "PATTERNS": a pattern that ends with / is the beginning of a name
    local p
    for p in $2; do
        p=${p/#OPT/adamw}
        [[ $1 == "$p" || ($p == */ && $1 == "$p"*) ]] && return 0
    done
    return 1
}

declare -A count
add() { count[$1]=$((${count[$1]:-0} + 1)); }

bug() {                                 # bug FORMAT NAME MODEL RUN CHECK OPERATION DIAGNOSIS
    local status=0 name words verdict
    golden "$3"
    ./buggy run "$3.safetensors" dump dtype "$1" bug "$2" $4 || exit 1
    "$orrery" check "$3.safetensors" dump $5 >out 2>err || status=$?
    name=$(operation) words=$(said "$name") verdict=''
    add "$1 all"
    if [ $status = 3 ] && grep -q '^FAILED: ' out; then add "$1 found"; else verdict=' NOT FOUND'; fi
    if is_one_of "$name" "$6"; then add "$1 named"; else verdict="$verdict NOT NAMED: $6"; fi
    if [ -z "$7" ]; then :; elif [[ $words == *"$7"* ]]; then add "$1 diagnosed"; else verdict="$verdict NOT DIAGNOSED: $7"; fi
    # Copies of ranks may each lack other parts: the line has some rank's numbers, as many as that rank has.
    [[ $words != *"$7"* || $(any_numbers <err) == *"$(any_numbers <<<"$7")"* ]] || verdict="$verdict NOT IN THE ERROR LINE: $(cat err)"
    [ -z "$verdict" ] || wrong=1
    printf '%-20s %s  %s: %s%s\n' "$2" "$1" "${name:--}" "${words:--}" "$verdict"
}

# The whole check, --first, and a right run against this one must name the same operation.
two() {                                 # two FORMAT NAME MODEL RUN CHECK
    local whole first against status=0
    golden "$3"
    [ -d "right-$3-$1" ] || ./buggy run "$3.safetensors" "right-$3-$1" dtype "$1" || exit 1
    ./buggy run "$3.safetensors" dump dtype "$1" bug "$2" $4 || exit 1
    "$orrery" check "$3.safetensors" dump $5 >out 2>err; whole=$(operation)
    "$orrery" check "$3.safetensors" dump --first $5 >out 2>err || status=$?; first=$(operation)
    [ $status = 3 ] && grep -q '^FAILED: first ' out || first="status $status"
    status=0; "$orrery" check "$3.safetensors" "right-$3-$1" --against dump $5 >out 2>err || status=$?
    against=$(sed -nE "s/^orrery: ([^ ]+): only A's is right.*/\1/p" err)
    [ $status = 3 ] && grep -q '^FAILED: ' out || against="status $status"
    add "$1 all"
    if [ "$first" = "$whole" ]; then add "$1 found"; else wrong=1; printf '%-20s %s  --first names %s: NOT %s\n' "$2" "$1" "$first" "$whole"; fi
    if [ "$against" = "$whole" ]; then add "$1 named"; else wrong=1; printf '%-20s %s  --against names %s: NOT %s\n' "$2" "$1" "$against" "$whole"; fi
}

all_of_two() {
    local name model run shown check operation diagnosis words format
    while IFS='|' read -r name model run shown check operation diagnosis words; do
        for format in "${formats[@]}"; do
            [[ $format != fp32 || $shown == *3* ]] && [[ $format != bf16 || $shown == *b* ]] && [[ $format != fp16 || $shown == *h* ]] || continue
            two "$format" "$name" "$model" "$run" "$check"
        done
    done < <(./buggy list | grep -E -- "${1:-.}")
    printf '\n%-6s %5s %8s %10s\n' '' bugs --first --against
    for format in "${formats[@]}"; do
        printf '%-6s %5d %8d %10d\n' "$format" "${count[$format all]:-0}" "${count[$format found]:-0}" "${count[$format named]:-0}"
    done
}

bugs() {
    local name model run shown check operation diagnosis words format
    while IFS='|' read -r name model run shown check operation diagnosis words; do
        for format in "${formats[@]}"; do
            [[ $format != fp32 || $shown == *3* ]] && [[ $format != bf16 || $shown == *b* ]] && [[ $format != fp16 || $shown == *h* ]] || continue
            bug "$format" "$name" "$model" "$run" "$check" "$operation" "$diagnosis"
        done
    done < <(./buggy list | grep -E -- "${1:-.}")
    printf '\n%-6s %5s %6s %6s %10s\n' '' bugs found named diagnosed
    for format in "${formats[@]}"; do
        printf '%-6s %5d %6d %6d %10d\n' "$format" "${count[$format all]:-0}" "${count[$format found]:-0}" "${count[$format named]:-0}" "${count[$format diagnosed]:-0}"
    done
}

# ---- right runs ------------------------------------------------------------------------------------------------------

# The i-th of a list, for digits of a number in mixed radix.
pick() { local n=$(($# - 1)); eval "picked=\${$((2 + digits % n))}"; digits=$((digits / n)); }

# The list has 193536 runs; steps of a number without common factors with them go through all.
clean() {
    local i digits picked kernels model run check status alarms=0
    for ((i = 0; i < $1; i++)); do
        digits=$((i * 1009 % 193536))
        pick - gpt2 llama moe dropout; model=${2:-$picked}
        pick - fp32 bf16 fp16; run="dtype $picked"
        pick - sequential reversed blocked pairwise shuffled shuffled apart; run="$run order $picked seed $i"
        pick - results steps; run="$run store $picked"; check=''
        [ $picked = results ] || check=--stored-norms
        pick - 'dp 1 tp 1' 'dp 2 tp 1' 'dp 1 tp 3' 'dp 2 tp 3'; run="$run $picked"
        pick - 1 1 2 20; run="$run parts $picked"
        [ "$picked" = 1 ] || check="$check --parts $((3 * picked))"
        pick - 1 2; [ $model = moe ] || run="$run micros $picked"
        pick - adamw sgd; run="$run optimizer $picked"
        pick - shown rounded; run="$run masters $picked"
        pick - Prescott Haswell; kernels=$picked; golden $model     # OpenBLAS's, with and without vectors of eight
        pick - fp32 stored sums; [ $model = moe ] || run="$run gradients $picked"
        pick - '' 'resume 1' 'resume 2 begin own'; run="$run $picked"
        ./buggy run $model.safetensors dump $run || exit 1
        status=0; OPENBLAS_CORETYPE=$kernels "$orrery" check $model.safetensors dump $check >out 2>err || status=$?
        [ $status = 0 ] && continue
        alarms=$((alarms + 1)) wrong=1
        printf 'ALARM: %s %s %s %s\n' "$model" "$run" "$check" "$(cat err)"
    done
    printf '%d right runs, %d alarms\n' "$1" $alarms
}

# Ranks with copies of keys and values: 2, 3, 4 and 6 over 1, 2 and 3 heads, also where these cannot be shared out evenly.
copies() {
    local i digits picked model run check status alarms=0
    for ((i = 0; i < $1; i++)); do
        digits=$((i * 1009 % 24192))
        pick - 'mqa tp 2' 'mqa tp 3' 'mqa tp 4' 'mqa tp 6' 'gqa tp 3' 'gqa tp 4' 'gqa tp 6' 'llama tp 4' 'llama tp 6' 'moe tp 4' 'moe tp 6' 'mqa dp 2 tp 2' 'gqa dp 2 tp 4' 'llama dp 2 tp 4'
        model=${picked%% *} run=${picked#* } check=''
        pick - fp32 bf16 fp16; run="$run dtype $picked"
        pick - sequential reversed blocked pairwise shuffled apart; run="$run order $picked seed $i"
        pick - parts summed; run="$run copies $picked"
        pick - results steps; run="$run store $picked"
        [ $picked = results ] || check=--stored-norms
        pick - 1 2; [ $model = moe ] || run="$run micros $picked"
        pick - adamw sgd; run="$run optimizer $picked"
        pick - shown rounded; run="$run masters $picked"
        pick - fp32 stored sums; [ $model = moe ] || run="$run gradients $picked"
        golden $model
        ./buggy run $model.safetensors dump $run || exit 1
        status=0; "$orrery" check $model.safetensors dump $check >out 2>err || status=$?
        ! grep -q 'cannot be recomputed' out || { status=3; grep 'missing' out >>err; }
        [ $status = 0 ] && continue
        alarms=$((alarms + 1)) wrong=1
        printf 'ALARM: %s %s %s %s\n' "$model" "$run" "$check" "$(cat err)"
    done
    printf '%d right runs with copies of keys and values, %d alarms\n' "$1" $alarms
}

wrong=0
[ -x buggy ] || ${CC:-cc} -O2 "$here"/*.c -lm -o buggy || exit 1
case $1 in
    bugs) bugs "$2" ;;
    two) all_of_two "$2" ;;
    clean) clean "$2" "${3:-}" ;;
    copies) copies "$2" ;;
    *) echo 'usage: campaign.sh bugs [REGEX] | two [REGEX] | clean COUNT [MODEL] | copies COUNT'; exit 2 ;;
esac
exit $wrong
