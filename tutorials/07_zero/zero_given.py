"""zero_given.py -- lesson 07: what zero.py is given.

The optimizer is SGD with momentum.  One step of one number, all in float32, v being its momentum, and `gradient` the sum
of all devices', divided by W:

    {MOMENTUM: v = beta v + gradient|v = beta v + (1 - beta) gradient}
    weight = weight - rate v

The judge makes an Optimizer and a SharedModel; zero.py uses them.
"""
from course import *


class Optimizer:
    """rate and beta, both np.float32."""

    def __init__(self, rate, beta):
        self.rate, self.beta = np.float32(rate), np.float32(beta)


def whole_gradient(weights, target, gradient):
    """This device's gradient of 1/2 (weights - target)^2."""
    gradient[:] = weights - target


class SharedModel:
    """layers: 1 or more.  count: numbers of each layer, 1 or more.  target: of layer 0, then of layer 1, ..  weights, v:
    this device's block of layer 0, then its block of layer 1, ..  seen: what each layer gives, by forward.  error: from
    the layer above, by backward.

    A layer halves what comes from the layer before and adds the mean of its weights: seen[l] = seen[l-1] / 2 + mean.  So
    the error that backward hands down from a layer is half of what came from above, and that of the last layer is what
    it gave: a layer's gradient needs all layers above it."""

    def __init__(self, layers, count, target, weights, v, seen):
        self.layers, self.count, self.target, self.weights, self.v, self.seen = layers, count, target, weights, v, seen
        self.error = np.float32(0)


def layer_place(m, l):
    """Where layer l begins in `target`."""
    return int(m.count[:l].sum())


def forward(m, l, weights):
    """The forward pass of layer l, with all of its weights."""
    total = np.add.accumulate(weights)[-1]      # one after another
    before = m.seen[l - 1] / np.float32(2) if l > 0 else np.float32(0)
    m.seen[l] = before + total / np.float32(m.count[l])


def backward(m, l, weights, gradient):
    """This device's gradient of layer l, from all of its weights and the error of the layer above; leaves the error for
    the layer below."""
    if l == m.layers - 1:
        m.error = m.seen[l]
    start = layer_place(m, l)
    whole_gradient(weights, m.target[start:start + m.count[l]], gradient)
    gradient += m.error
    m.error = m.error / np.float32(2)
