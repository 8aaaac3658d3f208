/* check.c -- judges lesson 07.  The student writes zero.c: zero_memory, zero1_step and zero3_step.  The whole model
 * is trained here on one device, with the same roundings.  Every block is compared to the bit, and bytes of all
 * devices together with the paper's.  emulated_devices/course/judge.c runs each check in a process of its own; a
 * failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { MOST = 1200, LAYERS = 4, STEPS = 3 };
static const float rate = 0.3f, beta = 0.7f;

/* These are the whole model, before a step and after it, and what each device learns from. */
static float weights[MOST], v[MOST], target[WORKER_MOST_DEVICES][MOST];

static void draw(struct judge *j, int W, int64_t n)
{
    judge_rough(j, weights, n);
    judge_rough(j, v, n);
    for (int d = 0; d < W; d++) judge_rough(j, target[d], n);
}

/* Step one number with the mean of all devices' gradients, each with `error` added.  Every product and sum is
 * rounded, as in the student's program.  by: what their sum is divided by; W is right. */
static void step_alone(const struct judge *j, int W, int by, int64_t k, float error)
{
    float sum = weights[k] - target[0][k];
    sum += error;
    for (int d = 1; d < W; d++) {
        float one = weights[k] - target[d][k];
        one += error;
        sum += one;
    }
    const float mean = sum / (float)by;
    /* v = beta v + mean, or with MOMENTUM v = beta v + (1 - beta) mean. */
    const volatile float old = beta * v[k], new = judge_choice(j, "MOMENTUM") == 1 ? (1 - beta) * mean : mean;
    v[k] = old + new;
    const volatile float moved = rate * v[k];
    weights[k] -= moved;
}

/* All steps of all numbers, as one device would do them. */
static void train_alone(const struct judge *j, int W, int by, int64_t n, int steps)
{
    for (int s = 0; s < steps; s++)
        for (int64_t k = 0; k < n; k++) step_alone(j, W, by, k, 0);
}

/* A student reads this of weights that were moved by the sum of the gradients, or by a step too few. */
static const char summed[] = "the gradient is W times too large, the sum of all devices' where the mean is asked for";
static const char stale[] = "these are the weights of the step before, without the last one";
static float start[MOST], start_v[MOST], by_sum[MOST], by_less[MOST];

/* Go back to the model before the call, or keep it. */
static void keep_start(void) { memcpy(start, weights, sizeof start), memcpy(start_v, v, sizeof start_v); }
static void back_to_start(void) { memcpy(weights, start, sizeof start), memcpy(v, start_v, sizeof start_v); }

/* Compare what all devices send together: each collective operation sends all blocks but a device's own. */
static void expect_together(struct trial *r, uint64_t bytes, const char *formula)
{
    const uint64_t sum = trial_bytes(r);
    if (sum != bytes)
        trial_fails(r, "all devices together send %llu bytes; it should be %llu (%s)", (unsigned long long)sum,
                    (unsigned long long)bytes, formula);
}

/* A collective more or fewer is another algorithm, even if the bytes agree. */
static bool expect_calls(struct trial *r, int calls, const char *which)
{
    for (int d = 0; d < r->devices; d++)
        if (r->device[d].collectives != (uint64_t)calls)
            return trial_fails(r, "device %d calls collective operations %llu times; it should be %d times: %s", d,
                               (unsigned long long)r->device[d].collectives, calls, which);
    return true;
}

/* Set the arguments that both step functions take. */
static void set(struct trial *r, int d, int64_t first, int64_t second)
{
    r->device[d].number[0] = first, r->device[d].number[1] = second;
    r->device[d].given[0] = rate, r->device[d].given[1] = beta;
}

enum look { AT_ORDER, AT_VALUES, AT_SENT, AT_MEMORY };   /* AT_ORDER: one step, and in which order of layers */

/* ---- the table of the paper -------------------------------------------------------------------------------------- */

