/* drawn.h -- drawn numbers, initial weights and random directions, for the elements that a device has; on memory of the
 * host.
 *
 * A drawn number is a pure function of a seed, the parameter's name and the element's place in the whole parameter, so
 * every device that has the element draws the same.
 *
 * A backend's entries draw, move_along and step_along call this file, for initial weights and for training without a
 * backward pass.  device/backend.h includes this file.  No function returns an error code.
 */
#ifndef ORRERY_DRAWN_H
#define ORRERY_DRAWN_H

#include "emulated_devices/device/layout.h"
#include "ref/optim/optimizer.h"

struct param_spec;

/* A tensor holds these elements of a parameter: from `first` on, of the piece that a layout cuts out. */
struct drawn { const struct param_spec *spec; const struct layout *layout; int64_t first; };

/** w = the initial weights, rounded from the format of their masters: so every weight is its rounded master, also if
 *  another device keeps the master.  @param w  any floating-point format. */
void drawn_weights(struct tensor w, struct drawn, uint64_t seed);

/** w += along z, as mezo_move. */
void drawn_move(struct tensor w, struct drawn, uint64_t key, double along);

/** Step w with z, in w's format, as its gradient.
 *  @param w  fp32 or fp64; of an optimizer without states.  step.gradient_scale: the slope along z. */
void drawn_step(const struct optimizer *, struct tensor w, struct drawn, uint64_t key, struct step step);

#endif
