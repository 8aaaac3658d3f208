# `orrery plan --from` reads what starts a run of Megatron-LM, torchtitan, DeepSpeed or accelerate: the plan is the same, to the byte, as that of words
# written by hand; each key is said, assumed, outside of a plan or without effect, and what is unknown is refused by name.
# Facts of the files: the released examples that each test names.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/from.sh"

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

test_gpt3() {
    gpt3
    same '--model gpt3-175b --vocabulary 51200 --tp 8 --pp 16 --dp 1 --zero 0 --seq 2048 --batch 32 --micro 32 --dtype fp16 --grad-dtype fp16
          --as megatron --clip 1 --dropout 0.1 --cluster h100-infiniband' gpt3.sh --cluster h100-infiniband
    run plan --from gpt3.sh --memory 0 --cluster h100-infiniband
    expect_out '^  --tensor-model-parallel-size 8 +--tp 8$'
    expect_out '^  --rampup-batch-size 16 16 5859375 '
    expect_out '^  checkpoints: --save$'
    expect_no_out 'does not name the machine'
    # Words of the command line stand for those of the file, and the table says so.
    run plan --from gpt3.sh --memory 0 --tp 4 --dp 2 --micro 16
    expect_out 'tp 8, but the command line says --tp 4$'
    expect_out 'without --cluster NAME it is toy'
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
    same '--model llama3-8b --vocabulary 128384 --dp 8 --data-parallel zero1-overlap --bucket 80000000 --seq 8192 --batch 128 --micro 16 --dtype bf16 --grad-dtype bf16
          --as megatron --clip 1 --dropout 0 --cluster h100-infiniband' llama.sh --cluster h100-infiniband
    run plan --from llama.sh --memory 0 --cluster h100-infiniband
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
    same '--model mixtral-8x7b --vocabulary 32000 --pp 4 --dp 8 --ep 8 --dispatch alltoall --data-parallel zero1-overlap --bucket 160000000 --seq 4096 --batch 256
          --micro 32 --dtype bf16 --as megatron --clip 1 --dropout 0 --cluster h100-infiniband' mixtral.sh --cluster h100-infiniband
    run plan --from mixtral.sh --memory 0 --cluster h100-infiniband; expect_out 'WANDB_API_KEY is not set'
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

# Uneven stages: layers of the first and the last device, or ends that count as a layer; blocks are recomputed stage by stage.
test_uneven_stages() {
    local few=${args/--num-layers-per-virtual-pipeline-stage 6/} rest
    rest='--model gpt2:L=24,D=2048,H=16,F=8192,S=2048 --vocabulary 50688 --tp 4 --pp 4 --dp 2 --tensor 1d-sp --zero 1 --seq 2048 --batch 64
          --micro 16 --dtype bf16 --as megatron --clip 1 --dropout 0'
    few=${few/parallel-size 2/parallel-size 4}
    printf '%s\n' "$few" --decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 6 >c.txt
    same "$rest --stage-layers 4,7,7,6" c.txt --dp 2
    printf '%s\n' "$few" --decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 8 --num-virtual-stages-per-pipeline-rank 2 \
        --recompute-granularity full --recompute-method block --recompute-num-layers 1 >d.txt
    same "$rest --schedule interleaved --chunks 2 --stage-layers 2,3,3,4,2,3,3,4 --recompute 0,2,5,8,12,14,17,20" d.txt --dp 2
    printf '%s\n' "${few/num-layers 24/num-layers 22}" --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split >e.txt
    same "${rest/L=24/L=22} --stage-layers ends" e.txt --dp 2
    printf '%s\n' "$few" --decoder-first-pipeline-num-layers 5 >f.txt
    refused 'decoder-first-pipeline-num-layers 5: leaves 19 of --num-layers 24 to 3 devices' --from f.txt --dp 2
    printf '%s\n' "$few" --decoder-first-pipeline-num-layers 6 --account-for-loss-in-pipeline-split >g.txt
    refused 'account-for-loss-in-pipeline-split: and --decoder-first-pipeline-num-layers: give one' --from g.txt --dp 2
}

# Megatron-LM core_v0.16.1, examples/gpt3/gpt_config.yaml: the file of --yaml-cfg, with fewer layers and fields.
test_yaml() {
    cat >gpt.yaml <<'END'
# WARNING: Yaml configs is currently an experimental feature
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: null
  ffn_hidden_size: null
  hidden_dropout: 0.0
  attention_dropout: 0.0
  add_bias_linear: False
  activation_func: swiglu
  num_moe_experts: null
  recompute_granularity: null
  fp8: null
  fp8_interval: 1
  normalization: "LayerNorm"
  moe_router_topk: 2
model_parallel:
  tensor_model_parallel_size: 2
  sequence_parallel: True
  bf16: True
  pipeline_dtype: null
micro_batch_size: 2
global_batch_size: 128
rampup_batch_size: [32, 32, 65324160] 
add_position_embedding: False
make_vocab_size_divisible_by: 128
untie_embeddings_and_output_weights: True
position_embedding_type: rope
max_position_embeddings: 4096
optimizer: adam
clip_grad: 1.0
use_distributed_optimizer: False
overlap_param_gather: False
vocab_size: 32000
seq_length: 4096
tokenizer_type: GPTSentencePieceTokenizer
profile_ranks: [0]
END
    # A gated feed-forward is int(4 1024 2/3 / 64) 64 = 2688 wide.
    same '--model llama3-8b:L=24,D=1024,H=16,K=16,F=2688 --vocabulary 32000 --tp 2 --dp 4 --tensor 1d-sp --zero 0 --seq 4096 --batch 128 --micro 16
          --dtype bf16 --as megatron --clip 1 --dropout 0 --cluster h100-infiniband' gpt.yaml --dp 4 --cluster h100-infiniband
    run plan --from gpt.yaml --dp 4 --memory 0 --cluster h100-infiniband; expect_out '^  --rampup-batch-size 32 32 65324160 +the first steps'
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
    run plan --from 405b.toml --dp 16 --memory 0 --cluster h100-infiniband
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
    same '--model llama3-8b --pp 2 --cp 2 --dp 8 --data-parallel fsdp-once --shard-group 8 --attention ring-zigzag
          --schedule interleaved --chunks 2 --seq 2048 --batch 64 --micro 8 --dtype bf16 --as torch --clip 1
          --recompute 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31' a.toml
    printf '[model]\nname = "qwen3"\nflavor = "0.6B"\n[parallelism]\ndata_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = "none"\n' >q.toml
    run plan --from q.toml --memory 0 --cluster h100-infiniband
    expect_out '^orrery plan --model qwen3-tiny:L=28,D=1024,H=16,K=8,A=128,F=3072,V=151936 '
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

run_tests test_gpt3 test_llama3 test_mixtral test_arguments test_uneven_stages test_yaml test_torchtitan test_torchtitan_defaults test_deepspeed test_accelerate
