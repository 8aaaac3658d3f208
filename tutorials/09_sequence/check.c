/* check.c -- judges lesson 09.  The student writes sequence.c: gather_tokens, reduce_tokens, and both passes of a
 * layer with sequence parallelism.  Tokens [T, D] are cut in blocks over W devices.  The variant ROWS changes which
 * block a device has, NEXT the order of additions.  KEEP says what is gathered again.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 24, WIDTH = 10, HIDDEN = 24, MOST = TOKENS * WIDTH };

static int modulo(int i, int P) { return (i % P + P) % P; }

/* Find the tokens of device d, in the order that ROWS says. */
static struct interval tokens(const struct judge *j, int64_t T, int W, int d)
{
    return block_at(T, W, modulo(judge_choice(j, "ROWS") == 1 ? -1 - d : d, W));
}

/* Compute device d's tokens of the sum of all devices' rows.  Its own rows come first, then the others as they come
 * round. */
static void reduce(const struct judge *j, int W, int d, int64_t T, int64_t D, float (*all)[MOST], float *own)
{
    const struct interval mine = tokens(j, T, W, d);
    for (int i = 0; i < W; i++) {
        const float *one = all[modulo(judge_choice(j, "NEXT") == 1 ? d + i : d - i, W)] + mine.first * D;
        for (int64_t e = 0; e < mine.count * D; e++) own[e] = i == 0 ? one[e] : own[e] + one[e];
    }
}

enum look { AT_VALUES, AT_WEIGHTS, AT_MEETS, AT_SENT, AT_MEMORY, AT_TIME, AT_WORK };
enum what { GATHER, REDUCE, FORWARD, BACKWARD };

/* ---- gather and reduce ------------------------------------------------------------------------------------------- */

static float rows[WORKER_MOST_DEVICES][MOST];

/* Each device sends one message to each other device. */
static void expect_pairs(struct trial *r)
{
    int count[WORKER_MOST_DEVICES][WORKER_MOST_DEVICES] = { { 0 } };
    for (int i = 0; i < r->events; i++)
        if (r->event[i].kind == EVENT_SEND) count[r->event[i].device][r->event[i].peer]++;
    for (int d = 0; d < r->devices; d++)
        for (int p = 0; p < r->devices; p++)
            if (p != d && count[d][p] != 1)
                trial_fails(r, "device %d sends %d messages to device %d; it sends one to each other device", d,
                            count[d][p], p);
}

/* gather_tokens and reduce_tokens are looked at in one function: their messages are opposite. */
static void look_at_move(struct judge *j, struct trial *r, bool reduces, int64_t T, int64_t D, enum look look)
{
    const int W = r->devices;
    for (int d = 0; d < W && !j->failed; d++) {
        const int64_t own = tokens(j, T, W, d).count * D;
        float want[MOST];
        /* A sum depends on the order of additions, so each device's sum is made for itself. */
        if (reduces) reduce(j, W, d, T, D, rows, want);
        trial_expect_floats(r, d, 1, reduces ? want : rows[0], reduces ? own : T * D, reduces ? "own" : "all");
        if (look == AT_SENT && !j->failed)
            trial_expect_sent(r, d, (uint64_t)W - 1, 4 * (uint64_t)(reduces ? T * D - own : (W - 1) * own),
                              reduces ? "W-1 messages, all tokens but its own"
                                      : "W-1 messages, its own tokens in each");
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, reduces ? 4 * (uint64_t)own : 0,
                              reduces ? "this device's tokens" : "tokens can be received where they belong");
    }
    if (look == AT_SENT && !j->failed) expect_pairs(r);
    /* In each step a device sends T/W tokens, and all devices send at once. */
    if (look == AT_TIME && !j->failed)
        trial_expect_time(r, (W - 1) * (10000000 + 80 * (T / W) * D),
                          "W-1 steps of 10 us + T/W tokens of 4 D bytes at 50 GB/s");
}

