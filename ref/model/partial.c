/* partial.c -- makes a layer the identity for the sequences that skip the layer.  ref/model/forward.c calls after a
 * layer, ref/model/backward.c before and after a layer.  Inputs are the model's flags passes_by [layers, B].  No
 * function reports errors. */
#include "ref/model/partial.h"
#include <string.h>

/* The rows of sequence b in a tensor of N rows. */
static void *partial_rows(const struct transformer *model, struct tensor t, int64_t b)
{
    return (char *)t.data + (size_t)b * (tensor_bytes(t) / (size_t)model->B);
}

static bool passes(const struct transformer *model, int layer, int64_t b)
{
    return model->passes_by && model->passes_by[layer * model->B + b];
}

void partial_forward(const struct transformer *model, int layer, struct tensor out)
{
    for (int64_t b = 0; b < model->B; b++)
        if (passes(model, layer, b))
            /* out = in: the layer is the identity for this sequence. */
            memcpy(partial_rows(model, out, b), partial_rows(model, model->block[layer].in, b),
                   tensor_bytes(out) / (size_t)model->B);
}

/* Saves into forward's scratch, which is free in backward. */
void partial_backward_begin(struct transformer *model, int layer)
{
    const size_t bytes = tensor_bytes(model->d_stream) / (size_t)model->B;
    for (int64_t b = 0; b < model->B; b++) {
        if (!passes(model, layer, b)) continue;
        /* A gradient of zeros goes through the layer; the real one waits, and comes back at the end. */
        memcpy(partial_rows(model, model->branch, b), partial_rows(model, model->d_stream, b), bytes);
        memset(partial_rows(model, model->d_stream, b), 0, bytes);
    }
}

void partial_backward_end(struct transformer *model, int layer)
{
    for (int64_t b = 0; b < model->B; b++)
        if (passes(model, layer, b))
            memcpy(partial_rows(model, model->d_stream, b), partial_rows(model, model->branch, b),
                   tensor_bytes(model->d_stream) / (size_t)model->B);
}
