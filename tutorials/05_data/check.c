/* check.c -- judges lesson 05.  The model's loss is 1/2 (weights - target)^2, so every gradient is known without a
 * backward pass.  The student writes data.c: make_buckets, data_gradients and data_train.  Gradients are computed
 * here in the order that data.h prescribes, and compared to the bit.  Operations take a picosecond each, so times
 * are exact.  emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for
 * the student. */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <string.h>

enum { MOST_PARAMETERS = 12, MOST = 2000, STEPS = 3, MODELS = 4 };

/* These are the sizes of a model's parameters, and of the longest bucket. */
struct sizes { int parameters; int64_t count[MOST_PARAMETERS], operations[MOST_PARAMETERS], most, numbers; };

/* These are the weights and targets of each device, from which gradients follow. */
static struct { float weights[MOST], target[MOST]; } device[WORKER_MOST_DEVICES];

/* Open inputs have four usual models: many parameters, one, equal ones, and one larger than its bucket. */
static struct sizes sizes(struct judge *j, int i)
{
    static const struct sizes usual[MODELS] = {
        { 1, { 5 }, .most = 100 }, { 5, { 8, 8, 8, 8, 8 }, .most = 16 },
        { 6, { 30, 200, 7, 200, 7, 90 }, .most = 210 }, { 4, { 3, 2, 1, 500 }, .most = 4 },
    };
    struct sizes s = usual[i];
    if (j->hidden) {
        s.parameters = (int)judge_draw(j, 2, MOST_PARAMETERS);
        for (int p = 0; p < s.parameters; p++) s.count[p] = judge_draw(j, 1, MOST / MOST_PARAMETERS);
        s.most = judge_draw(j, 1, MOST / 4);
    }
    for (int p = 0; p < s.parameters; p++) {
        s.numbers += s.count[p];
        /* Each parameter's backward takes a while of its own, so orders of the all-reduces show in the time. */
        s.operations[p] = 1000000 * judge_draw(j, 1, 60);      /* 1 to 60 us */
    }
    return s;
}

/* Put each parameter into a bucket, from the last parameter on.  The variant CLOSE says when a bucket is full.
 * @return the number of buckets. */
