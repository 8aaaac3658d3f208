"""context.py -- lesson 12: context parallelism.  README.md says what to do; the texts below say what each function must
do.

A text of S tokens is shared by W devices, at most 8.  A query of token t sees the keys of tokens 0 .. t: attention is
causal.  A query, a key and a value have A numbers each.  context_given.py has SoFar.
"""
from course import *
from context_given import *


def tokens_of(S, W, r):
    """How many tokens device r of W has.  {CUT: The text is cut into 2 W chunks, block_of(S, 2 W, i), and device r has
    chunks r and 2 W - 1 - r|Tokens are dealt like cards: device r has r, r + W, r + 2 W, ..}."""
#SOLUTION
    return {CUT: block_of(S, 2 * W, r).count + block_of(S, 2 * W, 2 * W - 1 - r).count|(S - r + W - 1) // W}
#SKELETON
#|     return 0  # your code
#END


def token_of(S, W, r, i):
    """Which token of the text device r's number i is; they are in the order of the text."""
#SOLUTION
    early, late = block_of(S, 2 * W, r), block_of(S, 2 * W, 2 * W - 1 - r)
    if {CUT: False|True}:
        return r + i * W
    return early.start + i if i < early.count else late.start + i - early.count
#SKELETON
#|     return 0  # your code
#END


def attend(S, W, r, s, q, k, v, so):
    """The queries of device r meet the keys of device s, with their values.  The score of a query and a key is their
    product, divided by sqrt(A).  q, k, v and so.out have A numbers in a row; rows may lie apart.  On the clock:
    work(4.0 * A * pairs, 0), pairs being the number of queries and keys that see each other.  Allocates nothing."""
#SOLUTION
    A = q.shape[1]
    mine = np.array([token_of(S, W, r, i) for i in range(q.shape[0])], np.int64)
    theirs = np.array([token_of(S, W, s, j) for j in range(k.shape[0])], np.int64)
    sees = theirs[None, :] <= mine[:, None]
    score = np.where(sees, (q @ k.T) / np.float32(A ** 0.5), -np.inf).astype(np.float32)
    some = sees.any(axis=1)
    if some.any():
        largest = np.maximum(so.max[some], score[some].max(axis=1))
        old, new = np.exp(so.max[some] - largest), np.exp(score[some] - largest[:, None])
        so.sum[some] = so.sum[some] * old + new.sum(axis=1)
        so.out[some] = so.out[some] * old[:, None] + new @ v
        so.max[some] = largest
    work(4.0 * A * int(sees.sum()), 0)
#SKELETON
#|     pass  # your code: what happens to the sums so far, if a larger score comes?
#END


#SOLUTION
def begin(so):
    """Queries that have met nobody."""
    so.max[:], so.sum[:], so.out[:] = -np.inf, 0, 0


def finish(so):
    """Queries that have met all."""
    so.out[:] = so.out / so.sum[:, None]
#SKELETON
#| # functions of your own are welcome: what is to be done before the first key, and after the last?
#END


def ring_attention(g, q, k, v, S, out):
    """Attention with one head: out, for this device's queries.  q, k, v and out have this device's tokens, A numbers
    each.  Keys and values go round: W times a device computes with those that it has, while it passes them on to device
    {RING: r + 1|r - 1} and receives others, keys and values in messages of their own: 2 (W-1) messages.  Allocates at
    most 4 R A + 2 n numbers, where n is the number of this device's tokens, and R = 2 ceil(S / 2 W), as many as any
    device has."""
#SOLUTION
    W, r, way = g.size, g.rank, {RING: 1|-1}
    n, A = q.shape
    more, room = allocate((2, n)), allocate((4, 2 * ((S + 2 * W - 1) // (2 * W)), A))
    so = SoFar(more[0], more[1], out)
    begin(so)
    for step in range(W):
        s, comes = mod(r - way * step, W), tokens_of(S, W, mod(r - way * (step + 1), W))
        keys, values = room[step % 2 * 2][:comes], room[step % 2 * 2 + 1][:comes]
        messages = []
        if step < W - 1:
            messages = [message_send(g, mod(r + way, W), k), message_send(g, mod(r + way, W), v),
                        message_receive(g, mod(r - way, W), keys), message_receive(g, mod(r - way, W), values)]
        attend(S, W, r, s, q, k, v, so)
        for m in messages:
            message_wait(m)
        k, v = keys, values
    finish(so)
    release(room)
    release(more)
#SKELETON
#|     pass  # your code: start to send and to receive, compute with what is there, then wait
#END


def ulysses_attention(g, q, k, v, S, out):
    """Attention with several heads.  Here device r has the tokens of block_of(S, W, r); q, k, v and out are arrays
    [tokens, heads, A].  The devices exchange tokens for heads: device r computes the heads of block_of(heads, W, r), for
    all tokens, and the results go back.  Four all_to_all, for q, k, v and out; no other messages.  Allocates at most
    4 S own A + n heads A + 2 S numbers, for n tokens and `own` heads of this device."""
#SOLUTION
    n, heads, A = q.shape
    shares = [block_of(heads, g.size, d) for d in range(g.size)]
    own = shares[g.rank].count
    there = [n * b.count * A for b in shares]
    here = [block_of(S, g.size, d).count * own * A for d in range(g.size)]
    packed, sums, parts = allocate(n * heads * A), allocate((2, S)), allocate((4, S, own, A))
    for x, part in zip((q, k, v), parts):
        at = 0
        for b, count in zip(shares, there):
            packed[at:at + count] = x[:, b.start:b.end].reshape(-1)
            at += count
        all_to_all(g, packed, there, part, here)
    for h in range(own):
        so = SoFar(sums[0], sums[1], parts[3][:, h])
        begin(so)
        attend(S, 1, 0, 0, parts[0][:, h], parts[1][:, h], parts[2][:, h], so)
        finish(so)
    all_to_all(g, parts[3], here, packed, there)
    at = 0
    for b, count in zip(shares, there):
        out[:, b.start:b.end] = packed[at:at + count].reshape(n, b.count, A)
        at += count
    release(parts)
    release(sums)
    release(packed)
#SKELETON
#|     pass  # your code: there, all heads of this device, and back
#END
