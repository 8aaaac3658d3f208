/* check.c -- judges lesson 12.  The student writes context.c: a cut of tokens, attention block by block, a ring of
 * keys and values, and all-to-alls of heads.  Results are compared with attention in double, within a bound of
 * roundings in fp32.  The variants CUT and RING change the cut and the ring's direction.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 48, HEADS = 9, WIDTH = 4, MOST = TOKENS * WIDTH };

/* The whole problem has queries, keys and values of each head, with a row [A] for each token. */
static float q[HEADS][MOST], k[HEADS][MOST], v[HEADS][MOST];

static const char thousands[] = ", scores of thousands";

static int modulo(int i, int P) { return (i % P + P) % P; }

/* ---- the cut ----------------------------------------------------------------------------------------------------- */

/* Count the tokens of device r: every W-th, or two blocks that balance a causal mask. */
static int64_t count_of(const struct judge *j, int64_t S, int W, int r)
{
    if (judge_choice(j, "CUT") == 1) return (S - r + W - 1) / W;
    return block_at(S, 2 * W, r).count + block_at(S, 2 * W, 2 * W - 1 - r).count;
}

/* Find the token that is device r's number i, in its own order. */
static int64_t token(const struct judge *j, int64_t S, int W, int r, int64_t i)
{
    if (judge_choice(j, "CUT") == 1) return r + i * W;
    const struct interval early = block_at(S, 2 * W, r), late = block_at(S, 2 * W, 2 * W - 1 - r);
    return i < early.count ? early.first + i : late.first + i - early.count;
}

/* tokens_of fills a list of counts. */
static void expect_counts(struct judge *j, struct trial *r, int64_t S, int W)
{
    const int64_t *got = r->device[0].buffer[0].data;
    for (int d = 0; d < W && !j->failed; d++)
        if (got[d] != count_of(j, S, W, d))
            trial_fails(r, "device %d of %d has %lld tokens; it should be %lld", d, W, (long long)got[d],
                        (long long)count_of(j, S, W, d));
}

/* token_of fills the tokens of all devices, one after another. */
static void expect_tokens(struct judge *j, struct trial *r, int64_t S, int W)
{
    const int64_t *got = r->device[0].buffer[0].data;
    for (int d = 0; d < W && !j->failed; d++)
        for (int64_t i = 0; i < count_of(j, S, W, d) && !j->failed; i++, got++)
            if (*got != token(j, S, W, d, i))
                trial_fails(r, "number %lld of device %d of %d is token %lld; it should be %lld", (long long)i, d, W,
                            (long long)*got, (long long)token(j, S, W, d, i));
}

/* Even runs ask tokens_of, odd ones token_of. */
static void check_cut(struct judge *j)
{
    static const int64_t usual[] = { 3, 21, 32 };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < 6 && !j->failed; i++) {
            const int64_t S = j->hidden ? judge_draw(j, 1, TOKENS) : usual[i / 2];
            struct trial *r = trial_open(j, i % 2 ? "token_of" : "tokens_of", 1, "S = %lld", (long long)S);
            r->device[0].number[0] = S, r->device[0].number[1] = *W;
            /* tokens_of gives a count for each device; token_of gives S tokens. */
            trial_buffer(r, 0, 0, sizeof(int64_t) * (uint64_t)(i % 2 ? S : *W), BUFFER_OUT);
            int64_t *counts = trial_buffer(r, 0, 1, sizeof *counts * (uint64_t)*W, BUFFER_IN);
            for (int d = 0; d < *W; d++) counts[d] = count_of(j, S, *W, d);
            if (trial_call(r)) (i % 2 ? expect_tokens : expect_counts)(j, r, S, *W);
            trial_close(r);
        }
}

/* ---- attention in double ----------------------------------------------------------------------------------------- */

/* Draw inputs whose scores are exact in float: queries are whole numbers, keys eighths, and the root of A is 2 or
 * 1. */
