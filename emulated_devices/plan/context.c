/* context.c -- which tokens of which sequences a device has.
 *
 * The trainer, dry runs and verify/ ask for rows and plans.  A list of intervals without memory is lost (room -1),
 * which callers must ask; functions with an error_code return ERR_PLAN or ERR_MEMORY.
 */
#include "emulated_devices/plan/planning.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/schemes/attention/streams.h"
#include "ref/machine/measure.h"
#include "ref/model/kinds.h"
#include "ref/model/sample_mask.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Find a part by the first `length` letters of a text.  @return its number, or -1. */
static int part_named(const struct attention_scheme *scheme, const char *text, size_t length)
{
    for (int i = 0; scheme->parts && scheme->parts[i].name; i++)
        if (strlen(scheme->parts[i].name) == length && strncmp(scheme->parts[i].name, text, length) == 0) return i;
    return -1;
}

static enum error_code fail_without(const struct plan *plan, const struct attention_scheme *scheme, struct error *err)
{
    char names[128] = "nothing to leave out";
    for (int i = 0, at = 0; scheme->parts && scheme->parts[i].name; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i > 0 ? ", " : "", scheme->parts[i].name);
    return fail(err, ERR_PLAN, "--attention-without %s: --attention %s has %s", plan->attention_without,
                scheme->head.name, names);
}

enum error_code plan_attention_without(const struct plan *plan, unsigned *bits, struct error *err)
{
    const struct attention_scheme *scheme;
    const char *name = plan->attention_without;
    *bits = 0;
    if (name == NULL) return OK;
    const enum error_code e = attention_scheme_find(&scheme, plan->attention, err);
    for (bool more = true; more && !e;) {
        const size_t length = strcspn(name, ",");
        const int part = part_named(scheme, name, length);
        if (part < 0) return fail_without(plan, scheme, err);
        *bits |= 1u << part, more = name[length] == ',', name += length + 1;
    }
    return e;
}

/* Whether the scheme plans the microbatches of a step together; a part of a scheme that does may be left out. */
static bool plans_steps(const struct plan *plan)
{
    const struct attention_scheme *s;
    unsigned without;
    if (attention_scheme_find(&s, plan->attention, NULL) || !s->plans_steps) return false;
    return plan_attention_without(plan, &without, NULL) || !(without & s->steps_part);
}

/* Where microbatches differ in what they compute, have sizes that were asked for, or go on to another section, they
 * stay as they are. */
bool plan_plans_steps(const struct plan *plan)
{
    return plans_steps(plan) && plan->mesh.size[CP] > 1 && plan->batches == NULL && plan->updates <= 1 &&
           !plan->skips && plan->layers.count == 0;
}

struct interval plan_sequences(const struct plan *plan, int dp, int micro)
{
    /* A scheme that plans steps may take a microbatch's tokens from all sequences of the copy. */
    if (!plan_plans_steps(plan)) return plan_microbatch(plan, dp, micro);
    const struct interval first = plan_microbatch(plan, dp, 0), last = plan_microbatch(plan, dp, plan->micros - 1);
    return (struct interval){ first.first, interval_end(last) - first.first };
}

/* The result is the fewest query heads of any device along tp. */
static int64_t fewest_heads(const struct plan *plan)
{
    struct tensor_parallel tp = { .config = &plan->model };
    int64_t fewest = plan->model.H;
    tensor_scheme_find(&tp.scheme, plan->tensor, NULL);
    tensor_share(&tp, plan->mesh.size[TP], 0);
    const int parts = axes_size(&tp, tp.scheme->heads.columns);
    for (int i = 0; i < parts; i++) {
        const int64_t heads = heads_at(&plan->model, parts, i).queries.count;
        if (heads < fewest) fewest = heads;
    }
    return fewest;
}

/* The result is the largest divisor of cp with which every device, along tp too, has a query head. */
static int most_by_heads(const struct plan *plan)
{
    const int64_t fewest = fewest_heads(plan);
    int n = plan->mesh.size[CP];
    while (n > 1 && (n > fewest || plan->mesh.size[CP] % n != 0)) n--;
    return n;
}

/* The split is the plan's.  By default as many devices as possible share heads, in rings without windows. */
static struct context_split split_of(const struct plan *plan, const struct attention_scheme *scheme)
{
    struct context_split split = plan->split;
    if (!scheme->splits) return (struct context_split){ .heads = plan->mesh.size[CP], .window = 1 };
    if (split.heads == 0) split.heads = most_by_heads(plan);
    if (split.window == 0) split.window = plan->mesh.size[CP] / split.heads;
    return split;
}

