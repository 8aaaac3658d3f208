/* tensor.c -- each device's share: everything that follows from the axes over which a scheme cuts.
 *
 * The model opens a share with tensor_open (model/trainer_open.c); plan/check.c asks tensor_check first.  The plan
 * and the checks only call tensor_share, because layouts and extents need no group.  Errors are ERR_PLAN for a model
 * that does not fit, and ERR_MEMORY.  Nothing in this file sends a message.
 */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include <assert.h>
#include <stdio.h>

/* ---- the scheme's own mesh --------------------------------------------------------------------------------------- */

/* The size is the product of the sizes of these axes.  The empty set has size 1. */
int axes_size(const struct tensor_parallel *tp, unsigned axes)
{
    int size = 1;
    for (int a = 0; a < TENSOR_AXES; a++)
        if (axes & MESH_AXIS(a)) size *= tp->mesh[a];
    return size;
}

/* The last axis runs fastest.  The index within the empty set is 0. */
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
    /* The mesh must be known before groups along its axes can be found. */
    tensor_share(tp, group->size, group->rank);
    /* For each set of axes there is a group of devices whose places differ along these axes only. */
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS && !e; axes++) {
        int ranks[MESH_MOST_LISTED], n = 0;
        struct tensor_parallel other = *tp;
        for (int r = 0; r < tp->group->size; r++) {
            bool same = true;
            for (int a = TENSOR_AXES - 1, rest = r; a >= 0; rest /= tp->mesh[a--]) {
                other.at[a] = rest % tp->mesh[a];
                same = same && ((axes & MESH_AXIS(a)) || other.at[a] == tp->at[a]);
            }
            if (same) ranks[n++] = tp->group->member[r];
        }
        /* All members list the same ranks in the same order, so the group's ranks follow axes_index. */
        e = group_of(&tp->along[axes], tp->group->comm, ranks, n, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    }
    return e ? e : heads_open(tp, err);
}

/* tensor_close may follow a tensor_open that failed: group_close accepts a group of zeros. */
void tensor_close(struct tensor_parallel *tp)
{
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) group_close(&tp->along[axes]);
    group_close(&tp->copies);
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

/* INPUT and GRADIENT lie in the stream; has_all_rows says where their rows are not cut. */
struct tensor_cut tensor_cut_at(const struct tensor_scheme *scheme, enum tensor_place place)
{
    switch (place) {
    case AT_HEADS:  return scheme->heads;
    case AT_FEED:   return scheme->feed;
    case AT_LOGITS: return scheme->logits;
    default:        return scheme->stream;
    }
}

/* own_block cuts n into nearly equal blocks over these axes and gives the block of this device. */
static struct interval own_block(const struct tensor_parallel *tp, int64_t n, unsigned axes)
{
    return block_at(n, axes_size(tp, axes), axes_index(tp, axes));
}

void tensor_share(struct tensor_parallel *tp, int devices, int rank)
{
    const struct model_config *c = tp->config;
    const struct tensor_scheme *s = tp->scheme;
    tp->devices = devices, tp->rank = rank;
    /* The answer of mesh() is not read here: tensor_check has refused sizes that do not fit. */
    s->mesh(devices, tp->mesh);
    for (int a = TENSOR_AXES - 1, rest = rank; a >= 0; rest /= tp->mesh[a--]) tp->at[a] = rest % tp->mesh[a];
    /* The stream is [rows, channels] on this device.  The inner sides are cut by heads, columns (F) or tokens (V). */
    tp->channels = own_block(tp, c->D, s->stream.columns);
    tp->heads = heads_at(c, axes_size(tp, s->heads.columns), axes_index(tp, s->heads.columns));
    tp->columns = own_block(tp, c->F, s->feed.columns);
    tp->shared = own_block(tp, c->mixture.shared, s->feed.columns);
    tp->dense = own_block(tp, c->dense.F, s->feed.columns);
    tp->tokens = own_block(tp, c->V, s->logits.columns);
    /* The embedding may be cut along other axes than the logits, so its first row is kept apart. */
    tp->first_entry = own_block(tp, c->V, s->weight(s, ROLE_TOKENS).out).first;
}

