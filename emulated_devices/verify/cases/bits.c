/* bits.c -- the key of what decides a plan's bits.
 *
 * verify/cases/space.c and cases.c compare plans by this key.  Errors are those of plan_shards and plan_schedule.
 */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/hash.h"
#include "ref/model/params.h"
#include <string.h>

#define ADD(h, x) ((h) = hash_bytes((h), &(x), sizeof(x)))

/* Hash a word with its end, so that two words cannot be taken for another two.  An absent word is hashed as "". */
static void add_text(uint64_t *h, const char *text)
{
    *h = hash_bytes(*h, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Hash which microbatches skip which stages: skipped layers change the result. */
static void add_skips(uint64_t *h, const struct schedule *schedule)
{
    for (int m = 0; m < schedule->micros; m++)
        for (int t = 0; t < schedule->stages; t++) {
            const int skip[] = { m, t, schedule->stages };
            if (place_of(schedule, m, t).device < 0) ADD(*h, skip);
        }
}

/* Whether one place computes both gradients of a tied embedding: it adds them in the order in which they are
 * computed. */
static bool adds_both_uses(const struct plan *plan, const struct schedule *schedule)
{
    struct param_spec tokens = model_param(&plan->model, 0);
    return plan->model.tied && schedule->stages > 1 && plan_holders(plan, schedule, &tokens, NULL) == 1;
}

/* Hash the first layer of each stage, and the end of the last. */
static void hash_layers(uint64_t *h, const struct plan *plan)
{
    for (int i = 0; i <= plan->stages; i++) ADD(*h, plan->first_layer[i]);
}

/* All schedules that add weight gradients in the order of the microbatches, on one copy of each stage, compute the same
 * sums. */
static void add_schedule(uint64_t *h, const struct plan *plan, const struct schedule *schedule)
{
    /* Two places are enough to see whether a stage has one copy or more. */
    struct place place[2];
    const int rule[] = { schedule->micros, schedule->update_every, schedule->weight_versions };
    ADD(*h, rule);
    add_skips(h, schedule);
    if (schedule_is_partial(schedule)) hash_layers(h, plan);      /* which layers a skipped stage has */
    if (schedule_adds_in_order(schedule) && schedule_holders(schedule, 0, place, 2) == 1
        && !adds_both_uses(plan, schedule)) return;
    add_text(h, plan->schedule);
    ADD(*h, schedule->chunks);
}

/* Over dp, sums are computed level by level, each in the order of ranks; with sharded gradients for every
 * microbatch, unless all microbatches are summed before. */
static void add_levels(uint64_t *h, const struct plan *plan, const struct shards *shards)
{
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS; l++) {
        const int level[] = { shards_size(shards, l), l < BY_OPTIMIZER && plan->micros > 1 && !shards->once };
        if (level[0] > 1) ADD(*h, level);
    }
    const struct data_request *q = &plan->data;
    const int64_t number[] = { q->tiles, q->narrow_gradients, q->quantise_weights.bits, q->quantise_gradients.bits,
                               q->quantise_weights.block };
    ADD(*h, number);
    add_text(h, q->reduce_scatter), add_text(h, q->allgather);
    if (!data_quantises(q) && !shards->apart) return;
    add_text(h, q->scheme);
    /* experts alone on the tier are units, and so blocks of codes, of their own */
    const int64_t exact[] = { shards->weights, shards->gradients, shards->optimizer, q->bucket, q->outer.every,
                             q->offload_experts };
    ADD(*h, exact);
}

/* Hash everything of the model and the batch that decides numbers: sizes, format, seed, dropout, loss scale,
 * packing. */
static void add_model(uint64_t *h, const struct plan *plan)
{
    const struct model_config *c = &plan->model;
    const int64_t shape[] = { c->tied, c->L, plan->B, plan->S, plan->dtype, plan->perturb, (int64_t)plan->seed,
                             plan->packed };
    const double number[] = { c->dropout_embedding, c->dropout_residual, c->dropout_attention, plan->loss_scale };
    struct model_number of[MODEL_NUMBERS];
    const int n = model_config_numbers(c, of);
    for (int i = 0; i < n; i++) ADD(*h, of[i].value);
    add_text(h, c->name), add_text(h, plan->batches ? plan->batches->digest.text : NULL);
    ADD(*h, plan->encoders.kinds);
    ADD(*h, shape), ADD(*h, number), ADD(*h, c->mixture.balance);
    ADD(*h, c->mask.kind), ADD(*h, c->mask.value);
}

enum error_code case_bits_key(const struct plan *plan, uint64_t *key, struct error *err)
{
    struct schedule s;
    struct shards shards, experts;              /* the second of experts that only some devices have */
    enum error_code e = plan_shards(&shards, plan, 0, false, err);
    if (!e) e = plan_shards(&experts, plan, 0, true, err);
    if (!e) e = plan_schedule(plan, &s, err);
    if (e) return e;
    *key = HASH_START;
    /* Sums that do not round have the bits of one device, wherever their terms lie. */
    if (plan->model.exact) {
        add_text(key, exact_rule_names[plan->model.exact]), add_text(key, plan->optimizer->name);
        ADD(*key, plan->hyper), add_model(key, plan);
        schedule_free(&s);
        return OK;
    }
    /* No slots and one slot are the same, so both are hashed as 1. */
    const int slots = plan->copying.slots + !plan->copying.slots;
    ADD(*key, plan->mesh.size), ADD(*key, plan->ep), ADD(*key, plan->etp), ADD(*key, plan->degree),
        ADD(*key, plan->row_parts), ADD(*key, plan->micro_tokens),
        ADD(*key, plan->hyper);
    ADD(*key, slots), ADD(*key, plan->copying.top);
    ADD(*key, plan->split.heads), ADD(*key, plan->split.window), ADD(*key, plan->split.context_first);
    add_text(key, plan->tensor), add_text(key, plan->attention), add_text(key, plan->dispatch);
    add_text(key, plan->allreduce), add_text(key, plan->optimizer->name);
    add_model(key, plan);
    /* Who encodes a clip decides in which order gradients are added. */
    ADD(*key, plan->encoders.placement), ADD(*key, plan->encoders.slack);
    add_levels(key, plan, &shards);
    /* Experts may be reduced over fewer copies than other parameters. */
    if (plan_cuts_experts(plan)) add_levels(key, plan, &experts);
    add_schedule(key, plan, &s);
    schedule_free(&s);
    return OK;
}
