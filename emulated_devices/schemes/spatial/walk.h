/* walk.h -- a block of numbers on its way through exchanges, each of which changes what of it is here.
 *
 * The same steps run the exchanges, or add what they would send: so a cost cannot forget a step.
 *
 * The files of schemes/spatial/ use this header; nothing else does.
 */
#ifndef ORRERY_SPATIAL_WALK_H
#define ORRERY_SPATIAL_WALK_H

#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/spatial/spatial.h"

enum { WALK_DIMS = 4 };

struct walk {
    struct tiling *tiling;              /* whose tiles the blocks are */
    struct account *cost;               /* not NULL: nothing is computed or sent */
    struct error *err;                  /* the caller's */
    enum error_code e;                  /* after an error, steps do nothing */
    int64_t size[WALK_DIMS];            /* of the block that is here, slowest first */
    struct tensor at;                   /* its numbers */
    struct tensor old;                  /* while an operation computes: the block that it reads */
    bool owned, owned_old;              /* the numbers are the walk's, which frees them */
};

/** Begin at a block of the caller's. */
struct walk walk_from(struct tiling *, struct account *cost, const int64_t size[WALK_DIMS], struct tensor,
                      struct error *);

/** All-to-all along an axis: dimension `split`, whole, becomes this device's part; `join`, of which this device has its
 *  part of `whole`, becomes whole. */
void walk_turn(struct walk *, enum tile_axis, int split, int join, int64_t whole);

/** Sum over an axis; each device gets its part of a dimension. */
void walk_reduce_scatter(struct walk *, enum tile_axis, int dimension);

/** The parts of a dimension, of `whole`, from all devices of an axis. */
void walk_allgather(struct walk *, enum tile_axis, int dimension, int64_t whole);

/** This device's part of `whole`, and as many more elements on both sides, as far as there are any. */
struct interval halo_of(int64_t whole, int parts, int part, int64_t reach);

/** Add to this device's part of a dimension its halo, from its owners. */
void walk_halo(struct walk *, enum tile_axis, int dimension, int64_t whole, int64_t reach);

/** The transpose: send the halo home, and add what comes home to the part. */
void walk_halo_home(struct walk *, enum tile_axis, int dimension, int64_t whole, int64_t reach);

/** Move on to a new block that an operation makes of the old one.
 *  @return host views of both, to compute; then call walk_computed.  .to NULL: there is nothing to compute; from an
 *  empty block come zeros, because every operation is linear. */
struct walk_views { const double *from; double *to; struct views views; };
struct walk_views walk_compute(struct walk *, const int64_t size[WALK_DIMS]);
void walk_computed(struct walk *, struct walk_views *);

/** Charge the device for an operation of this walk, unless it is a cost walk: what it computes, and 8 bytes for each
 *  number of the blocks that it reads and writes.  @param what  lives as long as a trace. */
void walk_charge(struct walk *, const char *what, double flops, int64_t numbers);

/** Copy the block to where the caller wants it, and end the walk. */
enum error_code walk_to(struct walk *, struct tensor);

/* ---- for the steps ----------------------------------------------------------------------------------------------- */

int64_t walk_count(const int64_t size[WALK_DIMS]);

/** Scratch of the device; .data NULL: the walk has an error. */
struct tensor walk_room(struct walk *, int64_t count);

/** Go on with other numbers of this size. */
void walk_on(struct walk *, const int64_t size[WALK_DIMS], struct tensor);

/** Copy some elements of one dimension of a block, all of the others, to a block that has only these, or back. */
void walk_pack(struct walk *, const int64_t size[WALK_DIMS], struct tensor block, int dimension, struct interval,
               char *packed, bool back);

#endif
