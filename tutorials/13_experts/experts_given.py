"""experts_given.py -- lesson 13: what experts.py is given.  The judge makes these; experts.py uses them."""


class Trip:
    """send: [E], how many rows this device sends to each expert.  row: of each choice, its place among the rows that
    leave; -1: dropped.  come: [W, own experts], rows from each device for each expert of this device."""

    def __init__(self, send, row, come):
        self.send, self.row, self.come = send, row, come


class Experts:
    """An expert is a matrix here: it makes row M of a row.  E experts, k choices a token, T tokens of D numbers;
    M: [own experts, D, D]."""

    def __init__(self, E, k, T, D, M):
        self.E, self.k, self.T, self.D, self.M = E, k, T, D, M


class Kept:
    """What forward allocates and backward releases: rows that came to this device's experts, and results that came
    home."""
    came = results = None
