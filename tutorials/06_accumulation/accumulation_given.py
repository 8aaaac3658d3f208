"""accumulation_given.py -- lesson 06: what accumulation.py is given.

A device computes its part of the batch in microbatches, one after another.  Each has a number of labels.  The judge
makes a Batch; accumulation.py uses it.
"""
from course import *


class Batch:
    """micros: microbatches of this device, 1 or more; others may have more or fewer.  labels: of each, 0 or more.
    n: numbers of a gradient.  loss and means are for micro_backward."""

    def __init__(self, micros, labels, loss, means, n):
        self.micros, self.labels, self.loss, self.means, self.n = micros, labels, loss, means, n


def micro_backward(b, m, into):
    """Forward and backward of microbatch m, as frameworks have it: `into` becomes the gradient of the mean loss over the
    labels of this microbatch, n numbers.  Returns that mean.  Without labels all of them are 0/0, not a number.  Call it
    once for each microbatch, also for those without labels, from the {ORDER: first to the last|last to the first}."""
    into[:] = b.means[m * b.n:(m + 1) * b.n]
    work(1e6, 0)
    return b.loss[m]