static void draw(struct judge *j, int64_t heads, int64_t numbers, bool large)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < numbers; i++) {
            q[h][i] = (float)judge_draw(j, large ? -300 : -3, large ? 300 : 3);
            k[h][i] = (float)judge_draw(j, -60, 60) / 8, v[h][i] = (float)judge_draw(j, -60, 60) / 8;
        }
}

/* A score is q_t k_u / sqrt(A), in double. */
static double score(int64_t h, int64_t t, int64_t u, int64_t A)
{
    double sum = 0;
    for (int64_t a = 0; a < A; a++) sum += (double)q[h][t * A + a] * (double)k[h][u * A + a];
    return sum / sqrt((double)A);
}

/* This is the result of a token's query over the keys that `seen` marks; NULL: over all.  size: sums of absolute
 * values, for bounds. */
struct row { double max, sum, out[WIDTH], size[WIDTH]; };

/* The causal mask stops at the token itself. */
static struct row meet(int64_t h, int64_t t, const bool *seen, int64_t A)
{
    struct row r = { .max = -INFINITY };
    for (int64_t u = 0; u <= t; u++) {
        /* gcc 12 for ARM fails to vectorize fmax under a condition, with an error of its own. */
        const double one = seen == NULL || seen[u] ? score(h, t, u, A) : -INFINITY;
        if (one > r.max) r.max = one;
    }
    for (int64_t u = 0; u <= t; u++) {
        if (seen && !seen[u]) continue;
        /* p = exp(score - max) is 1 at most. */
        const double p = exp(score(h, t, u, A) - r.max);
        r.sum += p;
        for (int64_t a = 0; a < A; a++)
            r.out[a] += p * (double)v[h][u * A + a], r.size[a] += p * fabs((double)v[h][u * A + a]);
    }
    return r;
}

/* Bound: for each key an exponential (expf: 2 units at most), two products and two sums, all of which are passed
 * on. */
static double allowed(int64_t S, double size) { return (double)(8 * (S + 8)) * 0x1p-24 * size + 1e-30; }

/* ---- attend ------------------------------------------------------------------------------------------------------ */

/* The maxima are compared to the bit, sums and values within their bounds. */
static void expect_rows(struct judge *j, struct trial *r, int64_t S, int W, int d, const bool *seen, int64_t A)
{
    const int64_t n = count_of(j, S, W, d);
    float max[TOKENS];
    double sum[TOKENS], sum_bound[TOKENS], out[TOKENS * WIDTH], bound[TOKENS * WIDTH];
    for (int64_t i = 0; i < n; i++) {
        /* The device's row i is the token with its number i; w is the attention of this row. */
        const struct row w = meet(0, token(j, S, W, d, i), seen, A);
        max[i] = (float)w.max, sum[i] = w.sum, sum_bound[i] = allowed(S, w.sum);
        for (int64_t a = 0; a < A; a++) out[i * A + a] = w.out[a], bound[i * A + a] = allowed(S, w.size[a]);
    }
    /* Buffers 4, 5 and 6 are the state of attention block by block: max, sum and out. */
    trial_expect_floats(r, 0, 4, max, n, "max");
    if (!j->failed) trial_expect_near(r, 0, 5, sum, sum_bound, n, "sum");
    if (!j->failed) trial_expect_near(r, 0, 6, out, bound, n * A, "out");
}

/* Copy device d's rows of a whole matrix.  @return how many numbers these are. */
static int64_t rows_of(const struct judge *j, int64_t S, int W, int d, const float *whole, int64_t row, float *to)
{
    const int64_t n = count_of(j, S, W, d);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * row, whole + token(j, S, W, d, i) * row, sizeof *to * (size_t)row);
    return n * row;
}

