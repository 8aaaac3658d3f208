#!/usr/bin/env python3
"""PyTorch's tensor parallelism by DTensor on two processes, with sequence parallelism between the matrices."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

import common
from orrery_dump import Recorder

RANKS = 2


def parallel(model, mesh):
    """Tokens are cut between the matrices; inside, heads and the columns of the feed-forward are."""
    row = RowwiseParallel(output_layouts=Shard(1))
    gathered = dict(input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()})
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(), "self_attn": PrepareModuleInput(**gathered),
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": row, "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": row})
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    return model


def norm_of(bug):
    """Clip by the global norm; with the bug, what every process has is added up, copies too."""
    def clip(parameters, limit):
        parameters = list(parameters)
        for p in parameters:                                        # vectors' parts are added up before they are scaled: they may cancel
            p.grad = p.grad.redistribute(placements=[Replicate()]) if p.ndim == 1 else p.grad
        if bug != "norm-counts-copies":
            return torch.nn.utils.clip_grad_norm_(parameters, limit)
        square = common.summed_over(sum(p.grad.to_local().square().sum() for p in parameters))
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, square.sqrt())
        return square.sqrt()
    return clip


def run(golden, out, case):
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    model = parallel(golden.model(common.DTYPES[case.dtype]), mesh)
    # What the program says of its sums: DTensor adds parts in bf16, whatever reduce_dtype was asked for.
    parts = 1 if case.bug == "reduce-dtype-ignored" else None
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode=("tp", "sp"), dtype=case.dtype, parts=parts)
    recorder.start()
    positions = torch.arange(golden.tokens)[None]

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        logits = model(input_ids=golden.ids[step], position_ids=positions).logits    # transformers would count the tokens that are here
        if case.bug == "logits-gathered-twice":
            logits = torch.cat([logits] * RANKS, -1)
        loss = common.summed_loss(logits, golden.labels[step]) / golden.counted(step)
        loss.backward()
        if case.bug == "norm-gradients-not-summed":                 # each process's part is taken for the whole
            for p in (p for p in model.parameters() if p.ndim == 1):
                p.grad = DTensor.from_local(p.grad.to_local(), mesh, [Replicate()], run_check=False)
        return loss.detach()

    common.train(golden, recorder, model, step_of, norm_of(case.bug), masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.launch(run, RANKS, bugs=("norm-gradients-not-summed", "norm-counts-copies", "logits-gathered-twice", "reduce-dtype-ignored"))
