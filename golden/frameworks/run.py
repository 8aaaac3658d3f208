#!/usr/bin/env python3
"""Real frameworks against `orrery check`: makes a golden file, lets each run train, checks what it has recorded.

    golden/frameworks/run.py [NAME ...] [--orrery ./orrery] [--work build/frameworks] [--bugs only|no]

`make frameworks` runs it in a virtual environment of its own.  Exit status 1 if a run does not hold, or a bug that was put in
is not found.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FORMATS = ("fp32", "bf16")

# name: script and its variant
RUNS = {
    "gpt2": ("gpt2",), "gpt_oss": ("gpt_oss",), "trainer": ("trainer",), "ddp": ("ddp",), "fsdp1": ("fsdp", "fsdp1"), "fsdp2": ("fsdp", "fsdp2"), "tp_sp": ("tp_sp",), "fsdp2_tp": ("fsdp2_tp",),
    "context_parallel": ("context_parallel",), "pp_1f1b": ("pipelining", "1f1b"), "pp_interleaved": ("pipelining", "interleaved"),
    "pp_zbv": ("pipelining", "zbv"), "zero1": ("deepspeed_zero", "zero1"), "zero2": ("deepspeed_zero", "zero2"),
    "zero3": ("deepspeed_zero", "zero3"), "jax": ("jax_shard_map",), "megatron_tp": ("megatron_tp",),
    "four_lines": ("four_lines",), "fused_te": ("fused", "te"), "fused_add_norm": ("fused", "add_norm"), "checkpoint": ("checkpoint", "plain"),
    "checkpoint_reentrant": ("checkpoint", "reentrant"), "checkpoint_wrapped": ("checkpoint", "wrapped"), "compiled_inside": ("compiled", "inside"),
    "compiled_borders": ("compiled", "borders"), "nanogpt": ("nanogpt",), "picotron": ("picotron",), "lora": ("lora", "plain"), "lora_rs": ("lora", "rslora"),
}
FAMILIES = ("mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3", "olmo2", "olmo3", "granite", "smollm3", "starcoder2", "nemotron", "gpt_neox",
            "gptj", "mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")
RUNS.update({name: ("families", name) for name in FAMILIES})
GOLDENS = {"gpt2": HERE.parent / "gpt2-tied.safetensors", "gpt_oss": HERE.parent / "gptoss-windows.safetensors"}          # the others: what make_golden makes

PRESETS = {"nanogpt": "nanogpt-tiny"}                                # golden files of models of `orrery list`

# (run, bug, format, what is wrong first, where it was reported)
BUGS = (
    ("trainer", "mean-of-means", "fp32", "grad/logits", "huggingface/transformers#34242, #24725"),
    ("ddp", "mean-of-means", "fp32", "grad/logits", "huggingface/transformers#34242"),
    ("ddp", "rounded-rotary", "bf16", "act/h.0.attn.rotated", "huggingface/transformers#25681"),
    ("tp_sp", "norm-gradients-not-summed", "fp32", "grad/model.layers.0.input_layernorm.weight", "Dao-AILab/flash-attention#625"),
    ("tp_sp", "norm-counts-copies", "fp32", "norm", "NVIDIA-NeMo/RL#3788"),
    ("tp_sp", "logits-gathered-twice", "fp32", "loss", "NVIDIA/Megatron-LM#7452"),
    ("tp_sp", "reduce-dtype-ignored", "bf16", "act/h.0.attn.out", "pytorch/pytorch#190626"),
    ("megatron_tp", "norm-gradients-not-summed", "fp32", "grad/model.layers.0.input_layernorm.weight", "Dao-AILab/flash-attention#625"),
    ("context_parallel", "shift-after-cut", "fp32", "grad/logits", "huggingface/transformers#36607"),
    ("zero2", "manual-accumulation", "fp32", "grad/model.embed_tokens.weight", "allenai/open-instruct#1498"),
    ("four_lines", "labels-shifted-twice", "fp32", "grad/logits", "-"),
    ("fused_te", "zero-centered-gamma", "fp32", "act/h.1.mlp.out", "-"),
    ("fused_add_norm", "norm-of-the-branch", "fp32", "act/h.1.ln_2", "-"),
    ("checkpoint", "recomputed-otherwise", "fp32", "grad/h.1.mlp.up", "-"),
    ("checkpoint_reentrant", "recomputed-otherwise", "fp32", "grad/h.1.mlp.up", "-"),
    ("compiled_inside", "other-activation", "fp32", "act/h.2.mlp.act", "-"),
    ("compiled_borders", "other-activation", "fp32", "act/h.2.out", "-"),
    ("nanogpt", "tanh-gelu", "fp32", "act/h.0.mlp.act", "-"),
    ("picotron", "gradients-not-summed", "fp32", "grad/model.layers.0.input_layernorm.weight", "-"),
    ("lora", "wrong-scaling", "fp32", "act/h.0.attn.qkv", "-"),
    ("lora", "gradient-transposed", "fp32", "grad/model.layers.1.self_attn.q_proj.lora_A.weight", "-"),
    ("lora", "gradient-lost", "fp32", "grad/model.layers.1.self_attn.q_proj.lora_A.weight", "-"),
    ("lora", "base-moved", "fp32", "adamw/weight/model.layers.1.self_attn.o_proj.weight", "-"),
)


def make_golden(work, orrery):
    """A small Llama with A = 8 and K < H, four layers, and batches in which sequences have 15, 12, 8 and 3 labels that count."""
    import numpy
    import torch
    import transformers
    from safetensors.numpy import save_file
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=64, max_position_embeddings=32, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500.0}, tie_word_embeddings=False,
        initializer_range=0.15, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    transformers.LlamaForCausalLM(config).double().save_pretrained(work / "model")
    draw = numpy.random.default_rng(1)
    ids = draw.integers(0, 64, (3, 4, 17))
    labels = ids[:, :, 1:].copy()
    labels[:, :, -1] = -100                                         # transformers' loss has no label for the last token
    for b, counted in enumerate((15, 12, 8, 3)):
        for step in range(3):
            labels[step, b, draw.choice(15, 15 - counted, replace=False)] = -100
    save_file({"ids": ids[:, :, :-1].copy(), "labels": labels}, work / "batch.safetensors")
    return golden_of(work, "llama", orrery)


def golden_of(work, name, orrery):
    """The golden file of work/model and work/batch.safetensors."""
    return made(work / f"{name}.safetensors", ["--model", work / "model", "--batch", work / "batch.safetensors"], orrery)


def preset_golden(work, name, orrery):
    """The golden file of a preset, with weights that are drawn and a batch of its own."""
    return made(work / f"{name}.safetensors", ["--model", PRESETS[name], "--cover", "--sequences", "2", "--tokens", "15"], orrery)


def made(path, of, orrery):
    name = path.stem
    done = subprocess.run([orrery, "golden", "make", "--out", path, *of, "--as", "orrery,clip-added=1e-6", "--eps", "1e-4", "--clip", "0.5"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"run.py: orrery golden make: {name}: {done.stderr.strip()}")
    return path


def family_golden(work, name, orrery):
    """The golden file of a family's small model, which runs/families.py saves."""
    sys.path.insert(0, str(HERE / "runs"))
    import families
    folder = work / f"{name}-golden"
    folder.mkdir(parents=True, exist_ok=True)
    families.save(name, folder)
    return golden_of(folder, name, orrery)


