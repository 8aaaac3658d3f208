/* check.c -- judges lesson 13.  The student writes experts.c: a router, a plan of rows, and both passes of experts
 * on W devices.  Rows travel by all_to_all; results are compared to the bit.  The variants TIE, WEIGHTS and DROP
 * change the choice between equal logits, the weights, and which choices are dropped.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { DEVICES = 8, EXPERTS = 12, TOKENS = 10, CHOICES = 3, WIDTH = 6, ROWS = TOKENS * CHOICES, MOST = DEVICES * ROWS };

/* Whole numbers are compared one by one. */
static bool expect_whole(struct trial *r, int d, int i, const int64_t *want, int64_t count, const char *what)
{
    const int64_t *got = r->device[d].buffer[i].data;
    for (int64_t e = 0; e < count; e++)
        if (got[e] != want[e])
            return trial_fails(r, "device %d: %s[%lld] is %lld and should be %lld", d, what, (long long)e,
                               (long long)got[e],
                               (long long)want[e]);
    return true;
}

/* ---- the router -------------------------------------------------------------------------------------------------- */

/* A router has T tokens, E experts and k choices; `large` logits overflow exp. */
struct router { int64_t T; int E, k; bool large; };

/* The variant TIE decides between equal logits. */
static bool comes_before(const struct judge *j, const float *x, int a, int b)
{
    if (x[a] != x[b]) return x[a] > x[b];
    return judge_choice(j, "TIE") == 1 ? a > b : a < b;
}

/* Choose the k largest logits of a token.  An expert's place is the number of those before it. */
static void choose(const struct judge *j, const float *x, const struct router *s, int64_t *choice, double *weight)
{
    double sum = 0;
    for (int e = 0; e < s->E; e++) {
        int place = 0;
        for (int other = 0; other < s->E; other++) place += other != e && comes_before(j, x, other, e);
        if (place < s->k) choice[place] = e;
    }
    for (int e = 0; e < s->E; e++) {
        bool chosen = false;
        for (int i = 0; i < s->k; i++) chosen |= choice[i] == e;
        /* The variant WEIGHTS divides by the sum over all experts, or over the chosen ones. */
        if (chosen || judge_choice(j, "WEIGHTS") == 1) sum += exp((double)x[e] - (double)x[choice[0]]);
    }
    for (int i = 0; i < s->k; i++) weight[i] = exp((double)x[choice[i]] - (double)x[choice[0]]) / sum;
}

/* Logits are eighths of a few whole numbers: some are equal, and differences are exact. */
static void try_router(struct judge *j, const struct router *s, bool weights)
{
    struct trial *r = trial_open(j, "route", 1, "%lld tokens, E = %d, k = %d%s", (long long)s->T, s->E, s->k,
                                 s->large ? ", logits of thousands" : "");
    float *x = trial_buffer(r, 0, 0, sizeof *x * (uint64_t)(s->T * s->E), BUFFER_IN);
    int64_t choice[ROWS];
    double weight[ROWS], bound[ROWS];
    for (int64_t i = 0; i < s->T * s->E; i++) x[i] = (float)judge_draw(j, -8, 8) / 8 + (s->large ? 3000 : 0);
    for (int64_t t = 0; t < s->T; t++) choose(j, x + t * s->E, s, choice + t * s->k, weight + t * s->k);
    /* Weights may be off by expf's 2 units.  The sum of E exponentials is rounded, and so is the quotient. */
    for (int64_t i = 0; i < s->T * s->k; i++) bound[i] = (s->E + 6) * 0x1p-24 * weight[i];
    trial_buffer(r, 0, 1, sizeof *choice * (uint64_t)(s->T * s->k), BUFFER_OUT);
    trial_buffer(r, 0, 2, sizeof *x * (uint64_t)(s->T * s->k), BUFFER_OUT);
    r->device[0].number[0] = s->T, r->device[0].number[1] = s->E, r->device[0].number[2] = s->k;
    if (trial_call(r) && expect_whole(r, 0, 1, choice, s->T * s->k, "choice") && weights)
        trial_expect_near(r, 0, 2, weight, bound, s->T * s->k, "weight");
    trial_close(r);
}

