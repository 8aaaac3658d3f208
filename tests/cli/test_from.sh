# `orrery plan --from` reads what starts a run of Megatron-LM, torchtitan, DeepSpeed or accelerate: the plan is the same, to the byte, as that of words
# written by hand; each key is said, assumed, outside of a plan or without effect, and what is unknown is refused by name.
# Facts of the files: the released examples that each test names.
# tier: check
. "$(dirname "$0")/lib.sh"

# The report behind the translation, without how long it took; and the JSON without the translation.
report() { sed -n '/^model   /,$p' "$place/out" | grep -v '^planned in'; }
document() { results "$1" | sed '/^\t"from"/,/^\t}/d' | sed 's/,$//' | grep -v '"words"'; }

# same "WORDS BY HAND" FILE EXTRA..: the plan of a file is that of these words.
same() {
    local hand=$1 file=$2; shift 2
    run plan --from "$file" "$@" --memory 0 --json from.json; expect_status 0; expect_silent; report >from.txt
    [ "$(sed '/^model   /q' "$place/out" | sed '$d' | wc -L)" -le 80 ] || complain 'a line of the translation is wider than 80 columns'
    # shellcheck disable=SC2086
    run plan $hand --memory 0 --json hand.json; expect_status 0; report >hand.txt
    expect_same from.txt hand.txt
    document from.json >from.doc; document hand.json >hand.doc; expect_same from.doc hand.doc
    [ -s from.txt ] && [ -s from.doc ] || complain 'there is no report'
    run plan --from "$file" "$@" --memory 0
    # The line that it prints, pasted, is this plan once more.
    sed -n '/^the same as/,/^$/p' "$place/out" | sed '1d; s/ \\$//' | tr '\n' ' ' >pasted
    read -r -a pasted <pasted
    run "${pasted[@]:1}"; report >pasted.txt
    expect_same from.txt pasted.txt
}

refused() {                                                     # refused "PATTERN" WORDS..
    local pattern=$1; shift
    run plan "$@"; expect_status 2; expect_error "$pattern"
    [ -z "$out" ] || complain 'it says more than why'
}

# Megatron-LM core_v0.16.1, examples/gpt3/train_gpt3_175b_distributed.sh.
gpt3() {
    cat >gpt3.sh <<'END'
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=localhost
NUM_NODES=16
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE 
    --nnodes $NUM_NODES 
    --master_addr $MASTER_ADDR 
)
GPT_MODEL_ARGS=(
    --num-layers 96 
    --hidden-size 12288 
    --num-attention-heads 96 
    --seq-length 2048 
    --max-position-embeddings 2048 
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS=(
    --micro-batch-size 1 
    --global-batch-size 32
    --rampup-batch-size 16 16 5859375 
    --train-iters 500000 
    --weight-decay 0.1 
    --clip-grad 1.0 
    --fp16
    --lr 6.0e-5 
)
MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size 8 
	--pipeline-model-parallel-size 16 
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} \
    --save $CHECKPOINT_PATH
END
}

test_gpt3() {
    gpt3
    same '--model gpt3-175b --vocabulary 51200 --tp 8 --pp 16 --dp 1 --zero 0 --seq 2048 --batch 32 --micro 32 --dtype fp16 --grad-dtype fp16
          --as megatron --clip 1 --dropout 0.1 --cluster h100-infiniband' gpt3.sh --cluster h100-infiniband
    run plan --from gpt3.sh --memory 0
    expect_out '^  --tensor-model-parallel-size 8 +--tp 8$'
    expect_out '^  --rampup-batch-size 16 16 5859375 '
    expect_out '^  checkpoints: --save$'
    expect_out 'without --cluster NAME it is toy'
    # Words of the command line stand for those of the file, and the table says so.
    run plan --from gpt3.sh --memory 0 --tp 4 --dp 2 --micro 16
    expect_out -- '--tp 8, but the command line says --tp$'
    expect_out '^mesh    pp=16 x dp=2 x tp=4, 128 devices'
    expect_out '^batch   32 sequences of 2048 tokens, 16 microbatches a copy'
}

