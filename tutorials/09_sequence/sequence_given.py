"""sequence_given.py -- lesson 09: what sequence.py is given: a norm and its gradient, and a layer.

The judge makes a Layer and a Kept; sequence.py uses them.  All arithmetic is in float32; sums go from the first number
to the last.
"""
from course import *


def last_sum(x, axis):
    """The sum along an axis, one after another; 0 of nothing."""
    if x.shape[axis] == 0:
        return np.zeros(x.shape[1 - axis], np.float32)
    return np.take(np.add.accumulate(x, axis=axis), -1, axis=axis)


def norm(x, w, y):
    """y becomes the norm of x, row by row: each number is divided by the root of its row's mean square, and multiplied
    by a weight of its column."""
    D = np.float32(x.shape[1])
    r = np.float32(1) / np.sqrt(last_sum(x * x, 1) / D + np.float32(1e-5))
    y[:] = x * r[:, None] * w
    work(4.0 * x.size, 0)


def norm_backward(x, w, dy, dx, dw):
    """From dy, the gradient of y: dx, and dw, the sum over these rows.  dx may be dy."""
    D = np.float32(x.shape[1])
    r = np.float32(1) / np.sqrt(last_sum(x * x, 1) / D + np.float32(1e-5))
    back = last_sum(dy * w * x, 1) * r * r / D
    dw[:] = last_sum(dy * x * r[:, None], 0)
    dx[:] = (dy * w - x * back[:, None]) * r[:, None]
    work(11.0 * x.size, 0)


class Layer:
    """y = x + relu(norm(x) A) B.  A is cut by columns, B by rows, as in lesson 08; here this device's parts are given.
    T tokens of D numbers; own: hidden numbers of a token that this device has, 0 or more; w: weights of the norm, D
    numbers, the same on all devices; A [D, own], B [own, D]."""

    def __init__(self, T, D, own, w, A, B):
        self.T, self.D, self.own, self.w, self.A, self.B = T, D, own, w, A, B


class Kept:
    """What forward allocates and backward releases.  normed: norm(x) {KEEP: of this device's tokens|of all T tokens};
    hidden: relu(..), T rows of `own` numbers."""
    normed = hidden = None
