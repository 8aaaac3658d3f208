/* balance.h -- the balance loss of a mixture on many devices: what a microbatch's routers have chosen, and slopes.
 *
 * Tokens are divided into groups, and layers into losses, as ref/model/balance.h says.  A slope needs the choices of
 * all rows of a loss, which are on several devices:
 *   - along tp and cp, where devices have other rows of a microbatch: they add their counts, E + 1 for each loss;
 *   - along pp, with one loss of all layers together: the counts so far travel beside the activations, to the last
 *     stage; the slopes travel back beside the gradients;
 *   - along dp, of a loss of the whole batch: after all forward passes all devices add their counts (mixture.h).
 * So with losses of each microbatch, or of each sequence, a schedule can begin a microbatch's backward pass before
 * the last forward pass.  A microbatch's counts travel along its route, so a stage that it leaves out adds none.  How
 * many rows the batch has follows from the plan: those of the replica's microbatches of one optimizer step, in the
 * layers that they pass through.  Devices do not share probabilities: the loss is the sum of slopes times
 * probabilities, to which each adds those of its own rows.  mixture.c, model/run/run_mixture.c and stage.c call these
 * functions.
 */
#ifndef ORRERY_DEVICE_BALANCE_H
#define ORRERY_DEVICE_BALANCE_H

#include "emulated_devices/model/stage.h"

/** Whether a plan's model has a balance loss; whether it is of the whole batch. */
bool balance_has_loss(const struct plan *);
bool balance_is_of_batch(const struct plan *);

/** Whether a loss is of all layers of a microbatch, which may be on several stages. */
bool balance_joins_layers(const struct plan *);

/** Make room for the sums of a microbatch that has been cut.  Local.  @return whether there was memory. */
bool balance_open(const struct stage *, struct microbatch *);
void balance_close(struct microbatch *);

/** Before a stage's forward pass of a microbatch: forget the sums, unless they came from the stage before.  Local. */
void balance_begin(const struct stage *, struct microbatch *);

/** A batch is that of one optimizer step.  What a step's losses are multiplied by in the loss that is reported. */
double balance_weight(const struct stage *, const struct microbatch *);

/** The rows that the losses of a microbatch's rows in a layer are means over; the sequences that those of sequences by
 *  themselves are. */
double balance_rows(const struct stage *, const struct microbatch *, int layer);
double balance_sequences(const struct stage *, const struct microbatch *, int layer);

/** The number of losses that a stage's sums of a microbatch are for. */
int64_t balance_losses_here(const struct stage *, const struct microbatch *);

/** The loss that a row of the global batch is of, in a layer of the stage. */
int64_t balance_loss_at(const struct stage *, const struct microbatch *, int layer, int64_t row);

/** The sums [2E+1] of a loss: probabilities, choices that count, rows; and its slopes [E].  In the host's memory. */
double *balance_sums_of(const struct stage *, const struct microbatch *, int64_t loss);
double *balance_slope_of(const struct stage *, const struct microbatch *, int64_t loss);

/** Set the slopes of a loss from the counts of all its rows, [E + 1], and add the share of this device's rows to the
 *  step's loss.  Local. */
void balance_set_slope(struct stage *, struct microbatch *, int64_t loss, const double *counts);

/** After a layer's router, with losses of each layer: add the counts of the devices along tp and cp, and set the
 *  slopes.  Collective over both groups.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code balance_after_layer(struct stage *, struct microbatch *, int layer, struct error *);

/** After a stage's forward pass: the same for losses of all layers, if this is the last stage.  At the end of another
 *  section all its devices get the sums so far.  @return as balance_after_layer. */
enum error_code balance_after_forward(struct stage *, struct microbatch *, struct error *);

/** Return what both send in a microbatch's passes through a stage along one axis, TP or CP. */
struct account balance_cost(const struct stage *, const struct microbatch *, enum axis);

/** The numbers that travel beside a microbatch's activations from stage to stage, or beside gradients.
 *  @return their place, in the host's memory; bytes 0: none do. */
struct stage_note balance_note(const struct stage *, const struct microbatch *, bool gradient);

/** A device's part of the numbers of balance_note in a section: rows are the sequences of the batch, or the copies,
 *  whose losses they are.  Pure.
 *  @param begins  only what a device begins with: the sums that are handed on are counted once.
 *  @return the part, for part_free. */
struct part balance_part(const struct plan *, int rank, int micro, bool gradient, bool begins);

#endif
