/* forwards.c -- what is left of a schedule where nobody asks for gradients: its forward passes, in its order.
 *
 * A forward pass waits for forward passes alone, and a message for the one that makes it, so that what is left can be
 * executed whenever the whole can be.  Nothing waits for a backward pass any more: microbatches follow one another
 * through the pipeline, and M of them take (M + P - 1) F, with a bubble of (P - 1) F.
 */
#include "emulated_devices/schemes/pipeline/schedule.h"

void schedule_keep_forwards(struct schedule *s)
{
    for (int d = 0; d < s->devices; d++) {
        int kept = 0;
        for (int i = 0; i < s->count[d]; i++) {
            const enum action_kind k = s->actions[d][i].kind;
            if (k == FORWARD || k == SEND_ACTIVATION || k == RECEIVE_ACTIVATION)
                s->actions[d][kept++] = s->actions[d][i];
        }
        s->count[d] = kept;
    }
}
