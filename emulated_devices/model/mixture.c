#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/balance.h"
#include "ref/model/balance.h"
#include "ref/model/sample_mask.h"
#include "ref/routers/router.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_mixture(const struct plan *p) { return p->model.mlp == MLP_MIXTURE; }

static int sums_of(const struct plan *p)
{
    const struct mixture_config *x = &p->model.mixture;
    return ROUTERS_CHOICES + (int)(mixture_columns(x) * (x->router.biased ? p->model.L : 0));
}

enum error_code routers_open(struct trainer *t, struct error *err)
{
    const int E = (int)mixture_columns(&t->plan.model.mixture);
    if (!is_mixture(&t->plan)) return OK;
    const size_t lists = (size_t)(t->plan.updates * t->plan.model.L);
    t->routers.update_every = t->schedule.update_every;
    t->routers.sums = calloc((size_t)sums_of(&t->plan), sizeof(double));
    t->routers.rows = calloc(lists, sizeof(double)), t->routers.sequences = calloc(lists, sizeof(double));
    t->routers.weight = calloc((size_t)t->plan.updates, sizeof(double));
    t->routers.bias = calloc((size_t)(t->plan.model.L * E), sizeof(double));
    t->routers.lost = calloc(1, sizeof(double));
    const bool ok = t->routers.sums && t->routers.rows && t->routers.sequences && t->routers.weight &&
                    t->routers.bias && t->routers.lost;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the sums of %d experts", E);
}

void routers_close(struct trainer *t)
{
    free(t->routers.sums), free(t->routers.bias), free(t->routers.lost);
    free(t->routers.rows), free(t->routers.sequences), free(t->routers.weight);
    free(t->routers.chosen);
}

/* ---- what losses are means over ---------------------------------------------------------------------------------- */

/* The tokens of some sequences that are no padding. */
static int64_t tokens_of(const struct plan *p, struct interval sequences)
{
    const int32_t *const within = p->within ? p->within + sequences.first * p->S : NULL;
    int64_t tokens = 0;
    for (int64_t first = 0, n; (n = tokens_without_padding(within, sequences.count * p->S, &first)) > 0; first += n)
        tokens += n;
    return tokens;
}

/* Count a microbatch of one copy in the layers that it passes through. */
static void count_microbatch(struct trainer *t, int dp, int micro)
{
    const struct plan *p = &t->plan;
    const struct interval sequences = plan_microbatch(p, dp, micro);
    const int64_t tokens = tokens_of(p, sequences), first = batch_of(t, micro) * p->model.L;
    for (int stage = 0; stage < p->stages; stage++)
        for (int64_t l = plan_first_layer(p, stage); l < plan_first_layer(p, stage + 1); l++) {
            /* A partial pipeline's microbatch skips this stage, or the layer is dense. */
            if (place_of(&t->schedule, micro, stage).device < 0 || layer_mlp(&p->model, l) != MLP_MIXTURE) continue;
            t->routers.rows[first + l] += (double)tokens;
            t->routers.sequences[first + l] += (double)sequences.count;
        }
}

static void count_rows(struct trainer *t)
{
    const struct plan *p = &t->plan;
    const struct interval own = plan_replica_copies(p, plan_replica_of(p, t->comm->rank));
    const size_t lists = (size_t)(p->updates * p->model.L);
    memset(t->routers.rows, 0, lists * sizeof(double)), memset(t->routers.sequences, 0, lists * sizeof(double));
    for (int dp = (int)own.first; dp < interval_end(own) && dp < plan_parts(p); dp++)
        for (int i = 0; i < p->micros; i++) count_microbatch(t, dp, i);
}

/* The loss of a step is a mean over its labels, and so of the losses of its optimizer steps. */
static void weigh_updates(struct trainer *t)
{
    const int64_t labels = trainer_replica_labels(t);
    for (int u = 0; u < t->plan.updates; u++)
        t->routers.weight[u] = t->plan.updates == 1 ? 1 : (double)t->counted[u] / (double)(labels ? labels : 1);
}

void routers_begin(struct trainer *t)
{
    const struct plan *p = &t->plan;
    if (!is_mixture(p)) return;
    memset(t->routers.sums, 0, (size_t)sums_of(p) * sizeof(double));
    *t->routers.lost = INFINITY;
    t->routers.step = t->step;
    count_rows(t), weigh_updates(t);
    for (int c = 0; c < p->chunks; c++) t->stage[c].routers = t->routers;
}

/* ---- a balance loss of the whole batch --------------------------------------------------------------------------- */

