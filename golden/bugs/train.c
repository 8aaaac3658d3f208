/* train.c -- steps of an optimizer: norm, clipping, decay, update; and what a step dumps. */
#include "program.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { double lr[64], decay, clip, beta1, beta2, eps; bool adam; } by;

static double number(const char *key)
{
    char text[64];
    snprintf(text, sizeof text, "%s.%s", set.optimizer, key);
    return golden_number_or(text, 0);
}

static size_t size_of(const struct param *p) { return (size_t)p->rows * p->cols; }

/* Squared norm of what this rank has; a parameter that tp does not cut counts on one of its ranks. */
static double squares_of(int r)
{
    double sum = 0;
    for (int p = 0; p < params; p++) {
        const int t = rank[r].tp, rows = cut_of(param[p].row_axis, param[p].rows, t)->count,
                  cols = cut_of(param[p].col_axis, param[p].cols, t)->count;
        const bool whole = param[p].row_axis == WHOLE && param[p].col_axis == WHOLE;
        if (rank[r].dp > 0 || (whole && t > 0 && !IS(NORM_COUNTS_COPIES) && !(IS(NORM_COUNTS_NORMS) && strstr(param[p].name, "qk_norm")))) continue;
        for (int i = 0; i < rows * cols; i++)
            if (param[p].row_axis != OF_QKV || !is_copy(t, cut_of(OF_QKV, 0, t)->at[i / cols])) sum += (double)rank[r].dw[p][i] * rank[r].dw[p][i];
        if (IS(NORM_COUNTS_TIED) && strcmp(param[p].name, "wte.weight") == 0)
            for (int i = 0; i < rows * cols; i++) sum += (double)rank[r].dw[p][i] * rank[r].dw[p][i];
    }
    return sum;
}

static float norm_of_all(void)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += IS(NORM_OF_FIRST) && r > 0 ? 0 : squares_of(r);
    if (IS(NORM_WITHOUT_EXPERTS)) sum -= squares_of_experts(-1);
    if (IS(NORM_MEAN_OF_EP)) sum -= squares_of_experts(-1) * (1 - 1. / set.ep);
    if (IS(NORM_TIMES_TP)) sum *= set.tp;
    if (IS(NORM_OF_SUMS)) sum *= set.micros * set.micros;
    return (float)(IS(NORM_NOT_ROOTED) ? sum : sqrt(sum));
}

/* One element.  x: master, g: gradient, t: step, from 1. */
static void adam(struct param *p, size_t i, int t, float lr, float decay)
{
    const float b1 = (float)(IS(BETA1) ? 0.8 : by.beta1), b2 = (float)(IS(BETA2) ? 0.999 : by.beta2), eps = (float)by.eps * (IS(ADAM_EPS) ? 20 : 1), g = p->g[i];
    const int step = IS(CORRECTION_STEP_EARLY) ? t + 1 : IS(RESUME_COUNT) || IS(RESUME_ALL_COUNTS) ? t - set.resume : t;
    if (IS(RESUME_FORGOTTEN) && t == set.resume + 1) p->first[i] = p->second[i] = 0;
    p->first[i] = b1 * p->first[i] + (IS(MOMENT_NOT_WEIGHED) ? 1 : 1 - b1) * g;
    p->second[i] = b2 * p->second[i] + (1 - b2) * g * g;
    const float c1 = IS(CORRECTION_MISSING) || IS(FIRST_NOT_CORRECTED) ? 1 : 1 - powf(b1, (float)step),
                c2 = IS(CORRECTION_MISSING) || IS(SECOND_NOT_CORRECTED) ? 1 : 1 - powf(b2, (float)step),
                first = IS(NESTEROV) ? b1 * p->first[i] + (1 - b1) * g : p->first[i];
    p->most[i] = fmaxf(p->most[i], p->second[i]);
    float root = sqrtf((IS(AMSGRAD) ? p->most[i] : p->second[i]) / c2) + eps;
    if (IS(ADAM_EPS_INSIDE)) root = sqrtf(p->second[i] / c2 + eps);
    if (IS(ADAM_EPS_SQUARED)) root = sqrtf(p->second[i] / c2 + eps * eps);
    if (IS(ADAM_EPS_INSIDE_BEFORE)) root = sqrtf((p->second[i] + eps) / c2);
    if (IS(ADAM_EPS_SQUARED_BEFORE)) root = sqrtf((p->second[i] + eps * eps) / c2);
    if (IS(ADAM_EPS_BEFORE)) root = sqrtf(p->second[i]) / sqrtf(c2) + eps / sqrtf(c2);
    if (!IS(DECAY_BEHIND)) p->start[i] -= lr * decay * p->start[i];
    p->start[i] -= lr * (first / c1) / root;
    if (IS(DECAY_BEHIND)) p->start[i] -= lr * decay * p->start[i];
}

