/* mistakes_mask.c -- what a result is if dropout has another mask, or other factors: the operation is recomputed with
 * the mask changed (single_mask).
 *
 * A copy of the model, and a rank along tp with some of the heads, draw the mask of the first if all draw from the same
 * place of the same stream; and that of the next if ranks are counted otherwise.
 */
#include "ref/single/mistakes.h"
#include <stdio.h>
#include <string.h>

/* The place of i in its part. */
static int64_t in_first(int64_t n, int parts, int64_t i) { return i - part_begin(n, parts, part_with(n, parts, i)); }

/* The heads of which a mask has rows: one of activations. */
static int64_t heads_of(const struct single *s, struct tensor m)
{
    return tensor_rows(m) == s->N * s->config->H && tensor_cols(m) == s->batch.S ? s->config->H : 1;
}

/* The element whose mask element (row, col) has. */
static int64_t source(const struct single *s, const struct tensor m, int64_t i)
{
    const struct mask_change *c = &s->mask_change;
    const int64_t H = heads_of(s, m), S = s->batch.S, cols = tensor_cols(m), n = tensor_count(m), row = i / cols,
                  at = row % S * cols + i % cols, head = row / S % H, sequence = row / S / H;
    switch (c->kind) {
    case MASK_SHIFTED: return (i + c->by + n) % n;
    case MASK_ROW_SHIFTED: return (i + c->by * cols + n) % n;
    case MASK_OF_FIRST_COPY:
        return (in_first(s->batch.B, c->by, sequence) * H + head) * S * cols + at;
    case MASK_OF_NEXT_COPY: case MASK_OF_COPY_BEFORE:
        return (part_turned(s->batch.B, c->by, c->kind == MASK_OF_NEXT_COPY ? 1 : -1, sequence) * H + head) * S * cols +
               at;
    case MASK_OF_FIRST_HEADS: {
        const int64_t group = s->config->H / s->config->K, first = in_first(s->config->K, c->by, head / group) * group;
        return (sequence * H + first + head % group) * S * cols + at;
    }
    default: return i;
    }
}

void single_change_mask(struct single *s, const struct single_node *n, struct tensor m)
{
    const struct mask_change *c = &s->mask_change;
    const struct tensor old = single_new(s, tensor_rows(m), tensor_cols(m));
    s->masks_changed++;
    if (s->failed) return;
    memcpy(old.data, m.data, tensor_bytes(m));
    for (int64_t i = 0; i < tensor_count(m); i++) {
        const double keeps = numbers(old)[source(s, old, i)];
        numbers(m)[i] = c->kind == MASK_NONE        ? 1 - n->rate
                        : c->kind == MASK_INVERTED  ? 1 - keeps
                        : c->kind == MASK_UNSCALED  ? keeps * (1 - n->rate)
                        : c->kind == MASK_TWICE     ? keeps / (1 - n->rate)
                                                    : keeps;
    }
}

void single_other_mask(const struct single *s, const struct single_node *n, char name[SINGLE_NAME])
{
    const struct mask_change *c = &s->mask_change;
    const char *const rest = n->mask + strlen("mask/1/");
    const char *const place = strchr(rest + 2, '.');
    memcpy(name, n->mask, SINGLE_NAME);
    if (c->kind == MASK_OF_STEP) snprintf(name, SINGLE_NAME, "mask/%d/%.120s", c->by, rest);
    if (c->kind == MASK_OF_LAYER && rest[0] == 'h' && place)
        snprintf(name, SINGLE_NAME, "mask/1/h.%d%.99s", c->by, place);
}

static void try_change(struct suspect *p, const struct single_term *t, struct mask_change c, const char *words,
                       double *y)
{
    struct single *s = p->s;
    const int used = s->used;
    s->now.lacks[0] = 0, s->unknown = false;
    s->mask_change = c, s->masks_changed = 0;
    const struct single_value v = t->run ? t->run(s, t->node) : single_none;
    s->mask_change = (struct mask_change){ 0 };
    if (s->masks_changed > 0 && single_going(s) && tensor_count(v.y) == p->count) {
        for (int64_t i = 0; i < p->count; i++) y[i] = p->want[i] - numbers(t->y)[i] + numbers(v.y)[i];
        suspect_explained(p, y, words, c.by);
    }
    single_release(s, used);
}

void suspect_masks(struct suspect *p, const struct single_term *t, double *y)
{
    static const struct { enum mask_kind kind; int by; const char *words; } all[] = {
        { MASK_NONE, 0, "nothing is dropped" },
        { MASK_INVERTED, 0, "its mask is inverted: what must be kept is dropped" },
        { MASK_UNSCALED, 0, "what is kept is not divided by 1 - rate" },
        { MASK_TWICE, 0, "what is kept is divided by 1 - rate twice" },
        { MASK_SHIFTED, 1, "its mask is off by one: an element has that of the next" },
        { MASK_SHIFTED, -1, "its mask is off by one: an element has that of the one before" },
        { MASK_ROW_SHIFTED, 1, "its mask is off by one row: a row has that of the next" },
        { MASK_ROW_SHIFTED, -1, "its mask is off by one row: a row has that of the one before" },
        { MASK_OF_STEP, 2, "it has the mask of step %d" },
        { MASK_OF_LAYER, 0, "it has the mask of layer %d" },
    };
    static const int parts[] = { 2, 3, 4, 8 };
    const struct model_config *c = p->s->config;
    if (c->dropout_residual == 0 && c->dropout_embedding == 0 && c->dropout_attention == 0) return;
    for (size_t k = 0; k < sizeof all / sizeof *all && !p->s->failed; k++)
        try_change(p, t, (struct mask_change){ all[k].kind, all[k].by }, all[k].words, y);
    const int copies = p->s->source.copies;
    if (copies > 1) try_change(p, t, (struct mask_change){ MASK_OF_NEXT_COPY, copies },
                               "copies take turns: each of %d has the mask of the next", y);
    if (copies > 2) try_change(p, t, (struct mask_change){ MASK_OF_COPY_BEFORE, copies },
                               "copies take turns: each of %d has the mask of the one before", y);
    for (size_t k = 0; k < sizeof parts / sizeof *parts && !p->s->failed; k++) {
        if (parts[k] <= p->s->batch.B)
            try_change(p, t, (struct mask_change){ MASK_OF_FIRST_COPY, parts[k] },
                       "each of %d parts of the batch has the mask of the first", y);
        if (parts[k] <= c->K)
            try_change(p, t, (struct mask_change){ MASK_OF_FIRST_HEADS, parts[k] },
                       "each of %d parts of the heads has the mask of the first", y);
    }
}
