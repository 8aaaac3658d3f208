"""calls.py -- how the judge of lesson 12 reaches the functions of context.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""
from context_given import SoFar


def count(context, call):
    """Of all devices, one after another."""
    S, W = call.number[:2]
    call.wholes(0)[:W] = [context.tokens_of(S, W, r) for r in range(W)]


def token(context, call):
    S, W = call.number[:2]
    out, n = call.wholes(0), 0
    for r, tokens in enumerate(call.wholes(1)[:W]):
        for i in range(int(tokens)):
            out[n], n = context.token_of(S, W, r, i), n + 1


def meet(context, call):
    """Queries of one device meet the keys of several, which lie one after another."""
    S, W, r, A, visits = call.number[:5]
    so = SoFar(call.floats(4), call.floats(5), call.floats(6, -1, A))
    q, k, v, at = call.floats(0, -1, A), call.floats(1, -1, A), call.floats(2, -1, A), 0
    for s, n in call.wholes(3, -1, 2)[:visits].tolist():
        context.attend(S, W, r, s, q, k[at:at + n], v[at:at + n], so)
        at += n


def ring(context, call):
    S, A = call.number[:2]
    q, k, v, out = (call.floats(i, -1, A) for i in range(4))
    context.ring_attention(call.group[0], q, k, v, S, out)


def ulysses(context, call):
    S, A, heads = call.number[:3]
    q, k, v, out = (call.floats(i, -1, heads, A) for i in range(4))
    context.ulysses_attention(call.group[0], q, k, v, S, out)


CALLS = {"tokens_of": count, "token_of": token, "attend": meet, "ring_attention": ring, "ulysses_attention": ulysses}
