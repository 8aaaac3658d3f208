/* assign.h -- choosing a way to do every operation of a graph, so that the least travels: the "compiler". */
#ifndef ORRERY_SBP_ASSIGN_H
#define ORRERY_SBP_ASSIGN_H

#include "emulated_devices/schemes/sbp/boxing.h"
#include "emulated_devices/schemes/sbp/graph.h"

struct assignment {
    struct sbp_mesh mesh;
    struct signature tensor[SBP_MOST_TENSORS];  /* as it is kept */
    struct rule rule[SBP_MOST_OPS];
    int64_t elements;                           /* sent by all devices together */
    bool exact;                                 /* nothing sends less; else: nothing that was looked at */
};

/**
 * The assignment with the least elements sent, that respects all pins and likes.
 *
 * Operation by operation, all signatures that the tensors still needed can have are carried along, each with the least
 * it takes to get there: dynamic programming over the frontier.  Of two frontiers one goes if the other could turn into
 * it at every later read and still have sent no more.  Exact, unless more than `most` remain: then the dearest are
 * dropped.  Local and deterministic: every device finds the same.
 * @param most  states kept, > 0.
 * @return OK; ERR_PLAN, naming the operation that has no legal way; ERR_MEMORY.
 */
enum error_code sbp_assign(const struct sbp_graph *, const struct sbp_mesh *, int most, struct assignment *,
                           struct error *);

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
