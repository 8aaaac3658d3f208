/* layer_memory.c -- compares what a layer keeps with the published formula, term by term.  bench/claims/memory.c and
 * cli/bench/schemes/tensor_tables.c call.  The output is in bytes for N tokens.  Errors of link_layer are passed on;
 * then no term is written. */
#include "emulated_devices/model/link/layer_memory.h"
#include "ref/model/config.h"
#include <string.h>

/* Bytes of some slots, and of the statistics of the nodes that write them, unless they are dropped. */
enum { TERM_SLOTS = 3 };
struct kept_slots { const char *value[TERM_SLOTS], *statistics[TERM_SLOTS]; };

static uint64_t bytes_kept(const struct linked *linked, const struct seams *seams, int64_t N, int buffer)
{
    const bool kept = buffer == BUFFER_IN
        || (buffer >= 0 && linked->buffer[buffer].kept && !linked->buffer[buffer].dropped);
    return kept ? buffer_bytes(&linked->buffer[buffer], seams, N) : 0;
}

static uint64_t kept_of(const struct linked *linked, const struct seams *seams, int64_t N, struct kept_slots slots)
{
    uint64_t sum = 0;
    for (int i = 0; i < TERM_SLOTS && slots.value[i]; i++)
        if (linked_slot(linked, slots.value[i]))
            sum += bytes_kept(linked, seams, N, linked_slot(linked, slots.value[i])->value);
    for (int i = 0; i < TERM_SLOTS && slots.statistics[i]; i++) {
        if (linked_slot(linked, slots.statistics[i]) == NULL) continue;
        const struct linked_node *n = &linked->node[linked_slot(linked, slots.statistics[i])->maker];
        for (int j = 0; j < NODE_STATISTICS; j++) sum += bytes_kept(linked, seams, N, n->statistic[j]);
    }
    return sum;
}

/* `outside`: terms that the paper divides by t only under sequence parallelism; `inside`: always divided by t. */
enum { NORM_INPUTS, QKV_INPUT, QKV, SOFTMAX, PROJECTION_INPUT };

static const struct kept_slots slots[LAYER_MEMORY_TERMS] = {
    { .value = { "in", "mid" } }, { .value = { "ln_1" } }, { .value = { "attn.qkv", "attn.normed" } },
    { .statistics = { "attn.heads" } },
    { .value = { "attn.heads" } }, { .value = { NULL } }, { .value = { "ln_2" } },
    { .value = { "mlp.up", "mlp.act" } }, { .statistics = { "ln_1", "ln_2", "attn.normed" } },
};

static void paper_terms(const struct tensor_parallel *tp, int64_t N, struct layer_memory_term term[LAYER_MEMORY_TERMS])
{
    const struct model_config *c = tp->config;
    const double parts = tp->devices, inside = (double)(N * c->D) / parts;
    const double outside = tp->scheme->cuts_tokens ? inside : inside * parts;
    const struct layer_memory_term terms[LAYER_MEMORY_TERMS] = {
        { "inputs of the norms",          4 * outside, 0, NULL },
        { "input of QKV",                 2 * outside, 0, NULL },
        { "Q, K and V",                   6 * inside,  0, NULL },
        { "softmax, mask, what it drops", 5 * (double)(N * tp->S * c->H) / parts, 0,
          "in tiles: a denominator for each row" },
        { "input of the projection",      2 * inside,  0, NULL },
        { "masks of residual dropout",    2 * outside, 0, "drawn again from their counters" },
        { "input of up",                  2 * outside, 0, NULL },
        { "input and output of gelu",     16 * inside, 0, NULL },
        { "means and deviations",         0,           0, "the paper leaves them out" },
    };
    memcpy(term, terms, sizeof terms);
}

enum error_code layer_memory(const struct tensor_parallel *tp, int64_t N, const char *recompute,
                             struct layer_memory_term term[LAYER_MEMORY_TERMS], struct error *err)
{
    const enum recompute r = recompute_of(recompute, 0);
    struct linked l;
    const struct seams alone = seams_alone(tp);
    const enum error_code e = link_layer(&l, tp->config, &alone, 0, recompute, false, err);
    if (e) return e;
    paper_terms(tp, N, term);
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) term[i].kept = kept_of(&l, &alone, N, slots[i]);
    if (r == RECOMPUTE_SELECTIVE) {
        term[SOFTMAX].paper = 0, term[SOFTMAX].why = NULL;
        term[PROJECTION_INPUT].why = "attention is computed again anyway";
    }
    const bool most = r == RECOMPUTE_FULL || r == RECOMPUTE_BUT_ATTENTION;
    for (int i = 0; i < LAYER_MEMORY_TERMS && most; i++) {
        const bool output = i == PROJECTION_INPUT && r == RECOMPUTE_BUT_ATTENTION;
        /* the layer's own input */
        term[i].paper = i == NORM_INPUTS ? term[i].paper / 2 : output ? term[i].paper : 0;
        term[i].why = i == SOFTMAX && r == RECOMPUTE_BUT_ATTENTION ? "a denominator for each row" : NULL;
    }
    return OK;
}
