/* check.c -- judges lesson 08.  The student writes tensor.c: cuts of matrices, and the forward and backward pass of
 * two matrices on W devices.  Everything is computed here for each device, added in the order of ranks, and
 * compared to the bit.  The variants LAYOUT and BIAS change who has which column, and where b is added.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 8, WIDTH = 12, HIDDEN = 24, MOST = WIDTH * HIDDEN };

/* Count the numbers of n that device d has: a block, or every W-th. */
static int64_t own_of(const struct judge *j, int64_t n, int W, int d)
{
    return judge_choice(j, "LAYOUT") == 1 ? (n - d + W - 1) / W : block_at(n, W, d).count;
}

/* Find the number of n that is device d's number k. */
static int64_t number(const struct judge *j, int64_t n, int W, int d, int64_t k)
{
    return judge_choice(j, "LAYOUT") == 1 ? d + k * W : block_at(n, W, d).first + k;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

enum cut { COLUMNS, ROWS, HEADS };

/* Cut a whole matrix.  Its shape says how many rows there are, each of n heads of some width.  Columns are heads of
 * width 1; rows are the heads of a single row.  Queries, keys and values are three rows for each token.  @return the
 * floats of the part. */
static int64_t cut(const struct judge *j, int W, int d, const int64_t shape[3], const float *whole, float *part)
{
    const int64_t times = shape[0], n = shape[1], width = shape[2], own = own_of(j, n, W, d);
    for (int64_t i = 0; i < times; i++)
        for (int64_t k = 0; k < own; k++)
            memcpy(part + (i * own + k) * width, whole + (i * n + number(j, n, W, d, k)) * width,
                   sizeof *part * (size_t)width);
    return times * own * width;
}

/* Every device cuts the same whole matrix, and each part is compared. */
static void try_cut(struct judge *j, enum cut what, const int64_t size[3])
{
    static const char *const names[] = { "cut_columns", "cut_rows", "cut_heads" };
    /* Each kind of cut sees a matrix as rows, heads and a head's width. */
    const int64_t shape[3][3] = { { size[0], size[1], 1 }, { 1, size[0], size[1] }, { 3 * size[0], size[1], size[2] } };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
        struct trial *r = trial_open(j, names[what], *W, what == HEADS ? "%lld rows, %lld heads of %lld" :
                                     "%lld rows, %lld columns", (long long)size[0], (long long)size[1],
                                     (long long)size[2]);
        float whole[3 * MOST], want[3 * MOST];
        const int64_t all = shape[what][0] * shape[what][1] * shape[what][2];
        judge_rough(j, whole, all);
        for (int d = 0; d < *W; d++) {
            trial_in(r, d, 0, whole, all);
            /* `want` only says how large the part is; it is made again for the comparison. */
            trial_out(r, d, 1, cut(j, *W, d, shape[what], whole, want));
            memcpy(r->device[d].number, size, sizeof *size * 3);
        }
        if (trial_call(r))
            for (int d = 0; d < *W && !j->failed; d++)
                trial_expect_floats(r, d, 1, want, cut(j, *W, d, shape[what], whole, want), "part");
        trial_close(r);
    }
}

/* Columns and rows of three shapes are cut, also fewer columns than devices. */
static void check_cut(struct judge *j)
{
    static const int64_t usual[3][3] = { { 3, 2 }, { 4, 16 }, { 5, 11 } };
    for (int i = 0; i < 3 && !j->failed; i++) {
        int64_t size[3] = { usual[i][0], usual[i][1], 0 };
        if (j->hidden) size[0] = judge_draw(j, 2, WIDTH), size[1] = judge_draw(j, 2, HIDDEN);
        try_cut(j, COLUMNS, size);
        if (!j->failed) try_cut(j, ROWS, size);
    }
}

