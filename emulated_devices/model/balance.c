/* balance.c -- counts choices of routers for balance losses, and brings counts and slopes to their devices.
 * model/stage.c, model/mixture.c and model/run/run_mixture.c call.  The exchanges along tp and cp need all their
 * devices.  Without memory for counts the code is ERR_MEMORY. */
#include "emulated_devices/model/balance.h"
#include "ref/model/balance.h"
#include "ref/model/kinds.h"
#include <stdlib.h>
#include <string.h>

static const struct mixture_config *mixture(const struct plan *plan) { return &plan->model.mixture; }
static int64_t balance_columns(const struct plan *plan) { return mixture_columns(mixture(plan)); }

bool balance_has_loss(const struct plan *plan)
{
    return plan->model.mlp == MLP_MIXTURE && mixture(plan)->balance_coefficient > 0;
}

bool balance_is_of_batch(const struct plan *plan)
{
    return balance_has_loss(plan) && mixture(plan)->balance.over == OVER_BATCH;
}

bool balance_joins_layers(const struct plan *plan)
{
    return balance_has_loss(plan) && !balance_is_of_batch(plan) && mixture(plan)->balance.layers == LAYERS_TOGETHER;
}

/* ---- sums of a microbatch ---------------------------------------------------------------------------------------- */

static int64_t groups_of(const struct stage *stage, const struct microbatch *micro)
{
    return mixture(stage->plan)->balance.over == OVER_SEQUENCE ? micro->sequences.count : 1;
}

static int64_t layer_at(const struct stage *stage, int layer)
{
    return mixture(stage->plan)->balance.layers == LAYERS_EACH ? layer - stage->first_layer : 0;
}

int64_t balance_losses_here(const struct stage *stage, const struct microbatch *micro)
{
    return groups_of(stage, micro) * balance_losses(mixture(stage->plan), stage->layers);
}

int64_t balance_loss_at(const struct stage *stage, const struct microbatch *micro, int layer, int64_t row)
{
    const int64_t sequence = row / stage->plan->S - micro->sequences.first;
    const bool alone = mixture(stage->plan)->balance.over == OVER_SEQUENCE;
    return layer_at(stage, layer) * groups_of(stage, micro) + (alone ? sequence : 0);
}

double *balance_sums_of(const struct stage *stage, const struct microbatch *micro, int64_t loss)
{
    return micro->balance.sums + loss * (2 * balance_columns(stage->plan) + 1);
}

double *balance_slope_of(const struct stage *stage, const struct microbatch *micro, int64_t loss)
{
    return micro->balance.slope + loss * balance_columns(stage->plan);
}

bool balance_open(const struct stage *stage, struct microbatch *micro)
{
    const size_t losses = (size_t)balance_losses_here(stage, micro), E = (size_t)balance_columns(stage->plan);
    micro->balance.sums = calloc(losses * (2 * E + 1) + 1, sizeof *micro->balance.sums);
    micro->balance.slope = calloc(losses * E + 1, sizeof *micro->balance.slope);
    return micro->balance.sums && micro->balance.slope;
}

void balance_close(struct microbatch *micro)
{
    free(micro->balance.sums), free(micro->balance.slope);
    micro->balance = (struct balance_sums){ 0 };
}

void balance_begin(const struct stage *stage, struct microbatch *micro)
{
    const size_t numbers = (size_t)(balance_losses_here(stage, micro) * (2 * balance_columns(stage->plan) + 1));
    /* A loss over all layers goes on with the sums of the stage before, which came as a note. */
    if (micro->balance.sums && (stage->first || !balance_joins_layers(stage->plan)))
        memset(micro->balance.sums, 0, numbers * sizeof *micro->balance.sums);
}

/* ---- slopes ------------------------------------------------------------------------------------------------------ */

/* The first of a list over layers, of the optimizer step that a microbatch counts for. */
static const double *of_update(const struct stage *stage, const struct microbatch *micro, const double *list)
{
    return list + (micro - stage->micro) / stage->routers.update_every * stage->plan->model.L;
}

double balance_weight(const struct stage *stage, const struct microbatch *micro)
{
    return stage->routers.weight[(micro - stage->micro) / stage->routers.update_every];
}

double balance_rows(const struct stage *stage, const struct microbatch *micro, int layer)
{
    return balance_rows_among(mixture(stage->plan), of_update(stage, micro, stage->routers.rows),
                              stage->plan->model.L, layer);
}

double balance_sequences(const struct stage *stage, const struct microbatch *micro, int layer)
{
    return of_update(stage, micro, stage->routers.sequences)[layer];
}

/* The rows of a loss come counted. */
void balance_set_slope(struct stage *stage, struct microbatch *micro, int64_t loss, const double *counts)
{
    const struct mixture_config *x = mixture(stage->plan);
    const int64_t E = balance_columns(stage->plan);
    const int layer = stage->first_layer + (int)(loss / groups_of(stage, micro));
    const struct balance_rows rows = { counts[E], balance_rows(stage, micro, layer) };
    const double *const probability = balance_sums_of(stage, micro, loss), weight = balance_weight(stage, micro);
    double *const slope = balance_slope_of(stage, micro, loss);
    for (int64_t e = 0; e < E; e++) {
        /* The loss is linear in the probabilities: its value and its gradient have the same slopes. */
        slope[e] = balance_slope(x, rows, counts[e]);
        stage->routers.sums[ROUTERS_BALANCE] += weight * slope[e] * probability[e];
        slope[e] *= stage->loss_scale * x->balance_coefficient;
    }
}

