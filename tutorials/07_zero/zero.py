"""zero.py -- lesson 07: ZeRO.  README.md says what to do; the texts below say what each function must do.

W devices train copies of one model, as in lesson 05; now they share what each of them would have.  A vector of n numbers
is shared in blocks: device r has block_of(n, W, r), which may be empty.  zero_given.py says what a step of the optimizer
is, and has whole_gradient, layer_place, forward and backward.
"""
from course import *
from zero_given import *


def zero_memory(parameters, W, stage):
    """Bytes of a device for a model of so many parameters, as the ZeRO paper counts them (arXiv:1910.02054): 2 for a
    weight, 2 for its gradient, 12 for the optimizer's states.  stage 0: nothing is shared; 1: states; 2: and gradients;
    3: and weights.  Blocks of parameters / W, also if that is not a whole number."""
#SOLUTION
    states, gradients, weights = 12 * parameters, 2 * parameters, 2 * parameters
    return (states / (W if stage >= 1 else 1) + gradients / (W if stage >= 2 else 1) +
            weights / (W if stage >= 3 else 1))
#SKELETON
#|     return 0  # your code
#END


#SOLUTION
def step(o, weights, v, gradient):
    """A step of some numbers."""
    v[:] = o.beta * v + {MOMENTUM: gradient|(np.float32(1) - o.beta) * gradient}
    weights[:] = weights - o.rate * v
#SKELETON
#| # a step of some numbers, for both functions below, is a good function of your own
#END


def zero1_step(g, o, weights, target, gradient, v):
    """A step.  weights, target and gradient have n numbers on each device, v only this device's block.  Each device
    updates its block; afterwards all of them have all new weights.  What `gradient` is afterwards does not matter.  One
    reduce_scatter, one all_gather; allocates at most ceil(n/W) numbers."""
#SOLUTION
    own = block_of(weights.size, g.size, g.rank)
    total = allocate(own.count)
    whole_gradient(weights, target, gradient)
    reduce_scatter(g, gradient, total)
    step(o, weights[own.start:own.end], v, total / np.float32(g.size))
    total[:] = weights[own.start:own.end]
    all_gather(g, total, weights)
    release(total)
#SKELETON
#|     pass  # your code: whole_gradient, reduce_scatter, step, all_gather
#END


#SOLUTION
def own_block(g, m, l):
    """Where this device's block of layer l lies in weights and v."""
    start = sum(block_of(m.count[i], g.size, g.rank).count for i in range(l))
    return slice(start, start + block_of(m.count[l], g.size, g.rank).count)


def gather(g, m, l):
    weights = allocate(m.count[l])
    all_gather(g, m.weights[own_block(g, m, l)], weights)
    return weights


def update(g, o, m, l, gradient):
    own = own_block(g, m, l)
    total = allocate(own.stop - own.start)
    reduce_scatter(g, gradient, total)
    step(o, m.weights[own], m.v[own], total / np.float32(g.size))
    release(total)
#SKELETON
#| # functions of your own, to gather a layer and to update a block, save work
#END


def zero3_step(g, o, m):
    """A step: forward from layer 0 to the last, then backward from the last to layer 0; as soon as a layer's gradient is
    reduced, this device's block of the layer is updated.  A layer's weights are gathered before its forward pass,
    released after it, and gathered again for its backward pass; {KEEP: also the last one's|but those of the last layer
    are kept from forward to backward}.  At any time this device has allocated at most two whole layers (weights and
    gradient) and one block of a layer."""
#SOLUTION
    kept = None
    for l in range(m.layers):
        weights = gather(g, m, l)
        forward(m, l, weights)
        if {KEEP: True|l < m.layers - 1}:
            release(weights)
        else:
            kept = weights
    for l in reversed(range(m.layers)):
        weights = gather(g, m, l) if kept is None else kept
        kept = None
        gradient = allocate(m.count[l])
        backward(m, l, weights, gradient)
        update(g, o, m, l, gradient)
        release(gradient)
        release(weights)
#SKELETON
#|     pass  # your code: all layers forward, then all layers backward
#END
