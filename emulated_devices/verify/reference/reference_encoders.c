/* reference_encoders.c -- encoders of inputs other than text in the one-device run and its twin.  reference.c and
 * encoders.c of this folder call these functions.  The only error is ERR_MEMORY. */
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "emulated_devices/verify/reference/reference_bounds.h"
#include "ref/model/trained.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a step ------------------------------------------------------------------------------------------------------ */

enum error_code reference_find_clips(struct reference *reference, struct error *err)
{
    const struct plan *p = reference->plan;
    if (p->encoders.kinds == 0) return OK;
    clips_free(&reference->clips);
    const enum error_code e =
        p->encoders.given ? clips_of_tokens(&reference->clips, p->B, p->S, reference->ids, err)
                          : clips_of_step(&reference->clips, p->encoders.kinds, p->encoders.only, p->seed,
                                          reference->step, p->B, p->S, p->packed ? reference->within : NULL, err);
    if (!e) clips_mark(&reference->clips, 0, p->B * p->S, reference->ids, reference->labels);
    return e;
}

enum error_code reference_encode(const struct reference *reference, struct serial_run *run, struct error *err)
{
    const struct plan *p = reference->plan;
    if (p->encoders.kinds == 0) return OK;
    const enum error_code e = serial_encoders_forward(&run->encoders, run->model.ops, &reference->clips, p->seed,
                                                      reference->step, p->B * p->S, err);
    run->model.patch = run->encoders.at;
    run->model.patches = run->encoders.rows, run->model.d_patches = run->encoders.d_rows;
    return e;
}

static bool encoders_train(const struct reference *reference)
{
    const struct param_spec any = encoder_spec(&modalities[0], reference->plan->model.D, ENCODER_UP_W);
    return param_trains(&reference->plan->model, &any);
}

enum error_code reference_encode_back(const struct reference *reference, struct serial_run *run, struct error *err)
{
    if (reference->plan->encoders.kinds == 0 || reference->plan->optimizer->infers) return OK;
    for (int m = 0; m < run->encoders.kinds; m++)
        memset(run->encoders.g[m].data, 0, tensor_bytes(run->encoders.g[m]));
    const enum error_code e = serial_encoders_backward(&run->encoders, run->model.ops, err);
    for (int m = 0; m < run->encoders.kinds && !encoders_train(reference); m++)
        memset(run->encoders.g[m].data, 0, tensor_bytes(run->encoders.g[m]));
    return e;
}

