/* tensor.c -- who has what: everything that follows from the axes a scheme cuts over. */
#include "emulated_devices/schemes/tensor/tensor.h"
#include <assert.h>
#include <stdio.h>

/* ---- the scheme's own mesh ------------------------------------------------------------------------------------------ */

int axes_size(const struct tensor_parallel *tp, unsigned axes)
{
    int size = 1;
    for (int a = 0; a < TENSOR_AXES; a++)
        if (axes & MESH_AXIS(a)) size *= tp->mesh[a];
    return size;
}

int axes_index(const struct tensor_parallel *tp, unsigned axes)
{
    int index = 0;
    for (int a = 0; a < TENSOR_AXES; a++)
        if (axes & MESH_AXIS(a)) index = index * tp->mesh[a] + tp->at[a];
    return index;
}

enum error_code tensor_open(struct tensor_parallel *tp, struct error *err)
{
    enum error_code e = OK;
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS && !e; axes++) {
        int ranks[MESH_MOST_DEVICES], n = 0;
        struct tensor_parallel other = *tp;
        for (int r = 0; r < tp->group->size; r++) {
            bool same = true;
            for (int a = TENSOR_AXES - 1, rest = r; a >= 0; rest /= tp->mesh[a--]) {
                other.at[a] = rest % tp->mesh[a];
                same = same && ((axes & MESH_AXIS(a)) || other.at[a] == tp->at[a]);
            }
            if (same) ranks[n++] = tp->group->member[r];
        }
        e = group_of(&tp->along[axes], tp->group->comm, ranks, n, AXIS_BIT(TP), err);
    }
    return e;
}

void tensor_close(struct tensor_parallel *tp)
{
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) group_close(&tp->along[axes]);
}

/* ---- extents -------------------------------------------------------------------------------------------------------- */

static void part(int64_t whole, int parts, int index, int64_t *first, int64_t *count)
{
    *first = block_start(whole, parts, index);
    *count = block_start(whole, parts, index + 1) - *first;
}

void tensor_share(struct tensor_parallel *tp)
{
    const struct model_config *c = tp->config;
    const struct tensor_scheme *s = tp->scheme;
    s->mesh(tp->group->size, tp->mesh);
    for (int a = TENSOR_AXES - 1, rest = tp->group->rank; a >= 0; rest /= tp->mesh[a--]) tp->at[a] = rest % tp->mesh[a];
    const int outer = axes_size(tp, s->stream.columns), inner = axes_size(tp, s->inner.columns), i = axes_index(tp, s->inner.columns);
    part(c->D, outer, axes_index(tp, s->stream.columns), &tp->channel, &tp->channels);
    part(c->H, inner, i, &tp->head, &tp->heads);
    part(c->F, inner, i, &tp->column, &tp->columns);
    part(c->V, inner, i, &tp->token, &tp->tokens);
}

enum error_code tensor_check(const struct tensor_scheme *s, const struct model_config *c, int P, struct error *err)
{
    struct tensor_parallel tp = { .scheme = s };
    const char *needs = s->mesh(P, tp.mesh);
    if (needs) return fail(err, ERR_PLAN, "--tp %d: --tensor %s needs %s", P, s->name, needs);
    const int inner = axes_size(&tp, s->inner.columns), outer = axes_size(&tp, s->stream.columns);
    const struct { int parts; int64_t has; const char *what; } need[] = {
        { inner, c->H, "H=%lld heads" }, { inner, c->F, "F=%lld feed-forward columns" }, { inner, c->V, "V=%lld tokens" },
        { outer, c->D, "a width of D=%lld" },
    };
    for (int i = 0; i < 4; i++) {
        char has[64];
        snprintf(has, sizeof has, need[i].what, (long long)need[i].has);
        if (need[i].parts > need[i].has && need[i].parts == P)
            return fail(err, ERR_PLAN, "--tp %d: the model has %s; tp can be at most that", P, has);
        if (need[i].parts > need[i].has)
            return fail(err, ERR_PLAN, "--tp %d: --tensor %s cuts into %d parts; the model has %s", P, s->name, need[i].parts, has);
    }
    return OK;
}

/* Boundaries of rows are those between sequences, unless the scheme cuts anywhere. */
static int64_t row_edge(const struct tensor_parallel *tp, int64_t N, int parts, int index)
{
    const int64_t unit = tp->scheme->cuts_tokens ? 1 : tp->S;
    return unit * block_start(N / unit, parts, index);
}

struct rows tensor_rows_at(const struct tensor_parallel *tp, enum tensor_place place, int64_t N)
{
    const struct tensor_scheme *s = tp->scheme;
    const unsigned cut = place == INNER ? s->inner.rows : s->stream.rows;
    const bool whole = (place == INPUT && s->keeps_inputs) || (place == GRADIENT && s->keeps_gradients);
    const int parts = whole ? 1 : axes_size(tp, cut), index = whole ? 0 : axes_index(tp, cut);
    const int64_t first = row_edge(tp, N, parts, index);
    return (struct rows){ .first = first, .count = row_edge(tp, N, parts, index + 1) - first };
}

int64_t tensor_row_counts(const struct tensor_parallel *tp, unsigned cut, unsigned axes, int64_t N, int64_t counts[])
{
    struct tensor_parallel at = *tp;
    const int members = axes_size(tp, axes), parts = axes_size(tp, cut);
    int64_t sum = 0;
    for (int i = 0; i < members; i++) {
        for (int a = TENSOR_AXES - 1, rest = i; a >= 0; a--) {
            if (!(axes & MESH_AXIS(a))) continue;
            at.at[a] = rest % tp->mesh[a];
            rest /= tp->mesh[a];
        }
        const int index = axes_index(&at, cut);
        counts[i] = row_edge(tp, N, parts, index + 1) - row_edge(tp, N, parts, index);
        sum += counts[i];
    }
    return sum;
}

