/* outlined.h -- the collection of a plan that nobody runs: for a mesh that is to come, or one that has ended.
 *
 * The device computes nothing and sends nothing.  run/elastic/, model/checkpoint/sharded/reshard.c and tests call these
 * functions.
 */
#ifndef ORRERY_OUTLINED_H
#define ORRERY_OUTLINED_H

#include "emulated_devices/model/collection/collection.h"

struct outlined {
    struct device device;               /* of no numbers */
    struct comm comm;                   /* of the plan's first device; not connected */
    struct trainer trainer;             /* its outline */
    struct collection collection;       /* of the outline: a function of the plan */
};

/** Make the outline of a plan that has passed plan_check, and list its tensors.  Local.
 *  @param outlined  stays where it is until outlined_close.
 *  @param replicas  as collection_open takes them; -1: as many as the plan has.
 *  @return OK, ERR_PLAN or ERR_MEMORY, with nothing to close. */
enum error_code outlined_open(struct outlined *outlined, const struct plan *, enum collection_use, int replicas,
                              struct error *);
void outlined_close(struct outlined *);

#endif
