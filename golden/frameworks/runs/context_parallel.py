#!/usr/bin/env python3
"""PyTorch's context_parallel on two processes: sequences in head-tail order, ring attention; DDP adds up the gradients."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.nn.parallel import DistributedDataParallel

import common
from orrery_dump import Recorder

RANKS = 2
aten = torch.ops.aten


class RingAttention(torch.autograd.Function):
    """context_parallel has no rule for the CPU's attention: its own ring with the CPU's kernels."""

    @staticmethod
    def forward(ctx, q, k, v, group, scale):
        ctx.group, ctx.scale = group, scale
        out, sums = ring._templated_ring_attention(group, 2, aten._scaled_dot_product_flash_attention_for_cpu, q, k, v, is_causal=True, scale=scale)
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, sums = ctx.saved_tensors
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        return (*ring._templated_ring_attention_backward(ctx.group, 2, kernel, grad.contiguous(), "grad_out", q, k, v, out, sums, True, dropout_p=0.0,
                                                         scale=ctx.scale)[:3], None, None)


def run(golden, out, case):
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("cp",))
    model = DistributedDataParallel(golden.model(common.DTYPES[case.dtype]))
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode=("cp", "ddp"), dtype=case.dtype)
    recorder.start()

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        # transformers takes positions in head-tail order for packed sequences and makes a mask; here it is always causal.
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return RingAttention.apply(q, k, v, mesh.get_group(), scale)

    def step_of(step):
        ids, labels, positions = golden.ids[step].clone(), golden.labels[step].clone(), torch.arange(golden.tokens)[None].clone()
        if case.bug == "shift-after-cut":                           # transformers' labels, [t] is token t, are cut first and shifted then
            labels = labels.roll(1, 1)
        with context_parallel(mesh, buffers=[ids, labels, positions], buffer_seq_dims=[1, 1, 1]):
            if case.bug == "shift-after-cut":
                labels.copy_(torch.nn.functional.pad(labels, (0, 1), value=common.IGNORED)[:, 1:])
            if step == 0:
                recorder.microbatch(positions=positions[0], times=1 / RANKS)
            torch.nn.functional.scaled_dot_product_attention = attention
            loss = common.summed_loss(model(input_ids=ids, position_ids=positions).logits, labels) / golden.counted(step)
            (loss * RANKS).backward()
        return common.summed_over(loss)

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.launch(run, RANKS, bugs=("shift-after-cut",))
