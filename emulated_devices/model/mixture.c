/* mixture.c -- adds the routers' terms to the loss, and shares counts of choices.  model/trainer.c calls in each
 * step; run/session.c watches choices and places experts.  All ranks call routers_share and routers_bring together.
 * Without memory the code is ERR_MEMORY. */
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/run/pooled.h"
#include "ref/model/balance.h"
#include "ref/model/kinds.h"
#include "ref/model/sample_mask.h"
#include "ref/routers/router.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_mixture(const struct plan *plan) { return plan->model.mlp == MLP_MIXTURE; }

static int sums_of(const struct plan *plan)
{
    const struct mixture_config *x = &plan->model.mixture;
    return ROUTERS_CHOICES + (int)(mixture_columns(x) * (x->router.biased ? plan->model.L : 0));
}

enum error_code routers_open(struct trainer *trainer, struct error *err)
{
    const int E = (int)mixture_columns(&trainer->plan.model.mixture);
    if (!is_mixture(&trainer->plan)) return OK;
    const size_t lists = (size_t)(trainer->plan.updates * trainer->plan.model.L);
    trainer->routers.update_every = trainer->schedule.update_every;
    trainer->routers.sums = calloc((size_t)sums_of(&trainer->plan), sizeof(double));
    trainer->routers.rows = calloc(lists, sizeof(double)), trainer->routers.sequences = calloc(lists, sizeof(double));
    trainer->routers.weight = calloc((size_t)trainer->plan.updates, sizeof(double));
    trainer->routers.bias = calloc((size_t)(trainer->plan.model.L * E), sizeof(double));
    trainer->routers.lost = calloc(1, sizeof(double));
    if (!trainer->device->backend->has_numbers) trainer->routers.pooled = pooled_open(E);
    const bool ok = trainer->routers.sums && trainer->routers.rows && trainer->routers.sequences
        && trainer->routers.weight &&
                    trainer->routers.bias && trainer->routers.lost;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the sums of %d experts", E);
}

void routers_close(struct trainer *trainer)
{
    free(trainer->routers.sums), free(trainer->routers.bias), free(trainer->routers.lost);
    free(trainer->routers.rows), free(trainer->routers.sequences), free(trainer->routers.weight);
    free(trainer->routers.chosen), free(trainer->routers.pooled);
}

/* ---- what losses are means over ---------------------------------------------------------------------------------- */

/* The tokens of some sequences that are no padding. */
static int64_t mixture_tokens_of(const struct plan *plan, struct interval sequences)
{
    const int32_t *const within = plan->within ? plan->within + sequences.first * plan->S : NULL;
    int64_t tokens = 0;
    for (int64_t first = 0, n; (n = tokens_without_padding(within, sequences.count * plan->S, &first)) > 0; first += n)
        tokens += n;
    return tokens;
}

/* Count a microbatch of one copy in the layers that it passes through. */
static void count_microbatch(struct trainer *trainer, int dp, int micro)
{
    const struct plan *p = &trainer->plan;
    const struct interval sequences = plan_microbatch(p, dp, micro);
    const int64_t tokens = mixture_tokens_of(p, sequences), first = batch_of(trainer, micro) * p->model.L;
    for (int stage = 0; stage < p->stages; stage++)
        for (int64_t l = plan_first_layer(p, stage); l < plan_first_layer(p, stage + 1); l++) {
            /* A partial pipeline's microbatch skips this stage, or the layer is dense. */
            if (place_of(&trainer->schedule, micro, stage).device < 0 || layer_mlp(&p->model, l) != MLP_MIXTURE)
                continue;
            trainer->routers.rows[first + l] += (double)tokens;
            trainer->routers.sequences[first + l] += (double)sequences.count;
        }
}

static void mixture_count_rows(struct trainer *trainer)
{
    const struct plan *p = &trainer->plan;
    const struct interval own = plan_replica_copies(p, plan_replica_of(p, trainer->comm->rank));
    const size_t lists = (size_t)(p->updates * p->model.L);
    memset(trainer->routers.rows, 0, lists * sizeof(double)),
        memset(trainer->routers.sequences, 0, lists * sizeof(double));
    for (int dp = (int)own.first; dp < interval_end(own) && dp < plan_parts(p); dp++)
        for (int i = 0; i < p->micros; i++) count_microbatch(trainer, dp, i);
}

