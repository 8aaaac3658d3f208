"""context_given.py -- lesson 12: what context.py is given.  The judge makes a SoFar; so may context.py."""


class SoFar:
    """For each query, of all keys that it has met so far: max, the largest score; sum, the sum of exp(score - max); and
    out, the sum of exp(score - max) times the value, A numbers.  Without any key: -inf, 0, and zeros."""

    def __init__(self, max, sum, out):
        self.max, self.sum, self.out = max, sum, out