struct context_parallel plan_context_share(const struct plan *plan, const struct tensor_parallel *tp, int rank)
{
    /* The share has only extents; groups and device are set when the trainer opens. */
    struct context_parallel cp = {
        .tp = tp, .heads = tp ? &tp->heads : NULL, .S = plan->S, .devices = plan->mesh.size[CP],
        .rank = mesh_coordinate(&plan->mesh, rank, CP), .streams = STREAMS(&plan->model)
    };
    attention_scheme_find(&cp.scheme, plan->attention, NULL);
    cp.split = split_of(plan, cp.scheme);
    return cp;
}

struct seams plan_seams(const struct plan *plan, const struct tensor_parallel *tp, int rank)
{
    return (struct seams){ .tp = tp, .cp = plan_context_share(plan, tp, rank),
                          .ep = plan_expert_share(plan, tp, rank) };
}

bool plan_follows_data(const struct plan *plan)
{
    const struct attention_scheme *s;
    bool follows = plan->sections == NULL && plan->packed && !attention_scheme_find(&s, plan->attention, NULL)
        && s->plan;
    for (int i = 0; plan->sections && i < plan->sections->count; i++)
        follows = follows || plan_follows_data(&plan->sections->at[i]);
    return follows;
}

/* The result is how many devices along cp share a node: neighbours, and as many on each. */
static int node_of_context(const struct plan *plan)
{
    const int cp = plan->mesh.size[CP];
    const int devices = plan->cluster && plan->cluster->levels > 1
        ? plan->cluster->link[plan->cluster->levels - 2].devices : 0;
    const int first = plan->mesh.first, node = devices > 0 ? cluster_slot(plan->cluster, first) / devices : 0;
    /* n counts neighbours along cp on the first one's node.  Nodes must divide cp evenly to count. */
    int n = 1;
    while (devices > 0 && n < cp &&
           cluster_slot(plan->cluster, mesh_neighbour(&plan->mesh, first, CP, n)) / devices == node)
        n++;
    return devices > 0 && cp % n == 0 ? n : cp;
}

/* Operations in the time in which a link of this level sends a number.  Without a cluster 1000; an H100 does 4400 of
 * them while its NVLink sends one of 16 bits. */
static double per_element(const struct plan *plan, int level)
{
    const struct cluster *c = plan->cluster;
    if (c == NULL) return 1000;
    if (c->link[level].rate == 0 || c->flop_rate[plan->dtype] <= 0) return 0;
    return (double)dtype_size(plan->dtype) * (double)c->flop_rate[plan->dtype] / (double)c->link[level].rate;
}

/* A layer keeps so many elements of a token between forward and backward: the block's input, and what its norms and
 * matrices read.  Statistics of attention and norms are left out. */
static double kept_elements(const struct model_config *config)
{
    /* dense layers count as mixtures */
    /* A mixture keeps k rows of a token, each with the inputs and outputs of its expert. */
    const double rows = config->mlp == MLP_MIXTURE ? (double)config->mixture.k : 1;
    const double attention = (double)((config->parallel && !config->two_norms ? 3 : 4) * config->D +
                                      (config->head_norms ? 2 : 1) * qkv_width(config) + heads_width(config));
    return attention + rows * (double)((config->mlp == MLP_GELU ? 2 : 3) * config->F + (rows > 1 ? 2 * config->D : 0));
}

/* Operations in the time in which the copy engine moves what a layer keeps of a token to the host.  Without a cluster a
 * number takes as long as 7 over the nearest link: PCIe 5 has 64 GB/s, an H100's NVLink 450. */
static double per_kept(const struct plan *plan)
{
    const struct cluster *c = plan->cluster;
    const double elements = kept_elements(&plan->model) / plan->mesh.size[TP];
    if (!plan->offload_activations) return 0;
    if (c == NULL) return 7 * per_element(plan, 0) * elements;
    if (c->copy_rate == 0 || c->flop_rate[plan->dtype] <= 0) return 1e-9;          /* copies take no time */
    return (double)dtype_size(plan->dtype) * (double)c->flop_rate[plan->dtype] / (double)c->copy_rate * elements;
}

/* A layer's forward pass has about so many kernels: two norms, four products, rotation, attention, an activation, two
 * sums, and copies of the exchange. */
enum { LAYER_KERNELS = 12 };

