"""calls.py -- how the judge of lesson 06 reaches the functions of accumulation.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from accumulation_given import Batch


def gradient(accumulation, call):
    b = Batch(call.number[0], call.wholes(0), call.floats(1), call.floats(2), call.number[1])
    return "real", accumulation.batch_gradient(call.group[0], b, call.floats(3))


CALLS = {
    "mean_loss": lambda accumulation, call: ("real", accumulation.mean_loss(call.doubles(0), call.wholes(1))),
    "batch_gradient": gradient,
    "clip": lambda accumulation, call: ("real", accumulation.clip(call.floats(0), call.given[0])),
}
