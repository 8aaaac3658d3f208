#!/usr/bin/env python3
"""Orrery and Hugging Face transformers on the same folder: do they read each other's files, and agree on loss and gradients?

    golden/transformers_check.py            random models saved by transformers, trained a step by orrery, and back
    golden/transformers_check.py DIR ...    also folders written by `orrery train --save DIR`

Needs numpy, PyTorch and transformers (see golden/README.md), and ./orrery, which `make` builds.  For every folder:
orrery loads it and takes one step of plain SGD at rate 1 in fp64, so that the weights it then saves are the old ones minus
their gradients; transformers loads the same folder, and autograd has the gradients of the same batch.  Then transformers
loads what orrery saved.  The status is 0 if everything agrees within rounding, else 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"transformers_check.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED, SEQUENCES = 5, 3
ROUNDING = 1e-12                                # relative, norm over norm: what fp64 may do to a loss, a gradient, the logits
UNIT = 2.0**-52
TEXT = (ROOT / "golden" / "README.md").read_bytes()


def batch(tokens):
    """Step 0 of ref/io/text.c: each sequence at a place drawn from the first nine tenths of the text."""
    train = len(TEXT) - len(TEXT) // 10
    key = SEED ^ philox.stream_of("text train")
    rows = []
    for b in range(SEQUENCES):
        counter = tuple(np.array([word], dtype=np.uint64) for word in (b, 0, 0, 0))
        words = [int(w[0]) for w in philox.philox4x32(counter, (key & philox.MASK32, key >> 32))]
        at = (words[1] << 32 | words[0]) % (train - tokens)
        rows.append(np.frombuffer(TEXT[at:at + tokens + 1], np.uint8))
    both = torch.from_numpy(np.stack(rows).astype(np.int64))
    return both[:, :-1], both[:, 1:]


def load(folder):
    """A model as transformers reads it; nothing may be missing or left over."""
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float64, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            raise SystemExit(f"{folder}: transformers reports {what} {info[what]}")
    return model.eval()


def loss_of(model, ids, labels):
    """Without dropout, whatever the folder says.  Labels are already the next tokens."""
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def orrery_step(orrery, folder, tokens, save):
    """One step of orrery on the folder; returns the loss it had before the step."""
    text = save.parent / "text"
    text.write_bytes(TEXT)
    report = save.parent / "report.json"
    command = [orrery, "train", "--model", folder, "--data", text, "--dtype", "fp64", "--dropout", "0", "--steps", "1", "--seed", SEED,
               "--batch", SEQUENCES, "--seq", tokens, "--optimizer", "sgd", "--lr", "1", "--min-lr", "1", "--warmup", "0", "--clip", "0",
               "--weight-decay", "0", "--check", "ref", "--save", save, "--json", report]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{orrery} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(report.read_text())["steps"][0]["loss"]


def norm_ratio(a, b):
    """Relative difference, norm over norm of b."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def compare_gradients(model, stepped):
    """(tensor, difference, bound) for each.  The gradient is what the step took away, so it has the weights' rounding in it."""
    for name, w in model.named_parameters():
        before, gradient = w.detach().numpy(), w.grad.numpy()
        bound = ROUNDING + UNIT * np.linalg.norm(before) / np.linalg.norm(gradient)
        yield "gradient of " + name, norm_ratio(before - stepped[name], gradient), bound


def check(orrery, folder, what):
    """Print how far orrery and transformers are apart on this folder; returns whether that is rounding."""
    model = load(folder)
    tokens = min(model.config.n_positions, 48)
    ids, labels = batch(tokens)
    loss = loss_of(model, ids, labels)
    loss.backward()
    with tempfile.TemporaryDirectory() as scratch:
        save = pathlib.Path(scratch) / "saved"
        ours = orrery_step(orrery, folder, tokens, save)
        stepped, _ = tensor_file.read(save / "model.safetensors")
        apart = [("loss", abs(ours - loss.item()) / loss.item(), ROUNDING), *compare_gradients(model, stepped)]
        with torch.no_grad():
            for w in model.parameters():
                w -= w.grad
            logits = norm_ratio(load(save)(input_ids=ids).logits.numpy(), model(input_ids=ids).logits.numpy())
        apart.append(("logits of what orrery saved", logits, ROUNDING))
    wrong = [f"{name} differs by {d:.3g}, bound {bound:.3g}" for name, d, bound in apart if not d <= bound]
    name, most, bound = max(apart, key=lambda a: a[1] / a[2])
    print(f"{what}: {len(apart)} compared; loss {loss.item():.12f}, orrery {ours:.12f}, {apart[0][1]:.2g} apart; "
          f"logits of what orrery saved {logits:.2g}; nearest to its bound {name}, {most:.2g} of {bound:.2g}")
    for line in wrong:
        print(f"  {line}")
    return not wrong


def random_folder(folder, tied):
    torch.manual_seed(SEED)
    config = transformers.GPT2Config(vocab_size=259, n_positions=32, n_embd=30, n_layer=3, n_head=5, n_inner=77, initializer_range=0.2,
                                     tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    for w in model.parameters():                # biases and norms away from 0 and 1, where mistakes could hide
        w.data += 0.1 * torch.randn_like(w)
    model.save_pretrained(folder, safe_serialization=True)


def main():
    arguments = argparse.ArgumentParser(description="Compare orrery with Hugging Face transformers.")
    arguments.add_argument("folders", nargs="*", metavar="DIR", help="saved by `orrery train --save DIR`")
    arguments.add_argument("--orrery", default=str(ROOT / "orrery"), help="the program; default ./orrery")
    given = arguments.parse_args()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    holds = True
    for tied in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            random_folder(folder, tied)
            holds &= check(given.orrery, folder, f"random GPT-2 of transformers, {'tied' if tied else 'untied'}")
    for folder in given.folders:
        holds &= check(given.orrery, folder, folder)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