enum look { AT_VALUES, AT_WEIGHTS, AT_SENT, AT_MEMORY };

/* Routers have few and many experts, one expert, and as many choices as experts. */
static void try_routers(struct judge *j)
{
    static const struct router usual[] = {
        { 10, 8, 2, false }, { 5, 12, 3, true }, { 4, 1, 1, false }, { 6, 3, 3, false },
    };
    for (int i = 0; i < 4 && !j->failed; i++) {
        struct router s = usual[i];
        if (j->hidden) s.T = judge_draw(j, 1, TOKENS), s.E = (int)judge_draw(j, s.k, EXPERTS);
        try_router(j, &s, j->check->look == AT_WEIGHTS);
    }
}

/* ---- trips of all devices ---------------------------------------------------------------------------------------- */

/* A shape has E experts, k choices of each token, and width D.  crowded: most tokens choose the same expert. */
struct shape { int E, k, D; int64_t capacity; bool crowded; };  /* crowded: most choices are the same expert */

/* These are a device's choices, the rows that leave it for each expert, and the rows that come. */
static struct way { int64_t T, choice[ROWS], send[EXPERTS], row[ROWS], come[DEVICES * EXPERTS]; } way[DEVICES];

/* A device has these experts. */
static struct interval own_of(const struct shape *s, int W, int d) { return block_at(s->E, W, d); }

/* Each token chooses k different experts; device 1 has no tokens at all. */
static void draw_choices(struct judge *j, int W, const struct shape *s)
{
    for (int d = 0; d < W; d++) {
        struct way *w = &way[d];
        w->T = d == 1 ? 0 : judge_draw(j, 1, TOKENS);
        for (int64_t t = 0; t < w->T; t++)
            for (int i = 0; i < s->k; i++)
                for (bool again = true; again;) {
                    int64_t *c = &w->choice[t * s->k + i];
                    *c = s->crowded && i == 0 ? s->E / 2 : judge_draw(j, 0, s->E - 1);
                    again = false;
                    for (int b = 0; b < i; b++) again |= c[-1 - b] == *c;
                }
    }
}

/* Plan all devices' trips: rows in order of experts, then how many rows come from each device.  Choices above the
 * capacity have the row -1. */
static void plan(const struct judge *j, int W, const struct shape *s)
{
    for (int d = 0; d < W; d++) {
        struct way *w = &way[d];
        const int64_t n = w->T * s->k;
        int64_t start = 0;
        for (int e = 0; e < s->E; start += w->send[e], e++) {
            w->send[e] = 0;
            for (int64_t a = 0; a < n; a++) {
                /* The variant DROP drops the last choices, or the first. */
                const int64_t i = judge_choice(j, "DROP") == 1 ? n - 1 - a : a;
                if (w->choice[i] != e) continue;
                const bool full = s->capacity > 0 && w->send[e] == s->capacity;
                w->row[i] = full ? -1 : start + w->send[e]++;
            }
        }
        for (int to = 0; to < W; to++) {
            const struct interval own = own_of(s, W, to);
            for (int64_t e = 0; e < own.count; e++) way[to].come[d * own.count + e] = w->send[own.first + e];
        }
    }
}

/* Count the rows that leave a device for the devices from .. until - 1. */
static int64_t rows_to(const struct shape *s, int W, int d, int from, int until)
{
    int64_t sum = 0;
    for (int to = from; to < until; to++)
        for (int64_t e = 0; e < own_of(s, W, to).count; e++) sum += way[d].send[own_of(s, W, to).first + e];
    return sum;
}