enum error_code tensor_check(const struct tensor_scheme *scheme, const struct model_config *config, int P,
                             struct error *err)
{
    struct tensor_parallel tp = { .scheme = scheme };
    const char *needs = scheme->mesh(P, tp.mesh);
    if (needs) return fail(err, ERR_PLAN, "--tp %d: --tensor %s needs %s", P, scheme->head.name, needs);
    /* Each part needs a unit of its own: a head, a column or a token. */
    const int heads = axes_size(&tp, scheme->heads.columns), feed = axes_size(&tp, scheme->feed.columns);
    const struct { int parts; int64_t has; const char *what; } need[] = {
        { heads, config->H, "H=%lld heads" }, { feed, config->F, "F=%lld feed-forward columns" },
        { axes_size(&tp, scheme->logits.columns), config->V, "V=%lld tokens" },
        { axes_size(&tp, scheme->stream.columns), config->D, "a width of D=%lld" },
        { feed, config->dense.F ? config->dense.F : feed, "%lld feed-forward columns in dense layers" },
        { feed, config->mixture.shared ? config->mixture.shared : feed, "%lld feed-forward columns in shared experts" },
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        char has[64];
        snprintf(has, sizeof has, need[i].what, (long long)need[i].has);
        /* Where the scheme cuts by all devices, the number itself is the limit for --tp. */
        if (need[i].parts > need[i].has && need[i].parts == P)
            return fail(err, ERR_PLAN, "--tp %d: the model has %s; tp can be at most that", P, has);
        if (need[i].parts > need[i].has)
            return fail(err, ERR_PLAN, "--tp %d: --tensor %s cuts into %d parts; the model has %s", P,
                        scheme->head.name, need[i].parts, has);
    }
    /* Latent attention reads whole rows of the stream on every device, so no axis may cut these. */
    if (LATENT(config) && axes_size(&tp, scheme->stream.rows | scheme->stream.columns | scheme->heads.rows) > 1)
        return fail(err, ERR_PLAN, "--tp %d: --tensor %s cuts the residual stream, which latent attention needs whole "
                    "on every device along tp; --tensor 1d does not", P, scheme->head.name);
    /* A copy of a key/value head needs whole rows of QKV; schemes that cut these rows again have none. */
    if (heads > config->K && scheme->weight(scheme, ROLE_QKV).sub)
        return fail(
            err, ERR_PLAN,
            "--tp %d: --tensor %s cuts into %d parts; the model has K=%lld key/value heads, and only schemes that hold "
            "whole rows of a matrix, such as 1d, can have copies of them",
            P, scheme->head.name, heads, (long long)config->K);
    return scheme->check ? scheme->check(scheme, config, P, err) : OK;
}

/* Rows are cut between sequences, unless the scheme cuts between any tokens. */
static int64_t row_edge(const struct tensor_parallel *tp, int64_t N, int parts, int index)
{
    const int64_t unit = tp->scheme->cuts_tokens ? 1 : tp->S;
    /* The last part ends with the last token, also where N is no multiple of the unit. */
    if (index == parts) return N;
    return unit * block_start(N / unit, parts, index);
}

/* has_all_rows tells whether a tensor at this place has room for all N rows. */
static bool has_all_rows(const struct tensor_scheme *scheme, enum tensor_place place)
{
    return (place == INPUT && scheme->keeps_inputs) || (place == GRADIENT && scheme->keeps_gradients);
}

struct interval tensor_rows_at(const struct tensor_parallel *tp, enum tensor_place place, int64_t N)
{
    const struct tensor_scheme *s = tp->scheme;
    const unsigned cut = tensor_cut_at(s, place).rows;
    /* With room for all rows the interval is [0, N), even if only the own rows are filled so far. */
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
    /* A copy of the share moves from member to member; the share itself does not change. */
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
    /* A tensor of exactly the own rows is the result.  In a tensor with room for all N rows the own rows are looked
     * up. */
    if (tensor_rows(t) == own.count) return t;
    assert(tensor_rows(t) == N);
    const int64_t cols = tensor_cols(t);
    return tensor_2d((char *)t.data + (size_t)(own.first * cols) * dtype_size(t.dtype), t.dtype, own.count, cols);
}

/* ---- widths and layouts ------------------------------------------------------------------------------------------ */

static void add_run(struct runs *runs, struct interval more) { runs->at[runs->count++] = more; }

