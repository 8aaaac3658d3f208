#!/usr/bin/env bash
# Digests of many small runs, to see that a change of the code changes no bit of any plan.
#
#   tests/digests.sh [COUNT] >before        on the old program
#   tests/digests.sh [COUNT] >after         on the new one;  diff before after
#
# Each line is one plan and a digest of all that it gave: losses, norms, weights, optimizer states, messages, bytes, peaks of each kind of
# memory, virtual times, and every event of its trace with its virtual time.  Wall time and resident memory are left out.
# A plan that is refused gives its message instead.  Plans are drawn by a fixed generator: the Nth is the same on every machine.
set -u
count=${1:-300}
orrery=${ORRERY:-./orrery}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
awk 'BEGIN { x = 1; for (i = 0; i < 20000; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%c", 97 + int(x / 65536) % 26 } }' >"$tmp/text"
mkdir "$tmp/run"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

plans() {
    awk -v count="$count" '
    function draw(n) { state = (state * 1103515245 + 12345) % 2147483648; return int(state / 65536) % n }
    function pick(list, parts, n) { n = split(list, parts, "|"); return parts[1 + draw(n)] }
    BEGIN {
        state = 20240607
        for (i = 0; i < count; i++) {
            p = "--model " pick("tiny|tiny|tiny --untied|tiny --dropout 0.1|llama-tiny|llama-tiny|llama-tiny --untied")
            p = p " --dtype " pick("fp32|fp32|fp64|bf16|fp16|bf16 --grad-dtype bf16")
            kind = draw(8)
            if (kind != 7) p = p " --optimizer " pick("sgd|sgd|adamw|momentum")
            if (kind == 0) p = p " --tp " pick("2|3|5|8") " --tensor " pick("1d|1d-sp|1d-sp-keep|1d-sp-overlap")
            if (kind == 1) p = p " --dp " pick("1|2") " --tp 4 --tensor " pick("2d|2.5d|1d-sp-overlap")
            if (kind == 2) p = p " --tp 8 --tensor " pick("3d|2.5d|1d-sp")
            if (kind == 3) p = p " --dp " pick("2|3|5|8") " --data-parallel " pick("ddp|zero1|zero2|zero3|fsdp|local-sgd --local-steps 2|diloco --local-steps 2")
            if (kind == 4) p = p " --dp " pick("2|4") " --tp " pick("1|2") " --zero " pick("1|2|3") pick("||| --tiles 3| --offload optimizer| --offload optimizer,gradients,weights| --quantize-weights int8 --quantize-gradients int4")
            if (kind == 5) p = p " --pp " pick("2|4") " --micro 4 --schedule " pick("1f1b|gpipe|zb-h1|zb-2p|interleaved --chunks 2|zb-v|dualpipev|v-half")
            if (kind == 6) p = p " --pp 2 --dp 2 --tp 2 --micro 2 --zero " pick("0|1|2|3") " --tensor " pick("1d|1d-sp")
            if (kind == 7) p = p " --dp 2 --optimizer " pick("mezo|galore --rank 8|natural-galore --rank 8|mezo --zero 3")
            p = p " --recompute " pick("none|none|selective|full|0,2-3") " --batch " pick("8|10|15") " --seq " pick("7|16") " --clip " pick("0|1")
            print p
        }
    }'
}

digest() {                                      # digest LOG: of what the run has left in $tmp
    {
        grep -v -E '"(seconds|resident_bytes|.*(_seconds|per_second|flops|tokens_per).*)"' "$tmp/run/json"
        cat "$tmp/run/trace"
        cat "$tmp"/run/saved/*.safetensors
    } | sha256sum | cut -c1-16
}

plans | while read -r plan; do
    rm -rf "$tmp"/run/*
    # shellcheck disable=SC2086
    timeout 120 "$orrery" train $plan --data "$tmp/text" --steps 2 --json "$tmp/run/json" --trace "$tmp/run/trace" --save "$tmp/run/saved" \
        </dev/null >"$tmp/run/out" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then echo "$plan  $(digest)"; else echo "$plan  exit $rc: $(tail -n 1 "$tmp/run/out")"; fi
done
