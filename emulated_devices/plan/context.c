/* context.c -- which tokens of which sequences a device has. */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/schemes/attention/streams.h"
#include "ref/model/sample_mask.h"
#include <stdlib.h>

/* Where microbatches differ in what they compute, or have sizes that were asked for, they stay as they are. */
bool plan_plans_steps(const struct plan *p)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, p->attention, NULL) && s->plans_steps && p->mesh.size[CP] > 1 &&
           p->batches == NULL && p->updates <= 1 && !p->skips;
}

struct interval plan_sequences(const struct plan *p, int dp, int micro)
{
    if (!plan_plans_steps(p)) return plan_microbatch(p, dp, micro);
    const struct interval first = plan_microbatch(p, dp, 0), last = plan_microbatch(p, dp, p->micros - 1);
    return (struct interval){ first.first, interval_end(last) - first.first };
}

/* The fewest query heads of a device along tp. */
static int64_t fewest_heads(const struct plan *p)
{
    struct tensor_parallel tp = { .config = &p->model };
    int64_t fewest = p->model.H;
    tensor_scheme_find(&tp.scheme, p->tensor, NULL);
    tensor_share(&tp, p->mesh.size[TP], 0);
    const int parts = axes_size(&tp, tp.scheme->heads.columns);
    for (int i = 0; i < parts; i++) {
        const int64_t heads = heads_at(&p->model, parts, i).queries.count;
        if (heads < fewest) fewest = heads;
    }
    return fewest;
}

/* The most devices along cp that divide it and have a query head each, on every device along tp. */
static int most_by_heads(const struct plan *p)
{
    const int64_t fewest = fewest_heads(p);
    int n = p->mesh.size[CP];
    while (n > 1 && (n > fewest || p->mesh.size[CP] % n != 0)) n--;
    return n;
}

static struct context_split split_of(const struct plan *p, const struct attention_scheme *s)
{
    struct context_split split = p->split;
    if (!s->splits) return (struct context_split){ .heads = p->mesh.size[CP], .window = 1 };
    if (split.heads == 0) split.heads = most_by_heads(p);
    if (split.window == 0) split.window = p->mesh.size[CP] / split.heads;
    return split;
}

struct context_parallel plan_context_share(const struct plan *p, const struct tensor_parallel *tp, int rank)
{
    struct context_parallel cp = {
        .tp = tp, .heads = tp ? &tp->heads : NULL, .S = p->S, .devices = p->mesh.size[CP],
        .rank = mesh_coordinate(&p->mesh, rank, CP), .streams = STREAMS(&p->model)
    };
    attention_scheme_find(&cp.scheme, p->attention, NULL);
    cp.split = split_of(p, cp.scheme);
    return cp;
}

struct seams plan_seams(const struct plan *p, const struct tensor_parallel *tp, int rank)
{
    return (struct seams){ .tp = tp, .cp = plan_context_share(p, tp, rank), .ep = plan_expert_share(p, tp, rank) };
}

bool plan_follows_data(const struct plan *p)
{
    const struct attention_scheme *s;
    return p->packed && !attention_scheme_find(&s, p->attention, NULL) && s->plan;
}

/* Devices along cp that share a node: neighbours, and as many on each. */
static int node_of_context(const struct plan *p)
{
    const int cp = p->mesh.size[CP];
    const int devices = p->cluster && p->cluster->levels > 1 ? p->cluster->link[p->cluster->levels - 2].devices : 0;
    int n = 1;
    while (devices > 0 && n < cp && mesh_neighbour(&p->mesh, 0, CP, n) < devices) n++;
    return devices > 0 && cp % n == 0 ? n : cp;
}

/* Operations in the time in which the nearest link sends a number.  Without a cluster 1000; an H100 does 4400 of them
 * while its NVLink sends one of 16 bits. */
static double per_element(const struct plan *p)
{
    const struct cluster *c = p->cluster;
    if (c == NULL) return 1000;
    if (c->link[0].rate == 0 || c->flop_rate[p->dtype] <= 0) return 0;
    return (double)dtype_size(p->dtype) * (double)c->flop_rate[p->dtype] / (double)c->link[0].rate;
}

/* Elements that a layer keeps of a token between forward and backward: the block's input, and what its norms and
 * matrices read.  What attention and norms keep of a row is left out. */