/* zero_memory is a formula: 16 bytes for a parameter, of which each stage shares a further part. */
static void check_memory(struct judge *j)
{
    static const struct { double parameters; int W; } usual[] = {
        { 7.5e9, 1 }, { 7.5e9, 4 }, { 7.5e9, 64 }, { 128e9, 16 }, { 1e12, 1024 }, { 1000, 3 },
    };
    for (int i = 0; i < 6; i++)
        for (int stage = 0; stage < 4 && !j->failed; stage++) {
            const double n = j->hidden ? (double)judge_draw(j, 1, 1000000) : usual[i].parameters;
            const int W = j->hidden ? (int)judge_draw(j, 2, 100) : usual[i].W;
            /* Bytes that are not shared: in stage 1 weights and gradients, in stage 2 weights. */
            const double whole = stage == 0 ? 16 : stage == 1 ? 4 : stage == 2 ? 2 : 0;
            const double want = n * (whole + (16 - whole) / W);
            struct trial *r = trial_open(j, "zero_memory", 1, "%g parameters, W = %d, stage %d", n, W, stage);
            r->device[0].given[0] = n, r->device[0].number[0] = W, r->device[0].number[1] = stage;
            if (trial_call(r) && !(fabs(r->device[0].real - want) <= 1e-12 * want))
                trial_fails(r, "it returns %.12g; it should be %.12g bytes", r->device[0].real, want);
            trial_close(r);
        }
}

/* ---- ZeRO-1 ------------------------------------------------------------------------------------------------------ */

/* The model is stepped here only now, when the student's call has read the old weights. */
static void look_at_first(struct judge *j, struct trial *r, int64_t n, enum look look)
{
    const int steps = (int)r->device[0].number[1], W = r->devices;
    keep_start();
    train_alone(j, W, 1, n, steps);
    memcpy(by_sum, weights, sizeof by_sum), back_to_start();
    train_alone(j, W, W, n, steps - 1);
    memcpy(by_less, weights, sizeof by_less), back_to_start();
    train_alone(j, W, W, n, steps);
    if (W > 1) trial_suspect(r, 0, by_sum, n, MISTAKE_TOO_LARGE, summed);
    if (steps > 1) trial_suspect(r, 0, by_less, n, MISTAKE_STALE, stale);
    for (int d = 0; d < r->devices && !j->failed; d++) {
        /* Each device has all weights, but only its own block of v. */
        const struct interval own = block_at(n, r->devices, d);
        trial_expect_floats(r, d, 0, weights, n, "weights");
        if (!j->failed) trial_expect_floats(r, d, 3, v + own.first, own.count, "v");
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)block_at(n, r->devices, 0).count, "4 ceil(n/W)");
    }
    /* Both operations together send as much as one all-reduce. */
    if (look != AT_SENT || j->failed) return;
    if (expect_calls(r, 2, "a reduce_scatter and an all_gather"))
        expect_together(r, 2 * 4 * (uint64_t)n * (uint64_t)(r->devices - 1), "2 (W-1) 4 n, as an all-reduce");
}

/* Values are tried with the shortest first, and one step; bytes and memory with a long one. */
static void try_first(struct judge *j)
{
    const enum look look = j->check->look;
    enum { TRIES = 4 };
    static const struct { int64_t n; int steps; } usual[TRIES] = { { 5, 1 }, { 1, STEPS }, { 5, STEPS },
                                                                   { 1003, STEPS } };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = look == AT_VALUES ? 0 : TRIES - 1; i < TRIES && !j->failed; i++) {
            const int64_t n = j->hidden ? judge_draw(j, 1, MOST) : usual[i].n;
            const int steps = look == AT_VALUES ? usual[i].steps : 1;
            struct trial *r = trial_open(j, "zero1_step", *W, "n = %lld, %d step%s", (long long)n, steps,
                                         steps == 1 ? "" : "s");
            memset(weights, 0, sizeof weights), memset(v, 0, sizeof v);
            draw(j, *W, n);
            /* Weights and v go in and come out, v as this device's block; buffer 2 is room for the gradient. */
            for (int d = 0; d < *W; d++) {
                const struct interval own = block_at(n, *W, d);
                trial_both(r, d, 0, weights, n);
                trial_in(r, d, 1, target[d], n);
                trial_out(r, d, 2, n);
                trial_both(r, d, 3, v + own.first, own.count);
                set(r, d, n, steps);
            }
            if (trial_call(r)) look_at_first(j, r, n, look);
            trial_close(r);
        }
}