/* Count the rows that come to a device from all devices. */
static int64_t rows_come(const struct shape *s, int W, int d)
{
    int64_t sum = 0;
    for (int from = 0; from < W; from++) sum += rows_to(s, W, from, d, d + 1);
    return sum;
}

enum what { FORWARD = 0, BACKWARD = 1, DROPPING = 2 };          /* which pass; with a capacity of two rows or none */

/* Shapes have few and many experts; a capacity is drawn for hidden inputs. */
static struct shape shape(struct judge *j, int i)
{
    const int64_t capacity = j->check->what & DROPPING ? 2 : 0;
    static const struct shape usual[] = {
        { .E = 8, .k = 2, .D = 4 }, { .E = 11, .k = 3, .D = 3 }, { .E = 5, .k = 2, .D = 5, .crowded = true },
        { .E = 3, .k = 1, .D = 2 },
    };
    struct shape s = usual[i];
    s.capacity = capacity;
    if (j->hidden && capacity) s.capacity = judge_draw(j, 1, 4);
    if (j->hidden) s.E = (int)judge_draw(j, s.k, EXPERTS), s.D = (int)judge_draw(j, 2, WIDTH);
    return s;
}

/* plan_trip's three lists, and with `sent` the bytes of its one all_to_all. */
static bool expect_plan(struct trial *r, int d, const struct shape *s, bool sent)
{
    const int64_t own = own_of(s, r->devices, d).count;
    const struct trial_device *v = &r->device[d];
    if (!expect_whole(r, d, 1, way[d].send, s->E, "send") ||
        !expect_whole(r, d, 2, way[d].row, way[d].T * s->k, "row") ||
        !expect_whole(r, d, 3, way[d].come, r->devices * own, "come")) return false;
    if (!sent) return true;
    if (!trial_expect_collectives(r, d, 1, "")) return false;
    return v->bytes == 4 * (uint64_t)(s->E - own) ||
           trial_fails(r, "device %d sent %llu bytes; it should be %llu: 4 for each expert of others", d,
                       (unsigned long long)v->bytes, 4 * (unsigned long long)(s->E - own));
}

/* Plans are tried with and without a capacity, on all numbers of devices. */
static void try_plan(struct judge *j)
{
    const bool sent = j->check->look == AT_SENT;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (sent ? 1 : 4) && !j->failed; i++) {
            const struct shape s = shape(j, sent ? i : (i + 3) % 4);         /* 3 experts first */
            struct trial *r = trial_open(j, "plan_trip", *W, "E = %d, k = %d%s", s.E, s.k,
                                         s.capacity ? ", with a capacity" : "");
            draw_choices(j, *W, &s);
            plan(j, *W, &s);
            for (int d = 0; d < *W; d++) {
                const uint64_t n = (uint64_t)(way[d].T * s.k), word = sizeof(int64_t);
                /* Buffer 1 gets the rows to send to each expert, 2 each choice's row, 3 the rows that come. */
                trial_copy(r, d, 0, way[d].choice, word * n, BUFFER_IN);
                trial_buffer(r, d, 1, word * (uint64_t)s.E, BUFFER_OUT), trial_buffer(r, d, 2, word * n, BUFFER_OUT);
                trial_buffer(r, d, 3, word * (uint64_t)(*W * own_of(&s, *W, d).count), BUFFER_OUT);
                r->device[d].number[0] = s.E, r->device[d].number[1] = (int64_t)n, r->device[d].number[2] = s.capacity;
            }
            if (trial_call(r))
                for (int d = 0; d < *W && !j->failed; d++) expect_plan(r, d, &s, sent);
            trial_close(r);
        }
}

/* ---- both passes, on one device ---------------------------------------------------------------------------------- */

static float M[EXPERTS][WIDTH * WIDTH], dM[EXPERTS][WIDTH * WIDTH];

