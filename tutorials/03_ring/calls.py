"""calls.py -- how the judge of lesson 03 reaches the functions of ring.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).
"""

CALLS = {
    "ring_reduce_scatter": lambda ring, call: ring.ring_reduce_scatter(call.group[0], call.floats(0)),
    "ring_all_gather": lambda ring, call: ring.ring_all_gather(call.group[0], call.floats(0)),
    "ring_all_reduce": lambda ring, call: ring.ring_all_reduce(call.group[0], call.floats(0)),
}
