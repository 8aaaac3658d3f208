#include "ref/model/transformer_parts.h"
#include <stdlib.h>
#include <string.h>

static int64_t kept_width(const struct model_config *c) { return 2 * c->K * c->A; }

bool past_serves(const struct transformer *m, int64_t tokens)
{
    const struct model_config *c = &m->config;
    /* With a capacity a choice depends on other tokens; with LongRoPE keys depend on the length. */
    return STREAMS(c) == 1 && c->mixture.capacity_factor == 0 && !rotary_by_length(&c->rotary, tokens);
}

enum error_code past_open(struct past *p, const struct transformer *m, int64_t tokens, struct error *err)
{
    const struct model_config *c = &m->config;
    const int64_t blocks = c->shortcut ? second_block(c, c->L) : c->L;
    *p = (struct past){ .kv = calloc((size_t)blocks, sizeof *p->kv), .blocks = blocks, .room = tokens };
    bool ok = p->kv != NULL;
    for (int64_t l = 0; l < blocks && ok; l++) {
        p->kv[l] = tensor_2d(NULL, m->ops->dtype, tokens, kept_width(c));
        p->kv[l].data = malloc(tensor_bytes(p->kv[l]) + 1);
        ok = p->kv[l].data != NULL;
    }
    if (ok) return OK;
    past_close(p);
    return fail(err, ERR_MEMORY, "no memory for the keys and values of %lld tokens", (long long)tokens);
}

void past_close(struct past *p)
{
    for (int64_t l = 0; l < p->blocks && p->kv; l++) free(p->kv[l].data);
    free(p->kv);
    *p = (struct past){ 0 };
}

/* The last columns of the rows that attention reads. */
static void keep(struct transformer *m, int layer)
{
    const struct tensor new = attended(m, layer), kept = m->past->kv[layer];
    const size_t each = dtype_size(new.dtype), row = (size_t)tensor_cols(new) * each,
                 part = (size_t)tensor_cols(kept) * each;
    for (int64_t n = 0; n < m->S; n++)
        /* Keys and values are the last 2 K A columns of qkv. */
        memcpy((char *)kept.data + (size_t)(m->past->count + n) * part,
               (const char *)new.data + (size_t)(n + 1) * row - part, part);
}

void past_attention(struct transformer *m, int layer)
{
    struct block_activations *a = &m->block[layer];
    struct attention whole = attention_of(m, layer);
    keep(m, layer);
    /* New queries see the keys before them and their own. */
    whole.S = m->past->count + m->S;
    m->ops->attention_part_forward(a->att, a->lse, attended(m, layer), first_rows(m->past->kv[layer], whole.S),
                                   m->positions, tensor_none, whole);
}

enum error_code transformer_continue(struct transformer *m, struct past *p, const int32_t *ids, int64_t n,
                                     struct error *err)
{
    double loss;
    if (n > p->room - p->count)
        return fail(err, ERR_USAGE, "%lld tokens after %lld; there is room for %lld", (long long)n, (long long)p->count,
                    (long long)p->room);
    m->past = p;
    const enum error_code e = transformer_forward(m, ids, ids, 1, n, &loss, err);
    m->past = NULL;
    if (!e) p->count += n;
    return e;
}