struct tensor tensor_own_rows(const struct tensor_parallel *tp, struct tensor t, int64_t N)
{
    const struct rows own = tensor_rows_at(tp, STREAM, N);
    if (tensor_rows(t) == own.count) return t;
    assert(tensor_rows(t) == N);
    const int64_t cols = tensor_cols(t);
    return tensor_2d((char *)t.data + (size_t)(own.first * cols) * dtype_size(t.dtype), t.dtype, own.count, cols);
}

/* ---- widths and layouts --------------------------------------------------------------------------------------------- */

/* What a matrix's output (or input) is made of: equal stretches, each of units of so many columns, cut between units. */
struct space { int64_t units, unit; int stretches; };

static struct space space_of(const struct model_config *c, enum param_role role, bool output)
{
    const bool inner = leads_inside(role) == output;
    if (!inner) return (struct space){ c->D, 1, 1 };
    switch (role) {
    case ROLE_QKV:            return (struct space){ c->H, c->A, 3 };
    case ROLE_ATTENTION_OUT:  return (struct space){ c->H, c->A, 1 };
    case ROLE_UP: case ROLE_DOWN: return (struct space){ c->F, 1, 1 };
    default:                  return (struct space){ c->V, 1, 1 };      /* ROLE_TOKENS, ROLE_HEAD */
    }
}

int64_t tensor_width(const struct tensor_parallel *tp, enum param_role role, bool output, int index, int parts)
{
    const struct space s = space_of(tp->config, role, output);
    return s.stretches * s.unit * (block_start(s.units, parts, index + 1) - block_start(s.units, parts, index));
}

/* Elements of a dimension cut by `space` into parts, of which part `index` is cut into `subs` again: up to three runs. */
struct runs { int count; int64_t start[3], extent[3]; };

static struct runs runs_of(struct space s, int parts, int index, int subs, int sub)
{
    struct runs r = { 0 };
    const int64_t first = s.unit * block_start(s.units, parts, index), length = s.unit * block_start(s.units, parts, index + 1) - first;
    const int64_t from = block_start(s.stretches * length, subs, sub), to = block_start(s.stretches * length, subs, sub + 1);
    for (int i = 0; i < s.stretches; i++) {
        const int64_t a = from > i * length ? from : i * length, b = to < (i + 1) * length ? to : (i + 1) * length;
        if (b <= a && !(subs == 1 || (i == 0 && from == to))) continue;
        r.start[r.count] = i * s.units * s.unit + first + (b > a ? a - i * length : 0);
        r.extent[r.count++] = b > a ? b - a : 0;
    }
    return r;
}

/* Vectors and the position embedding go with columns of the stream, or of the inner side (biases of matrices that lead there). */
static struct tensor_cut cut_of(const struct tensor_scheme *s, const struct param_spec *p)
{
    const bool inner = p->ndim == 1 && leads_inside(p->role) && p->role != ROLE_TOKENS;
    return inner ? s->inner : s->stream;
}

static bool is_matrix(const struct param_spec *p) { return p->ndim == 2 && p->role != ROLE_POSITIONS; }

struct layout tensor_layout(const struct tensor_parallel *tp, const struct param_spec *p)
{
    struct layout l = layout_none(p->ndim, p->dim);
    const struct tensor_scheme *s = tp->scheme;
    if (is_matrix(p)) {
        const struct weight_cut w = s->weight(p->role);
        const struct runs out = runs_of(space_of(tp->config, p->role, true), axes_size(tp, w.out), axes_index(tp, w.out),
                                        axes_size(tp, w.sub), axes_index(tp, w.sub));
        const struct runs in = runs_of(space_of(tp->config, p->role, false), axes_size(tp, w.in), axes_index(tp, w.in), 1, 0);
        for (int i = 0; i < out.count; i++)
            layout_add_box(&l, (int64_t[]){ out.start[i], in.start[0] }, (int64_t[]){ out.extent[i], in.extent[0] });
        return l;
    }
    const struct tensor_cut cut = cut_of(s, p);
    const int parts = axes_size(tp, cut.columns), index = axes_index(tp, cut.columns);
    const int subs = s->cuts_vectors ? axes_size(tp, cut.rows) : 1, sub = s->cuts_vectors ? axes_index(tp, cut.rows) : 0;
    const bool positions = p->role == ROLE_POSITIONS;
    const struct space space = positions || p->role == ROLE_NORM ? (struct space){ tp->config->D, 1, 1 } : space_of(tp->config, p->role, true);
    const struct runs columns = runs_of(space, parts, index, positions ? 1 : subs, positions ? 0 : sub);
    if (positions) {
        const struct runs rows = runs_of((struct space){ p->dim[0], 1, 1 }, 1, 0, subs, sub);
        layout_add_box(&l, (int64_t[]){ rows.start[0], columns.start[0] }, (int64_t[]){ rows.extent[0], columns.extent[0] });
    } else for (int i = 0; i < columns.count; i++) layout_add(&l, 0, columns.start[i], columns.extent[i]);
    return l;
}

bool tensor_first_copy(const struct tensor_parallel *tp, const struct param_spec *p)
{
    const struct tensor_scheme *s = tp->scheme;
    const struct weight_cut w = s->weight(p->role);
    const struct tensor_cut cut = cut_of(s, p);
    const unsigned tells = is_matrix(p) ? w.out | w.in | w.sub : cut.columns | (s->cuts_vectors ? cut.rows : 0);
    for (int a = 0; a < TENSOR_AXES; a++)
        if (!(tells & MESH_AXIS(a)) && tp->at[a] != 0) return false;
    return true;
}