/* The loss of a step is a mean over its labels, and so of the losses of its optimizer steps. */
static void weigh_updates(struct trainer *trainer)
{
    const int64_t labels = trainer_replica_labels(trainer);
    for (int u = 0; u < trainer->plan.updates; u++)
        trainer->routers.weight[u] = trainer->plan.updates == 1 ? 1
            : (double)trainer->counted[u] / (double)(labels ? labels : 1);
}

void routers_begin(struct trainer *trainer)
{
    const struct plan *p = &trainer->plan;
    if (!is_mixture(p)) return;
    memset(trainer->routers.sums, 0, (size_t)sums_of(p) * sizeof(double));
    *trainer->routers.lost = INFINITY;
    trainer->routers.step = trainer->step;
    mixture_count_rows(trainer), weigh_updates(trainer);
    for (int c = 0; c < trainer->stages_open; c++) trainer->stage[c].routers = trainer->routers;
}

void routers_lend(const struct trainer *whole, struct trainer *section)
{
    const struct routers own = section->routers;
    struct routers *const lent = &section->stage->routers;
    if (!is_mixture(&whole->plan)) return;
    *lent = whole->routers;
    lent->sums = own.sums, lent->pooled = own.pooled;
}

/* ---- a balance loss of the whole batch --------------------------------------------------------------------------- */

/* If devices along tp have routed the same rows, only the first contributes its sums. */
static bool contributes(const struct trainer *trainer)
{
    return !experts_share_rows(&trainer->stage[0].seams->ep) || trainer->tp.rank == 0;
}

/* The next trainer from number *i on whose layers this device computes: the trainer itself, or its sections.
 * @return NULL: there is none. */
static struct trainer *next_part(struct trainer *trainer, int *i)
{
    struct trainer *part = trainer_section(trainer, (*i)++);
    while (part && !trainer_takes_part(part)) part = trainer_section(trainer, (*i)++);
    return part;
}

/* The losses of the whole model: the first of a stage's losses is this one. */
static int64_t first_loss(const struct trainer *trainer, const struct stage *stage)
{
    return balance_loss_of(&trainer->plan.model.mixture, stage->first_layer);
}

/* The number of balance losses of one optimizer step. */
static int64_t batch_losses(const struct trainer *trainer)
{
    return balance_losses(&trainer->plan.model.mixture, trainer->plan.model.L);
}

/* Call f for each loss of each microbatch of this device's stages, with the place of its counts: [updates, losses]. */
static void each_loss(struct trainer *trainer, double *counts,
                      void (*f)(struct stage *, struct microbatch *, int64_t loss, double *counts))
{
    const int64_t E = mixture_columns(&trainer->plan.model.mixture);
    for (int c = 0; c < trainer->plan.chunks; c++)
        for (int i = 0; i < trainer->plan.micros; i++) {
            struct stage *const s = &trainer->stage[c];
            struct microbatch *const m = &s->micro[i];
            /* counts [E + 1]: choices of each expert, then rows. */
            for (int64_t n = 0; n < balance_losses_here(s, m); n++)
                f(s, m, n, counts + (batch_of(trainer, i) * batch_losses(trainer) + first_loss(trainer, s)
                                     + n) * (E + 1));
        }
}

static void mixture_add_counts(struct stage *stage, struct microbatch *micro, int64_t loss, double *counts)
{
    const int64_t E = mixture_columns(&stage->plan->model.mixture);
    const double *const own = balance_sums_of(stage, micro, loss) + E;
    for (int64_t i = 0; i <= E; i++) counts[i] += own[i];
}

static void set_slope(struct stage *stage, struct microbatch *micro, int64_t loss, double *counts)
{
    balance_set_slope(stage, micro, loss, counts);
}

