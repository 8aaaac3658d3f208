/* inputs.c -- an operation that reads another tensor, or has another weight, of the same shape: the stream in
 * place of its norm, what a layer before it has kept, a matrix of another layer.
 * mistakes.c calls suspect_inputs for each summand, if nothing else explains the result.  A hypothesis copies the
 * node and changes one input or weight; the operation's own pass computes the rest. */
#include "emulated_devices/check/mistakes/mistakes.h"

/* Only some layers are tried: the node's own, its neighbours, the first, and slots outside of all layers.  A tensor
 * of another layer agrees more often by chance. */
static bool is_near(const struct single *single, int layer, int own)
{
    return layer <= 0 || layer >= (int)single->context->config->L || (layer >= own - 1 && layer <= own + 1);
}

/* Slots of the same shape and routing may be exchanged; slots that programs do not show are no likely mistake. */
static bool is_alike(const struct single *single, int slot, int other, int own_layer)
{
    const struct single_slot *a = single_slot(single, slot), *b = single_slot(single, other);
    return slot != other && !a->number && !b->number && a->rows == b->rows && a->cols == b->cols &&
           a->route == b->route && !b->unseen
               && is_near(single, single->context->graph->node[b->maker].layer, own_layer);
}

/* Offer the result with this node in place of the summand's node.  @return whether it explains the numbers. */
static bool try_node(struct suspect *suspect, const struct single_term *term, const struct single_node *node, double *y,
                     const char *format, const char *name, const char *own)
{
    struct single *s = suspect->s;
    const int used = s->memory.used;
    bool explained = false;
    const struct single_value v = single_attempt(s, node, term->run);
    if (v.status == SINGLE_DONE && tensor_count(v.y) == suspect->count) {
        for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] - numbers(term->y)[i] + numbers(v.y)[i];
        explained = suspect_explained(suspect, y, format, name, own);
    }
    single_release(s, used);
    return explained;
}

/* Try each input of the node from every slot of the same shape. */
static void try_slots(struct suspect *suspect, const struct single_term *term, double *y)
{
    const struct single *s = suspect->s;
    for (int k = 0; k < SINGLE_INPUTS && term->node->in[k] >= 0; k++)
        for (int other = 0; other < s->context->graph->slots && !s->failed; other++) {
            if (!is_alike(s, term->node->in[k], other, term->node->layer)) continue;
            struct single_node n = *term->node;
            n.in[k] = other;
            try_node(suspect, term, &n, y, "it reads act/%s in place of act/%s", single_slot(s, other)->name,
                     single_slot(s, term->node->in[k])->name);
        }
}

/* Matrices of experts and of shared layers have equal shapes but are not exchanged for each other here. */
static bool is_same_kind(const struct param_spec *a, const struct param_spec *b)
{
    return a->ndim == b->ndim && a->dim[0] == b->dim[0] && (a->ndim == 1 || a->dim[1] == b->dim[1]) &&
           a->expert == b->expert;
}

/* Try the weight of every parameter of the same shape. */
static void try_weights(struct suspect *suspect, const struct single_term *term, double *y)
{
    const struct single *s = suspect->s;
    if (term->node->weight < 0) return;
    const struct param_spec own = single_spec(s, term->node->weight);
    for (int other = 0; other < single_spec_count(s) && !s->failed; other++) {
        const struct param_spec w = single_spec(s, other);
        if (other == term->node->weight || !is_same_kind(&own, &w) || !is_near(s, w.layer, term->node->layer)) continue;
        struct single_node n = *term->node;
        n.weight = other;
        try_node(suspect, term, &n, y, "it has %s in place of %s", w.name, own.name);
    }
}

/* A pass that only hands a gradient on reads no tensor of its own; a bias's gradient reads no weight. */
void suspect_inputs(struct suspect *suspect, const struct single_term *term, double *y)
{
    if (term->node->operation->passes_on && term->pass == SINGLE_INPUT) return;
    if (term->pass != SINGLE_BIAS) try_slots(suspect, term, y);
    if (term->pass == SINGLE_FORWARD || term->pass == SINGLE_INPUT) try_weights(suspect, term, y);
}