static double kept_elements(const struct model_config *c)
{
    const double rows = c->mlp == MLP_MIXTURE ? (double)c->mixture.k : 1;       /* dense layers count as mixtures */
    const double attention = (double)((c->parallel ? 3 : 4) * c->D +
                                      (c->head_norms ? 2 : 1) * qkv_width(c) + heads_width(c));
    return attention + rows * (double)((c->mlp == MLP_GELU ? 2 : 3) * c->F + (rows > 1 ? 2 * c->D : 0));
}

/* Operations in the time in which the copy engine moves what a layer keeps of a token to the host.  Without a cluster a
 * number takes as long as 7 over the nearest link: PCIe 5 has 64 GB/s, an H100's NVLink 450. */
static double per_kept(const struct plan *p)
{
    const struct cluster *c = p->cluster;
    const double elements = kept_elements(&p->model) / p->mesh.size[TP];
    if (!p->offload_activations) return 0;
    if (c == NULL) return 7 * per_element(p) * elements;
    if (c->copy_rate == 0 || c->flop_rate[p->dtype] <= 0) return 1e-9;          /* copies take no time */
    return (double)dtype_size(p->dtype) * (double)c->flop_rate[p->dtype] / (double)c->copy_rate * elements;
}

/* The lengths of the samples of some sequences.  @param[out] length  room for their tokens.  @return how many. */
static int sample_lengths(const struct plan *p, struct interval sequences, int64_t length[])
{
    const int64_t first = sequences.first * p->S;
    int n = 0;
    for (int64_t i = 0; i < sequences.count * p->S; i++) {
        const int64_t position = p->within ? sample_position(p->within[first + i]) : i % p->S;
        /* A token at position 0 begins a sample. */
        if (position == 0) length[n++] = 0;
        length[n - 1]++;
    }
    return n;
}

/* The last plan that was made.  Planners are pure, and where samples are all as long as a sequence, the microbatches of
 * all devices are alike. */
static struct { const struct attention_scheme *by; struct context_load load; struct context_plan plan; } last;

/* Make a plan, or copy the last one.  In the end the load is freed, or kept. */
static enum error_code make_or_copy(const struct attention_scheme *s, struct context_load *l, struct context_plan *out,
                                    struct error *err)
{
    const bool same = last.by == s && context_load_same(&last.load, l);
    enum error_code e = same ? context_plan_copy(out, &last.plan, err) : s->plan(out, l, err);
    struct context_plan kept;
    if (e || same || l->sees || context_plan_copy(&kept, out, NULL)) {
        context_load_free(l);
        return e;
    }
    context_load_free(&last.load), context_plan_free(&last.plan);
    last.by = s, last.load = *l, last.plan = kept;
    return OK;
}

enum error_code plan_context_load(const struct plan *p, int dp, int micro, struct context_load *out, struct error *err)
{
    const struct interval own = plan_sequences(p, dp, micro);
    const struct model_config *c = &p->model;
    const int64_t tokens = own.count * p->S;
    int64_t *const length = malloc((size_t)tokens * sizeof *length);
    if (length == NULL) return fail(err, ERR_MEMORY, "no memory for the samples of %lld tokens", (long long)tokens);
    *out = (struct context_load){
        .length = length, .samples = sample_lengths(p, own, length), .tokens = tokens, .devices = p->mesh.size[CP],
        .node = node_of_context(p), .micros = plan_plans_steps(p) ? p->micros : 1,
        .micro = plan_plans_steps(p) ? micro : 0,
        .query_width = c->H * c->A, .key_width = 2 * c->K * c->A,
        .heads = fewest_heads(p), .per_element = per_element(p),
        .layers = (int)block_at(c->L, p->stages > 0 ? p->stages : 1, 0).count,
        .per_kept = per_kept(p), .per_pair = 4 * (double)(c->H * c->A),
        .per_token = model_forward_flops(c, 1, 1) / (double)c->L,
    };
    return OK;
}

enum error_code plan_context(const struct plan *p, int dp, int micro, struct tensor mask, struct context_plan *out,
                             struct error *err)
{
    const struct attention_scheme *s;
    struct context_load load;
    *out = (struct context_plan){ 0 };
    enum error_code e = attention_scheme_find(&s, p->attention, err);
    if (e || s->plan == NULL || plan_sequences(p, dp, micro).count == 0) return e;
    e = plan_context_load(p, dp, micro, &load, err);
    if (e) return e;
    load.sees = mask.data, load.ranges = (int)(tensor_cols(mask) / 2);
    return make_or_copy(s, &load, out, err);
}

