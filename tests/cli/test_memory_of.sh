# `orrery plan --memory-of`: the memory of frameworks' programs, by hand for tensors that are counted exactly; its report, and refused words.
. "$(dirname "$0")/lib.sh"

eight='plan --model llama3-8b --dtype bf16 --cluster h100-infiniband --quiet --json plan.json --memory 0'

# A number of the object "memory_of": the first with this name.
of() { sed -n '/"memory_of"/,$p' plan.json | grep -m1 "\"$1\":" | tr -dc 0-9; }
expect_of() { [ "$(of "$1")" = "$2" ] || complain "$1 is $(of "$1"), by hand $2"; }

# 8 devices, one sequence of 32,768 tokens each, of which only the layers' inputs are kept.  V = 128256, D = 4096, 8,030,261,248 parameters.
test_by_hand() {
    run $eight --dp 8 --data-parallel fsdp --batch 8 --seq 32768 --recompute full --memory-of torch; expect_status 0
    expect_of weights 4015130624                        # fp32, an eighth
    expect_of optimizer 8030261248                      # two moments of each
    expect_of 'gathered weights' 2537578496             # bf16: embedding, head, last norm (1,050,677,248 elements) and the last layer (218,112,000)
    expect_of activations $((32 * 32768 * 4096 * 2))    # bf16: the layers' inputs
    # fp32: log_softmax and both gradients; of the last norm its input in fp32, the normed one and the output in bf16, and a number of each token.
    expect_of 'logits and loss' $((3 * 32768 * 128256 * 4 + 32768 * 4096 * (4 + 2 + 2) + 32768 * 4))
    expect_of gradients 0
    run $eight --dp 8 --batch 8 --seq 32768 --recompute full --memory-of megatron --data-parallel zero1
    expect_of weights 16060522496                       # bf16, whole; fp32 gradients; masters and moments, 12 bytes of an eighth
    expect_of gradients 32121044992
    expect_of optimizer 12045391872
    run $eight --dp 8 --batch 8 --seq 32768 --recompute full --memory-of megatron --data-parallel zero1-overlap
    expect_of weights 16060522496;                      expect_of gradients 32121044992;    expect_of optimizer 12045391872
    # Gathered once: all bf16 weights are whole at the peak, also without a pipeline.
    run $eight --dp 8 --batch 16 --micro 2 --seq 4096 --recompute full --memory-of torch --data-parallel fsdp-once; expect_status 0
    expect_of weights 4015130624;                       expect_of 'gathered weights' 16060522496
    run $eight --dp 8 --batch 8 --seq 32768 --recompute full --memory-of nanotron --data-parallel ddp
    expect_of optimizer 96363134976                     # 12 bytes of each
}

# The replay takes pieces as programs have them: the second and the fourth product of a layer, and so on, are computed again.
test_selective() {
    # Kept of a layer, in columns: its input D, q of D, v of 1024, attention's result D, w1 14336, w2 D; 32 layers, 16384 tokens, 2 bytes.
    run $eight --dp 8 --data-parallel fsdp --batch 16 --seq 8192 --recompute selective --memory-of torch; expect_status 0
    expect_of activations $((32 * (4 * 4096 + 1024 + 14336) * 16384 * 2))
    run $eight --dp 8 --data-parallel fsdp --batch 16 --seq 8192 --recompute 'selective++' --memory-of torch
    expect_of activations $((32 * 2 * 4096 * 16384 * 2))
}

# Every profile says every family; whether it fits decides by the framework's memory, the own count stays.
test_report() {
    local profile model
    for profile in torch megatron deepspeed nanotron; do
        for model in gpt2 mixtral-tiny deepseek-v3-tiny parscale-tiny; do
            run plan --model $model --dtype bf16 --dp 2 --tp 2 --pp 2 --micro 4 --batch 8 --seq 16 --memory 0 --memory-of $profile
            expect_status 0; expect_out "^memory  as $profile has it, device [0-9]+: [0-9.]+ [KM]iB allocated, [0-9.]+ [MG]iB reserved\$"
        done
    done
    run plan --model gpt2 --dtype bf16 --batch 2 --seq 64 --memory 3GiB --memory-of torch; expect_status 3
    expect_out '^fits    yes: '; expect_out 'does NOT fit: [0-9.]+ GiB of 3 GiB'; expect_error '--memory 3GiB: device 0 needs [0-9.]+ GiB as torch has it, .* more$'
    run plan --model gpt2 --dtype bf16 --batch 2 --seq 64 --memory 8GiB --memory-of torch; expect_status 0; expect_out 'fits: [0-9.]+ GiB of 8 GiB, [0-9.]+ GiB to spare'
    run list memory; expect_status 0; expect_out '^  nanotron  '
}

test_refused() {
    run plan --dtype bf16 --memory-of torc;         expect_status 2; expect_error '--memory-of torc: .*did you mean torch'
    run plan --dtype bf16 --memory-of x;            expect_status 2; expect_error '--memory-of x: .*torch, megatron, deepspeed, nanotron'
    run plan --memory-of torch;                     expect_status 2; expect_error '--memory-of torch: .* computes in 16 bits: use --dtype bf16$'
    run plan --dtype bf16 --offload optimizer --memory-of torch;    expect_status 2; expect_error 'plan without --offload$'
    run plan --dtype bf16 --offload activations --memory-of torch;  expect_status 2; expect_error 'plan without --offload$'
    run plan --dtype bf16 --dp 2 --data-parallel diloco --memory-of torch;  expect_status 2; expect_error 'its copies do not train apart$'
    run train --memory-of torch;                    expect_status 2; expect_error '--memory-of is not a flag of train'
}

run_tests test_by_hand test_selective test_report test_refused
