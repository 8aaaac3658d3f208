/* states.c -- what a framework keeps, gathers and reduces of weights, gradients and optimizer states.  replay.c calls.
 * Sizes are whole units of the data scheme, divided by how many devices share them.  ERR_MEMORY alone can come up. */
#include "emulated_devices/train/memory_of/states.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/units.h"
#include <stdlib.h>

static const struct shards *states_shards(const struct states *states) { return &states->trainer->data.shards; }

static bool reduces(const struct states *states) { return states_shards(states)->gradients > 1; }
static bool gathers(const struct states *states) { return states_shards(states)->weights > 1; }

/* A program that keeps weights in a wide format computes with copies of them. */
static bool casts(const struct states *states)
{
    return !gathers(states) && states->profile->formats.gathered > 0
           && states->profile->formats.gathered < states->profile->formats.weight;
}

static bool is_root(const struct states *states, int part) { return part == 0 || part == states->parts - 1; }
static bool is_pipeline(const struct states *states) { return states->trainer->plan.mesh.size[PP] > 1; }

/* Whether all microbatches add to a gradient before it is reduced: as the scheme says, or as FSDP2 in a pipeline. */
static bool sums_first(const struct states *states)
{
    return states_shards(states)->once || (states->profile->root_stays && is_pipeline(states));
}

/* Whether gathered weights stay for the whole step. */
static bool stays(const struct states *states, int part)
{
    return casts(states) || sums_first(states) || (states->profile->root_stays && is_root(states, part));
}

static int64_t cut(int64_t elements, int shards) { return (elements + shards - 1) / shards; }

static void states_keep(struct states *states, enum memory_kind kind, int64_t elements, int bytes)
{
    if (elements > 0 && bytes > 0)
        replayed_push(&states->kept,
                      replayed_make(states->pieces, kind, ON_COMPUTE, (uint64_t)(elements * bytes)));
}

/* A tensor for each parameter of a unit, cut for so many devices. */
static void states_keep_unit(struct states *states, enum memory_kind kind, const struct unit *unit, int shards,
                             int bytes)
{
    for (int i = 0; i < unit->count; i++)
        states_keep(states, kind, cut(tensor_count(parameter_view(&unit->parameter[i], NULL, F32)), shards), bytes);
}

/* This device's part of all that the optimizer steps; experts may be shared by fewer devices. */
static int64_t stepped_elements(const struct states *states)
{
    const struct data_parallel *d = &states->trainer->data;
    int64_t sum = 0;
    for (int u = 0; u < d->units; u++) sum += cut(d->unit[u].elements, d->unit[u].over->shards.optimizer);
    return sum;
}

static int64_t elements_of_all(const struct states *states)
{
    int64_t sum = 0;
    for (int u = 0; u < states->trainer->data.units; u++) sum += states->trainer->data.unit[u].elements;
    return sum;
}

/* Elements of a part, or this device's part of their gradients. */
static int64_t elements_of_part(const struct states *states, int part, bool reduced)
{
    int unit[PART_UNITS];
    const struct data_parallel *d = &states->trainer->data;
    const int n = data_units_of_part(d->config, &d->request, part, unit);
    int64_t sum = 0;
    /* Tied weights are gathered and reduced once, with the embedding, where one device has both of their uses. */
    for (int i = 0; i < n; i++)
        if (part == 0 || unit[i] != UNIT_TOKENS || is_pipeline(states))
            sum += cut(d->unit[unit[i]].elements, reduced ? d->unit[unit[i]].over->shards.gradients : 1);
    return sum;
}

