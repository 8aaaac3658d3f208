#!/usr/bin/env python3
"""Dumps of golden/frameworks' recorder that `orrery check` must judge without Python: recordings of a part, and adapters of peft.

    golden/make_recorded.py            write golden/recorded/*.safetensors and their lines of golden/MANIFEST

Needs ./orrery, torch, transformers and peft.  Tests: tests/cli/test_partial.sh, tests/cli/test_adapters.sh.
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "frameworks"), str(HERE / "frameworks" / "runs")]
import numpy
import torch
import transformers
from safetensors.numpy import save_file

import common
import lora
from orrery_dump import Recorder

OUT = HERE / "recorded"
PARTS = {                                                           # what is declared as not recorded
    "no-rotary": ["h.*.attn.rotated"],
    "first-layer": ["h.1.*", "ln_f", "logits", "*layers.1.*", "*norm.weight", "*lm_head*"],
    "gradients": ["act/*", "grad/h.*", "grad/embedding", "grad/ln_f", "grad/logits", "adamw/*"],
    "weights": ["act/*", "grad/*", "loss", "norm", "adamw/loss", "adamw/norm", "adamw/2/*"],
}
ADAPTERS = {"lora": ("plain", None), "lora-rs": ("rslora", None), "lora-scaling": ("plain", "wrong-scaling"),
            "lora-transposed": ("plain", "gradient-transposed"), "lora-lost": ("plain", "gradient-lost"), "lora-moved": ("plain", "base-moved")}


def make_golden(folder):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=16, max_position_embeddings=8, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=4,
        intermediate_size=12, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500.0}, tie_word_embeddings=False,
        initializer_range=0.2, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    transformers.LlamaForCausalLM(config).double().save_pretrained(folder / "model")
    ids = numpy.random.default_rng(1).integers(0, 16, (2, 2, 7))
    save_file({"ids": ids[:, :, :-1].copy(), "labels": ids[:, :, 1:].copy()}, folder / "batch.safetensors")
    subprocess.run([HERE.parent / "orrery", "golden", "make", "--out", OUT / "llama.safetensors", "--model", folder / "model", "--batch",
                    folder / "batch.safetensors", "--as", "orrery,clip-added=1e-6", "--eps", "1e-4", "--clip", "0.5", "--keep", "all"], check=True)


def record(golden, folder, patterns):
    """A Llama of transformers, of which some tensors are not recorded."""
    model = golden.model()
    recorder = Recorder(model, None, folder, batch=(golden.sequences, golden.tokens), dtype="fp32", golden=golden.path, not_recorded=patterns).start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(input_ids=golden.ids[step]).logits, golden.labels[step]) / golden.counted(step)
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of)


def main():
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_golden(folder)
        golden = common.Golden(OUT / "llama.safetensors")
        for name, patterns in PARTS.items():
            record(golden, folder / name, patterns)
            (folder / name / "rank0.safetensors").replace(OUT / f"{name}.safetensors")
        for name, (variant, bug) in ADAPTERS.items():
            torch.manual_seed(5)
            lora.run(golden, folder / name, common.argparse.Namespace(dtype="fp32", variant=variant, bug=bug))
            (folder / name / "rank0.safetensors").replace(OUT / f"{name}.safetensors")
    manifest = HERE / "MANIFEST"
    lines = [line for line in manifest.read_text().splitlines() if "  recorded/" not in line]
    lines += [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  recorded/{p.name}" for p in OUT.iterdir()]
    manifest.write_text("\n".join(sorted(lines, key=lambda line: line.split("  ")[1])) + "\n")


if __name__ == "__main__":
    main()
