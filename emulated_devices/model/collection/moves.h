/* moves.h -- the fewest bytes that bring a job's state from the devices of one plan to those of another.
 *
 * Rule   What a rank wants and has already, stays.  Each element that it lacks comes once, from one of the ranks that
 *        have it: the nearest by the cluster's links, of these the one that has sent least so far, of these the one
 *        with the nearest rank.  The rule looks at no numbers, so every device computes the same list by itself.
 * Least  A device can get no element but by a message, so no way moves fewer bytes than all ranks lack together:
 *        the sum over ranks of |wants minus has| (Tenplex, section on minimum data movement).  moves->bytes is that
 *        number, and tests/devices/test_moves.c counts it element by element.
 *
 * transfer.c moves what is in devices' memory, model/checkpoint/sharded/reshard.c what is in files.  Local and pure.
 */
#ifndef ORRERY_MOVES_H
#define ORRERY_MOVES_H

#include "emulated_devices/model/collection/collection.h"

/* A box of a tensor that goes from one rank to another. */
struct move { int tensor, from, to; struct box box; };

/* A rank sends, gets and keeps in place so many bytes. */
struct moved { uint64_t sent, received, stays; };

struct moves {
    const struct cluster *cluster;      /* whose links say what is near; NULL: all ranks are equally far */
    int ranks;                          /* of both plans: the larger number */
    int count, room;                    /* entries of `at`; its memory */
    struct move *at;                    /* [count] tensor by tensor, then by target, in the order of planning */
    struct moved *of;                   /* [ranks] */
    uint64_t bytes, stays;              /* of all ranks together */
};

/** Begin an empty list.  @return OK or ERR_MEMORY; moves_close works after both. */
enum error_code moves_open(struct moves *, int ranks, const struct cluster *, struct error *);
void moves_close(struct moves *);

/**
 * Plan the moves of one tensor.
 * @param name        of the tensor, for the error.
 * @param size        bytes of an element.
 * @param has, wants  [ranks] the boxes of every rank, before and afterwards.
 * @return OK; ERR_MEMORY; ERR_PLAN: no rank has something that a rank wants.
 */
enum error_code moves_add(struct moves *, int tensor, const char *name, int ndim, size_t size,
                          const struct boxes *has, const struct boxes *wants, struct error *);

/** Plan the moves of all tensors between two plans of the same job.  Tensors are numbered as in `to`.
 *  @return as moves_add; ERR_PLAN also naming a tensor that only one of them has, or that has another shape. */
enum error_code moves_between(struct moves *, const struct collection *from, const struct collection *to,
                              struct error *);

/** Bytes of all boxes that go from one rank to another. */
uint64_t moves_of_pair(const struct moves *, const struct collection *to, int from, int target);

#endif
