"""calls.py -- how the judge of lesson 01 reaches the functions of sums.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call); "real" marks a
number that is a result.
"""


def reaches(name, *more):
    """x comes first, then so many of the call's whole numbers."""
    return lambda sums, call: ("real", getattr(sums, name)(call.floats(0), *(call.number[i] for i in more)))


CALLS = {"sum_forward": reaches("sum_forward"), "sum_pairs": reaches("sum_pairs"), "sum_parts": reaches("sum_parts", 1),
         "sum_bound": reaches("sum_bound"), "sum_careful": reaches("sum_careful")}
