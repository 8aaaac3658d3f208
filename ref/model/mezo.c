/* mezo.c -- draws the direction z, moves weights along z, and computes a loss or gradients there.  device/drawn.c
 * draws and moves shards; verify/reference/reference_zeroth.c runs the one-device model.  A loss along z reports
 * ERR_MEMORY without room for moved weights.  The model has its own weights back afterwards, also after an error. */
#include "ref/model/mezo.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the direction ----------------------------------------------------------------------------------------------- */

uint64_t mezo_key(uint64_t seed, int64_t step) { return seed + 0x9E3779B97F4A7C15u * ((uint64_t)step + 1); }

/* Not the stream of the parameter's name: that one draws initial weights. */
static uint64_t stream_of(const struct param_spec *spec)
{
    char name[PARAM_NAME + 8];
    snprintf(name, sizeof name, "mezo.%s", spec->name);
    return random_stream(name);
}

void mezo_draw(const struct param_spec *spec, uint64_t key, int64_t first, int64_t n, double *z)
{
    random_normals(z, n, key, stream_of(spec), (uint64_t)first);
}

/* Elements drawn and computed in double at once. */
enum { PIECE = 512 };

static int64_t piece_at(int64_t at, int64_t n) { return n - at < PIECE ? n - at : PIECE; }

void mezo_move(const struct param_spec *spec, uint64_t key, double along, int64_t first, int64_t n,
               enum dtype dtype, void *w)
{
    #pragma omp parallel for schedule(static) if (n > 32 * PIECE)
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = piece_at(at, n);
        char *here = (char *)w + (size_t)at * dtype_size(dtype);
        double z[PIECE], sum[PIECE];
        mezo_draw(spec, key, first + at, m, z);
        convert_numbers(sum, F64, here, dtype, m);
        /* w + along z in fp64, rounded once to the format of w. */
        for (int64_t i = 0; i < m; i++) sum[i] += along * z[i];
        convert_numbers(here, dtype, sum, F64, m);
    }
}

/* ---- the one-device model ---------------------------------------------------------------------------------------- */

static void free_all(struct tensor *all, int count)
{
    for (int i = 0; all && i < count; i++) free(all[i].data);
    free(all);
}

/* A second set of weights: simple code matters more here than memory. */
static struct tensor *moved_weights(const struct transformer *model, uint64_t key, double along)
{
    struct tensor *all = calloc((size_t)model->params, sizeof *all);
    for (int i = 0; all && i < model->params; i++) {
        all[i] = model->w[i];
        all[i].data = malloc(tensor_bytes(model->w[i]));
        if (all[i].data == NULL) {
            free_all(all, model->params);
            return NULL;
        }
        memcpy(all[i].data, model->w[i].data, tensor_bytes(model->w[i]));
        /* z is drawn from the key again, equal to the step's, and never stored. */
        mezo_move(&model->spec[i], key, along, 0, tensor_count(all[i]), all[i].dtype, all[i].data);
    }
    return all;
}

enum error_code transformer_loss_along(struct transformer *model, uint64_t key, double along, const int32_t *ids,
                                       const int32_t *labels, int64_t B, int64_t S, double *loss, struct error *err)
{
    struct tensor *const kept = model->w, *const moved = moved_weights(model, key, along);
    if (moved == NULL)
        return fail(err, ERR_MEMORY, "the one-device model %s has no memory for moved weights", model->config.name);
    model->w = moved;
    const enum error_code e = transformer_forward(model, ids, labels, B, S, loss, err);
    model->w = kept;
    free_all(moved, model->params);
    return e;
}

void transformer_gradients_along(struct transformer *model, uint64_t key, double slope)
{
    for (int i = 0; i < model->params; i++) {
        const struct tensor g = model->g[i];
        const int64_t n = tensor_count(g);
        double z[PIECE];
        for (int64_t at = 0; at < n; at += PIECE) {
            const int64_t k = piece_at(at, n);
            mezo_draw(&model->spec[i], key, at, k, z);
            /* g = slope z. */
            for (int64_t j = 0; j < k; j++) z[j] *= slope;
            convert_numbers((char *)g.data + (size_t)at * dtype_size(g.dtype), g.dtype, z, F64, k);
        }
    }
}
