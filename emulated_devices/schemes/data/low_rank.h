/* low_rank.h -- optimizers that step whole matrices in few directions, where everything is whole: ddp.  Private to this folder.
 *
 * Source   ref/optim/galore.h.  The authors' script reduces whole gradients in every step (PyTorch's DDP); that projected ones
 *          are reduced where they are enough is ours.  Projecting is linear, so the step is the same but for rounding
 * Layout   as ddp; of the states, each parameter's one after another in the shapes of low_rank_state
 * Talks    steps that find P anew, and with --clip all steps, all-reduce gradients as ddp does and project in the optimizer's step;
 *          every device computes P of the sum, from the same bits by the same code, so that P is equal everywhere without being
 *          sent.  In all other steps, a unit that backward has
 *          finished is projected and packed: of each projected matrix R, of all else the whole gradient, towards the front of
 *          the block of gradients; buckets are consecutive stretches of what is packed.  r/a of a matrix's bytes: b r for a b.
 *          After the last bucket everything goes back to its place, R first and zeros behind it.  What copies of a stage send
 *          each other along pp stays as it is, zeros among it
 * Memory   weights n, gradients n, optimizer state a r + 2 b r a matrix, natural-galore s b r more; 2 n of what is not projected
 * Equals   reassociates: P^T (G1 + G2) = P^T G1 + P^T G2 but for rounding.  What is not linear, Adam and the natural gradient,
 *          comes after the reduction, on every device from the same bits
 */
#ifndef ORRERY_LOW_RANK_H
#define ORRERY_LOW_RANK_H

#include "emulated_devices/schemes/data/data.h"
#include "ref/optim/galore.h"

/* Whether gradients of the step that comes are reduced projected.  Otherwise they stay whole until the step. */
bool low_rank_in_step(const struct data_parallel *);

/* Elements of a state of all parameters of a unit. */
int64_t low_rank_state_elements(const struct data_parallel *, const struct unit *, int state);

/* Project and pack the units that backward has finished since the last call.  @return OK or ERR_MEMORY. */
enum error_code low_rank_pack(struct data_parallel *, struct error *);

/* Everything back to its place. */
void low_rank_unpack(struct data_parallel *);

/* Elements that are reduced in a step with projected gradients. */
int64_t low_rank_packed_elements(const struct data_parallel *);

/* Step a unit, projecting first what is still whole.  master: what its elements are stepped in.
 * @return OK; ERR_MEMORY; ERR_CHECK if singular vectors cannot be found. */
enum error_code low_rank_step(struct data_parallel *, struct unit *, struct tensor master, struct step, struct error *);

#endif
