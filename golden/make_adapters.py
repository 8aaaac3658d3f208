#!/usr/bin/env python3
"""Golden low-rank adapters: loss and gradients of peft's LoRA in fp64, on a GPT-2 and on the experts of a Mixtral.

    golden/make_adapters.py            write golden/adapters/ and their lines of golden/MANIFEST
    golden/make_adapters.py --check    make them again, compare with the stored ones and name the tensors that differ

The models are transformers' (5.24.0), the adapters peft's (0.21.2): LoraLayer on the matrices of a GPT-2, whose queries, keys and values
are one matrix; ParamWrapper on the stacked experts.  Here an expert has matrices of its own, so the stack is cut.
"""
import os
import pathlib
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import numpy as np
    import peft
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"make_adapters.py: {missing}; golden/README.md says what to install")

import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILES = {name: HERE / f"adapters/{name}.safetensors" for name in ("gpt2", "mixtral")}    # Mixtral last: it changes Tensor.float
RANK, ALPHA, BATCH, TOKENS = 3, 5, 2, 6


class Wide:
    """`torch` for the module of Mixtral, which computes norms, angles and scores in fp32: its float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def in_double(self):
    """In place of Tensor.float, by which the router casts its logits."""
    return self.double()


def gpt2():
    config = transformers.GPT2Config(vocab_size=17, n_positions=TOKENS, n_embd=12, n_layer=2, n_head=2, n_inner=20, resid_pdrop=0, embd_pdrop=0,
                                     attn_pdrop=0)
    return transformers.GPT2LMHeadModel(config), {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}


def mixtral():
    transformers.models.mixtral.modeling_mixtral.torch = Wide()
    torch.Tensor.float = in_double
    config = transformers.MixtralConfig(vocab_size=17, hidden_size=8, intermediate_size=6, num_hidden_layers=2, num_attention_heads=2,
                                        num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=TOKENS,
                                        sliding_window=None, head_dim=4, rope_theta=10000.0, experts_implementation="eager")
    return transformers.MixtralForCausalLM(config), {"target_modules": [], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}


def experts_of(name, tensor, kind):
    """The parts of a stacked tensor, by names in which an expert has its own."""
    before = name.split(".mlp.")[0] + ".block_sparse_moe.experts."
    if kind == "gate_up_proj":
        half = tensor.shape[1] // 2
        return {f"{before}{e}.{w}.weight": tensor[e, half * i:half * (i + 1)] for e in range(len(tensor)) for i, w in ((0, "w1"), (1, "w3"))}
    return {f"{before}{e}.w2.weight": tensor[e] for e in range(len(tensor))}


def adapters_of(wrapper, name, ours, gradient):
    """A [rank, in] and B [out, rank] of each expert: peft's are of all experts together, and may be of the transposed matrix."""
    pick = (lambda p: p.grad) if gradient else (lambda p: p)
    A, B = pick(wrapper.lora_A["default"].weight), pick(wrapper.lora_B["default"].weight)
    experts = wrapper.num_experts
    A, B = A.reshape(experts, -1, A.shape[-1]), B.reshape(B.shape[0], -1, experts).permute(2, 0, 1)
    if not wrapper._did_swap_in_out_features:
        A, B = B.transpose(1, 2), A.transpose(1, 2)
    before = name.split(".mlp.")[0] + ".block_sparse_moe.experts."
    return {f"{before}{e}.{ours}.lora_{k}.weight": t[e] for e in range(experts) for k, t in (("A", A), ("B", B))}


def tensors_of(case):
    torch.manual_seed(31)
    model, how = globals()[case]()
    model = model.double()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0, bias="none", **how)).double()
    with torch.no_grad():
        for name, p in lora.named_parameters():
            if ".lora_" in name:
                p.normal_(0, 0.3)
    ids, labels = torch.randint(0, 17, (BATCH, TOKENS)), torch.randint(0, 17, (BATCH, TOKENS))
    logits = lora(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 17), labels.reshape(-1))
    loss.backward()
    out = {"ids": ids.int(), "labels": labels.int(), "loss": loss.reshape(1)}
    for name, p in lora.named_parameters():
        name = name.removeprefix("base_model.model.").replace(".base_layer", "").replace(".default", "")
        if ".lora_" not in name:
            assert p.grad is None, name
            kind = name.split(".")[-1]
            plain = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
            out |= experts_of(name, p, kind) if kind in ("gate_up_proj", "down_proj") else {plain: p}
        elif case == "gpt2":
            plain = name.removeprefix("transformer.")
            out |= {plain: p, f"grad/{plain}": p.grad}
    for name, module in lora.named_modules():
        if isinstance(module, peft.tuners.lora.layer.ParamWrapper):
            ours = {"gate_up_proj": "w13", "down_proj": "w2"}[module.parameter_name]
            name = name.removeprefix("base_model.model.")
            out |= adapters_of(module, name, ours, False)
            out |= {f"grad/{key}": t for key, t in adapters_of(module, name, ours, True).items()}
    return {key: np.ascontiguousarray(t.detach().numpy()) for key, t in out.items()}


def make(case):
    return tensors_of(case), {"rank": str(RANK), "alpha": str(ALPHA)}


def main(case):
    return tensor_file.command(__doc__.splitlines()[0], FILES[case], lambda: make(case),
                               lambda: tensor_file.compare(case, make(case)[0], FILES[case], 1e-12))


if __name__ == "__main__":
    sys.exit(max(main(case) or 0 for case in FILES))
