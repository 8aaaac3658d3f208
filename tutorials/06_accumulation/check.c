/* check.c -- judges lesson 06.  The student writes accumulation.c: mean_loss, batch_gradient and clip.  Microbatches
 * have different numbers of labels, and some have none: their means are NaN and must not be used.  Results are
 * compared to the bit, but for mean_loss.  emulated_devices/course/judge.c runs each check in a process of its own; a
 * failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include <math.h>
#include <string.h>

enum { MICROS = 5, MOST = 400 };

/* These are the microbatches of a device: labels, mean losses, and mean gradients. */
static struct { int micros; int64_t labels[MICROS]; float loss[MICROS], means[MICROS][MOST]; }
    device[WORKER_MOST_DEVICES];

/* EVERYWHERE gives all microbatches labels; the others leave some or all without labels. */
enum labels { EVERYWHERE, SOMEWHERE, NOWHERE };

/* A number is drawn in any case, so that later draws do not depend on `labels`. */
static int64_t draw_labels(struct judge *j, enum labels labels, int d, int m)
{
    const int64_t drawn = judge_draw(j, 1, 60);
    return labels == NOWHERE || (labels == SOMEWHERE && (d % 3 == 1 || m % 2 == 1)) ? 0 : drawn;
}

/* Draw a device's microbatches; those without labels have NaN for a mean. */
static void draw_device(struct judge *j, enum labels labels, int d, int64_t n)
{
    device[d].micros = 1 + (int)judge_draw(j, 0, MICROS - 1);
    judge_rough(j, device[d].loss, MICROS);
    for (int m = 0; m < device[d].micros; m++) {
        device[d].labels[m] = draw_labels(j, labels, d, m);
        judge_rough(j, device[d].means[m], n);
        device[d].loss[m] = fabsf(device[d].loss[m]);
        if (device[d].labels[m] > 0) continue;
        device[d].loss[m] = NAN;
        for (int64_t k = 0; k < n; k++) device[d].means[m][k] = NAN;
    }
}

/* Fill the buffers of one call of batch_gradient on W devices. */
static struct trial *prepare(struct judge *j, enum labels labels, int W, int64_t n)
{
    static const char *const where[] = { "", ", some microbatches without labels",
                                         ", no labels at all" };
    struct trial *r = trial_open(j, "batch_gradient", W, "gradients of %lld numbers%s", (long long)n, where[labels]);
    for (int d = 0; d < W; d++) {
        draw_device(j, labels, d, n);
        const size_t M = (size_t)device[d].micros;
        /* Buffers 0, 1 and 2 have each microbatch's labels, mean loss and mean gradient. */
        trial_copy(r, d, 0, device[d].labels, sizeof(int64_t) * M, BUFFER_IN);
        trial_copy(r, d, 1, device[d].loss, sizeof(float) * M, BUFFER_IN);
        float *means = trial_buffer(r, d, 2, sizeof(float) * M * (size_t)n, BUFFER_IN);
        for (size_t m = 0; m < M; m++) memcpy(means + m * (size_t)n, device[d].means[m], sizeof(float) * (size_t)n);
        /* `gradient` has room for two numbers more, whose values after the call do not matter. */
        trial_buffer(r, d, 3, sizeof(float) * (size_t)(n + 2), BUFFER_OUT);
        r->device[d].number[0] = device[d].micros, r->device[d].number[1] = n;
    }
    return r;
}

/* Element k of the gradient, or with k = n the loss.  A mean times its labels is a sum; all sums over all labels.
 * Each product and each sum is rounded to float. */
static float wanted(const struct judge *j, int W, int64_t n, int64_t k)
{
    float sum = 0, labels = 0;
    for (int d = 0; d < W; d++) {
        const int M = device[d].micros;
        /* `own` is this device's sum of means times labels. */
        float own = 0;
        for (int i = 0; i < M; i++) {
            const int m = judge_choice(j, "ORDER") == 1 ? M - 1 - i : i;
            if (device[d].labels[m] == 0) continue;
            const float mean = k < n ? device[d].means[m][k] : device[d].loss[m];
            const volatile float part = mean * (float)device[d].labels[m];
            own += part, labels += (float)device[d].labels[m];
        }
        sum = d == 0 ? own : sum + own;
    }
    return labels > 0 ? sum / labels : 0;
}

enum look { AT_VALUES, AT_LABELS, AT_CALLS, AT_MEMORY };

/* Count the calls of micro_backward.  Computing a microbatch twice gives the same result, and so does leaving out
 * those without labels.  With AT_LABELS only the latter fails. */
