#!/usr/bin/env python3
"""Golden losses of logits: the functions of PyTorch, transformers and Megatron Core, and autograd, in fp64.

    golden/make_losses.py            write golden/losses.safetensors and its line of golden/MANIFEST
    golden/make_losses.py --check    make it again, compare with the stored one and name the tensors that differ

Logits are [B, S, V], labels [B, S]; -100 is ignored.  A case has the conventions that its code has (`as`), with the loss and the
gradient of the logits.  The packages' code is unchanged.  What a step does around a function is written here, with the file that
does it.  TRL's means are lines of a method, and t5x is in JAX: both are written again here.  golden/README.md says what is in the file.
"""
import os
import pathlib
import sys
import types
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["TORCHDYNAMO_DISABLE"] = "1"
warnings.simplefilter("ignore")

try:
    import importlib.metadata
    import numpy as np
    import torch
    from torch.nn import functional
    from transformers import trainer_pt_utils
    from megatron.core.tensor_parallel import cross_entropy
    from megatron.core.pipeline_parallel import schedules
except ImportError as missing:
    sys.exit(f"make_losses.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "losses.safetensors"
SEED, B, S, V, IGNORED = 47, 5, 6, 11, -100
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by


class Wide:
    """`torch` for a released module: its float32 is float64, and an all-reduce over one rank does nothing."""
    distributed = types.SimpleNamespace(all_reduce=lambda x, op=None, group=None: x, ReduceOp=torch.distributed.ReduceOp,
                                        _coalescing_manager=torch.distributed._coalescing_manager)

    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


def draw():
    """Sequences with 6, 4, 1, 0 and 3 labels, so that no two means agree."""
    x = torch.from_numpy(3 * philox.normal(SEED, "losses/logits", B * S * V).reshape(B, S, V).astype(np.float64))
    y = torch.from_numpy((philox.uniform(SEED, "losses/labels", B * S) * V).astype(np.int64).reshape(B, S))
    for b, labels in enumerate((6, 4, 1, 0, 3)):
        y[b, labels:] = IGNORED
    return x, y


# ---- the code ------------------------------------------------------------------------------------------------------------

def rows(x, y, **options):
    return functional.cross_entropy(x.reshape(-1, V), y.reshape(-1), ignore_index=IGNORED, **options)


def by_torch(x, y, smoothing=0.0):
    return rows(x, y, label_smoothing=smoothing)


def by_label_smoother(x, y, smoothing):
    """transformers, trainer_pt_utils.py: its sums in fp64."""
    trainer_pt_utils.torch = Wide()
    return trainer_pt_utils.LabelSmoother(epsilon=smoothing)({"logits": x}, y)


def by_megatron(x, y, smoothing):
    """tensor_parallel/cross_entropy.py on one rank; the mean over labels with calculate_per_token_loss."""
    cross_entropy.torch = Wide()
    cross_entropy.get_tensor_model_parallel_group = lambda: None
    cross_entropy.get_tensor_model_parallel_rank = lambda: 0
    cross_entropy.get_tensor_model_parallel_world_size = lambda: 1
    counts = y != IGNORED
    losses = cross_entropy.vocab_parallel_cross_entropy(x.clone(), y.clamp(min=0), smoothing)
    return (losses * counts).sum() / counts.sum()


def by_schedules(x, y, micros):
    """pipeline_parallel/schedules.py: each microbatch divides by its own labels, and then by their number."""
    config, total = types.SimpleNamespace(calculate_per_token_loss=False, timers=None, grad_scale_func=None, num_moe_experts=None, mtp_num_layers=None), 0
    for part in np.array_split(np.arange(B), micros):
        count = (y[part] != IGNORED).sum().to(torch.int)
        output, _ = schedules.forward_step_calc_loss(
            None, rows(x[part], y[part], reduction="sum"), lambda loss: (loss, count, {}), config, None, False, micros, [], 1, True)
        total = total + output
    return total


def by_accumulation(x, y, micros):
    """A loop of PyTorch with gradient accumulation, or DistributedDataParallel's mean over ranks."""
    return sum(rows(x[p], y[p]) / micros for p in np.array_split(np.arange(B), micros))


def by_rows(x, y):
    return rows(x, y, reduction="none").mean()


def by_grpo(x, y):
    """trl/trainer/grpo_trainer.py, _compute_loss, loss_type grpo."""
    per_token_loss, mask = rows(x, y, reduction="none").reshape(B, S), (y != IGNORED).double()
    return ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def by_dr_grpo(x, y, length):
    """trl/trainer/grpo_trainer.py, _compute_loss, loss_type dr_grpo."""
    per_token_loss, mask = rows(x, y, reduction="none").reshape(B, S), (y != IGNORED).double()
    return (per_token_loss * mask).sum() / (per_token_loss.size(0) * length)


def by_t5x(x, y, z, smoothing=0.0):
    """t5x losses.py, cross_entropy_with_logits, on soft targets of PyTorch; the mean over labels."""
    counts, log_z = y != IGNORED, torch.logsumexp(x, -1)
    losses = rows(x, y, reduction="none", label_smoothing=smoothing).reshape(B, S) + z * log_z.square()
    return (losses * counts).sum() / counts.sum()


CASES = {
    "torch": ("orrery", lambda x, y: by_torch(x, y)),
    "torch-smoothing": ("orrery,torch-smoothing", lambda x, y: by_torch(x, y, 0.1)),
    "transformers-smoothing": ("torch,label-smoothing=0.3", lambda x, y: by_label_smoother(x, y, 0.3)),
    "megatron-smoothing": ("orrery,megatron-smoothing", lambda x, y: by_megatron(x, y, 0.1)),
    "megatron-smoothing-more": ("megatron,label-smoothing=0.3", lambda x, y: by_megatron(x, y, 0.3)),
    "megatron-means": ("megatron,loss-mean=parts,loss-parts=2", lambda x, y: by_schedules(x, y, 2)),
    "accumulated": ("torch,loss-mean=parts,loss-parts=2", lambda x, y: by_accumulation(x, y, 2)),
    "added-twice": ("torch,loss-mean=parts,loss-parts=2,loss-divisor=0.5", lambda x, y: 2 * by_accumulation(x, y, 2)),
    "row-mean": ("torch,row-mean", by_rows),
    "sequence-mean": ("torch,sequence-mean", by_grpo),
    "loss-sum": ("torch,loss-sum", lambda x, y: rows(x, y, reduction="sum")),
    "dr-grpo": ("torch,loss-sum,loss-divisor=35", lambda x, y: by_dr_grpo(x, y, 7)),
    "palm-z": ("orrery,logits-z=0.01", lambda x, y: by_t5x(x, y, 0.01)),
    "palm-z-smoothed": ("orrery,logits-z=0.01,label-smoothing=0.2", lambda x, y: by_t5x(x, y, 0.01, 0.2)),
}


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double        # Megatron computes in fp32
    x, y = draw()
    tensors = {"logits": x.reshape(-1, V).numpy().astype("<f8"), "labels": y.numpy().astype("<i4")}
    metadata = {"generator": "golden/make_losses.py", "cases": " ".join(CASES), "numpy": np.__version__}
    for package in ("torch", "transformers", "megatron-core"):
        metadata[package] = importlib.metadata.version(package)
    for name, (convention, code) in CASES.items():
        logits = x.clone().requires_grad_()
        loss = code(logits, y)
        loss.backward()
        tensors.update({f"{name}/loss": loss.detach().numpy().reshape(1).astype("<f8"),
                        f"{name}/dlogits": logits.grad.reshape(-1, V).numpy().astype("<f8")})
        metadata[f"{name}.as"] = convention
    return tensors, metadata


def check():
    return tensor_file.compare("losses", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make golden losses of logits with PyTorch, transformers and Megatron Core.", FILE, make, check))
