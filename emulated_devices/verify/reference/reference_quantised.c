/* reference_quantised.c -- the reference continues from the devices' gradients, also from those that are sent as
 * codes. */
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>

/* Collect a whole tensor of the devices in new memory on rank 0. */
static enum error_code take(struct trainer *t, enum tensor_kind kind, int i, struct tensor like, struct tensor *out,
                            struct error *err)
{
    const bool here = t->comm->rank == 0;
    *out = like;
    out->data = here ? malloc(tensor_bytes(like) + 1) : NULL;
    enum error_code e = here && out->data == NULL
                            ? fail(err, ERR_MEMORY, "no memory for %s", trainer_spec(t, i).name) : OK;
    e = comm_agree(t->comm, e, err);
    if (!e) collect_whole(t, i, kind, *out);
    return e;
}

/* Set the truth to the devices' numbers, and move the twin by the same amount. */
static void go_on_from(struct tensor theirs, struct tensor truth, struct tensor twin)
{
    for (int64_t i = 0; i < tensor_count(theirs); i++)
        tensor_set(twin, i, tensor_get(theirs, i) + (tensor_get(twin, i) - tensor_get(truth, i)));
    tensor_convert(truth, theirs);
}

static void measure_norms(struct reference *r)
{
    struct serial_run *const runs[] = { &r->truth, &r->twin };
    for (int i = 0; i < 2; i++)
        runs[i]->norm = transformer_gradient_norm(&runs[i]->model) / runs[i]->model.loss_scale;
}

static enum error_code take_quantised(struct reference *r, struct trainer *t, struct error *err)
{
    const bool here = t->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&t->plan.model) && !e; i++) {
        struct tensor theirs;
        e = take(t, KIND_GRADIENT, i, here ? r->truth.model.g[i] : tensor_none, &theirs, err);
        if (!e && here) go_on_from(theirs, r->truth.model.g[i], r->twin.model.g[i]);
        free(theirs.data);
    }
    if (here && !e) measure_norms(r);
    return e;
}

enum error_code reference_take_gradients(struct reference *r, struct trainer *t, struct error *err)
{
    const bool here = t->comm->rank == 0;
    int skipped = here && (r->adopts || reference_overflows(r));
    if (data_tracks(&t->data)) return take_quantised(r, t, err);
    struct error unread;
    skipped = group_agree(t->comm->everyone, skipped ? fail(&unread, ERR_CHECK, "skipped") : OK, &unread) != OK;
    for (int k = 0; k < plan_replicas(&t->plan) && !skipped; k++) {
        struct reference *const one = here ? reference_replica(r, k) : NULL;
        for (int i = 0; i < model_param_count(&t->plan.model); i++)
            reference_follow_one(one, k, t, i, KIND_GRADIENT);
        for (int i = 0; i < model_param_count(&t->plan.model) && one; i++) one->turn[i].R = 0;
        if (one) measure_norms(one), one->took = true;
    }
    return OK;
}

enum error_code reference_renew(struct reference *r, struct trainer *t, struct error *err)
{
    const bool here = t->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&t->plan.model) && !e; i++) {
        struct tensor master;
        e = take(t, KIND_MASTER, i, here ? r->truth.master[i] : tensor_none, &master, err);
        if (!e && here) tensor_convert(r->truth.model.w[i], master);
        free(master.data);
    }
    if (here && !e) e = quantise_after_step(&t->plan, r->truth.model.w, err);
    return comm_agree(t->comm, e, err);
}
