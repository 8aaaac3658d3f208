/* encoders.h -- encoders of what is not text beside the language model: where they compute, and how embeddings get to
 * the devices that need them.
 *
 * A step first encodes all clips of the batch, then runs the language model, then the encoders' backward passes
 * (LongCat-Flash-Omni, arXiv:2511.00279).  In between is the bridge: each patch's row goes from the device that has
 * encoded it to the devices of the first stage with that row of the stream: those along tp all have it, or one of them
 * with sequence parallelism.  Backward the first of these returns the row's gradient.  The bridge works in chunks of
 * the batch's patches, so that its buffers need only a part of the memory; no bit depends on their number.
 *
 * An encoder is one unit of data parallelism (schemes/data/) over the devices that have it, and no others.  So the
 * plan's data scheme decides which of them keep which weights, gradients and states, in which formats, and when weights
 * are gathered and gradients reduced.  A device without a clip gathers and reduces with the others, and adds zeros.
 * With --recompute full an encoder keeps its patches alone, and computes the rest again before its backward pass.
 *
 * trainer.c, trainer_batch.c, trainer_cost.c and trainer_open.c call these functions; checkpoints and
 * verify/reference/encoders.c read and write what is kept; model/collection/ asks who keeps what.
 */
#ifndef ORRERY_ENCODERS_H
#define ORRERY_ENCODERS_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/modality/placement.h"
#include "ref/model/config.h"

struct plan;
struct trainer;

/* A row of the stream that is a patch: on which device, in which microbatch. */
struct needed { int32_t patch, micro, row; };
struct needs { int count; struct needed *of; };         /* by patch */

/* The part of an encoder's data parallelism that has all its parameters; and the part without any, which stands for the
 * language model's passes. */
enum { ENCODER_REST, ENCODER_PART };

/* The encoder of a modality, as this device has it. */
struct encoder {
    bool here;                          /* whether this device has a part of its weights; else all below is empty */
    struct group with;                  /* the devices that have it */
    struct parameters parameters;       /* [ENCODER_PARAMS] */
    struct data_parallel data;          /* owns weights, gradients and states of the optimizer */
    struct tensor x, up, act, out, d_out;       /* of the clips that this device encodes in this step */
};

/* Encoders hold so many bytes of activations in a step: during the language model's passes, and at most outside. */
struct encoders_held { uint64_t during, most; };

struct encoders {
    const struct encoder_request *request;      /* of the plan */
    struct group world;                 /* all devices */
    struct model_config config;         /* as data parallelism sees an encoder: a model without blocks */
    struct encoder of[MODALITIES];      /**< Encoder of each modality. */

    /* of a step */
    struct clips clips;                 /* of the whole batch, the same list on every device */
    int32_t *device;                    /* [clips] that encodes each; NULL: not placed yet */
    int32_t *source, *home;             /* [patches] the device that encodes each; that returns its gradient */
    struct needs *needs;                /* [devices] of the world */
    struct account bridged;             /* what the steps so far have sent over the bridge, by formula */
    uint64_t peak;                      /* bytes of the largest chunk's buffers of this device, by formula */
};

/** Make this device's groups, parameters and units of encoders, without memory for them.  Local.
 *  @return OK, ERR_PLAN or ERR_MEMORY; encoders_close works after all of them. */
enum error_code encoders_outline(struct trainer *, struct error *);

/** Allocate and draw the weights of this device's encoders.  Local.  @return OK, ERR_MEMORY or ERR_FILE. */
enum error_code encoders_fill(struct trainer *, struct error *);
void encoders_close(struct trainer *);

/** Find the clips of a batch that has been read.  Local.
 *  @param within  positions in packed samples; NULL: a sequence is a sample.
 *  @param marks   whether their tokens and labels are marked, for other devices may read the batch, too.
 *  @return OK or ERR_MEMORY. */
enum error_code encoders_read(struct trainer *, int32_t *ids, int32_t *labels, const int32_t *within, bool marks,
                              struct error *);

/** Decide which device encodes which of them, where this step's rows are known.  Local.  @return OK or ERR_MEMORY. */
enum error_code encoders_place(struct trainer *, struct error *);

/** Forget the batch. */
void encoders_drop_batch(struct trainer *);

/** Encode a step's clips and bring the embeddings to the first stage; after the passes, bring their gradients back,
 *  compute those of the encoders' weights, and reduce them.  Collective over all devices.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code encoders_forward(struct trainer *, struct error *);
enum error_code encoders_backward(struct trainer *, struct error *);

/** Step the encoders, or skip the step; their gradients are zero then.  Collective over all devices.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code encoders_update(struct trainer *, double gradient_scale, struct error *);
void encoders_skip(struct trainer *);

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

/** Whether encoders compute their inner activations again before the backward pass. */
bool encoders_recompute(const struct plan *);

/** The patches of a modality that this device encodes in this step. */
int64_t encoder_own_patches(const struct trainer *, int modality);

/** The activations of encoders in this step, walked as the step takes and frees them. */
struct encoders_held encoders_activations(const struct trainer *);

/** This device keeps so many bytes of encoders from step to step; so many more exist for a while, at most. */
struct model_state encoders_resident(const struct trainer *);
struct model_state encoders_passing(const struct trainer *);

/** This device sends so much for encoders in these steps, of which some were skipped, beside the bridge. */
struct account encoders_cost(const struct trainer *, int64_t steps, int64_t skipped);

/** Add this device's part of the squared norm of the encoders' gradients. */
void encoders_norm_part(struct trainer *, struct exact_sum *);

/** This device's part of the fingerprint of the encoders' weights. */
uint64_t encoders_fingerprint_part(struct trainer *);

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/** The elements of an encoder's parameter that a device of the plan keeps: a pure function of plan and rank, for any
 *  device, also of an outline.  @param[out] kept  none if the rank has no part of the encoder.
 *  @return OK or ERR_MEMORY. */
enum error_code encoder_kept(const struct trainer *, int modality, int rank, enum encoder_param, enum tensor_kind,
                             struct interval *kept, struct error *);

/** Copy those elements out of this device, or into it; an array of only these elements.  Local. */
void encoder_take(struct trainer *, int modality, enum encoder_param, enum tensor_kind, struct tensor own);
void encoder_put(struct trainer *, int modality, enum encoder_param, enum tensor_kind, struct tensor own);

/* The elements of an encoder that a device keeps: has [encoder_counts] says which; numbers has the others as zeros. */
struct encoder_piece { int device; const uint8_t *has; struct tensor numbers; };

/**
 * Bring what each device keeps of an encoder to rank 0, in order of rank.  Collective over all devices; counted as
 * CONTROL.
 * @param visit  called on rank 0 only; its error ends the visits.
 * @return OK, or the same error everywhere: ERR_MEMORY, or that of the visits.
 */
enum error_code encoders_bring(struct trainer *, int modality, enum tensor_kind,
                               enum error_code (*visit)(void *context, const struct encoder_piece *, struct error *),
                               void *context, struct error *);

/** Assemble an encoder's numbers of a kind on rank 0.  @param whole  [encoder_counts], used on rank 0 only. */
enum error_code encoders_collect(struct trainer *, int modality, enum tensor_kind, struct tensor whole,
                                 struct error *);

/** Store what this device keeps of an encoder's masters or states; with masters the weights follow, rounded.  Local.
 *  @param whole  [encoder_counts] in the kind's format.  @return OK or ERR_MEMORY. */
enum error_code encoders_keep(struct trainer *, int modality, enum tensor_kind, struct tensor whole, struct error *);

#endif
