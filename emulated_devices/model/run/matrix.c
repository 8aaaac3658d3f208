/* matrix.c -- multiplies by a stage's matrices, by the tensor scheme and tile by tile.  model/run/run_node.c calls
 * for products forward, for inputs and for weights.  Errors of the scheme and of the data scheme are passed on. */
#include "emulated_devices/model/run/matrix.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/tiles.h"

/* A router, a gate, or what weighs streams needs whole rows, so every device along tp has a copy and computes the whole
 * product of its rows. */
static bool is_copied(struct matrix matrix) { return role_is_whole(matrix.role); }

/* ---- tiles -------------------------------------------------------------------------------------------------- */

/* The context of the four calls with which the tensor scheme takes and returns tiles. */
struct tiled_matrix { struct stage *stage; int weight; };

static const struct parameter *tile_of(const struct tiled_matrix *matrix, int t)
{
    return parameter_find(matrix->stage->parameters, matrix->weight) + t;
}

static enum error_code take_weight(void *context, int t, struct tensor *W, struct error *err)
{
    const struct tiled_matrix *m = context;
    const enum error_code e = data_acquire_tile(m->stage->data, tile_of(m, t), err);
    *W = tile_of(m, t)->w;
    return e;
}

static enum error_code give_weight(void *context, int t, struct error *err)
{
    const struct tiled_matrix *m = context;
    (void)err;
    data_release_tile(m->stage->data, tile_of(m, t));
    return OK;
}

static enum error_code take_gradient(void *context, int t, struct tensor *dW, struct error *err)
{
    const struct tiled_matrix *m = context;
    const enum error_code e = data_begin_tile_gradient(m->stage->data, tile_of(m, t), err);
    *dW = tile_of(m, t)->g;
    return e;
}

static enum error_code give_gradient(void *context, int t, struct error *err)
{
    const struct tiled_matrix *m = context;
    return data_end_tile_gradient(m->stage->data, tile_of(m, t), err);
}

static struct tiled matrix_weights_of(const struct stage *stage, struct tiled_matrix *matrix)
{
    return (struct tiled){ stage->plan->data.tiles, matrix, take_weight, give_weight };
}

static struct tiled gradients_of(const struct stage *stage, struct tiled_matrix *matrix)
{
    return (struct tiled){ stage->plan->data.tiles, matrix, take_gradient, give_gradient };
}

/* Give the scheme these tiles until matrix_end(), if matrices are tiled. */
static void matrix_begin(struct stage *stage, const struct tiled *tiles)
{
    stage->tp->tiles = uses_tiles(&stage->plan->data) ? tiles : NULL;
}

static enum error_code matrix_end(struct stage *stage, enum error_code e)
{
    stage->tp->tiles = NULL;
    return e;
}

/* ---- products ----------------------------------------------------------------------------------------------- */

/* X may have room for more rows: another matrix may need them. */
static void copied_forward(struct stage *stage, struct matrix matrix, int64_t N, struct tensor Y, struct tensor X)
{
    dev_linear_forward(stage->device, Y, tensor_own_rows(stage->tp, X, N), stage_weight(stage, matrix.weight),
                       stage_weight(stage, matrix.bias));
}

enum error_code matrix_forward(struct stage *stage, struct matrix matrix, int64_t N, struct tensor Y, struct tensor X,
                               struct error *err)
{
    struct tiled_matrix own = { stage, matrix.weight };
    const struct tiled tiles = matrix_weights_of(stage, &own);
    if (is_copied(matrix)) return copied_forward(stage, matrix, N, Y, X), OK;
    matrix_begin(stage, &tiles);
    return matrix_end(stage, stage->tp->scheme->linear_forward(stage->tp, matrix.role, N, Y, X,
                                                               stage_weight(stage, matrix.weight),
                                                               stage_weight(stage, matrix.bias), err));
}

enum error_code matrix_backward_input(struct stage *stage, struct matrix matrix, int64_t N, struct tensor dX,
                                      struct tensor dY, struct error *err)
{
    struct tiled_matrix own = { stage, matrix.weight };
    const struct tiled tiles = matrix_weights_of(stage, &own);
    if (is_copied(matrix))
        return dev_linear_backward_input(stage->device, dX, dY, stage_weight(stage, matrix.weight)), OK;
    matrix_begin(stage, &tiles);
    const struct tensor W = stage_weight(stage, matrix.weight);
    return matrix_end(stage, matrix.role == ROLE_QKV ? heads_backward_input(stage->tp, N, dX, dY, W, err)
                                     : stage->tp->scheme->linear_backward_input(stage->tp, matrix.role, N, dX, dY, W,
                                                                                err));
}

/* The gradients of the copies' rows are summed. */
static enum error_code copied_backward_weight(struct stage *stage, struct tensor dW, struct tensor db, struct tensor dY,
                                              struct tensor X, struct error *err)
{
    const struct tensor_cut cut = stage->tp->scheme->stream;
    struct shared g, b = { 0 };
    enum error_code e = shared_begin(stage->tp, cut, dW, tensor_rows(dW), &g, err);
    if (!e && tensor_present(db)) e = shared_begin(stage->tp, cut, db, tensor_count(db), &b, err);
    if (!e) dev_linear_backward_weight(stage->device, g.taken, b.taken, dY, X),
        e = shared_give(stage->tp, cut, &g, err);
    return e || !tensor_present(db) ? e : shared_give(stage->tp, cut, &b, err);
}

enum error_code matrix_backward_weight(struct stage *stage, struct matrix matrix, int64_t N, struct tensor dY,
                                       struct tensor X, struct error *err)
{
    const struct tensor dW = stage_gradient(stage, matrix.weight), db = stage_gradient(stage, matrix.bias);
    struct tiled_matrix own = { stage, matrix.weight };
    const struct tiled tiles = gradients_of(stage, &own);
    if (is_copied(matrix)) return copied_backward_weight(stage, dW, db, dY, tensor_own_rows(stage->tp, X, N), err);
    matrix_begin(stage, &tiles);
    return matrix_end(stage, matrix.role == ROLE_QKV ? heads_backward_weight(stage->tp, N, dW, db, dY, X, err)
                                     : stage->tp->scheme->linear_backward_weight(stage->tp, matrix.role, N, dW, db,
                                                                                 dY, X, err));
}

/* ---- the token embedding ------------------------------------------------------------------------------------ */

enum error_code tokens_forward(struct stage *stage, struct matrix matrix, struct tensor Y, struct tensor ids,
                               struct error *err)
{
    struct tiled_matrix own = { stage, matrix.weight };
    const struct tiled tiles = matrix_weights_of(stage, &own);
    matrix_begin(stage, &tiles);
    return matrix_end(stage, stage->tp->scheme->embedding_forward(stage->tp, Y, ids,
                                                                  stage_weight(stage, matrix.weight), err));
}

enum error_code tokens_backward_weight(struct stage *stage, struct matrix matrix, struct tensor dY, struct tensor ids,
                                       struct error *err)
{
    struct tiled_matrix own = { stage, matrix.weight };
    const struct tiled tiles = gradients_of(stage, &own);
    matrix_begin(stage, &tiles);
    return matrix_end(stage, stage->tp->scheme->embedding_backward_weight(stage->tp,
                                                                          stage_gradient(stage, matrix.weight),
                                                                          dY, ids, err));
}
