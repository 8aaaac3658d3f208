"""calls.py -- how the judge of lesson 09 reaches the functions of sequence.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from course import release
from sequence_given import Kept, Layer


def rows(call, i, D):
    return call.floats(i, call.bytes[i] // (4 * D), D)


def gather(sequence, call):
    T, D = call.number[:2]
    sequence.gather_tokens(call.group[0], rows(call, 0, D), call.floats(1, T, D))


def reduce(sequence, call):
    T, D = call.number[:2]
    sequence.reduce_tokens(call.group[0], call.floats(0, T, D), rows(call, 1, D))


def layer(call):
    T, D, own = call.number[:3]
    return Layer(T, D, own, call.floats(0), call.floats(1, D, own), call.floats(2, own, D))


def forward(sequence, call):
    l, k = layer(call), Kept()
    sequence.layer_forward(call.group[0], l, rows(call, 3, l.D), k, rows(call, 4, l.D))
    release(k.normed)
    release(k.hidden)


def backward(sequence, call):
    """Both passes, as in a step."""
    l, k = layer(call), Kept()
    x = rows(call, 3, l.D)
    sequence.layer_forward(call.group[0], l, x, k, rows(call, 4, l.D))
    sequence.layer_backward(call.group[0], l, x, k, rows(call, 5, l.D), rows(call, 6, l.D), call.floats(7),
                            call.floats(8, l.D, l.own), call.floats(9, l.own, l.D))


CALLS = {"gather_tokens": gather, "reduce_tokens": reduce, "layer_forward": forward, "layer_backward": backward}
