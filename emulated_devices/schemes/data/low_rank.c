/* low_rank.c -- see low_rank.h. */
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/gather.h"
#include <stdio.h>
#include <string.h>

static struct low_rank projection_of(const struct data_parallel *dp, const struct param_spec *s)
{
    return low_rank_of(dp->optimizer, dp->hyper, param_is_linear(s), s->dim[0], s->dim[1]);
}

/* ---- states --------------------------------------------------------------------------------------------------------------- */

static struct tensor state_shape(const struct data_parallel *dp, const struct param_spec *s, int state)
{
    const enum dtype t = data_format(dp, KIND_STATE);
    const struct tensor w = s->ndim == 2 ? tensor_2d(NULL, t, s->dim[0], s->dim[1]) : tensor_1d(NULL, t, s->dim[0]);
    return low_rank_state(dp->optimizer, dp->hyper, projection_of(dp, s), w, state);
}

int64_t low_rank_state_elements(const struct data_parallel *dp, const struct unit *u, int state)
{
    int64_t n = 0;
    for (int i = 0; i < u->count; i++) n += tensor_count(state_shape(dp, &u->parameter[i].spec, state));
    return n;
}

struct tensor data_whole_state(const struct data_parallel *dp, const struct parameter *p, int state)
{
    const struct unit *u = &dp->unit[unit_of(&p->spec)];
    struct tensor t = state_shape(dp, &p->spec, state);
    int64_t at = 0;
    for (int i = 0; &u->parameter[i] != p; i++) at += tensor_count(state_shape(dp, &u->parameter[i].spec, state));
    t.data = slice(u->state[state], (struct interval){ at, 0 }).data;
    return t;
}

struct param_spec data_spec(const struct data_parallel *dp, const struct param_spec *s, enum tensor_kind kind)
{
    struct param_spec out = *s;
    if (kind < KIND_STATE || !dp->optimizer->low_rank) return out;
    const struct tensor t = state_shape(dp, s, (int)(kind - KIND_STATE));
    if (t.ndim > 0 && projection_of(dp, s).r == 0) return out;
    out.ndim = t.ndim, out.dim[0] = t.dim[0], out.dim[1] = t.dim[1];
    out.file_transposed = false;
    if (out.parts > 1) snprintf(out.part[0].name, sizeof out.part[0].name, "%s", s->name);
    out.part[0].rows = t.dim[0];
    out.parts = t.ndim > 0;
    return out;
}

/* ---- projecting ------------------------------------------------------------------------------------------------------------- */

static void *scratch_for(struct data_parallel *dp, struct low_rank r, const struct parameter *p, struct error *err)
{
    void *scratch = arena_alloc(&dp->device->arena, BUFFERS, galore_scratch(r, p->g.dtype));
    if (scratch == NULL) fail(err, ERR_MEMORY, "no memory to project the gradient of %s", p->spec.name);
    return scratch;
}

static void project(struct data_parallel *dp, struct low_rank r, struct parameter *p, void *scratch)
{
    galore_project(r, p->g, data_whole_state(dp, p, LOW_RANK_PROJECTION), scratch);
    clock_compute(&dp->device->clock, "project gradient", linear_cost(r.b, r.a, r.r, p->g.dtype));
}

/* In double: G G^T, then its eigenvectors, 9 a^3 (G. Golub, C. Van Loan, "Matrix computations", 4th ed., section 8.3). */
static enum error_code refresh(struct data_parallel *dp, struct low_rank r, struct parameter *p, void *scratch, struct error *err)
{
    const double a = (double)r.a, b = (double)r.b;
    const struct op_cost cost = { .flops = 2 * a * a * b + 9 * a * a * a, .bytes = 8 * (a * b + 2 * a * a) };
    clock_compute(&dp->device->clock, "find projection", cost);
    return fail_about(err, galore_refresh(r, data_whole_state(dp, p, LOW_RANK_PROJECTION), p->g, scratch, NULL, err), p->spec.name);
}

