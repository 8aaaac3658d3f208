#!/usr/bin/env python3
"""Golden tensors for ref/model/transformer.h: what PyTorch's autograd makes of the models of Hugging Face transformers.

    golden/make_golden.py            write golden/*.safetensors and golden/MANIFEST
    golden/make_golden.py NAME ...   write only these, such as mistral-windows
    golden/make_golden.py --check    make them again, compare with the stored ones and name the tensors that differ
    golden/make_golden.py --bounds   note in golden/MANIFEST what `orrery golden --measure` has written

Needs numpy, PyTorch and transformers; the versions that made the files are in their metadata.  golden/README.md says what
is in a file.  Nothing here is shared with the C: weights are drawn by golden/philox.py, the models are those of transformers
(golden/families.py), gradients are autograd's, steps are torch.optim's.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile

# Set before PyTorch is imported: one thread, and the same kernels on every processor that has AVX2, so that bits repeat.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell",
                   "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "TRANSFORMERS_VERBOSITY": "error"})

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"make_golden.py: {missing}; golden/README.md says what to install")

import families
import philox
import tensor_file
from families import IGNORE

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240229
STEPS = 3
ROUNDING = 1e-13                                # relative: what another PyTorch or processor may change in a computed tensor

# Small and nasty: odd heads and head widths, fewer key/value heads than heads, widths that no vector register divides, a prime
# vocabulary, fewer tokens than positions, a batch that two does not divide.  `batch` sequences of `tokens`; with `every_token` the
# first batch has each token of the vocabulary, as input and as label.
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)   # keeps, blends and divides
# Of eight pairs two are kept, two blended, four divided; the second and the fifth are close to where that changes.
STRETCHED = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=48)
SHAPES = {
    "gpt2-minimal": dict(L=1, H=1, D=3, F=1, V=2, S=1, tied=True, batch=1, tokens=1),
    "gpt2-tied": dict(L=2, H=3, D=21, F=37, V=61, S=11, tied=True, batch=3, tokens=7),
    "gpt2-untied": dict(L=3, H=3, D=15, F=41, V=61, S=9, tied=False, batch=3, tokens=7),
    "gpt2-vocabulary": dict(L=1, H=8, D=16, F=11, V=29, S=13, tied=True, batch=3, tokens=11, eps=1e-3, every_token=True),
    "llama-minimal": dict(L=1, H=1, K=1, D=2, F=1, V=2, S=1, tied=True, batch=1, tokens=1, theta=10000.0),
    "llama-grouped": dict(L=3, H=9, K=3, D=18, F=37, V=61, S=11, tied=False, batch=3, tokens=7, theta=10000.0),
    "llama-scaled": dict(L=2, H=3, K=1, D=18, F=41, V=61, S=9, tied=True, batch=3, tokens=7, theta=500.0, llama3=LLAMA3),
    "llama-wide": dict(L=1, H=6, K=2, D=48, F=7, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, linear=2.5, eps=3e-4, every_token=True),
    "llama-stretched": dict(L=1, H=2, K=1, D=32, F=7, V=17, S=13, tied=False, batch=3, tokens=9, theta=100.0, llama3=STRETCHED, every_token=True),
    "mixtral-minimal": dict(L=1, H=1, K=1, D=2, F=1, V=2, S=1, tied=True, batch=1, tokens=1, theta=1e6, E=1, k=1, balance=0.05, z=0.01),
    "mixtral-top2": dict(L=2, H=3, K=1, D=12, F=19, V=61, S=9, tied=False, batch=3, tokens=7, theta=1e6, E=5, k=2, balance=0.05, z=0.01),
    "mixtral-sparse": dict(L=3, H=3, K=3, D=18, F=11, V=61, S=5, tied=True, batch=3, tokens=3, theta=1e4, E=11, k=3, balance=0.05, z=0.01),
    "qwen2-grouped": dict(L=3, H=9, K=3, D=18, F=37, V=61, S=11, tied=False, batch=3, tokens=7, theta=1e6),
    "qwen2-tied": dict(L=1, H=6, K=2, D=48, F=7, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, eps=3e-4, every_token=True),
    "qwen3-wider": dict(L=3, H=6, K=3, D=18, A=4, F=37, V=61, S=11, tied=False, batch=3, tokens=7, theta=1e6),
    "qwen3-narrower": dict(L=1, H=6, K=2, D=48, A=6, F=7, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, eps=3e-4, every_token=True),
    "mistral-windows": dict(L=2, H=6, K=3, D=18, A=4, F=19, V=61, S=11, tied=False, batch=3, tokens=9, theta=10000.0, window=4),
    "mistral-itself": dict(L=1, H=4, K=1, D=16, A=4, F=11, V=17, S=5, tied=True, batch=2, tokens=5, theta=500.0, window=1),
    "qwen2-windows": dict(L=3, H=9, K=3, D=18, F=19, V=61, S=11, tied=False, batch=3, tokens=9, theta=1e6, window=3, kinds="sfs"),
    "qwen3-windows": dict(L=2, H=6, K=2, D=24, A=6, F=11, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, window=5, late=1),
    "qwen3moe-between": dict(L=3, H=6, K=3, D=12, A=4, F=7, V=29, S=11, tied=False, batch=3, tokens=7, theta=1e4, E=5, k=2, balance=0.05, z=0.01,
                             normalized=False, dense=17, only=[1]),
    "qwen3moe-step": dict(L=2, H=4, K=2, D=12, A=6, F=5, V=17, S=9, tied=True, batch=2, tokens=5, theta=50.0, E=11, k=3, balance=0.05, z=0.01,
                          normalized=True, dense=13, step=2),
    "phi3-short": dict(L=2, H=3, K=1, D=18, A=6, F=19, V=61, S=24, tied=False, batch=3, tokens=7, theta=100.0, part=0.67, window=5, original=8,
                       long=dict(short_factor=[1.0, 1.3], long_factor=[1.7, 3.1])),
    "phi3-long": dict(L=2, H=6, K=2, D=24, A=4, F=11, V=29, S=32, tied=True, batch=2, tokens=11, theta=20.0, part=1.0, window=None, original=9,
                      long=dict(short_factor=[1.1, 1.4], long_factor=[2.3, 5.7])),
    "phi3-plain": dict(L=1, H=3, K=3, D=18, A=8, F=7, V=17, S=13, tied=True, batch=2, tokens=11, theta=50.0, part=0.75, window=None, original=4096),
    "olmo2-grouped": dict(L=2, H=6, K=3, D=18, A=4, F=19, V=61, S=11, tied=False, batch=3, tokens=7, theta=500.0),
    "olmo2-tied": dict(L=1, H=4, K=4, D=24, A=6, F=11, V=29, S=13, tied=True, batch=3, tokens=11, theta=1e4, eps=3e-4, every_token=True),
    "deepseekv2-groups": dict(L=3, H=3, K=3, D=12, A=6, nope=4, rope=2, v=5, q=7, kv=6, F=6, V=29, S=11, tied=False, batch=3, tokens=7, theta=50.0,
                              E=6, k=3, groups=3, kept=2, shared=2, first=1, dense=17, scale=2.5),
    "deepseekv2-yarn": dict(L=2, H=4, K=4, D=8, A=8, nope=4, rope=4, v=3, q=0, kv=6, F=5, V=17, S=13, tied=True, batch=2, tokens=11, theta=20.0,
                            E=5, k=2, shared=1, first=0, scale=1.0, eps=3e-4,
                            yarn=dict(factor=40.0, original_max_position_embeddings=200, mscale=1.3, mscale_all_dim=0.7)),
    "deepseekv3-groups": dict(L=3, H=3, K=3, D=12, A=6, nope=2, rope=4, v=5, q=7, kv=6, F=6, V=29, S=11, tied=False, batch=3, tokens=7, theta=50.0,
                              E=6, k=3, groups=3, kept=2, shared=1, first=1, dense=17, scale=2.5, normalized=True, margin=1e-4),
    "deepseekv3-yarn": dict(L=2, H=4, K=4, D=8, A=8, nope=4, rope=4, v=3, q=0, kv=6, F=5, V=17, S=13, tied=True, batch=2, tokens=11, theta=30.0,
                            E=5, k=2, shared=2, first=0, scale=1.5, eps=3e-4, normalized=False, margin=1e-4,
                            yarn=dict(factor=40.0, original_max_position_embeddings=200, mscale=1.3, mscale_all_dim=0.7)),
    "deepseekv3-moved": dict(L=2, H=2, K=2, D=10, A=6, nope=2, rope=4, v=3, q=5, kv=4, F=5, V=19, S=9, tied=True, batch=3, tokens=7, theta=50.0,
                             E=6, k=2, shared=1, first=1, dense=9, scale=1.5, normalized=True, margin=1e-4, speed=0.07),
    "deepseekv3-halves": dict(L=2, H=3, K=3, D=12, A=8, nope=2, rope=6, v=5, q=7, kv=4, F=5, V=19, S=24, tied=False, batch=2, tokens=9, theta=30.0,
                              E=4, k=2, shared=1, first=1, dense=11, scale=1.5, normalized=True, margin=1e-4, biased=True, halves=True,
                              long=dict(short_factor=[1.0, 1.2, 1.4], long_factor=[1.5, 2.5, 4.5], original_max_position_embeddings=6)),
    "biased-both": dict(L=2, H=6, K=3, D=24, F=19, V=61, S=9, tied=False, batch=3, tokens=7, theta=10000.0, attention=True, mlp=True),
    "biased-attention": dict(L=1, H=4, K=1, D=16, F=11, V=29, S=13, tied=True, batch=3, tokens=11, theta=500.0, attention=True, mlp=False),
    "biased-mlp": dict(L=1, H=3, K=3, D=18, F=7, V=17, S=5, tied=True, batch=2, tokens=5, theta=500.0, attention=False, mlp=True),
    "gemma-wider": dict(L=2, H=6, K=3, D=18, A=4, F=37, V=61, S=11, tied=True, batch=3, tokens=7, theta=1e4),
    "gemma-narrower": dict(L=1, H=6, K=1, D=45, A=6, F=7, V=29, S=13, tied=False, batch=3, tokens=11, theta=50.0, eps=3e-4, every_token=True),
    "gemma2-windows": dict(L=3, H=6, K=3, D=18, A=4, F=11, V=29, S=11, tied=True, batch=3, tokens=9, theta=1e4, window=4, scalar=3, score_cap=1.5,
                           logit_cap=2.0),
    "gemma2-plain": dict(L=2, H=4, K=1, D=16, A=6, F=7, V=17, S=13, tied=False, batch=2, tokens=11, theta=50.0, window=3, scalar=10, eps=3e-4,
                         kinds="fs", every_token=True),
    "gemma3-pattern": dict(L=2, H=6, K=3, D=18, A=4, F=19, V=61, S=11, tied=True, batch=3, tokens=7, theta=1e4, window=4, scalar=4, local=50.0,
                           linear=3.0, pattern=2),
    "gemma3-capped": dict(L=2, H=4, K=1, D=16, A=6, F=7, V=17, S=13, tied=False, batch=2, tokens=11, theta=20.0, window=3, scalar=10, local=500.0,
                          logit_cap=1.5, eps=3e-4, kinds="fs", every_token=True),
    "yarn-released": dict(L=2, H=4, K=2, D=24, A=16, F=19, V=61, S=48, tied=False, batch=3, tokens=7, theta=50.0,
                          yarn=dict(factor=4.0, original_max_position_embeddings=640)),
    "yarn-own": dict(L=1, H=3, K=1, D=18, A=12, F=7, V=17, S=13, tied=True, batch=2, tokens=11, theta=100.0,
                     yarn=dict(factor=2.5, original_max_position_embeddings=100, beta_fast=9.0, beta_slow=0.7, attention_factor=1.3, truncate=False)),
    "yarn-mscale": dict(L=1, H=2, K=1, D=16, A=12, F=7, V=17, S=13, tied=True, batch=2, tokens=11, theta=20.0,
                        yarn=dict(factor=40.0, original_max_position_embeddings=200, mscale=1.3, mscale_all_dim=0.7)),
    "parscale-grouped": dict(L=2, H=6, K=3, D=24, F=19, V=61, S=9, tied=False, batch=3, tokens=7, theta=10000.0, P=3, T=5, smooth=0.2),
    "parscale-tied": dict(L=1, H=2, K=1, D=8, F=7, V=17, S=5, tied=True, batch=2, tokens=5, theta=500.0, P=2, T=1, smooth=0.0),
    # As GPUs like them: even heads of 16 and 64, D of 64.  Steps of sgd alone keep the files small; steps do not depend on the shape.
    "gpt2-even": dict(L=1, H=4, D=64, F=32, V=16, S=8, tied=True, batch=2, tokens=8, steps=["sgd"]),
    "llama-even": dict(L=1, H=4, K=2, D=64, F=32, V=32, S=16, tied=True, batch=2, tokens=8, theta=10000.0, steps=["sgd"]),
    "llama-single": dict(L=1, H=4, K=1, D=64, F=32, V=32, S=16, tied=False, batch=2, tokens=8, theta=10000.0, steps=["sgd"]),
    "llama-every": dict(L=1, H=4, K=4, D=64, F=16, V=32, S=8, tied=True, batch=2, tokens=8, theta=10000.0, steps=["sgd"]),
    # A head of more numbers than are laid out at once for a score with exact sums (ref/exact/gemm_in_order.h).
    "mistral-broad": dict(L=1, H=2, K=1, D=8, A=272, F=12, V=16, S=8, tied=True, batch=1, tokens=7, theta=10000.0, window=None, steps=["sgd"]),
    "qwen3-even": dict(L=1, H=2, K=1, D=64, A=64, F=8, V=16, S=8, tied=True, batch=1, tokens=4, theta=1e6, steps=["sgd"]),
    "gptoss-windows": dict(L=2, H=6, K=3, D=12, A=4, F=7, V=29, S=11, tied=False, batch=3, tokens=7, theta=1e4, E=5, k=2, balance=0.05, z=0.01,
                           kinds="sf", window=3, biased=True, alpha=1.702, limit=2.627,
                           yarn=dict(factor=4.0, beta_fast=8.0, beta_slow=1.0, original_max_position_embeddings=6, truncate=False)),
    "gptoss-plain": dict(L=2, H=4, K=1, D=16, A=6, F=5, V=17, S=9, tied=True, batch=2, tokens=5, theta=50.0, E=11, k=3, balance=0.05, z=0.01,
                         kinds="ff", biased=False, alpha=1.3, limit=0.5, eps=3e-4),
    "olmoe-top2": dict(L=2, H=6, K=3, D=24, A=4, F=7, V=29, S=11, tied=False, batch=3, tokens=7, theta=1e4, E=5, k=2, balance=0.05, z=0.01,
                       normalized=False, steps=["adamw"]),
    "olmoe-tied": dict(L=1, H=4, K=4, D=16, A=4, F=5, V=17, S=9, tied=True, batch=2, tokens=5, theta=50.0, E=11, k=3, balance=0.05, z=0.01,
                       normalized=True, eps=3e-4),
    "qwen2moe-between": dict(L=3, H=6, K=3, D=24, A=4, F=7, V=29, S=11, tied=False, batch=3, tokens=7, theta=1e4, E=5, k=2, balance=0.05, z=0.01,
                             normalized=False, dense=17, only=[1], shared=9, biased=True, steps=["adamw"]),
    "qwen2moe-plain": dict(L=1, H=4, K=2, D=16, A=4, F=5, V=17, S=9, tied=True, batch=2, tokens=5, theta=50.0, E=7, k=3, balance=0.05, z=0.01,
                           normalized=True, shared=11, biased=False, eps=3e-4),
    "glm4moe-normed": dict(L=3, H=6, K=3, D=18, A=8, F=6, V=29, S=11, tied=False, batch=3, tokens=7, theta=50.0, E=6, k=3, groups=3, kept=2,
                           shared=2, first=1, dense=17, scale=1.5, normalized=True, margin=1e-4, normed=True, biased=True, part=0.5, steps=["adamw"]),
    "glm4moe-plain": dict(L=2, H=4, K=1, D=16, A=4, F=5, V=17, S=9, tied=True, batch=2, tokens=7, theta=30.0, E=5, k=2, shared=1, first=1, dense=11,
                          scale=1.0, normalized=False, margin=1e-4, normed=False, biased=False, part=1.0, eps=3e-4),
    "olmo3-windows": dict(L=3, H=6, K=3, D=18, A=4, F=11, V=29, S=11, tied=False, batch=3, tokens=9, theta=500.0, window=4, kinds="ssf",
                          yarn=dict(factor=4.0, original_max_position_embeddings=6, beta_fast=8.0, beta_slow=1.0, attention_factor=1.2), steps=["adamw"]),
    "olmo3-plain": dict(L=2, H=4, K=1, D=24, A=6, F=7, V=17, S=13, tied=True, batch=2, tokens=11, theta=50.0, window=3, kinds="fs", eps=3e-4, steps=["adamw"]),
    "gptj-minimal": dict(L=1, H=1, D=4, turned=2, F=1, V=2, S=1, tied=True, batch=1, tokens=1),
    "gptj-partial": dict(L=2, H=3, D=21, turned=4, F=37, V=61, S=11, tied=False, batch=3, tokens=7),
    "gptj-whole": dict(L=1, H=4, D=24, turned=6, F=11, V=29, S=13, tied=True, batch=3, tokens=11, eps=1e-3, every_token=True),
    "nanogpt-plain": dict(L=2, H=3, D=15, F=60, V=61, S=11, tied=True, batch=3, tokens=7, bias=False),
    "nanogpt-biased": dict(L=1, H=4, D=8, F=32, V=29, S=13, tied=True, batch=3, tokens=11, bias=True, every_token=True),
    "gptneox-parallel": dict(L=2, H=3, D=21, part=0.6, F=37, V=61, S=11, tied=False, batch=3, tokens=7, theta=500.0, parallel=True),
    "gptneox-sequence": dict(L=2, H=4, D=24, part=1.0, F=11, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, parallel=False, eps=1e-3,
                             every_token=True),
    "nemotron-part": dict(L=2, H=6, K=3, D=18, A=6, F=37, V=61, S=11, tied=False, batch=3, tokens=7, theta=100.0, part=0.67, attention=False, mlp=False),
    "nemotron-biased": dict(L=1, H=4, K=1, D=16, A=6, F=11, V=29, S=13, tied=True, batch=3, tokens=11, theta=50.0, part=1.0, attention=True, mlp=True,
                            eps=1e-3, every_token=True),
    "starcoder2-windows": dict(L=2, H=9, K=3, D=18, F=37, V=61, S=11, tied=True, batch=3, tokens=9, theta=1e4, window=4, biased=True),
    "starcoder2-plain": dict(L=1, H=6, K=1, D=24, F=11, V=29, S=13, tied=False, batch=3, tokens=11, theta=50.0, window=None, biased=False, eps=3e-4,
                             every_token=True),
    "granite-multiplied": dict(L=2, H=6, K=3, D=24, F=19, V=61, S=9, tied=True, batch=3, tokens=7, theta=1e4, attention=False, mlp=False,
                               embedding=3.0, scores=0.7, residual=0.4, divisor=1.7),
    "granite-biased": dict(L=1, H=3, K=1, D=18, F=7, V=17, S=13, tied=False, batch=2, tokens=11, theta=50.0, attention=True, mlp=True,
                           embedding=0.6, scores=0.3, residual=1.3, divisor=0.8, every_token=True),
    "smollm3-layers": dict(L=3, H=6, K=3, D=24, F=11, V=29, S=11, tied=True, batch=3, tokens=7, theta=500.0, attention=False, mlp=False, turns="nrn"),
    "smollm3-windows": dict(L=3, H=3, K=1, D=18, F=11, V=29, S=13, tied=False, batch=3, tokens=11, theta=50.0, attention=True, mlp=True, turns="rnr",
                            window=4, kinds="ssf", eps=3e-4, every_token=True),
}
FAMILIES = {"gpt2": families.GPT2(), "llama": families.Llama(), "mixtral": families.Mixtral(), "gptj": families.GPTJ(),
            "qwen2": families.Qwen2(), "qwen3": families.Qwen3(), "qwen3moe": families.Qwen3Moe(), "biased": families.Biased(),
            "mistral": families.Mistral(), "phi3": families.Phi3(), "olmo2": families.Olmo2(),
            "gemma": families.Gemma(), "gemma2": families.Gemma2(), "gemma3": families.Gemma3(),
            "deepseekv2": families.DeepseekV2(), "deepseekv3": families.DeepseekV3(), "gptoss": families.GptOss(), "yarn": families.Yarn(),
            "parscale": families.ParScale(), "nanogpt": families.NanoGPT(), "gptneox": families.GPTNeoX(), "nemotron": families.Nemotron(),
            "starcoder2": families.Starcoder2(), "granite": families.Granite(), "smollm3": families.SmolLM3(),
            "olmoe": families.Olmoe(), "qwen2moe": families.Qwen2Moe(), "glm4moe": families.Glm4Moe(), "olmo3": families.Olmo3()}
BIAS_STD = 0.1                                  # of routers' correction biases: they change choices
NUDGE = 0.3                                     # of biases and norms, which start at 0 and 1 and would hide mistakes there

# Clipping is at a norm below the gradient's.  AdamW's eps is large enough to matter where it stands in the formula, and so
# that it does not blow up the rounding noise in the gradient of the key biases, which is 0 but for rounding.
OPTIMIZERS = {
    "adamw": dict(lr=[0.03, 0.01, 0.02], beta1=0.8, beta2=0.9, eps=1e-4, weight_decay=0.1, clip=0.25),
    "sgd": dict(lr=[0.5, 0.2, 0.3], weight_decay=0.05, clip=0.0),
    "momentum": dict(lr=[0.5, 0.2, 0.3], momentum=0.7, weight_decay=0.0, clip=0.0),
}
STATES = {"adamw": ["exp_avg", "exp_avg_sq"], "sgd": [], "momentum": ["momentum_buffer"]}


# ---- the model and where it starts ---------------------------------------------------------------------------------

def item(of, part):
    """What `of` gives for a name; of name[E] item E of that."""
    name, _, index = part.partition("[")
    return of(name)[int(index[:-1])] if index else of(name)


class Case:
    """A shape of a family, and its logical parameters in the model of transformers."""

    def __init__(self, name):
        self.c = SHAPES[name]
        self.family = FAMILIES[name.split("-")[0]]
        self.list = list(self.family.parameters(self.c))

    def initial_weights(self):
        """What a model of this seed starts with: drawn where std > 0, else constant."""
        return {name: mean + std * philox.normal(SEED, name, int(np.prod(shape))).reshape(shape)
                for name, shape, mean, std, _ in self.list}

    def make_model(self, weights):
        """A model of transformers with these weights; its parameters by their names there."""
        model = self.family.model(self.c).double().train()
        named = dict(model.named_parameters())
        wanted = {part.partition("[")[0] for *_, parts in self.list for part, _ in parts}
        if set(named) != wanted:
            raise AssertionError(f"transformers has the parameters {sorted(set(named) ^ wanted)} too many or few")
        with torch.no_grad():
            for name, *_, parts in self.list:
                first = 0
                for part, w in (self.split(name, weights[name]) or {}).items():
                    item(named.__getitem__, part).copy_(torch.from_numpy(w))
                for part, rows in [] if self.split(name, weights[name]) else parts:
                    w = weights[name][first:first + rows]
                    item(named.__getitem__, part).copy_(torch.from_numpy(w.T if self.family.transposed(name, w) else w))
                    first += rows
            for name, _ in self.biases():
                model.get_buffer(name).copy_(torch.from_numpy(weights[name]))
        return model, named

    def biases(self):
        return self.family.biases(self.c) if hasattr(self.family, "biases") else []

    def logical(self, of):
        """A tensor of each logical parameter, [out,in], from those that `of` gives for its parts."""
        for name, *_, parts in self.list:
            arrays = [item(of, part).detach().numpy() for part, _ in parts]
            joined = self.family.join(self.c, name, arrays) if hasattr(self.family, "join") else None
            if joined is not None:
                yield name, np.ascontiguousarray(joined, dtype="<f8")
                continue
            arrays = [a.T if self.family.transposed(name, a) else a for a in arrays]
            yield name, np.ascontiguousarray(np.concatenate(arrays), dtype="<f8")

    def split(self, name, w):
        """The parts of a parameter that are not rows of it, by their names in the model; None: they are."""
        return self.family.split(self.c, name, w) if hasattr(self.family, "split") else None

    def loss(self, model, ids, labels):
        return self.family.loss(model, self.c, ids, labels)


def nudged(init):
    """Where the runs start: the drawn matrices as they are, biases and norms moved away from 0 and 1."""
    return {name: w if w.ndim == 2 else w + NUDGE * philox.normal(SEED, name + " nudge", w.size) for name, w in init.items()}


def batches(c):
    """ids and labels [STEPS,batch,tokens].  A fifth of the labels is ignored, never all; the first token comes twice."""
    shape = (STEPS, c["batch"], c["tokens"])
    count = int(np.prod(shape))
    ids = np.floor(c["V"] * philox.uniform(SEED, "ids", count)).astype("<i4").reshape(shape)
    labels = np.floor(c["V"] * philox.uniform(SEED, "labels", count)).astype("<i4").reshape(shape)
    labels[(philox.uniform(SEED, "ignored", count) < 0.2).reshape(shape)] = IGNORE
    if c["tokens"] > 1:
        ids[:, :, 1] = ids[:, :1, 0]
    labels[:, 0, -1] = c["V"] - 1
    if "every_token" in c:
        ids[0], labels[0] = every_token(c, "ids", ids[0, 0, 0]), every_token(c, "labels", IGNORE)
    return ids, labels


def every_token(c, what, filler):
    """A batch that has every token of the vocabulary, in random order, and a filler: wherever a vocabulary is cut into shards, the
    first and the last row of each is asked for."""
    shape = (c["batch"], c["tokens"])
    values = np.full(int(np.prod(shape)), filler, dtype="<i4")
    values[:c["V"]] = np.arange(c["V"])
    return values[np.argsort(philox.uniform(SEED, what + " order", values.size))].reshape(shape)


# ---- one pass: every tensor on the way ------------------------------------------------------------------------------

def backward(loss, named):
    """An expert that was given nothing has gradient 0, and not none: weight decay is for it as well."""
    for w in named.values():
        w.grad = torch.zeros_like(w)
    loss.backward()
    return float(torch.sqrt(sum((w.grad * w.grad).sum() for w in named.values())))


def number(x):
    return np.array(x, dtype="<f8")


def one_pass(case, start, ids, labels):
    model, named = case.make_model(start)
    seen = case.family.watch(model, case.c)
    loss, parts = case.loss(model, ids, labels)
    norm = backward(loss, named)
    out = {"loss": number(loss.item()), "norm": number(norm)}
    out.update({name: number(x.item()) for name, x in parts.items()})
    for name, activation, gradient in seen():
        out["act/" + name], out["grad/" + name] = (np.ascontiguousarray(a, dtype="<f8") for a in (activation, gradient))
    for name, gradient in case.logical(lambda part: named[part].grad):
        out["grad/" + name] = gradient
    return out


# ---- three steps ------------------------------------------------------------------------------------------------------

def make_optimizer(kind, h, weights):
    """Decay on matrices alone.  For plain SGD PyTorch's decay, which goes through the gradient, is the decoupled one."""
    matrix = {name: w.ndim >= 2 and not name.endswith("bias") for name, w in weights.items()}       # biases of experts are rows of one
    groups = [{"params": [w for name, w in weights.items() if matrix[name]], "weight_decay": h["weight_decay"]},
              {"params": [w for name, w in weights.items() if not matrix[name]], "weight_decay": 0.0}]
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=1.0, betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    return torch.optim.SGD(groups, lr=1.0, momentum=h.get("momentum", 0.0))


