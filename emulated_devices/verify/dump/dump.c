/* dump.c -- collects a run's tensors on rank 0 under golden names, for one file.  run/golden.c calls on all ranks in
 * the same order.  Only rank 0 keeps records.  Without memory for a record the code is ERR_MEMORY; run/golden.c
 * frees the dump. */
#include "emulated_devices/verify/dump/dump.h"
#include "emulated_devices/verify/dump/dump_pieces.h"
#include "emulated_devices/model/collect.h"
#include "ref/golden/replay.h"
#include "ref/model/params.h"
#include "ref/numeric/convert.h"
#include <stdio.h>
#include <stdlib.h>

/* Allocate one more tensor on rank 0; elsewhere do nothing. */
static enum error_code dump_add(struct train_dump *dump, bool here, const char *name, struct tensor like,
                                enum dtype dtype, struct tensor *out, struct error *err)
{
    *out = tensor_none;
    if (!here) return OK;
    if (dump->count == dump->room) {
        const int room = dump->room ? 2 * dump->room : 256;
        struct record *more = realloc(dump->all, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory to dump %s", name);
        dump->all = more, dump->room = room;
    }
    struct record *r = &dump->all[dump->count];
    *r = (struct record){ .values = like };
    snprintf(r->name, sizeof r->name, "%s", name);
    r->values.dtype = dtype;
    r->values.data = calloc(1, tensor_bytes(r->values) + 1);
    if (r->values.data == NULL) return fail(err, ERR_MEMORY, "no memory to dump %s", name);
    dump->count++;
    *out = r->values;
    return OK;
}

/* Divide the last tensor by the loss scale, in a format that holds all quotients and that files have. */
static enum error_code unscale(struct train_dump *dump, double scale, struct error *err)
{
    struct tensor *t = &dump->all[dump->count - 1].values, wide = *t;
    if (scale == 1 && dump_format(t->dtype) == t->dtype) return OK;
    wide.dtype = dump_format(dtype_wide(t->dtype));
    wide.data = malloc(tensor_bytes(wide) + 1);
    if (wide.data == NULL) return fail(err, ERR_MEMORY, "no memory to dump %s", dump->all[dump->count - 1].name);
    convert_numbers(wide.data, wide.dtype, t->data, t->dtype, tensor_count(wide));
    for (int64_t i = 0; i < tensor_count(wide); i++) tensor_set(wide, i, tensor_get(wide, i) / scale);
    free(t->data);
    *t = wide;
    return OK;
}

static enum error_code dump_numbers(struct train_dump *dump, bool here, const char *name, const double *x, int64_t n,
                                    struct error *err)
{
    struct tensor t;
    const enum error_code e = dump_add(dump, here, name, tensor_1d(NULL, F64, n), F64, &t, err);
    for (int64_t i = 0; here && !e && i < n; i++) tensor_set(t, i, x[i]);
    return e;
}

enum error_code train_dump_activations(struct train_dump *dump, struct probes *probes, const char *prefix,
                                       const char *only, const struct recording *record,
                                       const struct step_result *result, struct error *err)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < probes->count && !e; i++) {
        const struct expected *x = &probes->expected[i];
        char name[RECORD_NAME - 64], full[RECORD_NAME];
        struct tensor whole;
        if (!expected_is_dumped(x, only)) continue;
        activation_name(name, sizeof name, x->name, x->layer, (int)t->plan.model.L);
        snprintf(full, sizeof full, "%.40s%s/%s", prefix, x->gradient ? "grad" : "act", name);
        e = comm_agree(
            t->comm, dump_add(dump, here, full, here ? record->all[i].truth : tensor_none, probes->expected[i].format,
                              &whole, err),
            err);
        if (!e) probes_gather(probes, i, whole);
        if (!e && probes_have_copied(probes, i)) probes_add_copied(probes, i, whole);
        if (!e && here && x->gradient) e = unscale(dump, result->loss_scale, err);
    }
    return comm_agree(t->comm, e, err);
}

