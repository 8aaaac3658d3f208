/* check.c -- judges lesson 14.  The student writes precision.c: rounding to bf16 and fp16, an all-reduce of 16-bit
 * numbers, and a step with loss scaling.  Roundings are compared bit by bit with ref/numeric/float16.h.  The step is
 * compared with masters, momentum and weights of a run on one device.  emulated_devices/course/judge.c runs each
 * check in a process of its own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include "ref/numeric/float16.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rounding ---------------------------------------------------------------------------------------------------- */

/* A 16-bit format as the checks see it: both conversions, and the first number that is too large for it. */
struct format {
    const char *function;
    uint16_t (*narrow)(float);
    float (*widen)(uint16_t);
    uint16_t infinity, normal;          /* as bits; normal: the smallest number that is not subnormal */
    double beyond;
};
static const struct format bf16 = { "narrow_bf16", bf16_from_float, bf16_to_float, 0x7f80, 0x80, 0x1p128 };
static const struct format fp16 = { "narrow_fp16", fp16_from_float, fp16_to_float, 0x7c00, 0x400, 0x1p16 };
enum what { TO_BF16, TO_FP16 };
static const struct format *const formats[] = { &bf16, &fp16 };

/* One call of a rounding function gets at most so many numbers. */
enum { INPUTS = 1 << 18 };
static struct { float x[INPUTS]; int count; } inputs;

/* An input beyond the room is left out. */
static void put(float x) { if (inputs.count < INPUTS) inputs.x[inputs.count++] = x; }
static void put_both(double x) { put((float)x), put((float)-x); }

/* Add what lies between number h of the format and the next.  which = 0: h itself; 1: numbers nearer to one of
 * both; 2: the middle. */
static void put_between(const struct format *f, uint16_t h, int which)
{
    const double a = f->widen(h), b = h + 1 == f->infinity ? f->beyond : f->widen((uint16_t)(h + 1));
    const float middle = (float)((a + b) / 2);              /* exact */
    if (which == 0) put_both(a);
    if (which == 1)
        put_both(a + (b - a) / 4), put_both(nextafterf(middle, 0)), put_both(nextafterf(middle, INFINITY));
    if (which == 2) put_both(middle);
}

/* Both formats have the exponent at the top: above infinity there is no number. */
static bool is_nan(const struct format *f, uint16_t h) { return (h & 0x7fff) > f->infinity; }

/* Call the student's function on all inputs and compare every result. */
static void round_inputs(struct judge *j, const struct format *f, const char *which)
{
    struct trial *r = trial_open(j, f->function, 1, "%d %s", inputs.count, which);
    const uint64_t n = (uint64_t)inputs.count;
    /* Buffer 0 has the inputs in fp32, buffer 1 gets their 16-bit numbers. */
    trial_copy(r, 0, 0, inputs.x, sizeof(float) * n, BUFFER_IN);
    const uint16_t *got = trial_buffer(r, 0, 1, sizeof *got * n, BUFFER_OUT);
    r->device[0].number[0] = inputs.count;
    for (int i = 0, fine = trial_call(r); fine && i < inputs.count && !j->failed; i++) {
        const float x = inputs.x[i];
        const uint16_t want = f->narrow(x);
        /* Every NaN is right where a NaN is due, whatever its other bits. */
        if (got[i] != want && !(is_nan(f, want) && is_nan(f, got[i])))
            trial_fails(r, "%.9g (bits %08x) becomes %04x, which is %.9g; it should be %04x, which is %.9g", (double)x,
                        float_bits(x), got[i], (double)f->widen(got[i]), want, (double)f->widen(want));
    }
    trial_close(r);
}

/* Try the numbers from..until of the format, and numbers between them.  Not all of the latter are tried; hidden
 * inputs have others. */
static void try_numbers(struct judge *j, const struct format *f, int from, int until, int which, const char *name)
{
    const int stride = which == 0 ? 1 : 9, first = j->hidden ? (int)judge_draw(j, 0, stride - 1) : 0;
    inputs.count = 0;
    for (int h = from + first; h < until; h += stride) put_between(f, (uint16_t)h, which);
    round_inputs(j, f, name);
}