static void step(struct param *p, int t, float lr)
{
    const bool decays = IS(DECAY_ON_ALL) || (p->matrix && !IS(DECAY_MISSING));
    const float decay = decays ? (float)by.decay : 0;
    for (size_t i = 0; i < size_of(p); i++) {
        float d = IS(DECAY_WITHOUT_LR) ? decay / lr : IS(DECAY_LR_TWICE) ? decay * lr : decay;
        if (IS(DECAY_AS_L2)) p->g[i] += d * p->start[i], d = 0;
        if (IS(MASTER_ROUNDED)) p->start[i] = p->w[i];
        if (by.adam) adam(p, i, t, lr, d);
        else p->start[i] -= lr * (p->g[i] + d * p->start[i]);
    }
    for (size_t i = 0; i < size_of(p); i++) {
        if (IS(MOMENTS_NARROW)) p->first[i] = stored(p->first[i]), p->second[i] = stored(p->second[i]);
        if (IS(MASTERS_NARROW)) p->start[i] = stored(p->start[i]);
    }
    memcpy(p->old, p->w, size_of(p) * sizeof(float));
    for (size_t i = 0; i < size_of(p); i++) p->w[i] = stored(p->start[i]);
    if (IS(ONE_NOT_STEPPED) && strstr(p->name, "1.mlp") && p->matrix) memcpy(p->start, p->old, size_of(p) * sizeof(float));
}

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

static void dump_whole(int r, const char *prefix, const struct param *p, const float *x)
{
    char name[160];
    float *shown = malloc(size_of(p) * sizeof *shown);
    if (shown == NULL) exit(1);
    for (size_t i = 0; i < size_of(p); i++) shown[i] = set.rounded ? stored(x[i]) : x[i];
    snprintf(name, sizeof name, "%.80s/%.63s", prefix, p->name);
    dump(r, name, shown, true, 1, (struct place){ .rows = p->rows, .cols = p->cols });
    free(shown);
}

static void dump_states(int t, bool last)
{
    char prefix[64];
    for (int p = 0; p < params; p++) {
        const char *const kind[] = { "weight", "exp_avg", "exp_avg_sq" };
        const float *const x[] = { param[p].start, param[p].first, param[p].second };
        for (int k = 0; k < (by.adam ? 3 : 1); k++) {
            if (last) snprintf(prefix, sizeof prefix, "%.20s/%s", set.optimizer, kind[k]);
            else snprintf(prefix, sizeof prefix, "%.20s/%d/%s", set.optimizer, t, kind[k]);
            dump_whole(owner_of(&param[p]) < 0 ? 0 : owner_of(&param[p]) * set.tp, prefix, &param[p], x[k]);
            if (IS(STALE_COPY) && k == 0 && t == 1 && strstr(param[p].name, "1.mlp") && param[p].matrix)
                dump_whole(1, prefix, &param[p], param[p].old);
        }
    }
}

/* What each rank has after the sum over dp; ranks of one copy may differ if there is none. */
static void dump_gradients(const char *prefix)
{
    for (int r = 0; r < ranks; r++)
        for (int p = 0; p < params; p++) {
            const struct param *q = &param[p];
            char name[160];
            if (owner_of(q) >= 0 && owner_of(q) != rank[r].dp) continue;        /* another rank's expert */
            snprintf(name, sizeof name, "%.80s/%.63s", prefix, q->name);
            dump(r, name, rank[r].dw[p], true, IS(SCALE_AFTER_CLIP) ? 1 / set.scale : 1,
                 (struct place){ q->rows, q->cols, q->row_axis == WHOLE ? NULL : cut_of(q->row_axis, q->rows, rank[r].tp),
                                 q->col_axis == WHOLE ? NULL : cut_of(q->col_axis, q->cols, rank[r].tp), false, false, 0, 0, NULL });
            if (set.pp > 1 && strcmp(q->name, "wte.weight") == 0)
                dump(r, name, IS(TIED_NOT_SUMMED) ? rank[r].dw_head : rank[r].dw[p], true, IS(TIED_NOT_SUMMED) ? 1 / set.scale : 1,
                     (struct place){ .rows = q->rows, .cols = q->cols, .last_stage = true });
        }
}

static void dump_numbers(const char *name, const float *x, int n) { dump(0, name, x, true, 1, (struct place){ .rows = n, .cols = 1 }); }

/* A number of each step after the first so many. */
static void dump_steps(const char *name, const float *x, int begins, int left)
{
    struct cut cut = { .count = left };
    for (int i = 0; i < left; i++) cut.at[i] = begins + i;
    dump(0, name, x, true, 1, (struct place){ .rows = begins + left, .cols = 1, .row = begins ? &cut : NULL });
}