/* Heads of queries, keys and values: a device needs the same heads of all three. */
static void check_heads(struct judge *j)
{
    static const int64_t usual[3][3] = { { 3, 8, 2 }, { 2, 6, 3 }, { 2, 1, 4 } };
    for (int i = 0; i < 3 && !j->failed; i++) {
        int64_t size[3] = { usual[i][0], usual[i][1], usual[i][2] };
        if (j->hidden) size[0] = judge_draw(j, 1, 8), size[1] = judge_draw(j, 2, 8), size[2] = judge_draw(j, 2, 4);
        try_cut(j, HEADS, size);
    }
}

/* ---- the pair of matrices ---------------------------------------------------------------------------------------- */

struct shape { int64_t T, D, F; };

/* These are the whole problem, and the results of one device that adds the parts in the order of ranks. */
static float A[MOST], a[HIDDEN], B[MOST], b[WIDTH], X[TOKENS * WIDTH], dY[TOKENS * WIDTH];
static float Y[TOKENS * WIDTH], dX[TOKENS * WIDTH];

/* Device d's parts of the matrices, and what it computes from them. */
static struct part {
    int64_t own;
    float A[MOST], a[HIDDEN], B[MOST], hidden[TOKENS * HIDDEN], dA[MOST], da[HIDDEN], dB[MOST], db[WIDTH];
} part[WORKER_MOST_DEVICES];

static struct shape shape(struct judge *j, int i)
{
    static const struct shape usual[] = { { 5, 6, 24 }, { 3, 4, 10 }, { 7, 5, 2 } };
    struct shape s = usual[i];
    if (j->hidden) s.T = judge_draw(j, 2, TOKENS), s.D = judge_draw(j, 2, WIDTH), s.F = judge_draw(j, 2, HIDDEN);
    return s;
}

/* Draw the whole matrices and cut them for each device. */
static void draw(struct judge *j, int W, const struct shape *s)
{
    judge_rough(j, A, s->D * s->F), judge_rough(j, a, s->F), judge_rough(j, B, s->F * s->D), judge_rough(j, b, s->D);
    judge_rough(j, X, s->T * s->D), judge_rough(j, dY, s->T * s->D);
    for (int d = 0; d < W; d++) {
        struct part *p = &part[d];
        p->own = own_of(j, s->F, W, d);
        cut(j, W, d, (const int64_t[]){ s->D, s->F, 1 }, A, p->A);
        cut(j, W, d, (const int64_t[]){ 1, s->F, 1 }, a, p->a);
        cut(j, W, d, (const int64_t[]){ 1, s->F, s->D }, B, p->B);
    }
}

/* Sums over devices in the order of ranks: the first is a copy. */
static void add_part(float *sum, const float *one, int64_t count, int d)
{
    for (int64_t i = 0; i < count; i++) sum[i] = d == 0 ? one[i] : sum[i] + one[i];
}

/* Y [T, D] = relu(X A + a) B + b: each device has some columns of A and the same rows of B. */
static void forward(const struct judge *j, int W, const struct shape *s)
{
    const bool before = judge_choice(j, "BIAS") == 1;
    float one[TOKENS * WIDTH];
    for (int d = 0; d < W; d++) {
        struct part *p = &part[d];
        /* hidden [T, own] = relu(X [T, D] A [D, own] + a): this device's columns. */
        judge_matrix_product(p->hidden, X, p->A, s->T, s->D, p->own, false, false);
        for (int64_t i = 0; i < s->T * p->own; i++) {
            p->hidden[i] += p->a[i % p->own];
            if (p->hidden[i] < 0) p->hidden[i] = 0;
        }
        /* one [T, D] = hidden B [own, D]: this device's partial sum of Y. */
        judge_matrix_product(one, p->hidden, p->B, s->T, p->own, s->D, false, false);
        /* With the variant BIAS the last device adds b before the sum. */
        for (int64_t i = 0; before && d == W - 1 && i < s->T * s->D; i++) one[i] += b[i % s->D];
        add_part(Y, one, s->T * s->D, d);
    }
    for (int64_t i = 0; !before && i < s->T * s->D; i++) Y[i] += b[i % s->D];
}

