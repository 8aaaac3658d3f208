/* megatron_keys.c -- lists the arguments of Megatron-LM: those that megatron.c reads, with their defaults, and those
 * that need no arithmetic.  Facts: NVIDIA/Megatron-LM, core_v0.16.1 (55ac7082517c): megatron/training/arguments.py,
 * training_config.py, common_config.py, megatron/core/transformer/transformer_config.py, model_parallel_config.py. */
#include "emulated_devices/run/from/megatron_keys.h"

const struct framework_key megatron_keys[] = {
    { "launcher.program", NULL },
    { "launcher.nproc_per_node", NULL }, { "launcher.nproc-per-node", NULL }, { "launcher.nnodes", NULL },
    { "launcher.num_gpus", NULL }, { "launcher.num_nodes", NULL },
    { "tensor-model-parallel-size", "1" }, { "sequence-parallel", "false" }, { "tp-comm-overlap", "false" },
    { "pipeline-model-parallel-size", "1" }, { "num-layers-per-virtual-pipeline-stage", NULL },
    { "num-virtual-stages-per-pipeline-rank", NULL }, { "overlap-p2p-comm", "true" },
    { "decoder-first-pipeline-num-layers", NULL }, { "decoder-last-pipeline-num-layers", NULL },
    { "account-for-embedding-in-pipeline-split", "false" }, { "account-for-loss-in-pipeline-split", "false" },
    { "context-parallel-size", "1" }, { "cp-comm-type", "p2p" }, { "hierarchical-context-parallel-sizes", NULL },
    { "expert-model-parallel-size", "1" }, { "expert-tensor-parallel-size", NULL },
    { "use-distributed-optimizer", "false" }, { "num-distributed-optimizer-instances", "1" },
    { "overlap-grad-reduce", "false" }, { "overlap-param-gather", "false" }, { "ddp-bucket-size", NULL },
    { "use-torch-fsdp2", "false" }, { "torch-fsdp2-no-reshard-after-forward", "false" },
    { "use-megatron-fsdp", "false" }, { "data-parallel-sharding-strategy", "no_shard" },
    { "num-layers", NULL }, { "hidden-size", NULL }, { "ffn-hidden-size", NULL }, { "num-attention-heads", NULL },
    { "group-query-attention", "false" }, { "num-query-groups", "1" }, { "kv-channels", NULL },
    { "seq-length", NULL }, { "max-position-embeddings", NULL }, { "position-embedding-type", "learned_absolute" },
    { "use-rotary-position-embeddings", "false" }, { "no-position-embedding", "false" },
    { "normalization", "LayerNorm" }, { "disable-bias-linear", "false" }, { "add-qkv-bias", "false" },
    { "swiglu", "false" }, { "squared-relu", "false" }, { "qk-layernorm", "false" },
    { "untie-embeddings-and-output-weights", "false" }, { "vocab-size", NULL }, { "padded-vocab-size", NULL },
    { "make-vocab-size-divisible-by", "128" }, { "tokenizer-type", NULL },
    { "attention-dropout", "0.1" }, { "hidden-dropout", "0.1" },
    { "num-experts", NULL }, { "moe-router-topk", "2" }, { "moe-ffn-hidden-size", NULL },
    { "moe-shared-expert-intermediate-size", NULL }, { "moe-token-dispatcher-type", "allgather" },
    { "micro-batch-size", NULL }, { "global-batch-size", NULL },
    { "bf16", "false" }, { "fp16", "false" }, { "grad-reduce-in-bf16", "false" },
    { "accumulate-allreduce-grads-in-fp32", "false" }, { "main-grads-dtype", "fp32" },
    { "loss-scale", NULL }, { "initial-loss-scale", "4294967296" },
    { "optimizer", "adam" }, { "clip-grad", "1.0" }, { "optimizer-cpu-offload", "false" },
    { "optimizer-offload-fraction", "1.0" },
    { "recompute-granularity", NULL }, { "recompute-method", NULL }, { "recompute-num-layers", NULL },
    { "recompute-activations", "false" }, { "recompute-modules", NULL },
    { NULL, NULL },
};