enum error_code states_open(struct states *states, struct error *err)
{
    const struct data_parallel *d = &states->trainer->data;
    const struct memory_formats *f = &states->profile->formats;
    states->parts = (int)states->trainer->plan.model.L + 2;
    states->part = calloc((size_t)states->parts, sizeof *states->part);
    if (states->part == NULL) return fail(err, ERR_MEMORY, "no memory for the states of a profile");
    for (int i = 0; i < states->parts; i++)
        states->part[i].elements = elements_of_part(states, i, false),
        states->part[i].own_elements = elements_of_part(states, i, true);
    for (int u = 0; u < d->units; u++)
        states_keep_unit(states, OF_WEIGHTS, &d->unit[u], d->unit[u].over->shards.weights, f->weight);
    if (states->profile->keeps_gradients) states_keep(states, OF_GRADIENTS, elements_of_all(states), f->gradient);
    states_keep(states, OF_OPTIMIZER, stepped_elements(states), f->master);
    return OK;
}

void states_close(struct states *states)
{
    for (int i = 0; i < states->parts && states->part; i++) {
        struct part_state *p = &states->part[i];
        replayed_drop(states->pieces, &p->gathered), replayed_drop(states->pieces, &p->coming);
        replayed_drop(states->pieces, &p->sum), replayed_drop(states->pieces, &p->reduced);
        replayed_drop_all(states->pieces, &p->made);
    }
    replayed_drop(states->pieces, &states->gathering), replayed_drop(states->pieces, &states->reducing);
    replayed_drop(states->pieces, &states->bucket);
    replayed_drop_all(states->pieces, &states->kept);
    free(states->part);
}

