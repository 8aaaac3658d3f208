/* past.c -- keys and values of earlier tokens, so that the next token costs one row.
 *
 * ref/text/generate.c opens a past and calls transformer_continue; ref/model/forward.c calls past_attention.
 * transformer_continue leaves the logits of the new tokens in the model.  past_open returns ERR_MEMORY, and more
 * tokens than there is room for are ERR_USAGE.
 */
#include "ref/model/kinds.h"
#include "ref/model/transformer_parts.h"
#include <stdlib.h>
#include <string.h>

static int64_t kept_width(const struct model_config *config) { return 2 * config->K * config->A; }

bool past_serves(const struct transformer *model, int64_t tokens)
{
    const struct model_config *c = &model->config;
    /* With a capacity a choice depends on other tokens; with LongRoPE keys depend on the length, and so may masks. */
    return STREAMS(c) == 1 && attention_mask_is_causal(&c->mask) && c->mixture.capacity_factor == 0 &&
           !rotary_by_length(&c->rotary, tokens);
}

enum error_code past_open(struct past *past, const struct transformer *model, int64_t tokens, struct error *err)
{
    const struct model_config *c = &model->config;
    const int64_t blocks = c->shortcut ? second_block(c, c->L) : c->L;
    *past = (struct past){ .kv = calloc((size_t)blocks, sizeof *past->kv), .blocks = blocks, .room = tokens };
    bool ok = past->kv != NULL;
    for (int64_t l = 0; l < blocks && ok; l++) {
        past->kv[l] = tensor_2d(NULL, model->ops->dtype, tokens, kept_width(c));
        past->kv[l].data = malloc(tensor_bytes(past->kv[l]) + 1);
        ok = past->kv[l].data != NULL;
    }
    if (ok) return OK;
    past_close(past);
    return fail(err, ERR_MEMORY, "no memory for the keys and values of %lld tokens", (long long)tokens);
}

void past_close(struct past *past)
{
    for (int64_t l = 0; l < past->blocks && past->kv; l++) free(past->kv[l].data);
    free(past->kv);
    *past = (struct past){ 0 };
}

/* The last columns of the rows that attention reads. */
static void past_keep(struct transformer *model, int layer)
{
    const struct tensor new = attended(model, layer), kept = model->past->kv[layer];
    const size_t each = dtype_size(new.dtype), row = (size_t)tensor_cols(new) * each,
                 part = (size_t)tensor_cols(kept) * each;
    for (int64_t n = 0; n < model->S; n++)
        /* Keys and values are the last 2 K A columns of qkv. */
        memcpy((char *)kept.data + (size_t)(model->past->count + n) * part,
               (const char *)new.data + (size_t)(n + 1) * row - part, part);
}

void past_attention(struct transformer *model, int layer)
{
    struct block_activations *a = &model->block[layer];
    struct attention whole = attention_of(model, layer);
    past_keep(model, layer);
    /* New queries see the keys before them and their own. */
    whole.S = model->past->count + model->S;
    model->ops->attention_part_forward(a->att, a->lse, attended(model, layer),
                                       first_rows(model->past->kv[layer], whole.S),
                                       model->positions, tensor_none, whole);
}

enum error_code transformer_continue(struct transformer *model, struct past *past, const int32_t *ids, int64_t n,
                                     struct error *err)
{
    double loss;
    if (n > past->room - past->count)
        return fail(err, ERR_USAGE, "%lld tokens after %lld; there is room for %lld", (long long)n,
                    (long long)past->count, (long long)past->room);
    model->past = past;
    const enum error_code e = transformer_forward(model, ids, ids, 1, n, &loss, err);
    model->past = NULL;
    if (!e) past->count += n;
    return e;
}