/* This device's tokens of one stream. */
static struct intervals tokens_of(const struct plan *p, int rank, int micro, const struct context_plan *plan)
{
    const struct interval own = plan_sequences(p, mesh_coordinate(&p->mesh, rank, DP), micro);
    struct context_parallel cp = plan_context_share(p, NULL, rank);
    cp.plan = cp.scheme->plan ? plan : NULL;
    struct intervals tokens = context_tokens(&cp), rows = { 0 };
    /* A plan lists the tokens of all sequences at once; else each sequence is cut alike. */
    for (int64_t b = own.first; b < (cp.plan ? own.first + 1 : interval_end(own)); b++)
        for (int i = 0; i < tokens.count; i++) intervals_add(&rows, interval_moved(tokens.at[i], b * p->S));
    if (intervals_lost(&tokens)) rows.room = -1;
    intervals_free(&tokens);
    plan_shuffle(p, rank, &rows);
    return rows;
}

struct intervals plan_rows_by(const struct plan *p, int rank, int micro, const struct context_plan *plan)
{
    const struct context_parallel cp = plan_context_share(p, NULL, rank);
    struct intervals tokens = tokens_of(p, rank, micro, plan), rows = { 0 };
    if (cp.streams == 1) return tokens;
    const struct interval streams = streams_of(&cp, cp.rank);
    /* The rows of stream i follow those of all sequences of the streams before it. */
    for (int64_t i = streams.first; i < interval_end(streams); i++)
        for (int k = 0; k < tokens.count; k++) intervals_add(&rows, interval_moved(tokens.at[k], i * p->B * p->S));
    if (intervals_lost(&tokens)) rows.room = -1;
    intervals_free(&tokens);
    return rows;
}

struct intervals plan_loss_rows_by(const struct plan *p, int rank, int micro, const struct context_plan *plan)
{
    const struct context_parallel cp = plan_context_share(p, NULL, rank);
    struct intervals tokens = tokens_of(p, rank, micro, plan), rows = { 0 };
    if (!cp.scheme->cuts_streams) return tokens;
    intervals_add_part(&rows, &tokens, stream_tokens_of(&cp, intervals_total(&tokens), cp.rank));
    if (intervals_lost(&tokens)) rows.room = -1;
    intervals_free(&tokens);
    return rows;
}

static struct intervals planned(const struct plan *p, int rank, int micro,
                                struct intervals (*rows_by)(const struct plan *, int, int, const struct context_plan *))
{
    struct context_plan plan;
    if (plan_context(p, mesh_coordinate(&p->mesh, rank, DP), micro, tensor_none, &plan, NULL))
        return (struct intervals){ .room = -1 };
    const struct intervals rows = rows_by(p, rank, micro, &plan);
    context_plan_free(&plan);
    return rows;
}

struct intervals plan_rows(const struct plan *p, int rank, int micro) { return planned(p, rank, micro, plan_rows_by); }
struct intervals plan_loss_rows(const struct plan *p, int rank, int micro)
{
    return planned(p, rank, micro, plan_loss_rows_by);
}

enum error_code plan_name_microbatches(const struct plan *p, int32_t *micro_of, struct error *err)
{
    const int64_t N = p->B * p->S;
    bool known = true;
    for (int rank = 0; rank < p->mesh.devices && known; rank++) {
        /* Devices along pp and tp have the same tokens, so the first of each speaks. */
        if (mesh_coordinate(&p->mesh, rank, PP) > 0 || mesh_coordinate(&p->mesh, rank, TP) > 0) continue;
        for (int micro = 0; micro < p->micros && known; micro++) {
            struct intervals rows = plan_rows(p, rank, micro);
            known = !intervals_lost(&rows);
            for (int i = 0; i < rows.count && known; i++)
                for (int64_t row = rows.at[i].first; row < interval_end(rows.at[i]); row++)
                    micro_of[row % N] = mesh_coordinate(&p->mesh, rank, DP) * p->micros + micro;
            intervals_free(&rows);
        }
    }
    return known ? OK : fail(err, ERR_MEMORY, "no memory for the microbatches of %lld tokens", (long long)N);
}
