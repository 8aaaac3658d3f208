/* role.h -- the devices of one task: which of the job's, and with which plan.
 *
 * Tasks run on the same devices, one after another, or on devices of their own.  A role has a comm of its devices
 * alone (comm_part), so a collective call of one task leaves the others out.  All devices open roles in the same order.
 * Files of rl/ call these functions.
 */
#ifndef ORRERY_RL_ROLE_H
#define ORRERY_RL_ROLE_H

#include "emulated_devices/model/trainer.h"

struct role {
    const char *name;                   /* "rollout" */
    struct plan plan;                   /* checked */
    int first;                          /* device of the job that is the plan's first */
    bool here;                          /* this device is one of them */
    int *process, *place;               /* [devices of the plan] devices of the job; [devices of the job] the rank in
                                         * the plan, -1: none */
    struct comm comm;                   /* of these devices; open where `here` */
    struct trainer trainer;             /* likewise */
};

/** Make a plan for forward passes from one that trains: the model, its number format and seed, on another mesh.
 *  @param size  of the mesh's axes.  @return OK, or ERR_PLAN with the role's name. */
enum error_code role_infers(struct plan *plan, const struct plan *trains, const int size[AXIS_COUNT], int64_t B,
                            const char *name, struct error *);

/** Open a role's trainer.  Collective over all devices of the job.
 *  @param role  name, plan and first are set.  @param whole  of the job.  @param source  of its batches.
 *  @return OK or the same error on all devices; role_close works after both. */
enum error_code role_open(struct role *role, struct comm *whole, struct batch_source source, struct error *);
void role_close(struct role *, struct comm *whole);

/* ---- weights.c --------------------------------------------------------------------------------------------------- */

/* The weights that have moved in a run. */
struct weight_moves { int64_t times; uint64_t moved, stayed; int messages; };

/** Bring the weights of one role to the devices of another, with the fewest bytes there can be (collection/moves.h).
 *  Collective over all devices of the job.
 *  @return OK, or the same error on all devices: ERR_MEMORY, ERR_COMM, ERR_PLAN, or ERR_CHECK of other bytes than
 *          foreseen. */
enum error_code weights_move(struct comm *whole, struct role *from, struct role *to, struct weight_moves *,
                             struct error *);

#endif