static int64_t runs_extent(struct runs runs)
{
    int64_t sum = 0;
    for (int i = 0; i < runs.count; i++) sum += runs.at[i].count;
    return sum;
}

/* The inner side of a pair of matrices, without heads; of the embedding and the output matrix. */
static int64_t inner_width(const struct model_config *config, enum param_role role)
{
    switch (role) {
    case ROLE_UP: case ROLE_DOWN:               return config->F;
    case ROLE_SHARED_UP: case ROLE_SHARED_DOWN: return config->mixture.shared;
    case ROLE_DENSE_UP: case ROLE_DENSE_DOWN:   return config->dense.F;
    default:                                    return config->V;
    }
}

/* The other side: the stream, or a latent. */
static int64_t outer_width(const struct model_config *config, enum param_role role)
{
    return role == ROLE_KEYS_VALUES ? config->latent.kv : role == ROLE_QUERIES && config->latent.q > 0
           ? config->latent.q : config->D;
}

/* Each component of a fused matrix (QKV, gate and up) is cut. */
struct runs tensor_runs(const struct model_config *config, enum param_role role, bool output, int parts, int index)
{
    /* The inner side of a matrix is its output if the matrix leads inside, else its input. */
    const bool inner = leads_inside(role) == output;
    const struct heads h = heads_at(config, parts, index);
    struct runs r = { 0 };
    /* These columns lie head after head: one run of this part's query heads. */
    if (inner && (role == ROLE_ATTENTION_OUT || role == ROLE_KEYS_VALUES)) {
        const int64_t width = role == ROLE_KEYS_VALUES ? expanded_width(config) : value_width(config);
        return add_run(&r, (struct interval){ h.queries.first * width, h.queries.count * width }), r;
    }
    /* QKV has three runs: queries, keys, values.  Keys begin after H heads, values after H + K heads. */
    if (inner && (role == ROLE_QKV || role == ROLE_QUERIES)) {
        add_run(&r, heads_columns(config, h.queries));
        for (int64_t before = config->H; role == ROLE_QKV && before <= config->H + config->K; before += config->K)
            add_run(&r, heads_columns(config, interval_moved(h.keys, before)));
        return r;
    }
    if (role == ROLE_SINKS) return add_run(&r, h.queries), r;
    const int64_t width = inner ? inner_width(config, role) : outer_width(config, role);
    /* A matrix with a gate has two runs: columns of the gate, then columns of the gated half.  Other matrices have
     * one run. */
    const struct interval own = block_at(width, parts, index);
    add_run(&r, own);
    if (inner && (role == ROLE_SHARED_UP || role == ROLE_DENSE_UP || (role == ROLE_UP && up_width(config) > config->F)))
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
    /* An empty run keeps the layout valid: the device has a box without elements. */
    if (r.count == 0) add_run(&r, (struct interval){ whole.at[0].first, 0 });
    return r;
}

/* Vectors and the position embedding are cut like the columns of the stream.  Biases of matrices that lead inside are
 * cut like the columns of the inner side. */
static struct tensor_cut cut_of(const struct tensor_scheme *scheme, const struct param_spec *spec)
{
    const bool inner = spec->ndim == 1 && leads_inside(spec->role) && spec->role != ROLE_TOKENS;
    return inner ? tensor_cut_at(scheme, inner_side(spec->role)) : scheme->stream;
}

/* Keys of the device's heads for all rows, then values. */
static struct layout prefix_layout(const struct tensor_parallel *tp, const struct param_spec *spec)
{
    struct layout l = layout_none(spec->ndim, spec->dim);
    const struct interval keys = heads_columns(tp->config, tp->heads.keys);
    /* A device with all key/value heads has the whole prefix. */
    if (keys.count == spec->dim[1] / 2) return layout_whole(spec->ndim, spec->dim);
    for (int part = 0; part < 2; part++)
        layout_add_box(&l, (int64_t[]){ 0, keys.first + part * spec->dim[1] / 2 },
                       (int64_t[]){ spec->dim[0], keys.count });
    return l;
}

/* Position embeddings have two dimensions, but are cut as vectors are. */
static bool is_matrix(const struct param_spec *spec) { return spec->ndim == 2 && spec->role != ROLE_POSITIONS; }

