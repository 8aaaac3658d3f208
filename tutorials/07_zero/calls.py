"""calls.py -- how the judge of lesson 07 reaches the functions of zero.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from zero_given import Optimizer, SharedModel


def zero1(zero, call):
    o = Optimizer(*call.given[:2])
    for _ in range(call.number[1]):
        zero.zero1_step(call.group[0], o, call.floats(0), call.floats(1), call.floats(2), call.floats(3))


def zero3(zero, call):
    o = Optimizer(*call.given[:2])
    m = SharedModel(call.number[0], call.wholes(0), call.floats(1), call.floats(2), call.floats(3), call.floats(4))
    for _ in range(call.number[1]):
        zero.zero3_step(call.group[0], o, m)


CALLS = {
    "zero_memory": lambda zero, call: ("real", zero.zero_memory(call.given[0], call.number[0], call.number[1])),
    "zero1_step": zero1, "zero3_step": zero3,
}
