"""calls.py -- how the judge of lesson 13 reaches the functions of experts.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from course import block_of, release
from experts_given import Experts, Kept, Trip


def choose(experts, call):
    T, E, k = call.number[:3]
    experts.route(call.floats(0, T, E), k, call.wholes(1, T, k), call.floats(2, T, k))


def trip(call, E):
    g = call.group[0]
    return Trip(call.wholes(1), call.wholes(2), call.wholes(3, g.size, block_of(E, g.size, g.rank).count))


def plan(experts, call):
    E, _, capacity = call.number[:3]
    experts.plan_trip(call.group[0], E, call.wholes(0), capacity, trip(call, E))


def given(call):
    E, k, T, D = call.number[:4]
    g = call.group[0]
    return Experts(E, k, T, D, call.floats(0, block_of(E, g.size, g.rank).count, D, D)), trip(call, E)


def forward(experts, call):
    (m, t), kept = given(call), Kept()
    experts.experts_forward(call.group[0], m, t, call.floats(4, m.T, m.D), call.floats(5), kept,
                            call.floats(6, m.T, m.D))
    release(kept.came)
    release(kept.results)


def backward(experts, call):
    """Both passes, as in a step."""
    (m, t), kept = given(call), Kept()
    experts.experts_forward(call.group[0], m, t, call.floats(4, m.T, m.D), call.floats(5), kept,
                            call.floats(6, m.T, m.D))
    experts.experts_backward(call.group[0], m, t, call.floats(5), kept, call.floats(7, m.T, m.D),
                             call.floats(8, m.T, m.D), call.floats(9), call.floats(10, *m.M.shape))


CALLS = {"route": choose, "plan_trip": plan, "experts_forward": forward, "experts_backward": backward}