# Megatron-LM core_v0.16.1, examples/llama/train_llama3_8b_h100_fp8.sh: conditions, arrays that grow, arguments in quotes.
test_llama3() {
    cat >llama.sh <<'END'
CHECKPOINT_PATH=${1:-"checkpoints/llama3_8b_fp8"}
TOKENIZER_ARG=${3:-"MOCK"} # Path to tokenizer model, or "MOCK"
mkdir -p "$(dirname "$CHECKPOINT_PATH")"
GPUS_PER_NODE=8
NODE_RANK=${NODE_RANK:-0}
PRETRAIN_SCRIPT_PATH="pretrain_gpt.py"
DTYPE="fp8"
MODEL_ARGS=(
    --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --apply-layernorm-1p
    --untie-embeddings-and-output-weights --disable-bias-linear
)
TRAINING_ARGS=( --micro-batch-size 1 --global-batch-size 128 --clip-grad 1.0 --bf16 --grad-reduce-in-bf16 )
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-param-gather"
    )
fi
DDP_ARGS=( --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather )
TRAINING_ARGS+=("${DDP_ARGS[@]}")
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    DATA_ARGS_LIST+=( "--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 128256" "--split '99,1,0'" )
else
    DATA_ARGS_LIST+=( "--tokenizer-type HuggingFaceTokenizer" )
fi
if [ ! -f "$PRETRAIN_SCRIPT_PATH" ]; then
    echo "Error: pretrain_gpt.py not found at $PRETRAIN_SCRIPT_PATH"
    exit 1
fi
torchrun --nproc_per_node $GPUS_PER_NODE --node_rank $NODE_RANK "$PRETRAIN_SCRIPT_PATH" ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} \
    ${DTYPE_ARGS[@]} ${DATA_ARGS_LIST[@]} --tensor-model-parallel-size 1 --sequence-parallel
set +x
END
    # NullTokenizer adds a token, and 128257 are padded to 1003 times 128; a bucket has 40000000 gradients of 2 bytes.
    same '--model llama3-8b --vocabulary 128384 --dp 8 --zero 1 --bucket 80000000 --seq 8192 --batch 128 --micro 16 --dtype bf16 --grad-dtype bf16
          --as megatron --clip 1 --dropout 0 --cluster h100-infiniband' llama.sh --cluster h100-infiniband
    run plan --from llama.sh --memory 0
    expect_out '^  --fp8-format hybrid +fp8 and fp4: products'
    expect_out '^  --fp8-param-gather +likewise'
    expect_out 'pretrain_gpt.py is there'
    expect_out '^  --normalization LayerNorm \(default\) +RMSNorm: without the D biases'
}

# Megatron-LM core_v0.16.1, examples/mixtral/train_mixtral_8x7b_distributed.sh.
test_mixtral() {
    cat >mixtral.sh <<'END'
NNODES=${SLURM_NNODES:-"4"}
TOKENIZER_MODEL=$2
MODEL_ARGS=(
    --use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336 --num-attention-heads 32 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm
    --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8
    --no-position-embedding --rotary-base 1000000
)
MOE_ARGS=( --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
    --overlap-param-gather --overlap-grad-reduce )
LOGGING_ARGS=( --log-interval 1 \
    --no-load-optim )
if [ -n "${WANDB_API_KEY}" ]; then
    LOGGING_ARGS+=(--wandb-project ${WANDB_PROJECT:-"Mixtral"})
fi
torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py ${MODEL_ARGS[@]} ${MOE_ARGS[@]} ${LOGGING_ARGS[@]} \
    --tokenizer-type Llama2Tokenizer --tokenizer-model ${TOKENIZER_MODEL} --micro-batch-size 1 --global-batch-size 256 --bf16 \
    --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --use-distributed-optimizer --sequence-parallel
END
    same '--model mixtral-8x7b --vocabulary 32000 --pp 4 --dp 8 --ep 8 --dispatch alltoall --zero 1 --bucket 160000000 --seq 4096 --batch 256
          --micro 32 --dtype bf16 --as megatron --clip 1 --dropout 0 --cluster h100-infiniband' mixtral.sh --cluster h100-infiniband
    run plan --from mixtral.sh --memory 0; expect_out 'WANDB_API_KEY is not set'
}

