/* reference_encoders.h -- the encoders of the one-device run and of its twin, and the bounds of their tensors.
 *
 * The twin has encoders of its own, with random errors after each operation, and the gradients of its own embeddings.
 * So a bound is measured in the same way as one of the language model.
 *
 * reference.c calls the steps, and encoders.c of this folder asks for bounds.
 */
#ifndef ORRERY_REFERENCE_ENCODERS_H
#define ORRERY_REFERENCE_ENCODERS_H

#include "emulated_devices/verify/reference/reference.h"

/** Find the clips of a batch that has been read, and mark their tokens and labels.  @return OK or ERR_MEMORY. */
enum error_code reference_find_clips(struct reference *, struct error *);

/** Compute the embeddings of a step's clips by one run's own encoders, for its forward pass.
 *  @return OK or ERR_MEMORY. */
enum error_code reference_encode(const struct reference *, struct serial_run *, struct error *);

/** Compute the gradients of a run's encoders from those of their embeddings, which its backward pass has left.
 *  @return OK or ERR_MEMORY. */
enum error_code reference_encode_back(const struct reference *, struct serial_run *, struct error *);

/** The global norm of a run's gradients, the encoders' too, without the loss scale. */
double reference_gradient_norm(const struct serial_run *);

/** Set the gradients of the encoders of both runs to the devices', after they have been compared, so that the step has
 *  no error but its own.  Collective over all devices; elsewhere than on rank 0 the reference is NULL. */
void reference_take_encoder_gradients(struct reference *, struct trainer *);

/** Step the encoders of both runs, and measure how the truth's step responds to what its gradients may be off by.
 *  @return OK; ERR_MEMORY, and the run must end. */
enum error_code reference_step_encoders(struct reference *, struct step truth, struct step twin, struct error *);

/** Set the encoders of both runs to the devices'.  Collective over all devices; elsewhere than on rank 0 the reference
 *  is NULL. */
void reference_follow_encoders(struct reference *, struct trainer *);

/** The truth's numbers of an encoder: weights, masters, gradients or states. */
struct tensor reference_encoder(const struct reference *, int modality, enum tensor_kind);

/** How far another correct program's may be from them: the norm of the difference. */
double reference_encoder_bound(const struct reference *, int modality, enum tensor_kind);

/** The square of how far all gradients of encoders may be off. */
double reference_encoders_off(const struct reference *);

#endif
