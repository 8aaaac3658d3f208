/* pooled.h -- how often the rows of all devices of an ep group choose each expert, where a load says so.
 *
 * A device without numbers that gets the rows of all others would list their choices in each layer, only to count them.
 * Of an even load the counts follow from the places of the rows (ref/model/load.h), and are the same in all layers.
 * run_mixture.c asks before each announcement, train/dry_run/alike.c for one device; model/mixture.c opens. */
#ifndef ORRERY_POOLED_H
#define ORRERY_POOLED_H

#include "emulated_devices/model/run/run_node.h"

struct expert_parallel;

/* The counts of the last microbatch that was asked for. */
struct pooled_choices { int micro; bool known; int32_t count[]; };

/** @param columns  of the router.  @return for free(); NULL: no memory, or nothing is known then. */
struct pooled_choices *pooled_open(int columns);

/** Add the choices that a load gives to the rows that a device of a plan sends to experts.  Pure.
 *  @param[in,out] count  [columns].  @return whether they are known without dealing them; else `count` is undefined. */
bool pooled_add(const struct plan *, int rank, int micro, int32_t *count);

/** The choices of each expert in the microbatch of a call, of the rows that the members of its ep group send.  Local.
 *  @return [columns], valid until another microbatch is asked for; NULL: each device has to list its own. */
const int32_t *pooled_choices(const struct node_call *, const struct expert_parallel *);

#endif