static void sums_of_columns(const float *x, int64_t rows, int64_t columns, float *sum)
{
    for (int64_t k = 0; k < columns; k++) {
        sum[k] = 0;
        for (int64_t i = 0; i < rows; i++) sum[k] += x[i * columns + k];
    }
}

/* dB = hidden^T dY; dH = dY B^T where hidden is positive; dA = X^T dH.  dX is the sum of dH A^T over devices. */
static void backward(int W, const struct shape *s)
{
    float one[TOKENS * WIDTH], dH[TOKENS * HIDDEN];
    for (int d = 0; d < W; d++) {
        struct part *p = &part[d];
        /* db [D] and dB [own, D] = hidden^T dY need no other device. */
        sums_of_columns(dY, s->T, s->D, p->db);
        judge_matrix_product(p->dB, p->hidden, dY, p->own, s->T, s->D, true, false);
        /* dH [T, own] = dY B^T, and 0 where relu was 0. */
        judge_matrix_product(dH, dY, p->B, s->T, s->D, p->own, false, true);
        for (int64_t i = 0; i < s->T * p->own; i++)
            if (!(p->hidden[i] > 0)) dH[i] = 0;
        /* da [own] is the sum of dH over tokens, dA [D, own] = X^T dH. */
        sums_of_columns(dH, s->T, p->own, p->da);
        judge_matrix_product(p->dA, X, dH, s->D, s->T, p->own, true, false);
        /* one [T, D] = dH A^T: this device's partial sum of dX. */
        judge_matrix_product(one, dH, p->A, s->T, p->own, s->D, false, true);
        add_part(dX, one, s->T * s->D, d);
    }
}

/* The results are made before the call, because they do not depend on it. */
static struct trial *prepare(struct judge *j, int W, const struct shape *s, bool back)
{
    struct trial *r = trial_open(j, back ? "mlp_backward" : "mlp_forward", W, "T = %lld, D = %lld, %lld hidden numbers",
                                 (long long)s->T, (long long)s->D, (long long)s->F);
    r->cluster.flop_rate[F32] = 1000000;        /* so an operation takes a picosecond */
    /* draw cuts A, a and B for each device before both passes use them. */
    draw(j, W, s);
    forward(j, W, s);
    if (back) backward(W, s);
    for (int d = 0; d < W; d++) {
        const struct part *p = &part[d];
        /* Buffers 0 to 4 are A, a, B, b and X, of which only b and X are the same on all devices. */
        trial_in(r, d, 0, p->A, s->D * p->own), trial_in(r, d, 1, p->a, p->own), trial_in(r, d, 2, p->B, p->own * s->D);
        trial_in(r, d, 3, b, s->D), trial_in(r, d, 4, X, s->T * s->D);
        r->device[d].number[0] = s->T, r->device[d].number[1] = s->D, r->device[d].number[2] = p->own;
        /* Forward gives the hidden numbers and Y. */
        if (!back) {
            trial_out(r, d, 5, s->T * p->own), trial_out(r, d, 6, s->T * s->D);
            continue;
        }
        /* Backward gets hidden and dY, and gives dX, dA, da, dB and db. */
        trial_in(r, d, 5, p->hidden, s->T * p->own), trial_in(r, d, 6, dY, s->T * s->D);
        trial_out(r, d, 7, s->T * s->D), trial_out(r, d, 8, s->D * p->own), trial_out(r, d, 9, p->own);
        trial_out(r, d, 10, p->own * s->D), trial_out(r, d, 11, s->D);
    }
    return r;
}

enum look { AT_VALUES, AT_WEIGHTS, AT_SENT, AT_MEMORY, AT_TIME };
enum what { FORWARD, BACKWARD };

/* A device without columns has empty buffers, and nothing is compared. */
static void expect_weights(struct judge *j, struct trial *r, int d, const struct shape *s)
{
    const struct part *p = &part[d];
    trial_expect_floats(r, d, 8, p->dA, s->D * p->own, "gradient of A");
    if (!j->failed) trial_expect_floats(r, d, 9, p->da, p->own, "gradient of a");
    if (!j->failed) trial_expect_floats(r, d, 10, p->dB, p->own * s->D, "gradient of B");
    if (!j->failed) trial_expect_floats(r, d, 11, p->db, s->D, "gradient of b");
}

