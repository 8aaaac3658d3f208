"""calls.py -- how the judge of lesson 02 reaches the functions of messages.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).
"""

CALLS = {
    "shift": lambda messages, call: messages.shift(call.group[0], call.floats(0), call.floats(1), call.number[1]),
    "swap_pairs": lambda messages, call: messages.swap_pairs(call.group[0], call.floats(0)),
    "running_sum": lambda messages, call: messages.running_sum(call.group[0], call.floats(0)),
}