/* Dump one kind of tensor of all parameters. */
static enum error_code dump_parameters(struct train_dump *dump, struct trainer *trainer, const char *folder,
                                       enum tensor_kind kind, double scale, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && !e; i++) {
        const struct param_spec spec = trainer_spec(trainer, i);
        char name[RECORD_NAME];
        struct tensor whole;
        snprintf(name, sizeof name, "%s/%s", folder, spec.name);
        const struct tensor shape = { .ndim = spec.ndim, .dim = { spec.dim[0], spec.ndim == 2 ? spec.dim[1] : 0 } };
        e = comm_agree(trainer->comm, dump_add(dump, here, name, shape, data_format(&trainer->data, kind),
                                               &whole, err), err);
        if (!e) collect_whole(trainer, i, kind, whole);
        if (!e && here) e = unscale(dump, scale, err);
    }
    return e;
}

enum error_code train_dump_gradients(struct train_dump *dump, struct trainer *trainer, const struct step_result *result,
                                     struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    enum error_code e = dump_numbers(dump, here, "loss", &result->loss, 1, err);
    if (!e) e = dump_numbers(dump, here, "norm", &result->norm, 1, err);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = dump_parameters(dump, trainer, "grad", KIND_GRADIENT, result->loss_scale, err);
    return comm_agree(trainer->comm, e, err);
}

enum error_code train_dump_step(struct train_dump *dump, const struct step_result *result, int64_t step,
                                struct error *err)
{
    double *loss = realloc(dump->loss, (size_t)(step + 1) * sizeof *loss);
    if (loss) dump->loss = loss;
    double *norm = realloc(dump->norm, (size_t)(step + 1) * sizeof *norm);
    if (norm) dump->norm = norm;
    if (loss == NULL || norm == NULL) return fail(err, ERR_MEMORY, "no memory for %lld losses", (long long)step);
    loss[step] = result->loss, norm[step] = result->norm;
    return OK;
}

enum error_code train_dump_later_gradients(struct train_dump *dump, struct trainer *trainer,
                                           const struct step_result *result, struct error *err)
{
    char folder[64];
    snprintf(folder, sizeof folder, "%s/%lld/grad", trainer->plan.optimizer->name, (long long)trainer->step + 1);
    return dump_parameters(dump, trainer, folder, KIND_GRADIENT, result->loss_scale, err);
}

enum error_code train_dump_weights(struct train_dump *dump, struct trainer *trainer, int64_t step, struct error *err)
{
    const struct optimizer *o = trainer->plan.optimizer;
    char at[24] = "", name[RECORD_NAME];
    if (step > 0) snprintf(at, sizeof at, "/%lld", (long long)step);
    snprintf(name, sizeof name, "%s%s/weight", o->name, at);
    enum error_code e = dump_parameters(dump, trainer, name, KIND_WEIGHT, 1, err);
    for (int64_t l = 0; l < trainer->plan.model.L && !e; l++) {
        const struct param_spec s = model_router_bias(&trainer->plan.model, l);
        char bias[RECORD_NAME];
        snprintf(bias, sizeof bias, "%.31s/%s", name, s.name);
        if (s.ndim > 0)
            e = comm_agree(trainer->comm, dump_numbers(dump, trainer->comm->rank == 0, bias,
                                                       trainer->routers.bias + l * s.dim[0], s.dim[0], err), err);
    }
    for (int k = 0; k < o->states && !e; k++) {
        snprintf(name, sizeof name, "%s%s/%s", o->name, at, o->state_name[k]);
        e = dump_parameters(dump, trainer, name, KIND_STATE + (enum tensor_kind)k, 1, err);
    }
    return e;
}

enum error_code train_dump_end(struct train_dump *dump, struct trainer *trainer, int64_t steps, struct error *err)
{
    const struct optimizer *o = trainer->plan.optimizer;
    const bool here = trainer->comm->rank == 0;
    char name[RECORD_NAME];
    snprintf(name, sizeof name, "%s/loss", o->name);
    enum error_code e = dump_numbers(dump, here, name, dump->loss, steps, err);
    snprintf(name, sizeof name, "%s/norm", o->name);
    if (!e) e = dump_numbers(dump, here, name, dump->norm, steps, err);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = train_dump_weights(dump, trainer, 0, err);
    return comm_agree(trainer->comm, e, err);
}

void train_dump_free(struct train_dump *dump)
{
    for (int i = 0; i < dump->count; i++) free(dump->all[i].values.data);
    free(dump->all), free(dump->loss), free(dump->norm);
    *dump = (struct train_dump){ 0 };
}
