"""tensor_given.py -- lesson 08: what tensor.py is given: a pair of matrices, Y = relu(X A + a) B + b.

The judge makes a Pair, and Gradients to be filled; tensor.py uses them.
"""


class Pair:
    """For T tokens; X and Y have D numbers a token, on every device the same ones.  own: hidden numbers of a token that
    this device has, 0 or more.  A: its columns of A, [D, own]; a: its numbers of a; B: its rows of B, [own, D]; b: all of
    b, D numbers."""

    def __init__(self, T, D, own, A, a, B, b):
        self.T, self.D, self.own, self.A, self.a, self.B, self.b = T, D, own, A, a, B, b


class Gradients:
    """Of this device's parts, as they lie in Pair."""

    def __init__(self, A, a, B, b):
        self.A, self.a, self.B, self.b = A, a, B, b
