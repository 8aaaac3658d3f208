/* check.c -- judges lesson 10.  The student writes vocabulary.c: the largest logit of each row, and the mean cross
 * entropy with its gradient.  Logits [T, V] are cut by columns over W devices.  Losses and gradients are compared
 * with sums in double, within a bound of their roundings.  emulated_devices/course/judge.c runs each check in a
 * process of its own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>

enum { ROWS = 6, COLUMNS = 130, SHAPES = 4 };

/* The whole problem has logits [T, V] and a label for each row; -1 is no label. */
static float logits[ROWS][COLUMNS];
static int64_t labels[ROWS];

/* large: logits of thousands; wide: in a row they differ by thousands, so that most probabilities are 0 in fp32. */
struct shape { int T; int64_t V; double smoothing; bool large, wide, unlabelled; };

/* How far below the largest logit of a row another one can be. */
static double spread(const struct shape *s) { return s->wide ? 2000 : 15; }

/* Device d's columns: a block, or every W-th, as LAYOUT says. */
static int64_t own_columns(const struct judge *j, int64_t V, int W, int d)
{
    return judge_choice(j, "LAYOUT") == 1 ? (V - d + W - 1) / W : block_at(V, W, d).count;
}

static int64_t column(const struct judge *j, int64_t V, int W, int d, int64_t k)
{
    return judge_choice(j, "LAYOUT") == 1 ? d + k * W : block_at(V, W, d).first + k;
}

/* Logits are multiples of 1/8, so that their differences are exact.  Rows with a label of -1 do not count; row 2
 * never has a label. */
static void draw(struct judge *j, const struct shape *s)
{
    for (int t = 0; t < s->T; t++) {
        const double middle = s->large ? (double)judge_draw(j, -10000, 10000) : 0;
        const int64_t range = (int64_t)(spread(s) * 8 / 2);
        for (int64_t v = 0; v < s->V; v++) logits[t][v] = (float)(middle + (double)judge_draw(j, -range, range) / 8);
        labels[t] = s->unlabelled || t == 2 ? -1 : judge_draw(j, 0, s->V - 1);
    }
}

/* Cut the logits by columns and give each device the same labels. */
static struct trial *prepare(struct judge *j, const char *function, int W, const struct shape *s)
{
    struct trial *r = trial_open(j, function, W, "%d rows, %lld columns%s%s%s", s->T, (long long)s->V,
                                 s->large ? ", logits of thousands" : "", s->wide ? ", unlikely labels" : "",
                                 s->smoothing > 0 ? ", smoothing" : "");
    draw(j, s);
    for (int d = 0; d < W; d++) {
        const int64_t own = own_columns(j, s->V, W, d);
        const uint64_t cells = sizeof(float) * (uint64_t)(s->T * own);
        float *part = trial_buffer(r, d, 0, cells, BUFFER_IN);
        /* part [T, own] has this device's columns of all rows. */
        for (int t = 0; t < s->T; t++)
            for (int64_t k = 0; k < own; k++) part[t * own + k] = logits[t][column(j, s->V, W, d, k)];
        trial_copy(r, d, 1, labels, sizeof *labels * (uint64_t)s->T, BUFFER_IN);
        /* Buffer 2 gets the gradient [T, own], buffer 3 the row's maxima. */
        trial_buffer(r, d, 2, cells, BUFFER_OUT);
        trial_out(r, d, 3, s->T);
        r->device[d].number[0] = s->T, r->device[d].number[1] = s->V, r->device[d].number[2] = own;
        r->device[d].given[0] = s->smoothing;
    }
    return r;
}

/* Usual shapes are small; large logits overflow exp without a maximum, and wide ones underflow it. */
static struct shape shape(struct judge *j, int i)
{
    static const struct shape usual[SHAPES] = {
        { .T = 6, .V = 101 }, { .T = 3, .V = 5 }, { .T = 6, .V = 64, .large = true }, { .T = 6, .V = 30, .wide = true }
    };
    struct shape s = usual[i];
    if (j->hidden) s.T = (int)judge_draw(j, 3, ROWS), s.V = judge_draw(j, 2, COLUMNS);
    return s;
}

/* A maximum is exact in every order, so it is compared to the bit. */
static float largest(const struct shape *s, int t)
{
    float most = logits[t][0];
    for (int64_t v = 1; v < s->V; v++) most = fmaxf(most, logits[t][v]);
    return most;
}