/* Operations in the time in which the kernels of a layer are started, by the host or on the device. */
static double per_micro(const struct plan *plan)
{
    const struct cluster *c = plan->cluster;
    if (c == NULL) return 0;
    const picoseconds host = kernel_set_pace(c->kernels.set, c),
                      start = host > c->kernels.launch ? host : c->kernels.launch;
    /* 10^6 operations a second are 10^-6 operations a picosecond. */
    return 1e-6 * LAYER_KERNELS * (double)start * (double)c->flop_rate[plan->dtype];
}

/* The lengths of the samples of some sequences.  @param[out] length  room for their tokens.  @return how many. */
static int sample_lengths(const struct plan *plan, struct interval sequences, int64_t length[])
{
    const int64_t first = sequences.first * plan->S;
    int n = 0;
    if (plan->samples) {
        const int64_t *const at = plan->samples->first, begin = at[sequences.first];
        n = (int)(at[interval_end(sequences)] - begin);
        memcpy(length, plan->samples->length + begin, (size_t)n * sizeof *length);
        return n;
    }
    for (int64_t i = 0; i < sequences.count * plan->S; i++) {
        /* Without packed samples each sequence is one sample. */
        const int64_t position = plan->within ? sample_position(plan->within[first + i]) : i % plan->S;
        /* A token at position 0 begins a sample. */
        if (position == 0) length[n++] = 0;
        length[n - 1]++;
    }
    return n;
}

/* These are the last plans that were made.  Planners are pure, so devices of one process that plan the same microbatch
 * share a plan; there are as many as a step of some copies and microbatches needs. */
enum { PLANS_KEPT = 64 };
struct kept_plan { const struct attention_scheme *by; struct context_load load; struct context_plan plan; };
static struct kept_plan kept[PLANS_KEPT];
static int next_kept;

/* The number of a kept plan of the same facts, or -1. */
static int find_kept(const struct attention_scheme *scheme, const struct context_load *load)
{
    for (int i = 0; i < PLANS_KEPT; i++)
        if (kept[i].by == scheme && context_load_same(&kept[i].load, load)) return i;
    return -1;
}

static struct planning planning;

struct planning planning_so_far(void) { return planning; }

/* Let the scheme make a plan, and note how long the planner takes. */
static enum error_code plan_by(const struct attention_scheme *scheme, struct context_plan *out,
                               const struct context_load *load, struct error *err)
{
    const double begin = measure_processor();
    const enum error_code e = scheme->plan(out, load, err);
    planning.seconds += measure_processor() - begin, planning.plans++;
    return e;
}

/* Make a plan, or share a kept one.  In the end the load is freed, or kept. */
static enum error_code make_or_share(const struct attention_scheme *scheme, struct context_load *load,
                                     struct context_plan *out, struct error *err)
{
    struct context_plan again;
    const int same = find_kept(scheme, load);
    enum error_code e = same >= 0 ? context_plan_share(out, &kept[same].plan, err) : plan_by(scheme, out, load, err);
    if (e || same >= 0 || load->sees != load->made || context_plan_share(&again, out, NULL)) {
        context_load_free(load);
        return e;
    }
    context_load_free(&kept[next_kept].load), context_plan_free(&kept[next_kept].plan);
    kept[next_kept].by = scheme, kept[next_kept].load = *load, kept[next_kept].plan = again;
    next_kept = (next_kept + 1) % PLANS_KEPT;
    return OK;
}

enum error_code plan_context_load(const struct plan *plan, int dp, int micro, struct context_load *out,
                                  struct error *err)
{
    const struct interval own = plan_sequences(plan, dp, micro);
    const struct model_config *c = &plan->model;
    const int64_t tokens = own.count * plan->S;
    const int64_t *const known = plan->samples ? plan->samples->first : NULL;
    const int64_t most = known ? known[interval_end(own)] - known[own.first] : tokens;
    int64_t *const length = malloc((size_t)most * sizeof *length);
    if (length == NULL) return fail(err, ERR_MEMORY, "no memory for the samples of %lld tokens", (long long)tokens);
    /* Costs are in operations: per_pair and per_token of computing, per_element and per_kept of moving. */
    *out = (struct context_load){
        .length = length, .samples = sample_lengths(plan, own, length), .tokens = tokens,
        .devices = plan->mesh.size[CP],
        .room = (int64_t)plan->micro_tokens, .node = node_of_context(plan),
        .micros = plan_plans_steps(plan) ? plan->micros : 1,
        .micro = plan_plans_steps(plan) ? micro : 0,
        .query_width = c->H * c->A, .key_width = 2 * c->K * c->A,
        .heads = fewest_heads(plan), .per_element = per_element(plan, 0),
        .per_far_element = per_element(plan, plan->cluster ? plan->cluster->levels - 1 : 0),
        .per_micro = per_micro(plan), .layers = (int)block_at(c->L, plan->stages > 0 ? plan->stages : 1, 0).count,
        .per_kept = per_kept(plan), .per_pair = 4 * (double)(c->H * c->A),
        .per_token = model_forward_flops(c, 1, 1) / (double)c->L,
    };
    enum error_code e = plan_attention_without(plan, &out->without, err);
    if (!e) e = context_load_mask(out, &c->mask, err);
    if (e) context_load_free(out);
    return e;
}

