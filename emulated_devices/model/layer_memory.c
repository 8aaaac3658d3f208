#include "emulated_devices/model/layer_memory.h"
#include "emulated_devices/model/recompute.h"

static uint64_t numbers(const struct stage *s, int64_t n) { return (uint64_t)n * dtype_size(s->device->dtype); }
static uint64_t statistics(const struct stage *s, int64_t n) { return (uint64_t)n * dtype_size(dtype_wide(s->device->dtype)); }

/* Everything kept.  outside: what the paper divides only under sequence parallelism; inside: what it always divides. */
static void all_terms(const struct stage *s, const struct microbatch *m, struct layer_memory_term t[LAYER_MEMORY_TERMS])
{
    const struct model_config *c = &s->plan->model;
    const double parts = s->tp->group->size, inside = (double)(m->N * c->D) / parts;
    const double outside = s->tp->scheme->cuts_tokens ? inside : inside * parts;
    const int64_t n = m->stream.count, D = s->tp->channels, heads = s->tp->heads.queries, inner = m->inner.count;
    const struct layer_memory_term terms[LAYER_MEMORY_TERMS] = {
        { "inputs of the norms",          4 * outside, numbers(s, 2 * n * D), NULL },
        { "input of QKV",                 2 * outside, numbers(s, m->input.count * D), NULL },
        { "Q, K and V",                   6 * inside,  numbers(s, inner * tensor_qkv_columns(s->tp)), NULL },
        { "softmax, mask, what it drops", 5 * (double)(m->N * s->plan->S * c->H) / parts, statistics(s, inner * heads),
          "in tiles: a denominator for each row" },
        { "input of the projection",      2 * inside,  numbers(s, inner * heads * c->A), NULL },
        { "masks of residual dropout",    2 * outside, 0, "drawn again from their counters" },
        { "input of up",                  2 * outside, numbers(s, m->input.count * D), NULL },
        { "input and output of gelu",     16 * inside, numbers(s, inner * (tensor_up_columns(s->tp) + s->tp->columns)), NULL },
        { "means and deviations",         0,           statistics(s, (c->norm == NORM_LAYER ? 4 : 2) * n), "the paper leaves them out" },
    };
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) t[i] = terms[i];
}

enum { NORM_INPUTS, QKV_INPUT, QKV, SOFTMAX, PROJECTION_INPUT };

void layer_memory(const struct stage *s, const struct microbatch *m, int layer, struct layer_memory_term t[LAYER_MEMORY_TERMS])
{
    const enum recompute r = recompute_of(s->plan->recompute, layer);
    all_terms(s, m, t);
    if (r == RECOMPUTE_SELECTIVE) {
        t[SOFTMAX].paper = 0, t[SOFTMAX].kept = 0, t[SOFTMAX].why = NULL;
        t[PROJECTION_INPUT].kept = 0, t[PROJECTION_INPUT].why = "attention is computed again anyway";
    }
    for (int i = 0; i < LAYER_MEMORY_TERMS && r == RECOMPUTE_FULL; i++) {
        t[i].paper = i == NORM_INPUTS ? t[i].paper / 2 : 0;              /* the layer's own input */
        t[i].kept = i == NORM_INPUTS ? t[i].kept / 2 : 0;
        t[i].why = NULL;
    }
}