/* If devices along tp have routed the same rows, only the first contributes its sums. */
static bool contributes(const struct trainer *t)
{
    return !experts_share_rows(&t->stage[0].seams->ep) || t->tp.rank == 0;
}

/* The losses of the whole model: the first of a stage's losses is this one. */
static int64_t first_loss(const struct trainer *t, const struct stage *s)
{
    return balance_loss_of(&t->plan.model.mixture, s->first_layer);
}

/* The number of balance losses of one optimizer step. */
static int64_t batch_losses(const struct trainer *t)
{
    return balance_losses(&t->plan.model.mixture, t->plan.model.L);
}

/* Call f for each loss of each microbatch of this device's stages, with the place of its counts: [updates, losses]. */
static void each_loss(struct trainer *t, double *counts,
                      void (*f)(struct stage *, struct microbatch *, int64_t loss, double *counts))
{
    const int64_t E = mixture_columns(&t->plan.model.mixture);
    for (int c = 0; c < t->plan.chunks; c++)
        for (int i = 0; i < t->plan.micros; i++) {
            struct stage *const s = &t->stage[c];
            struct microbatch *const m = &s->micro[i];
            /* counts [E + 1]: choices of each expert, then rows. */
            for (int64_t n = 0; n < balance_losses_here(s, m); n++)
                f(s, m, n, counts + (batch_of(t, i) * batch_losses(t) + first_loss(t, s) + n) * (E + 1));
        }
}

static void add_counts(struct stage *s, struct microbatch *m, int64_t loss, double *counts)
{
    const int64_t E = mixture_columns(&s->plan->model.mixture);
    const double *const own = balance_sums_of(s, m, loss) + E;
    for (int64_t i = 0; i <= E; i++) counts[i] += own[i];
}

static void set_slope(struct stage *s, struct microbatch *m, int64_t loss, double *counts)
{
    balance_set_slope(s, m, loss, counts);
}

enum error_code routers_share(struct trainer *t, struct error *err)
{
    const int64_t E = mixture_columns(&t->plan.model.mixture);
    if (!balance_is_of_batch(&t->plan)) return OK;
    const int64_t n = t->plan.updates * batch_losses(t) * (E + 1);
    double *const counts = calloc((size_t)n, sizeof *counts);
    enum error_code e = counts ? OK : fail(err, ERR_MEMORY, "no memory for the choices of %lld experts", (long long)E);
    /* Add up this device's counts, sum over all devices, and give every microbatch its slopes. */
    if (!e && contributes(t)) each_loss(t, counts, add_counts);
    if (!e) e = result_reduce(t, counts, n, SUM, err);
    if (!e) each_loss(t, counts, set_slope);
    free(counts);
    return e;
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

void routers_name_lost(const struct trainer *t, double lost, struct step_result *out)
{
    const double rows = (double)(t->plan.B * t->plan.S);
    out->lost_layer = isinf(lost) ? 0 : 1 + (int64_t)floor(lost / rows);
    out->lost_row = isinf(lost) ? 0 : (int64_t)fmod(lost, rows);
}

/* The first row of all devices whose logits are not finite.  Only diverged steps send this. */
static enum error_code share_lost(struct trainer *t, struct error *err)
{
    account_add(&t->begun.of[TRAFFIC_RESULT], result_reduce_cost(t, 1, MIN), 1);
    return result_reduce(t, t->routers.lost, 1, MIN, err);
}

enum error_code routers_loss(struct trainer *t, double *loss, struct error *err)
{
    const struct mixture_config *x = &t->plan.model.mixture;
    double *const sums = t->routers.sums;
    *loss = 0;
    if (!is_mixture(&t->plan)) return OK;
    /* Sums that another device of tp has, too, count once. */
    if (!contributes(t)) memset(sums, 0, (size_t)sums_of(&t->plan) * sizeof *sums);
    const enum error_code e = result_reduce(t, sums, sums_of(&t->plan), SUM, err);
    *loss = x->balance_coefficient * sums[ROUTERS_BALANCE] + x->z_coefficient * sums[ROUTERS_Z] +
            x->sequence_coefficient * sums[ROUTERS_SEQUENCE];
    /* A z loss that is not finite means that some router's logits are not. */
    return e || isfinite(sums[ROUTERS_Z]) ? e : share_lost(t, err);
}

void routers_update(struct trainer *t)
{
    const struct mixture_config *x = &t->plan.model.mixture;
    const int64_t E = mixture_columns(x);
    for (int64_t l = 0; l < t->plan.model.L && is_mixture(&t->plan) && x->router.biased; l++)
        if (layer_mlp(&t->plan.model, l) == MLP_MIXTURE)
            router_move_bias(&x->router, t->routers.bias + l * E, t->routers.sums + ROUTERS_CHOICES + l * E, x->E,
                             x->zero, x->k);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* This value stands for a choice that another device made. */
enum { CHOICE_ELSEWHERE = CHOICE_NONE + 1 };

static int64_t choices_of_layer(const struct plan *p) { return plan_stream_rows(p) * p->model.mixture.k; }

static void forget_choices(struct trainer *t)
{
    const int64_t n = t->plan.model.L * choices_of_layer(&t->plan);
    for (int64_t i = 0; i < n; i++) t->routers.chosen[i] = CHOICE_ELSEWHERE;
}

enum error_code routers_watch(struct trainer *t, struct error *err)
{
    const int64_t n = t->plan.model.L * choices_of_layer(&t->plan);
    t->routers.chosen = malloc((size_t)n * sizeof *t->routers.chosen + 1);
    if (t->routers.chosen == NULL) return fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)n);
    forget_choices(t);
    return OK;
}