/* ---- ZeRO-3 ------------------------------------------------------------------------------------------------------ */

/* These are the layers of a model, and the largest: memory is asked for in terms of it. */
struct layers { int count; int64_t of[LAYERS], n, largest; };

static struct layers draw_layers(struct judge *j, int i)
{
    static const struct layers usual[] = {
        { .count = 1, .of = { 7 } }, { .count = 3, .of = { 2, 1, 4 } }, { .count = 4, .of = { 200, 31, 64, 200 } },
    };
    struct layers l = usual[i];
    for (int k = 0; k < LAYERS && k < l.count; k++) {
        if (j->hidden) l.of[k] = judge_draw(j, 1, MOST / LAYERS);
        l.n += l.of[k];
        if (l.of[k] > l.largest) l.largest = l.of[k];
    }
    return l;
}

/* Copy device d's blocks of all layers, one after another.  @return how many numbers these are. */
static int64_t blocks(const struct layers *l, int W, int d, const float *whole, float *out)
{
    int64_t place = 0, used = 0;
    for (int k = 0; k < l->count; place += l->of[k], k++) {
        const struct interval own = block_at(l->of[k], W, d);
        memcpy(out + used, whole + place + own.first, sizeof *out * (size_t)own.count);
        used += own.count;
    }
    return used;
}

/* Layers are visited as zero.h says, or in an order that a student may mistake for it.  Backward from layer 0 gives
 * the same numbers whether all of forward or only the layer's own came before. */
enum order { RIGHT, BACKWARD_FROM_0, FORWARD_FROM_LAST, ORDERS };
static const char *const mistaken[ORDERS] = {
    NULL, "backward begins at layer 0, perhaps before forward has ended; a layer needs the error of the one above, so "
    "backward begins at the last layer, after all of forward",
    "forward begins at the last layer; each needs what the layer before gives, so it begins at layer 0",
};

/* Compute the value that a layer's forward pass sees: half of the layer's before, and its own mean. */
static void forward(const struct layers *l, int k, float *seen)
{
    const float *at = weights;
    float sum = 0;
    for (int i = 0; i < k; i++) at += l->of[i];
    for (int64_t i = 0; i < l->of[k]; i++) sum += at[i];
    seen[k] = (k > 0 ? seen[k - 1] / 2 : 0) + sum / (float)l->of[k];
}

/* The error of the last layer is what it has seen; each layer below gets half of it. */
static void backward(const struct judge *j, const struct layers *l, int W, int by, int k, const float *seen,
                     float *error)
{
    int64_t place = 0;
    for (int i = 0; i < k; i++) place += l->of[i];
    if (k == l->count - 1) *error = seen[k];
    for (int64_t i = 0; i < l->of[k]; i++) step_alone(j, W, by, place + i, *error);
    *error /= 2;
}

/* This trains on one device, layer by layer.  seen: of the last step. */
static void train_layers(const struct judge *j, const struct layers *l, int W, int by, int steps, enum order order,
                         float *seen)
{
    const int L = l->count;
    memset(seen, 0, sizeof *seen * LAYERS);
    for (int s = 0; s < steps; s++) {
        float error = 0;
        for (int k = 0; k < L; k++) forward(l, order == FORWARD_FROM_LAST ? L - 1 - k : k, seen);
        for (int k = 0; k < L; k++)
            backward(j, l, W, by, order == BACKWARD_FROM_0 ? k : L - 1 - k, seen, &error);
    }
}

