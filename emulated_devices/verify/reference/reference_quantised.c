/* reference_quantised.c -- the reference continues from the devices' gradients, also from those that are sent as
 * codes.
 *
 * compare.c calls.  Both functions are collective; errors are ERR_MEMORY, the same on all devices.
 */
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "emulated_devices/verify/reference/reference.h"
#include "ref/model/params.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>

/* Collect a whole tensor of the devices in new memory on rank 0. */
static enum error_code reference_quantised_take(struct trainer *trainer, enum tensor_kind kind, int i,
                                                struct tensor like, struct tensor *out, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    *out = like;
    out->data = here ? malloc(tensor_bytes(like) + 1) : NULL;
    enum error_code e = here && out->data == NULL
                            ? fail(err, ERR_MEMORY, "no memory for %s", trainer_spec(trainer, i).name) : OK;
    e = comm_agree(trainer->comm, e, err);
    if (!e) collect_whole(trainer, i, kind, *out);
    return e;
}

/* Set the truth to the devices' numbers, and move the twin by the same amount. */
static void go_on_from(struct tensor theirs, struct tensor truth, struct tensor twin)
{
    for (int64_t i = 0; i < tensor_count(theirs); i++)
        tensor_set(twin, i, tensor_get(theirs, i) + (tensor_get(twin, i) - tensor_get(truth, i)));
    tensor_convert(truth, theirs);
}

/* The norms of both runs follow from the gradients that were just taken. */
static void measure_norms(struct reference *reference)
{
    struct serial_run *const runs[] = { &reference->truth, &reference->twin };
    for (int i = 0; i < 2; i++)
        runs[i]->norm = reference_gradient_norm(runs[i]);
}

/* Set the truth's gradients to what devices have sent as codes; the twin keeps its distance from the truth.  All
 * devices send, and rank 0 alone changes its reference. */
static enum error_code take_quantised(struct reference *reference, struct trainer *trainer, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && !e; i++) {
        struct tensor theirs;
        e = reference_quantised_take(trainer, KIND_GRADIENT, i, here ? reference->truth.model.g[i] : tensor_none,
                                     &theirs, err);
        if (!e && here) go_on_from(theirs, reference->truth.model.g[i], reference->twin.model.g[i]);
        free(theirs.data);
    }
    if (here && !e) measure_norms(reference);
    return e;
}

enum error_code reference_take_gradients(struct reference *reference, struct trainer *trainer, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    /* Rank 0 alone knows whether the step is skipped; an agreement tells all devices, because collecting is
     * collective. */
    int skipped = here && (reference->adopts || reference_overflows(reference));
    if (data_tracks(&trainer->data)) return take_quantised(reference, trainer, err);
    struct error unread;
    skipped = group_agree(trainer->comm->everyone, skipped ? fail(&unread, ERR_CHECK, "skipped") : OK, &unread) != OK;
    for (int k = 0; k < plan_replicas(&trainer->plan) && !skipped; k++) {
        struct reference *const one = here ? reference_replica(reference, k) : NULL;
        for (int i = 0; i < model_param_count(&trainer->plan.model); i++)
            reference_follow_one(one, k, trainer, i, KIND_GRADIENT);
        /* The truth has the devices' own directions now, so nothing may be turned. */
        for (int i = 0; i < model_param_count(&trainer->plan.model) && one; i++) one->turn[i].R = 0;
        if (one) measure_norms(one), one->took = true;
    }
    return OK;
}

enum error_code reference_renew(struct reference *reference, struct trainer *trainer, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && !e; i++) {
        struct tensor master;
        e = reference_quantised_take(trainer, KIND_MASTER, i, here ? reference->truth.master[i] : tensor_none,
                                     &master, err);
        if (!e && here) tensor_convert(reference->truth.model.w[i], master);
        free(master.data);
    }
    /* The codes are computed here from the devices' masters, bit for bit as on the devices. */
    if (here && !e) e = quantise_after_step(&trainer->plan, reference->truth.model.w, err);
    return comm_agree(trainer->comm, e, err);
}
