/* local.c -- products with the device's own piece of a matrix: whole, or one tile of its outputs after the other
 * (schemes/data/tiles.h).
 *
 * A tile is a range of rows of the piece and computes its own columns of Y.  dX is a sum over tiles, in their order,
 * rounded once.
 *
 * tensor_1d.c, tensor_1d_sp.c and tensor_sbp.c multiply through this file; the scheme does the messages before and
 * after.  The calls are local.  The only errors are ERR_MEMORY, and those of a tile's take and give.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"

/* The tensors of one call. */
struct product { struct tensor_parallel *tp; struct tensor Y, X, b; };
typedef void multiply(const struct product *, struct tensor tile, int64_t first);

/* each_tile runs f on every tile in order.  `first` is the tile's first row within this device's piece. */
static enum error_code each_tile(const struct product *product, multiply *f, struct error *err)
{
    const struct tiled *tiles = product->tp->tiles;
    int64_t first = 0;
    enum error_code e = OK;
    for (int t = 0; t < tiles->count && !e; t++) {
        struct tensor tile;
        /* A tile, or memory for its gradient, exists only between take and give. */
        e = tiles->take(tiles->context, t, &tile, err);
        if (e) break;
        f(product, tile, first);
        first += tensor_rows(tile);
        e = tiles->give(tiles->context, t, err);
    }
    return e;
}

static void forward_tile(const struct product *product, struct tensor W, int64_t first)
{
    struct tensor part = product->b;
    if (tensor_present(part))
        part = tensor_1d((char *)part.data + (size_t)first * dtype_size(part.dtype), part.dtype, tensor_rows(W));
    /* Y[:, first .. first + rows of the tile) = X tile^T + its part of the bias. */
    dev_linear_forward_columns(product->tp->device, product->Y, first, product->X, W, part);
}

enum error_code local_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor X, struct tensor W,
                              struct tensor b,
                              struct error *err)
{
    if (tp->tiles) return each_tile(&(struct product){ tp, Y, X, b }, forward_tile, err);
    /* Y [N, O] = X [N, I] W^T [I, O] + b. */
    dev_linear_forward(tp->device, Y, X, W, b);
    return OK;
}

static void input_tile(const struct product *product, struct tensor W, int64_t first)
{
    /* dX += dY[:, the tile's columns] tile; the first tile overwrites dX. */
    dev_linear_backward_input_columns(product->tp->device, product->X, product->Y, first, W, first > 0);
}

/* With 16-bit numbers the sum over tiles is rounded once, like the product with the whole matrix. */
static enum error_code input_tiles(struct tensor_parallel *tp, struct tensor dX, struct tensor dY, struct error *err)
{
    const bool narrow = dtype_is_narrow(dX.dtype);
    const struct tensor sum = narrow ? device_statistics(tp->device, BUFFERS, tensor_rows(dX), tensor_cols(dX)) : dX;
    if (sum.data == NULL) return fail(err, ERR_MEMORY, "no memory for the sum of %d tiles", tp->tiles->count);
    const enum error_code e = each_tile(&(struct product){ tp, dY, sum, tensor_none }, input_tile, err);
    if (!narrow) return e;
    if (!e) dev_round(tp->device, dX, sum);
    device_free(tp->device, sum);
    return e;
}

enum error_code local_backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY, struct tensor W,
                                     struct error *err)
{
    if (tp->tiles) return input_tiles(tp, dX, dY, err);
    /* dX [N, I] = dY [N, O] W [O, I]. */
    dev_linear_backward_input(tp->device, dX, dY, W);
    return OK;
}

static void weight_tile(const struct product *product, struct tensor dW, int64_t first)
{
    /* d tile += dY[:, the tile's columns]^T X. */
    dev_linear_backward_weight_columns(product->tp->device, dW, product->Y, first, product->X);
}

enum error_code local_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor db, struct tensor dY,
                                      struct tensor X,
                                      struct error *err)
{
    if (tp->tiles) {
        const enum error_code e = each_tile(&(struct product){ tp, dY, X, tensor_none }, weight_tile, err);
        /* The bias is not cut into tiles, so its gradient needs a pass of its own over dY. */
        if (!e && tensor_present(db)) dev_column_sums(tp->device, db, dY);
        return e;
    }
    /* dW [O, I] += dY^T [O, N] X [N, I]; db [O] += column sums of dY. */
    dev_linear_backward_weight(tp->device, dW, db, dY, X);
    return OK;
}

/* ---- the token embedding: X are ids ------------------------------------------------------------------------- */

static void look_up_tile(const struct product *product, struct tensor W, int64_t first)
{
    /* Ids outside the tile give zeros, so that tiles add up. */
    dev_embedding_forward(product->tp->device, product->Y, product->X, W, product->tp->first_entry + first, first > 0);
}

enum error_code local_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                        struct tensor W, struct error *err)
{
    if (tp->tiles) return each_tile(&(struct product){ tp, Y, ids, tensor_none }, look_up_tile, err);
    dev_embedding_forward(tp->device, Y, ids, W, tp->first_entry, false);
    return OK;
}

/* Rows of dW get the rows of dY whose ids lie in this tile. */
static void embedding_weight_tile(const struct product *product, struct tensor dW, int64_t first)
{
    dev_embedding_backward_weight(product->tp->device, dW, product->Y, product->X, product->tp->first_entry + first);
}

enum error_code local_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor dY,
                                                struct tensor ids,
                                                struct error *err)
{
    if (tp->tiles) return each_tile(&(struct product){ tp, dY, ids, tensor_none }, embedding_weight_tile, err);
    dev_embedding_backward_weight(tp->device, dW, dY, ids, tp->first_entry);
    return OK;
}
