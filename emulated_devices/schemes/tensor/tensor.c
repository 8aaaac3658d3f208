/* tensor.c -- each device's share: everything that follows from the axes over which a scheme cuts. */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"
#include <assert.h>
#include <stdio.h>

/* ---- the scheme's own mesh --------------------------------------------------------------------------------------- */

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

enum error_code tensor_open(struct tensor_parallel *tp, struct group *group, struct error *err)
{
    enum error_code e = OK;
    tp->group = group;
    tensor_share(tp, group->size, group->rank);
    /* For each set of axes there is a group of devices whose places differ along these axes only. */
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
        e = group_of(&tp->along[axes], tp->group->comm, ranks, n, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    }
    return e ? e : heads_open(tp, err);
}

void tensor_close(struct tensor_parallel *tp)
{
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) group_close(&tp->along[axes]);
    group_close(&tp->copies);
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

struct tensor_cut tensor_cut_at(const struct tensor_scheme *s, enum tensor_place place)
{
    switch (place) {
    case AT_HEADS:  return s->heads;
    case AT_FEED:   return s->feed;
    case AT_LOGITS: return s->logits;
    default:        return s->stream;
    }
}

static struct interval own_block(const struct tensor_parallel *tp, int64_t n, unsigned axes)
{
    return block_at(n, axes_size(tp, axes), axes_index(tp, axes));
}

void tensor_share(struct tensor_parallel *tp, int devices, int rank)
{
    const struct model_config *c = tp->config;
    const struct tensor_scheme *s = tp->scheme;
    tp->devices = devices, tp->rank = rank;
    s->mesh(devices, tp->mesh);
    for (int a = TENSOR_AXES - 1, rest = rank; a >= 0; rest /= tp->mesh[a--]) tp->at[a] = rest % tp->mesh[a];
    tp->channels = own_block(tp, c->D, s->stream.columns);
    tp->heads = heads_at(c, axes_size(tp, s->heads.columns), axes_index(tp, s->heads.columns));
    tp->columns = own_block(tp, c->F, s->feed.columns);
    tp->shared = own_block(tp, c->mixture.shared, s->feed.columns);
    tp->dense = own_block(tp, c->dense.F, s->feed.columns);
    tp->tokens = own_block(tp, c->V, s->logits.columns);
    tp->first_entry = own_block(tp, c->V, s->weight(s, ROLE_TOKENS).out).first;
}

enum error_code tensor_check(const struct tensor_scheme *s, const struct model_config *c, int P, struct error *err)
{
    struct tensor_parallel tp = { .scheme = s };
    const char *needs = s->mesh(P, tp.mesh);
    if (needs) return fail(err, ERR_PLAN, "--tp %d: --tensor %s needs %s", P, s->head.name, needs);
    const int heads = axes_size(&tp, s->heads.columns), feed = axes_size(&tp, s->feed.columns);
    const struct { int parts; int64_t has; const char *what; } need[] = {
        { heads, c->H, "H=%lld heads" }, { feed, c->F, "F=%lld feed-forward columns" },
        { axes_size(&tp, s->logits.columns), c->V, "V=%lld tokens" },
        { axes_size(&tp, s->stream.columns), c->D, "a width of D=%lld" },
        { feed, c->dense.F ? c->dense.F : feed, "%lld feed-forward columns in dense layers" },
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        char has[64];
        snprintf(has, sizeof has, need[i].what, (long long)need[i].has);
        if (need[i].parts > need[i].has && need[i].parts == P)
            return fail(err, ERR_PLAN, "--tp %d: the model has %s; tp can be at most that", P, has);
        if (need[i].parts > need[i].has)
            return fail(err, ERR_PLAN, "--tp %d: --tensor %s cuts into %d parts; the model has %s", P, s->head.name,
                        need[i].parts, has);
    }
    if (LATENT(c) && axes_size(&tp, s->stream.rows | s->stream.columns | s->heads.rows) > 1)
        return fail(err, ERR_PLAN, "--tp %d: --tensor %s cuts the residual stream, which latent attention needs whole "
                    "on every device along tp; --tensor 1d does not", P, s->head.name);
    if (heads > c->K && s->weight(s, ROLE_QKV).sub)
        return fail(
            err, ERR_PLAN,
            "--tp %d: --tensor %s cuts into %d parts; the model has K=%lld key/value heads, and only schemes that hold "
            "whole rows of a matrix, such as 1d, can have copies of them",
            P, s->head.name, heads, (long long)c->K);
    return s->check ? s->check(s, c, P, err) : OK;
}

/* Rows are cut between sequences, unless the scheme cuts between any tokens. */
static int64_t row_edge(const struct tensor_parallel *tp, int64_t N, int parts, int index)
{
    const int64_t unit = tp->scheme->cuts_tokens ? 1 : tp->S;
    if (index == parts) return N;
    return unit * block_start(N / unit, parts, index);
}

static bool has_all_rows(const struct tensor_scheme *s, enum tensor_place place)
{
    return (place == INPUT && s->keeps_inputs) || (place == GRADIENT && s->keeps_gradients);
}