/* Queries of device d meet the keys of the devices of a list, one device after another. */
static void try_attend(struct judge *j, int64_t S, int W, int d, const int *list, int count, int64_t A, bool large)
{
    struct trial *r = trial_open(j, "attend", 1, "S = %lld, W = %d, queries of device %d, keys of %d device%s%s",
                                 (long long)S, W, d, count, count == 1 ? "" : "s",
                                 large ? thousands : "");
    bool seen[TOKENS] = { false };
    int64_t visits[16], keys = 0;
    float mine[MOST], kk[MOST], vv[MOST];
    draw(j, 1, S * A, large);
    /* The buffers of the keys lie one after another, as the student's function visits them. */
    for (int i = 0; i < count; i++) {
        visits[2 * i] = list[i], visits[2 * i + 1] = count_of(j, S, W, list[i]);
        for (int64_t e = 0; e < visits[2 * i + 1]; e++) seen[token(j, S, W, list[i], e)] = true;
        rows_of(j, S, W, list[i], k[0], A, kk + keys);
        keys += rows_of(j, S, W, list[i], v[0], A, vv + keys);
    }
    const int64_t n = count_of(j, S, W, d);
    trial_in(r, 0, 0, mine, rows_of(j, S, W, d, q[0], A, mine));
    trial_in(r, 0, 1, kk, keys), trial_in(r, 0, 2, vv, keys);
    trial_copy(r, 0, 3, visits, sizeof *visits * 2 * (uint64_t)count, BUFFER_IN);
    /* Before any key is seen the maxima are minus infinity. */
    float *max = trial_buffer(r, 0, 4, sizeof *max * (uint64_t)n, BUFFER_BOTH);
    for (int64_t i = 0; i < n; i++) max[i] = -INFINITY;
    trial_buffer(r, 0, 5, sizeof *max * (uint64_t)n, BUFFER_BOTH);
    trial_buffer(r, 0, 6, sizeof *max * (uint64_t)(n * A), BUFFER_BOTH);
    r->device[0].number[0] = S, r->device[0].number[1] = W, r->device[0].number[2] = d;
    r->device[0].number[3] = A, r->device[0].number[4] = count;
    if (trial_call(r)) expect_rows(j, r, S, W, d, seen, A);
    trial_close(r);
}

enum what { USUAL, LARGE };             /* scores */

/* Lists with one device, in any order, and once keys that the first query does not see. */
static void try_attends(struct judge *j)
{
    static const struct { int64_t S; int W, d, count, list[3]; } usual[] = {
        { 6, 1, 0, 1, { 0 } }, { 13, 2, 1, 2, { 1, 0 } }, { 12, 3, 0, 3, { 2, 0, 1 } }, { 20, 3, 2, 2, { 0, 1 } },
        { 12, 3, 0, 1, { 2 } },         /* the first query meets no key */
    };
    for (int i = 0; i < 5 && !j->failed; i++) {
        const int64_t S = j->hidden ? judge_draw(j, 8, TOKENS) : usual[i].S;
        try_attend(j, S, usual[i].W, usual[i].d, usual[i].list, usual[i].count, i == 3 ? 1 : WIDTH,
                   j->check->what == LARGE);
    }
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

enum look { AT_VALUES, AT_MEETS, AT_SENT, AT_MEMORY, AT_TIME };

/* This is the device to which a ring sends. */
static int next_of(const struct judge *j, int d, int W) 
{
    return modulo(judge_choice(j, "RING") == 1 ? d - 1 : d + 1, W);
}

/* Compute the result of a token's query in all keys, and its bound. */
static void want_out(int64_t h, int64_t t, int64_t S, int64_t A, double *want, double *bound)
{
    const struct row w = meet(h, t, NULL, A);
    for (int64_t a = 0; a < A; a++) want[a] = w.out[a] / w.sum, bound[a] = 2 * allowed(S, w.size[a] / w.sum);
}

/* Count the pairs of a query of device d and a key of device s that see each other: the work of one step. */
static int64_t pairs(const struct judge *j, int64_t S, int W, int d, int s)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count_of(j, S, W, d); i++)
        for (int64_t e = 0; e < count_of(j, S, W, s); e++) sum += token(j, S, W, s, e) <= token(j, S, W, d, i);
    return sum;
}

/* Time the ring step by step.  A step ends when a device has computed and the next block has come.  The neighbour
 * sends this block at the step's start. */
