/* panels.h -- products on two axes by SUMMA: both factors are gathered along the dimension that is summed over, one
 * along each axis; a panel of it comes after the other, and its product is added.
 *
 * The same elements travel as when all panels come in one step, each to the other devices along its axis by a
 * broadcast; a device holds a panel of each factor instead of its whole rows.  Panels lie between the cuts of either
 * factor: on q x q devices there are q, and 2 q^2 (q-1) messages; on p x q, if p and q have no common divisor and parts
 * are even, p + q - 1, and (p + q - 1) (2 p q - p - q) messages.
 *
 * Source  R. van de Geijn, J. Watts, "SUMMA: scalable universal matrix multiplication algorithm",
 *         doi:10.1002/(SICI)1096-9128(199704)9:4<255::AID-CPE250>3.0.CO;2-2
 * Equals  reassociates: the sum over the dimension is made panel by panel
 *
 * assign_run.c carries products out by panels if `orrery show sbp --run --panels` asks for them.
 */
#ifndef ORRERY_SBP_PANELS_H
#define ORRERY_SBP_PANELS_H

#include "emulated_devices/device/interval.h"
#include "emulated_devices/schemes/sbp/assign.h"

enum { PANELS_MOST = 2 * MESH_MOST_LISTED };
struct panels {
    int count;                          /* 0: the operation has none */
    int dim[2], along[2];               /* of the two factors: which is summed over, and the axis that it is cut over */
    struct interval at[PANELS_MOST];    /* [count] ranges of the dimension that is summed over */
};

/** The panels of an operation of an assignment.  Pure. */
struct panels panels_of(const struct sbp_graph *, const struct assignment *, int op);

/** The messages of all devices together for the panels of an operation; 0: it has none. */
int64_t panels_messages(const struct sbp_graph *, const struct assignment *, int op);

/**
 * A product, panel by panel.
 * Collective over the placement, whose mesh is the assignment's.
 * @param piece  [2] this device's parts of the factors, as they are kept.
 * @param out    its part of the product, with the shape of its box.
 * @return OK, or the same error on every device.
 */
enum error_code panels_run(struct placement *, const struct sbp_graph *, const struct assignment *, int op,
                           const struct tensor piece[], struct tensor out, struct error *);

#endif
