"""Runs of orrery from Python.

    import orrery

    run = orrery.train(model="tiny", dp=2, tp=2, steps=20, check="ref")
    run["check"]["holds"], run.losses()          # a dict of docs/using/json.md, with a few functions
    orrery.draw_losses(run)                      # a picture in a notebook

    orrery.read_tensors("golden/gpt2-tied.safetensors")["loss"]
    orrery.read_checkpoint("saved")              # weights, optimizer state, and the step
    orrery.read_trace("trace.json")              # a list of slices, as dicts
    orrery.diagnose_pytorch("dumps")             # who is slow or hangs, by flight-recorder dumps of PyTorch
    orrery.read_dcp("folder")                    # tensors of a checkpoint of torch.distributed.checkpoint; write_dcp

The program is $ORRERY, else that of a wheel, else `orrery` in PATH.  A command that fails raises orrery.Error with its message and status;
one whose check failed returns its results, with run.status == 3.
"""

from orrery.dcp import dcp_shapes, read_dcp, write_dcp
from orrery.draw import Picture, draw_losses, draw_memory, draw_schedule
from orrery.files import read_checkpoint, read_tensors, read_trace, write_tensors
from orrery.flight import diagnose_pytorch
from orrery.program import Error, Run, command, infer, json_of, plan, train

__all__ = [
    "Error", "Picture", "Run", "command", "dcp_shapes", "diagnose_pytorch", "draw_losses", "draw_memory", "draw_schedule", "infer",
    "json_of", "plan", "read_checkpoint", "read_dcp", "read_tensors", "read_trace", "train", "write_dcp", "write_tensors",
]
