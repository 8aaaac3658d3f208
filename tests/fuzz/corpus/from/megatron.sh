#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NODES=${SLURM_NNODES:-2}
WORLD=$((8*$NODES))
CHECKPOINT=$1 # a folder
ARGS=(
    --num-layers 24 \
    --hidden-size 2048
    --num-attention-heads "16"
    --seq-length 2048 --max-position-embeddings 2048
)
MORE="--micro-batch-size 2 --global-batch-size 64"
if [[ "$MODE" == "x" ]] || [ -n "${KEY}" ]; then
    ARGS+=(--fp16)
elif [ ! -f pretrain.py ]; then
    exit 1
else
    ARGS+=("--bf16 --clip-grad 1.0")
fi
mkdir -p "$(dirname "$CHECKPOINT")" && echo 'ready' > /dev/null
torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py ${ARGS[@]} $MORE --save $CHECKPOINT "${@:2}" 2>&1 | tee log
