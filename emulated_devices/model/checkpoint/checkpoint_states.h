/* checkpoint_states.h -- which tensors a checkpoint has for each parameter, and the fingerprint of the weights.
 * checkpoint.c and checkpoint_write.c call these functions.  Errors: ERR_MEMORY, ERR_COMM of the fingerprint. */
#ifndef ORRERY_CHECKPOINT_STATES_H
#define ORRERY_CHECKPOINT_STATES_H

#include "emulated_devices/model/trainer.h"

struct state_tensor {
    enum tensor_kind kind;              /* which of a unit's tensors it is */
    int replica;                        /* whose tensor, where replicas train apart */
    char suffix[64];                    /* follows the parameter's name */
};

/** The tensor in model.safetensors: the master; of replicas that train apart, the anchor. */
struct state_tensor checkpoint_weights(const struct trainer *);

/**
 * The tensors in optimizer.safetensors.
 * @param replicas   that train apart: list their weights and states, and the outer momentum; 0: only optimizer states.
 * @param[out] list  room for all; NULL: only count.
 * @return how many.
 */
int checkpoint_states(const struct trainer *, int replicas, struct state_tensor *list);

/* The fingerprint of all weights as JSON has it: 16 digits. */
enum { CHECKPOINT_PRINT = 24 };
void checkpoint_print(uint64_t fingerprint, char text[CHECKPOINT_PRINT]);

/** The fingerprint of all weights (data.h).  Collective over all devices.
 *  @param[out] sum  on rank 0.  @return OK or, on every device, ERR_MEMORY or ERR_COMM. */
enum error_code checkpoint_fingerprint(struct trainer *, uint64_t *sum, struct error *);

#endif
