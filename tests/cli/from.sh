# from.sh -- files of released examples, retyped, for tests of `orrery plan --from`.

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

refused() {                                                     # refused "PATTERN" WORDS..
    local pattern=$1; shift
    run plan "$@"; expect_status 2; expect_error "$pattern"
    [ -z "$out" ] || complain 'it says more than why'
}