enum error_code routers_bring(struct trainer *t, int32_t *choice, struct error *err)
{
    const int64_t n = choices_of_layer(&t->plan);
    const bool first = t->comm->rank == 0;
    int32_t *all = first ? malloc((size_t)(n * t->comm->size) * sizeof *all + 1) : NULL;
    enum error_code e = all || !first ? OK : fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)n);
    e = comm_agree(t->comm, e, err);
    for (int64_t l = 0; l < t->plan.model.L && !e; l++) {
        if (layer_mlp(&t->plan.model, l) != MLP_MIXTURE) continue;
        /* A choice that no device reports stays as an even load deals it. */
        if (first)
            e = load_deal(NULL, &t->plan.model, t->plan.S, t->routers.step, l, 0, plan_stream_rows(&t->plan),
                          choice + l * n, err);
        e = comm_agree(t->comm, e, err);
        if (e) break;
        e = comm_bring(t->comm, t->routers.chosen + l * n, (uint64_t)n * sizeof *all, all, err);
        for (int64_t i = 0; i < n * t->comm->size && first && !e; i++)
            /* Every choice comes from the device that made it. */
            if (all[i] != CHOICE_ELSEWHERE) choice[l * n + i % n] = all[i];
    }
    free(all);
    forget_choices(t);
    return e;
}

/* The sum over the devices of all loads; what devices along ep count alike only once. */
static void add_loads(const struct trainer *t, const int64_t *all, int64_t n, int64_t *load)
{
    for (int rank = 0; rank < t->comm->size; rank++)
        for (int64_t i = 0; i < n && plan_expert_place(&t->plan, rank, EXPERT_PARTS) == 0; i++)
            load[i] += all[rank * n + i];
}

enum error_code experts_place(struct trainer *t, struct expert_owners *owners, struct error *err)
{
    const struct expert_parallel *ep = &t->seams.ep;
    const int64_t L = t->plan.model.L, E = t->plan.model.mixture.E, n = L * E;
    const struct expert_room room = { .E = E, .devices = ep->devices, .node = ep->node, .degree = ep->copying.top };
    const bool first = t->comm->rank == 0;
    int64_t *own = calloc((size_t)n, sizeof *own), *load = calloc((size_t)n, sizeof *load),
            *all = first ? calloc((size_t)(n * t->comm->size), sizeof *all) : NULL;
    *owners = (struct expert_owners){ 0 };
    enum error_code e = own && load && (all || !first) ? OK : fail(err, ERR_MEMORY, "no memory for loads of experts");
    if (!e && first) e = expert_owners_make(owners, L, E, ep->devices, err);
    e = comm_agree(t->comm, e, err);
    for (int64_t l = 0; l < L && !e; l++) expert_loads_predict(&ep->loads[l], own + l * E);
    /* Rank 0 places the experts, by the loads that all devices expect. */
    if (!e) e = comm_bring(t->comm, own, (uint64_t)n * sizeof *own, all, err);
    if (!e && first) add_loads(t, all, n, load), expert_shard(&room, L, load, owners->member);
    free(own), free(load), free(all);
    return e;
}

struct account routers_cost(const struct trainer *t)
{
    struct account sum = { 0 };
    if (!is_mixture(&t->plan)) return sum;
    const int64_t counts = t->plan.updates * batch_losses(t) * (mixture_columns(&t->plan.model.mixture) + 1);
    if (balance_is_of_batch(&t->plan)) account_add(&sum, result_reduce_cost(t, counts, SUM), 1);
    account_add(&sum, result_reduce_cost(t, sums_of(&t->plan), SUM), 1);
    return sum;
}