/* Whether device 0 has what one step in a mistaken order gives.  The check has failed then, with the order's name. */
static bool look_for_order(struct judge *j, struct trial *r, const struct layers *l, const float *first,
                           const float *first_v)
{
    float seen[LAYERS], own[MOST];
    for (int order = RIGHT + 1; order < ORDERS && l->count > 1; order++) {
        memcpy(weights, first, sizeof *weights * (size_t)l->n), memcpy(v, first_v, sizeof *v * (size_t)l->n);
        train_layers(j, l, r->devices, r->devices, 1, (enum order)order, seen);
        const size_t bytes = sizeof *own * (size_t)blocks(l, r->devices, 0, weights, own);
        if (memcmp(own, r->device[0].buffer[2].data, bytes) != 0 ||
            memcmp(seen, r->device[0].buffer[4].data, sizeof *seen * (size_t)l->count) != 0) continue;
        return !trial_fails(r, "the weights are those of another order: %s", mistaken[order]);
    }
    return false;
}

/* Train in the right order and compare seen, weights and v of each device.  Weights are put back first, since
 * look_for_order has moved them. */
static void look_at_third(struct judge *j, struct trial *r, const struct layers *l, enum look look)
{
    const int W = r->devices, kept = judge_choice(j, "KEEP") == 1, steps = (int)r->device[0].number[1];
    static float first[MOST], first_v[MOST];
    float seen[LAYERS], own[MOST];
    memcpy(first, weights, sizeof first), memcpy(first_v, v, sizeof first_v);
    if (look == AT_ORDER && look_for_order(j, r, l, first, first_v)) return;
    memcpy(weights, first, sizeof first), memcpy(v, first_v, sizeof first_v);
    train_layers(j, l, W, 1, steps, RIGHT, seen);
    const int64_t count = blocks(l, W, 0, weights, by_sum);
    if (W > 1) trial_suspect(r, 2, by_sum, count, MISTAKE_TOO_LARGE, summed);
    memcpy(weights, first, sizeof first), memcpy(v, first_v, sizeof first_v);
    train_layers(j, l, W, W, steps, RIGHT, seen);
    for (int d = 0; d < W && !j->failed; d++) {
        trial_expect_floats(r, d, 4, seen, l->count, "seen");
        if (!j->failed) trial_expect_floats(r, d, 2, own, blocks(l, W, d, weights, own), "weights");
        if (!j->failed) trial_expect_floats(r, d, 3, own, blocks(l, W, d, v, own), "v");
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)(2 * l->largest + block_at(l->largest, W, 0).count),
                              "two of the largest layer, and a block of it");
    }
    if (look != AT_SENT || j->failed) return;
    /* Each layer is gathered twice and reduced once; the variant KEEP saves one gather of the last layer. */
    const int64_t numbers = 3 * l->n - (kept ? l->of[l->count - 1] : 0);
    if (expect_calls(r, 3 * l->count - kept,
                     kept ? "for each layer 2 all_gather, but 1 for the last, and a reduce_scatter"
                          : "for each layer 2 all_gather and a reduce_scatter"))
        expect_together(r, 4 * (uint64_t)numbers * (uint64_t)(W - 1),
                        kept ? "3 (W-1) 4 n, less an all_gather of the last layer" : "3 (W-1) 4 n");
}