double reference_gradient_norm(const struct serial_run *run)
{
    return transformer_norm_with(&run->model, run->encoders.g, run->encoders.kinds) / run->model.loss_scale;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* A single twin may by chance be nearer to the truth than another correct program, of which few are twice as far. */
#define TWINS_ROOM 2.0

/* Operations of an optimizer's step that follow one another; perturb.h says why the root of their number. */
enum { STEP_OPERATIONS = 16 };

static struct tensor run_encoder(const struct serial_encoders *encoders, int m, enum tensor_kind kind)
{
    return kind == KIND_GRADIENT ? encoders->g[m] : kind == KIND_WEIGHT ? encoders->w[m]
         : kind == KIND_MASTER ? encoders->master[m] : encoders->state[m][kind - KIND_STATE];
}

struct tensor reference_encoder(const struct reference *reference, int m, enum tensor_kind kind)
{
    return run_encoder(&reference->truth.encoders, m, kind);
}

double reference_encoder_bound(const struct reference *reference, int m, enum tensor_kind kind)
{
    const struct tensor truth = reference_encoder(reference, m, kind),
                        twin = run_encoder(&reference->twin.encoders, m, kind);
    /* Exact sums are the same in any order: no twin measures a bound. */
    if (reference->plan->model.exact) return 0;
    const double response = kind == KIND_GRADIENT ? 0
        : reference->encoder_response[m][kind >= KIND_STATE ? 1 + kind - KIND_STATE : 0];
    const double operations = kind == KIND_GRADIENT ? 2 : PERTURB_LAMBDA * sqrt(STEP_OPERATIONS);
    return TWINS_ROOM * tensor_distance(twin, truth) + response +
           operations * dtype_unit(truth.dtype) * norm_of(reference, truth);
}

double reference_encoders_off(const struct reference *reference)
{
    double sum = 0;
    for (int m = 0; m < reference->truth.encoders.kinds; m++) {
        const double far = reference_encoder_bound(reference, m, KIND_GRADIENT);
        sum += far * far;
    }
    return sum;
}

/* ---- the optimizer's step ---------------------------------------------------------------------------------------- */

/* The tensors of one encoder that a step reads and writes. */
enum { TRIED = 3 + OPTIMIZER_MAX_STATES };

static void list_tried(struct serial_encoders *encoders, int m, int states, struct tensor *list[TRIED])
{
    list[0] = &encoders->w[m], list[1] = &encoders->master[m], list[2] = &encoders->g[m];
    for (int i = 0; i < states; i++) list[3 + i] = &encoders->state[m][i];
}

/* Copy one encoder, so that a step can be tried on the copy. */
static bool copy_encoder(struct serial_encoders *copy, const struct serial_encoders *of, int m, int states)
{
    struct tensor *list[TRIED];
    bool ok = true;
    *copy = *of;
    list_tried(copy, m, states, list);
    for (int i = 0; i < 3 + states; i++) {
        const void *const from = list[i]->data;
        list[i]->data = malloc(tensor_bytes(*list[i]) + 1);
        if (list[i]->data) memcpy(list[i]->data, from, tensor_bytes(*list[i]));
        ok = ok && list[i]->data;
    }
    return ok;
}

static void free_encoder(struct serial_encoders *copy, int m, int states)
{
    struct tensor *list[TRIED];
    list_tried(copy, m, states, list);
    for (int i = 0; i < 3 + states; i++) free(list[i]->data);
}

/* Try the truth's step with each gradient moved by so much; add the distance from the plain step to the response. */
static bool try_moved(struct reference *reference, int m, double by, struct step step, struct serial_encoders *plain)
{
    const struct optimizer *const o = reference->plan->optimizer;
    struct serial_encoders moved;
    bool ok = copy_encoder(&moved, &reference->truth.encoders, m, o->states);
    for (int64_t i = 0; ok && i < tensor_count(moved.g[m]); i++)
        tensor_set(moved.g[m], i, tensor_get(moved.g[m], i) + by);
    if (ok) {
        serial_encoder_step(&moved, m, o, step);
        reference->encoder_response[m][0] += tensor_distance(moved.master[m], plain->master[m]);
        for (int k = 0; k < o->states; k++)
            reference->encoder_response[m][1 + k] += tensor_distance(moved.state[m][k], plain->state[m][k]);
    }
    free_encoder(&moved, m, o->states);
    return ok;
}

/* An element is hardly further off than four times the root mean square, or than the twin's farthest. */
static double reach_of(const struct reference *reference, int m)
{
    const struct tensor g = reference_encoder(reference, m, KIND_GRADIENT),
                        twin = run_encoder(&reference->twin.encoders, m, KIND_GRADIENT);
    const double norm = reference_encoder_bound(reference, m, KIND_GRADIENT);
    return fmax(tensor_farthest(twin, g), norm * fmin(1, 4 / sqrt((double)tensor_count(g))));
}

static enum error_code respond(struct reference *reference, int m, struct step step, struct error *err)
{
    const int states = reference->plan->optimizer->states;
    struct serial_encoders plain;
    const double by = reach_of(reference, m);
    bool ok = copy_encoder(&plain, &reference->truth.encoders, m, states);
    memset(reference->encoder_response[m], 0, sizeof reference->encoder_response[m]);
    if (ok) serial_encoder_step(&plain, m, reference->plan->optimizer, step);
    ok = ok && try_moved(reference, m, by, step, &plain) && try_moved(reference, m, -by, step, &plain);
    free_encoder(&plain, m, states);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to try the optimizer on encoders");
}

enum error_code reference_step_encoders(struct reference *reference, struct step truth, struct step twin,
                                        struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < reference->truth.encoders.kinds && encoders_train(reference) && !e; m++) {
        if (!reference->plan->model.exact) {
            e = respond(reference, m, truth, err);
            serial_encoder_step(&reference->twin.encoders, m, reference->plan->optimizer, twin);
        }
        serial_encoder_step(&reference->truth.encoders, m, reference->plan->optimizer, truth);
    }
    return e;
}

/* ---- following --------------------------------------------------------------------------------------------------- */

/* A device that cannot send or hold a piece ends the job, as in collect_pieces. */
static void follow_kind(struct reference *reference, struct trainer *trainer, int m, enum tensor_kind kind)
{
    struct error err;
    const struct tensor whole = reference ? reference_encoder(reference, m, kind) : tensor_none;
    if (encoders_collect(trainer, m, kind, whole, &err) != OK) comm_give_up(trainer->comm, &err);
    if (reference) memcpy(run_encoder(&reference->twin.encoders, m, kind).data, whole.data, tensor_bytes(whole));
}

void reference_take_encoder_gradients(struct reference *reference, struct trainer *trainer)
{
    struct error unread;
    int skipped = reference && (reference->adopts || reference_overflows(reference));
    if (trainer->plan.encoders.kinds == 0) return;
    /* Rank 0 alone knows whether the step is skipped. */
    skipped = comm_agree(trainer->comm, skipped ? fail(&unread, ERR_CHECK, "skipped") : OK, &unread) != OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !skipped; m++)
        follow_kind(reference, trainer, m, KIND_GRADIENT);
    if (reference == NULL || skipped) return;
    reference->truth.norm = reference_gradient_norm(&reference->truth);
    reference->twin.norm = reference_gradient_norm(&reference->twin);
}

void reference_follow_encoders(struct reference *reference, struct trainer *trainer)
{
    for (int m = 0; m < trainer->plan.encoders.kinds; m++) {
        follow_kind(reference, trainer, m, KIND_WEIGHT);
        if (reference_has_masters(&trainer->plan)) follow_kind(reference, trainer, m, KIND_MASTER);
        for (int k = 0; k < trainer->plan.optimizer->states; k++)
            follow_kind(reference, trainer, m, KIND_STATE + (enum tensor_kind)k);
    }
}
