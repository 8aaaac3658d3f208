#include "emulated_devices/model/run/matrix.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/tiles.h"

/* A router, a gate, or what weighs streams needs whole rows, so every device along tp has a copy and computes the whole
 * product of its rows. */
static bool is_copied(struct matrix m) { return role_is_whole(m.role); }

/* ---- tiles -------------------------------------------------------------------------------------------------- */

/* The context of the four calls with which the tensor scheme takes and returns tiles. */
struct tiled_matrix { struct stage *stage; int weight; };

static const struct parameter *tile_of(const struct tiled_matrix *m, int t)
{
    return parameter_find(m->stage->parameters, m->weight) + t;
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

static struct tiled weights_of(const struct stage *s, struct tiled_matrix *m)
{
    return (struct tiled){ s->plan->data.tiles, m, take_weight, give_weight };
}

static struct tiled gradients_of(const struct stage *s, struct tiled_matrix *m)
{
    return (struct tiled){ s->plan->data.tiles, m, take_gradient, give_gradient };
}

/* Give the scheme these tiles until end(), if matrices are tiled. */
static void begin(struct stage *s, const struct tiled *tiles)
{
    s->tp->tiles = uses_tiles(&s->plan->data) ? tiles : NULL;
}

static enum error_code end(struct stage *s, enum error_code e)
{
    s->tp->tiles = NULL;
    return e;
}

/* ---- products ----------------------------------------------------------------------------------------------- */

/* X may have room for more rows: another matrix may need them. */
static void copied_forward(struct stage *s, struct matrix m, int64_t N, struct tensor Y, struct tensor X)
{
    dev_linear_forward(s->device, Y, tensor_own_rows(s->tp, X, N), stage_weight(s, m.weight), stage_weight(s, m.bias));
}

enum error_code matrix_forward(struct stage *s, struct matrix m, int64_t N, struct tensor Y, struct tensor X,
                               struct error *err)
{
    struct tiled_matrix own = { s, m.weight };
    const struct tiled tiles = weights_of(s, &own);
    if (is_copied(m)) return copied_forward(s, m, N, Y, X), OK;
    begin(s, &tiles);
    return end(s, s->tp->scheme->linear_forward(s->tp, m.role, N, Y, X, stage_weight(s, m.weight),
                                                stage_weight(s, m.bias), err));
}

enum error_code matrix_backward_input(struct stage *s, struct matrix m, int64_t N, struct tensor dX, struct tensor dY,
                                      struct error *err)
{
    struct tiled_matrix own = { s, m.weight };
    const struct tiled tiles = weights_of(s, &own);
    if (is_copied(m)) return dev_linear_backward_input(s->device, dX, dY, stage_weight(s, m.weight)), OK;
    begin(s, &tiles);
    return end(s, s->tp->scheme->linear_backward_input(s->tp, m.role, N, dX, dY, stage_weight(s, m.weight), err));
}

/* The gradients of the copies' rows are summed. */
static enum error_code copied_backward_weight(struct stage *s, struct tensor dW, struct tensor db, struct tensor dY,
                                              struct tensor X, struct error *err)
{
    const struct tensor_cut cut = s->tp->scheme->stream;
    struct shared g, b = { 0 };
    enum error_code e = shared_begin(s->tp, cut, dW, tensor_rows(dW), &g, err);
    if (!e && tensor_present(db)) e = shared_begin(s->tp, cut, db, tensor_count(db), &b, err);
    if (!e) dev_linear_backward_weight(s->device, g.taken, b.taken, dY, X), e = shared_give(s->tp, cut, &g, err);
    return e || !tensor_present(db) ? e : shared_give(s->tp, cut, &b, err);
}

enum error_code matrix_backward_weight(struct stage *s, struct matrix m, int64_t N, struct tensor dY, struct tensor X,
                                       struct error *err)
{
    const struct tensor dW = stage_gradient(s, m.weight), db = stage_gradient(s, m.bias);
    struct tiled_matrix own = { s, m.weight };
    const struct tiled tiles = gradients_of(s, &own);
    if (is_copied(m)) return copied_backward_weight(s, dW, db, dY, tensor_own_rows(s->tp, X, N), err);
    begin(s, &tiles);
    return end(s, m.role == ROLE_QKV ? heads_backward_weight(s->tp, N, dW, db, dY, X, err)
                                     : s->tp->scheme->linear_backward_weight(s->tp, m.role, N, dW, db, dY, X, err));
}

/* ---- the token embedding ------------------------------------------------------------------------------------ */

enum error_code tokens_forward(struct stage *s, struct matrix m, struct tensor Y, struct tensor ids, struct error *err)
{
    struct tiled_matrix own = { s, m.weight };
    const struct tiled tiles = weights_of(s, &own);
    begin(s, &tiles);
    return end(s, s->tp->scheme->embedding_forward(s->tp, Y, ids, stage_weight(s, m.weight), err));
}

enum error_code tokens_backward_weight(struct stage *s, struct matrix m, struct tensor dY, struct tensor ids,
                                       struct error *err)
{
    struct tiled_matrix own = { s, m.weight };
    const struct tiled tiles = gradients_of(s, &own);
    begin(s, &tiles);
    return end(s, s->tp->scheme->embedding_backward_weight(s->tp, stage_gradient(s, m.weight), dY, ids, err));
}