enum look { AT_VALUES, AT_TIES, AT_SENT, AT_MEMORY };

/* Numbers that fit are exact; the others must go to the nearest, or to an even last bit. */
static void try_format(struct judge *j)
{
    const struct format *const f = formats[j->check->what];
    const int from = f == &fp16 ? f->normal : 0;                /* fp16's small numbers have a check of their own */
    if (j->check->look == AT_TIES) try_numbers(j, f, from, f->infinity - 1, 2, "middles");
    else try_numbers(j, f, from, f->infinity, 0, "numbers that fit");
    if (j->check->look == AT_VALUES && !j->failed)
        try_numbers(j, f, from, f->infinity - 1, 1, "numbers that are rounded");
}

/* Zeros, infinities, NaN, numbers that are too large, and the largest of the format. */
static void try_special(struct judge *j)
{
    const struct format *const f = formats[j->check->what];
    static const uint32_t nans[] = { 0x7fc00000, 0x7f800001, 0x7fffffff, 0xff800001 };
    inputs.count = 0;
    put_both(0), put_both(INFINITY), put_both(0x1.fffffep127);
    put_between(f, (uint16_t)(f->infinity - 1), 1);
    put_between(f, (uint16_t)(f->infinity - 1), 2);
    if (f->beyond < 0x1p127) put_both(f->beyond), put_both(2 * f->beyond);
    for (int i = 0; i < 4; i++) put(float_of_bits(nans[i]));
    if (j->hidden) put(float_of_bits(0x7f800000u + (uint32_t)judge_draw(j, 1, 0xffff)));
    round_inputs(j, f, "special numbers");
}

/* Try all fp16 numbers below 2^-14, the smallest normal number, and what is between them. */
static void check_fp16_small(struct judge *j)
{
    inputs.count = 0;
    for (int h = 0; h < fp16.normal; h++)
        for (int which = 0; which < 3; which++) put_between(&fp16, (uint16_t)h, which);
    for (int e = -26; e >= -149; e -= 3) put_both(ldexp(1, e));
    if (j->hidden) put_both(ldexp((double)judge_draw(j, 1, 1 << 20), -44));
    round_inputs(j, &fp16, "numbers below 2^-14");
}

/* ---- the sum ----------------------------------------------------------------------------------------------------- */

enum { MOST = 1200, STEPS = 7 };

/* Each device has these numbers, in the format of the course. */
static uint16_t part[WORKER_MOST_DEVICES][MOST];

static const struct format *format(const struct judge *j) { return judge_choice(j, "FORMAT") == 1 ? &fp16 : &bf16; }

/* Count the numbers that a device adds: block d, or from the other end. */
static int64_t owned(const struct judge *j, int64_t n, int W, int d)
{
    return block_at(n, W, judge_choice(j, "OWNER") == 1 ? W - 1 - d : d).count;
}

/* Compute the sum of all devices in fp32, then rounded once. */
static uint16_t wanted_sum(const struct format *f, int W, int64_t k)
{
    float sum = 0;
    for (int d = 0; d < W; d++) sum += f->widen(part[d][k]);
    return f->narrow(sum);
}

/* 16-bit numbers are compared by their bits, so signs of zeros count. */
static bool expect_halves(struct trial *r, const struct format *f, int d, int i, const uint16_t *want, int64_t n,
                          const char *what)
{
    const uint16_t *got = r->device[d].buffer[i].data;
    for (int64_t k = 0; k < n; k++)
        if (got[k] != want[k])
            return trial_fails(r, "device %d: %s[%lld] is %04x, which is %.9g; it should be %04x, which is %.9g", d,
                               what,
                               (long long)k, got[k], (double)f->widen(got[k]), want[k], (double)f->widen(want[k]));
    return true;
}

/* Draw numbers.  In every second sum two devices have large numbers that cancel: what is added between is rounded
 * to their places.  So another order of additions has other bits. */
