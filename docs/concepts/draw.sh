#!/usr/bin/env bash
# Draw the pictures of these pages and of docs/parallelism/.  Usage: draw.sh FOLDER, from the top of the tree, with ./orrery built ($ORRERY: another one).
# `make docs` draws them into this folder; tests/cli/test_concepts.sh says if they are not those that the program draws now.
set -eu
to=$1 orrery=${ORRERY:-./orrery}
draw() { "$orrery" show "${@:2}" --svg "$to/$1.svg" >/dev/null; }

draw ring        allreduce ring --devices 4
draw mesh        plan --model small --dp 2 --tp 2 --pp 2 --batch 16
draw data        data ddp --model small --dp 4 --batch 16
draw zero        data zero3 --model small --dp 4 --batch 16
draw zero_memory memory --model small --dp 4 --batch 16 --zero 3
draw tensor      plan --model small --tp 4 --batch 16
draw tensor_sums tensor 1d --devices 2 --role down
draw pipeline    schedule 1f1b --pp 4 --micro 8
draw pipeline_zb schedule zb-h1 --pp 4 --micro 8
draw context     plan --model small --cp 4 --batch 16
draw attention   attention ring-zigzag --devices 4
draw experts     plan --model mixtral-small --dp 4 --ep 4 --batch 16
draw dispatch    dispatch alltoall --devices 4 --experts 8
draw copies      dispatch fssdp --devices 4 --tokens 6
