/* mask.c -- the mask of a node's dropout, and what a hypothesis (mistakes/mask.c) makes of it.
 * Operations that drop call single_mask.  A mask is an input like any tensor: single_input_rows reads it, in tiles
 * too. */
#include "emulated_devices/check/recompute/parts.h"
#include "emulated_devices/check/recompute/turns.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <string.h>

/* This is the place of i in its part, so that each part has the places of the first. */
static int64_t in_first(int64_t n, int parts, int64_t i) { return i - part_begin(n, parts, part_with(n, parts, i)); }

/* How many heads a mask has rows of: H for probabilities, 1 for activations. */
static int64_t heads_of(const struct single *single, struct tensor m)
{
    return tensor_rows(m) == single->cursor.N * single->context->config->H && tensor_cols(m) == single->cursor.batch.S
           ? single->context->config->H : 1;
}

/* Find the element whose mask element i has, under the hypothesis. */
static int64_t source(const struct single *single, const struct tensor m, int64_t i)
{
    const struct mask_change *c = &single->hypothesis.mask;
    const int64_t H = heads_of(single, m), B = single->cursor.batch.B, S = single->cursor.batch.S,
        cols = tensor_cols(m),
                  n = tensor_count(m), row = i / cols,
                  at = row % S * cols + i % cols, head = row / S % H, sequence = row / S / H;
    /* A mask [B H S, S] has a row for each sequence, head and query, or [N, D] without heads. */
    switch (c->kind) {
    case MASK_SHIFTED: return (i + c->by + n) % n;
    case MASK_ROW_SHIFTED: return (i + c->by * cols + n) % n;
    case MASK_OF_FIRST_COPY:
        return (in_first(B, c->by, sequence) * H + head) * S * cols + at;
    case MASK_OF_NEXT_COPY: case MASK_OF_COPY_BEFORE:
        return (part_turned(B, c->by, c->kind == MASK_OF_NEXT_COPY ? 1 : -1, sequence) * H + head) * S * cols + at;
    /* Each of `by` parts of the key heads has the masks of the first part. */
    case MASK_OF_FIRST_HEADS: {
        const int64_t K = single->context->config->K, group = single->context->config->H / K,
                      first = in_first(K, c->by, head / group) * group;
        return (sequence * H + first + head % group) * S * cols + at;
    }
    default: return i;
    }
}

/* Replace the mask by what the hypothesis makes of it.  The counter tells mistakes/mask.c that the pass reads a
 * mask at all. */
static void change_mask(struct single *single, const struct single_node *node, struct tensor m)
{
    const struct mask_change *c = &single->hypothesis.mask;
    const struct tensor old = single_new(single, tensor_rows(m), tensor_cols(m));
    single->hypothesis.masks_changed++;
    if (single->failed) return;
    memcpy(old.data, m.data, tensor_bytes(m));
    /* The mask has 0 and 1 here; the pass multiplies by 1 / (1 - rate) later. */
    for (int64_t i = 0; i < tensor_count(m); i++) {
        const double keeps = numbers(old)[source(single, old, i)];
        numbers(m)[i] = c->kind == MASK_NONE        ? 1 - node->rate
                        : c->kind == MASK_EMPTY     ? 0
                        : c->kind == MASK_FULL      ? 1
                        : c->kind == MASK_INVERTED  ? 1 - keeps
                        : c->kind == MASK_UNSCALED  ? keeps * (1 - node->rate)
                        : c->kind == MASK_TWICE     ? keeps / (1 - node->rate)
                                                    : keeps;
    }
}

/* The name of the mask to read: another step's or another layer's under these two hypotheses. */
static void name_mask(const struct single *single, const struct single_node *node, char name[SINGLE_NAME])
{
    const struct mask_change *c = &single->hypothesis.mask;
    const char *const rest = node->mask + strlen("mask/1/");
    const char *const place = strchr(rest + 2, '.');
    memcpy(name, node->mask, SINGLE_NAME);
    if (c->kind == MASK_OF_STEP) snprintf(name, SINGLE_NAME, "mask/%d/%.120s", c->by, rest);
    if (c->kind == MASK_OF_LAYER && rest[0] == 'h' && place)
        snprintf(name, SINGLE_NAME, "mask/1/h.%d%.99s", c->by, place);
}

/* Attention's mask has [sequences H S, S] elements; any other mask has the slot's shape. */
struct tensor single_mask(struct single *single, const struct single_node *node)
{
    if (node->rate == 0) return tensor_none;
    const struct single_slot *out = single_slot(single, node->out);
    const int64_t S = single->cursor.batch.S, H = single->context->config->H;
    struct single_name name;
    name_mask(single, node, name.text);
    const int64_t rows = single_rows(single, out);
    const struct tensor m = single_input_rows(single, name, out->head > 0 ? rows * H : rows,
                                              out->head > 0 ? S : out->cols);
    if (single->hypothesis.mask.kind != MASK_RIGHT && single_going(single)) change_mask(single, node, m);
    return m;
}
