/* reference_outer.h -- the outer steps of a reference's replicas.  Private to this folder.
 *
 * Caller: reference.c.  Only outer_open can fail, with ERR_MEMORY.
 */
#ifndef ORRERY_REFERENCE_OUTER_H
#define ORRERY_REFERENCE_OUTER_H

#include "emulated_devices/verify/reference/reference.h"

/* Anchor and momentum of truth and twin, kept with the first replica;
 * nothing where gradients are reduced in every step. */
enum error_code outer_open(struct reference *, struct error *);
void outer_close(struct reference *);

/* Put them where the devices' are.  Collective; elsewhere than on rank 0 the reference is NULL. */
void outer_follow(struct reference *, struct trainer *);

/* After all replicas have taken a step: the outer one, if it is the end of a round. */
void outer_update(struct reference *);

#endif