enum error_code routers_share(struct trainer *trainer, struct error *err)
{
    const int64_t E = mixture_columns(&trainer->plan.model.mixture);
    if (!balance_is_of_batch(&trainer->plan)) return OK;
    const int64_t n = trainer->plan.updates * batch_losses(trainer) * (E + 1);
    double *const counts = calloc((size_t)n, sizeof *counts);
    enum error_code e = counts ? OK : fail(err, ERR_MEMORY, "no memory for the choices of %lld experts", (long long)E);
    struct trainer *part;
    /* Add up this device's counts, sum over all devices, and give every microbatch its slopes. */
    for (int i = 0; !e && (part = next_part(trainer, &i)) != NULL; )
        if (contributes(part)) each_loss(part, counts, mixture_add_counts);
    if (!e) e = result_reduce(trainer, counts, n, SUM, err);
    for (int i = 0; !e && (part = next_part(trainer, &i)) != NULL; ) each_loss(part, counts, set_slope);
    free(counts);
    return e;
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

void routers_name_lost(const struct trainer *trainer, double lost, struct step_result *out)
{
    const double rows = (double)(trainer->plan.B * trainer->plan.S);
    out->lost_layer = isinf(lost) ? 0 : 1 + (int64_t)floor(lost / rows);
    out->lost_row = isinf(lost) ? 0 : (int64_t)fmod(lost, rows);
}

/* The first row of all devices whose logits are not finite.  Only diverged steps send this. */
static enum error_code share_lost(struct trainer *trainer, struct error *err)
{
    account_add(&trainer->begun.of[TRAFFIC_RESULT], result_reduce_cost(trainer, 1, MIN), 1);
    return result_reduce(trainer, trainer->routers.lost, 1, MIN, err);
}

/* With sections: the sums of those that this device computes. */
static void add_sections(struct trainer *trainer)
{
    const int n = sums_of(&trainer->plan);
    struct trainer *part;
    for (int i = 0; (part = next_part(trainer, &i)) != NULL; )
        for (int k = 0; k < n && contributes(part); k++) trainer->routers.sums[k] += part->routers.sums[k];
}

enum error_code routers_loss(struct trainer *trainer, double *loss, struct error *err)
{
    const struct mixture_config *x = &trainer->plan.model.mixture;
    double *const sums = trainer->routers.sums;
    *loss = 0;
    if (!is_mixture(&trainer->plan)) return OK;
    /* Sums that another device of tp has, too, count once. */
    if (trainer->section) add_sections(trainer);
    else if (!contributes(trainer)) memset(sums, 0, (size_t)sums_of(&trainer->plan) * sizeof *sums);
    const enum error_code e = result_reduce(trainer, sums, sums_of(&trainer->plan), SUM, err);
    *loss = x->balance_coefficient * sums[ROUTERS_BALANCE] + x->z_coefficient * sums[ROUTERS_Z] +
            x->sequence_coefficient * sums[ROUTERS_SEQUENCE];
    /* A z loss that is not finite means that some router's logits are not. */
    return e || isfinite(sums[ROUTERS_Z]) ? e : share_lost(trainer, err);
}

void routers_update(struct trainer *trainer)
{
    const struct mixture_config *x = &trainer->plan.model.mixture;
    const int64_t E = mixture_columns(x);
    for (int64_t l = 0; l < trainer->plan.model.L && is_mixture(&trainer->plan) && x->router.biased; l++)
        if (layer_mlp(&trainer->plan.model, l) == MLP_MIXTURE)
            router_move_bias(&x->router, trainer->routers.bias + l * E,
                             trainer->routers.sums + ROUTERS_CHOICES + l * E, x->E, x->zero, x->k);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* This value stands for a choice that another device made. */
enum { CHOICE_ELSEWHERE = CHOICE_NONE + 1 };

static int64_t choices_of_layer(const struct plan *plan) { return plan_stream_rows(plan) * plan->model.mixture.k; }

static void forget_choices(struct trainer *trainer)
{
    const int64_t n = trainer->plan.model.L * choices_of_layer(&trainer->plan);
    for (int64_t i = 0; i < n; i++) trainer->routers.chosen[i] = CHOICE_ELSEWHERE;
}

enum error_code routers_watch(struct trainer *trainer, struct error *err)
{
    const int64_t n = trainer->plan.model.L * choices_of_layer(&trainer->plan);
    trainer->routers.chosen = malloc((size_t)n * sizeof *trainer->routers.chosen + 1);
    if (trainer->routers.chosen == NULL) return fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)n);
    forget_choices(trainer);
    return OK;
}