def clear(out):
    """Files of an earlier run must not be taken for this one's."""
    for folder in out.glob("*"):
        shutil.rmtree(folder, ignore_errors=True)


def execute(name, golden, out, formats, bug=None):
    """Run a script.  @return None, or the last line of what it said"""
    clear(out)
    script, *variant = RUNS[name]
    command = [sys.executable, HERE / "runs" / f"{script}.py", golden, out, "--dtype", *formats]
    command += (["--bug", bug] if bug else []) + (["--variant", *variant] if variant else [])
    with open(f"{out}.log", "w") as log:
        try:
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=600).returncode
        except subprocess.TimeoutExpired:
            return "not done after 600 s"
    lines = [line for line in pathlib.Path(f"{out}.log").read_text().splitlines() if line.strip()]
    return None if status == 0 else f"{lines[-1] if lines else 'nothing said'} ({out}.log)"


def check(orrery, golden, folder):
    """@return (verdict, tensors compared as a whole, first wrong, what it is)"""
    done = subprocess.run([orrery, "check", golden, folder, "--json", f"{folder}.json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        return "FAILED", 0, "", done.stderr.strip()
    result = json.loads(pathlib.Path(f"{folder}.json").read_text())
    compared = sum(t["finding"] in ("holds", "differs") for t in result["tensors"])
    wrong = next((t for t in result["tensors"] if t["fails"]), None)
    alone = next((o for o in result["operations"] if o["verdict"] == "wrong"), None)
    if wrong is None and alone:                                     # plausible as a whole, but not what its own inputs give
        return "FAILED", compared, alone["result"], f"by itself, {alone['made_by']}"
    text = "" if wrong is None else "; ".join(str(wrong[k]) for k in ("why", "wrong_on", "scale") if wrong.get(k))
    return result["verdict"], compared, wrong["tensor"] if wrong else "", text


def watch(orrery, golden, out, bug=None):
    """Watch a training run of two processes while it runs.  @return (verdict of each step that was judged, exit status, why it did not end)"""
    clear(out)
    out.mkdir(parents=True, exist_ok=True)
    for judged in out.glob("judged*"):
        judged.unlink()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", HERE / "runs" / "watched.py", golden, out]
    with open(f"{out}.log", "w") as log:
        training = subprocess.Popen(command + (["--bug", bug] if bug else []), stdout=log, stderr=subprocess.STDOUT)
        watching = subprocess.Popen([orrery, "check", golden, out / "fp32", "--watch", "--timeout", "300", "--page", f"{out}.html"],
                                    stdout=subprocess.PIPE, stderr=log, text=True)
        steps = []
        for line in watching.stdout:
            found = re.match(r"step (\d+) +(OK|FAILED|NOT ENOUGH|not judged) +(.*)", line)
            if found:
                steps.append((found[2], found[3]))
                if found[2] == "OK":
                    (out / f"judged{found[1]}").touch()                 # the program goes on
        status = watching.wait()
        if status:
            training.terminate()                                        # nobody waits for a run that is wrong
        try:
            ended = training.wait(timeout=60)
        except subprocess.TimeoutExpired:
            training.kill()
            ended = "no end after 60 s"
    return steps, status, None if status or ended == 0 else f"{ended} ({out}.log)"


def watched_runs(given, golden):
    """A right run and one with a bug in its second step.  @return how many were not judged as they are"""
    rows, failed = [("watched", "steps", "exit", "first wrong")], 0
    for bug, status, verdicts, first in (None, 0, ["OK"] * 3, ""), ("states-lost", 3, ["OK", "FAILED"], "adamw/2/exp_avg/"):
        steps, ended, why = watch(given.orrery, golden, given.work / f"watched-{bug or 'right'}", bug)
        text = "" if not steps or steps[-1][0] == "OK" else steps[-1][1]
        right = why is None and ended == status and [verdict for verdict, _ in steps] == verdicts and first in text
        failed += not right
        rows.append((bug or "right", ", ".join(verdict for verdict, _ in steps), ended, ("" if right else "NO: ") + (why or text)))
    print()
    table(rows)
    return failed


def table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join([str(x).ljust(w) for x, w in zip(row, widths)] + [str(row[-1])]).rstrip(), flush=True)


def golden_for(name, given, golden):
    """The golden file of a run."""
    if name in PRESETS:
        return preset_golden(given.work, name, given.orrery)
    return family_golden(given.work, name, given.orrery) if name in FAMILIES else GOLDENS.get(name, golden)


def all_runs(names, given, golden):
    rows, failed = [("run", "format", "tensors", "verdict", "first wrong")], 0
    for name in names:
        began = time.time()
        of = golden_for(name, given, golden)
        why = execute(name, of, given.work / name, FORMATS)
        print(f"  {name}: {time.time() - began:.0f} s", file=sys.stderr, flush=True)
        for dtype in FORMATS:
            for folder in (given.work / name / dtype, given.work / name / f"{dtype}-before"):
                if why or ("-before" in folder.name and not folder.is_dir()):
                    continue
                verdict, compared, first, text = check(given.orrery, of, folder)
                failed += not verdict.startswith("OK")
                rows.append((name + (" before" if "-before" in folder.name else ""), dtype, compared, verdict, f"{first} {text}"))
        if why:
            failed += 1
            rows.append((name, "", "", "FAILED", why))
    table(rows)
    return failed


def all_bugs(names, given, golden):
    rows, failed = [("run", "bug", "format", "found", "first wrong", "it is", "reported")], 0
    for name, bug, dtype, first, reported in BUGS:
        if name not in names:
            continue
        out = given.work / f"{name}-{bug}"
        of = golden_for(name, given, golden)
        why = execute(name, of, out, [dtype], bug)
        verdict, _, wrong, text = check(given.orrery, of, out / dtype) if why is None else ("OK", 0, "", why)
        found = verdict == "FAILED" and wrong == first
        failed += not found
        rows.append((name, bug, dtype, "yes" if found else f"NO: expected {first}", wrong, text, reported))
    if len(rows) > 1:
        print()
        table(rows)
    return failed


def main():
    arguments = argparse.ArgumentParser(description="Check what real frameworks compute.")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"runs: {', '.join(RUNS)}, watched; default: all")
    arguments.add_argument("--orrery", type=lambda p: str(pathlib.Path(p).resolve()), default="./orrery")
    arguments.add_argument("--work", type=pathlib.Path, default="build/frameworks")
    arguments.add_argument("--bugs", choices=("only", "no"), help="only the runs with bugs, or only those without; default: both")
    given = arguments.parse_args()
    unknown = [n for n in given.names if n not in (*RUNS, "watched")]
    if unknown:
        sys.exit(f"run.py: {unknown[0]} is not a run: {', '.join(RUNS)}, watched")
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    golden, names = make_golden(given.work, given.orrery), given.names or [*RUNS, "watched"]
    watched = "watched" in names
    names = [n for n in names if n != "watched"]
    failed = 0 if given.bugs == "only" or not names else all_runs(names, given, golden)
    failed += 0 if given.bugs == "no" else all_bugs(names, given, golden)
    failed += watched_runs(given, golden) if watched else 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
