#include "emulated_devices/model/matrix.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/tiles.h"

/* ---- which -------------------------------------------------------------------------------------------------------- */

/* Places in the model's list; bias -1: none.  tile: the first of them. */
struct matrix { int weight, bias, tiles; const struct parameter *tile; };

static struct matrix matrix_of(const struct stage *s, enum param_role role, int layer)
{
    static const struct { enum block_param weight, bias; } in_block[] = {
        [ROLE_QKV] = { QKV_W, QKV_B }, [ROLE_ATTENTION_OUT] = { PROJ_W, PROJ_B }, [ROLE_UP] = { UP_W, UP_B }, [ROLE_DOWN] = { DOWN_W, DOWN_B },
    };
    const struct model_config *c = &s->plan->model;
    struct matrix m = { .bias = -1, .tiles = uses_tiles(&s->plan->data) ? s->plan->data.tiles : 1 };
    if (role == ROLE_TOKENS) m.weight = PARAM_WTE;
    else if (role == ROLE_HEAD) m.weight = param_head(c);
    else m.weight = param_of_block(c, layer, in_block[role].weight), m.bias = param_of_block(c, layer, in_block[role].bias);
    if (m.tiles > 1) m.tile = parameter_find(s->parameters, m.weight);
    return m;
}

/* The first of the outputs that a tile makes, and how many there are. */
static struct range outputs(const struct parameter *tile) { return (struct range){ tile->layout.box[0].start[0], layout_rows(&tile->layout) }; }