def clip(weights, norm, limit):
    """By limit/norm.  torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm, which is not what it says it does."""
    if 0 < limit < norm:
        for w in weights.values():
            w.grad.mul_(limit / norm)


def steps(kind, h, case, start, ids, labels):
    model, named = case.make_model(start)
    optimizer = make_optimizer(kind, h, named)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = h["lr"][step]
        loss, _ = case.loss(model, ids[step], labels[step])
        norms.append(backward(loss, named))
        losses.append(loss.item())
        clip(named, norms[-1], h["clip"])
        optimizer.step()
        if hasattr(case.family, "after_step"):
            case.family.after_step(case.c)
    out = {f"{kind}/{key}": number(value) for key, value in (("lr", h["lr"]), ("loss", losses), ("norm", norms))}
    for name, w in case.logical(lambda part: named[part]):
        out[f"{kind}/weight/{name}"] = w
    for state in STATES[kind]:
        for name, x in case.logical(lambda part: optimizer.state[named[part]][state]):
            out[f"{kind}/{state}/{name}"] = x
    return out


# ---- files --------------------------------------------------------------------------------------------------------------

def make(name):
    """The tensors and the metadata of one golden file."""
    case = Case(name)
    ids, labels = batches(case.c)
    init = case.initial_weights()
    start = dict(nudged(init), **{bias: BIAS_STD * philox.normal(SEED, bias, n) for bias, n in case.biases()})
    kinds = case.c.get("steps", list(OPTIMIZERS))
    tensors = {"ids": ids, "labels": labels}
    tensors.update({"init/" + key: w for key, w in init.items()})
    tensors.update({"start/" + key: w for key, w in start.items()})
    tensors.update(one_pass(case, start, ids[0], labels[0]))
    metadata = {"generator": "golden/make_golden.py", "model": case.family.name, "config": json.dumps(case.family.config(case.c)),
                "seed": str(SEED), "optimizers": " ".join(kinds), "numpy": np.__version__, "torch": torch.__version__,
                "transformers": transformers.__version__}
    for kind in kinds:
        h = OPTIMIZERS[kind]
        tensors.update(steps(kind, h, case, start, ids, labels))
        metadata.update({f"{kind}.{key}": repr(value) for key, value in h.items() if key != "lr"})
    return tensors, metadata