/* One all-reduce of T D numbers, which sends 2 (W-1) 4 T D bytes on all devices together. */
static void expect_sent(struct judge *j, struct trial *r, const struct shape *s)
{
    const uint64_t sum = trial_bytes(r), want = 2 * 4 * (uint64_t)(s->T * s->D) * (uint64_t)(r->devices - 1);
    /* Each device must call one collective; bytes are compared for all devices together. */
    for (int d = 0; d < r->devices && !j->failed; d++)
        if (r->device[d].collectives != 1)
            trial_fails(r, "device %d calls collective operations %llu times; it should be once: an all_reduce", d,
                        (unsigned long long)r->device[d].collectives);
    if (!j->failed && sum != want)
        trial_fails(r, "all devices together send %llu bytes; it should be %llu: 2 (W-1) 4 T D",
                    (unsigned long long)sum, (unsigned long long)want);
}

/* Whether b is in Y as often as there are devices, and that is not nothing.  b belongs to the sum once. */
static bool has_bias_of_all(const struct trial *r, int d, const struct shape *s)
{
    const float *got = r->device[d].buffer[6].data;
    const double more = r->devices - 1;
    bool seen = false;
    for (int64_t i = 0; i < s->T * s->D; i++) {
        const double bound = 1e-4 * (1 + fabs((double)Y[i])), bias = more * b[i % s->D];
        if (!(fabs((double)got[i] - Y[i] - bias) <= bound)) return false;
        seen |= fabs(bias) > 10 * bound;
    }
    return seen;
}

/* The most likely mistake is named before numbers are compared. */
static void expect_outputs(struct trial *r, int d, const struct shape *s)
{
    if (has_bias_of_all(r, d, s))
        trial_fails(r, "device %d: b is in Y %d times, once from each device; it should be in the sum once", d,
                    r->devices);
    else trial_expect_floats(r, d, 6, Y, s->T * s->D, "Y");
}

/* Values are compared, then weights, bytes, memory or time. */
static void look_at(struct judge *j, struct trial *r, const struct shape *s, bool back, enum look look)
{
    const int64_t TD = s->T * s->D, own = s->F / r->devices;
    for (int d = 0; d < r->devices && !j->failed; d++) {
        if (!back) trial_expect_floats(r, d, 5, part[d].hidden, s->T * part[d].own, "hidden");
        if (!j->failed && back) trial_expect_floats(r, d, 7, dX, TD, "dX");
        else if (!j->failed) expect_outputs(r, d, s);
        if (look == AT_WEIGHTS && !j->failed) expect_weights(j, r, d, s);
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, back ? 4 * (uint64_t)(s->T * part[d].own) : 0,
                              back ? "4 T times its hidden numbers" : "everything has its place");
    }
    if (look == AT_SENT && !j->failed) expect_sent(j, r, s);
    /* A product of T, k, n numbers takes 2 T k n operations, of a picosecond each. */
    if (look == AT_TIME && !j->failed)
        trial_expect_time(r, (back ? 4 : 2) * 2 * TD * own + trial_all_reduce_time(r, TD),
                          back ? "four products with F/W hidden numbers, and an all_reduce"
                               : "two products with F/W hidden numbers, and an all_reduce");
}

static void try_mlp(struct judge *j)
{
    const enum look look = j->check->look;
    const bool back = j->check->what == BACKWARD;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look <= AT_WEIGHTS ? 3 : 1) && !j->failed; i++) {
            struct shape s = shape(j, i);
            if (look == AT_TIME) s.T = *W, s.F = 3 * *W;        /* equal parts, which devices end at the same time */
            struct trial *r = prepare(j, *W, &s, back);
            if (trial_call(r)) look_at(j, r, &s, back, look);
            trial_close(r);
        }
}

