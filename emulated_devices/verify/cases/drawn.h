/* drawn.h -- holds schemes that plan or adapt to their invariants for drawn inputs, in which there is much to adapt to:
 * lengths of samples from equal to very different, on nodes of every size; loads of experts by Zipf's law, over steps.
 * jobs/schemes.c calls these functions. */
#ifndef ORRERY_VERIFY_DRAWN_H
#define ORRERY_VERIFY_DRAWN_H

#include "emulated_devices/verify/reference/adaptation.h"

/** Plan for drawn lengths, or let the experts of a layer be chosen, on the devices of a comm.  Nothing is drawn for one
 *  device, nor for a scheme that goes by the ids of tokens.  Collective over all devices.
 *  @param[out] checked  how often each invariant was compared, on this device.
 *  @return OK; ERR_CHECK naming scheme, invariant and what was found; ERR_MEMORY or ERR_COMM; the same on every
 *          device. */
enum error_code adaptation_drawn(const struct scheme *, struct comm *, struct invariant_counts *checked,
                                 struct error *);

#endif
