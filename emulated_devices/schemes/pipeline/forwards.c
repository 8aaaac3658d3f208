/* forwards.c -- the forward passes of a schedule, in its order, for training without gradients.
 *
 * A forward pass depends only on forward passes, and a message only on the pass whose result it sends.  So if the whole
 * schedule can be executed, its forward passes can.  Microbatches follow each other without waiting for backward
 * passes: M of them take (M + P - 1) F, with a bubble of (P - 1) F.
 *
 * model/trainer_open.c calls schedule_keep_forwards for a plan that trains by forward passes only.  The call changes
 * the schedule in place and cannot fail.
 */
#include "emulated_devices/schemes/pipeline/schedule.h"

void schedule_keep_forwards(struct schedule *schedule)
{
    for (int d = 0; d < schedule->devices; d++) {
        int kept = 0;
        for (int i = 0; i < schedule->count[d]; i++) {
            const enum action_kind k = schedule->actions[d][i].kind;
            if (k == FORWARD || k == SEND_ACTIVATION || k == RECEIVE_ACTIVATION)
                schedule->actions[d][kept] = schedule->actions[d][i], schedule->actions[d][kept++].beside = false;
        }
        schedule->count[d] = kept;
    }
    schedule->pairs = false;
}