const struct framework_group megatron_groups[] = {
    { FATE_ASSUMED, "the script is read as if this were so", "script.*" },
    { FATE_NOTHING, "fields that are null, or that another field decides", "field.*" },
    { FATE_NOTHING, "of the launcher",
      "launcher.node_rank launcher.node-rank launcher.master_addr launcher.master_port launcher.master-addr "
      "launcher.master-port launcher.rdzv_id launcher.rdzv-id launcher.rdzv_backend launcher.rdzv-backend "
      "launcher.rdzv_endpoint launcher.rdzv-endpoint launcher.rdzv_conf launcher.standalone launcher.max_restarts "
      "launcher.max-restarts launcher.log_dir launcher.log-dir launcher.redirects launcher.tee launcher.role "
      "launcher.local-ranks-filter launcher.use_env launcher.hostfile launcher.include launcher.exclude "
      "local-rank distributed-backend distributed-timeout-minutes distributed-timeout-seconds-after-init "
      "lazy-mpu-init disable-gloo-process-groups nccl-communicator-config-path high-priority-stream-groups" },
    { FATE_NOTHING, "data and tokenizer",
      "data-path split train-data-path valid-data-path test-data-path data-args-path per-split-data-args-path "
      "data-cache-path mock-data no-mmap-bin-files vocab-file merge-file vocab-extra-ids tokenizer-model "
      "tokenizer-metadata tokenizer-special-tokens legacy-tokenizer tiktoken-pattern tiktoken-num-special-tokens "
      "tiktoken-special-tokens tokenizer-sentencepiece-legacy tokenizer-hf-use-fast "
      "tokenizer-hf-include-special-tokens trust-remote-code num-workers dataloader-type sample-rate mask-prob "
      "short-seq-prob reset-position-ids eod-mask-loss no-create-attention-mask-in-dataloader "
      "num-dataset-builder-threads object-storage-cache-path mid-level-dataset-surplus allow-ambiguous-pad-tokens "
      "per-dataset-sequences-path dataloader-fast-cache-load dataloader-defer-npy-index-mmap fim-data fim-rate "
      "fim-spm-rate fim-split-sample fim-fragment-rate" },
    { FATE_NOTHING, "length of the run, and rates of learning",
      "train-iters train-samples exit-interval exit-duration-in-mins exit-signal-handler exit-signal skip-train lr "
      "min-lr "
      "decoupled-lr decoupled-min-lr lr-decay-style lr-wsd-decay-style lr-decay-iters lr-decay-samples "
      "lr-wsd-decay-iters lr-wsd-decay-samples lr-warmup-fraction lr-warmup-iters lr-warmup-samples lr-warmup-init "
      "weight-decay start-weight-decay end-weight-decay weight-decay-incr-style adam-beta1 adam-beta2 adam-eps "
      "sgd-momentum apply-wd-to-qk-layernorm override-opt_param-scheduler override-opt-param-scheduler "
      "use-checkpoint-opt_param-scheduler use-checkpoint-opt-param-scheduler iterations-to-skip warmup" },
    { FATE_NOTHING, "initial weights and seeds",
      "init-method-std init-method-xavier-uniform embedding-init-method-std seed data-parallel-random-init "
      "te-rng-tracker inference-rng-tracker use-cpu-initialization no-initialization init-model-with-meta-device" },
    { FATE_NOTHING, "checkpoints",
      "save load save-interval persistent-save-interval save-retain-interval no-save-optim no-save-rng no-load-optim "
      "no-load-rng finetune pretrained-checkpoint ckpt-step use-checkpoint-args use-mp-args-from-checkpoint-args "
      "no-use-tokenizer-model-from-checkpoint-args exit-on-missing-checkpoint ckpt-format auto-detect-ckpt-format "
      "use-dist-ckpt dist-ckpt-format dist-ckpt-strictness ckpt-fully-parallel-save no-ckpt-fully-parallel-save "
      "ckpt-fully-parallel-load ckpt-assume-constant-structure async-save use-persistent-ckpt-worker "
      "non-persistent-save-interval non-persistent-ckpt-type non-persistent-global-ckpt-dir "
      "non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo adlr-autoresume adlr-autoresume-interval "
      "ckpt-convert-format ckpt-convert-save" },
    { FATE_NOTHING, "logs, profiles and evaluation",
      "log-interval log-params-norm log-throughput log-progress log-num-zeros-in-grad log-energy log-straggler "
      "log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard "
      "log-world-size-to-tensorboard no-log-loss-scale-to-tensorboard log-loss-scale-to-tensorboard "
      "log-memory-interval log-device-memory-used log-max-attention-logit timing-log-level timing-log-option "
      "tensorboard-dir tensorboard-log-interval tensorboard-queue-size wandb-project wandb-exp-name wandb-save-dir "
      "wandb-entity logging-level profile profile-step-start profile-step-end profile-ranks use-pytorch-profiler "
      "record-memory-history memory-snapshot-path eval-iters eval-interval full-validation multiple-validation-sets "
      "no-one-logger one-logger-project one-logger-run-name one-logger-async app-tag-run-name app-tag-run-version "
      "config-logger-dir moe-per-layer-logging no-barrier-with-level-1-timing straggler-minmax-count "
      "straggler-ctrlr-port disable-straggler-on-startup" },
    { FATE_NOTHING, "checks and housekeeping",
      "manual-gc manual-gc-interval no-manual-gc-eval empty-unused-memory-level no-check-for-nan-in-loss-and-grad "
      "check-for-large-grads check-for-spiky-loss check-weight-hash-across-dp-replicas-interval train-sync-interval "
      "rerun-mode error-injection-rate error-injection-type result-rejected-tracker-filename enable-experimental "
      "deterministic-mode calc-ft-timeouts enable-ft-package ft-num-warmup-iters disable-msc" },
    { FATE_NOTHING, "which code computes the same: a plan's operations are fused as in its device's tables",
      "use-mcore-models transformer-impl attention-backend use-flash-attn no-masked-softmax-fusion "
      "no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion no-persist-layer-norm "
      "no-gradient-accumulation-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl disable-jit-fuser "
      "moe-grouped-gemm moe-permute-fusion moe-router-fusion attention-softmax-in-fp32 "
      "apply-query-key-layer-scaling no-scatter-gather-tensors-in-pipeline no-align-grad-reduce "
      "no-align-param-gather ddp-average-in-collective no-gradient-reduce-div-fusion "
      "no-async-tensor-model-parallel-allreduce no-barrier-with-L1-time use-fused-weighted-squared-relu "
      "tp-comm-bootstrap-backend tp-comm-overlap-cfg pin-cpu-grads no-pin-cpu-grads no-pin-cpu-params "
      "overlap-cpu-optimizer-d2h-h2d use-torch-optimizer-for-cpu-offload" },
    { FATE_NOTHING, "numbers of the model that change neither memory nor time",
      "rotary-base rotary-percent rotary-interleaved rotary-seq-len-interpolation-factor use-rope-scaling "
      "rope-scaling-factor norm-epsilon apply-layernorm-1p layernorm-zero-centered-gamma calculate-per-token-loss "
      "moe-aux-loss-coeff moe-z-loss-coeff moe-router-load-balancing-type moe-router-score-function "
      "moe-router-pre-softmax moe-router-dtype moe-router-topk-scaling-factor moe-router-enable-expert-bias "
      "moe-router-bias-update-rate moe-router-num-groups moe-router-group-topk moe-input-jitter-eps "
      "loss-scale-window min-loss-scale hysteresis fp16-lm-cross-entropy openai-gelu "
      "moe-router-force-load-balancing apply-residual-connection-post-layernorm" },
    { FATE_OUTSIDE, "fp8 and fp4: products would be up to twice as fast, and weights or saved inputs smaller; the plan "
                    "computes in the 16-bit format",
      "fp8-format fp4-format fp8-param-gather fp4-param-gather te-precision-config-file keep-fp8-transpose-cache "
      "reuse-grad-buf-for-mxfp8-param-ag" },
    { FATE_NOTHING, "details of fp8-format and fp4-format, which are not in the plan",
      "fp8-recipe fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo no-fp8-wgrad "
      "first-last-layers-bf16 num-layers-at-start-in-bf16 num-layers-at-end-in-bf16 fp4-recipe "
      "moe-router-padding-for-fp8 moe-router-padding-for-quantization" },
    { FATE_OUTSIDE, "the first steps have smaller batches; the plan is of a step with the whole batch",
      "rampup-batch-size decrease-batch-size-if-needed" },
    { FATE_OUTSIDE, "a layout of its own: the plan spreads layers evenly; say --stage-layers to cut them as it does",
      "pipeline-model-parallel-layout" },
    { FATE_OUTSIDE, "the plan's layers are all alike: memory and time of the others would differ",
      "moe-layer-freq mtp-num-layers mtp-loss-scaling-factor window-size window-attn-skip-freq "
      "hybrid-override-pattern hybrid-attention-ratio hybrid-mlp-ratio no-rope-freq "
      "heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json" },
    { FATE_OUTSIDE, "rows beyond a capacity would be dropped or padded; the plan's experts take all rows, evenly",
      "moe-expert-capacity-factor moe-pad-expert-input-to-capacity moe-token-drop-policy" },
    { FATE_OUTSIDE, "saved inputs of layers would be cut over tp, or moved to the host; the plan keeps them whole",
      "distribute-saved-activations cpu-offloading-num-layers fine-grained-activation-offloading offload-modules "
      "min-offloaded-tensor-size" },
    { FATE_OUTSIDE, "the optimizer's state would have other formats; the plan has fp32 masters and moments",
      "use-precision-aware-optimizer main-params-dtype exp-avg-dtype exp-avg-sq-dtype" },
    { FATE_OUTSIDE, "messages would be hidden, or sent, differently; the plan's are those of its schemes",
      "overlap-moe-expert-parallel-comm delay-wgrad-compute moe-shared-expert-overlap "
      "overlap-p2p-communication-warmup-flush microbatch-group-size-per-virtual-pipeline-stage "
      "defer-embedding-wgrad-compute wgrad-deferral-limit overlap-param-gather-with-optimizer-step use-nccl-ub "
      "use-sharp sharp-enabled-group ddp-num-buckets ddp-pad-buckets-for-high-nccl-busbw "
      "ddp-reduce-scatter-with-fp32-accumulation moe-enable-deepep moe-flex-dispatcher-backend moe-deepep-num-sms "
      "moe-hybridep-num-sms suggested-communication-unit-size fsdp-double-buffer outer-dp-sharding-strategy "
      "create-all-gather-group enable-full-sharding-in-hsdp tp-comm-overlap-rs-dgrad no-tp-comm-overlap-ag "
      "no-tp-comm-overlap-rs no-tp-comm-bulk-dgrad no-tp-comm-bulk-wgrad no-tp-comm-split-ag no-tp-comm-split-rs" },
    { FATE_OUTSIDE, "CUDA graphs: launches of kernels would take less; the plan has those of its cluster",
      "enable-cuda-graph cuda-graph-impl cuda-graph-scope external-cuda-graph cuda-graph-warmup-steps" },
    { FATE_OUTSIDE, "attention inside documents: fewer pairs of tokens; the plan's is causal over whole sequences",
      "reset-attention-mask sft" },
    { FATE_OUTSIDE, "the order of ranks on nodes would differ: messages of pp or dp would be nearer",
      "use-tp-pp-dp-mapping" },
    { FATE_OUTSIDE, "the residual stream would be fp32: twice its bytes", "fp32-residual-connection" },
    { FATE_NOTHING, NULL, NULL },
};