static void look_at_backwards(struct trial *r, int d, enum look look)
{
    int times = 0;
    for (int i = 0; i < r->events; i++)
        times += r->event[i].device == d && r->event[i].kind == EVENT_COMPUTE && r->event[i].bytes == 0;
    if (times < device[d].micros || (times > device[d].micros && look == AT_CALLS))
        trial_fails(r, "device %d calls micro_backward %d times; it has %d microbatch%s, and each is computed once, "
                    "also without labels", d, times, device[d].micros, device[d].micros == 1 ? "" : "es");
}

/* Labels and losses travel with the gradients: nothing is sent besides. */
static void look_at_bytes(struct trial *r, int64_t n)
{
    const uint64_t want = 2 * 4 * (uint64_t)(n + 2) * (uint64_t)(r->devices - 1);
    const uint64_t sum = trial_bytes(r);
    if (sum > want)
        trial_fails(r, "all devices together send %llu bytes; %llu are enough: one all_reduce of n + 2 numbers, of "
                    "gradients, losses and labels", (unsigned long long)sum, (unsigned long long)want);
}

/* Values are compared first; then calls, bytes or memory, as the check asks. */
static void look_at(struct judge *j, struct trial *r, int64_t n, enum look look)
{
    float want[MOST];
    const float loss = wanted(j, r->devices, n, n);
    for (int64_t k = 0; k < n; k++) want[k] = wanted(j, r->devices, n, k);
    for (int d = 0; d < r->devices && !j->failed; d++) {
        trial_expect_floats(r, d, 3, want, n, "gradient");
        /* The function returns the mean loss of all devices' labels. */
        if (!j->failed && r->device[d].real != (double)loss)
            trial_fails(r, "device %d returns %.9g%s; it should be %.9g, the mean loss", d, r->device[d].real,
                        trial_meaning(r->device[d].real), (double)loss);
        /* The two numbers more let loss and labels travel with the gradient, in one all_reduce. */
        if (look == AT_CALLS && !j->failed && r->device[d].collectives != 1)
            trial_fails(r, "device %d calls collective operations %llu times; one all_reduce is enough", d,
                        (unsigned long long)r->device[d].collectives);
        if ((look == AT_CALLS || look == AT_LABELS) && !j->failed) look_at_backwards(r, d, look);
        if (look == AT_MEMORY && !j->failed) trial_expect_peak(r, d, 4 * (uint64_t)n, "n numbers");
    }
    if (look == AT_CALLS && !j->failed) look_at_bytes(r, n);
}

/* Every number of devices is tried, with one to three lengths of the gradient: a short one first. */
static void try_batches(struct judge *j, enum labels labels, enum look look)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look == AT_VALUES ? 3 : look == AT_LABELS ? 2 : 1) && !j->failed; i++) {
            const int64_t usual = look == AT_VALUES && i == 0 ? 5 : i == 1 ? 1 : 101;
            const int64_t n = j->hidden ? judge_draw(j, 1, MOST) : usual;
            struct trial *r = prepare(j, labels, *W, n);
            if (trial_call(r)) look_at(j, r, n, look);
            trial_close(r);
        }
}

static void check_gradient(struct judge *j) { try_batches(j, EVERYWHERE, AT_VALUES); }
static void check_calls(struct judge *j) { try_batches(j, EVERYWHERE, AT_CALLS); }
static void check_memory(struct judge *j) { try_batches(j, EVERYWHERE, AT_MEMORY); }

static void check_empty(struct judge *j)
{
    try_batches(j, SOMEWHERE, AT_LABELS);
    if (!j->failed) try_batches(j, NOWHERE, AT_LABELS);
}

/* ---- on one device ----------------------------------------------------------------------------------------------- */

