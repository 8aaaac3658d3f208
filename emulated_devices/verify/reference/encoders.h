/* encoders.h -- whether encoders of what is not text train as on one device.  watch.c calls these functions. */
#ifndef ORRERY_VERIFY_ENCODERS_H
#define ORRERY_VERIFY_ENCODERS_H

#include "emulated_devices/verify/reference/reference.h"

/**
 * Compare the weights of each device's encoders, or their gradients, with the one-device run's; and the copies of an
 * encoder with each other, bit by bit.  Collective over all devices; the reference is on rank 0.
 * @return OK; ERR_CHECK, on rank 0 alone, naming encoder, device and distance; ERR_COMM or ERR_MEMORY.
 */
enum error_code encoders_compare(struct trainer *, const struct reference *, bool gradients, struct error *);

#endif
