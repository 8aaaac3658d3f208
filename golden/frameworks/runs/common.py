"""What the runs share: the golden file, its model of transformers, and processes over gloo.

    golden/frameworks/runs/NAME.py GOLDEN FOLDER [--dtype fp32 bf16] [--bug BUG] [--variant NAME]

A run trains the model of GOLDEN on its first batch and writes FOLDER/DTYPE/rankR.safetensors.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

os.environ.update(TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", GLOO_SOCKET_IFNAME="lo")
import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from safetensors import safe_open

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from orrery_dump import names
from orrery_dump.recorder import clean

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
IGNORED = -100


class Golden:
    """A golden file: config, start, batches and the settings of its optimizers."""

    def __init__(self, path):
        with safe_open(path, "pt") as f:
            self.path, self.meta = pathlib.Path(path), f.metadata()
            self.start = {k[len("start/"):]: f.get_tensor(k) for k in f.keys() if k.startswith("start/")}
            self.ids, self.labels = f.get_tensor("ids").long(), f.get_tensor("labels").long()
            self.every_step = any(k.startswith("adamw/1/") for k in f.keys())        # or the last one only
            self.optimizers = {k[:-len("/lr")]: f.get_tensor(k).tolist() for k in f.keys() if k.endswith("/lr")}
        self.labels[self.labels == -1] = IGNORED
        self.config = json.loads(self.meta["config"])
        self.sequences, self.tokens = self.ids.shape[1:]

    def counted(self, step=0):
        """Labels of a batch that count: the loss is the mean over them."""
        return int((self.labels[step] != IGNORED).sum())

    def setting(self, name):
        return float(self.meta[name])

    def model(self, dtype=torch.float32, whole=False):
        """The model of transformers with the golden start.  whole: by model.to(dtype), which also rounds the frequencies of rotary positions."""
        kind = {"llama": transformers.LlamaForCausalLM, "gpt2": transformers.GPT2LMHeadModel}[self.config["model_type"]]
        config = kind.config_class(**{k: 0.0 if k.endswith(("pdrop", "dropout")) else v for k, v in self.config.items() if k != "architectures"})
        config.use_cache = False
        return self.started(kind(config).to(dtype if whole else torch.float32), names.of_config(self.config).parameters, dtype)

    def started(self, model, places, dtype):
        """A model with the golden start."""
        for name, p in model.named_parameters():
            place = places[name]
            whole = torch.stack([self.part(one) for one in place]) if isinstance(place, list) else self.part(place)
            p.data = whole.reshape(p.shape).to(dtype)
        return model

    def part(self, place):
        """A weight of theirs: ours are fused, and GPT-2's are transposed."""
        t = self.start[place.name].reshape(place.of)[place.rows]
        return t.T.contiguous() if place.transposed else t

    def adamw(self, model, places=None):
        """Weight decay is of matrices only; a shard of one may be a row of numbers, so names say which."""
        m = {k: self.setting("adamw." + k) for k in ("beta1", "beta2", "eps", "weight_decay")}
        places = places or names.of_config(self.config).parameters
        places = {n: p[0] if isinstance(p, list) else p for n, p in places.items()}
        is_matrix = lambda n, p: places[n].of[1] > 1 if n in places else p.ndim > 1         # adapters have no place in ours
        groups = [{"params": [p for n, p in model.named_parameters() if p.requires_grad and is_matrix(clean(n), p) == matrix],
                   "weight_decay": m["weight_decay"] * matrix} for matrix in (True, False)]
        return torch.optim.AdamW([g for g in groups if g["params"]], lr=self.optimizers["adamw"][0], betas=(m["beta1"], m["beta2"]), eps=m["eps"])


def summed_loss(logits, labels):
    """Sum over the labels that count.  Labels stand beside their tokens."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def train(golden, recorder, model, losses_and_gradients, norm_of=torch.nn.utils.clip_grad_norm_, masters=True):
    """The golden steps of AdamW, recorded.

    losses_and_gradients(step)  backward of a batch; returns the loss of the whole batch
    masters                     whether weights are stepped in fp32.  If not, the first pass is all that can be compared
    """
    optimizer, losses, norms, steps = golden.adamw(model, recorder.names.parameters), [], [], len(golden.ids)
    for step in range(steps if masters else 1):
        losses.append(losses_and_gradients(step).item())
        if step == 0 or golden.every_step:
            recorder.gradients("grad/" if step == 0 else f"adamw/{step + 1}/grad/")
        norm = norm_of(model.parameters(), golden.setting("adamw.clip"))
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        if step == 0:
            recorder.stop()
            recorder.number("loss", losses[0])
            recorder.number("norm", norms[0])
        if masters:
            for group in optimizer.param_groups:
                group["lr"] = golden.optimizers["adamw"][step]
            optimizer.step()
            optimizer.zero_grad()
            if step + 1 == steps or golden.every_step:
                recorder.weights("adamw", optimizer, step=step + 1, last=step + 1 == steps)
    if masters:
        recorder.numbers("adamw/loss", losses)
        recorder.numbers("adamw/norm", norms)
    recorder.save()


def summed_over(loss, group=None):
    """A loss of which each process has a part."""
    loss = loss.detach().clone()
    dist.all_reduce(loss, group=group)
    return loss


def arguments(bugs=(), variants=(), more=lambda parser: None):
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("golden", type=Golden)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["fp32"])
    parser.add_argument("--bug", choices=bugs)
    parser.add_argument("--variant", choices=variants, default=variants[0] if variants else None)
    more(parser)
    return parser.parse_args()


def launch(run, ranks, bugs=(), variants=()):
    """Run run(golden, out, case) in `ranks` processes over gloo, for each format; case: dtype, bug, variant."""
    given = arguments(bugs, variants)
    torch.set_num_threads(1)
    for given.dtype in given.dtype:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(_process, (ranks, folder + "/store", run, given), nprocs=ranks, start_method="fork")


def _process(rank, ranks, store, run, case):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    run(case.golden, case.out / case.dtype, case)
    dist.barrier()
    dist.destroy_process_group()


def alone(run, bugs=(), variants=(), more=lambda parser: None):
    """The same in this process.  more: adds options of this run's own to case."""
    given = arguments(bugs, variants, more)
    torch.set_num_threads(1)
    for given.dtype in given.dtype:
        torch.manual_seed(0)
        run(given.golden, given.out / given.dtype, given)