# A text of arguments alone: sequence parallelism, interleaved stages, sizes of no preset, recomputation in blocks, sharded groups.
args='--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2
--global-batch-size 64 --bf16 --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2
--num-layers-per-virtual-pipeline-stage 6 --use-distributed-optimizer --attention-dropout 0 --hidden-dropout 0'
test_arguments() {
    printf '%s\n' "$args" --recompute-granularity full --recompute-method block --recompute-num-layers 2 >a.txt
    same '--model gpt2:L=24,D=2048,H=16,F=8192,S=2048 --vocabulary 50688 --tp 4 --pp 2 --dp 4 --schedule interleaved --chunks 2 --tensor 1d-sp
          --zero 1 --seq 2048 --batch 64 --micro 8 --dtype bf16 --as megatron --clip 1 --dropout 0 --recompute 0-1,6-7,12-13,18-19' a.txt --dp 4
    printf '%s\n' "$args" --recompute-activations --tp-comm-overlap --num-distributed-optimizer-instances 2 >b.txt
    same '--model gpt2:L=24,D=2048,H=16,F=8192,S=2048 --vocabulary 50688 --tp 4 --pp 2 --dp 4 --schedule interleaved --chunks 2
          --tensor 1d-sp-overlap --zero 1 --shard-group 2 --seq 2048 --batch 64 --micro 8 --dtype bf16 --as megatron --clip 1 --dropout 0
          --recompute selective' b.txt --dp 4
}

