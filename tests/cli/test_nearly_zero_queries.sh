# Heads of two numbers, with a norm: a query that is nearly zero has a gradient that its rounding decides, and so has all before it.  A
# right program in bf16 is judged all the same: its gradients are nearer to ours than rounding may move them.
. "$(dirname "$0")/lib.sh"

test_right_program() {
    run golden make --out g.safetensors --model qwen3-tiny:A=2,L=2,D=12,H=6,K=2,F=8 --seed 1 --cover --sequences 64 --tokens 16 \
        --eps 1e-4 --clip 0.3;                                              expect_status 0
    run train --check g.safetensors --dump dump/ --dtype bf16
    run check g.safetensors dump;                                           expect_status 0
    expect_silent; expect_out '^OK: 250 of 250 tensors compared'
}

run_tests test_right_program
