/* alike.c -- finds which devices of a plan do the same, so that few of them run.  Only train/dry_run/dry_run.c
 * calls; a folding that proves inexact is refined.  The functions send no messages and report no errors. */
#include "emulated_devices/train/dry_run/alike.h"
#include "emulated_devices/model/run/pooled.h"
#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/schemes/attention/attention.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cluster: are links and speeds the same after moving along an axis? -------------------------------------- */

/* Whether the move takes units of n neighbouring places to units. */
static bool keeps_units(const struct cluster *cluster, const struct folding *folding, enum axis axis, int n, int *unit)
{
    const int units = (folding->mesh.devices + n - 1) / n;
    /* unit[u] is where the move takes unit u; -1: no device of it has been looked at. */
    for (int u = 0; u < units; u++) unit[u] = -1;
    for (int rank = 0; rank < folding->mesh.devices; rank++) {
        const int from = cluster_slot(cluster, rank) / n,
            to = cluster_slot(cluster, folding_next(folding, rank, axis)) / n;
        if (unit[from] < 0) unit[from] = to;
        if (unit[from] != to) return false;
    }
    for (int u = 0; u < units; u++)                     /* no two become one */
        for (int v = u + 1; v < units && folding->mesh.devices % n != 0; v++)
            if (unit[u] == unit[v]) return false;
    return true;
}

static bool same_links(const struct cluster *cluster, const struct folding *folding, enum axis axis)
{
    int *unit = malloc(sizeof *unit * (size_t)folding->mesh.devices);
    bool same = unit != NULL;
    for (int l = 0; l < cluster->levels - 1 && same; l++)
        if (cluster->link[l].devices > 0) same = keeps_units(cluster, folding, axis, cluster->link[l].devices, unit);
    for (int rank = 0; rank < folding->mesh.devices && same; rank++)
        same = cluster_percent(cluster, rank) == cluster_percent(cluster, folding_next(folding, rank, axis));
    free(unit);
    return same;
}

/* ---- the plan: have the devices of a class the same sizes? ------------------------------------------------------- */

/* Such a plan folds no axis at all. */
static const char *differs_everywhere(const struct plan *plan)
{
    if (plan->batches || plan->packed || plan_changes(plan)) return "the samples differ";
    if (plan_replicas(plan) > 1) return "replicas train apart";
    if (optimizer_draws(plan->optimizer)) return "losses are summed over all devices at once";
    if (plan->encoders.kinds > 0) return "the encoders differ";
    return NULL;
}

static bool same_batches(const struct plan *plan, int every)
{
    for (int dp = every; dp < plan->mesh.size[DP]; dp++)
        for (int i = 0; i < plan->micros; i++)
            if (plan_microbatch(plan, dp, i).count != plan_microbatch(plan, dp % every, i).count) return false;
    return true;
}


static bool divides(int64_t n, int by) { return n % by == 0; }

/* Parts are as large only where each layer is cut along one axis, and everything by as many. */
static const char *parts_differ(const struct plan *plan)
{
    const struct model_config *c = &plan->model;
    const int t = plan->mesh.size[TP];
    static const char *const even[] = { "1d", "1d-sp", "1d-sp-keep", "1d-sp-overlap" };
    bool known = false;
    for (size_t i = 0; i < sizeof even / sizeof *even; i++) known = known || strcmp(plan->tensor, even[i]) == 0;
    if (!known || !divides(c->H, t) || !divides(c->K, t) || !divides(c->F, t) || !divides(plan->S, t) ||
        c->mlp == MLP_MIXTURE || c->streams.P > 1 || !divides(plan->S / plan->mesh.size[CP], t))
        return "parts of a layer differ in size, or their scheme is not 1d";
    return divides(c->V, t) ? NULL : "the vocabulary is no multiple of tp; --pad-vocabulary 128 would make it one";
}

/* ---- mixtures: has each device as many rows for each expert? ----------------------------------------------------- */