/* Token counts that W does not divide, and fewer tokens than devices. */
static void try_move(struct judge *j)
{
    const enum look look = j->check->look;
    const bool reduces = j->check->what == REDUCE, values = look == AT_VALUES || look == AT_MEETS;
    static const struct { int64_t T, D; } usual[] = { { 24, 5 }, { 10, 3 }, { 3, 2 } };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (values ? 3 : 1) && !j->failed; i++) {
            const int which = values ? 2 - i : i;            /* the smallest first: it can be shown whole */
            const int64_t T = look == AT_TIME ? 3 * *W : j->hidden ? judge_draw(j, 1, TOKENS) : usual[which].T;
            const int64_t D = j->hidden ? judge_draw(j, 1, WIDTH) : usual[which].D;
            struct trial *r = trial_open(j, reduces ? "reduce_tokens" : "gather_tokens", *W, "T = %lld, D = %lld",
                                         (long long)T, (long long)D);
            if (look == AT_MEETS) trial_meets(r);
            for (int d = 0; d < *W; d++) judge_rough(j, rows[d], T * D);
            for (int d = 0; d < *W; d++) {
                const struct interval own = tokens(j, T, *W, d);
                /* reduce_tokens gets all rows and returns a device's own; gather_tokens does the opposite. */
                if (reduces) trial_in(r, d, 0, rows[d], T * D), trial_out(r, d, 1, own.count * D);
                else trial_in(r, d, 0, rows[0] + own.first * D, own.count * D), trial_out(r, d, 1, T * D);
                r->device[d].number[0] = T, r->device[d].number[1] = D;
            }
            if (trial_call(r)) look_at_move(j, r, reduces, T, D, look);
            trial_close(r);
        }
}

/* ---- a layer, on one device that adds as the devices do ---------------------------------------------------------- */

/* A shape has T tokens of width D and F hidden numbers. */
struct shape { int64_t T, D, F; };

static float w[WIDTH], A[WIDTH * HIDDEN], B[WIDTH * HIDDEN], x[MOST], dy[MOST];
static float y[MOST], dx[MOST], dw[WIDTH];

static struct part {
    int64_t own;
    float A[WIDTH * HIDDEN], B[WIDTH * HIDDEN], hidden[TOKENS * HIDDEN], dA[WIDTH * HIDDEN], dB[WIDTH * HIDDEN];
} part[WORKER_MOST_DEVICES];

/* y = x r w for one token, r = 1/sqrt(mean x^2 + 1e-5).  Products are rounded one by one. */
static void norm_row(const float *from, int64_t D, float *to)
{
    float squares = 0;
    for (int64_t i = 0; i < D; i++) squares += judge_times(from[i], from[i]);
    const float r = 1 / sqrtf(squares / (float)D + 1e-5f);
    for (int64_t i = 0; i < D; i++) to[i] = judge_times(from[i], r) * w[i];
}

/* dx = (dy w - x m) r with m = mean(dy w x) r^2; the token adds dy x r to dw. */
static void norm_row_backward(const float *from, const float *back, int64_t D, float *to, float *weights)
{
    float squares = 0, sum = 0;
    for (int64_t i = 0; i < D; i++) squares += judge_times(from[i], from[i]);
    for (int64_t i = 0; i < D; i++) sum += judge_times(judge_times(back[i], w[i]), from[i]);
    const float r = 1 / sqrtf(squares / (float)D + 1e-5f), mean = sum * r * r / (float)D;
    for (int64_t i = 0; i < D; i++) {
        weights[i] += judge_times(judge_times(back[i], from[i]), r);
        to[i] = (judge_times(back[i], w[i]) - judge_times(from[i], mean)) * r;
    }
}

/* Each device has some columns of A and the same rows of B. */
static void draw(struct judge *j, int W, const struct shape *s)
{
    judge_rough(j, w, s->D), judge_rough(j, A, s->D * s->F), judge_rough(j, B, s->F * s->D);
    judge_rough(j, x, s->T * s->D), judge_rough(j, dy, s->T * s->D);
    for (int d = 0; d < W; d++) {
        const struct interval own = block_at(s->F, W, d);
        part[d].own = own.count;
        for (int64_t i = 0; i < s->D; i++)
            for (int64_t k = 0; k < own.count; k++) part[d].A[i * own.count + k] = A[i * s->F + own.first + k];
        memcpy(part[d].B, B + own.first * s->D, sizeof *B * (size_t)(own.count * s->D));
    }
}

/* y = x + the sum over devices of relu(norm(x) A) B, added in the order of reduce(). */
static void compute_forward(const struct judge *j, int W, const struct shape *s, float *normed)
{
    /* normed [T, D] has every token's norm. */
    for (int64_t t = 0; t < s->T; t++) norm_row(x + t * s->D, s->D, normed + t * s->D);
    for (int d = 0; d < W; d++) {
        struct part *p = &part[d];
        /* hidden [T, own] = relu(normed A [D, own]): this device's columns. */
        judge_matrix_product(p->hidden, normed, p->A, s->T, s->D, p->own, false, false);
        for (int64_t i = 0; i < s->T * p->own; i++)
            if (p->hidden[i] < 0) p->hidden[i] = 0;
        /* rows[d] [T, D] = hidden B [own, D]: this device's partial sum of all tokens. */
        judge_matrix_product(rows[d], p->hidden, p->B, s->T, p->own, s->D, false, false);
    }
    /* Each device adds up its own tokens. */
    for (int d = 0; d < W; d++) reduce(j, W, d, s->T, s->D, rows, y + tokens(j, s->T, W, d).first * s->D);
    for (int64_t i = 0; i < s->T * s->D; i++) y[i] += x[i];
}

