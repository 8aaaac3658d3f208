/* execute.h -- perform one device's part of a schedule: the one executor of all of them. */
#ifndef ORRERY_EXECUTE_H
#define ORRERY_EXECUTE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/schemes/pipeline/schedule.h"

/* What the executor asks of the model.  chunk: which of the device's stages; micro: which microbatch. */
struct stage_operations {
    /* FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT or UPDATE. */
    enum error_code (*compute)(void *context, enum action_kind, int chunk, int micro, struct error *);
    /* Where a stage's input is to be received or handed over, and the gradient of its output: arena memory that the
     * stage frees itself.  data NULL: the machine has no memory left. */
    struct tensor (*input)(void *context, int chunk, int micro);
    struct tensor (*output_gradient)(void *context, int chunk, int micro);
    /* A stage's output, and the gradient of its input: arena memory that passes to the executor. */
    struct tensor (*take_output)(void *context, int chunk, int micro);
    struct tensor (*take_input_gradient)(void *context, int chunk, int micro);
    /* Before the first action of the list that has to do with gradients; NULL: nothing.  Where all devices' forward
     * passes come first, all of them have been done or are under way, and devices may communicate here. */
    enum error_code (*backward_begins)(void *context, struct error *);
};

/* When an action began and ended, by the device's virtual clock. */
struct action_time { int64_t start, end; };

/**
 * Perform the calling device's list.
 *
 * Collective over the pp group, whose rank is the device's place in the schedule.  Messages are named by microbatch and
 * stage, so that they meet whatever order they were sent in.  What is being sent no longer counts as the device's
 * memory.
 * @param times  [actions of this device's list] filled in; or NULL.
 * @return OK; ERR_COMM; or what compute() returned.  After an error the other devices of the group are left waiting.
 */
enum error_code schedule_execute(const struct schedule *, struct group *, const struct stage_operations *,
                                 void *context, struct action_time *times, struct error *);

/** What this device sends for one execution on a pp group; bytes(context, micro) is the size of a microbatch's
 *  activations, which is that of their gradient. */
struct account schedule_cost(const struct schedule *, const struct group *,
                             uint64_t (*bytes)(const void *context, int micro), const void *context);

#endif