enum error_code routers_bring(struct trainer *trainer, int32_t *choice, struct error *err)
{
    const int64_t n = choices_of_layer(&trainer->plan);
    const bool first = trainer->comm->rank == 0;
    int32_t *all = first ? malloc((size_t)(n * trainer->comm->size) * sizeof *all + 1) : NULL;
    enum error_code e = all || !first ? OK : fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)n);
    e = comm_agree(trainer->comm, e, err);
    for (int64_t l = 0; l < trainer->plan.model.L && !e; l++) {
        if (layer_mlp(&trainer->plan.model, l) != MLP_MIXTURE) continue;
        /* A choice that no device reports stays as an even load deals it. */
        if (first)
            e = load_deal(NULL, &trainer->plan.model, trainer->plan.S, trainer->routers.step, l, 0,
                          plan_stream_rows(&trainer->plan), choice + l * n, err);
        e = comm_agree(trainer->comm, e, err);
        if (e) break;
        e = comm_bring(trainer->comm, trainer->routers.chosen + l * n, (uint64_t)n * sizeof *all, all, err);
        for (int64_t i = 0; i < n * trainer->comm->size && first && !e; i++)
            /* Every choice comes from the device that made it. */
            if (all[i] != CHOICE_ELSEWHERE) choice[l * n + i % n] = all[i];
    }
    free(all);
    forget_choices(trainer);
    return e;
}

/* The sum over the devices of all loads; what devices along ep count alike only once. */
static void add_loads(const struct trainer *trainer, const int64_t *all, int64_t n, int64_t *load)
{
    for (int rank = 0; rank < trainer->comm->size; rank++)
        for (int64_t i = 0; i < n && plan_expert_place(&trainer->plan, rank, EXPERT_PARTS) == 0; i++)
            load[i] += all[rank * n + i];
}

enum error_code experts_place(struct trainer *trainer, struct expert_owners *owners, struct error *err)
{
    const struct expert_parallel *ep = &trainer->seams.ep;
    const int64_t L = trainer->plan.model.L, E = trainer->plan.model.mixture.E, n = L * E;
    const struct expert_room room = { .E = E, .devices = ep->devices, .node = ep->node, .degree = ep->copying.top };
    const bool first = trainer->comm->rank == 0;
    int64_t *own = calloc((size_t)n, sizeof *own), *load = calloc((size_t)n, sizeof *load),
            *all = first ? calloc((size_t)(n * trainer->comm->size), sizeof *all) : NULL;
    *owners = (struct expert_owners){ 0 };
    enum error_code e = own && load && (all || !first) ? OK : fail(err, ERR_MEMORY, "no memory for loads of experts");
    if (!e && first) e = expert_owners_make(owners, L, E, ep->devices, err);
    e = comm_agree(trainer->comm, e, err);
    for (int64_t l = 0; l < L && !e; l++) expert_loads_predict(&ep->loads[l], own + l * E);
    /* Rank 0 places the experts, by the loads that all devices expect. */
    if (!e) e = comm_bring(trainer->comm, own, (uint64_t)n * sizeof *own, all, err);
    if (!e && first) {
        add_loads(trainer, all, n, load);
        if (!expert_shard(&room, L, load, owners->member)) e = fail(err, ERR_MEMORY, "no memory to place experts");
    }
    free(own), free(load), free(all);
    return e;
}

struct account routers_cost(const struct trainer *trainer)
{
    struct account sum = { 0 };
    if (!is_mixture(&trainer->plan)) return sum;
    const int64_t counts = trainer->plan.updates * batch_losses(trainer)
        * (mixture_columns(&trainer->plan.model.mixture) + 1);
    if (balance_is_of_batch(&trainer->plan)) account_add(&sum, result_reduce_cost(trainer, counts, SUM), 1);
    account_add(&sum, result_reduce_cost(trainer, sums_of(&trainer->plan), SUM), 1);
    return sum;
}
