"""calls.py -- how the judge of lesson 08 reaches the functions of tensor.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from tensor_given import Gradients, Pair


def part(call, rows):
    return call.floats(1, rows, call.bytes[1] // (4 * rows) if rows else 0)


def columns(tensor, call):
    rows, n = call.number[:2]
    tensor.cut_columns(call.group[0], call.floats(0, rows, n), part(call, rows))


def rows(tensor, call):
    n, columns = call.number[:2]
    tensor.cut_rows(call.group[0], call.floats(0, n, columns), call.floats(1, call.bytes[1] // (4 * columns), columns))


def heads(tensor, call):
    rows, heads, width = call.number[:3]
    tensor.cut_heads(call.group[0], call.floats(0, rows, 3 * heads * width), heads, width, part(call, rows))


def pair(call):
    T, D, own = call.number[:3]
    return Pair(T, D, own, call.floats(0, D, own), call.floats(1), call.floats(2, own, D), call.floats(3))


def forward(tensor, call):
    m = pair(call)
    tensor.mlp_forward(call.group[0], m, call.floats(4, m.T, m.D), call.floats(5, m.T, m.own), call.floats(6, m.T, m.D))


def backward(tensor, call):
    m = pair(call)
    d = Gradients(call.floats(8, m.D, m.own), call.floats(9), call.floats(10, m.own, m.D), call.floats(11))
    tensor.mlp_backward(call.group[0], m, call.floats(4, m.T, m.D), call.floats(5, m.T, m.own),
                        call.floats(6, m.T, m.D), call.floats(7, m.T, m.D), d)


CALLS = {"cut_columns": columns, "cut_rows": rows, "cut_heads": heads, "mlp_forward": forward,
         "mlp_backward": backward}
