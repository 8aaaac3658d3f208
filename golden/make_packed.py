#!/usr/bin/env python3
"""Golden vectors of packed integers: matrices as GPTQ's and AWQ's released programs pack them, and their numbers.

    golden/make_packed.py            write golden/packed.safetensors, golden/packed/ and their lines of golden/MANIFEST
    golden/make_packed.py --check    make them again and compare, bit for bit

Words are filled as AutoGPTQ (qlinear_cuda_old.py, pack) and AutoAWQ (modules/linear/gemm.py, from_linear) fill them: integer after integer, 3
bits with the two that lie across words.  Numbers are (q - z) s, which fp32 has exactly.  golden/packed/ has a small Llama three times: packed by
either, and as numbers, which are those of both.
"""
import json
import pathlib
import sys

try:
    import numpy as np
except ImportError as missing:
    sys.exit(f"make_packed.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE, FOLDER = HERE / "packed.safetensors", HERE / "packed"
SEED = 21
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def fill_words(q, bits):
    """q [n, columns] -> words [n bits / 32, columns]: rows follow one another, from the lowest bits on."""
    q = q.astype(np.uint32)
    words = np.zeros((q.shape[0] * bits // 32, q.shape[1]), dtype=np.uint32)
    if bits == 3:
        for block in range(q.shape[0] // 32):
            a, b, c = words[3 * block], words[3 * block + 1], words[3 * block + 2]
            for j, row in enumerate(q[32 * block:32 * block + 32]):
                if j < 10:
                    a |= row << (3 * j)
                elif j == 10:
                    a |= row << 30
                    b |= (row >> 2) & 1
                elif j < 21:
                    b |= row << (3 * (j - 11) + 1)
                elif j == 21:
                    b |= row << 31
                    c |= (row >> 1) & 3
                else:
                    c |= row << (3 * (j - 22) + 2)
    else:
        each = 32 // bits
        for i in range(q.shape[0]):
            words[i // each] |= q[i] << (bits * (i % each))
    return words.astype(np.int32)


def fill_awq(q):
    """q [rows, columns] -> words [rows, columns / 8]."""
    q = q.astype(np.uint32)
    words = np.zeros((q.shape[0], q.shape[1] // 8), dtype=np.uint32)
    for column in range(words.shape[1]):
        for i in range(8):
            words[:, column] |= q[:, 8 * column + AWQ_ORDER[i]] << (4 * i)
    return words.astype(np.int32)


def drawn(name, rows, columns, end):
    return (philox.uniform(SEED, name, rows * columns).reshape(rows, columns) * end).astype(np.int64)


def matrix(name, K, N, bits, group, order=False, even=False):
    """Integers [K, N], zero points and factors [groups, N], and the group of each row."""
    groups = -(-K // group)
    q, z = drawn(name + ".q", K, N, 2 ** bits), drawn(name + ".z", groups, N, 2 ** bits - 1) + 1
    if even:
        z[:] = 2 ** (bits - 1)
    s = (0.01 + philox.uniform(SEED, name + ".s", groups * N).reshape(groups, N) * 0.1).astype(np.float16)
    index = np.arange(K) // group
    if order:
        index = index[np.argsort(philox.uniform(SEED, name + ".g", K))]
    return q, z, s, index.astype(np.int32)


def numbers(q, z, s, index):
    """[N, K] in fp32."""
    return np.ascontiguousarray(((q - z[index]).astype(np.float32) * s[index].astype(np.float32)).T)


def gptq(name, parts, bits, less_one=True, with_index=True):
    q, z, s, index = parts
    tensors = {f"{name}.qweight": fill_words(q, bits), f"{name}.qzeros": fill_words((z - less_one).T, bits).T.copy(), f"{name}.scales": s}
    return {**tensors, f"{name}.g_idx": index} if with_index else tensors


def awq(name, parts):
    q, z, s, _ = parts
    return {f"{name}.qweight": fill_awq(q), f"{name}.qzeros": fill_awq(z), f"{name}.scales": s}


def make():
    tensors = {}
    for bits in (2, 3, 4, 8):
        parts = matrix(f"gptq{bits}", 96, 64, bits, 32)
        tensors |= gptq(f"gptq{bits}", parts, bits, with_index=bits != 4) | {f"want/gptq{bits}": numbers(*parts)}
    parts = matrix("order", 64, 32, 4, 16, order=True)
    tensors |= gptq("order", parts, 4) | {"want/order": numbers(*parts)}
    q, z, s, index = matrix("v2", 64, 32, 4, 64)
    z[0, ::3] = 0
    tensors |= gptq("v2", (q, z, s, index), 4, less_one=False) | {"want/v2": numbers(q, z, s, index)}
    parts = matrix("awq", 96, 40, 4, 32)
    tensors |= awq("awq", parts) | {"want/awq": numbers(*parts)}
    return tensors, {"generator": "golden/make_packed.py"}


# ---- a model --------------------------------------------------------------------------------------------------------

D, F, V, GROUP = 32, 64, 256, 16
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": D, "intermediate_size": F,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 48, "rope_theta": 100.0,
          "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True, "checkpoint_format": "gptq"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
SHAPES = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (D, D // 2), "self_attn.v_proj": (D, D // 2), "self_attn.o_proj": (D, D),
          "mlp.gate_proj": (D, F), "mlp.up_proj": (D, F), "mlp.down_proj": (F, D)}


def make_models():
    """Folder -> its tensors and its config."""
    name = "model.embed_tokens.weight"
    rest = {name: (philox.normal(SEED, name, V * D).reshape(V, D) * 0.5).astype(np.float32)}
    rest |= {name: np.ones(D, np.float32) for name in ("model.norm.weight", "model.layers.0.input_layernorm.weight",
                                                       "model.layers.0.post_attention_layernorm.weight")}
    by_gptq, by_awq, plain = dict(rest), dict(rest), dict(rest)
    for short, (K, N) in SHAPES.items():
        name = "model.layers.0." + short
        parts = matrix(name, K, N, 4, GROUP, even=True)
        by_gptq |= gptq(name, parts, 4)
        by_awq |= awq(name, parts)
        plain[name + ".weight"] = numbers(*parts)
    return {"gptq": (by_gptq, {**CONFIG, "quantization_config": GPTQ}), "awq": (by_awq, {**CONFIG, "quantization_config": AWQ}),
            "numbers": (plain, CONFIG)}


def write_models():
    paths = []
    for folder, (tensors, config) in make_models().items():
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        paths += [FOLDER / folder / "model.safetensors", FOLDER / folder / "config.json"]
        tensor_file.write(paths[-2], tensors, {"format": "pt"})
        paths[-1].write_text(json.dumps(config, indent=2) + "\n")
    tensor_file.note_checksums(paths, HERE)


def differing(new, old):
    return sorted(set(new) ^ set(old)) + [key for key in old if key in new and new[key].tobytes() != old[key].tobytes()]


def check():
    wrong = differing(make()[0], tensor_file.read(FILE)[0])
    for folder, (tensors, config) in make_models().items():
        wrong += [f"{folder}: {key}" for key in differing(tensors, tensor_file.read(FOLDER / folder / "model.safetensors")[0])]
        wrong += [] if json.loads((FOLDER / folder / "config.json").read_text()) == config else [f"{folder}: config.json"]
    for key in wrong:
        print(f"  packed: {key} differs")
    if not wrong:
        print("  packed: every bit the same")
    return 1 if wrong else 0


def make_all():
    write_models()
    return make()


if __name__ == "__main__":
    sys.exit(tensor_file.command("Make the golden vectors of packed integers.", FILE, make_all, check))