static picoseconds ring_time(const struct judge *j, const struct trial *r, int64_t S, int64_t A)
{
    const int W = r->devices, back = next_of(j, 0, W);
    const picoseconds operation = 1000000 / (picoseconds)r->cluster.flop_rate[F32];
    const struct link *l = &r->cluster.link[0];
    const picoseconds message = l->latency + 2 * time_at_rate(4 * (uint64_t)(S / W * A), l->rate);
    picoseconds ready[WORKER_MOST_DEVICES] = { 0 }, next[WORKER_MOST_DEVICES], last = 0;
    for (int step = 0; step < W; step++) {
        for (int d = 0; d < W; d++) {
            const picoseconds there = ready[modulo(d - back, W)] + message;
            /* A pair takes 4 A operations: 2 A for its score, and 2 A for its values. */
            next[d] = ready[d] + 4 * A * pairs(j, S, W, d, modulo(d - back * step, W)) * operation;
            if (step < W - 1 && there > next[d]) next[d] = there;
        }
        memcpy(ready, next, sizeof ready);
    }
    for (int d = 0; d < W; d++) last = ready[d] > last ? ready[d] : last;
    return last;
}

/* Results are compared, then messages and bytes, memory or time. */
static void look_at_ring(struct judge *j, struct trial *r, int64_t S, int64_t A, enum look look)
{
    const int W = r->devices;
    double want[MOST], bound[MOST];
    /* The longest block in the ring has S / (2W) tokens, rounded up, twice. */
    for (int d = 0; d < W && !j->failed; d++) {
        const int64_t n = count_of(j, S, W, d), most = 2 * ((S + 2 * W - 1) / (2 * W));
        for (int64_t i = 0; i < n; i++) want_out(0, token(j, S, W, d, i), S, A, want + i * A, bound + i * A);
        trial_expect_near(r, d, 3, want, bound, n * A, "out");
        if (look == AT_SENT && !j->failed)
            trial_expect_sent(r, d, 2 * (uint64_t)(W - 1),
                              W == 1 ? 0 : 8 * (uint64_t)(A * (S - count_of(j, S, W, next_of(j, d, W)))),
                              "2 (W-1) messages: keys and values of all tokens but those that come last");
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)(4 * most * A + 2 * n), "4 R A + 2 n");
    }
    for (int i = 0; look == AT_SENT && i < r->events && !j->failed; i++) {
        const struct event *e = &r->event[i];
        if (e->kind == EVENT_SEND && e->peer != next_of(j, e->device, W))
            trial_fails(r, "device %d sends to device %d; in this ring it sends only to device %d", e->device, e->peer,
                        next_of(j, e->device, W));
    }
    if (look == AT_TIME && !j->failed)
        trial_expect_time(r, ring_time(j, r, S, A),
                          "a step is as long as the longer of its computing and its messages");
}

/* Rates of computing are chosen so that either messages or computing is the longer of both. */
static void try_ring(struct judge *j)
{
    const enum look look = j->check->look;
    static const int64_t usual[] = { 24, 13, 3, 20 }, rates[] = { 10, 25, 40 };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look == AT_VALUES ? 4 : look == AT_TIME ? 2 : 1) && !j->failed; i++) {
            const bool large = i == 3;
            /* Values are tried with 3 tokens first, which can be shown whole. */
            int64_t S = j->hidden ? judge_draw(j, 1, TOKENS) : usual[look == AT_VALUES ? (i + 2) % 4 : i];
            /* With times all devices have equally many tokens: two blocks each of 2 W. */
            if (look == AT_TIME) S = 2 * *W * (j->hidden ? judge_draw(j, 1, 3) : 2);
            struct trial *r = trial_open(j, "ring_attention", *W, "S = %lld%s", (long long)S, large ? thousands : "");
            if (look == AT_TIME) r->cluster.flop_rate[F32] = rates[j->hidden ? judge_draw(j, 0, 2) : i];
            if (look == AT_MEETS) trial_meets(r);
            draw(j, 1, S * WIDTH, large);
            /* Each device gets its rows of q, k and v, and gives its rows of the output. */
            for (int d = 0; d < *W; d++) {
                float mine[MOST];
                const float *const whole[] = { q[0], k[0], v[0] };
                const uint64_t bytes = sizeof *mine * WIDTH * (uint64_t)count_of(j, S, *W, d);
                for (int b = 0; b < 3; b++)
                    rows_of(j, S, *W, d, whole[b], WIDTH, mine), trial_copy(r, d, b, mine, bytes, BUFFER_IN);
                trial_buffer(r, d, 3, bytes, BUFFER_OUT);
                r->device[d].number[0] = S, r->device[d].number[1] = WIDTH;
            }
            if (trial_call(r)) look_at_ring(j, r, S, WIDTH, look);
            trial_close(r);
        }
}

