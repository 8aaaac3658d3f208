/* broadcast, circulant graph: in segments; all devices work in nearly every round and receive each segment once.
 *
 * Source    J. L. Traeff, "Optimal broadcast schedules in logarithmic time with applications to broadcast, reduction,
 *           all-broadcast and all-reduction", ACM Trans. Parallel Comput., 2025, doi:10.1145/3735139, arXiv:2407.18004;
 *           in MPICH as circ_vring
 * Needs     any P, any count, any root.
 * Idea      Devices are counted from the root.  In round k (mod q, q = ceil(log2 P)) device v sends to v + skip(k) and
 *           receives from v - skip(k); each skip is half of the next, rounded up, from P down.  A device's base block
 *           is the first it receives; from its second q rounds on it receives a new one in each round.  Every device
 *           computes the schedule for itself and its receivers in O(log2 P) steps, without messages.
 * Cost      steps  S-1 + q, S segments (segments.c): the minimum for S segments and P devices
 *           bytes  n(P-1) of all devices together, the minimum; each sends at most one segment per step
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 * P = 5, skips 1 2 3, S = 3 segments 0 1 2, q = 3:
 *
 *     skip 2     0 -0-> 2
 *     skip 3     0 -1-> 3
 *     skip 1     0 -2-> 1     2 -0-> 3     3 -1-> 4
 *     skip 2     0 -2-> 2     2 -0-> 4     4 -1-> 1
 *     skip 3     0 -2-> 3     3 -0-> 1     4 -1-> 2     1 -2-> 4
 */
#include "emulated_devices/collectives/algorithm.h"

enum { MOST_ROUNDS = 32 };

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* The first q segments that a device receives, by round; negative: a segment of the q before, so nothing is received in
 * the first q rounds. */
struct schedule { int segment[MOST_ROUNDS]; };

/* A linked list of the skips without a round, largest first; -1 is before the largest and after the smallest. */
struct remaining { int after[MOST_ROUNDS + 1], before[MOST_ROUNDS + 1]; };      /* of skip e: [e + 1] */

static int next(const struct remaining *l, int e) { return l->after[e + 1]; }

static void strike(struct remaining *l, int e)
{
    const int before = l->before[e + 1], after = l->after[e + 1];
    l->after[before + 1] = after;
    l->before[after + 1] = before;
}

/* The smallest of the skips, taken largest first, that sum to v: the first segment that v receives.  hops: how many. */
static int base_of(const struct skips *k, int v, int *hops)
{
    *hops = v > 0;
    for (int e = k->rounds - 1; e >= 0; e--) {
        /* The choice is greedy: the largest skip that still fits. */
        if (k->skip[e] == v) return e;
        if (k->skip[e] < v) v -= k->skip[e], ++*hops;
    }
    return k->rounds;                       /* the root */
}

struct search { const struct skips *k; int v, nearest; struct remaining left; struct schedule *found; };

/* Depth-first search over paths from `at`, sums of decreasing skips, to the devices that v receives from in this round
 * and the next ones.  The last skip of a path is its segment; each is used for one round.
 * @return the first round without a segment. */
static int serve(struct search *s, int at, int largest, int round)
{
    const int *skip = s->k->skip;
    for (int e = largest; e >= 0 && round < s->k->rounds; e = next(&s->left, e)) {
        /* A sender of this round is at least this round's skip before v, and before the sender found last. */
        if (at + skip[e] > s->v - skip[round] || at + skip[e] >= s->nearest) continue;
        if (at + skip[e] <= s->v - skip[round + 1]) round = serve(s, at + skip[e], e, round);
        if (round == s->k->rounds || at > s->v - skip[round + 1]) break;
        /* This device sends in this round; its segment is the last skip of the path, which nobody may use again. */
        s->nearest = at + skip[e];
        s->found->segment[round++] = e;
        strike(&s->left, e);
    }
    return round;
}

static struct schedule schedule_of(const struct skips *k, int v, int P)
{
    struct schedule found = { { 0 } };
    struct search s = { .k = k, .v = v + P, .nearest = 2 * P, .found = &found };
    int hops;
    const int q = k->rounds, base = base_of(k, v, &hops);
    /* The list has all skips, from the largest to the smallest. */
    for (int e = -1; e <= q; e++) s.left.after[e + 1] = e < 0 ? q : e - 1, s.left.before[e + 1] = e == q ? -1 : e + 1;
    strike(&s.left, base);
    serve(&s, 0, next(&s.left, -1), 0);
    for (int i = 0; i < q; i++) found.segment[i] = found.segment[i] == q ? base : found.segment[i] - q;
    return found;
}

/* Rounds are numbered so that the last is a multiple of q minus one; `first` is the number of the first round. */
struct rounds { int q, segments, first, end; };

static struct rounds rounds_of(const struct skips *k, int segments)
{
    const int q = k->rounds, first = (q - (segments - 1 + q) % q) % q;
    return (struct rounds){ q, segments, first, first + segments - 1 + q };
}

