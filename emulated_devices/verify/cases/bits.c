/* bits.c -- the key of what decides a plan's bits. */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/hash.h"
#include <string.h>

#define ADD(h, x) ((h) = hash_bytes((h), &(x), sizeof(x)))

static void add_text(uint64_t *h, const char *text)
{
    *h = hash_bytes(*h, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_skips(uint64_t *h, const struct schedule *s)
{
    for (int m = 0; m < s->micros; m++)
        for (int t = 0; t < s->stages; t++) {
            const int skip[] = { m, t, s->stages };
            if (place_of(s, m, t).device < 0) ADD(*h, skip);
        }
}

/* Whether one place computes both gradients of a tied embedding: it adds them in the order in which they are
 * computed. */
static bool adds_both_uses(const struct plan *p, const struct schedule *s)
{
    struct param_spec tokens = model_param(&p->model, 0);
    return p->model.tied && s->stages > 1 && plan_holders(p, s, &tokens, NULL) == 1;
}

static void hash_layers(uint64_t *h, const struct plan *p)
{
    for (int i = 0; i <= p->stages; i++) ADD(*h, p->first_layer[i]);
}

/* All schedules that add weight gradients in the order of the microbatches, on one copy of each stage, compute the same
 * sums. */
static void add_schedule(uint64_t *h, const struct plan *p, const struct schedule *s)
{
    struct place place[2];
    const int rule[] = { s->micros, s->update_every, s->weight_versions };
    ADD(*h, rule);
    add_skips(h, s);
    if (schedule_is_partial(s)) hash_layers(h, p);      /* which layers a skipped stage has */
    if (schedule_adds_in_order(s) && schedule_holders(s, 0, place, 2) == 1 && !adds_both_uses(p, s)) return;
    add_text(h, p->schedule);
    ADD(*h, s->chunks);
}

/* Over dp, sums are computed level by level, each in the order of ranks; with sharded gradients for every
 * microbatch. */
static void add_levels(uint64_t *h, const struct plan *p, const struct shards *s)
{
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS; l++) {
        const int level[] = { shards_size(s, l), l < BY_OPTIMIZER && p->micros > 1 };
        if (level[0] > 1) ADD(*h, level);
    }
    const struct data_request *q = &p->data;
    const int64_t number[] = { q->tiles, q->narrow_gradients, q->quantise_weights.bits, q->quantise_gradients.bits,
                               q->quantise_weights.block };
    ADD(*h, number);
    add_text(h, q->reduce_scatter), add_text(h, q->allgather);
    if (!data_quantises(q) && !s->apart) return;
    add_text(h, q->scheme);
    /* experts alone on the tier are units, and so blocks of codes, of their own */
    const int64_t exact[] = { s->weights, s->gradients, s->optimizer, q->bucket, q->outer.every, q->offload_experts };
    ADD(*h, exact);
}

static void add_model(uint64_t *h, const struct plan *p)
{
    const struct model_config *c = &p->model;
    const int64_t shape[] = { c->tied, c->L, p->B, p->S, p->dtype, p->perturb, (int64_t)p->seed, p->packed };
    const double number[] = { c->dropout_embedding, c->dropout_residual, c->dropout_attention, p->loss_scale };
    struct model_number of[MODEL_NUMBERS];
    const int n = model_config_numbers(c, of);
    for (int i = 0; i < n; i++) ADD(*h, of[i].value);
    add_text(h, c->name), add_text(h, p->batches ? p->batches->digest.text : NULL);
    ADD(*h, shape), ADD(*h, number), ADD(*h, c->mixture.balance);
}

enum error_code case_bits_key(const struct plan *p, uint64_t *key, struct error *err)
{
    struct schedule s;
    struct shards shards, experts;              /* the second of experts that only some devices have */
    enum error_code e = plan_shards(&shards, p, 0, false, err);
    if (!e) e = plan_shards(&experts, p, 0, true, err);
    if (!e) e = plan_schedule(p, &s, err);
    if (e) return e;
    *key = HASH_START;
    const int slots = p->copying.slots + !p->copying.slots;
    ADD(*key, p->mesh.size), ADD(*key, p->ep), ADD(*key, p->etp), ADD(*key, p->degree), ADD(*key, p->hyper);
    ADD(*key, slots), ADD(*key, p->copying.top);
    ADD(*key, p->split.heads), ADD(*key, p->split.window), ADD(*key, p->split.context_first);
    add_text(key, p->tensor), add_text(key, p->attention), add_text(key, p->dispatch);
    add_text(key, p->allreduce), add_text(key, p->optimizer->name);
    add_model(key, p);
    add_levels(key, p, &shards);
    if (plan_cuts_experts(p)) add_levels(key, p, &experts);
    add_schedule(key, p, &s);
    schedule_free(&s);
    return OK;
}