/* ---- tokens for heads -------------------------------------------------------------------------------------------- */

/* Heads are exchanged: each device has all tokens of its own heads, and the results go back. */
static void look_at_heads(struct judge *j, struct trial *r, int64_t S, int64_t heads, int64_t A, enum look look)
{
    const int W = r->devices;
    static double want[HEADS * MOST], bound[HEADS * MOST];
    for (int d = 0; d < W && !j->failed; d++) {
        const struct interval tokens = block_at(S, W, d);
        const int64_t own = block_at(heads, W, d).count;
        /* Row i of a device has all heads: out [tokens, heads, A]. */
        for (int64_t i = 0; i < tokens.count; i++)
            for (int64_t h = 0; h < heads; h++)
                want_out(h, tokens.first + i, S, A, want + (i * heads + h) * A, bound + (i * heads + h) * A);
        trial_expect_near(r, d, 3, want, bound, tokens.count * heads * A, "out");
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)(4 * S * own * A + tokens.count * heads * A + 2 * S),
                              "4 S own A + n heads A + 2 S");
        /* Three all-to-alls bring q, k and v; a fourth takes the results back. */
        if (look != AT_SENT || j->failed) continue;
        const uint64_t bytes = 4 * (uint64_t)(A * (3 * tokens.count * (heads - own) + (S - tokens.count) * own));
        if (trial_expect_collectives(r, d, 4, "") && r->device[d].bytes != bytes)
            trial_fails(r, "device %d sent %llu bytes; it should be %llu: of its tokens the heads of others, three "
                        "times, and once the results of others' tokens", d, (unsigned long long)r->device[d].bytes,
                        (unsigned long long)bytes);
    }
}

/* The inputs are tokens by heads; each device gets its tokens of all heads. */
static void try_heads(struct judge *j)
{
    const enum look look = j->check->look;
    static const struct { int64_t S, heads; } usual[] = { { 16, 8 }, { 11, 6 }, { 3, 2 }, { 12, 3 } };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look == AT_VALUES ? 4 : 1) && !j->failed; i++) {
            const bool large = i == 3;
            const int which = look == AT_VALUES ? (i + 2) % 4 : i;      /* 3 tokens first */
            const int64_t S = j->hidden ? judge_draw(j, 1, 24) : usual[which].S, A = WIDTH;
            const int64_t heads = j->hidden ? judge_draw(j, 1, HEADS) : usual[which].heads;
            struct trial *r = trial_open(j, "ulysses_attention", *W, "S = %lld, %lld head%s%s", (long long)S,
                                         (long long)heads, heads == 1 ? "" : "s", large ? thousands : "");
            draw(j, heads, S * A, large);
            for (int d = 0; d < *W; d++) {
                const struct interval tokens = block_at(S, *W, d);
                const uint64_t bytes = sizeof(float) * (uint64_t)(tokens.count * heads * A);
                /* The whole matrices are by head; the device's buffer is by token and then by head. */
                for (int b = 0; b < 3; b++) {
                    float *to = trial_buffer(r, d, b, bytes, BUFFER_IN);
                    for (int64_t e = 0; e < tokens.count * heads; e++, to += A)
                        memcpy(to, (b == 0 ? q : b == 1 ? k : v)[e % heads] + (tokens.first + e / heads) * A,
                               sizeof *to * (size_t)A);
                }
                trial_buffer(r, d, 3, bytes, BUFFER_OUT);
                r->device[d].number[0] = S, r->device[d].number[1] = A, r->device[d].number[2] = heads;
            }
            if (trial_call(r)) look_at_heads(j, r, S, heads, A, look);
            trial_close(r);
        }
}

