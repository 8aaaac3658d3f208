# `orrery plan --memory-of` beside peaks that programs have printed.
. "$(dirname "$0")/lib.sh"

# Peaks that torchtitan printed (benchmarks/llama3_h100_202412_torchtitan.md), in GiB, within 20 %.  No constant is fitted on them.
of() { sed -n '/"memory_of"/,$p' plan.json | grep -m1 "\"$1\":" | tr -dc 0-9; }
near() {                                                # near PRINTED-IN-TENTHS
    local tenths=$(($(of reserved) * 10 / (1 << 30)))
    [ $((tenths * 10)) -ge $(($1 * 8)) ] && [ $((tenths * 10)) -le $(($1 * 12)) ] || complain "reserved $tenths tenths of a GiB, printed $1"
}
test_printed() {
    local words printed
    while read -r printed words; do
        run plan --dtype bf16 --cluster h100-infiniband --quiet --json plan.json --memory 0 --data-parallel fsdp $words --memory-of torch; expect_status 0; near "$printed"
    done <<'END'
770 --model llama3-8b --dp 8 --batch 16 --seq 8192 --recompute selective
620 --model llama3-8b --dp 128 --batch 256 --seq 8192 --recompute selective
839 --model llama3-8b --dp 8 --batch 8 --seq 32768 --recompute full
719 --model llama3-70b --dp 32 --tp 8 --tensor 1d-sp --batch 512 --seq 8192 --recompute full
825 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 256 --micro 8 --seq 8192 --recompute full
727 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 256 --micro 8 --schedule interleaved --chunks 2 --seq 8192 --recompute full
753 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 64 --micro 8 --seq 32768 --recompute full
END
}

run_tests test_printed