static struct tensor bias_of(const struct stage *s, struct matrix m, struct range part)
{
    const struct tensor b = stage_weight(s, m.bias);
    return tensor_present(b) ? tensor_1d((char *)b.data + (size_t)part.first * dtype_size(b.dtype), b.dtype, part.count) : tensor_none;
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

static enum error_code forward_tile(struct stage *s, struct matrix m, int t, struct tensor Y, struct tensor X, struct error *err)
{
    const struct parameter *tile = m.tile + t;
    const struct range part = outputs(tile);
    const enum error_code e = data_acquire_tile(s->data, tile, err);
    if (!e) dev_linear_forward_columns(s->device, Y, part.first, X, tile->w, bias_of(s, m, part));
    data_release_tile(s->data, tile);
    return e;
}

enum error_code matrix_forward(struct stage *s, enum param_role role, int layer, int64_t N, struct tensor Y, struct tensor X, struct error *err)
{
    const struct matrix m = matrix_of(s, role, layer);
    enum error_code e = OK;
    if (m.tiles == 1)
        return s->tp->scheme->linear_forward(s->tp, role, N, Y, X, stage_weight(s, m.weight), stage_weight(s, m.bias), err);
    for (int t = 0; t < m.tiles && !e; t++) e = forward_tile(s, m, t, Y, X, err);
    return e;
}

static enum error_code backward_tile(struct stage *s, struct matrix m, int t, struct tensor dX, struct tensor dY, struct error *err)
{
    const struct parameter *tile = m.tile + t;
    const enum error_code e = data_acquire_tile(s->data, tile, err);
    if (!e) dev_linear_backward_input_columns(s->device, dX, dY, outputs(tile).first, tile->w, t > 0);
    data_release_tile(s->data, tile);
    return e;
}

/* In 16 bits the sum over tiles is rounded once, as that of the whole matrix is. */
static enum error_code backward_tiles(struct stage *s, struct matrix m, struct tensor dX, struct tensor dY, struct error *err)
{
    const bool narrow = dtype_wide(dX.dtype) != dX.dtype;
    const struct tensor sum = narrow ? device_statistics(s->device, BUFFERS, tensor_rows(dX), tensor_cols(dX)) : dX;
    enum error_code e = sum.data ? OK : fail(err, ERR_MEMORY, "no memory for the sum of %d tiles", m.tiles);
    for (int t = 0; t < m.tiles && !e; t++) e = backward_tile(s, m, t, sum, dY, err);
    if (!narrow) return e;
    if (!e) dev_round(s->device, dX, sum);
    device_free(s->device, sum);
    return e;
}

enum error_code matrix_backward_input(struct stage *s, enum param_role role, int layer, int64_t N, struct tensor dX, struct tensor dY,
                                      struct error *err)
{
    const struct matrix m = matrix_of(s, role, layer);
    if (m.tiles > 1) return backward_tiles(s, m, dX, dY, err);
    return s->tp->scheme->linear_backward_input(s->tp, role, N, dX, dY, stage_weight(s, m.weight), err);
}

static enum error_code weight_tile(struct stage *s, struct matrix m, int t, struct tensor dY, struct tensor X, struct error *err)
{
    const struct parameter *tile = m.tile + t;
    const enum error_code e = data_begin_tile_gradient(s->data, tile, err);
    if (e) return e;
    dev_linear_backward_weight_columns(s->device, tile->g, dY, outputs(tile).first, X);
    return data_end_tile_gradient(s->data, tile, err);
}

enum error_code matrix_backward_weight(struct stage *s, enum param_role role, int layer, int64_t N, struct tensor dY, struct tensor X, struct error *err)
{
    const struct matrix m = matrix_of(s, role, layer);
    const struct tensor db = stage_gradient(s, m.bias);
    enum error_code e = OK;
    if (m.tiles == 1) {
        const struct tensor dW = stage_gradient(s, m.weight);
        return role == ROLE_QKV ? heads_backward_weight(s->tp, N, dW, db, dY, X, err)
                                : s->tp->scheme->linear_backward_weight(s->tp, role, N, dW, db, dY, X, err);
    }
    for (int t = 0; t < m.tiles && !e; t++) e = weight_tile(s, m, t, dY, X, err);
    if (!e && tensor_present(db)) dev_column_sums(s->device, db, dY);
    return e;
}

/* ---- the token embedding ------------------------------------------------------------------------------------------ */

enum error_code tokens_forward(struct stage *s, struct tensor Y, struct tensor ids, struct error *err)
{
    const struct matrix m = matrix_of(s, ROLE_TOKENS, -1);
    enum error_code e = OK;
    if (m.tiles == 1) return s->tp->scheme->embedding_forward(s->tp, Y, ids, stage_weight(s, m.weight), err);
    for (int t = 0; t < m.tiles && !e; t++) {
        const struct parameter *tile = m.tile + t;
        e = data_acquire_tile(s->data, tile, err);
        if (!e) dev_embedding_forward(s->device, Y, ids, tile->w, outputs(tile).first, t > 0);
        data_release_tile(s->data, tile);
    }
    return e;
}

enum error_code tokens_backward_weight(struct stage *s, struct tensor dY, struct tensor ids, struct error *err)
{
    const struct matrix m = matrix_of(s, ROLE_TOKENS, -1);
    enum error_code e = OK;
    if (m.tiles == 1) return s->tp->scheme->embedding_backward_weight(s->tp, stage_gradient(s, m.weight), dY, ids, err);
    for (int t = 0; t < m.tiles && !e; t++) {
        const struct parameter *tile = m.tile + t;
        e = data_begin_tile_gradient(s->data, tile, err);
        if (!e) dev_embedding_backward_weight(s->device, tile->g, dY, ids, outputs(tile).first);
        if (!e) e = data_end_tile_gradient(s->data, tile, err);
    }
    return e;
}

/* ---- the same, as a list ------------------------------------------------------------------------------------------ */

enum { MOST_MATRICES = 7 };             /* that a pass through a block multiplies with: three of them again, and four */

/* What a part multiplies with, in order. */
static int matrices_of(const struct plan *p, int part, enum pass pass, bool again, enum param_role role[MOST_MATRICES])
{
    static const enum param_role onwards[] = { ROLE_QKV, ROLE_ATTENTION_OUT, ROLE_UP, ROLE_DOWN };
    int n = 0;
    if (part == 0) role[n++] = ROLE_TOKENS;
    else if (part == (int)p->model.L + 1) role[n++] = ROLE_HEAD;
    else {
        for (int i = 0; i < 3 && pass == PASS_BACKWARD_INPUT && again; i++) role[n++] = onwards[i];
        for (int i = 0; i < 4; i++) role[n++] = onwards[pass == PASS_FORWARD ? i : 3 - i];
    }
    return n;
}

/* Gradients of what is not tiled are reduced last: the biases' are in it. */
int part_uses(const struct stage *s, int part, enum pass pass, bool again, struct use *use)
{
    enum param_role role[MOST_MATRICES];
    int n = 0;
    const int matrices = uses_tiles(&s->plan->data) ? matrices_of(s->plan, part, pass, again, role) : 0;
    for (int i = 0; i < matrices; i++) {
        const struct matrix m = matrix_of(s, role[i], part - 1);
        for (int t = 0; t < m.tiles; t++)
            use[n++] = (struct use){ .part = part, .pass = pass, .tile = data_unit_of(&s->plan->model, &s->plan->data, &m.tile->spec, t) };
    }
    if (matrices == 0 || pass == PASS_BACKWARD_WEIGHT) use[n++] = (struct use){ .part = part, .pass = pass };
    return n;
}

int part_uses_most(const struct plan *p) { return uses_tiles(&p->data) ? (2 * 4 + MOST_MATRICES) * p->data.tiles + 1 : 3; }
