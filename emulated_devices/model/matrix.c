#include "emulated_devices/model/matrix.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/tiles.h"

/* ---- tiles -------------------------------------------------------------------------------------------------------- */

static int tiles_in(const struct stage *s) { return uses_tiles(&s->plan->data) ? s->plan->data.tiles : 1; }
static const struct parameter *tile_of(const struct stage *s, struct matrix m, int t) { return parameter_find(s->parameters, m.weight) + t; }

/* The first of the outputs that a tile makes, and how many there are. */
static struct interval outputs(const struct parameter *tile) { return (struct interval){ tile->layout.box[0].start[0], layout_rows(&tile->layout) }; }

/* A router is small, and needs whole rows: every device of tp has all of it, and does all of it. */
static bool is_copied(struct matrix m) { return m.role == ROLE_ROUTER; }

static struct tensor bias_of(const struct stage *s, struct matrix m, struct interval part)
{
    const struct tensor b = stage_weight(s, m.bias);
    return tensor_present(b) ? tensor_1d((char *)b.data + (size_t)part.first * dtype_size(b.dtype), b.dtype, part.count) : tensor_none;
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

static enum error_code forward_tile(struct stage *s, struct matrix m, int t, struct tensor Y, struct tensor X, struct error *err)
{
    const struct parameter *tile = tile_of(s, m, t);
    const struct interval part = outputs(tile);
    const enum error_code e = data_acquire_tile(s->data, tile, err);
    if (!e) dev_linear_forward_columns(s->device, Y, part.first, X, tile->w, bias_of(s, m, part));
    data_release_tile(s->data, tile);
    return e;
}

enum error_code matrix_forward(struct stage *s, struct matrix m, int64_t N, struct tensor Y, struct tensor X, struct error *err)
{
    const int tiles = tiles_in(s);
    enum error_code e = OK;
    if (is_copied(m)) return dev_linear_forward(s->device, Y, X, stage_weight(s, m.weight), tensor_none), OK;
    if (tiles == 1)
        return s->tp->scheme->linear_forward(s->tp, m.role, N, Y, X, stage_weight(s, m.weight), stage_weight(s, m.bias), err);
    for (int t = 0; t < tiles && !e; t++) e = forward_tile(s, m, t, Y, X, err);
    return e;
}

static enum error_code backward_tile(struct stage *s, struct matrix m, int t, struct tensor dX, struct tensor dY, struct error *err)
{
    const struct parameter *tile = tile_of(s, m, t);
    const enum error_code e = data_acquire_tile(s->data, tile, err);
    if (!e) dev_linear_backward_input_columns(s->device, dX, dY, outputs(tile).first, tile->w, t > 0);
    data_release_tile(s->data, tile);
    return e;
}

/* In 16 bits the sum over tiles is rounded once, as that of the whole matrix is. */
static enum error_code backward_tiles(struct stage *s, struct matrix m, struct tensor dX, struct tensor dY, struct error *err)
{
    const int tiles = tiles_in(s);
    const bool narrow = dtype_wide(dX.dtype) != dX.dtype;
    const struct tensor sum = narrow ? device_statistics(s->device, BUFFERS, tensor_rows(dX), tensor_cols(dX)) : dX;
    enum error_code e = sum.data ? OK : fail(err, ERR_MEMORY, "no memory for the sum of %d tiles", tiles);
    for (int t = 0; t < tiles && !e; t++) e = backward_tile(s, m, t, sum, dY, err);
    if (!narrow) return e;
    if (!e) dev_round(s->device, dX, sum);
    device_free(s->device, sum);
    return e;
}

enum error_code matrix_backward_input(struct stage *s, struct matrix m, int64_t N, struct tensor dX, struct tensor dY,
                                      struct error *err)
{
    if (is_copied(m)) return dev_linear_backward_input(s->device, dX, dY, stage_weight(s, m.weight)), OK;
    if (tiles_in(s) > 1) return backward_tiles(s, m, dX, dY, err);
    return s->tp->scheme->linear_backward_input(s->tp, m.role, N, dX, dY, stage_weight(s, m.weight), err);
}

static enum error_code weight_tile(struct stage *s, struct matrix m, int t, struct tensor dY, struct tensor X, struct error *err)
{
    const struct parameter *tile = tile_of(s, m, t);
    const enum error_code e = data_begin_tile_gradient(s->data, tile, err);
    if (e) return e;
    dev_linear_backward_weight_columns(s->device, tile->g, dY, outputs(tile).first, X);
    return data_end_tile_gradient(s->data, tile, err);
}

enum error_code matrix_backward_weight(struct stage *s, struct matrix m, int64_t N, struct tensor dY, struct tensor X, struct error *err)
{
    const int tiles = tiles_in(s);
    const struct tensor db = stage_gradient(s, m.bias);
    enum error_code e = OK;
    if (is_copied(m)) return dev_linear_backward_weight(s->device, stage_gradient(s, m.weight), tensor_none, dY, X), OK;
    if (tiles == 1) {
        const struct tensor dW = stage_gradient(s, m.weight);
        return m.role == ROLE_QKV ? heads_backward_weight(s->tp, N, dW, db, dY, X, err)
                                : s->tp->scheme->linear_backward_weight(s->tp, m.role, N, dW, db, dY, X, err);
    }
    for (int t = 0; t < tiles && !e; t++) e = weight_tile(s, m, t, dY, X, err);
    if (!e && tensor_present(db)) dev_column_sums(s->device, db, dY);
    return e;
}

/* ---- the token embedding ------------------------------------------------------------------------------------------ */

enum error_code tokens_forward(struct stage *s, struct matrix m, struct tensor Y, struct tensor ids, struct error *err)
{
    const int tiles = tiles_in(s);
    enum error_code e = OK;
    if (tiles == 1) return s->tp->scheme->embedding_forward(s->tp, Y, ids, stage_weight(s, m.weight), err);
    for (int t = 0; t < tiles && !e; t++) {
        const struct parameter *tile = tile_of(s, m, t);
        e = data_acquire_tile(s->data, tile, err);
        if (!e) dev_embedding_forward(s->device, Y, ids, tile->w, outputs(tile).first, t > 0);
        data_release_tile(s->data, tile);
    }
    return e;
}

enum error_code tokens_backward_weight(struct stage *s, struct matrix m, struct tensor dY, struct tensor ids, struct error *err)
{
    const int tiles = tiles_in(s);
    enum error_code e = OK;
    if (tiles == 1) return s->tp->scheme->embedding_backward_weight(s->tp, stage_gradient(s, m.weight), dY, ids, err);
    for (int t = 0; t < tiles && !e; t++) {
        const struct parameter *tile = tile_of(s, m, t);
        e = data_begin_tile_gradient(s->data, tile, err);
        if (!e) dev_embedding_backward_weight(s->device, tile->g, dY, ids, outputs(tile).first);
        if (!e) e = data_end_tile_gradient(s->data, tile, err);
    }
    return e;
}