static const char *const functions[] = { "cut_columns", "cut_rows", "cut_heads", "mlp_forward", "mlp_backward", NULL };

extern const struct lesson lesson_08_tensor;
const struct lesson lesson_08_tensor = {
    .folder = "08_tensor", .title = "Tensor parallelism: a layer on several devices", .file = "tensor.c",
    .functions = functions,
    .vary = { { "LAYOUT", 2 }, { "BIAS", 2 } },
    .check = {
        { 1, "cut", "each device's columns and rows of a matrix", 3, { check_cut },
          { "How far apart in memory are two numbers of the same column?  And the first numbers of two rows of the "
            "part?",
            "whole[i * columns + c] is in row i, column c.  The part has as many rows, each of `own` numbers.",
            "Its column k is which column of the whole matrix?  tensor.h says how columns are shared." } },
        { 1, "heads", "each device's heads of queries, keys and values", 3, { check_heads },
          { "Device 0's first third of these columns would be queries of all heads, and no keys.",
            "In a row of 3 * heads * width numbers, head h of the keys begins at (heads + h) * width.",
            "Queries, keys and values of a row are three short rows of `heads` heads: cut each of them." } },
        { 2, "forward", "the outputs, the same bits on all devices", 4, { try_mlp, AT_VALUES, FORWARD },
          { "Two hidden numbers of a token never meet before B.  What of Y can a device compute with its own?",
            "Its products with its rows of B have the right shape, T rows of D, but some of the summands are missing.",
            "relu comes before the sum: relu(x) + relu(y) is not relu(x + y).  So sum after B, not after A.",
            "b is not cut.  How often is it in the sum, if every device adds it?" },
          { [1] = FITS(MISSING) } },
        { 2, "forward-sent", "one all-reduce", 2, { try_mlp, AT_SENT, FORWARD },
          { "Between A and B nothing is sent: a device's columns of A are its rows of B." } },
        { 2, "forward-memory", "nothing is allocated", 1, { try_mlp, AT_MEMORY, FORWARD },
          { "hidden and Y have room for what you compute; the all_reduce takes place in Y." } },
        { 2, "forward-time", "a W-th of the time of one device, and an all-reduce", 2, { try_mlp, AT_TIME, FORWARD },
          { "Does a device compute with its own columns only?  A product of T, k, n numbers takes 2 T k n.",
            "Biases and relu in loops of your own take no time here." } },
        { 3, "backward", "the gradient of the inputs, the same bits on all devices", 4,
          { try_mlp, AT_VALUES, BACKWARD },
          { "X went to all devices, each has used it: its gradient is the sum of what they say.",
            "dH = dY B^T, with this device's rows of B; 0 where relu was 0; dX = dH A^T.",
            "matrix_product(dX, dH, A, T, own, D, TRANSPOSE_B): A is stored with D rows of `own` numbers." } },
        { 3, "weights", "the gradients of this device's weights", 3, { try_mlp, AT_WEIGHTS, BACKWARD },
          { "The gradient of B is hidden^T dY, that of A is X^T dH; each has the shape of what it belongs to.",
            "dY and X are the same on all devices: are these gradients parts of a sum?",
            "b is on all devices, and dY as well, so all find its gradient.  Adding these W would be wrong." },
          { [0] = FITS(TRANSPOSED), [2] = FITS(TOO_LARGE) } },
        { 3, "backward-sent", "one all-reduce", 2, { try_mlp, AT_SENT, BACKWARD },
          { "Weight gradients belong to one device each, and b's is everywhere without a message: only dX is sent." } },
        { 3, "backward-memory", "memory for the hidden numbers' gradient", 1, { try_mlp, AT_MEMORY, BACKWARD },
          { "dH has T rows of `own` numbers.  Everything else has its place." } },
        { 3, "backward-time", "four products, and an all-reduce", 1, { try_mlp, AT_TIME, BACKWARD },
          { "There are two products for each matrix: one for its gradient, one for that of its inputs." } },
    },
};