static void draw_parts(struct judge *j, int W, int64_t n)
{
    const float large = judge_choice(j, "FORMAT") == 1 ? 0x1p15f : 0x1p22f;
    for (int d = 0; d < W; d++) {
        float rough[MOST];
        judge_rough(j, rough, n);
        for (int64_t k = 0; k < n; k++) part[d][k] = format(j)->narrow(rough[k]);
    }
    for (int64_t k = 0; W > 1 && k < n; k += 2) {
        const int a = (int)judge_draw(j, 0, W - 1), b = (a + (int)judge_draw(j, 1, W - 1)) % W;
        part[a][k] = format(j)->narrow(large), part[b][k] = format(j)->narrow(-large);
    }
}

/* The sum must be added in fp32 and rounded once; bytes and peaks are those of blocks. */
static void look_at_sum(struct judge *j, struct trial *r, int64_t n, enum look look)
{
    const uint64_t W = (uint64_t)r->devices;
    uint16_t want[MOST];
    for (int64_t k = 0; k < n; k++) want[k] = wanted_sum(format(j), r->devices, k);
    for (int d = 0; d < r->devices && !j->failed; d++) {
        /* A device sends its numbers of other blocks, and its own block to all others. */
        const uint64_t own = (uint64_t)owned(j, n, r->devices, d), bytes = 2 * ((uint64_t)n - own + own * (W - 1));
        if (!expect_halves(r, format(j), d, 0, want, n, "x")) return;
        if (look == AT_MEMORY)
            trial_expect_peak(r, d, 6 * (uint64_t)block_at(n, r->devices, 0).count, "6 ceil(n/W)");
        if (look != AT_SENT) continue;
        if (r->device[d].collectives > 0) trial_fails(r, "device %d calls a collective operation", d);
        else if (r->device[d].bytes != bytes || r->device[d].messages > 2 * (W - 1))
            trial_fails(r, "device %d sent %llu bytes in %llu messages; it should be %llu bytes (2 for each number "
                        "of other "
                        "blocks, and of its own to each other device) in at most %llu", d,
                        (unsigned long long)r->device[d].bytes, (unsigned long long)r->device[d].messages,
                        (unsigned long long)bytes, (unsigned long long)(2 * (W - 1)));
    }
}

/* The third run has messages that wait for their receivers. */
static void try_sum(struct judge *j)
{
    const enum look look = j->check->look;
    static const int64_t usual[] = { 5, 64, 1003 };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look == AT_VALUES ? 3 : 1) && !j->failed; i++) {
            const int64_t n = j->hidden ? judge_draw(j, 1, MOST) : usual[i];
            struct trial *r = trial_open(j, "half_all_reduce", *W, "n = %lld%s", (long long)n,
                                         i == 2 ? ", sends wait for their receivers" : "");
            r->meets = i == 2;
            draw_parts(j, *W, n);
            /* The sum works in place, on 16-bit numbers. */
            for (int d = 0; d < *W; d++) {
                trial_copy(r, d, 0, part[d], sizeof(uint16_t) * (uint64_t)n, BUFFER_BOTH);
                r->device[d].number[0] = n;
            }
            if (trial_call(r)) look_at_sum(j, r, n, look);
            trial_close(r);
        }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* These are the model before and after, the gradients of each step, and what each step should return, for all
 * devices. */
static struct {
    int64_t n;
    float master[MOST], v[MOST], rate, beta, scale;
    uint16_t weights[MOST];
    int good, grow_after;
    float trace[3 * STEPS];
} run;
static uint16_t gradient[WORKER_MOST_DEVICES][STEPS][MOST];

/* Put in what is too large: infinities of both signs, whose sum is not infinite, or a single NaN. */
static void spoil(int W, int s, int64_t k)
{
    gradient[s % W][s][k] = s % 2 ? 0x7c00 : 0x7e00;
    if (s % 2) gradient[(s + 1) % W][s][k] = W > 1 ? 0xfc00 : 0x7c00;
}

/* Draw fp16 gradients of one step; `too_large` makes one number not finite. */
static void draw_gradients(struct judge *j, int W, int s, bool too_large)
{
    for (int d = 0; d < W; d++) {
        float rough[MOST];
        judge_rough(j, rough, run.n);
        for (int64_t k = 0; k < run.n; k++) gradient[d][s][k] = fp16_from_float(rough[k] * 64);
    }
    if (too_large) spoil(W, s, judge_draw(j, 0, run.n - 1));
}

