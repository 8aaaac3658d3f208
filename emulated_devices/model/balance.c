#include "emulated_devices/model/balance.h"
#include "ref/model/balance.h"
#include <stdlib.h>
#include <string.h>

static const struct mixture_config *mixture(const struct plan *p) { return &p->model.mixture; }
static int64_t columns(const struct plan *p) { return mixture_columns(mixture(p)); }

bool balance_has_loss(const struct plan *p)
{
    return p->model.mlp == MLP_MIXTURE && mixture(p)->balance_coefficient > 0;
}

bool balance_is_of_batch(const struct plan *p)
{
    return balance_has_loss(p) && mixture(p)->balance.over == OVER_BATCH;
}

/* Whether a loss is of all layers of a microbatch, which may be on several stages. */
static bool joins_layers(const struct plan *p)
{
    return balance_has_loss(p) && !balance_is_of_batch(p) && mixture(p)->balance.layers == LAYERS_TOGETHER;
}

/* ---- sums of a microbatch ---------------------------------------------------------------------------------------- */

static int64_t groups_of(const struct stage *s, const struct microbatch *m)
{
    return mixture(s->plan)->balance.over == OVER_SEQUENCE ? m->sequences.count : 1;
}

static int64_t layer_at(const struct stage *s, int layer)
{
    return mixture(s->plan)->balance.layers == LAYERS_EACH ? layer - s->first_layer : 0;
}

int64_t balance_losses_here(const struct stage *s, const struct microbatch *m)
{
    return groups_of(s, m) * balance_losses(mixture(s->plan), s->layers);
}

int64_t balance_loss_at(const struct stage *s, const struct microbatch *m, int layer, int64_t row)
{
    const int64_t sequence = row / s->plan->S - m->sequences.first;
    const bool alone = mixture(s->plan)->balance.over == OVER_SEQUENCE;
    return layer_at(s, layer) * groups_of(s, m) + (alone ? sequence : 0);
}

double *balance_sums_of(const struct stage *s, const struct microbatch *m, int64_t loss)
{
    return m->balance.sums + loss * (2 * columns(s->plan) + 1);
}

double *balance_slope_of(const struct stage *s, const struct microbatch *m, int64_t loss)
{
    return m->balance.slope + loss * columns(s->plan);
}

bool balance_open(const struct stage *s, struct microbatch *m)
{
    const size_t losses = (size_t)balance_losses_here(s, m), E = (size_t)columns(s->plan);
    m->balance.sums = calloc(losses * (2 * E + 1) + 1, sizeof *m->balance.sums);
    m->balance.slope = calloc(losses * E + 1, sizeof *m->balance.slope);
    return m->balance.sums && m->balance.slope;
}

void balance_close(struct microbatch *m)
{
    free(m->balance.sums), free(m->balance.slope);
    m->balance = (struct balance_sums){ 0 };
}

void balance_begin(const struct stage *s, struct microbatch *m)
{
    const size_t numbers = (size_t)(balance_losses_here(s, m) * (2 * columns(s->plan) + 1));
    /* A loss over all layers goes on with the sums of the stage before, which came as a note. */
    if (m->balance.sums && (s->first || !joins_layers(s->plan)))
        memset(m->balance.sums, 0, numbers * sizeof *m->balance.sums);
}

/* ---- slopes ------------------------------------------------------------------------------------------------------ */

/* The first of a list over layers, of the optimizer step that a microbatch counts for. */
static const double *of_update(const struct stage *s, const struct microbatch *m, const double *list)
{
    return list + (m - s->micro) / s->routers.update_every * s->plan->model.L;
}

double balance_weight(const struct stage *s, const struct microbatch *m)
{
    return s->routers.weight[(m - s->micro) / s->routers.update_every];
}

double balance_rows(const struct stage *s, const struct microbatch *m, int layer)
{
    return balance_rows_among(mixture(s->plan), of_update(s, m, s->routers.rows), s->plan->model.L, layer);
}

double balance_sequences(const struct stage *s, const struct microbatch *m, int layer)
{
    return of_update(s, m, s->routers.sequences)[layer];
}