/* Try one or three models on W devices, with the blocks of each device as buffers. */
static void try_third(struct judge *j, enum look look)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = look == AT_VALUES ? 0 : look == AT_ORDER ? 1 : 2; i < (look == AT_ORDER ? 2 : 3) && !j->failed;
             i++) {
            const struct layers l = draw_layers(j, i);
            const int steps = look == AT_VALUES ? STEPS : 1;
            struct trial *r = trial_open(j, "zero3_step", *W, "%d layer%s, %d step%s", l.count, l.count == 1 ? "" : "s",
                                         steps, steps == 1 ? "" : "s");
            float own[MOST];
            draw(j, *W, l.n);
            /* Buffer 0 has the layers' sizes, 1 the target; 2 and 3 are this device's blocks of weights and v. */
            for (int d = 0; d < *W; d++) {
                trial_copy(r, d, 0, l.of, sizeof *l.of * (uint64_t)l.count, BUFFER_IN);
                trial_in(r, d, 1, target[d], l.n);
                trial_both(r, d, 2, own, blocks(&l, *W, d, weights, own));
                trial_both(r, d, 3, own, blocks(&l, *W, d, v, own));
                /* Buffer 4 is `seen`, which forward fills layer by layer. */
                trial_buffer(r, d, 4, 4 * (uint64_t)l.count, look == AT_ORDER ? BUFFER_BOTH : BUFFER_OUT);
                set(r, d, l.count, steps);
            }
            if (trial_call(r)) look_at_third(j, r, &l, look);
            trial_close(r);
        }
}

/* The order of layers is looked at first: the message of a wrong order helps more than a wrong number. */
static void check_third(struct judge *j)
{
    try_third(j, AT_ORDER);
    if (!j->failed) try_third(j, AT_VALUES);
}
static void check_third_sent(struct judge *j) { try_third(j, AT_SENT); }
static void check_third_memory(struct judge *j) { try_third(j, AT_MEMORY); }

static const char *const functions[] = { "zero_memory", "zero1_step", "zero3_step", NULL };

extern const struct lesson lesson_07_zero;
const struct lesson lesson_07_zero = {
    .folder = "07_zero", .title = "ZeRO: devices that share what all of them have", .file = "zero.c",
    .functions = functions,
    .vary = { { "MOMENTUM", 2 }, { "KEEP", 2 } },
    .check = {
        { 1, "memory", "the memory of each stage", 3, { check_memory },
          { "Without sharing a parameter takes 2 + 2 + 12 = 16 bytes.  Which of these does stage 1 share?",
            "What is shared takes 1/W of its bytes, the rest all of them." } },
        { 2, "zero1", "several steps with shared states, to the bit", 4, { try_first, AT_VALUES },
          { "Which numbers of the gradient does a device need for its block?  How are they summed with least bytes?",
            "reduce_scatter(g, gradient, sum, n) leaves block g->rank of the sum, from sum[0] on.",
            "v has only this device's block: v[0] belongs to weights[own.start].",
            "all_gather takes a block from a place of its own: copy it there first." },
          { [2] = FITS(SHIFTED), [3] = FITS(STALE) | FITS(UNCHANGED) } },
        { 2, "zero1-sent", "no more bytes than an all-reduce", 2, { try_first, AT_SENT },
          { "An all-reduce is a reduce-scatter and an all-gather.  What happens between the two here?" } },
        { 2, "zero1-memory", "one block is allocated", 2, { try_first, AT_MEMORY },
          { "The room for the reduced block is free again after the update." } },
        { 3, "zero3", "several steps with shared weights, to the bit", 4, { check_third },
          { "Write a function that gathers a layer: where does this device's block of layer l begin in m->weights?",
            "Blocks of different layers differ in length: add the lengths of those before.",
            "backward needs the layer's old weights; the update changes only this device's block.",
            "Forward passes of all layers come before the first backward pass, which is that of the last layer." } },
        { 3, "zero3-sent", "each layer is gathered as often as it must be", 2, { check_third_sent },
          { "Count: how often does each layer need all of its weights?",
            "zero.h says what happens with the weights of the last layer." } },
        { 3, "zero3-memory", "two layers and a block at any time", 3, { check_third_memory },
          { "Release the weights of a layer before the next one is gathered.",
            "For backward: the layer's weights, its gradient, and the reduced block.  Nothing else." } },
    },
};