/* One step on one device: gradients are added in fp32, scaled back, and the step is left out if any sum is not
 * finite. */
static void step_alone(const struct judge *j, int W, int s)
{
    bool finite = true;
    static float sum[MOST];
    for (int64_t k = 0; k < run.n; k++) {
        sum[k] = fp16_to_float(gradient[0][s][k]);
        /* A sum above 65504 may still be finite in fp32; only the sum in fp32 decides. */
        for (int d = 1; d < W; d++) sum[k] += fp16_to_float(gradient[d][s][k]);
        finite &= isfinite(sum[k]) != 0;
    }
    for (int64_t k = 0; finite && k < run.n; k++) {
        /* v = beta v + mean; master -= rate v; weights are rounded masters. */
        const volatile float old = run.beta * run.v[k], mean = sum[k] / (run.scale * (float)W);
        run.v[k] = old + mean;
        const volatile float moved = run.rate * run.v[k];
        run.master[k] -= moved;
        run.weights[k] = fp16_from_float(run.master[k]);
    }
    /* The variant BACK halves or quarters the scale; a number of good steps in a row doubles it. */
    if (!finite) run.scale = fmaxf(run.scale / (judge_choice(j, "BACK") == 1 ? 4 : 2), 1), run.good = 0;
    else if (++run.good == run.grow_after) run.scale = fminf(2 * run.scale, 0x1p24f), run.good = 0;
    run.trace[3 * s] = finite, run.trace[3 * s + 1] = run.scale, run.trace[3 * s + 2] = (float)run.good;
}

/* Draw a model whose updates are so small that 16-bit numbers would not move.  No weight is subnormal. */
static void draw_model(struct judge *j, int64_t n, float scale, int grow_after)
{
    run.n = n, run.rate = 0x1p-9f, run.beta = 0.7f, run.scale = scale, run.good = 0, run.grow_after = grow_after;
    judge_rough(j, run.master, n);
    judge_rough(j, run.v, n);
    for (int64_t k = 0; k < n; k++) {
        if (fabsf(run.master[k]) < 0.0625f) run.master[k] += 0.25f;
        run.v[k] /= 64, run.weights[k] = fp16_from_float(run.master[k]);
    }
}

/* This makes a buffer with these bytes in it. */
/* The model of one device has masters and momentum in fp32, and weights in fp16. */
static void give_model(struct trial *r, int d, int steps)
{
    const uint64_t n = (uint64_t)run.n;
    trial_copy(r, d, 0, run.master, 4 * n, BUFFER_BOTH);
    trial_copy(r, d, 1, run.v, 4 * n, BUFFER_BOTH);
    trial_copy(r, d, 2, run.weights, 2 * n, BUFFER_BOTH);
    trial_buffer(r, d, 4, sizeof(float) * 3 * (uint64_t)steps, BUFFER_OUT);
    r->device[d].number[0] = run.n, r->device[d].number[1] = steps, r->device[d].number[2] = run.good;
    r->device[d].number[3] = run.grow_after;
    r->device[d].given[0] = run.rate, r->device[d].given[1] = run.beta, r->device[d].given[2] = run.scale;
}

/* All three must have the bits of the run on one device. */
static void expect_model(struct trial *r, int d)
{
    trial_expect_floats(r, d, 0, run.master, run.n, "master");
    if (!r->judge->failed) trial_expect_floats(r, d, 1, run.v, run.n, "v");
    if (!r->judge->failed) expect_halves(r, &fp16, d, 2, run.weights, run.n, "weights");
}

/* Compare what each step returned, and the scale and counter after the step. */
static void expect_trace(struct trial *r, int d, int steps)
{
    const float *got = r->device[d].buffer[4].data;
    for (int s = 0; s < steps && !r->judge->failed; s++) {
        const float *g = got + 3 * s, *w = run.trace + 3 * s;
        if (g[0] != w[0])
            trial_fails(r, "device %d: step %d returns %g; the sum of all gradients is %s, so it is %g", d, s,
                        (double)g[0], w[0] == 1 ? "finite" : "not finite", (double)w[0]);
        else if (g[1] != w[1] || g[2] != w[2])
            trial_fails(r, "device %d: after step %d the scale is %g and good is %g; they should be %g and %g", d, s,
                        (double)g[1], (double)g[2], (double)w[1], (double)w[2]);
    }
}