/* Each device's hidden numbers get their gradient, then its tokens; dw is added over devices. */
static void compute_backward(const struct judge *j, int W, const struct shape *s, const float *normed)
{
    float dH[TOKENS * HIDDEN], one[WIDTH];
    for (int d = 0; d < W; d++) {
        struct part *p = &part[d];
        /* dB [own, D] = hidden^T dy, and dH [T, own] = dy B^T where relu was not 0. */
        judge_matrix_product(p->dB, p->hidden, dy, p->own, s->T, s->D, true, false);
        judge_matrix_product(dH, dy, p->B, s->T, s->D, p->own, false, true);
        for (int64_t i = 0; i < s->T * p->own; i++)
            if (!(p->hidden[i] > 0)) dH[i] = 0;
        /* dA [D, own] = normed^T dH; rows[d] = dH A^T is a partial sum of all tokens. */
        judge_matrix_product(p->dA, normed, dH, s->D, s->T, p->own, true, false);
        judge_matrix_product(rows[d], dH, p->A, s->T, p->own, s->D, false, true);
    }
    for (int d = 0; d < W; d++) {
        /* Each device goes back through the norm with its own tokens. */
        const struct interval own = tokens(j, s->T, W, d);
        float back[MOST];
        reduce(j, W, d, s->T, s->D, rows, back);
        memset(one, 0, sizeof one);
        for (int64_t t = 0; t < own.count; t++)
            norm_row_backward(x + (own.first + t) * s->D, back + t * s->D, s->D, dx + (own.first + t) * s->D, one);
        for (int64_t i = 0; i < s->D; i++) dw[i] = d == 0 ? one[i] : dw[i] + one[i];
    }
    for (int64_t i = 0; i < s->T * s->D; i++) dx[i] += dy[i];
}

/* The student's call gets its tokens and its columns; the results are made before it. */
static struct trial *prepare(struct judge *j, int W, const struct shape *s, bool back)
{
    struct trial *r = trial_open(j, back ? "layer_backward" : "layer_forward", W,
                                 "T = %lld, D = %lld, %lld hidden numbers", (long long)s->T, (long long)s->D,
                                 (long long)s->F);
    float normed[MOST];
    draw(j, W, s);
    compute_forward(j, W, s, normed);
    if (back) compute_backward(j, W, s, normed);
    for (int d = 0; d < W; d++) {
        const struct part *p = &part[d];
        const struct interval own = tokens(j, s->T, W, d);
        /* Buffers 0 to 2 are w, A and B; 3 and 4 are this device's tokens before and after the layer. */
        trial_in(r, d, 0, w, s->D), trial_in(r, d, 1, p->A, s->D * p->own), trial_in(r, d, 2, p->B, p->own * s->D);
        trial_in(r, d, 3, x + own.first * s->D, own.count * s->D), trial_out(r, d, 4, own.count * s->D);
        r->device[d].number[0] = s->T, r->device[d].number[1] = s->D, r->device[d].number[2] = p->own;
        if (!back) continue;
        /* Backward gets dy, and gives dx, dw, dA and dB. */
        trial_in(r, d, 5, dy + own.first * s->D, own.count * s->D), trial_out(r, d, 6, own.count * s->D);
        trial_out(r, d, 7, s->D), trial_out(r, d, 8, s->D * p->own), trial_out(r, d, 9, p->own * s->D);
    }
    return r;
}

static struct shape shape(struct judge *j, int i)
{
    static const struct shape usual[] = { { 24, 6, 16 }, { 10, 4, 11 }, { 5, 3, 6 } };
    struct shape s = usual[i];
    if (j->hidden) s.T = judge_draw(j, 2, TOKENS), s.D = judge_draw(j, 2, WIDTH), s.F = judge_draw(j, 2, HIDDEN);
    return s;
}

/* Compare the gradients of the norm and of this device's columns. */
static void expect_weights(struct judge *j, struct trial *r, int d, const struct shape *s)
{
    trial_expect_floats(r, d, 7, dw, s->D, "gradient of w");
    if (!j->failed) trial_expect_floats(r, d, 8, part[d].dA, s->D * part[d].own, "gradient of A");
    if (!j->failed) trial_expect_floats(r, d, 9, part[d].dB, part[d].own * s->D, "gradient of B");
}

