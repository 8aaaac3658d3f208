/* digest.h -- digests of everything that a case computes and counts, to compare two builds of this program.
 *
 * A rebuilt program must end with equal digests where a change is not meant to change a result.  Digests hold for one
 * machine: a BLAS chooses its kernel, and so the order of its additions, by the processor.  case.c calls these
 * functions.
 */
#ifndef ORRERY_DIGEST_H
#define ORRERY_DIGEST_H

#include "emulated_devices/model/trainer.h"

/** Four hashes, each over all devices in the order of ranks once digest_finish() has run. */
struct digest {
    uint64_t numbers;           /**< every step's loss, gradients and weights, as their bytes are stored */
    uint64_t counters;          /**< messages, bytes and additions, by kind of scheme, operation and level */
    uint64_t memory;            /**< peaks of the arena, by tag */
    uint64_t time;              /**< virtual time in ps, and floating-point operations */
};

struct digest digest_start(void);

/** Add this device's gradients and its loss, after trainer_gradients(). */
void digest_add_gradients(struct digest *digest, struct trainer *trainer, const struct step_result *result);

/** Add this device's weights, after trainer_update() or before the first step. */
void digest_add_weights(struct digest *digest, struct trainer *trainer);

/**
 * Add what this device has counted, and join the digests of all devices.
 * Collective over all devices of the trainer's comm.
 * @param[in,out] digest  the joined digest on rank 0; without meaning on other ranks.
 * @return OK or ERR_COMM.
 */
enum error_code digest_finish(struct digest *digest, struct trainer *trainer, struct error *err);

#endif