/* The choices that a load deals to a device's share of a microbatch; for free().  NULL: no memory. */
static int32_t *deal_share(const struct plan *plan, int rank, int micro, struct choices *dealt)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    const struct expert_parallel ep = plan_expert_share(plan, &tp, rank);
    const int64_t k = plan->model.mixture.k;
    struct intervals all = plan_rows(plan, rank, micro), rows = { 0 };
    intervals_add_part(&rows, &all, tensor_rows_at(&tp, STREAM, intervals_total(&all)));
    const struct interval own = plan_cuts_experts(plan) ? expert_share(&ep, intervals_total(&rows))
                                                     : (struct interval){ 0, intervals_total(&rows) };
    int32_t *const to = malloc((size_t)(intervals_total(&rows) * k + 1) * sizeof *to), *next = to;
    bool ok = to != NULL && !intervals_lost(&rows);
    for (int i = 0; i < rows.count && ok; next += rows.at[i++].count * k)
        ok = load_deal(plan->load, &plan->model, plan->S, 0, 0, rows.at[i].first, rows.at[i].count, next, NULL) == OK;
    intervals_free(&all), intervals_free(&rows);
    *dealt = (struct choices){ to + own.first * k, own.count, k };
    if (ok) return to;
    free(to);
    return NULL;
}

/* Count the choices of each of E experts one by one: some may be dropped. */
static bool count_dealt(const struct plan *plan, int rank, int micro, int64_t E, int32_t *count)
{
    struct choices dealt;
    int32_t *const list = deal_share(plan, rank, micro, &dealt);
    memset(count, 0, (size_t)E * sizeof *count);
    if (list) choices_count(&dealt, E, count);
    free(list);
    return list != NULL;
}

static bool is_even(const struct plan *plan, int rank, int micro)
{
    const int64_t E = plan->model.mixture.E;
    int32_t *const count = calloc((size_t)mixture_columns(&plan->model.mixture), sizeof *count);
    bool even = count && (pooled_add(plan, rank, micro, count) || count_dealt(plan, rank, micro, E, count));
    for (int64_t e = 1; e < E && even; e++) even = count[e] == count[0];
    free(count);
    return even;
}

/* Copies along dp have the same choices if each sequence has; then it is enough to look at the first copy. */
static const char *mixture_differs(const struct plan *plan)
{
    const struct mixture_config *m = &plan->model.mixture;
    const struct expert_scheme *s;
    if (plan->model.mlp != MLP_MIXTURE) return NULL;
    if (plan->load && plan->load->kind != LOAD_EVEN) return "the experts have different loads";
    /* Dealt evenly, a sequence gives every expert the same number of rows only if this divides. */
    if (plan->S * m->k % mixture_columns(m) != 0) return "a sequence has more rows for some experts";
    if (!plan_cuts_experts(plan)) return NULL;
    if (expert_scheme_find(&s, plan->dispatch, NULL) || !s->turns || plan->owners) return "the experts differ";
    if (m->E % plan_ep(plan) != 0) return "the devices have different numbers of experts";
    for (int rank = 0; rank < plan->mesh.size[CP] * plan->mesh.size[TP]; rank++)
        for (int i = 0; i < plan->micros; i++)
            if ((i == 0 || plan_microbatch(plan, 0, i).count != plan_microbatch(plan, 0, i - 1).count) &&
                !is_even(plan, plan->mesh.first + rank, i))
                return "a device has more rows for some experts";
    return NULL;
}

static const char *alike_differs(const struct plan *plan, const struct folding *folding, enum axis axis)
{
    static const struct cluster flat = { .levels = 1 };
    const char *everywhere = differs_everywhere(plan);
    if (everywhere == NULL) everywhere = mixture_differs(plan);
    if (everywhere) return everywhere;
    if (axis == DP && !same_batches(plan, folding->every[DP])) return "copies have different numbers of sequences";
    if (axis == TP && folding->every[TP] != 1) return "parts of a layer are folded to one, or not";
    if (axis == TP && parts_differ(plan)) return parts_differ(plan);
    if (!same_links(plan->cluster ? plan->cluster : &flat, folding, axis))
        return "the cluster's links or devices differ";
    return NULL;
}

/* ---- the folding ------------------------------------------------------------------------------------------------- */