/* The rows of a loss come counted. */
void balance_set_slope(struct stage *s, struct microbatch *m, int64_t loss, const double *counts)
{
    const struct mixture_config *x = mixture(s->plan);
    const int64_t E = columns(s->plan);
    const int layer = s->first_layer + (int)(loss / groups_of(s, m));
    const struct balance_rows rows = { counts[E], balance_rows(s, m, layer) };
    const double *const probability = balance_sums_of(s, m, loss), weight = balance_weight(s, m);
    double *const slope = balance_slope_of(s, m, loss);
    for (int64_t e = 0; e < E; e++) {
        /* The loss is linear in the probabilities: its value and its gradient have the same slopes. */
        slope[e] = balance_slope(x, rows, counts[e]);
        s->routers.sums[ROUTERS_BALANCE] += weight * slope[e] * probability[e];
        slope[e] *= s->loss_scale * x->balance_coefficient;
    }
}

/* The groups of devices that have other rows of a microbatch, along one axis; NULL: none do. */
static struct group *group_along_axis(const struct stage *s, enum axis axis)
{
    if (axis == TP) return s->tp->devices > 1 && !experts_share_rows(&s->seams->ep) ? s->tp->group : NULL;
    return s->seams->cp.devices > 1 ? s->seams->cp.group : NULL;
}

static const char algorithm[] = "one_shot";             /* for short vectors: all send to all at once */

static enum error_code add_counts(const struct stage *s, double *counts, int64_t n, struct error *err)
{
    static const enum axis axes[] = { TP, CP };
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        struct group *const g = group_along_axis(s, axes[i]);
        if (g) e = allreduce(g, counts, n, F64, SUM, algorithm, err);
    }
    return e;
}

/* Share the counts of some losses, [losses, E + 1], and set their slopes. */
static enum error_code share(struct stage *s, struct microbatch *m, int64_t first, int64_t losses, struct error *err)
{
    const int64_t E = columns(s->plan);
    double *const counts = malloc((size_t)(losses * (E + 1) + 1) * sizeof *counts);
    if (counts == NULL) return fail(err, ERR_MEMORY, "no memory for the choices of %lld experts", (long long)E);
    for (int64_t i = 0; i < losses; i++)
        /* Only counts are shared: probabilities stay where their rows are. */
        memcpy(counts + i * (E + 1), balance_sums_of(s, m, first + i) + E, (size_t)(E + 1) * sizeof *counts);
    const enum error_code e = add_counts(s, counts, losses * (E + 1), err);
    for (int64_t i = 0; i < losses && !e; i++) balance_set_slope(s, m, first + i, counts + i * (E + 1));
    free(counts);
    return e;
}

enum error_code balance_after_layer(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    if (!balance_has_loss(s->plan) || balance_is_of_batch(s->plan) || joins_layers(s->plan)) return OK;
    return share(s, m, layer_at(s, layer) * groups_of(s, m), groups_of(s, m), err);
}

enum error_code balance_after_forward(struct stage *s, struct microbatch *m, struct error *err)
{
    return joins_layers(s->plan) && s->last ? share(s, m, 0, groups_of(s, m), err) : OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* How often a microbatch's counts are added up on a stage. */
static int64_t times_shared(const struct stage *s)
{
    int64_t layers = 0;
    if (!balance_has_loss(s->plan) || balance_is_of_batch(s->plan)) return 0;
    if (joins_layers(s->plan)) return s->last;
    for (int l = s->first_layer; l < s->first_layer + s->layers; l++)
        layers += layer_mlp(&s->plan->model, l) == MLP_MIXTURE;
    return layers;
}

struct account balance_cost(const struct stage *s, const struct microbatch *m, enum axis axis)
{
    const struct group *const g = group_along_axis(s, axis);
    const struct collective numbers = { .count = groups_of(s, m) * (columns(s->plan) + 1), .dtype = F64,
                                        .reduction = SUM };
    struct account sum = { 0 };
    if (times_shared(s) > 0 && g) account_add(&sum, group_cost(g, ALLREDUCE, algorithm, &numbers), times_shared(s));
    return sum;
}

struct stage_note balance_note(const struct stage *s, const struct microbatch *m, bool gradient)
{
    if (!joins_layers(s->plan)) return (struct stage_note){ 0 };
    const int64_t E = columns(s->plan), numbers = groups_of(s, m) * (gradient ? E : 2 * E + 1);
    return (struct stage_note){ gradient ? m->balance.slope : m->balance.sums,
                                (uint64_t)numbers * sizeof *m->balance.sums };
}