/* vocabulary_max is compared alone, before any loss. */
static void check_max(struct judge *j)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < SHAPES && !j->failed; i++) {
            const struct shape s = shape(j, (i + 1) % SHAPES);         /* 3 rows of 5 first */
            struct trial *r = prepare(j, "vocabulary_max", *W, &s);
            float want[ROWS];
            for (int t = 0; t < s.T; t++) want[t] = largest(&s, t);
            if (trial_call(r))
                for (int d = 0; d < *W && !j->failed; d++) trial_expect_floats(r, d, 3, want, s.T, "max");
            trial_close(r);
        }
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

/* These are the largest logit of each row, and the sum of exponentials above it, in double. */
static struct { double most, sum; } row[ROWS];

/* row[t] gets the maximum and the sum of exp(logit - maximum). */
static void add_rows(const struct shape *s)
{
    for (int t = 0; t < s->T; t++) {
        row[t].most = largest(s, t), row[t].sum = 0;
        for (int64_t v = 0; v < s->V; v++) row[t].sum += exp((double)logits[t][v] - row[t].most);
    }
}

static double log_probability(int t, int64_t v) { return (double)logits[t][v] - row[t].most - log(row[t].sum); }
static double probability(int t, int64_t v) { return exp((double)logits[t][v] - row[t].most) / row[t].sum; }

static int labelled(const struct shape *s)
{
    int rows = 0;
    for (int t = 0; t < s->T; t++) rows += labels[t] >= 0;
    return rows;
}

/* Compute the mean over rows with a label of -log p[label], smoothed. */
static double whole_loss(const struct shape *s)
{
    double sum = 0;
    add_rows(s);
    for (int t = 0; t < s->T; t++) {
        if (labels[t] < 0) continue;
        /* A row adds -(1 - smoothing) log p[label] and smoothing's part of every column. */
        sum -= (1 - s->smoothing) * log_probability(t, labels[t]);
        for (int64_t v = 0; v < s->V; v++) sum -= s->smoothing / (double)s->V * log_probability(t, v);
    }
    return labelled(s) ? sum / labelled(s) : 0;
}

/* Allow the rounding of a sum of V exponentials in fp32, of each exponential (expf: 2 units at most), of the
 * quotient, and of what is subtracted from it. */
static double allowed(const struct shape *s, double size) { return (double)(s->V + 8) * 0x1p-24 * size; }

/* Every device must return the same loss. */
static void expect_loss(struct trial *r, const struct shape *s)
{
    const double want = whole_loss(s);
    for (int d = 0; d < r->devices; d++) {
        const double got = r->device[d].real;
        /* With smoothing the sum of all logits may be as large as V of them, and is rounded V times. */
        if (!(fabs(got - want) <= allowed(s, 1 + fabs(want) + s->smoothing * spread(s)))) {
            trial_fails(r, "device %d: the loss is %.9g%s and should be %.9g", d, got, trial_meaning(got), want);
            return;
        }
    }
}

/* dlogits [T, own] = (p - onehot(label)) / rows, smoothed; 0 in rows without a label. */
static void expect_gradient(const struct judge *j, struct trial *r, const struct shape *s)
{
    double want[ROWS * COLUMNS], bound[ROWS * COLUMNS];
    const int rows = labelled(s);
    add_rows(s);
    for (int d = 0; d < r->devices && !j->failed; d++) {
        const int64_t own = r->device[d].number[2];
        for (int t = 0; t < s->T; t++)
            for (int64_t k = 0; k < own; k++) {
                /* v is the column of the whole matrix that is the device's column k. */
                const int64_t v = column(j, s->V, r->devices, d, k);
                const double p = probability(t, v), chosen = (v == labels[t]) * (1 - s->smoothing);
                const double evenly = s->smoothing / (double)s->V;
                /* A smoothed label is 1 - smoothing at the label, and smoothing / V in every column. */
                want[t * own + k] = labels[t] < 0 ? 0 : (p - chosen - evenly) / rows;
                bound[t * own + k] = labels[t] < 0 ? 0 : allowed(s, p + chosen + evenly) / rows + 0x1p-126;
            }
        trial_expect_near(r, d, 2, want, bound, s->T * own, "gradient");
    }
}

enum look { AT_LOSS, AT_GRADIENT, AT_SENT, AT_MEMORY };
enum what { PLAIN, UNLABELLED, SMOOTHED };

