"""data_given.py -- lesson 05: what data.py is given.

A model has parameters 0, 1, ..; parameter i has count[i] numbers, 1 or more.  Weights and gradients of all parameters
lie one after another, parameter 0 first.  The judge makes a Model; data.py uses it.
"""
from course import *


class Model:
    """count, operations: of each parameter, its numbers and what computing its gradient takes.  target: this device's
    part of the batch, the weights that it would like best.  weights, gradient: as many numbers."""

    def __init__(self, parameters, count, operations, target, weights, gradient):
        self.parameters, self.count, self.operations = parameters, count, operations
        self.target, self.weights, self.gradient = target, weights, gradient


def place_of(m, i):
    """Where parameter i begins in weights and gradient."""
    return int(m.count[:i].sum())


def backward(m, i):
    """Compute this device's gradient of parameter i, that of 1/2 (weights - target)^2.  The backward pass computes the
    last parameter's first, and parameter 0's last: call it in that order."""
    start = place_of(m, i)
    end = start + m.count[i]
    m.gradient[start:end] = m.weights[start:end] - m.target[start:end]
    work(m.operations[i], 0)
