/* trainer_batch.c -- the batch of a step: its labels counted, and each stage's tokens taken from it. */
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/encoders.h"
#include "emulated_devices/model/mixture.h"
#include "ref/model/sample_mask.h"
#include <stdlib.h>
#include <string.h>

void trainer_note_held(struct trainer *t)
{
    const struct held h = trainer_activations(t);
    t->held = (struct held){ .peak = larger(t->held.peak, h.peak), .together = larger(t->held.together, h.together) };
}

enum error_code trainer_cut_step(struct trainer *t, int64_t step, struct error *err)
{
    enum error_code e = OK;
    plan_take_step(&t->plan, step);
    for (int c = 0; c < t->plan.chunks && !e; c++) e = stage_cut(&t->stage[c], err);
    if (!e) trainer_note_held(t);
    return e;
}

enum error_code trainer_agree_on_plans(struct trainer *t, enum error_code e, struct error *err)
{
    struct error differs;
    struct sha256 sum = sha256_begin();
    if (t->seams.cp.scheme->plan == NULL) return e;
    for (int i = 0; i < t->plan.micros; i++)
        sha256_add(&sum, &t->stage[0].micro[i].plan.digest, sizeof t->stage[0].micro[i].plan.digest);
    const struct sha256_text own = sha256_end(&sum);
    /* Plans are made by each member alone: digests must be equal before a message is sent. */
    const enum error_code same = group_same(&t->cp, own.text, sizeof own.text - 1, "the plan of tokens", &differs);
    if (!e && same) e = fail(err, same, "%s", differs.text);
    return comm_agree(t->comm, e, err);
}

/* Count the labels of some sequences that are not ignored; without labels, all count. */
static int64_t count(const int32_t *labels, struct interval sequences, int64_t S)
{
    const int64_t first = sequences.first * S, end = interval_end(sequences) * S;
    int64_t n = labels ? 0 : end - first;
    for (int64_t i = first; labels && i < end; i++) n += labels[i] != IGNORE_LABEL;
    return n;
}

/* Count the labels that are not ignored: of the whole batch, and of the replica's sequences for each optimizer step. */
static void count_labels(struct trainer *t, const int32_t *labels)
{
    const struct plan *p = &t->plan;
    const struct interval own = plan_replica_copies(p, plan_replica_of(p, t->comm->rank));
    memset(t->counted, 0, (size_t)p->updates * sizeof *t->counted);
    t->labels = count(labels, (struct interval){ 0, p->B }, p->S);
    for (int dp = (int)own.first; dp < own.first + own.count && dp < plan_parts(p); dp++)
        for (int i = 0; i < p->micros; i++) {
            t->counted[batch_of(t, i)] += count(labels, plan_microbatch(p, dp, i), p->S);
        }
}

int64_t trainer_replica_labels(const struct trainer *t)
{
    int64_t labels = 0;
    for (int u = 0; u < t->plan.updates; u++) labels += t->counted[u];
    return labels;
}

/* N: tokens of the batch, which every parallel stream reads. */
static void take_rows(int32_t *into, const int32_t *of, int64_t N, const struct intervals *rows)
{
    for (int i = 0; i < rows->count && of; i++)
        /* Parallel streams repeat the batch: row N is row 0 of the next stream. */
        for (int64_t k = 0; k < rows->at[i].count; k++) *into++ = of[(rows->at[i].first + k) % N];
}

/* Set the positions of this device's tokens in packed samples, and the mask of its sequences. */
static enum error_code take_samples(struct microbatch *m, const int32_t *within, int64_t N, int64_t S,
                                    struct error *err)
{
    int32_t *const position = m->positions.data;
    take_rows(position, within, N, &m->rows);
    for (int64_t n = 0; n < m->N; n++) position[n] = sample_position(position[n]);
    m->pairs[0] = m->pairs[1] = -1;
    const int64_t tokens = m->sequences.count * S, sequence = m->plan.tokens > 0 ? tokens : S;
    return sample_mask(m->mask.data, within + m->sequences.first * S, tokens / sequence, sequence, err);
}

/* The batch in scratch memory: ids, labels, positions in samples with what is padding. */
static int32_t *batch_labels(const struct trainer *t)
{
    return t->scratch ? t->scratch + t->plan.B * t->plan.S : NULL;
}
static int32_t *batch_within(const struct trainer *t)
{
    return t->plan.packed && t->scratch ? t->scratch + 2 * t->plan.B * t->plan.S : NULL;
}

void trainer_read_batch(struct trainer *t)
{
    plan_take_step(&t->plan, t->step);
    if (t->source.fill == NULL) return;
    t->source.fill(t->source.context, t->step, 0, t->plan.B, t->scratch, batch_labels(t), batch_within(t));
    t->plan.within = batch_within(t), t->plan.ids = t->scratch;
}

/* If the plan changes from step to step: set the sizes of this step, and add what it sends. */
static enum error_code take_step(struct trainer *t, struct error *err)
{
    if (!plan_changes(&t->plan)) return OK;
    const enum error_code cut = trainer_cut_step(t, t->step, err), e = trainer_agree_on_plans(t, cut, err);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT && !e; kind++)
        account_add(&t->begun.of[kind], trainer_cost(t, kind), 1);
    if (!e) tier_traffic_add(&t->moved, trainer_activation_moves(t), 1);
    return e;
}

enum error_code trainer_take_batch(struct trainer *t, struct error *err)
{
    const struct plan *p = &t->plan;
    trainer_read_batch(t);
    enum error_code e = take_step(t, err);
    if (e) return e;
    e = encoders_take_batch(t, t->scratch, batch_labels(t), err);
    if (e) return e;
    const int32_t *const ids = t->scratch, *const labels = batch_labels(t), *const within = batch_within(t);
    const int64_t N = p->B * p->S;
    count_labels(t, labels);
    t->updated = 0;
    routers_begin(t);
    data_expect_step(&t->data, t->step * p->updates + 1 - t->skipped);
    for (int c = 0; c < p->chunks; c++) {
        struct stage *s = &t->stage[c];
        s->loss = 0;
        s->loss_scale = t->loss_scale.scale;
        s->dropout_seed = dropout_seed(p->seed, t->step);
        for (int i = 0; i < p->micros && !e; i++) {
            struct microbatch *m = &s->micro[i];
            /* ids [N of the microbatch] of this device's rows; labels only of rows whose losses it computes. */
            take_rows(m->ids.data, ids, N, &m->rows);
            take_rows(m->labels.data, labels, N, &m->tokens);
            if (p->packed) e = take_samples(m, within, N, p->S, err);
        }
    }
    return e;
}
