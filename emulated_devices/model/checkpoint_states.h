/* checkpoint_states.h -- which tensors a checkpoint has of each parameter. */
#ifndef ORRERY_CHECKPOINT_STATES_H
#define ORRERY_CHECKPOINT_STATES_H

#include "emulated_devices/model/trainer.h"

struct state_tensor {
    enum tensor_kind kind;
    int replica;                        /* whose, where replicas train apart */
    char suffix[64];                    /* what stands after the parameter's name */
};

/** What model.safetensors has: the masters; of replicas that train apart, the anchor. */
struct state_tensor checkpoint_weights(const struct trainer *);

/**
 * What optimizer.safetensors has.
 * @param replicas   that train apart: their weights and states, and the outer momentum; 0: the optimizer's states.
 * @param[out] list  room for all; NULL: they are counted only.
 * @return how many there are.
 */
int checkpoint_states(const struct trainer *, int replicas, struct state_tensor *list);

#endif
