/* masks.c -- the dropout masks of a golden file: a byte for each element, 1 if it is kept.
 *
 * make.c calls golden_add_masks after the results are computed.  Errors are ERR_MEMORY.
 */
#include "ref/golden/make.h"
#include <stdio.h>
#include <stdlib.h>

/* The rule of dropout applied to ones: what is kept is not 0. */
static enum error_code add_mask(struct golden_tensors *list, const char *name, int64_t rows, int64_t cols,
                                struct dropout dropout, struct error *err)
{
    struct tensor mask = tensor_none, ones = tensor_2d(malloc((size_t)(rows * cols) * sizeof(double)), F64, rows, cols);
    if (dropout.p == 0) {
        free(ones.data);
        return OK;
    }
    enum error_code e = ones.data ? OK : fail(err, ERR_MEMORY, "no memory for %s", name);
    if (!e) e = golden_tensors_add(list, name, tensor_2d(NULL, U8, rows, cols), &mask, err);
    for (int64_t i = 0; i < rows * cols && !e; i++) tensor_set(ones, i, 1);
    if (!e) ops_for(F64)->dropout(ones, ones, dropout);
    for (int64_t i = 0; i < rows * cols && !e; i++) ((uint8_t *)mask.data)[i] = tensor_get(ones, i) != 0;
    free(ones.data);
    return e;
}

/* A layer has masks of both branches [B S, D] and of the attention probabilities [B H S, S]. */
static enum error_code add_layer(struct golden_tensors *list, const struct golden *golden, int64_t step, int layer,
                                 struct error *err)
{
    static const char *const branch[] = { "attention", "mlp" };
    const struct model_config *c = &golden->config;
    const uint64_t seed = dropout_seed(golden->seed, step);
    char name[RECORD_NAME];
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        snprintf(name, sizeof name, "mask/%lld/h.%d.%s", (long long)step + 1, layer, branch[i]);
        e = add_mask(list, name, golden->B * golden->S, c->D,
                     dropout_at(c->dropout_residual, seed, layer, branch[i], 0, 0, c->D), err);
    }
    snprintf(name, sizeof name, "mask/%lld/h.%d.probabilities", (long long)step + 1, layer);
    return e ? e : add_mask(list, name, golden->B * c->H * golden->S, golden->S,
                            dropout_at(c->dropout_attention, seed, layer, "probabilities", 0, 0, golden->S), err);
}

/* Masks of all steps, which a reader without our generator needs to repeat the run. */
enum error_code golden_add_masks(struct golden_tensors *list, const struct golden *golden, struct error *err)
{
    const struct model_config *c = &golden->config;
    char name[RECORD_NAME];
    enum error_code e = OK;
    for (int64_t step = 0; step < golden->steps && !e; step++) {
        snprintf(name, sizeof name, "mask/%lld/embedding", (long long)step + 1);
        e = add_mask(list, name, golden->B * golden->S, c->D,
                     dropout_at(c->dropout_embedding, dropout_seed(golden->seed, step), -1, "embedding", 0,
                                0, c->D), err);
        for (int l = 0; l < c->L && !e; l++) e = add_layer(list, golden, step, l, err);
    }
    return e;
}
