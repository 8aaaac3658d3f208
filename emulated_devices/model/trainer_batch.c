/* trainer_batch.c -- the batch of a step: its labels counted, and each stage's tokens taken from it.  mixture.c,
 * trainer.c, trainer_open.c and verify/reference/compare.c call these functions.  Errors: ERR_MEMORY, and the error
 * of a device whose plan differs. */
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/encoders.h"
#include "emulated_devices/model/mixture.h"
#include "ref/model/sample_mask.h"
#include <stdlib.h>
#include <string.h>

void trainer_note_held(struct trainer *trainer)
{
    const struct encoders_held beside = encoders_activations(trainer);
    struct held h = trainer_activations(trainer);
    h.peak = larger(h.peak + beside.during, beside.most);
    h.together = larger(h.together + beside.during, beside.most);
    trainer->held = (struct held){ .peak = larger(trainer->held.peak, h.peak),
                                  .together = larger(trainer->held.together, h.together) };
}

enum error_code trainer_cut_step(struct trainer *trainer, int64_t step, struct error *err)
{
    enum error_code e = OK;
    plan_take_step(&trainer->plan, step);
    if (!trainer_takes_part(trainer)) return OK;
    for (int c = 0; c < trainer->plan.chunks && !e; c++) e = stage_cut(&trainer->stage[c], err);
    if (!e) trainer_note_held(trainer);
    return e;
}

enum error_code trainer_agree_on_plans(struct trainer *trainer, enum error_code e, struct error *err)
{
    struct error differs;
    struct sha256 sum = sha256_begin();
    if (trainer->seams.cp.scheme->plan == NULL) return e;
    for (int i = 0; i < trainer->plan.micros && trainer_takes_part(trainer); i++)
        sha256_add(&sum, &trainer->stage[0].micro[i].plan.digest, sizeof trainer->stage[0].micro[i].plan.digest);
    const struct sha256_text own = sha256_end(&sum);
    /* Plans are made by each member alone: digests must be equal before a message is sent. */
    const enum error_code same = group_same(&trainer->cp, own.text, sizeof own.text - 1,
                                            "the plan of tokens", &differs);
    if (!e && same) e = fail(err, same, "%s", differs.text);
    return comm_agree(trainer->comm, e, err);
}

/* Count the labels of some sequences that are not ignored; without labels, all count. */
static int64_t trainer_batch_count(const struct plan *plan, const int32_t *labels, struct interval sequences)
{
    const int64_t first = sequences.first * plan->S, end = interval_end(sequences) * plan->S;
    int64_t n = labels ? 0 : end - first;
    if (plan->samples) {
        for (int64_t b = sequences.first; b < interval_end(sequences); b++) n += plan->samples->labels[b];
        return n;
    }
    for (int64_t i = first; labels && i < end; i++) n += labels[i] != IGNORE_LABEL;
    return n;
}

/* Count the labels that are not ignored: of the whole batch, and of the replica's sequences for each optimizer step. */
static void count_labels(struct trainer *trainer, const int32_t *labels)
{
    const struct plan *p = &trainer->plan;
    const struct interval own = plan_replica_copies(p, plan_replica_of(p, trainer->comm->rank));
    memset(trainer->counted, 0, (size_t)p->updates * sizeof *trainer->counted);
    trainer->labels = trainer_batch_count(p, labels, (struct interval){ 0, p->B });
    for (int dp = (int)own.first; dp < own.first + own.count && dp < plan_parts(p); dp++)
        for (int i = 0; i < p->micros; i++) {
            trainer->counted[batch_of(trainer, i)] += trainer_batch_count(p, labels, plan_microbatch(p, dp, i));
        }
}

int64_t trainer_replica_labels(const struct trainer *trainer)
{
    int64_t labels = 0;
    for (int u = 0; u < trainer->plan.updates; u++) labels += trainer->counted[u];
    return labels;
}

/* N: tokens of the batch, which every parallel stream reads. */
static void take_rows(int32_t *into, const int32_t *of, int64_t N, const struct intervals *rows)
{
    for (int i = 0; i < rows->count && of; i++)
        for (int64_t k = 0, n; k < rows->at[i].count; k += n, into += n) {
            /* Parallel streams repeat the batch: row N is row 0 of the next stream. */
            const int64_t at = (rows->at[i].first + k) % N, left = rows->at[i].count - k;
            n = left < N - at ? left : N - at;
            memcpy(into, of + at, (size_t)n * sizeof *into);
        }
}

/* Set the positions of this device's tokens in packed samples, and the mask of its sequences. */
static enum error_code take_samples(struct microbatch *micro, const struct attention_mask *mask, const int32_t *within,
                                    int64_t N, int64_t S, const struct shared_batch *shared, struct error *err)
{
    int32_t *const position = micro->positions.data;
    take_rows(position, within, N, &micro->rows);
    for (int64_t n = 0; n < micro->N; n++) position[n] = sample_position(position[n]);
    micro->pairs[0] = micro->pairs[1] = -1;
    const int64_t tokens = micro->sequences.count * S, sequence = micro->plan.tokens > 0 ? tokens : S;
    if (shared) {
        /* All devices of the copy have the same mask, so the first of them writes it. */
        const int64_t width = 2 * attention_mask_ranges(mask);
        micro->mask = tensor_2d(shared->mask + width * micro->sequences.first * S, I32, tokens, width);
        const bool empty = tokens == 0 || (micro->plan.devices > 0 && micro->plan.tokens == 0);
        if (empty || shared->masked[micro->sequences.first]) return OK;
        shared->masked[micro->sequences.first] = true;
    }
    return sample_mask(micro->mask.data, mask, within + micro->sequences.first * S, tokens / sequence, sequence, err);
}