struct layout tensor_layout(const struct tensor_parallel *tp, const struct param_spec *spec)
{
    struct layout l = layout_none(spec->ndim, spec->dim);
    const struct tensor_scheme *s = tp->scheme;
    /* Some roles, such as the router, are whole on every device. */
    if (role_is_whole(spec->role)) return layout_whole(spec->ndim, spec->dim);
    if (spec->role == ROLE_PREFIX) return prefix_layout(tp, spec);
    if (is_matrix(spec)) {
        const struct weight_cut w = s->weight(s, spec->role);
        const struct runs out =
            cut_again(tensor_runs(tp->config, spec->role, true, axes_size(tp, w.out), axes_index(tp, w.out)),
                      axes_size(tp, w.sub), axes_index(tp, w.sub));
        const struct runs in = tensor_runs(tp->config, spec->role, false, axes_size(tp, w.in), axes_index(tp, w.in));
        /* A fused matrix has a box for each of its components. */
        for (int i = 0; i < out.count; i++)
            layout_add_box(&l, (int64_t[]){ out.at[i].first, in.at[0].first },
                           (int64_t[]){ out.at[i].count, in.at[0].count });
        return l;
    }
    /* A vector is cut by columns, and again over the rows' axes where the scheme cuts vectors. */
    const struct tensor_cut cut = cut_of(s, spec);
    const int parts = axes_size(tp, cut.columns), index = axes_index(tp, cut.columns);
    const int subs = s->cuts_vectors ? axes_size(tp, cut.rows) : 1,
              sub = s->cuts_vectors ? axes_index(tp, cut.rows) : 0;
    const bool positions = spec->role == ROLE_POSITIONS;
    const struct runs columns =
        cut_again(tensor_runs(tp->config, spec->role, true, parts, index), positions ? 1 : subs, positions ? 0 : sub);
    /* Positions [S, D]: the second cut is of rows, not of columns. */
    if (positions) {
        const struct runs all = { 1, { { 0, spec->dim[0] } } }, rows = cut_again(all, subs, sub);
        layout_add_box(&l, (int64_t[]){ rows.at[0].first, columns.at[0].first },
                       (int64_t[]){ rows.at[0].count, columns.at[0].count });
    } else for (int i = 0; i < columns.count; i++) layout_add(&l, 0, columns.at[i].first, columns.at[i].count);
    return l;
}

/* The axes along which devices have other pieces of a parameter. */
static unsigned axes_that_cut(const struct tensor_scheme *scheme, const struct param_spec *spec)
{
    const struct tensor_cut cut = cut_of(scheme, spec);
    if (role_is_whole(spec->role)) return 0;
    if (spec->role == ROLE_PREFIX) return scheme->heads.columns;
    if (!is_matrix(spec)) return cut.columns | (scheme->cuts_vectors ? cut.rows : 0);
    const struct weight_cut w = scheme->weight(scheme, spec->role);
    return w.out | w.in | w.sub;
}

/* If the cut has fewer parts than there are devices, some devices have the same piece. */
bool tensor_copied(const struct tensor_parallel *tp, const struct param_spec *spec)
{
    return axes_size(tp, axes_that_cut(tp->scheme, spec)) < tp->devices;
}

/* The first device has coordinate 0 on every axis that does not cut the parameter. */
bool tensor_keeps_first(const struct tensor_parallel *tp, const struct param_spec *spec)
{
    for (int a = 0; a < TENSOR_AXES; a++)
        if (!(axes_that_cut(tp->scheme, spec) & MESH_AXIS(a)) && tp->at[a] != 0) return false;
    return true;
}

int64_t tensor_counted(const struct tensor_parallel *tp, const struct param_spec *spec)
{
    const struct layout own = tensor_layout(tp, spec);
    if (!tensor_keeps_first(tp, spec)) return 0;
    if (spec->role == ROLE_PREFIX && tp->heads.copy > 0) return 0;
    /* A later copy of keys and values counts only its queries. */
    if (spec->role != ROLE_QKV || tp->heads.copy == 0) return layout_count(&own);
    /* The queries come first in the piece, so their elements are the leading elements. */
    return tp->heads.queries.count * tp->config->A * (spec->ndim == 2 ? layout_cols(&own) : 1);
}