enum view { AT_MODEL, AT_OVERFLOW, AT_SCALE, AT_PEAK };

/* As fp16, 60000: two of them are more than any fp16, but a float. */
enum { LARGE = 0x7b53 };

/* Try steps from one scale on; `spoiled` has a bit for each step that is too large. */
static void try_steps(struct judge *j, int W, int64_t n, float scale, int steps, unsigned spoiled, enum view view)
{
    int too_large = 0;
    for (int s = 0; s < steps; s++) too_large += spoiled >> s & 1;
    char spoiled_steps[80] = "";
    /* The name of the run says what happens in its steps. */
    if (too_large)
        snprintf(spoiled_steps, sizeof spoiled_steps, ", %d with a gradient that is not finite%s", too_large,
                 view == AT_OVERFLOW ? ", a finite sum above 65504" : "");
    struct trial *r = trial_open(j, "mixed_step", W, "n = %lld, scale %g, %d step%s%s", (long long)n, (double)scale,
                                 steps, steps == 1 ? "" : "s", spoiled_steps);
    draw_model(j, n, scale, view == AT_SCALE ? 2 : 100);
    for (int d = 0; d < W; d++) give_model(r, d, steps);
    /* The run on one device is computed step by step, with the gradients that devices get. */
    for (int s = 0; s < steps; s++) {
        draw_gradients(j, W, s, spoiled >> s & 1);
        if (view == AT_OVERFLOW && !(spoiled >> s & 1))
            for (int d = 0; d < W; d++) gradient[d][s][0] = LARGE;
        step_alone(j, W, s);
    }
    /* Buffer 3 has the gradients [steps, n] of this device. */
    for (int d = 0; d < W; d++) {
        uint16_t *to = trial_buffer(r, d, 3, 2 * (uint64_t)(n * steps), BUFFER_IN);
        for (int s = 0; s < steps; s++) memcpy(to + s * n, gradient[d][s], 2 * (size_t)n);
    }
    if (trial_call(r))
        for (int d = 0; d < W && !j->failed; d++) {
            if (view == AT_SCALE) expect_trace(r, d, steps);
            if (!j->failed) expect_model(r, d);
            if (view == AT_OVERFLOW && !j->failed) trial_expect_collectives(r, d, (uint64_t)steps, ": one a step");
            if (view == AT_PEAK && !j->failed) trial_expect_peak(r, d, 4 * (uint64_t)n, "4 n");
        }
    trial_close(r);
}

static void check_step(struct judge *j)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        try_steps(j, *W, j->hidden ? judge_draw(j, 1, MOST) : 301, 1024, 5, 0, AT_MODEL);
}

static void check_overflow(struct judge *j)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        try_steps(j, *W, j->hidden ? judge_draw(j, 1, MOST) : 37, 1024, 3, 2 + 4, AT_OVERFLOW);
}

static void check_scale(struct judge *j)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
        const int64_t n = j->hidden ? judge_draw(j, 1, 100) : 11;
        try_steps(j, *W, n, 1024, STEPS, 2 + 32, AT_SCALE);
        if (!j->failed) try_steps(j, *W, n, 2, STEPS, 1 + 2 + 4, AT_SCALE);
        if (!j->failed) try_steps(j, *W, n, 0x1p23f, STEPS, 0, AT_SCALE);
    }
}

static void check_step_memory(struct judge *j) { try_steps(j, 3, j->hidden ? judge_draw(j, 1, MOST) : 301, 1024, 1, 0,
                                                           AT_PEAK); }

static const char *const functions[] = { "narrow_bf16", "narrow_fp16", "half_all_reduce", "mixed_step", NULL };

