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
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
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

static int next(const struct remaining *remaining, int e) { return remaining->after[e + 1]; }

static void strike(struct remaining *remaining, int e)
{
    const int before = remaining->before[e + 1], after = remaining->after[e + 1];
    remaining->after[before + 1] = after;
    remaining->before[after + 1] = before;
}

/* The smallest of the skips, taken largest first, that sum to v: the first segment that v receives.  hops: how many. */
static int base_of(const struct skips *skips, int v, int *hops)
{
    *hops = v > 0;
    for (int e = skips->rounds - 1; e >= 0; e--) {
        /* The choice is greedy: the largest skip that still fits. */
        if (skips->skip[e] == v) return e;
        if (skips->skip[e] < v) v -= skips->skip[e], ++*hops;
    }
    return skips->rounds;                       /* the root */
}

struct search { const struct skips *k; int v, nearest; struct remaining left; struct schedule *found; };

/* Depth-first search over paths from `at`, sums of decreasing skips, to the devices that v receives from in this round
 * and the next ones.  The last skip of a path is its segment; each is used for one round.
 * @return the first round without a segment. */
static int serve(struct search *search, int at, int largest, int round)
{
    const int *skip = search->k->skip;
    for (int e = largest; e >= 0 && round < search->k->rounds; e = next(&search->left, e)) {
        /* A sender of this round is at least this round's skip before v, and before the sender found last. */
        if (at + skip[e] > search->v - skip[round] || at + skip[e] >= search->nearest) continue;
        if (at + skip[e] <= search->v - skip[round + 1]) round = serve(search, at + skip[e], e, round);
        if (round == search->k->rounds || at > search->v - skip[round + 1]) break;
        /* This device sends in this round; its segment is the last skip of the path, which nobody may use again. */
        search->nearest = at + skip[e];
        search->found->segment[round++] = e;
        strike(&search->left, e);
    }
    return round;
}

static struct schedule schedule_of(const struct skips *skips, int v, int P)
{
    struct schedule found = { { 0 } };
    struct search s = { .k = skips, .v = v + P, .nearest = 2 * P, .found = &found };
    int hops;
    const int q = skips->rounds, base = base_of(skips, v, &hops);
    /* The list has all skips, from the largest to the smallest. */
    for (int e = -1; e <= q; e++) s.left.after[e + 1] = e < 0 ? q : e - 1, s.left.before[e + 1] = e == q ? -1 : e + 1;
    strike(&s.left, base);
    serve(&s, 0, next(&s.left, -1), 0);
    for (int i = 0; i < q; i++) found.segment[i] = found.segment[i] == q ? base : found.segment[i] - q;
    return found;
}

/* Rounds are numbered so that the last is a multiple of q minus one; `first` is the number of the first round. */
struct rounds { int q, segments, first, end; };

static struct rounds rounds_of(const struct skips *skips, int segments)
{
    const int q = skips->rounds, first = (q - (segments - 1 + q) % q) % q;
    return (struct rounds){ q, segments, first, first + segments - 1 + q };
}