/* mean_loss runs on one device; its sums of small whole numbers are exact. */
static void check_mean(struct judge *j)
{
    for (int i = 0; i < 6 && !j->failed; i++) {
        const int M = i == 0 ? 2 : 1 + (int)judge_draw(j, 0, MICROS - 1);
        struct trial *r = trial_open(j, "mean_loss", 1, "%d microbatch%s", M, M == 1 ? "" : "es");
        double *loss = trial_buffer(r, 0, 0, sizeof *loss * (size_t)M, BUFFER_IN), sum = 0;
        int64_t *labels = trial_buffer(r, 0, 1, sizeof *labels * (size_t)M, BUFFER_IN), all = 0;
        for (int m = 0; m < M; m++) {
            loss[m] = (double)judge_draw(j, 1, 9);
            /* Runs 3 and 4 have a first microbatch without labels; run 5 has no labels at all. */
            labels[m] = i == 5 || (i > 2 && m == 0) ? 0 : judge_draw(j, 1, 60);
            sum += loss[m] * (double)labels[m], all += labels[m];
            /* A mean over no labels is 0/0. */
            if (labels[m] == 0) loss[m] = NAN;
        }
        const double exact = all > 0 ? sum / (double)all : 0;       /* of small whole numbers */
        r->device[0].number[0] = M;
        if (trial_call(r) && !(fabs(r->device[0].real - exact) <= 1e-12 * exact))
            trial_fails(r, "it returns %.9g%s; it should be %.9g, the mean over all %lld labels", r->device[0].real,
                        trial_meaning(r->device[0].real), exact, (long long)all);
        trial_close(r);
    }
}

/* clip is called with the half, the double, all and almost nothing of the norm.  The variant EPS adds an epsilon to
 * the norm. */
static void check_clip(struct judge *j)
{
    const double eps = judge_choice(j, "EPS") == 1 ? 1e-6 : 0;
    static const double share[] = { 0.5, 2, 1, 1e-5 };          /* of the norm: what is allowed */
    for (int i = 0; i < 4 && !j->failed; i++) {
        const int64_t n = j->hidden ? judge_draw(j, 1, MOST) : 50 + i;
        struct trial *r = trial_open(j, "clip", 1, "%lld numbers, %g of the norm is allowed", (long long)n, share[i]);
        float *x = trial_buffer(r, 0, 0, sizeof *x * (size_t)n, BUFFER_BOTH), want[MOST];
        double squares = 0;
        judge_rough(j, x, n);
        /* Squares are rounded before they are added, as the student's compiler does without fused multiply-adds. */
        for (int64_t k = 0; k < n; k++) {
            const volatile double square = (double)x[k] * x[k];
            squares += square;
        }
        const double norm = sqrt(squares), most = share[i] * norm, factor = most / (norm + eps);
        for (int64_t k = 0; k < n; k++) want[k] = factor < 1 ? x[k] * (float)factor : x[k];
        r->device[0].number[0] = n, r->device[0].given[0] = most;
        if (trial_call(r)) {
            if (r->device[0].real != norm)
                trial_fails(r, "it returns %.17g%s; it should be %.17g, the norm before clipping", r->device[0].real,
                            trial_meaning(r->device[0].real), norm);
            else trial_expect_floats(r, 0, 0, want, n, "gradient");
        }
        trial_close(r);
    }
}

static const char *const functions[] = { "mean_loss", "batch_gradient", "clip", NULL };

extern const struct lesson lesson_06_accumulation;
const struct lesson lesson_06_accumulation = {
    .folder = "06_accumulation", .title = "Microbatches that are not alike", .file = "accumulation.c",
    .functions = functions,
    .vary = { { "ORDER", 2 }, { "EPS", 2 } },
    .check = {
        { 1, "mean", "the mean over all labels", 2, { check_mean },
          { "Think of a microbatch with 1 label, and another one with 99.  How much should each count?",
            "What has no labels has no mean: it must not take part." } },
        { 2, "gradient", "the gradient of the mean over all labels, to the bit", 4, { check_gradient },
          { "Is the mean of the devices' means the mean over all labels?",
            "From a mean and a number of labels you get back the sum: a product.",
            "The number of all labels is known only after the devices have talked to each other." },
          { FITS(TOO_LARGE) | FITS(TOO_SMALL) } },
        { 2, "empty", "microbatches and devices without labels", 2, { check_empty },
          { "0/0 is not a number, and a sum with it is none either.  0 times it, too.  micro_backward is called all "
            "the same.",
            "A device without labels has nothing to add, and must still call all_reduce: the others wait for it.",
            "After the all_reduce every device knows the number of all labels.  If it is 0, nothing is divided." } },
        { 2, "calls", "one all_reduce for all, each microbatch once", 2, { check_calls },
          { "gradient has room for two more numbers.  What else do all devices have to add?" } },
        { 2, "memory", "room for one more gradient", 1, { check_memory },
          { "A microbatch's gradient can be used up before the next one is computed." } },
        { 3, "clip", "the norm of the whole gradient, and the clipped gradient", 2, { check_clip },
          { "The norm returned is that before clipping.",
            "Squares, their sum and the norm are double.",
            "The factor is rounded to float, and each number is multiplied by it; the norm returned is not rounded."
          } },
    },
};
