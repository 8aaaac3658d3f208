/* tiles.h -- memory-centric tiling: a matrix is gathered, used, reduced and stepped as T ranges of its outputs, one by
 * one.
 *
 * Source   S. Rajbhandari et al., "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning",
 *          arXiv:2104.07857, section 5.1.3
 * Tiles    of every matrix except the table of positions: QKV of attention, its output, up (with a Llama's gate) and
 *          down of the feed-forward, the token embedding and the output matrix.  Tile t of T has rows
 *          block_start(O, T, t) .. of W [O,I], which are adjacent in memory.  A tile is a unit, padded and cut over dp
 *          like any other.  The other parameters of a part of the model (norms, biases, positions) are a unit, too,
 *          which stays while the part is used.  With tp, a device's own piece of a matrix is tiled: T tiles of its
 *          outputs (schemes/tensor/local.c).
 * Order    Y[:, tile] = X W_t^T + b_t: each tile computes its own columns; there is no sum over tiles
 *          dX = sum of dY[:, tile] W_t in order of t; with 16-bit numbers the sum is fp32, rounded once
 *          dW_t += dY[:, tile]^T X;  db from all of dY at once, in the unit of the part's other parameters
 * Memory   whole weights at once: two tiles, and the untiled parameters of one part of the model, or of two when one
 *          follows the other; whole gradients: one tile and the untiled parameters of its part
 * Sends    as without tiles, but parts are always gathered again: once each for forward and backward of the loss, and
 *          once each for recomputation and backward of a block
 * Equals   no tiles: permutes, except dX, which reassociates.  If a BLAS uses another order of additions for narrower
 *          matrices, forward and dW also reassociate; on numbers whose sums are exact they do not.
 * Called   Files of model/, plan/, schemes/ and verify/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_TILES_H
#define ORRERY_TILES_H

#include "emulated_devices/schemes/data/data.h"

/* Whether parts are used tile by tile. */
static inline bool uses_tiles(const struct data_request *request) { return request->tiles > 1; }

/** The number of tiles of a parameter: T, or 1 if it is not tiled. */
int tiles_of(const struct data_request *, const struct param_spec *);

/** Tile t of a device's boxes of a matrix. */
struct layout tile_layout(const struct layout *, int tiles, int t);

#endif