/* Compare with the bytes of one all_gather of maxima and one all_reduce of three sums a row. */
static void expect_use(struct judge *j, struct trial *r, const struct shape *s, enum look look)
{
    const uint64_t sum = trial_bytes(r), W = (uint64_t)r->devices, T = (uint64_t)s->T;
    for (int d = 0; look == AT_MEMORY && d < r->devices && !j->failed; d++)
        trial_expect_peak(r, d, 4 * (W + 4) * T, "4 (W + 4) T");
    /* The all_gather sends (W-1) W T numbers, the all_reduce 2 (W-1) 3 T. */
    if (look == AT_SENT && !j->failed && sum > 4 * (W - 1) * (W + 6) * T)
        trial_fails(r, "all devices together send %llu bytes; %llu are enough: (W-1) W T numbers for the maxima, and "
                    "2 (W-1) 3 T for the sums", (unsigned long long)sum,
                    (unsigned long long)(4 * (W - 1) * (W + 6) * T));
    for (int d = 0; look == AT_SENT && W > 1 && d < r->devices && !j->failed; d++)
        if (r->device[d].collectives > 2)
            trial_fails(r, "device %d calls collective operations %llu times; twice is enough: an all_gather of the "
                        "maxima, an all_reduce of all sums", d, (unsigned long long)r->device[d].collectives);
}

/* Four shapes for values, one for use. */
static void try_loss(struct judge *j)
{
    const enum look look = j->check->look;
    const bool unlabelled = j->check->what == UNLABELLED;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look < AT_SENT && !unlabelled ? SHAPES : 1) && !j->failed; i++) {
            struct shape s = shape(j, look < AT_SENT && !unlabelled ? (i + 1) % SHAPES : i);
            s.smoothing = j->check->what == SMOOTHED ? 0.1 : 0, s.unlabelled = unlabelled;
            struct trial *r = prepare(j, "vocabulary_loss", *W, &s);
            if (trial_call(r)) {
                /* The loss is compared first; a gradient of a wrong loss would only confuse. */
                expect_loss(r, &s);
                if (look == AT_GRADIENT && !j->failed) expect_gradient(j, r, &s);
                if (!j->failed) expect_use(j, r, &s, look);
            }
            trial_close(r);
        }
}

static const char *const functions[] = { "vocabulary_max", "vocabulary_loss", NULL };

extern const struct lesson lesson_10_vocabulary;
const struct lesson lesson_10_vocabulary = {
    .folder = "10_vocabulary", .title = "The loss, with a vocabulary on several devices", .file = "vocabulary.c",
    .functions = functions,
    .vary = { { "LAYOUT", 2 } },
    .check = {
        { 1, "max", "the largest logit of each row, on all devices", 3, { check_max },
          { "A sum of maxima is no maximum.  What else can devices send?",
            "all_gather(g, max, all, T * W) puts device d's T numbers at all[d * T].",
            "Which number is a maximum of no columns, so that it never wins?  -INFINITY." } },
        { 2, "loss", "the mean over all rows with a label", 4, { try_loss, AT_LOSS },
          { "log p[label] = (logit[label] - max) - log of the sum of exp(logit - max).  What of it does a device have?",
            "Only one device has the label's column; the others add 0.",
            "exp(10000) is infinite, exp(10000 - max) is not.  All devices must subtract the same maximum.",
            "exp(-1000) is 0, and log 0 is infinite: log p is made of the logit, not of p." } },
        { 2, "gradient", "each device's columns of the gradient", 4, { try_loss, AT_GRADIENT },
          { "The gradient of a row is (p - 1 at the label) / number of rows with a label.",
            "After the all_reduce every device knows the row's sum; its own exponentials it computes again.",
            "Rows without a label: all zeros, and they are not counted." } },
        { 2, "unlabelled", "a batch without any label", 1, { try_loss, AT_GRADIENT, UNLABELLED },
          { "0/0 is not a number.  Every device still has to take part in the all_gather and the all_reduce." } },
        { 2, "smoothing", "labels that are a little uncertain", 3, { try_loss, AT_GRADIENT, SMOOTHED },
          { "Every column of the *whole* vocabulary gets smoothing / V, not only this device's.",
            "The mean of log p[v] over v needs the sum of the logits: one more number in the all_reduce.",
            "The mean of log p[v] is (sum of all logit - max) / V - log of the sum of exp." } },
        { 2, "sent", "no logits are sent", 2, { try_loss, AT_SENT },
          { "What is sent must not grow with the vocabulary: three numbers for each row, and a maximum.",
            "Each collective operation has its latency: numbers that are ready at the same time travel together." } },
        { 2, "memory", "little is allocated", 2, { try_loss, AT_MEMORY },
          { "There is no need for a copy of the logits: exponentials can be computed twice.",
            "W T numbers for the maxima are needed once: release them before the sums take their 3 T." } },
    },
};