# torchtitan v0.2.2, models/llama3/train_configs/llama3_8b.toml, llama3_70b.toml and llama3_405b.toml.
titan() {                                                       # titan FLAVOR BATCH TP ASYNC MODE COMPILE
    cat <<END
# NOTE: this toml config is a preset for 64 A100 GPUs.
[job]
dump_folder = "./outputs"
[profiling]
enable_profiling = true
[metrics]
log_freq = 10
[model]
name = "llama3"
flavor = "$1"
hf_assets_path = "./assets/hf/Llama-3.1-$1"
converters = [${7:-}]
[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 200  # lr scheduler warm up
[training]
local_batch_size = $2
seq_len = 8192
max_norm = 1.0  # grad norm clipping
steps = 1000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = $3
enable_async_tensor_parallel = $4
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
enable = false
async_mode = "disabled" # ["disabled", "async", "async_with_pinned_mem"]
[activation_checkpoint]
mode = $5
[compile]
enable=$6
components = ["model", "loss"]
[quantize.linear.float8]
filter_fqns = ["output"]
[validation]
enable = false
END
}

test_torchtitan() {
    titan 8B 1 1 false '"selective"
selective_ac_option = "op"' false >8b.toml
    titan 70B 8 8 false '"full"' false >70b.toml
    titan 405B 2 8 true '"full"' true '"float8"' >405b.toml
    common='--seq 8192 --dtype bf16 --as torch --clip 1 --cluster h100-infiniband --data-parallel fsdp'
    same "--model llama3-8b --dp 64 --batch 64 --micro 1 --recompute selective++ $common" 8b.toml --dp 64 --cluster h100-infiniband
    same "--model llama3-70b --dp 8 --tp 8 --tensor 1d-sp --batch 64 --micro 1 --recompute full $common" 70b.toml --dp 8 --cluster h100-infiniband
    same "--model llama3-405b --dp 16 --tp 8 --tensor 1d-sp-overlap --batch 32 --micro 1 --recompute full $common" 405b.toml --dp 16 \
        --cluster h100-infiniband
    run plan --from 405b.toml --dp 16 --memory 0
    expect_out '^  model.converters \[float8\] +float8 and MX formats: products'
    refused '70b.toml: line 2[0-9]: parallelism.data_parallel_shard_degree -1: .*add --dp N' --from 70b.toml
}

# By default torchtitan recomputes every second layer; a pipeline of two stages a device; copies of shards.
test_torchtitan_defaults() {
    cat >a.toml <<'END'
[model]
flavor = "8B"
[training]
local_batch_size = 8
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"
END
    same '--model llama3-8b --pp 2 --cp 2 --dp 8 --data-parallel hsdp --shard-group 8 --reshard-after-forward no --attention ring-zigzag
          --schedule interleaved --chunks 2 --seq 2048 --batch 64 --micro 8 --dtype bf16 --as torch --clip 1
          --recompute 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31' a.toml
    printf '[model]\nname = "qwen3"\nflavor = "0.6B"\n[parallelism]\ndata_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = "none"\n' >q.toml
    run plan --from q.toml --memory 0
    expect_out '^  model.flavor 0.6B +--model qwen3-tiny:L=28,D=1024,H=16,K=8,A=128,F=3072,V=151936$'
    # 151936 rows of embedding, and 28 layers of 1024 (2048 + 1024 + 1024 + 2048 + 3 3072) weights and their norms.
    expect_out '596.*M parameters'
}

# DeepSpeed v0.19.5: its documentation's config-json page; accelerate v1.14.0, examples/deepspeed_config_templates/zero_stage3_offload_config.json.
test_deepspeed() {
    cat >z2.json <<'END'
{ "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "steps_per_print": 2000,
  "optimizer": { "type": "Adam", "params": { "lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7 } },
  "scheduler": { "type": "WarmupLR", "params": { "warmup_min_lr": 0 } }, "gradient_clipping": 1.0, "bf16": { "enabled": true },
  "zero_optimization": { "stage": 2, "allgather_bucket_size": 5e8, "reduce_bucket_size": 5e7, "contiguous_gradients": true } }
END
    same '--model llama3-8b --seq 2048 --dp 8 --batch 64 --micro 4 --zero 2 --bucket 100000000 --dtype bf16 --grad-dtype bf16 --as deepspeed --clip 1' \
        z2.json --model llama3-8b --seq 2048
    cat >z3.json <<'END'
{ "fp16": { "enabled": true, "loss_scale": 0, "initial_scale_power": 16 }, "optimizer": { "type": "AdamW", "params": { "lr": "auto" } },
  "zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu", "pin_memory": true }, "offload_param": { "device": "cpu" },
    "overlap_comm": true, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "sub_group_size": 1e9,
    "stage3_max_live_parameters": 1e9, "stage3_gather_16bit_weights_on_model_save": "auto" },
  "gradient_accumulation_steps": 1, "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto" }
END
    same '--model llama3-8b --seq 2048 --dp 8 --batch 8 --micro 1 --zero 3 --offload weights,gradients,optimizer --dtype fp16 --grad-dtype fp16
          --as deepspeed --clip 1' z3.json --model llama3-8b --seq 2048 --dp 8
    run plan --from z3.json --model llama3-8b --seq 2048 --dp 8 --memory 0
    expect_out 'left to the calling program'
    refused 'z3.json: says nothing of the model; add --model' --from z3.json --dp 8
    refused 'z3.json: does not say on how many devices' --from z3.json --model llama3-8b
    refused 'z3.json: zero_optimization.stage 3: and --pp 2: DeepSpeed.s pipeline' --from z3.json --model llama3-8b --dp 8 --pp 2
}

# accelerate v1.14.0, examples/config_yaml_templates/fsdp.yaml, examples/torch_native_parallelism/configs/tp_hsdp.yaml, cp.yaml, and a file with DeepSpeed.
test_accelerate() {
    cat >fsdp.yaml <<'END'
# Since we are doing FSDP, we need to specify the distributed type as FSDP
distributed_type: FSDP
mixed_precision: 'bf16'
num_processes: 2
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_offload_params: false
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_state_dict_type: SHARDED_STATE_DICT
END
    common='--model llama3-8b --seq 2048 --dtype bf16 --as torch'
    same "--dp 2 --data-parallel fsdp --reshard-after-forward no --batch 2 --micro 1 $common" fsdp.yaml --model llama3-8b --seq 2048
    cat >tp_hsdp.yaml <<'END'
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
tpu_env: []
END
    same "--tp 2 --dp 4 --data-parallel hsdp --shard-group 2 --recompute full --batch 8 --micro 1 $common" tp_hsdp.yaml --model llama3-8b --seq 2048 \
        --batch 8
    sed 's/tp_size: 2/tp_size: 1/; s/shard_size: 2/shard_size: 1/; s/replicate_size: 2/replicate_size: 1/; s/cp_size: 1/cp_size: 8/' tp_hsdp.yaml >cp.yaml
    same "--cp 8 --attention allgather-kv --data-parallel fsdp --recompute full --batch 1 --micro 1 $common" cp.yaml --model llama3-8b --seq 2048
    refused 'parallelism_config_dp_shard_size 2: times .*replicate_size 2 is not --dp 8' --from tp_hsdp.yaml --model llama3-8b --dp 8
    cat >deep.yaml <<'END'
distributed_type: DEEPSPEED
deepspeed_config: { zero_stage: 2, offload_optimizer_device: cpu, gradient_accumulation_steps: 4, gradient_clipping: 1.0, zero3_init_flag: false }
mixed_precision: fp16
num_processes: 8
END
    same '--dp 8 --zero 2 --offload gradients,optimizer --batch 32 --micro 4 --dtype fp16 --grad-dtype fp16 --as deepspeed --clip 1 --model llama3-8b
          --seq 2048' deep.yaml --model llama3-8b --seq 2048
    printf 'distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: z3.json\nnum_processes: 2\n' >file.yaml
    refused 'deepspeed_config_file z3.json: .*--from deepspeed:FILE' --from file.yaml --model llama3-8b
}

test_contradictions() {
    gpt3
    sed 's/NUM_NODES=16/NUM_NODES=1/' gpt3.sh >few.sh
    refused 'few.sh: nproc_per_node x nnodes = 8 devices cannot be divided by --tensor.* = 128' --from few.sh
    sed 's/global-batch-size 32/global-batch-size 31/; s/micro-batch-size 1/micro-batch-size 2/' gpt3.sh >odd.sh
    refused 'odd.sh: --global-batch-size: a batch of 31 cannot be divided by --micro-batch-size 2' --from odd.sh
    sed 's/--fp16/--fp16 --bf16/' gpt3.sh >both.sh;                 refused 'both.sh: line 35: --fp16: and --bf16: give one' --from both.sh
    sed 's/--fp16/--overlap-param-gather/' gpt3.sh >gather.sh;      refused 'overlap-param-gather: needs --use-distributed-opt' --from gather.sh
    sed 's/--fp16/--recompute-granularity full/' gpt3.sh >full.sh;  refused 'recompute-granularity full: needs --recompute-method' --from full.sh
    sed 's/--fp16/--hidden-sise 4/' gpt3.sh >mistyped.sh;           refused 'hidden-sise 4: is no key that is known .*did you mean --hidden-size' --from mistyped.sh
    sed 's/12288/$WIDTH/' gpt3.sh >unset.sh;                        refused 'hidden-size \$WIDTH: must be a whole number' --from unset.sh
    printf '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 1}' >p.json
    refused 'offload_param.device cpu: needs zero_optimization.stage 3, which is 2' --from p.json --model tiny --dp 2
    printf '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}' >b.json
    refused 'train_batch_size 30: cannot be divided by train_micro_batch_size_per_gpu 4 times gradient_accumulation_steps 2' --from b.json --model tiny
    titan 8B 8 1 false '"sometimes"' false >mode.toml;              refused 'line 3[0-9]: activation_checkpoint.mode sometimes: must be' --from mode.toml --dp 1
    refused '--config gives words, too' --from gpt3.sh --config gpt3.sh
    run train --from gpt3.sh; expect_status 2; expect_error '--from is not a flag of train'
}

# Nothing is executed, and what is no text of words is refused by line.
test_hostile() {
    local lines malformed toml
    malformed() { local pattern=$1; shift; run plan "$@"; expect_status 1; expect_error "$pattern"; [ -z "$out" ] || complain 'it says more than why'; }
    lines() { printf "$1" >h; malformed "$2" --from "megatron:h"; }
    lines 'A=1\ntouch made; torchrun a.py' 'h: line 2: touch: a script is read, not run'
    lines 'X=$(touch made)\nY=`touch made`\neval $X' 'h: line 3: eval: a script is read'
    lines 'A="--num-layers 2\n\n' 'h: line 1: a quote is not closed: "'
    lines 'A=(--x 2\n\n' 'h: line 1: an array is not closed'
    lines 'for i in 1 2; do torchrun a.py; done' 'h: line 1: for: a script is read'
    lines 'if [ -n "$A" ]; then\npython a.py' 'h: line 2: an if has no fi'
    lines 'python a.py --x ${A^^}' 'h: line 1: .*are expanded'
    lines 'f() { echo; }' 'line 1: a sign \('
    lines 'cat <<EOF > x\nEOF' 'line 1: a text of the script itself'
    lines 'python a.py\n\npython b.py' 'line 3: a second program is started; the first was in line 1'
    lines 'echo hello' 'h: starts no Python program'
    { echo X=aaaaaaaaaaaaaaaa; for _ in 1 2 3 4 5 6 7 8 9; do echo 'X=$X$X$X$X'; done; echo 'python a.py $X'; } >h
    malformed 'h: line 7: the words expand to too many bytes' --from megatron:h
    lines '\000\000' 'h: has a byte 0'
    printf -- '--num-layers 99999999999999999999 --hidden-size 64 --num-attention-heads 8 --seq-length 64' >h
    refused 'num-layers 99999999999999999999: must be a whole number from 1 to 1024' --from h --dp 1
    [ ! -e made ] || complain 'a command of the script has run'
    toml() { printf "$1" >h.toml; malformed "$2" --from torchtitan:h.toml --dp 1; }
    toml '[model]\nname = "llama3\n' 'h.toml: line 2: a quote is not closed on its line'
    toml '[model]\nname = """x"""\n' 'line 2: a text of several lines'
    toml '[[model]]\n' 'line 1: a list of tables is not read'
    toml '[model]\nname = {a = 1}\n' 'line 2: a table inside a line'
    toml '[model]\na.b = 1\n' 'line 2: a key with dots'
    toml '[model]\nx = 1979-05-27\n' 'line 2: a value must be'
    toml '[model]\nx = [[[[[[1]]]]]]\n' 'line 2: lists are nested too deeply'
    toml '[model]\nname = "a"\nname = "b"\n' 'line 3: name stands there twice'
    toml '[model]\nname = "a"\n[job]\n[model]\nflavor = "b"\n' 'line 4: a table stands there twice'
    printf '[model]\nnome = "a"\n' >h.toml; refused 'line 2: model.nome a: is no key .*did you mean model.name' --from h.toml --dp 1
    printf '{"a":%.0s' $(seq 50) >h.json; malformed 'h.json' --from deepspeed:h.json
    printf '{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":1}}}}}}}}}' >h.json; malformed 'nested too deeply' --from deepspeed:h.json --model tiny
    printf 'hello\n' >h; malformed 'h: looks like no configuration of deepspeed, torchtitan, accelerate' --from h
    malformed 'no-such-file' --from no-such-file
    refused '--from: needs a file|--from: .*value' --from
    mkdir folder; malformed 'folder' --from folder
}

test_json() {
    gpt3
    run plan --from gpt3.sh --memory 0 --json -; expect_status 0
    expect_out '"framework":	"megatron"'
    expect_out '"key":	"tensor-model-parallel-size"'
    expect_out '"becomes":	"not in this plan"'
    run list frameworks; expect_status 0; expect_out 'Megatron-LM core_v0.16.1 \(55ac7082517c\)'
}

run_tests test_gpt3 test_llama3 test_mixtral test_arguments test_torchtitan test_torchtitan_defaults test_deepspeed test_accelerate test_contradictions test_hostile \
    test_json