/* Both passes: the gathers and sums of tokens, and the sum of dw. */
static void expect_sent(struct judge *j, struct trial *r, const struct shape *s, bool back)
{
    const bool again = judge_choice(j, "KEEP") == 0;
    /* With KEEP = 0 the backward pass gathers the normed tokens again. */
    const uint64_t times = back ? 4 + again : 2, sums = back ? 2 * 4 * (uint64_t)s->D : 0;
    /* Each gather or sum of tokens sends (W-1) 4 T D bytes; the all_reduce of dw sends 2 (W-1) 4 D. */
    const uint64_t want = (uint64_t)(r->devices - 1) * (times * 4 * (uint64_t)(s->T * s->D) + sums);
    const uint64_t sum = trial_bytes(r);
    for (int d = 0; d < r->devices && !j->failed; d++)
        if (r->device[d].collectives != (back ? 1 : 0))
            trial_fails(r, "device %d calls collective operations %llu times; it should be %s", d,
                        (unsigned long long)r->device[d].collectives, back ? "once, for dw" : "0 times");
    if (!j->failed && sum != want)
        trial_fails(r, "all devices together send %llu bytes; it should be %llu: %s", (unsigned long long)sum,
                    (unsigned long long)want, !back ? "2 (W-1) 4 T D"
                    : again ? "5 (W-1) 4 T D + 2 (W-1) 4 D, both passes" : "4 (W-1) 4 T D + 2 (W-1) 4 D, both passes");
}

/* Count operations: the products of a device's own hidden numbers, and the norms of its own tokens (norm of
 * sequence.h).  relu and the sum with x may be counted, too, by work(). */
static void expect_work(struct trial *r, int d, const struct shape *s, int64_t tokens)
{
    const int64_t products = 2 * 2 * s->T * s->D * part[d].own, norms = 4 * tokens * s->D;
    const int64_t others = s->T * part[d].own + tokens * s->D;
    int64_t got = 0;
    for (int i = 0; i < r->events; i++) {
        const struct event *e = &r->event[i];
        if (e->device == d && e->kind == EVENT_COMPUTE && e->bytes == 0) got += e->until - e->from;
    }
    if (got > products + norms + others)
        trial_fails(r, "device %d computes %lld operations; it should be %lld for the products and %lld for the norms "
                    "of its own tokens", d, (long long)got, (long long)products, (long long)norms);
}

/* y first, then what the check asks for. */
static void look_at_layer(struct judge *j, struct trial *r, const struct shape *s, bool back, enum look look)
{
    const bool again = judge_choice(j, "KEEP") == 0;
    for (int d = 0; d < r->devices && !j->failed; d++) {
        const struct interval own = tokens(j, s->T, r->devices, d);
        trial_expect_floats(r, d, 4, y + own.first * s->D, own.count * s->D, "y");
        if (back && !j->failed) trial_expect_floats(r, d, 6, dx + own.first * s->D, own.count * s->D, "dx");
        if (look == AT_WEIGHTS && !j->failed) expect_weights(j, r, d, s);
        /* The formula depends on KEEP: normed tokens are kept, or gathered again. */
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)((again ? 1 : 2) * s->T * s->D + 2 * s->T * part[d].own +
                                                   (again ? 2 : 1) * own.count * s->D),
                              again ? "T D + 2 T own + 2 n D" : "2 T D + 2 T own + n D");
        if (look == AT_WORK && !j->failed) expect_work(r, d, s, own.count);
    }
    if (look == AT_SENT && !j->failed) expect_sent(j, r, s, back);
}

static void try_layer(struct judge *j)
{
    const enum look look = j->check->look;
    const bool back = j->check->what == BACKWARD;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look <= AT_WEIGHTS ? 3 : 1) && !j->failed; i++) {
            const struct shape s = shape(j, look <= AT_WEIGHTS ? 2 - i : i);
            struct trial *r = prepare(j, *W, &s, back);
            if (look == AT_WORK) r->cluster.flop_rate[F32] = 1000000;      /* so an operation takes a picosecond */
            if (trial_call(r)) look_at_layer(j, r, &s, back, look);
            trial_close(r);
        }
}

static const char *const functions[] = { "gather_tokens", "reduce_tokens", "layer_forward", "layer_backward", NULL };

