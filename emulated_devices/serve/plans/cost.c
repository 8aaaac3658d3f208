/* cost.c -- the time of an iteration on a plan, by tables.  search.c calls.  No function returns an error code: what no
 * table has is named in `missing`. */
#include "emulated_devices/serve/plans/cost.h"
#include "emulated_devices/device/cluster.h"
#include "ref/model/config.h"
#include "ref/model/param.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdio.h>

static double table_time(struct plan_costs *costs, enum profile_list which, const double *key)
{
    const double seconds = profile_seconds(costs->profile, which, key);
    const struct profile_kind *const kind = &profile_kinds[which];
    if (seconds >= 0) return seconds;
    if (costs->missing[0] == '\0')
        snprintf(costs->missing, sizeof costs->missing, "%s.csv has no row with %s %g, %s %g", kind->file,
                 kind->key[0].name, key[0], kind->key[1].name, key[1]);
    return 0;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static bool of_attention(enum param_role role)
{
    return role == ROLE_QKV || role == ROLE_ATTENTION_OUT || role == ROLE_LATENT || role == ROLE_QUERIES ||
           role == ROLE_KEYS_VALUES;
}

struct plan_costs plan_costs_of(struct time_profile *profile, const struct model_config *model,
                                const struct cluster *cluster, enum dtype dtype)
{
    struct plan_costs costs = { .profile = profile, .model = model, .cluster = cluster, .dtype = dtype,
                                .calibration = { .factor = 1 } };
    for (int i = 0; i < model_param_count(model) && costs.matrices < LAYER_MATRICES; i++) {
        const struct param_spec spec = model_param(model, i);
        if (spec.layer == 0 && param_is_linear(&spec))
            costs.matrix[costs.matrices++] = (struct layer_matrix){
                spec.dim[0], spec.dim[1], of_attention(spec.role),
                spec.role == ROLE_ATTENTION_OUT || spec.role == ROLE_DOWN, spec.role == ROLE_LATENT };
    }
    return costs;
}

void layer_matrix_part(const struct layer_matrix *matrix, int devices, int64_t *out, int64_t *in)
{
    const int64_t n = matrix->whole ? 1 : devices;
    *out = matrix->ends ? matrix->out : (matrix->out + n - 1) / n;
    *in = matrix->ends ? (matrix->in + n - 1) / n : matrix->in;
}

/* The products of a layer's attention, or of its feed-forward, with so many rows. */
static double products_time(struct plan_costs *costs, bool attention, int devices, int64_t rows)
{
    double sum = 0;
    for (int i = 0; i < costs->matrices && rows > 0; i++) {
        int64_t out, in;
        if (costs->matrix[i].attention != attention) continue;
        layer_matrix_part(&costs->matrix[i], devices, &out, &in);
        sum += table_time(costs, PROFILE_GEMM, (double[]){ (double)rows, (double)out, (double)in });
    }
    return sum;
}

static double head_time(struct plan_costs *costs, int devices, int64_t rows)
{
    const double key[] = { (double)rows, ceil((double)costs->model->V / devices), (double)costs->model->D };
    return rows > 0 ? table_time(costs, PROFILE_GEMM, key) : 0;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Attention has this to do in an iteration: pairs of prompts, and single queries beside keys. */
struct attention_work { int64_t prompts, queries; double pairs, keys; };

static struct attention_work work_of(const struct iteration *now)
{
    struct attention_work work = { .prompts = 0 };
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const p = &now->piece[i];
        const double pairs = (double)p->count * ((double)p->first + ((double)p->count + 1) / 2);
        if (p->count == 1 && p->first > 0) work.queries++, work.keys += pairs;
        else work.prompts++, work.pairs += pairs;
    }
    return work;
}

/* Tables of APEX have no keys of single queries: then reading these takes what the described memory takes. */
static double queries_time(struct plan_costs *costs, const struct attention_work *work, double heads, double key_heads)
{
    const double A = (double)costs->model->A, n = (double)work->queries;
    const double key[] = { A, heads, n, work->keys / n }, plain[] = { A, 1, n, heads };
    const double rate = 1e6 * (double)costs->cluster->memory_rate;
    if (costs->profile->list[PROFILE_DECODE].rows > 0) return table_time(costs, PROFILE_DECODE, key);
    const double bytes = work->keys * 2 * key_heads * A * (double)dtype_size(costs->dtype);
    return table_time(costs, PROFILE_ATTENTION, plain) + (rate > 0 ? bytes / rate : 0);
}

/* Prompts count as one batch, as long as prompts without a past that have as many pairs. */
static double attention_time(struct plan_costs *costs, const struct iteration *now, int devices)
{
    const struct model_config *const c = costs->model;
    const struct attention_work work = work_of(now);
    const double heads = ceil((double)c->H / devices), key_heads = ceil((double)c->K / devices);
    double sum = 0;
    if (work.prompts > 0) {
        const double n = (double)work.prompts, key[] = { (double)c->A, sqrt(2 * work.pairs / n), n, heads };
        sum += table_time(costs, PROFILE_ATTENTION, key);
    }
    return work.queries > 0 ? sum + queries_time(costs, &work, heads, key_heads) : sum;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void group_columns(const struct cluster *cluster, int devices, double key[2])
{
    int node = 0;
    for (int l = 0; l < cluster->levels; l++)
        if (cluster->link[l].devices > node && l + 1 < cluster->levels) node = cluster->link[l].devices;
    if (node == 0 && cluster->levels == 1) node = cluster->link[0].devices;
    key[0] = node > 0 && devices > node ? ceil((double)devices / node) : 1;
    key[1] = devices / key[0];
}

static double message_time(struct plan_costs *costs, enum profile_list which, int devices, double rows)
{
    double key[3];
    if (devices == 1 || rows <= 0) return 0;
    group_columns(costs->cluster, devices, key);
    key[2] = rows * (double)costs->model->D * (double)dtype_size(costs->dtype) / 1024;
    return table_time(costs, which, key);
}

/* Rows of the groups of one cell go to those of the next: each group has so many before, and after. */
static double reshard_time(struct plan_costs *costs, const struct serving_cell *from, const struct serving_cell *to,
                           double before, double after)
{
    if (from->cells == to->cells) return message_time(costs, PROFILE_ALL_REDUCE, from->devices, before);
    return message_time(costs, PROFILE_REDUCE_SCATTER, from->devices, before) +
           message_time(costs, PROFILE_ALL_GATHER, to->devices, after);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

struct step_cost step_cost_of(struct plan_costs *costs, const struct serving_plan *plan,
                              const struct iteration *const *part)
{
    const struct serving_cell *const a = &plan->attention, *const f = &plan->feedforward;
    const double L = (double)costs->model->L, stages = plan->stages;
    double longest = 0, computing = 0;
    int64_t most = 0, all = 0, samples = 0;
    for (int m = 0; m < a->cells; m++) {
        if (part[m] == NULL) continue;
        const double takes = products_time(costs, true, a->devices, part[m]->tokens) +
                             attention_time(costs, part[m], a->devices);
        longest = takes > longest ? takes : longest, computing += takes * a->devices;
        most = part[m]->tokens > most ? part[m]->tokens : most;
        all += part[m]->tokens, samples += part[m]->samples;
    }
    /* Groups of attention bring as many rows each as the fullest. */
    const double rows = f->cells > 1 ? ceil((double)all / f->cells) : (double)most * a->cells;
    const double forward = products_time(costs, false, f->devices, f->cells > 1 ? (int64_t)rows : all);
    const double head = head_time(costs, f->devices, samples);
    const double layer = longest + reshard_time(costs, a, f, (double)most, rows) + forward +
                         reshard_time(costs, f, a, rows, (double)most);
    const double passes = (stages - 1) * message_time(costs, PROFILE_SEND, 2, (double)most);
    const double tables = L * layer + head + passes;
    const double usual = fmax(costs->calibration.factor * tables + costs->calibration.rest, costs->calibration.floor);
    const double busy = L * (computing + forward * f->cells * f->devices) + head * f->devices;
    /* One stage works at a time, and no device longer than the iteration takes. */
    return (struct step_cost){ tables, usual, fmin(costs->calibration.factor * busy, usual * plan_stage_size(plan)) };
}

double plan_weight_bytes(const struct plan_costs *costs, const struct serving_plan *plan)
{
    const struct model_config *const c = costs->model;
    double layers = 0, ends = 0;
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec spec = model_param(c, i);
        const double numbers = (double)spec.dim[0] * (spec.ndim == 2 ? (double)spec.dim[1] : 1);
        const int devices = !param_is_linear(&spec) ? 1 : of_attention(spec.role) ? plan->attention.devices
                                                                                  : plan->feedforward.devices;
        if (spec.layer >= 0 && spec.layer < c->L) layers += numbers / devices;
        else ends = fmax(ends, numbers / (spec.ndim == 2 ? plan->feedforward.devices : 1));
    }
    return (layers / plan->stages + ends) * (double)dtype_size(costs->dtype);
}

double plan_block_bytes(const struct plan_costs *costs, const struct serving_plan *plan, int64_t block_tokens)
{
    const struct model_config *const c = costs->model;
    const double heads = ceil((double)c->K / plan->attention.devices);
    return ceil((double)c->L / plan->stages) * 2 * heads * (double)c->A * (double)block_tokens *
           (double)dtype_size(costs->dtype);
}