static int plan(const struct judge *j, const struct sizes *s, int *bucket)
{
    const bool closes_when_full = judge_choice(j, "CLOSE") == 1;
    int64_t filled = 0;
    int number = 0;
    for (int p = s->parameters - 1; p >= 0; p--) {
        const bool full = closes_when_full ? filled >= s->most : filled + s->count[p] > s->most;
        if (filled > 0 && full) number++, filled = 0;
        bucket[p] = number, filled += s->count[p];
    }
    return number + 1;
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

/* make_buckets runs on one device and talks to nobody. */
static void check_buckets(struct judge *j)
{
    for (int i = 0; i < MODELS && !j->failed; i++) {
        const struct sizes s = sizes(j, i);
        int want[MOST_PARAMETERS];
        struct trial *r = trial_open(j, "make_buckets", 1, "%d parameters, at most %lld numbers", s.parameters,
                                     (long long)s.most);
        /* Buffer 0 has the sizes of the parameters; buffer 1 gets a bucket's number for each. */
        trial_copy(r, 0, 0, s.count, sizeof *s.count * (size_t)s.parameters, BUFFER_IN);
        trial_buffer(r, 0, 1, sizeof *want * (size_t)s.parameters, BUFFER_OUT);
        r->device[0].number[0] = s.parameters, r->device[0].number[1] = s.most;
        if (trial_call(r)) {
            const int buckets = plan(j, &s, want), *got = (const int *)r->device[0].buffer[1].data;
            /* The last parameter is in the first bucket, so comparisons begin there. */
            for (int p = s.parameters - 1; p >= 0 && !j->failed; p--)
                if (got[p] != want[p])
                    trial_fails(r, "parameter %d has %lld numbers, and is in bucket %d; it should be in bucket %d", p,
                                (long long)s.count[p], got[p], want[p]);
            if (!j->failed && r->device[0].result != buckets)
                trial_fails(r, "it returns %lld; it should be %d, the number of buckets",
                            (long long)r->device[0].result, buckets);
        }
        trial_close(r);
    }
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Fill the buffers of one call.  Only data_train gives each device other weights at the start. */
static struct trial *prepare(struct judge *j, const char *function, int W, const struct sizes *s, bool trains)
{
    struct trial *r = trial_open(j, function, W, "%d parameters of %lld numbers in all, buckets of %lld", s->parameters,
                                 (long long)s->numbers, (long long)s->most);
    const uint64_t words = sizeof(int64_t) * (uint64_t)s->parameters, floats = sizeof(float) * (uint64_t)s->numbers;
    float start[MOST];
    r->cluster.flop_rate[F32] = 1000000;        /* so an operation takes a picosecond */
    judge_rough(j, start, s->numbers);
    for (int d = 0; d < W; d++) {
        if (trains) judge_rough(j, start, s->numbers);          /* each its own start */
        /* target differs on each device, so the devices have different gradients. */
        judge_rough(j, device[d].target, s->numbers);
        memcpy(device[d].weights, start, floats);
        /* Buffers 0 and 1 describe the parameters; 2 and 3 are target and weights, 4 the gradients. */
        trial_copy(r, d, 0, s->count, words, BUFFER_IN);
        trial_copy(r, d, 1, s->operations, words, BUFFER_IN);
        trial_copy(r, d, 2, device[d].target, floats, BUFFER_IN);
        trial_copy(r, d, 3, device[d].weights, floats, trains ? BUFFER_BOTH : BUFFER_IN);
        trial_buffer(r, d, 4, floats, BUFFER_OUT);
        r->device[d].number[0] = s->parameters, r->device[d].number[1] = s->most;
    }
    return r;
}

/* Compute the mean of all devices' gradients for equal weights, added in the order of ranks.  The variant MEAN
 * divides before or after the sum. */
static float mean(const struct judge *j, const float *weights, int W, int64_t k)
{
    const bool before = judge_choice(j, "MEAN") == 1;
    float sum = 0;
    for (int d = 0; d < W; d++) {
        float one = weights[k] - device[d].target[k];
        if (before) one /= (float)W;
        sum = d == 0 ? one : sum + one;
    }
    return before ? sum : sum / (float)W;
}

/* Buckets are reduced one after another on a stream, each when its last gradient is computed. */
static picoseconds overlapped_time(const struct judge *j, const struct trial *r, const struct sizes *s)
{
    int bucket[MOST_PARAMETERS];
    int64_t filled = 0;
    picoseconds computed = 0, reduced = 0;
    plan(j, s, bucket);
    for (int p = s->parameters - 1; p >= 0; p--) {
        computed += s->operations[p], filled += s->count[p];
        /* A bucket ends at parameter 0, or where the parameter before belongs to another bucket. */
        if (p > 0 && bucket[p - 1] == bucket[p]) continue;
        reduced = (reduced > computed ? reduced : computed) + trial_all_reduce_time(r, filled);
        filled = 0;
    }
    return reduced > computed ? reduced : computed;
}

enum look { AT_VALUES, AT_CALLS, AT_MEMORY, AT_TIME };

/* Compare the gradients.  A sum in place of the mean is named: it is W times as much, to the bit only if W is a
 * power of 2. */
static void expect_mean(struct trial *r, int d, const float *want, int64_t n)
{
    const float *got = r->device[d].buffer[4].data;
    bool sum = r->devices > 1;
    for (int64_t k = 0; k < n && sum; k++)
        sum = fabs((double)got[k] - r->devices * (double)want[k]) <= 0x1p-22 * fabs((double)got[k]);
    if (sum) {
        r->judge->mistake = MISTAKE_TOO_LARGE;
        trial_fails(r, "device %d: the gradient is the sum of all devices', W times too large; it should be their mean",
                    d);
    }
    else trial_expect_floats(r, d, 4, want, n, "gradient");
}

/* All looks begin with the values: a program that computes something else gets no points for speed. */
static void look_at(struct judge *j, struct trial *r, const struct sizes *s, enum look look)
{
    int bucket[MOST_PARAMETERS];
    float want[MOST];
    /* Every device must have the mean over all devices. */
    for (int64_t k = 0; k < s->numbers; k++) want[k] = mean(j, device[0].weights, r->devices, k);
    for (int d = 0; d < r->devices && !j->failed; d++) {
        expect_mean(r, d, want, s->numbers);
        if (look == AT_MEMORY && !j->failed)
            trial_expect_peak(r, d, 4 * (uint64_t)s->parameters, "4 bytes for each of the `parameters` arrays");
        /* Each bucket is one all_reduce. */
        if (look == AT_CALLS && !j->failed && r->device[d].collectives != (uint64_t)plan(j, s, bucket))
            trial_fails(r, "all_reduce calls of device %d: %llu; buckets: %d", d,
                        (unsigned long long)r->device[d].collectives, plan(j, s, bucket));
    }
    if (look == AT_TIME && !j->failed)
        trial_expect_time(r, overlapped_time(j, r, s), "a bucket is reduced as soon as it is computed, after the one "
                          "before it, while the others are computed; it has its parameters' numbers and no others");
}

static void try_gradients(struct judge *j)
{
    const enum look look = j->check->look;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look == AT_VALUES ? MODELS : 2) && !j->failed; i++) {
            const struct sizes s = sizes(j, look == AT_VALUES ? i : 2 - i);
            struct trial *r = prepare(j, "data_gradients", *W, &s, false);
            if (trial_call(r)) look_at(j, r, &s, look);
            trial_close(r);
        }
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* Add up the bytes that all devices send, each once it has computed its first gradient.  An all_reduce sends all
 * blocks but one twice, other collective operations once. */
static int64_t sent_after_start(const struct trial *r)
{
    int64_t bytes = 0, in_collectives = 0;
    bool started[WORKER_MOST_DEVICES] = { false };
    /* Events of a device before its first computation belong to the start, such as the root's weights. */
    for (int i = 0; i < r->events; i++) {
        const struct event *e = &r->event[i];
        started[e->device] |= e->kind == EVENT_COMPUTE;
        if (!started[e->device]) continue;
        if (e->kind == EVENT_SEND) bytes += (int64_t)e->bytes;
        /* All devices call an operation together, so device 0's events stand for those of all devices. */
        if (e->kind == EVENT_COLLECTIVE && e->device == 0)
            in_collectives += (int64_t)e->bytes * (e->peer == DO_ALL_REDUCE ? 2 : 1);
    }
    return bytes + (r->devices - 1) * in_collectives;
}

/* Only gradients are sent in the steps: a program that sends weights, too, sends more. */
static void expect_gradients_only(struct trial *r, int64_t n)
{
    const int64_t got = sent_after_start(r), want = STEPS * 2 * (r->devices - 1) * 4 * n;
    if (got > want)
        trial_fails(r, "after the start all devices together send %lld bytes; the gradients of %d steps take %lld.  "
                    "Weights that are equal once stay equal: nobody sends them again", (long long)got, STEPS,
                    (long long)want);
}

/* Check several steps of SGD from the root's weights; the variant ROOT says whose these are. */
static void check_train(struct judge *j)
{
    const float rate = 0.3f;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
        const struct sizes s = sizes(j, 2);
        struct trial *r = prepare(j, "data_train", *W, &s, true);
        float want[MOST];
        memcpy(want, device[judge_choice(j, "ROOT") == 0 ? 0 : *W - 1].weights, sizeof want);
        for (int step = 0; step < STEPS; step++)
            for (int64_t k = 0; k < s.numbers; k++) {
                /* A volatile product is rounded, since no fused multiply-add can be made of it. */
                const volatile float moved = rate * mean(j, want, *W, k);      /* rounded: no fused multiply-add */
                want[k] -= moved;
            }
        for (int d = 0; d < *W; d++) r->device[d].number[2] = STEPS, r->device[d].given[0] = rate;
        if (trial_call(r))
            for (int d = 0; d < *W && !j->failed; d++) trial_expect_floats(r, d, 3, want, s.numbers, "weights");
        if (!j->failed) expect_gradients_only(r, s.numbers);
        trial_close(r);
    }
}