/* The batch in scratch memory: ids, labels, positions in samples with what is padding. */
static int32_t *batch_labels(const struct trainer *trainer)
{
    return trainer->scratch ? trainer->scratch + trainer->plan.B * trainer->plan.S : NULL;
}
static int32_t *batch_within(const struct trainer *trainer)
{
    return trainer->plan.packed && trainer->scratch ? trainer->scratch + 2 * trainer->plan.B * trainer->plan.S : NULL;
}

/* A section reads the batch by itself where this device has work in it; elsewhere its plan alone knows the step, for
 * what other devices have. */
static void read_sections(struct trainer *trainer)
{
    for (int i = 0; i < trainer->plan.sections->count; i++) {
        struct trainer *const part = &trainer->section[i];
        part->step = trainer->step;
        if (trainer_takes_part(part)) {
            trainer_read_batch(part);
            continue;
        }
        plan_take_step(&part->plan, trainer->step);
        part->plan.within = trainer->plan.within, part->plan.ids = trainer->plan.ids;
        part->plan.samples = trainer->plan.samples;
    }
}

static void read_own(struct trainer *trainer)
{
    plan_take_step(&trainer->plan, trainer->step);
    if (trainer->source.fill == NULL) return;
    if (trainer->source.share) {
        trainer->shared = trainer->source.share(trainer->source.context, trainer->step);
        trainer->scratch = trainer->shared->tokens, trainer->plan.samples = &trainer->shared->samples;
        trainer->plan.within = batch_within(trainer), trainer->plan.ids = trainer->scratch;
        return;
    }
    trainer->source.fill(trainer->source.context, trainer->step, 0, trainer->plan.B, trainer->scratch,
                         batch_labels(trainer), batch_within(trainer));
    trainer->plan.within = batch_within(trainer), trainer->plan.ids = trainer->scratch;
}

void trainer_read_batch(struct trainer *trainer)
{
    read_own(trainer);
    if (trainer->section) read_sections(trainer);
}

void trainer_note_begun(struct trainer *trainer)
{
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        account_add(&trainer->begun.of[kind], trainer_cost(trainer, kind), 1);
}

/* The outer trainer adds the messages of all sections together. */
enum error_code trainer_take_step(struct trainer *trainer, struct error *err)
{
    if (!plan_changes(&trainer->plan)) return OK;
    const enum error_code cut = trainer_cut_step(trainer, trainer->step, err),
        e = trainer_agree_on_plans(trainer, cut, err);
    if (!e && trainer->plan.layers.count == 0) trainer_note_begun(trainer);
    if (!e && trainer_takes_part(trainer)) tier_traffic_add(&trainer->moved, trainer_activation_moves(trainer), 1);
    return e;
}

enum error_code trainer_take_clips(struct trainer *trainer, struct error *err)
{
    enum error_code e = encoders_read(trainer, trainer->scratch, batch_labels(trainer), batch_within(trainer),
                                      trainer->shared == NULL, err);
    for (int i = 0; trainer->section && i < trainer->plan.sections->count && !e; i++) {
        const struct trainer *const part = &trainer->section[i];
        if (part->scratch && !part->shared)
            clips_mark(&trainer->encoders.clips, 0, part->plan.B * part->plan.S, part->scratch, batch_labels(part));
    }
    return e ? e : encoders_place(trainer, err);
}

enum error_code trainer_hand_batch(struct trainer *trainer, struct error *err)
{
    const struct plan *const p = &trainer->plan;
    enum error_code e = OK;
    /* Where experts are apart, what is held is known after the routers' choices, and noted then. */
    if (p->encoders.kinds > 0 && !plan_cuts_experts(p)) trainer_note_held(trainer);
    const int32_t *const ids = trainer->scratch, *const labels = batch_labels(trainer),
        *const within = batch_within(trainer);
    const int64_t N = p->B * p->S;
    count_labels(trainer, labels);
    trainer->updated = 0;
    routers_begin(trainer);
    data_expect_step(&trainer->data, trainer->step * p->updates + 1 - trainer->skipped);
    for (int c = 0; c < p->chunks; c++) {
        struct stage *s = &trainer->stage[c];
        s->loss = 0;
        s->loss_scale = trainer->loss_scale.scale;
        s->dropout_seed = dropout_seed(p->seed, trainer->step);
        for (int i = 0; i < p->micros && !e; i++) {
            struct microbatch *m = &s->micro[i];
            /* ids [N of the microbatch] of this device's rows; labels only of rows whose losses it computes. */
            take_rows(m->ids.data, ids, N, &m->rows);
            take_rows(m->labels.data, labels, N, &m->tokens);
            if (p->packed) e = take_samples(m, &p->model.mask, within, N, p->S, trainer->shared, err);
        }
    }
    return e;
}

enum error_code trainer_take_batch(struct trainer *trainer, struct error *err)
{
    trainer_read_batch(trainer);
    /* The last step's clips hold nothing in this one. */
    encoders_drop_batch(trainer);
    enum error_code e = trainer_take_step(trainer, err);
    if (!e) e = trainer_take_clips(trainer, err);
    return e ? e : trainer_hand_batch(trainer, err);
}
