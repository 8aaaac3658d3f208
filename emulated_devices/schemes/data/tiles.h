/* tiles.h -- memory-centric tiling: a matrix is gathered, used, reduced and stepped as T ranges of its outputs, one
 * after the other.
 *
 * Source   S. Rajbhandari et al., "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning",
 *          arXiv:2104.07857, section 5.1.3
 * Tiles    of every matrix, but the table of positions: QKV of attention, its output, up (with a Llama's gate) and down
 *          of the feed-forward, and the token embedding and output matrix.  Tile t of T has rows block_start(O, T, t)
 *          .. of W [O,I], which are neighbours in memory.  A tile is a unit by itself, padded and cut over dp like any
 *          other; what else belongs to a part of the model (norms, biases, positions) is a unit too, and stays as long
 *          as the part is used.  With tp a device's own piece of a matrix is what is tiled: T tiles of its outputs
 *          (schemes/tensor/local.c).
 * Order    Y[:, tile] = X W_t^T + b_t, each tile's columns where they belong: nothing is added up over tiles
 *          dX = sum of dY[:, tile] W_t in order of t, each added to the sum of those before it; in 16 bits that sum is
 *          fp32, rounded once dW_t += dY[:, tile]^T X;  db from all of dY at once, in the unit of what else belongs to
 *          the part
 * Memory   of weights whole at once: two tiles, and of one part of the model, or two where one follows the other, what
 *          is not tiled; of gradients one tile and what is not tiled of its part
 * Sends     as without tiles, but a part is always gathered a second time: forward and backward of the loss, and what
 *          recomputing and backward of a block use both, are gathered for each
 * Equals   without tiles: permutes but for dX, which reassociates.  A BLAS whose kernels add an element in another
 *          order where a matrix is narrower makes forward and dW reassociate as well; on numbers whose sums are exact
 *          they never do.
 */
#ifndef ORRERY_TILES_H
#define ORRERY_TILES_H

#include "emulated_devices/schemes/data/data.h"

/* Whether parts are used tile by tile. */
static inline bool uses_tiles(const struct data_request *q) { return q->tiles > 1; }

/** How many pieces a parameter has: T, or 1 where it is not tiled. */
int tiles_of(const struct data_request *, const struct param_spec *);

/** Tile t of a device's boxes of a matrix. */
struct layout tile_layout(const struct layout *, int tiles, int t);

#endif