extern const struct lesson lesson_14_precision;
const struct lesson lesson_14_precision = {
    .folder = "14_precision", .title = "Numbers of 16 bits", .file = "precision.c", .functions = functions,
    .vary = { { "FORMAT", 2 }, { "OWNER", 2 }, { "BACK", 2 } },
    .check = {
        { 1, "bf16", "the nearest bf16, of numbers that are in no middle", 2, { try_format, AT_VALUES, TO_BF16 },
          { "A bf16 is the upper half of a float's bits.  When does the lower half make it one more?",
            "Compare the lower 16 bits with 0x8000, half of the last kept place.",
            "Adding 1 to the bits gives the next number, also when the fraction overflows into the exponent." } },
        { 1, "bf16-ties", "a middle goes to the number whose last bit is 0", 1, { try_format, AT_TIES, TO_BF16 },
          { "If the lower half is exactly 0x8000, look at the last bit that is kept." } },
        { 1, "bf16-special", "infinities, NaN, and what is too large", 1, { try_special, AT_VALUES, TO_BF16 },
          { "The largest float is nearer to 2^128 than to the largest bf16.",
            "A NaN whose upper half has no fraction would become infinity: x != x is true only for NaN." } },
        { 2, "fp16", "the nearest fp16, of normal numbers", 2, { try_format, AT_VALUES, TO_FP16 },
          { "10 bits of the fraction stay, 13 go.  And the exponent?",
            "Its offset is 127 in a float and 15 in fp16: subtract 112 from the exponent's bits before 13 bits are "
                "dropped.",
            "Take the sign off first, and put it to bit 15 at the end." } },
        { 2, "fp16-ties", "a middle goes to the number whose last bit is 0", 1, { try_format, AT_TIES, TO_FP16 },
          { "The rule is that of bf16, with 13 bits in the place of 16." } },
        { 2, "fp16-small", "below 2^-14, down to nothing", 2, { check_fp16_small },
          { "There the last place is 2^-24 for all numbers, as with whole numbers.",
            "x * 2^24 is exact.  Which function of math.h rounds it to a whole number, with ties to even?  rintf.",
            "1024 of these is 2^-14, the smallest normal number, and its bits are 1024." } },
        { 2, "fp16-special", "infinities, NaN, and what is too large", 1, { try_special, AT_VALUES, TO_FP16 },
          { "65520 is in the middle between 65504, the largest, and 65536, which is infinity." } },
        { 3, "sum", "added in float, rounded once, to the bit", 3, { try_sum, AT_VALUES },
          { "Whoever adds a block widens each number, adds all of them as floats, and narrows the sum at the very end.",
            "In which order?  From device 0 on: this device's own numbers have their turn, too.",
            "precision.h says in which format the numbers are, and who adds which block.",
            "A send of x must be waited for before x is overwritten." },
          { [1] = FITS(ORDER) } },
        { 3, "sent", "2 bytes a number", 2, { try_sum, AT_SENT },
          { "Send numbers as they are, in 16 bits: each block to the one that adds it, then the sum to all." } },
        { 3, "sum-memory", "a block of floats, and one of 16 bits", 1, { try_sum, AT_MEMORY },
          { "Blocks can be received one after another into the same room, and added at once." } },
        { 4, "step", "weights, momentum and masters of several steps, to the bit", 3, { check_step },
          { "The gradient is that of the loss times scale, and the sum of W devices': divide by both.",
            "The optimizer changes master, which has 24 bits.  weights are rounded from it; they are never changed "
                "by themselves.",
            "A sum of fp16 numbers is a float: widen first, then all_reduce." } },
        { 4, "overflow", "nothing changes if any number of any device is not finite", 2, { check_overflow },
          { "An infinity on one device must stop all of them.  Does it show in the sum?",
            "Infinity minus infinity is NaN, which is not larger than anything.  fabsf(x) < INFINITY is true for "
                "neither.",
            "Look at the whole sum before the first weight is changed.",
            "The sum of all devices is a float, and says it all: no other message is needed." } },
        { 4, "scale", "the scale after each step", 2, { check_scale },
          { "A step that is left out makes the scale smaller; grow_after good steps in a row make it larger.",
            "After each change counting begins at 0.  At least 1, at most 2^24." } },
        { 4, "step-memory", "room for one gradient of floats", 1, { check_step_memory },
          { "The sum can be divided, used and forgotten number by number." } },
    },
};
