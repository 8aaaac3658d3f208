# With exact sums a run ends with the same bits on every machine: these fingerprints are those of any processor, kernel of a BLAS, compiler
# and C library.  `make check-machines` runs this file in programs for several processors and with several BLAS (docs/checking/exact.md).
. "$(dirname "$0")/lib.sh"

exact='--arithmetic exact --seq 20 --batch 5 --steps 4 --seed 7'

# ends WITH WORDS.. -- a run ends with this fingerprint.
ends() {
    local with=$1 print; shift
    # shellcheck disable=SC2086
    run train $exact "$@"
    expect_status 0
    print=$(sed -nE 's/^bits .* ([0-9a-f]{16}), on every layout$/\1/p' <<<"$out")
    [ "$print" = "$with" ] || complain "orrery train $exact $*: $print, not $with, as on every machine${OPENBLAS_CORETYPE:+; kernel $OPENBLAS_CORETYPE}"
}

# Learned positions, layernorm, gelu, tied embeddings, AdamW, a cosine rate with a warm-up.
test_gpt() { ends 796b7deeaf9f4e2b --model tiny --warmup 2; ends 796b7deeaf9f4e2b --model tiny --warmup 2 --dp 2 --tp 2; }

# Rotary positions, rmsnorm, swiglu, grouped heads; in bf16.
test_llama() { ends d71715f0ef7ab4cc --model llama-tiny --dtype bf16 --dropout 0.1; ends d71715f0ef7ab4cc --model llama-tiny --dtype bf16 --dropout 0.1 --pp 2 --micro 5; }

# Experts, RAdam, soft caps of logits.
test_experts() { ends 4aa634687145a571 --model mixtral-tiny --balance-over batch --optimizer radam --lr-schedule wsd-cosine --lr-decay 2; }
test_caps() { ends 70dc910c9c147a3c --model gemma2-tiny --dtype fp16; }

# Operands of two slices.
test_two_slices() {
    local exact=${exact/exact/exact2}
    ends 68f59d17f37ba63c --model tiny --warmup 2; ends 68f59d17f37ba63c --model tiny --warmup 2 --dp 2 --tp 2
    ends 918adf34b16b8466 --model gemma2-tiny --dtype fp16
}

# has FLAG -- this processor has it; where the system does not tell, it has not.
has() { grep -qsw -- "$1" /proc/cpuinfo; }

# Kernels of OpenBLAS multiply and add in orders of their own, some with fused multiply-adds, which integers do not show.
test_kernels_of_a_blas() {
    local kernels=() kernel
    [[ ${BUILD:-build} != *-aarch64-* ]] || return 0
    has ssse3 && kernels+=(Nehalem)
    has avx2 && kernels+=(Haswell Zen)
    has avx512f && kernels+=(SkylakeX)
    for kernel in ${kernels[@]+"${kernels[@]}"}; do
        export OPENBLAS_CORETYPE=$kernel
        ends d71715f0ef7ab4cc --model llama-tiny --dtype bf16 --dropout 0.1
        ends 796b7deeaf9f4e2b --model tiny --warmup 2 --tp 2
    done
    unset OPENBLAS_CORETYPE
}

run_tests test_gpt test_llama test_experts test_caps test_two_slices test_kernels_of_a_blas
