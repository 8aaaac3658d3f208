"""sequence.py -- lesson 09: sequence parallelism.  README.md says what to do; the texts below say what each function
must do.

All devices call a function together.  There are T tokens, each a row of D numbers.  Between pairs of matrices the tokens
are shared: device r has those of {ROWS: block_of(T, W, r)|block_of(T, W, W - 1 - r)}, or none.  Every function works also
if every message waits for its receiver.  sequence_given.py has norm, norm_backward, Layer and Kept.
"""
from course import *
from sequence_given import *


#SOLUTION
def tokens(g, x, r):
    """The rows of x of device r, which may be any number modulo W."""
    b = block_of(x.shape[0], g.size, mod({ROWS: r|-1 - r}, g.size))
    return x[b.start:b.end]
#SKELETON
#| # which tokens has device r?  Functions of your own are welcome.
#END


def gather_tokens(g, own, out):
    """out, T rows, becomes the tokens of all devices, in the order of the text; own has this device's.  W-1 messages,
    one to each other device with this device's tokens, also if there are none of them; allocates nothing."""
#SOLUTION
    tokens(g, out, g.rank)[:] = own
    for i in range(1, g.size):
        source = g.rank - i
        exchange_both(g, mod(g.rank + i, g.size), own, mod(source, g.size), tokens(g, out, source))
#SKELETON
#|     pass  # your code: W-1 times exchange_both, each time with another device
#END


def reduce_tokens(g, whole, own):
    """own becomes this device's tokens of the sum of all devices' `whole`, which stay as they are.  On device r that is
    its own summand, and to it is added that of device {NEXT: r - 1, then that of r - 2|r + 1, then that of r + 2}, and so
    on, modulo W.  W-1 messages, one to each other device with its tokens, also empty ones; allocates as many numbers as
    `own` has."""
#SOLUTION
    arrived = allocate(own.shape)
    own[:] = tokens(g, whole, g.rank)
    for i in range(1, g.size):
        far = {NEXT: -i|i}
        to = mod(g.rank - far, g.size)
        exchange_both(g, to, tokens(g, whole, to), mod(g.rank + far, g.size), arrived)
        add_into(own, arrived)
    release(arrived)
#SKELETON
#|     pass  # your code: whose tokens does a device send, and whose summand arrives?
#END


def layer_forward(g, l, x, kept, y):
    """From x to y, both this device's tokens.  Fills `kept`.  The norm of this device's tokens, and of no others; a
    gather_tokens, a reduce_tokens."""
#SOLUTION
    own, whole = allocate(x.shape), allocate((l.T, l.D))
    norm(x, l.w, own)
    gather_tokens(g, own, whole)
    kept.hidden = allocate((l.T, l.own))
    matrix_product(kept.hidden, whole, l.A)
    kept.hidden[kept.hidden < 0] = 0
    kept.normed = {KEEP: own|whole}
    release({KEEP: whole|own})
    part = allocate((l.T, l.D))
    matrix_product(part, kept.hidden, l.B)
    reduce_tokens(g, part, y)
    release(part)
    y += x
#SKELETON
#|     pass  # your code: where are the tokens shared, and where does a device need all of them?
#END


def layer_backward(g, l, x, kept, dy, dx, dw, dA, dB):
    """From dy to dx, both this device's tokens; dw is the gradient of w, with the same bits on all devices; dA and dB
    are those of this device's parts.  Releases what is kept.  gather_tokens for {KEEP: dy and for normed|dy}, a
    reduce_tokens, and one all_reduce of D numbers.  dx is dy and what comes back through the norm: their sum.  At no time
    of both passes are more than {KEEP: |2 }T D + 2 T own + {KEEP: 2 |}n D numbers allocated, n being the number of this
    device's tokens."""
#SOLUTION
    whole, dH = allocate((l.T, l.D)), allocate((l.T, l.own))
    gather_tokens(g, dy, whole)
    matrix_product(dB, kept.hidden, whole, TRANSPOSE_A)
    matrix_product(dH, whole, l.B, TRANSPOSE_B)
    dH[~(kept.hidden > 0)] = 0
    release(kept.hidden)
    if {KEEP: True|False}:
        gather_tokens(g, kept.normed, whole)
        release(kept.normed)
    else:
        release(whole)
        whole = kept.normed
    matrix_product(dA, whole, dH, TRANSPOSE_A)
    matrix_product(whole, dH, l.A, TRANSPOSE_B)
    release(dH)
    reduce_tokens(g, whole, dx)
    release(whole)
    norm_backward(x, l.w, dx, dx, dw)
    all_reduce(g, dw)
    dx += dy
#SKELETON
#|     pass  # your code: what gathered forward is reduced backward, and the other way round
#END
