"""A model of transformers on one process, recorded by golden/frameworks/orrery_dump: the second kind of right programs."""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))

# option: its values, the usual first
OPTIONS = {"dtype": ("fp32", "bf16", "fp16"), "attention": ("eager", "sdpa"), "micros": (1, 2, 3), "scale": (1.0, 1024.0), "gradients": ("stored", "fp32")}
FAMILIES = ("llama", "gpt2", "qwen2", "qwen3")


def dump(golden, folder, case):
    """One pass in any format; in fp32 all steps of AdamW."""
    import torch
    import transformers
    from orrery_dump import Recorder
    from files import read
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    meta, tensors = read(golden)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    net = transformers.AutoModelForCausalLM.from_pretrained(golden.with_suffix(""), attn_implementation=case.attention)
    net.config.use_cache = False
    for p in net.parameters():                                    # model.to() would also round the frequencies of positions
        p.data = p.data.to(dtype)
    B, S = tensors["ids"].shape[1:]
    recorder = Recorder(net, None, folder, batch=(B, S), dtype=case.dtype)
    recorder.start()
    decayed = [[p for p in net.parameters() if (p.ndim > 1) == matrix] for matrix in (True, False)]
    of = lambda name: float(meta["adamw." + name])
    optimizer = torch.optim.AdamW([{"params": p, "weight_decay": of("weight_decay") * matrix} for p, matrix in zip(decayed, (True, False))],
                                  lr=float(tensors["adamw/lr"][0]), betas=(of("beta1"), of("beta2")), eps=of("eps"), foreach=False)
    steps, losses, norms = len(tensors["ids"]) if case.dtype == "fp32" else 1, [], []
    for k in range(steps):
        ids, labels = torch.tensor(tensors["ids"][k]).long(), torch.tensor(tensors["labels"][k]).long()
        total, sums = 0.0, {n: torch.zeros_like(p, dtype=torch.float32) for n, p in net.named_parameters()}
        for m, mine in enumerate(np.array_split(np.arange(B), case.micros)):
            if len(mine) == 0:
                continue
            if k == 0:
                recorder.microbatch(sequences=[int(i) for i in mine], number=m, times=1 / case.scale)
            logits = net(input_ids=ids[mine]).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[mine].flatten(), ignore_index=-1, reduction="sum")
            (loss * (case.scale / int((labels >= 0).sum()))).backward()
            total += loss.item() / int((labels >= 0).sum())
            if case.gradients == "fp32":                            # main gradients, as Megatron keeps them
                for n, p in net.named_parameters():
                    sums[n] += p.grad.float()
                    p.grad = None
        for n, p in net.named_parameters() if case.gradients == "fp32" and case.dtype == "fp32" else ():
            p.grad = sums[n]
        if case.gradients == "fp32" and case.dtype != "fp32":
            for n, p in net.named_parameters():
                recorder.parameter("grad/", n, sums[n], like=p, times=1 / case.scale)
        else:
            recorder.gradients("grad/" if k == 0 else f"adamw/{k + 1}/grad/", times=1 / case.scale)
        recorder.stop()
        losses.append(total)
        if case.dtype == "fp32":
            for p in net.parameters():
                p.grad /= case.scale
            norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in net.parameters()])))
            torch.nn.utils.clip_grads_with_norm_(net.parameters(), of("clip"), torch.tensor(norms[-1] - 1e-6))
            optimizer.step()
            optimizer.zero_grad()
            recorder.weights("adamw", optimizer, step=k + 1, last=k + 1 == steps)
    recorder.number("loss", losses[0])
    if norms:
        recorder.number("norm", norms[0])
        recorder.numbers("adamw/loss", losses)
        recorder.numbers("adamw/norm", norms)
    recorder.save()
