"""Orrery's random numbers, written again from the paper and not from the C: Philox4x32-10, FNV-1a, sums of eight halves.

Source  J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.3,
        doi:10.1145/2063384.2063405; FNV-1a: G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake.
"""
from decimal import Decimal

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)                 # the fractional parts of the golden ratio and of sqrt(3)
MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1
SCALE = 1 / (Decimal(4 * 8 * (65536**2 - 1)) / 12).sqrt()        # to 28 digits


def philox4x32(counter, key):
    """Four words from four: `counter` is four arrays of uint64 holding 32-bit values, `key` two integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low, half = np.uint64(MASK32), np.uint64(32)
    for _ in range(10):
        product0 = np.uint64(MULTIPLIERS[0]) * c0
        product1 = np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = ((product1 >> half) ^ c1 ^ np.uint64(k0), product1 & low,
                          (product0 >> half) ^ c3 ^ np.uint64(k1), product0 & low)
        k0, k1 = (k0 + WEYL[0]) & MASK32, (k1 + WEYL[1]) & MASK32
    return c0, c1, c2, c3


def stream_of(name):
    """The number of a stream: 64-bit FNV-1a of its name."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK64
    return h


def blocks(seed, name, count):
    """The blocks at indices 0 .. count-1 of a stream: four arrays of 32-bit words."""
    stream = stream_of(name)
    index = np.arange(count, dtype=np.uint64)
    same = np.ones(count, dtype=np.uint64)
    counter = (index & np.uint64(MASK32), index >> np.uint64(32),
               same * np.uint64(stream & MASK32), same * np.uint64(stream >> 32))
    return philox4x32(counter, (seed & MASK32, seed >> 32))


def uniform(seed, name, count):
    """Numbers in [0, 1) of 24 bits, from word 0."""
    return (blocks(seed, name, count)[0] >> np.uint64(8)).astype(np.float64) / 2.0**24


def normal(seed, name, count):
    """Mean 0, variance 1: the eight 16-bit halves of a block summed, centred and scaled.

    Each half is uniform on 0 .. 65535, so its mean is 65535/2 and its variance (65536^2 - 1)/12.  Twice the sum is taken, so
    that centring is exact in integers, and multiplied once, by the double nearest to SCALE: one rounding.
    """
    halves = sum((word & np.uint64(0xFFFF)) + (word >> np.uint64(16)) for word in blocks(seed, name, count))
    return (2 * halves.astype(np.int64) - 8 * 65535).astype(np.float64) * float(SCALE)


def known_answers():
    """The published vectors of the authors' library Random123 (tests/kat_vectors, "philox4x32 10")."""
    for counter, key, want in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK32,) * 4, (MASK32,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):
        got = philox4x32(tuple(np.array([c], dtype=np.uint64) for c in counter), key)
        if tuple(int(g[0]) for g in got) != want:
            raise AssertionError(f"philox4x32 of {counter} is {got}, published {want}")
