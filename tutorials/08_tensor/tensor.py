"""tensor.py -- lesson 08: tensor parallelism.  README.md says what to do; the texts below say what each function must
do.

All devices call a function together.  Where n columns, rows or heads are shared by W devices, {LAYOUT: device r has
block_of(n, W, r) of them|they are dealt like cards: device r has numbers r, r + W, r + 2W, ..}.  n need not be a multiple
of W; with n < W some devices have none.  tensor_given.py has Pair and Gradients.
"""
from course import *
from tensor_given import *


#SOLUTION
def numbers(g, n):
    """Which of n columns, rows or heads this device has."""
    own = block_of(n, g.size, g.rank)
    return {LAYOUT: slice(own.start, own.end)|slice(g.rank, n, g.size)}
#SKELETON
#| # which of n columns has this device?  Functions of your own are welcome.
#END


def cut_columns(g, whole, part):
    """part becomes this device's columns of the whole matrix: as many rows, shorter ones."""
#SOLUTION
    part[:] = whole[:, numbers(g, whole.shape[1])]
#SKELETON
#|     pass  # your code: every row gets shorter
#END


def cut_rows(g, whole, part):
    """part becomes this device's rows of the whole matrix."""
#SOLUTION
    part[:] = whole[numbers(g, whole.shape[0])]
#SKELETON
#|     pass  # your code
#END


def cut_heads(g, whole, heads, width, part):
    """The matrix of attention that makes queries, keys and values at once has 3 * heads * width columns: the queries of
    head 0, of head 1, .., then the keys of all heads, then the values of all heads.  Heads are shared, and a device needs
    all three of a head.  part has this device's queries, its keys, its values: 3 * own heads * width columns."""
#SOLUTION
    rows = whole.shape[0]
    own = whole.reshape(rows, 3, heads, width)[:, :, numbers(g, heads)]
    part[:] = own.reshape(rows, part.shape[1])
#SKELETON
#|     pass  # your code: what lies between the queries and the keys of a head in a row?
#END


def mlp_forward(g, m, X, hidden, Y):
    """hidden, T rows of `own` numbers, becomes relu(X A + a): the products, then a is added, then what is negative
    becomes 0.  Y, the same bits on all devices: the devices' products are added by one all_reduce, and b is
    {BIAS: added to the sum|added to its products by the last device, before the sum}.  Allocates nothing."""
#SOLUTION
    matrix_product(hidden, X, m.A)
    hidden += m.a
    hidden[hidden < 0] = 0
    matrix_product(Y, hidden, m.B)
    if {BIAS: False|g.rank == g.size - 1}:
        Y += m.b
    all_reduce(g, Y)
    if {BIAS: True|False}:
        Y += m.b
#SKELETON
#|     pass  # your code: what has a device computed before the all_reduce, and what is still missing?
#END


#SOLUTION
def sum_rows(x, total):
    """The sum of all rows, from the first to the last."""
    total[:] = 0
    for row in x:
        total += row
#SKELETON
#| # the sum of all rows of a matrix is needed twice
#END


def mlp_backward(g, m, X, hidden, dY, dX, d):
    """From dY, the same on all devices: dX, the same bits on all devices, and the gradients d.A, d.a, d.B, d.b of this
    device's parts of the weights.  The gradient of a bias is the sum over tokens, from the first to the last.  The slope
    of relu at 0 is 0.  One all_reduce; allocates at most T * own numbers."""
#SOLUTION
    dH = allocate((m.T, m.own))
    sum_rows(dY, d.b)
    matrix_product(d.B, hidden, dY, TRANSPOSE_A)
    matrix_product(dH, dY, m.B, TRANSPOSE_B)
    dH[~(hidden > 0)] = 0
    sum_rows(dH, d.a)
    matrix_product(d.A, X, dH, TRANSPOSE_A)
    matrix_product(dX, dH, m.A, TRANSPOSE_B)
    all_reduce(g, dX)
    release(dH)
#SKELETON
#|     pass  # your code: backwards through B, relu, A; which of the gradients is a sum over the devices?
#END
