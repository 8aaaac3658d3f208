"""sums.py -- lesson 01: sums and rounding.  README.md says what to do; the texts below say what each function must
return.

x is an array of float32, which is only read.  All arithmetic is in float32 (np.float32), but for sum_bound: a number of
Python has 64 bits, and so has the sum of a np.float32 and a number of Python in some versions of numpy.  A sum of no
numbers is 0.
"""
from course import *


def sum_forward(x):
    """((x[0] + x[1]) + x[2]) + ..: one after another."""
#SOLUTION
    total = np.float32(0)
    for one in x:
        total = total + one
    return total
#SKELETON
#|     return 0  # your code
#END


def sum_pairs(x):
    """A tree: the sum of the first half plus the sum of the second half, each of them summed in the same way, down to
    single numbers.  Of an odd number of numbers the {HALF: first|second} half has one more."""
#SOLUTION
    n = x.size
    if n < 2:
        return x[0] if n else np.float32(0)
    first = {HALF: (n + 1) // 2|n // 2}
    return sum_pairs(x[:first]) + sum_pairs(x[first:])
#SKELETON
#|     return 0  # your code: it may call itself
#END


def sum_parts(x, parts):
    """As so many devices add: device i sums its block, block_of(x.size, parts, i), one number after another.  Then the
    sums of the devices are added to 0, from the {ORDER: first device to the last|last device to the first}."""
#SOLUTION
    total = np.float32(0)
    for i in range(parts):
        b = block_of(x.size, parts, {ORDER: i|parts - 1 - i})
        total = total + sum_forward(x[b.start:b.end])
    return total
#SKELETON
#|     return 0  # your code: block_of(n, parts, i) is in course.py
#END


def sum_bound(x):
    """How far sum_forward can be from the exact sum: (n-1) 2^-24 (|x[0]| + |x[1]| + ..), computed in float64."""
#SOLUTION
    sizes = 0.0
    for one in x:
        sizes += abs(float(one))
    return (x.size - 1) * 2.0 ** -24 * sizes if x.size else 0.0
#SKELETON
#|     return 0  # your code
#END


def sum_careful(x):
    """The sum with an error of about one rounding, however long the vector: what each addition has lost is added up in
    a second float32, which is added at the end."""
#SOLUTION
    total, lost = np.float32(0), np.float32(0)
    for one in x:
        after = total + one
        lost = lost + ((total - after) + one if abs(total) >= abs(one) else (one - after) + total)
        total = after
    return total + lost
#SKELETON
#|     return 0  # your code
#END
