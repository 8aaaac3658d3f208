/* assign.h -- choosing a way to do every operation of a graph, so that the least travels: the "compiler".
 *
 * cli/show/sbp.c calls the searches for `orrery show sbp`, trial.c carries assignments out.  The searches are local and
 * send nothing.
 */
#ifndef ORRERY_SBP_ASSIGN_H
#define ORRERY_SBP_ASSIGN_H

#include "emulated_devices/schemes/sbp/boxing.h"
#include "emulated_devices/schemes/sbp/graph.h"

struct assignment {
    struct sbp_mesh mesh;                       /* over which the tensors are cut */
    struct signature tensor[SBP_MOST_TENSORS];  /* as it is kept */
    struct rule rule[SBP_MOST_OPS];             /* with which signatures each operation computes */
    int64_t elements;                           /* sent by all devices together */
    picoseconds time;                           /* on the mesh's cluster, of operations and journeys one after another;
                                                 * 0 without one */
    int64_t cost;                               /* what was minimised, without the price of what is kept */
    int64_t kept;                               /* of all tensors at once, by devices that have most of each */
    bool panels;                                /* carry products on two axes out by SUMMA (panels.h) */
    bool exact;                                 /* nothing costs less; else: nothing that was looked at */
};

/* The price of an element sent; an element kept can have a smaller one. */
enum { SBP_PRICE_OF_SENT = 1024 };

/**
 * The assignment that costs least, elements sent and kept by their prices, and respects all pins and likes.  On a mesh
 * with a cluster not what is sent counts, but picoseconds: of each operation on the device that has most of it, in
 * fp64, and of each step of a journey, all one after another.
 *
 * The signature of each tensor is a variable, and each operation a term of its operands and its result: the least over
 * its rules.  The least sum is found by elimination (min_sum.h).  Exact, unless a term would have more than `most`
 * costs: then only some signatures of each tensor are looked at.  Local and deterministic: every device finds the same.
 * @param price  of an element kept, >= 0; 0: only what is sent counts.
 * @param most   costs in a term, > 0.
 * @return OK; ERR_PLAN, naming the operation that has no legal way; ERR_MEMORY.
 */
enum error_code sbp_assign(const struct sbp_graph *, const struct sbp_mesh *, int64_t price, int64_t most,
                           struct assignment *, struct error *);

/** How long an operation takes on the mesh's cluster when it is done by a rule, in fp64: on the device with the largest
 *  parts, which is charged as a run would be.  @return that; -1 without memory. */
picoseconds sbp_op_time(const struct sbp_graph *, const struct sbp_op *, const struct sbp_mesh *, const struct rule *);

/**
 * The fewest elements sent, or the least time, with at most `kept` kept: the price of keeping is raised until they are.
 * The answers to rising prices are the corners of the convex hull of what can be sent and kept; an assignment between
 * two corners is missed.
 * @return as sbp_assign; ERR_PLAN if nothing keeps so few.
 */
enum error_code sbp_assign_within(const struct sbp_graph *, const struct sbp_mesh *, int64_t kept, int64_t most,
                                  struct assignment *, struct error *);

/** Elements that one device sends in all the journeys of an assignment. */
int64_t assignment_sent(const struct sbp_graph *, const struct assignment *, int device);

/** Call for each journey of an assignment: of an operand, or of a result to how it is kept. */
void assignment_each(const struct sbp_graph *, const struct assignment *,
                     void (*f)(void *context, int op, int operand, int tensor, const struct boxing *), void *context);

/**
 * Carry the graph out.
 * Collective over the placement, whose mesh is the assignment's.
 * @param[in,out] piece  [tensors] this device's parts: given for inputs; made for all tensors named in `keep`; others
 *     are freed.
 * @param keep           [tensors] whether it is wanted afterwards; inputs always stay.
 * @return OK, or the same error on every device; pieces made so far are then the caller's to free.
 */
enum error_code assignment_run(struct placement *, const struct sbp_graph *, const struct assignment *,
                               struct tensor piece[], const bool keep[], struct error *);

#endif