/* The segment that a device with this schedule receives in a round; -1: none.  No segment is received twice. */
static int segment_in(const struct schedule *schedule, struct rounds rounds, int round)
{
    const int b = schedule->segment[round % rounds.q] + round / rounds.q * rounds.q - rounds.first;
    return b < 0 ? -1 : b < rounds.segments ? b : rounds.segments - 1;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A device's part: what it receives, and by round what it sends to each receiver (never the root). */
struct part { struct skips k; struct rounds t; int v, P; struct schedule own, to[MOST_ROUNDS]; };

static struct part circulant_part_of(int r, int P, const struct collective *collective)
{
    struct part p = { .k = circulant_skips(P), .v = imod(r - collective->root, P), .P = P };
    p.t = rounds_of(&p.k, flow_segments(collective, collective->count));
    p.own = schedule_of(&p.k, p.v, P);
    for (int i = 0; i < p.t.q; i++) p.to[i] = schedule_of(&p.k, imod(p.v + p.k.skip[i], P), P);
    return p;
}

static int gets(const struct part *part, int round)
{
    return part->v == 0 ? -1 : segment_in(&part->own, part->t, round);
}

static int gives(const struct part *part, int round)
{
    const int i = round % part->t.q;
    return imod(part->v + part->k.skip[i], part->P) == 0 ? -1 : segment_in(&part->to[i], part->t, round);
}

/* Messages of the last rounds, by round mod AHEAD.  Latencies overlap: a device waits for a segment only when it must
 * send it on. */
enum { AHEAD = 64 };
struct under_way { struct exchange *x; const struct collective *c; struct message in[AHEAD], out[AHEAD]; };

static const struct message none = { -2 };

static enum error_code circulant_finish(struct under_way *under_way, struct message *message, struct error *err)
{
    const enum error_code code = message->slot == none.slot ? OK
        : message_wait(under_way->x->group->comm, *message, err);
    *message = none;
    return code;
}

/* Wait for a segment of an earlier round; those before the last AHEAD rounds have arrived. */
static enum error_code have(struct under_way *under_way, const struct part *part, int segment, int round,
                            struct error *err)
{
    for (int before = round - 1; before >= part->t.first && before > round - AHEAD && part->v != 0; before--)
        if (gets(part, before) == segment) return circulant_finish(under_way, &under_way->in[before % AHEAD], err);
    return OK;
}

static void *segment_at(const struct collective *collective, int segments, int b, uint64_t *bytes)
{
    *bytes = bytes_of(collective, part_length(collective->count, segments, b));
    return element(collective, collective->out, block_start(collective->count, segments, b));
}

/* A round on this device: receive the segment that its schedule says, and send the one of its receiver's. */
static enum error_code one_round(struct under_way *under_way, const struct part *part, int round, struct error *err)
{
    const int get = gets(part, round), give = gives(part, round), skip = part->k.skip[round % part->t.q],
        r = under_way->x->group->rank;
    struct message *in = &under_way->in[round % AHEAD], *out = &under_way->out[round % AHEAD];
    uint64_t bytes;
    /* The places of the round AHEAD before must be free. */
    enum error_code code = circulant_finish(under_way, in, err);
    if (code == OK) code = circulant_finish(under_way, out, err);
    if (code == OK && get >= 0) {
        void *data = segment_at(under_way->c, part->t.segments, get, &bytes);
        *in = message_receive(under_way->x, imod(r - skip, part->P), data, bytes);
    }
    /* A segment must be here before it goes on; latencies of all others overlap. */
    if (code == OK && give >= 0) code = have(under_way, part, give, round, err);
    if (code == OK && give >= 0) {
        const void *data = segment_at(under_way->c, part->t.segments, give, &bytes);
        *out = message_send(under_way->x, imod(r + skip, part->P), data, bytes);
    }
    return code;
}

/* out [count] of every member = the root's vector.  Schedules are computed here, before any message. */
static enum error_code broadcast_circulant_run(struct group *group, const struct collective *collective,
                                               struct error *err)
{
    const struct part p = circulant_part_of(group->rank, group->size, collective);
    struct exchange x = exchange_begin(group, BROADCAST);
    struct under_way u = { .x = &x, .c = collective };
    enum error_code code = OK;
    for (int i = 0; i < AHEAD; i++) u.in[i] = u.out[i] = none;
    for (int round = p.t.first; round < p.t.end && code == OK; round++) code = one_round(&u, &p, round, err);
    /* All messages end, also after an error: buffers belong to the caller. */
    for (int i = 0; i < 2 * AHEAD; i++) {
        const enum error_code one = circulant_finish(&u, i < AHEAD ? &u.in[i] : &u.out[i - AHEAD],
                                                     code == OK ? err : NULL);
        if (code == OK) code = one;
    }
    return code;
}

/* A single segment takes the shortest paths; of several segments, some take paths of q messages. */
static int longest_way(const struct part *part)
{
    int longest = 0, hops;
    for (int v = 1; v < part->P && part->t.segments == 1; v++) {
        base_of(&part->k, v, &hops);
        if (hops > longest) longest = hops;
    }
    return part->t.segments == 1 ? longest : part->t.q;
}

static struct collective_cost broadcast_circulant_cost(int r, int P, const struct collective *collective)
{
    const struct part p = circulant_part_of(r, P, collective);
    const uint64_t steps = (uint64_t)(p.t.end - p.t.first);
    struct collective_cost cost = { .steps = steps, .depth = (uint64_t)longest_way(&p), .met = P > 2 ? steps : 0 };
    for (int round = p.t.first; round < p.t.end; round++)
        if (gives(&p, round) >= 0)
            cost_send(&cost, collective, part_length(collective->count, p.t.segments, gives(&p, round)));
    return cost;
}

const struct algorithm broadcast_circulant = {
    .operation = BROADCAST, .name = "circulant",
    .description = "in segments along a circulant graph: fewest rounds there can be",
    .source = "Traeff 2025, doi:10.1145/3735139", .cost_formula = "ceil(log2 P) a + (S-1 + ceil(log2 P)) n/S b",
    .run = broadcast_circulant_run, .cost = broadcast_circulant_cost, .pipelined = flow_of_vector,
};