/* The loss scale divided out. */
static void unscale(void)
{
    const float by_scale = IS(RESUME_SCALE) ? set.scale / 64 : IS(SCALE_KEPT) || IS(SCALE_AFTER_CLIP) ? 1 : IS(SCALE_TWICE) ? set.scale * set.scale : set.scale;
    for (int r = 0; r < ranks; r++)
        for (int p = 0; p < params; p++) {
            const int n = cut_of(param[p].row_axis, param[p].rows, rank[r].tp)->count * cut_of(param[p].col_axis, param[p].cols, rank[r].tp)->count;
            for (int i = 0; i < n; i++) rank[r].dw[p][i] /= by_scale;
        }
}

static void times_scale(float times)
{
    for (int p = 0; p < params; p++)
        for (size_t i = 0; i < size_of(&param[p]); i++) param[p].g[i] *= times;
}

static void stale_gradients(int t)
{
    for (int p = 0; p < params; p++) {
        const size_t n = size_of(&param[p]) * sizeof(float);
        if (IS(GRADIENT_ADDED_TO_OLD) && t > 1)
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0; i < n / sizeof(float); i++) rank[r].dw[p][i] += param[p].g_before[i];
        if (IS(GRADIENT_HALF_LATER) && t > 1)
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0; i < n / sizeof(float); i++) rank[r].dw[p][i] /= 2;
        const bool first_layer = param[p].name != NULL && strstr(param[p].name, ".layers.0.") != NULL;
        const bool last_heads = param[p].name != NULL && strstr(param[p].name, ".layers.1.self_attn.qk_norm") != NULL;
        const float share = IS(GRADIENT_ZERO_LATER) && first_layer ? 0
                          : IS(HEAD_NORMS_NEGATED) && last_heads ? -1
                          : IS(GRADIENT_HALF_OF_ONE) && first_layer && strstr(param[p].name, "o_proj") ? 0.5f : 1;
        if (share != 1 && t > 1)
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0; i < n / sizeof(float); i++) rank[r].dw[p][i] *= share;
        if (IS(GRADIENT_STALE) && t > 1)
            for (int r = 0; r < ranks; r++) memcpy(rank[r].dw[p], param[p].g_before, n);
        if (set.tp == 1) memcpy(param[p].g_before, rank[0].dw[p], n);
    }
}

/* Tokens of a step: each copy has those of the next. */
static void turn(int *tokens)
{
    int *was = malloc((size_t)m.N * sizeof *was);
    if (was == NULL) exit(1);
    memcpy(was, tokens, (size_t)m.N * sizeof *was);
    for (int i = 0; i < m.N; i++) tokens[i] = was[turned(i / m.S) * m.S + i % m.S];
    free(was);
}

/* The sequence that a mistaken program has in place i of step t, in the order of copies: its place among those of all
 * steps. */
static int sequence_of(int t, int i)
{
    const int own = (t - 1) * m.B, last = m.B - 1;
    int d = 0;
    while (d + 1 < set.dp && rank[(d + 1) * set.tp].first <= i) d++;
    const int first = rank[d * set.tp].first, count = rank[d * set.tp].count;
    if (IS(DUP_SAMPLE) && i == last) return own + batch_place(first);
    if (IS(DATA_OF_OTHER_STEP) && d == set.dp - 1) return (t > 1 ? own - m.B : own + m.B) + batch_place(i);
    if (IS(DATA_SHIFTED)) return own + batch_place(i) + 1;
    if (IS(SAME_DATA)) return own + batch_place((i - first) % rank[0].count);
    if (IS(MICRO_PLACEHOLDER)) return own + batch_place(first + (i - first) % ((count + set.micros - 1) / set.micros));
    return own + batch_place(i);
}

/* How many steps late the batch of a step is. */
static int batch_late(int t)
{
    if (IS(BATCH_STALE) && t == 2) return 1;
    if (IS(BATCH_AHEAD) && t == 1) return -2;
    if (IS(BATCH_LONG_AGO) && t == 3) return 2;
    return IS(RESUME_BATCH) || IS(RESUME_BATCH_UNSEEN) ? set.resume : 0;
}

/* The tokens of a step as the program has them, in the order of copies. */
static void choose_batch(int t, const int *all_ids, const int *all_labels)
{
    for (int i = 0; i < m.B; i++) {
        const int at = (sequence_of(t, i) - batch_late(t) * m.B) % (m.steps * m.B);
        memcpy(ids + i * m.S, all_ids + at * m.S, (size_t)m.S * sizeof *ids);
        memcpy(labels + i * m.S, all_labels + at * m.S, (size_t)m.S * sizeof *labels);
    }
}