/* Fold an axis to the smallest number of devices, at least `least`, with which nothing differs. */
static const char *fold_axis(const struct plan *plan, struct folding *folding, enum axis axis, int least)
{
    const int n = plan->mesh.size[axis];
    const char *first = NULL;
    for (int every = least; every < n; every++) {
        folding->every[axis] = every;
        const char *now = n % every == 0 ? alike_differs(plan, folding, axis) : "";
        /* The reason against the smallest folding is kept, for the report. */
        if (now == NULL) return first;
        if (now[0] && first == NULL) first = now;
    }
    folding->every[axis] = n;
    return first;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

/* The result is the largest number that divides both. */
static int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

/* The most parts that all sections could be folded into: each has whole copies. */
static int most_parts(const struct plan *plan)
{
    int most = 0;
    for (int i = 0; i < plan->sections->count; i++) most = common_divisor(plan->sections->at[i].mesh.size[DP], most);
    return most;
}

/* Why a section's devices differ from those that are a part further; NULL: they do not. */
static const char *section_differs(const struct plan *section, int parts)
{
    const char *everywhere = differs_everywhere(section);
    if (everywhere == NULL) everywhere = mixture_differs(section);
    if (everywhere) return everywhere;
    if (!same_batches(section, section->mesh.size[DP] / parts)) return "copies have different numbers of sequences";
    for (int i = 0; i < section->micros; i++)
        if ((i == 0 || plan_microbatch(section, 0, i).count != plan_microbatch(section, 0, i - 1).count)
            && !(boxing_stream_turns(section, i, false, parts) && boxing_stream_turns(section, i, true, parts)))
            return "parts of the stream are not alike";
    return NULL;
}

static const char *stages_differ(const struct plan *plan, const struct folding *folding)
{
    static const struct cluster flat = { .levels = 1 };
    const char *not = NULL;
    for (int i = 0; i < plan->sections->count && !not; i++)
        not = section_differs(&plan->sections->at[i], folding_share(folding));
    if (not == NULL && !same_links(plan->cluster ? plan->cluster : &flat, folding, DP))
        not = "the cluster's links or devices differ";
    return not;
}

/* Fold the stages into as many parts as possible, at most so many. */
static struct folding fold_stages(const struct plan *plan, int most, char why[200])
{
    const struct sections *const all = plan->sections;
    for (int parts = most; parts > 1; parts--) {
        const struct folding f = folding_of_stages(&plan->mesh, all->first, all->stages, parts);
        if (most_parts(plan) % parts != 0) continue;
        const char *const not = stages_differ(plan, &f);
        if (not == NULL) return f;
        if (why[0] == '\0') snprintf(why, 200, "%d parts: %s", parts, not);
    }
    if (why[0] == '\0') snprintf(why, 200, "no number divides the copies of all sections");
    return folding_of_stages(&plan->mesh, all->first, all->stages, 1);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

struct folding plan_alike(const struct plan *plan, char why[200])
{
    struct folding f = folding_none(&plan->mesh);
    int used = 0;
    why[0] = '\0';
    if (plan->sections) return fold_stages(plan, most_parts(plan), why);
    for (int i = 0; i < 2; i++) {
        const enum axis a = i == 0 ? DP : TP;
        const char *not = plan->mesh.size[a] > 1 ? fold_axis(plan, &f, a, 1) : NULL;
        if (not && used < 200)
            used += snprintf(why + used, (size_t)(200 - used), "%s%s: %s", used ? "; " : "", axis_name(a), not);
    }
    return f;
}

/* tp is folded to one or not at all, dp step by step. */
struct folding plan_alike_refined(const struct plan *plan, const struct folding *old,
                                  const struct crew_outcome *outcome)
{
    struct folding f = *old;
    char unread[200] = "";
    if (plan->sections) return fold_stages(plan, folding_share(old) - 1, unread);
    const bool along_tp = f.every[TP] < plan->mesh.size[TP] && !(outcome->axes & AXIS_BIT(DP));
    const int next = outcome->apart > f.every[DP] ? outcome->apart : f.every[DP] + 1;
    if (along_tp || f.every[DP] == plan->mesh.size[DP]) f.every[TP] = plan->mesh.size[TP];
    else fold_axis(plan, &f, DP, next);
    return f;
}