extern const struct lesson lesson_09_sequence;
const struct lesson lesson_09_sequence = {
    .folder = "09_sequence", .title = "Sequence parallelism: fewer tokens on each device", .file = "sequence.c",
    .functions = functions,
    .vary = { { "ROWS", 2 }, { "NEXT", 2 }, { "KEEP", 2 } },
    .check = {
        { 1, "gather", "all tokens on all devices, in the order of the text", 3, { try_move, AT_VALUES, GATHER },
          { "all_gather of course.h shares n numbers out, not rows: it would cut a token in two.  Which messages do "
            "you need?",
            "In step i a device sends its tokens to the device i further on.  From which one does it receive?",
            "Another device may have one token more or fewer than this one: ask block_of for it." } },
        { 1, "gather-meets", "no deadlock, even if every message waits", 1, { try_move, AT_MEETS, GATHER },
          { "exchange_both starts both messages before it waits for one." } },
        { 1, "gather-sent", "W-1 messages", 2, { try_move, AT_SENT, GATHER },
          { "Everybody needs this device's tokens, and nobody needs them twice." } },
        { 1, "gather-memory", "nothing is allocated", 1, { try_move, AT_MEMORY, GATHER },
          { "Tokens can be received at their place in `all`." } },
        { 2, "reduce", "the sums of each device's tokens, to the bit", 4, { try_move, AT_VALUES, REDUCE },
          { "The opposite of gathering: a device sends each other one the tokens that belong to it.",
            "What arrives are summands of this device's own tokens: they have its length, not the sender's.",
            "The order of additions is fixed: its own, then one neighbour's, then that of the neighbour's neighbour.",
            "In step i what arrives is from i devices away; so what leaves goes i devices in the other direction." } },
        { 2, "reduce-meets", "no deadlock, even if every message waits", 1, { try_move, AT_MEETS, REDUCE },
          { "Who waits until its message is received must have started to receive: exchange_both starts both." } },
        { 2, "reduce-sent", "W-1 messages, everything but its own tokens", 1, { try_move, AT_SENT, REDUCE },
          { "Only the tokens that belong to the receiver are sent to it." } },
        { 2, "reduce-memory", "memory for this device's tokens, once", 1, { try_move, AT_MEMORY, REDUCE },
          { "One summand at a time waits for its addition; the sum grows in `own`." } },
        { 2, "reduce-time", "the time of W-1 steps", 1, { try_move, AT_TIME, REDUCE },
          { "Look at the drawing: in every step each device sends one message." } },
        { 3, "forward", "the outputs of each device's tokens, to the bit", 4, { try_layer, AT_VALUES, FORWARD },
          { "The norm works on each token alone; the products with A need all tokens, because A's columns are cut.",
            "The products with B are parts of sums for all tokens.  Who needs which of these sums?",
            "The sum of x and what comes out of B is made token by token, after the reduce." } },
        { 3, "forward-sent", "a gather and a reduce: the bytes of one all-reduce", 1, { try_layer, AT_SENT, FORWARD },
          { "An all-reduce is a reduce-scatter and an all-gather.  Here they are at different places." } },
        { 3, "forward-work", "norms of its own tokens, and of no others", 1, { try_layer, AT_WORK, FORWARD },
          { "Which of the two comes first, the norm or the gather?",
            "If tokens are gathered before the norm, all devices do the norms of all tokens, as in lesson 08." } },
        { 4, "backward", "the gradient of the inputs, to the bit", 4, { try_layer, AT_VALUES, BACKWARD },
          { "Forward: gather, A, B, reduce.  Backward, each step's opposite: gather dy, B, A, reduce.",
            "relu is between: dH is 0 where hidden is 0.",
            "x went two ways: through the norm, and past it.  dx is dy and what norm_backward finds." } },
        { 4, "weights", "the gradients of this device's weights, and of the norm", 4,
          { try_layer, AT_WEIGHTS, BACKWARD },
          { "dA = normed^T dH and dB = hidden^T dy, with all tokens.  Has this device all of them?",
            "norm_backward gives dw, the sum over this device's tokens.  What about the other tokens?" } },
        { 4, "step-sent", "the bytes of tensor parallelism, and the norm's weights", 2,
          { try_layer, AT_SENT, BACKWARD },
          { "sequence.h says what is kept from forward to backward, and what is gathered again.",
            "dw has D numbers, however many tokens there are." } },
        { 4, "step-memory", "what is gathered is released", 3, { try_layer, AT_MEMORY, BACKWARD },
          { "Only `normed` and `hidden` stay from forward to backward.  When is each of them used last?",
            "Release what is gathered before the next array of that size is allocated, or use it again." } },
    },
};