static const char *const functions[] = { "tokens_of", "token_of", "attend", "ring_attention", "ulysses_attention",
                                         NULL };

extern const struct lesson lesson_12_context;
const struct lesson lesson_12_context = {
    .folder = "12_context", .title = "Long texts: attention on several devices", .file = "context.c",
    .functions = functions,
    .vary = { { "CUT", 2 }, { "RING", 2 } },
    .check = {
        { 1, "cut", "who has which tokens", 3, { check_cut },
          { "Draw 13 tokens on 2 devices.  Each token belongs to exactly one device.",
            "The early tokens see few keys, the late ones many.  Which tokens must a device have to have its share of "
            "both?" } },
        { 2, "attend", "queries meet keys, some at a time", 5, { try_attends, AT_VALUES },
          { "A larger score comes: the sums so far were made with the old maximum.  By which factor are they too "
            "large?",
            "exp(score - old) = exp(score - new) exp(new - old): multiply what is there by exp(old - new).",
            "A query without any key so far: its maximum is -INFINITY.  exp(-INFINITY - score) is 0, which is right; "
            "but -INFINITY - -INFINITY is not a number.",
            "A key counts if its token is not behind the query's.  Compare token_of, not i and j." } },
        { 2, "large", "scores of thousands", 2, { try_attends, AT_VALUES, LARGE },
          { "exp(1000) is infinite.  Subtract the largest score first: exp is then 1 at most." } },
        { 3, "ring", "the results of all queries of a device", 4, { try_ring, AT_VALUES },
          { "First the queries meet the device's own keys.  In step i, whose keys does it have?",
            "Blocks differ in length: tokens_of(S, W, s) for those of device s.",
            "What has arrived in one step is sent in the next one: where is room for what arrives then?",
            "At the end the sums of values are divided by the sums of exponentials.  Before the first key the maximum "
            "is -INFINITY: 0 is none, if all scores are below." } },
        { 3, "ring-meets", "no deadlock, even if every message waits", 1, { try_ring, AT_MEETS },
          { "Start to send and to receive before you wait for one of both." } },
        { 3, "ring-sent", "2 (W-1) messages, to one neighbour", 2, { try_ring, AT_SENT },
          { "After W-1 steps everybody has seen all keys: who would need another message?" } },
        { 3, "ring-memory", "two blocks of keys and values", 2, { try_ring, AT_MEMORY },
          { "One block is computed with and sent, the next one arrives.  The first one is an argument." } },
        { 3, "ring-time", "messages travel while the device computes", 3, { try_ring, AT_TIME },
          { "message_send and message_receive return at once.  Where is message_wait in your loop?",
            "Look at the drawing: are there times at which a device only waits, although it has keys that it has not "
            "used?",
            "attend says with work() what it takes: 4 A for each pair that sees each other, and no others." } },
        { 4, "heads", "the results, with tokens exchanged for heads", 5, { try_heads, AT_VALUES },
          { "What a device needs for a head are all tokens, but no other heads.  What does device d need of yours?",
            "Pack for each device in turn: for each of your tokens, the numbers of its heads.  What arrives is then "
            "in the order of the text.",
            "All tokens on one device: S tokens, W = 1, r = s = 0, rows that begin own * A numbers after one another.",
            "The way back is the same with give and take exchanged; then unpack where you packed." } },
        { 4, "heads-sent", "four all-to-alls", 2, { try_heads, AT_SENT },
          { "q, k and v go there, the results come back.  Only heads that belong to others leave a device." } },
        { 4, "heads-memory", "a copy for each exchange", 1, { try_heads, AT_MEMORY },
          { "The packed numbers need a place only until they are sent: the same one for q, k, v and the results." } },
    },
};
