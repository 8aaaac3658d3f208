/* run_node.h -- one node of a model's table, run on one microbatch: which operation of the device or of the tensor scheme that is. */
#ifndef ORRERY_RUN_NODE_H
#define ORRERY_RUN_NODE_H

#include "emulated_devices/model/stage.h"

struct node_call {
    struct stage *stage;
    struct microbatch *micro;
    const struct model_part *part;
    const struct linked_node *node;
};

/** Run a node as a list asks for it: forward (again), backward for its inputs, or for its weights.  Collective over the tp group.
 *  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_node(const struct node_call *, enum list, struct error *);

#endif