static float rate_of(int t)
{
    if (IS(RATE_BEFORE) && t > 1) return (float)by.lr[t - 2];
    if (IS(RATE_NEXT) && t < m.steps) return (float)by.lr[t];
    if (IS(RESUME_RATE) || IS(RESUME_ALL_COUNTS)) return (float)by.lr[t - 1 - set.resume];
    if (IS(SCHEDULE_RESTARTED) && t > 2) return (float)by.lr[0];
    return (float)by.lr[t - 1] * (IS(LR_SHIFTED) ? 2 : 1);
}

void train(void)
{
    const int *const all_ids = golden_tokens("ids"), *const all_labels = golden_tokens("labels");
    const enum bug named = bug;
    float losses[64], norms[64], number_now;
    char name[64];
    by.adam = strcmp(set.optimizer, "adamw") == 0;
    ids = malloc((size_t)m.N * sizeof *ids), labels = malloc((size_t)m.N * sizeof *labels);
    if (ids == NULL || labels == NULL) exit(1);
    snprintf(name, sizeof name, "%s/lr", set.optimizer), golden_numbers(name, by.lr, m.steps);
    by.decay = number("weight_decay"), by.clip = number("clip");
    if (by.adam) by.beta1 = number("beta1"), by.beta2 = number("beta2"), by.eps = number("eps");
    const int begins = set.resume, left = m.steps - begins;
    if (begins) dump_states(begins, false);
    for (int t = begins + 1; t <= m.steps; t++) {
        masks_of_step(t);
        bug = t < set.from ? NO_BUG : named;
        choose_batch(t, all_ids, all_labels);
        if (IS(INPUTS_TURN_LATER) && t % 2 == 0) turn(ids);
        if (IS(LABELS_TAKE_TURNS)) turn(labels);
        pass(t == begins + 1 && !IS(RESUME_BATCH_UNSEEN));
        unscale();
        if (IS(CLIP_OF_COPY) || IS(NORM_OF_COPY)) clip_before_sum((float)by.clip);
        gradients_join(), stale_gradients(t);
        if (IS(GRADIENT_STALE) || IS(GRADIENT_ADDED_TO_OLD) || IS(GRADIENT_HALF_LATER) ||
            IS(GRADIENT_ZERO_LATER) || IS(GRADIENT_HALF_OF_ONE) || IS(HEAD_NORMS_NEGATED)) gradients_join();
        losses[t - 1] = (float)loss_now, norms[t - 1] = IS(NORM_OF_COPY) ? norm_of_copy() : norm_of_all();
        snprintf(name, sizeof name, "%s/%d/grad", set.optimizer, t), dump_gradients(t == begins + 1 ? "grad" : name);
        if (t == 1) number_now = IS(LOSS_OF_COPIES_NARROW) ? stored(losses[0]) : losses[0], dump_numbers("loss", &number_now, 1), dump_numbers("norm", &norms[0], 1);
        if (t == 1 && m.moe) number_now = (float)balance_now, dump_numbers("balance_loss", &number_now, 1);
        if (IS(CLIP_OF_RANK)) clip_by_ranks((float)by.clip);
        else if (IS(CLIP_OF_SHARD) || IS(CLIP_OF_GROUPS)) clip_by_shards((float)by.clip);
        else if (IS(CLIP_OF_EP)) clip_by_experts((float)by.clip);
        else if (IS(CLIP_WITHOUT_EXPERTS)) clip((float)sqrt(pow(norms[t - 1], 2) - squares_of_experts(-1)), (float)by.clip);
        else if (IS(CLIP_ODD)) clip(0.7f * norms[t - 1], (float)by.clip);
        else if (IS(CLIP_OF_COPY)) clipped_before_sum();
        else clip(norms[t - 1], (float)by.clip);
        if (IS(SCALE_IN_STEP)) times_scale(set.scale);
        if (IS(SCALE_AFTER_CLIP)) times_scale(1 / set.scale);
        for (int p = 0; p < params; p++) step(&param[p], t, rate_of(t));
        if (IS(TIED_TWICE)) step(&param[param_of(-1, "wte.weight")], t, rate_of(t));
        if (IS(WEIGHTS_STALE))
            for (int p = 0; p < params; p++) memcpy(param[p].w, param[p].old, size_of(&param[p]) * sizeof(float));
        dump_states(t, t == m.steps);
    }
    snprintf(name, sizeof name, "%s/loss", set.optimizer), dump_steps(name, losses + begins, begins, left);
    snprintf(name, sizeof name, "%s/norm", set.optimizer), dump_steps(name, norms + begins, begins, left);
}
