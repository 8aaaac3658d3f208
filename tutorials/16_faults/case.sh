#!/usr/bin/env bash
# Record the run of a program that has a bug, and check it.  Usage: case.sh 1..5, with orrery in the PATH or $ORRERY.
#
# The program is golden/bugs of Orrery's sources: a small GPT-2, Llama and Qwen3-MoE in C, which trains on several ranks and
# writes down what each of them has.  It is compiled into the folder faults/ here, with the five runs.
set -eu
orrery=$(command -v "${ORRERY:-orrery}") || { echo 'case.sh: there is no orrery: put it into the PATH, or name it in ORRERY' >&2; exit 1; }
sources=${ORRERY_SOURCES:-$(dirname "$(realpath "$orrery")")}/golden/bugs
[ -e "$sources/main.c" ] || { echo "case.sh: there is no $sources; ORRERY_SOURCES names the folder of Orrery's sources" >&2; exit 1; }

# What is wrong, in a form that is not read in passing.
case ${1:-} in
    1) hidden={FIRST: gc-ovnf|abez-pbcvrf} ;;
    2) hidden={SECOND: zrna-bs-zrnaf|zrna-bs-zvpebf} ;;
    3) hidden={THIRD: gvrq-abg-fhzzrq|rkcreg-yrsg-bhg} ;;
    4) hidden={THIRD: rkcreg-yrsg-bhg|gvrq-abg-fhzzrq} ;;
    5) hidden={FIRST: abez-pbcvrf|gc-ovnf} ;;
    *) echo 'usage: case.sh 1..5' >&2; exit 2 ;;
esac
mkdir -p faults && cd faults
[ -x buggy ] || {
    echo 'case.sh: compiling the program, once' >&2
    ${CC:-cc} -O1 "$sources"/*.c -lm -o buggy
}
name=$(tr n-za-m a-z <<<"$hidden")
IFS='|' read -r _ model run _ < <(./buggy list | grep "^$name|")
[ -e "$model.safetensors" ] || {
    ./buggy model "$model" "model-$model"
    "$orrery" golden make --out "$model.safetensors" --model "model-$model" --batch "model-$model/batch.safetensors" \
        --optimizer adamw,sgd --lr 0.01 --clip 0.3 --eps 1e-4 >/dev/null
}
rm -rf "case_$1"
./buggy run "$model.safetensors" "case_$1" dtype fp32 bug "$name" $run
echo "case $1: a $model of 2 layers, $run"
echo "orrery check faults/$model.safetensors faults/case_$1"
status=0
"$orrery" check "$model.safetensors" "case_$1" || status=$?
[ "$status" = 3 ] || { echo "case.sh: orrery check ended with status $status" >&2; exit 1; }
