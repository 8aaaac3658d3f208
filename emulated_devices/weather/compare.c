/* compare.c -- the one-device run beside devices, and the comparison piece by piece.
 *
 * cli/train/weather.c and tests call this file.  A difference is a verdict; errors are ERR_MEMORY and those of
 * messages.
 */
#include "emulated_devices/weather/compare.h"
#include "emulated_devices/weather/saved.h"
#include "emulated_devices/device/compute.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool speaks(const struct weather_learner *learner) { return learner->comm->rank == 0; }

static int64_t weather_numbers(const struct weather_learner *learner)
{
    return learner->network.share_at[WEATHER_SHARES];
}

static double *weather_reference_room(int64_t n, enum error_code *e, struct error *err)
{
    double *const x = *e ? NULL : calloc((size_t)n + 1, sizeof *x);
    if (x == NULL && !*e) *e = fail(err, ERR_MEMORY, "no memory for %lld numbers of the one-device run", (long long)n);
    return x;
}

enum error_code weather_reference_open(struct weather_reference *reference, const struct weather_learner *learner,
                                       struct error *err)
{
    const struct weather_job *const job = learner->job;
    const struct weather_network *const n = &learner->network;
    const int64_t points = weather_points(&n->shape), fields = job->samples * points;
    enum error_code e = OK;
    *reference = (struct weather_reference){ .alone = false };
    reference->whole = weather_reference_room(weather_numbers(learner), &e, err);
    if (speaks(learner) && !e) {
        e = weather_run_open(&reference->run, n, job->samples, job->members, job->alpha, job->seed, err);
        for (int k = 0; k < job->optimizer->states; k++)
            reference->state[k] = weather_reference_room(weather_numbers(learner), &e, err);
        reference->now = weather_reference_room(fields * n->channels[SLOT_STATE], &e, err);
        reference->next = weather_reference_room(fields * n->channels[SLOT_STATE], &e, err);
        reference->noise = weather_reference_room(fields * job->members * n->channels[SLOT_NOISE], &e, err);
        reference->all = weather_reference_room(weather_numbers(learner) * learner->comm->size, &e, err);
        reference->finding = calloc((size_t)learner->comm->size, sizeof *reference->finding);
        if (!e && reference->finding == NULL)
            e = fail(err, ERR_MEMORY, "no memory for the findings of %d devices", learner->comm->size);
    }
    return comm_agree(learner->comm, e, err);
}

void weather_reference_close(struct weather_reference *reference)
{
    if (reference->run.network) weather_run_close(&reference->run);
    for (int k = 0; k < OPTIMIZER_MAX_STATES; k++) free(reference->state[k]);
    free(reference->now), free(reference->next), free(reference->noise), free(reference->whole), free(reference->all),
        free(reference->finding);
    *reference = (struct weather_reference){ 0 };
}

enum error_code weather_reference_resume(struct weather_reference *reference, const struct weather_learner *learner,
                                         const struct weather_saved *saved, struct error *err)
{
    enum error_code e = OK;
    for (int state = -1; state < learner->job->optimizer->states && speaks(learner) && !e; state++)
        e = weather_saved_whole(saved, learner, state, state < 0 ? reference->run.weights : reference->state[state],
                                err);
    return comm_agree(learner->comm, e, err);
}

/* ---- one device -------------------------------------------------------------------------------------------------- */

static enum error_code weather_reference_run(struct weather_reference *reference, const struct weather_learner *learner,
                                struct error *err)
{
    const struct weather_job *const job = learner->job;
    const struct weather_network *const n = &learner->network;
    const int64_t points = weather_points(&n->shape), state = n->channels[SLOT_STATE] * points,
        noise = n->channels[SLOT_NOISE] * points;
    const struct weather_batch batch = { reference->now, reference->noise, reference->next };
    enum error_code e = OK;
    for (int64_t b = 0; b < job->samples && !e; b++) {
        e = weather_wave(n, job->seed, learner->step, b, reference->now + b * state, reference->next + b * state, err);
        for (int64_t m = 0; m < job->members && !e; m++)
            e = weather_noise(n, job->seed, learner->step, b, m, reference->noise + (m * job->samples + b) * noise,
                              err);
    }
    return e ? e : weather_run_pass(&reference->run, &batch, &reference->loss, err);
}