static struct tokens {
    float x[TOKENS * WIDTH], y[TOKENS * WIDTH], dy[TOKENS * WIDTH], dx[TOKENS * WIDTH], weight[ROWS], dweight[ROWS];
} tokens[DEVICES];

/* Follow choice i of a device, which is not dropped: its expert's result and gradients, and what it adds to dx,
 * dweight and dM. */
static void go(int d, int64_t i, const struct shape *s)
{
    struct tokens *t = &tokens[d];
    const int D = s->D;
    const int64_t e = way[d].choice[i], place = i / s->k * D;
    float result[WIDTH], back[WIDTH], scaled[WIDTH];
    /* result [1, D] = x [1, D] M_e [D, D]. */
    judge_matrix_product(result, t->x + place, M[e], 1, D, D, false, false);
    for (int a = 0; a < D; a++) {
        t->y[place + a] += judge_times(t->weight[i], result[a]);
        t->dweight[i] += judge_times(t->dy[place + a], result[a]);
        scaled[a] = t->weight[i] * t->dy[place + a];
    }
    /* back [1, D] = (weight dy) M_e^T is the gradient of x. */
    judge_matrix_product(back, scaled, M[e], 1, D, D, false, true);
    for (int a = 0; a < D; a++) t->dx[place + a] += back[a];
}

/* dM of expert e: rows of all devices in turn, in the order in which they leave. */
static void sum_weight_gradient(int W, int e, const struct shape *s)
{
    memset(dM[e], 0, sizeof dM[e]);
    /* row < rows: the expert's rows of this device come in their planned order. */
    for (int d = 0; d < W; d++)
        for (int64_t row = 0; row < rows_to(s, W, d, 0, W); row++)
            for (int64_t i = 0; i < way[d].T * s->k; i++) {
                if (way[d].choice[i] != e || way[d].row[i] != row) continue;
                const struct tokens *t = &tokens[d];
                const int64_t place = i / s->k * s->D;
                for (int a = 0; a < s->D * s->D; a++) {
                    const volatile float out = t->weight[i] * t->dy[place + a % s->D];
                    dM[e][a] += judge_times(t->x[place + a / s->D], out);
                }
            }
}

/* Draw experts and tokens, and compute both passes as one device would. */
static void compute(struct judge *j, int W, const struct shape *s)
{
    for (int e = 0; e < s->E; e++) judge_rough(j, M[e], s->D * s->D);
    for (int d = 0; d < W; d++) {
        struct tokens *t = &tokens[d];
        memset(t, 0, sizeof *t);
        judge_rough(j, t->x, way[d].T * s->D), judge_rough(j, t->dy, way[d].T * s->D);
        judge_rough(j, t->weight, way[d].T * s->k);
        for (int64_t i = 0; i < way[d].T * s->k; i++)
            if (way[d].row[i] >= 0) go(d, i, s);
    }
    for (int e = 0; e < s->E; e++) sum_weight_gradient(W, e, s);
}

/* Copy the matrices of a device's experts, one after another.  @return how many numbers these are. */
static int64_t gather(const struct shape *s, int W, int d, float (*from)[WIDTH * WIDTH], float *to)
{
    const struct interval own = own_of(s, W, d);
    const int64_t each = s->D * s->D;
    for (int64_t e = 0; e < own.count; e++) memcpy(to + e * each, from[own.first + e], sizeof *to * (size_t)each);
    return own.count * each;
}