void states_begin(struct states *states)
{
    for (int i = 0; i < states->parts; i++) replayed_drop(states->pieces, &states->part[i].reduced);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static uint64_t gathered_bytes(const struct states *states, int part)
{
    return (uint64_t)(states->part[part].elements * states->profile->formats.gathered);
}

/* The buffer of an all-gather, from which the weights are copied. */
static void start_gathering(struct states *states, int part)
{
    struct part_state *p = &states->part[part];
    if (gathers(states) && p->gathered == NULL && p->coming == NULL)
        p->coming = replayed_make(states->pieces, OF_MESSAGES, ON_MESSAGES, gathered_bytes(states, part));
}

/* The buffer of the all-gather before lives until the next one has been copied.  A backward pass starts the next
 * layer's before it computes. */
void states_acquire(struct states *states, int part, bool backward)
{
    struct part_state *p = &states->part[part];
    if (!gathers(states) && !casts(states)) return;
    if (p->gathered == NULL) {
        start_gathering(states, part);
        p->gathered = replayed_make(states->pieces, OF_GATHERED, ON_COMPUTE, gathered_bytes(states, part));
        replayed_drop(states->pieces, &states->gathering);
        states->gathering = p->coming, p->coming = NULL;
    }
    if (backward && part > 1 && !is_root(states, part - 1) && !states->trainer->data.request.no_prefetch
        && states->part[part - 1].elements > 0)
        start_gathering(states, part - 1);
}

void states_release(struct states *states, int part, bool backward)
{
    const bool last_layer = part == states->parts - 2 && states->profile->root_stays;
    if (stays(states, part) || (!backward && (last_layer || states->trainer->data.request.keep))) return;
    replayed_drop(states->pieces, &states->part[part].gathered);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

void states_gradient(struct states *states, int part, int64_t elements)
{
    struct replayed *made;
    if (states->profile->formats.made == 0 || elements == 0) return;
    made = replayed_make(states->pieces, OF_GRADIENTS, ON_COMPUTE,
                      (uint64_t)(elements * states->profile->formats.made));
    if (states->profile->life == ADDED_AT_ONCE) replayed_drop(states->pieces, &made);
    else replayed_push(&states->part[part].made, made);
}

/* Copy the gradients into one buffer, and reduce them to this device's part. */
static void reduce_part(struct states *states, int part, int64_t elements, int64_t own)
{
    const struct memory_formats *f = &states->profile->formats;
    struct part_state *p = &states->part[part];
    struct replayed *buffer = replayed_make(states->pieces, OF_MESSAGES, ON_COMPUTE, (uint64_t)(elements * f->reduced));
    replayed_drop_all(states->pieces, &p->made);
    replayed_drop(states->pieces, &p->sum);
    replayed_drop(states->pieces, &states->reducing);
    states->reducing = buffer;
    if (p->reduced == NULL)
        p->reduced = replayed_make(states->pieces, OF_GRADIENTS, ON_COMPUTE,
                                (uint64_t)(own * f->gradient));
}

/* Without shards the gradients stay whole, in the format that the optimizer reads. */
static void keep_part(struct states *states, int part)
{
    struct part_state *p = &states->part[part];
    if (p->reduced == NULL && !states->profile->keeps_gradients)
        p->reduced = replayed_make(states->pieces, OF_GRADIENTS, ON_COMPUTE,
                                (uint64_t)(p->elements * states->profile->formats.gradient));
    replayed_drop_all(states->pieces, &p->made);
}

static void make_bucket(struct states *states)
{
    const int64_t all = elements_of_all(states), wanted = states->profile->bucket;
    if (states->bucket == NULL && wanted > 0 && states_shards(states)->P > 1)
        states->bucket = replayed_make(states->pieces, OF_MESSAGES, ON_COMPUTE,
                                    (uint64_t)((all < wanted ? all : wanted) * states->profile->formats.made));
}

/* Gradients of microbatches are added in the format of the reduction, and reduced once. */
static bool adds_first(struct states *states, int part, bool last)
{
    struct part_state *p = &states->part[part];
    if (!sums_first(states)) return false;
    if (p->sum == NULL)
        p->sum = replayed_make(states->pieces, OF_GRADIENTS, ON_COMPUTE,
                            (uint64_t)(p->elements * states->profile->formats.reduced));
    replayed_drop_all(states->pieces, &p->made);
    return !last;
}

void states_part_done(struct states *states, int part, bool last)
{
    const int root = states->parts - 1;
    struct part_state *p = &states->part[part];
    make_bucket(states);
    if (states->profile->life != UNTIL_PART_ENDS) return;
    if (!reduces(states)) {
        keep_part(states, part);
        return;
    }
    if (adds_first(states, part, last)) return;
    /* The embedding, the last norm and the head are one group, which is complete with the embedding. */
    if (states->profile->root_stays && part == root && !sums_first(states)) return;
    if (states->profile->root_stays && part == 0 && !sums_first(states)) {
        struct part_state *head = &states->part[root];
        while (head->made) {
            struct replayed *one = head->made;
            head->made = one->next;
            replayed_push(&p->made, one);
        }
        reduce_part(states, part, p->elements + head->elements, p->own_elements + head->own_elements);
        return;
    }
    reduce_part(states, part, p->elements, p->own_elements);
}

void states_pass_done(struct states *states)
{
    for (int i = 0; i < states->parts && states->profile->life == UNTIL_PASS_ENDS; i++)
        replayed_drop_all(states->pieces, &states->part[i].made);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* The first step creates the states, parameter by parameter. */
void states_step(struct states *states)
{
    const struct data_parallel *d = &states->trainer->data;
    const struct memory_formats *f = &states->profile->formats;
    struct replayed *work;
    states->pieces->doing = (struct doing){ .pass = "the optimizer's step", .micro = -1 };
    for (int i = 0; i < states->parts; i++) replayed_drop(states->pieces, &states->part[i].gathered);
    replayed_drop(states->pieces, &states->reducing), replayed_drop(states->pieces, &states->bucket);
    for (int u = 0; u < d->units && !states->stepped; u++)
        for (int k = 0; k < d->optimizer->states; k++)
            states_keep_unit(states, OF_OPTIMIZER, &d->unit[u], d->unit[u].over->shards.optimizer, f->state);
    states->stepped = true;
    work = replayed_make(states->pieces, OF_WORK, ON_COMPUTE,
                      (uint64_t)(stepped_elements(states) * f->step));
    replayed_drop(states->pieces, &work);
}
