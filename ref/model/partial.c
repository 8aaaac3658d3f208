#include "ref/model/partial.h"
#include <string.h>

/* The rows of sequence b in a tensor of N rows. */
static void *rows(const struct transformer *m, struct tensor t, int64_t b)
{
    return (char *)t.data + (size_t)b * (tensor_bytes(t) / (size_t)m->B);
}

static bool passes(const struct transformer *m, int layer, int64_t b)
{
    return m->passes_by && m->passes_by[layer * m->B + b];
}

void partial_forward(const struct transformer *m, int layer, struct tensor out)
{
    for (int64_t b = 0; b < m->B; b++)
        if (passes(m, layer, b))
            /* out = in: the layer is the identity for this sequence. */
            memcpy(rows(m, out, b), rows(m, m->block[layer].in, b), tensor_bytes(out) / (size_t)m->B);
}

/* Saves into forward's scratch, which is free in backward. */
void partial_backward_begin(struct transformer *m, int layer)
{
    const size_t bytes = tensor_bytes(m->d_stream) / (size_t)m->B;
    for (int64_t b = 0; b < m->B; b++) {
        if (!passes(m, layer, b)) continue;
        /* A gradient of zeros goes through the layer; the real one waits, and comes back at the end. */
        memcpy(rows(m, m->branch, b), rows(m, m->d_stream, b), bytes);
        memset(rows(m, m->d_stream, b), 0, bytes);
    }
}

void partial_backward_end(struct transformer *m, int layer)
{
    for (int64_t b = 0; b < m->B; b++)
        if (passes(m, layer, b))
            memcpy(rows(m, m->d_stream, b), rows(m, m->branch, b), tensor_bytes(m->d_stream) / (size_t)m->B);
}