struct interval tensor_rows_at(const struct tensor_parallel *tp, enum tensor_place place, int64_t N)
{
    const struct tensor_scheme *s = tp->scheme;
    const unsigned cut = tensor_cut_at(s, place).rows;
    const bool whole = has_all_rows(s, place);
    const int parts = whole ? 1 : axes_size(tp, cut), index = whole ? 0 : axes_index(tp, cut);
    const int64_t first = row_edge(tp, N, parts, index);
    return (struct interval){ .first = first, .count = row_edge(tp, N, parts, index + 1) - first };
}

bool tensor_has_room_for_more(const struct tensor_parallel *tp, enum tensor_place place)
{
    return has_all_rows(tp->scheme, place) && axes_size(tp, tensor_cut_at(tp->scheme, place).rows) > 1;
}

int64_t tensor_row_counts(const struct tensor_parallel *tp, unsigned cut, unsigned axes, int64_t N, int64_t counts[])
{
    struct tensor_parallel at = *tp;
    const int members = axes_size(tp, axes), parts = axes_size(tp, cut);
    int64_t sum = 0;
    for (int i = 0; i < members; i++) {
        /* Member i's place along the axes is written in i, with the last axis fastest. */
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
    const struct interval own = tensor_rows_at(tp, STREAM, N);
    if (tensor_rows(t) == own.count) return t;
    assert(tensor_rows(t) == N);
    const int64_t cols = tensor_cols(t);
    return tensor_2d((char *)t.data + (size_t)(own.first * cols) * dtype_size(t.dtype), t.dtype, own.count, cols);
}

/* ---- widths and layouts ------------------------------------------------------------------------------------------ */

static void add_run(struct runs *r, struct interval more) { r->at[r->count++] = more; }

static int64_t runs_extent(struct runs r)
{
    int64_t sum = 0;
    for (int i = 0; i < r.count; i++) sum += r.at[i].count;
    return sum;
}

/* The inner side of a pair of matrices, without heads; of the embedding and the output matrix. */
static int64_t inner_width(const struct model_config *c, enum param_role role)
{
    switch (role) {
    case ROLE_UP: case ROLE_DOWN:               return c->F;
    case ROLE_SHARED_UP: case ROLE_SHARED_DOWN: return c->mixture.shared;
    case ROLE_DENSE_UP: case ROLE_DENSE_DOWN:   return c->dense.F;
    default:                                    return c->V;
    }
}

/* The other side: the stream, or a latent. */
static int64_t outer_width(const struct model_config *c, enum param_role role)
{
    return role == ROLE_KEYS_VALUES ? c->latent.kv : role == ROLE_QUERIES && c->latent.q > 0 ? c->latent.q : c->D;
}

/* Each component of a fused matrix (QKV, gate and up) is cut. */
struct runs tensor_runs(const struct model_config *c, enum param_role role, bool output, int parts, int index)
{
    const bool inner = leads_inside(role) == output;
    const struct heads h = heads_at(c, parts, index);
    struct runs r = { 0 };
    if (inner && (role == ROLE_ATTENTION_OUT || role == ROLE_KEYS_VALUES)) {
        const int64_t width = role == ROLE_KEYS_VALUES ? expanded_width(c) : value_width(c);
        return add_run(&r, (struct interval){ h.queries.first * width, h.queries.count * width }), r;
    }
    if (inner && (role == ROLE_QKV || role == ROLE_QUERIES)) {
        add_run(&r, heads_columns(c, h.queries));
        for (int64_t before = c->H; role == ROLE_QKV && before <= c->H + c->K; before += c->K)
            add_run(&r, heads_columns(c, interval_moved(h.keys, before)));
        return r;
    }
    if (role == ROLE_SINKS) return add_run(&r, h.queries), r;
    const int64_t width = inner ? inner_width(c, role) : outer_width(c, role);
    const struct interval own = block_at(width, parts, index);
    add_run(&r, own);
    if (inner && (role == ROLE_SHARED_UP || role == ROLE_DENSE_UP || (role == ROLE_UP && up_width(c) > c->F)))
        add_run(&r, interval_moved(own, width));
    return r;
}

int64_t tensor_width(const struct tensor_parallel *tp, enum param_role role, bool output, int index, int parts)
{
    return runs_extent(tensor_runs(tp->config, role, output, parts, index));
}

int64_t tensor_qkv_columns(const struct tensor_parallel *tp)
{
    return (tp->heads.queries.count + 2 * tp->heads.keys.count) * tp->config->A;
}
int64_t tensor_up_columns(const struct tensor_parallel *tp)
{
    return tp->columns.count * (up_width(tp->config) / tp->config->F);
}

/* Part `sub` of `subs` of runs laid one after another; an empty part is one empty run. */
static struct runs cut_again(struct runs whole, int subs, int sub)
{
    const struct interval taken = block_at(runs_extent(whole), subs, sub);
    struct runs r = { 0 };
    int64_t before = 0;
    for (int i = 0; i < whole.count; before += whole.at[i++].count) {
        const struct interval here = interval_meet((struct interval){ before, whole.at[i].count }, taken);
        if (here.count > 0) add_run(&r, interval_moved(here, whole.at[i].first - before));
    }
    if (r.count == 0) add_run(&r, (struct interval){ whole.at[0].first, 0 });
    return r;
}

/* Vectors and the position embedding are cut like the columns of the stream; biases of matrices that lead inside, like
 * the columns of the inner side. */
static struct tensor_cut cut_of(const struct tensor_scheme *s, const struct param_spec *p)
{
    const bool inner = p->ndim == 1 && leads_inside(p->role) && p->role != ROLE_TOKENS;
    return inner ? tensor_cut_at(s, inner_side(p->role)) : s->stream;
}

/* Keys of the device's heads for all rows, then values. */
static struct layout prefix_layout(const struct tensor_parallel *tp, const struct param_spec *p)
{
    struct layout l = layout_none(p->ndim, p->dim);
    const struct interval keys = heads_columns(tp->config, tp->heads.keys);
    if (keys.count == p->dim[1] / 2) return layout_whole(p->ndim, p->dim);
    for (int part = 0; part < 2; part++)
        layout_add_box(&l, (int64_t[]){ 0, keys.first + part * p->dim[1] / 2 }, (int64_t[]){ p->dim[0], keys.count });
    return l;
}

static bool is_matrix(const struct param_spec *p) { return p->ndim == 2 && p->role != ROLE_POSITIONS; }

struct layout tensor_layout(const struct tensor_parallel *tp, const struct param_spec *p)
{
    struct layout l = layout_none(p->ndim, p->dim);
    const struct tensor_scheme *s = tp->scheme;
    if (role_is_whole(p->role)) return layout_whole(p->ndim, p->dim);
    if (p->role == ROLE_PREFIX) return prefix_layout(tp, p);
    if (is_matrix(p)) {
        const struct weight_cut w = s->weight(s, p->role);
        const struct runs out =
            cut_again(tensor_runs(tp->config, p->role, true, axes_size(tp, w.out), axes_index(tp, w.out)),
                      axes_size(tp, w.sub), axes_index(tp, w.sub));
        const struct runs in = tensor_runs(tp->config, p->role, false, axes_size(tp, w.in), axes_index(tp, w.in));
        /* A fused matrix has a box for each of its components. */
        for (int i = 0; i < out.count; i++)
            layout_add_box(&l, (int64_t[]){ out.at[i].first, in.at[0].first },
                           (int64_t[]){ out.at[i].count, in.at[0].count });
        return l;
    }
    const struct tensor_cut cut = cut_of(s, p);
    const int parts = axes_size(tp, cut.columns), index = axes_index(tp, cut.columns);
    const int subs = s->cuts_vectors ? axes_size(tp, cut.rows) : 1,
              sub = s->cuts_vectors ? axes_index(tp, cut.rows) : 0;
    const bool positions = p->role == ROLE_POSITIONS;
    const struct runs columns =
        cut_again(tensor_runs(tp->config, p->role, true, parts, index), positions ? 1 : subs, positions ? 0 : sub);
    if (positions) {
        const struct runs all = { 1, { { 0, p->dim[0] } } }, rows = cut_again(all, subs, sub);
        layout_add_box(&l, (int64_t[]){ rows.at[0].first, columns.at[0].first },
                       (int64_t[]){ rows.at[0].count, columns.at[0].count });
    } else for (int i = 0; i < columns.count; i++) layout_add(&l, 0, columns.at[i].first, columns.at[i].count);
    return l;
}

/* The axes along which devices have other pieces of a parameter. */
static unsigned axes_that_cut(const struct tensor_scheme *s, const struct param_spec *p)
{
    const struct tensor_cut cut = cut_of(s, p);
    if (role_is_whole(p->role)) return 0;
    if (p->role == ROLE_PREFIX) return s->heads.columns;
    if (!is_matrix(p)) return cut.columns | (s->cuts_vectors ? cut.rows : 0);
    const struct weight_cut w = s->weight(s, p->role);
    return w.out | w.in | w.sub;
}

bool tensor_copied(const struct tensor_parallel *tp, const struct param_spec *p)
{
    return axes_size(tp, axes_that_cut(tp->scheme, p)) < tp->devices;
}

bool tensor_keeps_first(const struct tensor_parallel *tp, const struct param_spec *p)
{
    for (int a = 0; a < TENSOR_AXES; a++)
        if (!(axes_that_cut(tp->scheme, p) & MESH_AXIS(a)) && tp->at[a] != 0) return false;
    return true;
}

int64_t tensor_counted(const struct tensor_parallel *tp, const struct param_spec *p)
{
    const struct layout own = tensor_layout(tp, p);
    if (!tensor_keeps_first(tp, p)) return 0;
    if (p->role == ROLE_PREFIX && tp->heads.copy > 0) return 0;
    if (p->role != ROLE_QKV || tp->heads.copy == 0) return layout_count(&own);
    return tp->heads.queries.count * tp->config->A * (p->ndim == 2 ? layout_cols(&own) : 1);    /* queries come first */
}