/* In place: R, then zeros.  anew: find P first. */
static enum error_code project_parameter(struct data_parallel *dp, struct parameter *p, bool anew, struct error *err)
{
    const struct low_rank r = projection_of(dp, &p->spec);
    if (r.r == 0) return OK;
    void *scratch = scratch_for(dp, r, p, err);
    if (scratch == NULL) return err->code;
    const enum error_code e = anew ? refresh(dp, r, p, scratch, err) : OK;
    if (!e) project(dp, r, p, scratch);
    arena_free(&dp->device->arena, scratch);
    return e;
}

void data_expect_step(struct data_parallel *dp, int64_t t) { dp->coming = t; }

bool low_rank_in_step(const struct data_parallel *dp)
{
    return dp->optimizer->low_rank && !low_rank_takes_whole(dp->hyper, dp->coming);
}

/* ---- packing ---------------------------------------------------------------------------------------------------------------- */

static int64_t elements_sent(const struct data_parallel *dp, const struct parameter *p)
{
    const struct low_rank r = projection_of(dp, &p->spec);
    return r.r > 0 ? r.b * r.r : layout_count(&p->layout);
}

int64_t low_rank_packed_elements(const struct data_parallel *dp)
{
    int64_t n = 0;
    for (int i = 0; i < dp->parameters->count; i++) n += elements_sent(dp, &dp->parameters->all[i]);
    return n;
}

static char *front(const struct data_parallel *dp, int64_t element)
{
    return (char *)dp->gradients.data + (size_t)element * dtype_size(dp->gradients.dtype);
}

static enum error_code pack_unit(struct data_parallel *dp, struct unit *u, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < u->count && !e; i++) {
        struct parameter *p = &u->parameter[i];
        const int64_t n = elements_sent(dp, p);
        e = project_parameter(dp, p, false, err);
        memmove(front(dp, dp->packed), p->g.data, (size_t)n * dtype_size(p->g.dtype));
        dp->packed += n;
    }
    return e;
}

enum error_code low_rank_pack(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    for (; dp->packed_units < dp->units && !e; dp->packed_units++) {
        struct unit *u = &dp->unit[dp->units - 1 - dp->packed_units];
        if (u->due > 0) break;
        e = pack_unit(dp, u, err);
    }
    return e;
}

/* Nothing lies behind its own place: from the back, so that nothing is overwritten before it has moved. */
void low_rank_unpack(struct data_parallel *dp)
{
    int64_t at = dp->packed;
    for (int u = 0; u < dp->units; u++)
        for (int i = dp->unit[u].count - 1; i >= 0; i--) {
            const struct parameter *p = &dp->unit[u].parameter[i];
            const size_t sent = (size_t)elements_sent(dp, p) * dtype_size(p->g.dtype);
            at -= elements_sent(dp, p);
            memmove(p->g.data, front(dp, at), sent);
            memset((char *)p->g.data + sent, 0, tensor_bytes(p->g) - sent);
        }
}

/* ---- the step ----------------------------------------------------------------------------------------------------------------- */

static void step_parameter(struct data_parallel *dp, const struct parameter *p, struct tensor master, struct step step)
{
    const struct low_rank r = projection_of(dp, &p->spec);
    struct tensor state[OPTIMIZER_MAX_STATES] = { 0 };
    for (int k = 0; k < dp->optimizer->states; k++) state[k] = data_whole_state(dp, p, k);
    step.weight_decay = p->spec.decay ? dp->hyper->weight_decay : 0;
    galore_step(dp->optimizer, r, parameter_view(p, slice(master, (struct interval){ p->place, 0 }).data, master.dtype), p->g, state, step);
    if (r.r > 0) clock_compute(&dp->device->clock, "project back", linear_cost(r.b, r.r, r.a, master.dtype));
}

enum error_code low_rank_step(struct data_parallel *dp, struct unit *u, struct tensor master, struct step step, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < u->count && !e; i++) {
        struct parameter *p = &u->parameter[i];
        if (!low_rank_in_step(dp)) e = project_parameter(dp, p, low_rank_refreshes(dp->hyper, dp->coming), err);
        if (!e) step_parameter(dp, p, master, step);
    }
    return e;
}
