/* boxing.h -- from one signature to another: the fewest elements that must travel, and the journey.
 *
 * A journey is a row of steps.  With p devices on an axis and a tensor of M elements, all devices together send
 *
 *   S(i) -> S(i)   0                     S(i) -> S(j)   M (p-1)/p     all-to-all
 *   S(i) -> B      M (p-1)               S(i) -> P      0             the others' parts are zeros
 *   B    -> S(i)   0                     B    -> P      0             the first keeps it, the others have zeros
 *   P    -> S(i)   M (p-1)               P    -> B      2 M (p-1)     reduce-scatter; all-reduce
 *
 * and with parts that differ in size what differs is counted: a step moves to each device just those elements of its
 * new part that were not in its old one.  On two axes a step between S and B changes both at once, and is exact
 * likewise: (B, S(0)) -> (S(0), S(0)) moves M (1 - 1/m) with m places on axis 0, since most parts of parts are other
 * ones.  Partial sums are made whole along one axis at a time.  Of several journeys the shortest is taken (Dijkstra
 * over the signatures), of equals that with fewer steps.  On a mesh with a cluster the shortest is that of the least
 * time: of each step what its collective takes there, latencies and the slowest device's bytes (auto.c).
 *
 * Source  the table: OneFlow, arXiv:2110.15032, table 2
 * Equals  between S and B permutes; through P reassociates, in the order of a ring
 *
 * assign.c asks for costs and journeys, assign_run.c takes the journeys, and cli/show/sbp.c prints them.
 */
#ifndef ORRERY_SBP_BOXING_H
#define ORRERY_SBP_BOXING_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/schemes/sbp/signature.h"

enum boxing_kind { REDISTRIBUTE, SUM_AND_SPLIT, SUM_ALL, MAKE_PARTIAL };
struct boxing_step {
    enum boxing_kind kind;              /* elements move, partial sums are added up, or a whole becomes one */
    int axis;                           /* of all but REDISTRIBUTE */
    struct signature from, to;          /* of the tensor before and after */
};

enum { BOXING_MOST_STEPS = 6 };
struct boxing {
    int steps;                          /* 0: the signatures are equal */
    struct boxing_step step[BOXING_MOST_STEPS]; /* one after another */
    int64_t elements;                   /* sent by all devices together */
    picoseconds time;                   /* of the steps one after another, on the mesh's cluster; 0 without one */
};

/** The shortest journey.  Local.  Both signatures fit the shape: then there is one. */
struct boxing boxing_plan(const struct shape *, const struct sbp_mesh *, struct signature from, struct signature to);

/** The lengths of the shortest journeys between all signatures that fit, in the order of signature_all: elements, or
 *  picoseconds on a mesh with a cluster.  Local.
 *  @param[out] cost  [n,n] from, to. */
void boxing_costs(const struct shape *, const struct sbp_mesh *, int64_t cost[]);

/** Elements that one device sends in one step. */
int64_t boxing_sent(const struct shape *, const struct sbp_mesh *, const struct boxing_step *, int device);

/** The time of one step on the mesh's cluster if all devices begin at once, with elements of 8 bytes. */
picoseconds boxing_time(const struct shape *, const struct sbp_mesh *, const struct boxing_step *);

/** The part of the tensor, perhaps empty, that one device gives another, or keeps, in a REDISTRIBUTE. */
struct box boxing_parcel(const struct shape *, const struct sbp_mesh *, const struct boxing_step *, int sender,
                         int receiver);

/* The mesh with its devices. */
struct placement {
    struct sbp_mesh mesh;               /* sizes of its axes */
    struct group all, along[SBP_AXES];  /* along[k]: those that differ in axis k only */
};

/** The first devices of the job, as a mesh.  Local; devices beyond the mesh must not call.  @return as group_of. */
enum error_code placement_open(struct placement *, struct comm *, const struct sbp_mesh *, struct error *);
void placement_close(struct placement *);

/**
 * Take a journey.
 * Collective over the placement.
 * @param[in,out] piece  this device's part under the first signature, of the device's arena (BUFFERS); becomes that
 *                       under the last signature; the old part is freed if there is a new one.
 * @return OK, or the same error on every device; the piece is then what it was after the steps done.
 */
enum error_code boxing_run(struct placement *, const struct shape *, const struct boxing *, struct tensor *piece,
                           struct error *);

/** A part's memory: its elements in a row.  .data is NULL if the machine has no more. */
struct tensor piece_make(struct device *, const struct shape *, const struct sbp_mesh *, struct signature, int device);

#endif
