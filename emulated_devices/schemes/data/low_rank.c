/* low_rank.c -- see low_rank.h. */
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/gather.h"

static struct low_rank_parts projection_of(const struct data_parallel *dp, const struct param_spec *s)
{
    int64_t rows[PARAM_MOST_PARTS];
    for (int i = 0; i < s->parts; i++) rows[i] = s->part[i].rows;
    return low_rank_parts_of(dp->optimizer, dp->hyper, param_is_linear(s), rows, s->parts, s->dim[1]);
}

/* ---- states --------------------------------------------------------------------------------------------------------------- */

/* The weights' shape in the states' format. */
static struct tensor shape_of(const struct data_parallel *dp, const struct param_spec *s)
{
    const enum dtype t = data_format(dp, KIND_STATE);
    return s->ndim == 2 ? tensor_2d(NULL, t, s->dim[0], s->dim[1]) : tensor_1d(NULL, t, s->dim[0]);
}

static struct tensor state_shape(const struct data_parallel *dp, const struct param_spec *s, int state)
{
    const struct low_rank_parts r = projection_of(dp, s);
    return low_rank_parts_state(dp->optimizer, dp->hyper, &r, shape_of(dp, s), state);
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

/* In files each part has its own, under its name; of several parts the numbers in a row. */
static void name_parts(const struct data_parallel *dp, struct param_spec *out, const struct param_spec *s, const struct low_rank_parts *r, int k)
{
    for (int i = 0; i < r->count && r->count > 1; i++)
        out->part[i].rows = tensor_count(low_rank_part_state(dp->optimizer, dp->hyper, r, i, shape_of(dp, s), tensor_none, k));
    if (r->count == 1) out->part[0].rows = out->dim[0];
}

struct param_spec data_spec(const struct data_parallel *dp, const struct param_spec *s, enum tensor_kind kind)
{
    struct param_spec out = *s;
    if (kind < KIND_STATE || !dp->optimizer->low_rank) return out;
    const struct tensor t = state_shape(dp, s, (int)(kind - KIND_STATE));
    const struct low_rank_parts r = projection_of(dp, s);
    if (t.ndim > 0 && !low_rank_projects(&r)) return out;
    out.ndim = t.ndim, out.dim[0] = t.dim[0], out.dim[1] = t.dim[1];
    out.file_transposed = false;
    if (t.ndim == 0) out.parts = 0;
    else name_parts(dp, &out, s, &r, (int)(kind - KIND_STATE));
    return out;
}

/* ---- projecting ------------------------------------------------------------------------------------------------------------- */

/* One matrix of a parameter: its gradient, its P, and memory to work in; while it is projected, host views of them. */
struct piece {
    struct data_parallel *dp;
    const struct parameter *parameter;
    struct low_rank r;
    struct tensor g, P;
    void *scratch;
};

static struct piece piece_of(struct data_parallel *dp, const struct parameter *p, const struct low_rank_parts *all, int i)
{
    const struct tensor P = data_whole_state(dp, p, LOW_RANK_PROJECTION);
    return (struct piece){
        .dp = dp, .parameter = p, .r = all->part[i].p, .g = low_rank_rows(all->part[i], p->g),
        .P = low_rank_part_state(dp->optimizer, dp->hyper, all, i, shape_of(dp, &p->spec), P, LOW_RANK_PROJECTION),
    };
}

static void project(const struct piece *x)
{
    galore_project(x->r, x->g, x->P, x->scratch);
    device_charge(x->dp->device, "project gradient", linear_cost(x->r.b, x->r.a, x->r.r, x->g.dtype));
}

/* In double: G G^T, then its eigenvectors, 9 a^3 (G. Golub, C. Van Loan, "Matrix computations", 4th ed., section 8.3). */
static enum error_code refresh(const struct piece *x, struct error *err)
{
    const double a = (double)x->r.a, b = (double)x->r.b;
    const struct op_cost cost = { .flops = 2 * a * a * b + 9 * a * a * a, .bytes = 8 * (a * b + 2 * a * a) };
    device_charge(x->dp->device, "find projection", cost);
    return fail_about(err, galore_refresh(x->r, x->P, x->g, x->scratch, NULL, err), x->parameter->spec.name);
}

static enum error_code project_piece(struct piece x, bool anew, struct error *err)
{
    struct device *d = x.dp->device;
    const struct tensor scratch = device_tensor_in(d, BUFFERS, U8, (int64_t)galore_scratch(x.r, x.g.dtype));
    if (scratch.data == NULL) return fail(err, ERR_MEMORY, "no memory to project the gradient of %s", x.parameter->spec.name);
    struct views v = views_of(d);
    x.g = view_write(&v, x.g), x.P = view_write(&v, x.P), x.scratch = view_write(&v, scratch).data;
    const enum error_code e = anew ? refresh(&x, err) : OK;
    if (!e) project(&x);
    views_end(&v);
    device_free(d, scratch);
    return e;
}

/* In place, each matrix: R, then zeros.  anew: find P first. */
static enum error_code project_parameter(struct data_parallel *dp, struct parameter *p, bool anew, struct error *err)
{
    const struct low_rank_parts r = projection_of(dp, &p->spec);
    enum error_code e = OK;
    for (int i = 0; i < r.count && low_rank_projects(&r) && !e; i++) e = project_piece(piece_of(dp, p, &r, i), anew, err);
    return e;
}

void data_expect_step(struct data_parallel *dp, int64_t t) { dp->coming = t; }

bool low_rank_in_step(const struct data_parallel *dp)
{
    return dp->optimizer->low_rank && !low_rank_takes_whole(dp->hyper, dp->coming);
}

/* ---- packing ---------------------------------------------------------------------------------------------------------------- */

/* What is sent of a parameter: of each of its matrices R, from the matrix's first place on; or all of it. */
struct stretch { struct tensor whole; int64_t sent; };

static struct stretch stretch_of(const struct parameter *p, const struct low_rank_parts *r, int i)
{
    if (!low_rank_projects(r)) return (struct stretch){ p->g, layout_count(&p->layout) };
    return (struct stretch){ low_rank_rows(r->part[i], p->g), r->part[i].p.b * r->part[i].p.r };
}

static int stretches(const struct low_rank_parts *r) { return low_rank_projects(r) ? r->count : 1; }

static int64_t elements_sent(const struct data_parallel *dp, const struct parameter *p)
{
    const struct low_rank_parts r = projection_of(dp, &p->spec);
    return low_rank_projects(&r) ? low_rank_reduced(&r) : layout_count(&p->layout);
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
        const struct low_rank_parts r = projection_of(dp, &p->spec);
        e = project_parameter(dp, p, false, err);
        for (int k = 0; k < stretches(&r); k++) {
            const struct stretch s = stretch_of(p, &r, k);
            device_copy(dp->device, front(dp, dp->packed), s.whole.data, (size_t)s.sent * dtype_size(s.whole.dtype));
            dp->packed += s.sent;
        }
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

/* What ends before `at` among what was packed.  @return where it begins. */
static int64_t put_back(const struct data_parallel *dp, struct stretch s, int64_t at)
{
    const size_t sent = (size_t)s.sent * dtype_size(s.whole.dtype);
    device_copy(dp->device, s.whole.data, front(dp, at - s.sent), sent);
    device_zero(dp->device, tensor_1d((char *)s.whole.data + sent, U8, (int64_t)(tensor_bytes(s.whole) - sent)));
    return at - s.sent;
}

/* Nothing lies behind its own place: from the back, so that nothing is overwritten before it has moved. */
void low_rank_unpack(struct data_parallel *dp)
{
    int64_t at = dp->packed;
    for (int u = 0; u < dp->units; u++)
        for (int i = dp->unit[u].count - 1; i >= 0; i--) {
            const struct parameter *p = &dp->unit[u].parameter[i];
            const struct low_rank_parts r = projection_of(dp, &p->spec);
            for (int k = stretches(&r) - 1; k >= 0; k--) at = put_back(dp, stretch_of(p, &r, k), at);
        }
}

/* ---- the step ----------------------------------------------------------------------------------------------------------------- */

static void step_parameter(struct data_parallel *dp, const struct parameter *p, struct tensor master, struct step step)
{
    const struct low_rank_parts r = projection_of(dp, &p->spec);
    struct tensor state[OPTIMIZER_MAX_STATES] = { 0 };
    struct views v = views_of(dp->device);
    for (int k = 0; k < dp->optimizer->states; k++) state[k] = view_write(&v, data_whole_state(dp, p, k));
    step.weight_decay = p->spec.decay ? dp->hyper->weight_decay : 0;
    const struct tensor w = parameter_view(p, slice(master, (struct interval){ p->place, 0 }).data, master.dtype);
    galore_parts_step(dp->optimizer, &r, view_write(&v, w), view_write(&v, p->g), state, step);
    views_end(&v);
    for (int i = 0; i < r.count && low_rank_projects(&r); i++)
        device_charge(dp->device, "project back", linear_cost(r.part[i].p.b, r.part[i].p.r, r.part[i].p.a, master.dtype));
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
