"""calls.py -- how the judge of lesson 05 reaches the functions of data.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
import numpy as np
from data_given import Model


def model(call):
    return Model(call.number[0], call.wholes(0), call.wholes(1), call.floats(2), call.floats(3), call.floats(4))


CALLS = {
    "make_buckets": lambda data, call: ("whole", data.make_buckets(call.wholes(0), call.number[1],
                                                                   call.array(1, np.int32))),
    "data_gradients": lambda data, call: data.data_gradients(call.group[0], model(call), call.number[1]),
    "data_train": lambda data, call: data.data_train(call.group[0], model(call), call.number[1], call.number[2],
                                                     np.float32(call.given[0])),
}