/* Fill the buffers of one call of experts_forward or experts_backward. */
static struct trial *prepare(struct judge *j, int W, const struct shape *s, bool back)
{
    struct trial *r = trial_open(j, back ? "experts_backward" : "experts_forward", W, "E = %d, k = %d, D = %d%s",
                                 s->E, s->k,
                                 s->D, s->capacity ? ", some dropped" : "");
    draw_choices(j, W, s);
    plan(j, W, s);
    compute(j, W, s);
    for (int d = 0; d < W; d++) {
        const struct way *w = &way[d];
        const struct tokens *t = &tokens[d];
        float own[EXPERTS * WIDTH * WIDTH];
        const uint64_t word = sizeof(int64_t);
        const int64_t n = w->T * s->k, all = w->T * s->D, matrices = gather(s, W, d, M, own);
        trial_in(r, d, 0, own, matrices), trial_copy(r, d, 1, w->send, word * (uint64_t)s->E, BUFFER_IN);
        trial_copy(r, d, 2, w->row, word * (uint64_t)n, BUFFER_IN);
        trial_copy(r, d, 3, w->come, word * (uint64_t)(W * own_of(s, W, d).count), BUFFER_IN);
        trial_in(r, d, 4, t->x, all), trial_in(r, d, 5, t->weight, n), trial_out(r, d, 6, all);
        r->device[d].number[0] = s->E, r->device[d].number[1] = s->k, r->device[d].number[2] = w->T;
        r->device[d].number[3] = s->D;
        /* Only the backward pass has more buffers. */
        if (!back) continue;
        trial_in(r, d, 7, t->dy, all), trial_out(r, d, 8, all), trial_out(r, d, 9, n), trial_out(r, d, 10, matrices);
    }
    return r;
}

/* A row that leaves counts once there and once back; rows that stay send nothing. */
static void expect_sent(struct trial *r, int d, const struct shape *s, bool back)
{
    const int W = r->devices;
    const int64_t here = rows_to(s, W, d, d, d + 1), away = rows_to(s, W, d, 0, W) + rows_come(s, W, d) - 2 * here;
    const uint64_t calls = back ? 4 : 2, bytes = calls / 2 * 4 * (uint64_t)(away * s->D);
    const struct trial_device *v = &r->device[d];
    if (trial_expect_collectives(r, d, calls, back ? " in both passes" : "") && v->bytes != bytes)
        trial_fails(r, "device %d sent %llu bytes; it should be %llu: 4 D for each row that leaves for another "
                    "device, and for each that came from one%s", d, (unsigned long long)v->bytes,
                    (unsigned long long)bytes,
                    back ? ", in both passes" : "");
}

/* y is compared first, then dx, the gradients of weights and experts, bytes, or memory. */
static void look_at(struct judge *j, struct trial *r, const struct shape *s, bool back, enum look look)
{
    const int W = r->devices;
    for (int d = 0; d < W && !j->failed; d++) {
        const struct tokens *t = &tokens[d];
        float own[EXPERTS * WIDTH * WIDTH];
        const int64_t n = way[d].T * s->D;
        /* Buffers 6 and 8 are y and dx [T, D]; 9 and 10 the gradients of weights and experts. */
        trial_expect_floats(r, d, 6, t->y, n, "y");
        if (back && !j->failed) trial_expect_floats(r, d, 8, t->dx, n, "dx");
        if (look == AT_WEIGHTS && !j->failed) trial_expect_floats(r, d, 9, t->dweight, way[d].T * s->k, "dweight");
        if (look == AT_WEIGHTS && !j->failed) trial_expect_floats(r, d, 10, own, gather(s, W, d, dM, own), "dM");
        if (look == AT_SENT && !j->failed) expect_sent(r, d, s, back);
        /* Rows that come and the experts' results are R rows each; results that come home are L rows. */
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)((rows_to(s, W, d, 0, W) + 2 * rows_come(s, W, d)) * s->D),
                              "(L + 2 R) D");
    }
}

/* With a capacity some choices are dropped, and their rows are not sent. */
static void try_experts(struct judge *j)
{
    const enum look look = j->check->look;
    const bool back = j->check->what & BACKWARD;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look <= AT_WEIGHTS ? 4 : 1) && !j->failed; i++) {
            const struct shape s = shape(j, i);
            struct trial *r = prepare(j, *W, &s, back);
            if (trial_call(r)) look_at(j, r, &s, back, look);
            trial_close(r);
        }
}