static const char *const functions[] = { "make_buckets", "data_gradients", "data_train", NULL };

extern const struct lesson lesson_05_data;
const struct lesson lesson_05_data = {
    .folder = "05_data", .title = "Data parallelism", .file = "data.c", .functions = functions,
    .vary = { { "CLOSE", 2 }, { "MEAN", 2 }, { "ROOT", 2 } },
    .check = {
        { 1, "buckets", "which gradients are reduced together", 3, { check_buckets },
          { "In which order does the backward pass compute the gradients?",
            "Keep two numbers: that of the open bucket, and how full it is.",
            "A parameter that is larger than `most` needs a bucket too: an empty bucket takes anything." } },
        { 2, "gradients", "the mean of all devices' gradients, to the bit", 4, { try_gradients, AT_VALUES },
          { "What is a device's gradient the gradient of?  And what would one device with the whole batch compute?",
            "The parameters of a bucket are neighbours in memory: one all_reduce from the first of them on.",
            "A bucket ends at parameter i if i is 0, or if parameter i-1 is in another bucket.",
            "data.h says when to divide by the number of devices; the other way has other bits." } },
        { 2, "calls", "one all_reduce a bucket", 2, { try_gradients, AT_CALLS },
          { "Each message costs its latency: that is why there are buckets." } },
        { 2, "memory", "next to nothing is allocated", 1, { try_gradients, AT_MEMORY },
          { "The gradients are already where they belong; only the buckets' numbers need memory." } },
        { 2, "time", "buckets are reduced while others are computed", 3, { try_gradients, AT_TIME },
          { "Between stream_begin and stream_end, things take place beside the computations.",
            "Begin a bucket's all_reduce right after its last backward(), not after all of them.",
            "stream_join waits for the stream: once, when all gradients are computed and you need the sums." } },
        { 3, "train", "all devices are one, for several steps", 3, { check_train },
          { "Every device began with other numbers: what has to happen before the first step?",
            "broadcast has a root; data.h says whose weights are taken.",
            "Equal weights and equal gradients stay equal: no weights are sent after the start." } },
    },
};