/* Step the whole parameters, each with its numbers of the optimizer. */
static void update(struct weather_reference *reference, const struct weather_learner *learner, double norm)
{
    const struct weather_job *const job = learner->job;
    for (int i = 0; i < learner->network.params; i++) {
        const struct weather_param *const p = &learner->network.param[i];
        struct tensor state[OPTIMIZER_MAX_STATES] = { tensor_none };
        for (int k = 0; k < job->optimizer->states; k++)
            state[k] = tensor_1d(reference->state[k] + p->at, F64, p->count);
        /* The learner has counted the step already. */
        optimizer_step(job->optimizer, tensor_1d(reference->run.weights + p->at, F64, p->count),
                       tensor_1d(reference->run.gradients + p->at, F64, p->count), state,
                       weather_step_of(job, p, learner->step, norm));
    }
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* The difference of pieces, over the largest number of the whole parameter. */
static struct weather_finding compare_pieces(const struct weather_learner *learner,
                                             enum tensor_kind kind, const double *whole)
{
    struct weather_finding far = { .param = -1 };
    struct views v = views_of(learner->comm->device);
    const struct weather_own own = weather_own_of(learner, kind);
    const double *const x = view_read(&v, own.numbers).data;
    for (int i = 0; i < learner->network.params; i++) {
        const struct weather_param *const p = &learner->network.param[i];
        double largest = 0, most = 0;
        for (int64_t k = 0; k < p->count; k++) largest = fmax(largest, fabs(whole[p->at + k]));
        const struct interval here = weather_owned(learner, &own, i);
        for (int64_t k = here.first; k < interval_end(here); k++) {
            const double d = fabs(x[learner->piece[i].at + k - own.part.first]
                                  - whole[p->at + weather_piece_place(learner, i, k)]);
            if (!(d <= most)) most = d;
        }
        const double off = most == 0 ? 0 : most / largest;
        far.count++;
        if (far.param < 0 || !(off <= far.off)) far.off = off, far.param = i;
    }
    views_end(&v);
    return far;
}

/* Note a difference; the first that is too far is the verdict. */
static void note(struct weather_reference *reference, double off, double bound, const char *format, const char *name,
                 int64_t step, int device)
{
    char text[sizeof reference->what];
    snprintf(text, sizeof text, format, name);
    if (!(off <= reference->farthest) && bound > 0) {
        reference->farthest = off;
        memcpy(reference->what, text, sizeof text);
    }
    if (!(off <= bound) && !reference->verdict.code)
        fail(&reference->verdict, ERR_CHECK, "step %lld: %s of device %d differs from the one-device run by %.3g of "
             "its largest number, more than %.3g", (long long)step, text, device, off, bound);
}

/* Tell all devices the reference's numbers, and bring their findings to rank 0. */
static enum error_code weather_reference_compare(struct weather_reference *reference,
                                                 const struct weather_learner *learner, enum tensor_kind kind,
                                                 const double *whole, double bound, const char *format,
                                                 int64_t step, struct error *err)
{
    const int64_t n = weather_numbers(learner);
    if (speaks(learner)) memcpy(reference->whole, whole, (size_t)n * sizeof *whole);
    enum error_code e = comm_tell(learner->comm, reference->whole, (uint64_t)n * sizeof *whole, err);
    if (e) return e;
    const struct weather_finding far = compare_pieces(learner, kind, reference->whole);
    e = comm_bring(learner->comm, &far, sizeof far, reference->finding, err);
    for (int r = 0; r < learner->comm->size && speaks(learner) && !e; r++) {
        const struct weather_finding *const one = &reference->finding[r];
        reference->compared += one->count;
        note(reference, one->off, bound, format, learner->network.param[one->param].name, step, r);
    }
    return e;
}

/* Bring the devices' gradients to rank 0: each number from the first device that has it. */
static enum error_code take_gradients(struct weather_reference *reference, const struct weather_learner *learner,
                                      struct error *err)
{
    const int64_t n = weather_numbers(learner);
    struct views v = views_of(learner->comm->device);
    const struct weather_own own = weather_own_of(learner, KIND_GRADIENT);
    const double *const g = view_read(&v, own.numbers).data;
    memset(reference->whole, 0, (size_t)n * sizeof *g);
    for (int i = 0; i < learner->network.params; i++) {
        const struct interval here = weather_owned(learner, &own, i);
        for (int64_t k = here.first; k < interval_end(here) && own.first && weather_piece_is_first(learner, i); k++)
            reference->whole[learner->network.param[i].at + weather_piece_place(learner, i, k)] =
                g[learner->piece[i].at + k - own.part.first];
    }
    views_end(&v);
    const enum error_code e = comm_bring(learner->comm, reference->whole, (uint64_t)n * sizeof *g, reference->all, err);
    if (e || !speaks(learner)) return e;
    memset(reference->run.gradients, 0, (size_t)n * sizeof *g);
    for (int r = 0; r < learner->comm->size; r++)
        for (int64_t i = 0; i < n; i++) reference->run.gradients[i] += reference->all[r * n + i];
    return OK;
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

enum error_code weather_reference_gradients(struct weather_reference *reference, const struct weather_learner *learner,
                                            const struct weather_step *step, struct error *err)
{
    const int64_t number = learner->step + 1;
    enum error_code e = speaks(learner) ? weather_reference_run(reference, learner, err) : OK;
    e = comm_agree(learner->comm, e, err);
    if (!e && speaks(learner))
        note(reference, fabs(step->loss / reference->loss - 1), WEATHER_BOUND, "%s", "the loss", number, 0);
    if (!e) e = weather_reference_compare(reference, learner, KIND_GRADIENT, reference->run.gradients,
                                          WEATHER_BOUND, "the gradient of %s", number, err);
    /* A wrong gradient makes the norm wrong, too, so the gradients are looked at first. */
    if (!e && speaks(learner)) {
        const double norm = norm_of(reference->run.gradients, weather_numbers(learner));
        note(reference, fabs(step->norm / norm - 1), WEATHER_BOUND, "%s", "the norm", number, 0);
        reference->compared += 2;
    }
    if (!e && !reference->alone) e = take_gradients(reference, learner, err);
    return e;
}

enum error_code weather_reference_weights(struct weather_reference *reference, const struct weather_learner *learner,
                                          const struct weather_step *step, struct error *err)
{
    /* With the same gradients each element is stepped by the same operations. */
    if (speaks(learner)) update(reference, learner, step->norm);
    return weather_reference_compare(reference, learner, KIND_WEIGHT, reference->run.weights,
                                     reference->alone ? WEATHER_BOUND : 0, "the weight %s", learner->step, err);
}