static const char *const functions[] = { "route", "plan_trip", "experts_forward", "experts_backward", NULL };

extern const struct lesson lesson_13_experts;
const struct lesson lesson_13_experts = {
    .folder = "13_experts", .title = "Experts: tokens that travel", .file = "experts.c", .functions = functions,
    .vary = { { "TIE", 2 }, { "WEIGHTS", 2 }, { "DROP", 2 } },
    .check = {
        { 1, "route", "each token's experts", 3, { try_routers, AT_VALUES },
          { "k times: which expert has the largest logit of those that are not chosen yet?",
            "Two logits can be equal: experts.h says which of the two comes first." } },
        { 1, "weight", "the weights of the choices", 2, { try_routers, AT_WEIGHTS },
          { "exp(3000) is infinite.  Which number can you subtract from all logits of a token?",
            "experts.h says over which experts the sum of exp goes." } },
        { 2, "plan", "which rows go where, and how many come", 4, { try_plan, AT_VALUES },
          { "Count first: how many choices has each expert?  Its rows begin where those of the experts before it end.",
            "A device cannot know what others send: counts are sent before the rows.",
            "all_to_all: block d of `in` goes to device d, here a number for each of its experts.  All devices take "
            "as many numbers from each other as they have experts.",
            "all_to_all moves floats: put the counts into floats, and take them out again." } },
        { 2, "capacity", "no expert gets too many rows", 3, { try_plan, AT_VALUES, DROPPING },
          { "A dropped choice has row -1, and is not counted in `send`.",
            "Rows of later experts move up: their places are known only after the drops." } },
        { 2, "plan-sent", "a number for each expert", 1, { try_plan, AT_SENT },
          { "One all_to_all tells everybody what it needs to know, and no more." } },
        { 3, "forward", "results at home, to the bit", 5, { try_experts, AT_VALUES, FORWARD },
          { "Choice i is a copy of token i / k, at place row[i] of what leaves.",
            "give[d] is D times the rows for all experts of device d; take[d] D times what device d sends to yours.",
            "What came lies device by device, and of each device expert by expert: come[] says how many rows each "
            "time.",
            "Results go back by the same counts, exchanged: they arrive in the order in which the rows left." } },
        { 3, "dropped", "the same, with dropped choices", 2, { try_experts, AT_VALUES, FORWARD | DROPPING },
          { "A dropped choice adds nothing.  A token can lose all of its choices." } },
        { 3, "forward-sent", "two all-to-alls, of rows and nothing else", 2, { try_experts, AT_SENT, FORWARD },
          { "A row leaves for each choice that is not dropped; nothing is padded." } },
        { 4, "backward", "the gradient of the tokens, to the bit", 4, { try_experts, AT_VALUES, BACKWARD },
          { "The result of choice i has the gradient weight[i] * dy: these rows travel as the tokens did.",
            "An expert that made row M of a row gives back gradient M^T.",
            "dx of a token is the sum of what comes back for its choices." } },
        { 4, "weights", "the gradients of weights and of experts", 4, { try_experts, AT_WEIGHTS, BACKWARD | DROPPING },
          { "y has weight times result: what is its slope with respect to the weight?  forward has kept the results.",
            "dM of an expert is rows^T gradients: add up device after device with ADD, beginning with zeros.",
            "An expert without rows has a gradient, too: zeros." } },
        { 4, "step-sent", "four all-to-alls", 2, { try_experts, AT_SENT, BACKWARD },
          { "Gradients there, gradients back.  Rows and results were kept: nothing of forward is sent again." } },
        { 4, "step-memory", "few rows are allocated", 2, { try_experts, AT_MEMORY, BACKWARD },
          { "When the rows have arrived, their place at home is free: for the results.",
            "When dweight is computed, the results' place is free; when an expert's dM is, its rows' place is." } },
    },
};