def makeable():
    """The shapes of families whose code is here."""
    return [name for name in SHAPES if getattr(FAMILIES[name.split("-")[0]], "module", True) is not None]


def write_all(folder, names=()):
    names = names or makeable()
    paths = [folder / f"{name}.safetensors" for name in names]
    for name, path in zip(names, paths):
        tensor_file.write(path, *make(name))
    tensor_file.note_checksums(paths)


def bounds_beside(folder):
    """NAME.bounds.json of each golden file: measured by orrery, not made here."""
    return [folder / f"{name}.bounds.json" for name in SHAPES]


def difference(a, b):
    """Relative, norm over norm of b; 0 only if the bits are equal; infinite if shapes are not or there is a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.tobytes() == b.tobytes():
        return 0.0
    size, apart = np.linalg.norm(b.astype(np.float64).ravel()), np.linalg.norm((a - b).astype(np.float64).ravel())
    return float(apart / size) if apart <= 1e300 and size > 0 else float("inf")


def is_input(name):
    """What is drawn or given, and so the same on every machine; all the rest is computed."""
    return name in ("ids", "labels") or name.startswith(("init/", "start/")) or name.endswith("/lr")


def compare_file(name, fresh, stored):
    """Print what differs.  Returns whether the stored file holds."""
    (new, new_meta), (old, old_meta) = tensor_file.read(fresh), tensor_file.read(stored)
    versions = ("numpy", "torch", "transformers")
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    wrong += [f"metadata {key}: {old_meta.get(key)} stored, {new_meta.get(key)} made"
              for key in sorted(set(new_meta) | set(old_meta)) if key not in versions and old_meta.get(key) != new_meta.get(key)]
    changed = {key: difference(new[key], old[key]) for key in old if key in new}
    changed = {key: d for key, d in changed.items() if d != 0}
    wrong += [f"{key}: differs by {d:.3g}, relative" for key, d in changed.items() if is_input(key) or not d <= ROUNDING]
    for line in wrong:
        print(f"  {name}: {line}")
    rounding = {key: d for key, d in changed.items() if not is_input(key) and d <= ROUNDING}
    if rounding:
        worst = max(rounding, key=rounding.get)
        made_by = ", ".join(f"{key} {old_meta[key]} (here {new_meta[key]})" for key in versions)
        print(f"  {name}: {len(rounding)} of {len(old)} tensors differ in rounding, at most {worst}, by {rounding[worst]:.3g}; made by {made_by}")
    if not wrong and not rounding:
        print(f"  {name}: {len(old)} tensors, every bit the same")
    return not wrong


def check(stored):
    """Whether the stored files are what this script makes."""
    good = True
    manifest = dict(reversed(line.split()) for line in (stored / "MANIFEST").read_text().splitlines())
    with tempfile.TemporaryDirectory() as folder:
        write_all(pathlib.Path(folder))
        for name in SHAPES:
            if name not in makeable():
                print(f"  {name}: not made again, its model is not installed: golden/README.md")
                continue
            path = stored / f"{name}.safetensors"
            good &= compare_file(name, pathlib.Path(folder) / path.name, path)
            if hashlib.sha256(path.read_bytes()).hexdigest() != manifest.get(path.name):
                print(f"  {name}: MANIFEST has another checksum")
                good = False
    for path in bounds_beside(stored):
        if not tensor_file.checksum_holds(stored, path):
            print(f"  {path.name}: MANIFEST has another checksum")
            good = False
    print("golden files hold" if good else "golden files do not hold")
    return good


def main():
    arguments = argparse.ArgumentParser(description="Make the golden tensors with PyTorch and transformers.")
    arguments.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    arguments.add_argument("--bounds", action="store_true", help="only note the checksums of the bounds beside them")
    arguments.add_argument("names", nargs="*", metavar="NAME", help="write only these files")
    given = arguments.parse_args()
    if set(given.names) - set(SHAPES):
        arguments.error(f"{' '.join(sorted(set(given.names) - set(SHAPES)))}: no such shape; there are {' '.join(SHAPES)}")
    if given.bounds:
        tensor_file.note_checksums(bounds_beside(HERE))
        return 0
    torch.set_num_threads(1)
    families.widen()
    philox.known_answers()
    if given.check:
        return 0 if check(HERE) else 1
    write_all(HERE, given.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
