#include "emulated_devices/model/mixture.h"
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
    t->routers.sums = calloc((size_t)sums_of(&t->plan), sizeof(double));
    t->routers.bias = calloc((size_t)(t->plan.model.L * E), sizeof(double));
    t->routers.lost = calloc(1, sizeof(double));
    const bool ok = t->routers.sums && t->routers.bias && t->routers.lost;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the sums of %d experts", E);
}

void routers_close(struct trainer *t)
{
    free(t->routers.sums), free(t->routers.bias), free(t->routers.lost);
    free(t->routers.chosen);
}

/* The rows that losses of the batch are means over: padding is not judged. */
static double rows_of(const struct plan *p)
{
    int64_t tokens = 0;
    for (int64_t first = 0, n; (n = tokens_without_padding(p->within, p->B * p->S, &first)) > 0; first += n)
        tokens += n;
    return balance_rows_of(&p->model.mixture, 0, tokens, mixture_layers(&p->model)).of_batch;
}

void routers_begin(struct trainer *t)
{
    const struct plan *p = &t->plan;
    if (!is_mixture(p)) return;
    memset(t->routers.sums, 0, (size_t)sums_of(p) * sizeof(double));
    *t->routers.lost = INFINITY;
    t->routers.step = t->step;
    t->routers.sequence_slope = t->loss_scale.scale * p->model.mixture.sequence_coefficient / (double)p->B;
    t->routers.z_slope = t->loss_scale.scale * 2 * p->model.mixture.z_coefficient / rows_of(p);
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

static int64_t batch_losses(const struct trainer *t)
{
    return balance_losses(&t->plan.model.mixture, t->plan.model.L);
}

/* Call f for each loss of each microbatch of this device's stages, with the place of its counts. */
static void each_loss(struct trainer *t, double *counts,
                      void (*f)(struct stage *, struct microbatch *, int64_t loss, double *counts))
{
    const int64_t E = mixture_columns(&t->plan.model.mixture);
    for (int c = 0; c < t->plan.chunks; c++)
        for (int i = 0; i < t->plan.micros; i++) {
            struct stage *const s = &t->stage[c];
            struct microbatch *const m = &s->micro[i];
            for (int64_t n = 0; n < balance_losses_here(s, m); n++)
                f(s, m, n, counts + (first_loss(t, s) + n) * (E + 1));
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
    const int64_t n = batch_losses(t) * (E + 1);
    double *const counts = calloc((size_t)n, sizeof *counts);
    enum error_code e = counts ? OK : fail(err, ERR_MEMORY, "no memory for the choices of %lld experts", (long long)E);
    if (!e && contributes(t)) each_loss(t, counts, add_counts);
    if (!e) e = result_reduce(t, counts, n, SUM, err);
    if (!e) each_loss(t, counts, set_slope);
    free(counts);
    return e;
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

/* The first row of all devices whose logits are not finite.  Only diverged steps send this. */
static enum error_code share_lost(struct trainer *t, struct step_result *out, struct error *err)
{
    const double rows = (double)(t->plan.B * t->plan.S);
    account_add(&t->begun.of[TRAFFIC_RESULT], result_reduce_cost(t, 1, MIN), 1);
    const enum error_code e = result_reduce(t, t->routers.lost, 1, MIN, err);
    if (e || isinf(*t->routers.lost)) return e;
    out->lost_layer = 1 + (int64_t)floor(*t->routers.lost / rows);
    out->lost_row = (int64_t)fmod(*t->routers.lost, rows);
    return OK;
}

enum error_code routers_loss(struct trainer *t, double *loss, struct step_result *out, struct error *err)
{
    const struct mixture_config *x = &t->plan.model.mixture;
    double *const sums = t->routers.sums;
    *loss = 0, out->lost_layer = out->lost_row = 0;
    if (!is_mixture(&t->plan)) return OK;
    if (!contributes(t)) memset(sums, 0, (size_t)sums_of(&t->plan) * sizeof *sums);
    const enum error_code e = result_reduce(t, sums, sums_of(&t->plan), SUM, err);
    *loss = x->balance_coefficient * sums[ROUTERS_BALANCE] + x->z_coefficient * (sums[ROUTERS_Z] / rows_of(&t->plan)) +
            x->sequence_coefficient * (sums[ROUTERS_SEQUENCE] / (double)t->plan.B);
    return e || isfinite(sums[ROUTERS_Z]) ? e : share_lost(t, out, err);
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
        e = comm_bring(t->comm, t->routers.chosen + l * n, (uint64_t)n * sizeof *all, all, err);
        for (int64_t i = 0; i < n * t->comm->size && first && !e; i++)
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
    if (!e) e = comm_bring(t->comm, own, (uint64_t)n * sizeof *own, all, err);
    if (!e && first) add_loads(t, all, n, load), expert_shard(&room, L, load, owners->member);
    free(own), free(load), free(all);
    return e;
}

struct account routers_cost(const struct trainer *t)
{
    struct account sum = { 0 };
    if (!is_mixture(&t->plan)) return sum;
    const int64_t counts = batch_losses(t) * (mixture_columns(&t->plan.model.mixture) + 1);
    if (balance_is_of_batch(&t->plan)) account_add(&sum, result_reduce_cost(t, counts, SUM), 1);
    account_add(&sum, result_reduce_cost(t, sums_of(&t->plan), SUM), 1);
    return sum;
}
