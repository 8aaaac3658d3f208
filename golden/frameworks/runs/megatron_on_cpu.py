"""What Megatron-Core 0.16.1 lacks to train on a CPU.  Import this before the rest of it.

It asks for the current GPU when it makes buffers, keeps the state of the GPU's random numbers, makes masks on "cuda", and its RMSNorm
without Transformer Engine refuses sequence parallelism.
"""
import contextlib

import torch

torch.cuda.current_device = lambda: torch.device("cpu")
torch.Tensor.cuda = lambda self, *_, **__: self
torch.nn.Module.cuda = lambda self, *_, **__: self

from megatron.core.models import backends
from megatron.core.tensor_parallel import layers, random
from megatron.core.transformer import dot_product_attention
from megatron.core.fusions import fused_softmax

random.CudaRNGStatesTracker.fork = lambda self, *_: contextlib.nullcontext()
layers.te_general_gemm = None


def causal_mask(length, *_):
    return torch.triu(torch.ones(length, length), diagonal=1).bool()


for module in (fused_softmax, dot_product_attention):
    if hasattr(module, "get_default_causal_mask"):
        module.get_default_causal_mask = causal_mask


class Norm(torch.nn.RMSNorm):
    """RMSNorm whose weight says that its gradient is a part of a sum."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel


backends.LocalSpecProvider.layer_norm = lambda self, rms_norm=False, for_qk=False, **_: Norm
