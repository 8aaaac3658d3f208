/* forwards.c -- the forward passes of a schedule, in its order, for training without gradients.
 *
 * A forward pass depends only on forward passes, and a message only on the pass whose result it sends.  So if the whole
 * schedule can be executed, its forward passes can.  Microbatches follow each other without waiting for backward
 * passes: M of them take (M + P - 1) F, with a bubble of (P - 1) F.
 */
#include "emulated_devices/schemes/pipeline/schedule.h"

void schedule_keep_forwards(struct schedule *s)
{
    for (int d = 0; d < s->devices; d++) {
        int kept = 0;
        for (int i = 0; i < s->count[d]; i++) {
            const enum action_kind k = s->actions[d][i].kind;
            if (k == FORWARD || k == SEND_ACTIVATION || k == RECEIVE_ACTIVATION)
                s->actions[d][kept] = s->actions[d][i], s->actions[d][kept++].beside = false;
        }
        s->count[d] = kept;
    }
    s->pairs = false;
}