/* The segment that a device with this schedule receives in a round; -1: none.  No segment is received twice. */
static int segment_in(const struct schedule *s, struct rounds t, int round)
{
    const int b = s->segment[round % t.q] + round / t.q * t.q - t.first;
    return b < 0 ? -1 : b < t.segments ? b : t.segments - 1;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A device's part: what it receives, and by round what it sends to each receiver (never the root). */
struct part { struct skips k; struct rounds t; int v, P; struct schedule own, to[MOST_ROUNDS]; };

static struct part part_of(int r, int P, const struct collective *c)
{
    struct part p = { .k = circulant_skips(P), .v = imod(r - c->root, P), .P = P };
    p.t = rounds_of(&p.k, flow_segments(c, c->count));
    p.own = schedule_of(&p.k, p.v, P);
    for (int i = 0; i < p.t.q; i++) p.to[i] = schedule_of(&p.k, imod(p.v + p.k.skip[i], P), P);
    return p;
}

static int gets(const struct part *p, int round) { return p->v == 0 ? -1 : segment_in(&p->own, p->t, round); }

static int gives(const struct part *p, int round)
{
    const int i = round % p->t.q;
    return imod(p->v + p->k.skip[i], p->P) == 0 ? -1 : segment_in(&p->to[i], p->t, round);
}

/* Messages of the last rounds, by round mod AHEAD.  Latencies overlap: a device waits for a segment only when it must
 * send it on. */
enum { AHEAD = 64 };
struct under_way { struct exchange *x; const struct collective *c; struct message in[AHEAD], out[AHEAD]; };

static const struct message none = { -2 };

static enum error_code finish(struct under_way *u, struct message *m, struct error *err)
{
    const enum error_code code = m->slot == none.slot ? OK : message_wait(u->x->group->comm, *m, err);
    *m = none;
    return code;
}

/* Wait for a segment of an earlier round; those before the last AHEAD rounds have arrived. */
static enum error_code have(struct under_way *u, const struct part *p, int segment, int round, struct error *err)
{
    for (int before = round - 1; before >= p->t.first && before > round - AHEAD && p->v != 0; before--)
        if (gets(p, before) == segment) return finish(u, &u->in[before % AHEAD], err);
    return OK;
}

static void *segment_at(const struct collective *c, int segments, int b, uint64_t *bytes)
{
    *bytes = bytes_of(c, part_length(c->count, segments, b));
    return element(c, c->out, block_start(c->count, segments, b));
}

static enum error_code one_round(struct under_way *u, const struct part *p, int round, struct error *err)
{
    const int get = gets(p, round), give = gives(p, round), skip = p->k.skip[round % p->t.q], r = u->x->group->rank;
    struct message *in = &u->in[round % AHEAD], *out = &u->out[round % AHEAD];
    uint64_t bytes;
    /* The places of the round AHEAD before must be free. */
    enum error_code code = finish(u, in, err);
    if (code == OK) code = finish(u, out, err);
    if (code == OK && get >= 0) {
        void *data = segment_at(u->c, p->t.segments, get, &bytes);
        *in = message_receive(u->x, imod(r - skip, p->P), data, bytes);
    }
    /* A segment must be here before it goes on; latencies of all others overlap. */
    if (code == OK && give >= 0) code = have(u, p, give, round, err);
    if (code == OK && give >= 0) {
        const void *data = segment_at(u->c, p->t.segments, give, &bytes);
        *out = message_send(u->x, imod(r + skip, p->P), data, bytes);
    }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const struct part p = part_of(g->rank, g->size, c);
    struct exchange x = exchange_begin(g, BROADCAST);
    struct under_way u = { .x = &x, .c = c };
    enum error_code code = OK;
    for (int i = 0; i < AHEAD; i++) u.in[i] = u.out[i] = none;
    for (int round = p.t.first; round < p.t.end && code == OK; round++) code = one_round(&u, &p, round, err);
    /* All messages end, also after an error: buffers belong to the caller. */
    for (int i = 0; i < 2 * AHEAD; i++) {
        const enum error_code one = finish(&u, i < AHEAD ? &u.in[i] : &u.out[i - AHEAD], code == OK ? err : NULL);
        if (code == OK) code = one;
    }
    return code;
}

/* A single segment takes the shortest paths; of several segments, some take paths of q messages. */
static int longest_way(const struct part *p)
{
    int longest = 0, hops;
    for (int v = 1; v < p->P && p->t.segments == 1; v++) {
        base_of(&p->k, v, &hops);
        if (hops > longest) longest = hops;
    }
    return p->t.segments == 1 ? longest : p->t.q;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct part p = part_of(r, P, c);
    const uint64_t steps = (uint64_t)(p.t.end - p.t.first);
    struct collective_cost cost = { .steps = steps, .depth = (uint64_t)longest_way(&p), .met = P > 2 ? steps : 0 };
    for (int round = p.t.first; round < p.t.end; round++)
        if (gives(&p, round) >= 0) cost_send(&cost, c, part_length(c->count, p.t.segments, gives(&p, round)));
    return cost;
}

const struct algorithm broadcast_circulant = {
    .operation = BROADCAST, .name = "circulant",
    .description = "in segments along a circulant graph: fewest rounds there can be",
    .source = "Traeff 2025, doi:10.1145/3735139", .cost_formula = "ceil(log2 P) a + (S-1 + ceil(log2 P)) n/S b",
    .run = run, .cost = cost, .pipelined = flow_of_vector,
};