/* The groups of devices that have other rows of a microbatch, along one axis; NULL: none do. */
static struct group *group_along_axis(const struct stage *stage, enum axis axis)
{
    if (axis == TP) return stage->tp->devices > 1 && !experts_share_rows(&stage->seams->ep) ? stage->tp->group : NULL;
    return stage->seams->cp.devices > 1 ? stage->seams->cp.group : NULL;
}

static const char algorithm[] = "one_shot";             /* for short vectors: all send to all at once */

static enum error_code balance_add_counts(const struct stage *stage, double *counts, int64_t n, struct error *err)
{
    static const enum axis axes[] = { TP, CP };
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        struct group *const g = group_along_axis(stage, axes[i]);
        if (g) e = allreduce(g, counts, n, F64, SUM, algorithm, err);
    }
    return e;
}

/* Share the counts of some losses, [losses, E + 1], and set their slopes. */
static enum error_code balance_share(struct stage *stage, struct microbatch *micro, int64_t first, int64_t losses,
                                     struct error *err)
{
    const int64_t E = balance_columns(stage->plan);
    double *const counts = malloc((size_t)(losses * (E + 1) + 1) * sizeof *counts);
    if (counts == NULL) return fail(err, ERR_MEMORY, "no memory for the choices of %lld experts", (long long)E);
    for (int64_t i = 0; i < losses; i++)
        /* Only counts are shared: probabilities stay where their rows are. */
        memcpy(counts + i * (E + 1), balance_sums_of(stage, micro, first + i) + E, (size_t)(E + 1) * sizeof *counts);
    const enum error_code e = balance_add_counts(stage, counts, losses * (E + 1), err);
    for (int64_t i = 0; i < losses && !e; i++) balance_set_slope(stage, micro, first + i, counts + i * (E + 1));
    free(counts);
    return e;
}

enum error_code balance_after_layer(struct stage *stage, struct microbatch *micro, int layer, struct error *err)
{
    if (!balance_has_loss(stage->plan) || balance_is_of_batch(stage->plan)) return OK;
    if (balance_joins_layers(stage->plan)) return OK;
    return balance_share(stage, micro, layer_at(stage, layer) * groups_of(stage, micro), groups_of(stage, micro), err);
}

/* At the end of a section that is not the last, each of its devices gets the sums so far of all: the next section's
 * devices take them from any. */
static bool hands_on_totals(const struct stage *stage)
{
    return stage->plan->layers.count > 0 && !stage->last;
}

enum error_code balance_after_forward(struct stage *stage, struct microbatch *micro, struct error *err)
{
    const int64_t groups = groups_of(stage, micro);
    if (!balance_joins_layers(stage->plan)) return OK;
    if (stage->last) return balance_share(stage, micro, 0, groups, err);
    return hands_on_totals(stage)
        ? balance_add_counts(stage, micro->balance.sums, groups * (2 * balance_columns(stage->plan) + 1), err) : OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* How often a microbatch's counts are added up on a stage. */
static int64_t times_shared(const struct stage *stage)
{
    int64_t layers = 0;
    if (!balance_has_loss(stage->plan) || balance_is_of_batch(stage->plan)) return 0;
    if (balance_joins_layers(stage->plan)) return stage->last || hands_on_totals(stage);
    for (int l = stage->first_layer; l < stage->first_layer + stage->layers; l++)
        layers += layer_mlp(&stage->plan->model, l) == MLP_MIXTURE;
    return layers;
}

struct account balance_cost(const struct stage *stage, const struct microbatch *micro, enum axis axis)
{
    const struct group *const g = group_along_axis(stage, axis);
    const bool totals = balance_joins_layers(stage->plan) && hands_on_totals(stage);
    const int64_t each = (totals ? 2 : 1) * balance_columns(stage->plan) + 1;
    const struct collective numbers = { .count = groups_of(stage, micro) * each, .dtype = F64, .reduction = SUM };
    struct account sum = { 0 };
    if (times_shared(stage) > 0 && g)
        account_add(&sum, group_cost(g, ALLREDUCE, algorithm, &numbers), times_shared(stage));
    return sum;
}

struct stage_note balance_note(const struct stage *stage, const struct microbatch *micro, bool gradient)
{
    if (!balance_joins_layers(stage->plan)) return (struct stage_note){ 0 };
    const int64_t E = balance_columns(stage->plan), numbers = groups_of(stage, micro) * (gradient ? E : 2 * E + 1);
    return (struct stage_note){ gradient ? micro->balance.slope : micro->balance.sums,
                                (uint64_t)numbers * sizeof *micro->balance.sums };
}

/* ---- between sections -------------------------------------------------------------------------------------------- */

/* Whether a device begins with the sums of the section before: one of the devices that add up along tp and cp, or all
 * that have the same rows. */
static bool begins_with_sums(const struct plan *plan, int rank)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    const struct expert_parallel ep = plan_expert_share(plan, &tp, rank);
    return mesh_coordinate(&plan->mesh, rank, CP) == 0
        && (experts_share_rows(&ep) || mesh_coordinate(&plan->mesh, rank, TP) == 0);
}

struct part balance_part(const struct plan *plan, int rank, int micro, bool gradient, bool begins)
{
    const bool sequences = mixture(plan)->balance.over == OVER_SEQUENCE;
    const int dp = mesh_coordinate(&plan->mesh, rank, DP);
    const int64_t cols = (gradient ? 1 : 2) * balance_columns(plan) + !gradient;
    struct part part = { .dim = { sequences ? plan->B : plan->mesh.size[DP], cols } };
    intervals_add(&part.cols, (struct interval){ 0, cols });
    if (!begins || begins_with_sums(plan, rank))
        intervals_add(&part.rows, sequences ? plan_sequences(plan, dp, micro) : (struct interval){ dp, 1 });
    return part;
}