enum error_code plan_context(const struct plan *plan, int dp, int micro, struct tensor mask, struct context_plan *out,
                             struct error *err)
{
    const struct attention_scheme *s;
    struct context_load load;
    *out = (struct context_plan){ 0 };
    enum error_code e = attention_scheme_find(&s, plan->attention, err);
    /* Schemes that cut every sequence alike have no plans, and an empty microbatch needs none. */
    if (e || s->plan == NULL || plan_sequences(plan, dp, micro).count == 0 || plan_waits_for_samples(plan)) return e;
    e = plan_context_load(plan, dp, micro, &load, err);
    if (e) return e;
    /* A given mask has two columns for each range of tokens that a token sees. */
    if (tensor_present(mask)) load.sees = mask.data, load.ranges = (int)(tensor_cols(mask) / 2);
    return make_or_share(s, &load, out, err);
}

/* The result has this device's tokens of one stream. */
static struct intervals plan_context_tokens_of(const struct plan *p, int rank, int micro,
                                               const struct context_plan *plan)
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
    struct intervals tokens = plan_context_tokens_of(p, rank, micro, plan), rows = { 0 };
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
    struct intervals tokens = plan_context_tokens_of(p, rank, micro, plan), rows = { 0 };
    if (!cp.scheme->cuts_streams) return tokens;
    /* Devices along cp have different streams of the same tokens, so each computes the losses of a part. */
    intervals_add_part(&rows, &tokens, stream_tokens_of(&cp, intervals_total(&tokens), cp.rank));
    if (intervals_lost(&tokens)) rows.room = -1;
    intervals_free(&tokens);
    return rows;
}

/* Make the microbatch's plan, ask for the rows by it, and free it.  Without memory the rows are lost. */
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

struct intervals plan_rows(const struct plan *plan, int rank, int micro)
{
    return planned(plan, rank, micro, plan_rows_by);
}
struct intervals plan_loss_rows(const struct plan *plan, int rank, int micro)
{
    return planned(plan, rank, micro, plan_loss_rows_by);
}

enum error_code plan_name_microbatches(const struct plan *plan, int32_t *micro_of, struct error *err)
{
    const int64_t N = plan->B * plan->S;
    bool known = true;
    /* The sections of such a plan have the same copies, and the batch of the plan's step. */
    if (plan->sections) {
        struct plan first = plan->sections->at[0];
        first.B = plan->B, first.batch_step = plan->batch_step;
        first.ids = plan->ids, first.within = plan->within, first.samples = plan->samples;
        return plan_name_microbatches(&first, micro_of, err);
    }
    for (int rank = 0; rank < plan->mesh.devices && known; rank++) {
        /* Devices along pp and tp have the same tokens, so the first of each speaks. */
        if (mesh_coordinate(&plan->mesh, rank, PP) > 0 || mesh_coordinate(&plan->mesh, rank, TP) > 0) continue;
        for (int micro = 0; micro < plan->micros && known; micro++) {
            struct intervals rows = plan_rows(plan, rank, micro);
            known = !intervals_lost(&rows);
            for (int i = 0; i < rows.count && known; i++)
                for (int64_t row = rows.at[i].first; row < interval_end(rows.at[i]); row++)
                    micro_of[row % N] = mesh_coordinate(&plan->mesh, rank, DP) * plan->micros + micro;
            intervals_free(&rows);
        }
    }
    return known ? OK : fail(err, ERR_MEMORY, "no memory for the microbatches of %lld tokens", (long long)N);
}

const char *plan_usual_attention(const struct plan *plan)
{
    if (plan->mesh.size[CP] == 1) return attention_scheme_at(0)->head.name;
    return STREAMS(&plan->model) > 1 ? "streams" : "ring-zigzag";
}
