/* encoders.h -- encoders of what is not text beside the language model: where they compute, and how embeddings get to
 * the devices that need them.
 *
 * A step first encodes all clips of the batch, then runs the language model, then the encoders' backward passes
 * (LongCat-Flash-Omni, arXiv:2511.00279).  In between is the bridge: each patch's row goes from the device that has
 * encoded it to the devices of the first stage with that row of the stream: those along tp all have it, or one of them
 * with sequence parallelism.  Backward the first of these returns the row's gradient.  The bridge works in chunks of
 * the batch's patches, so that its buffers need only a part of the memory; no bit depends on their number.
 *
 * Encoders are replicated on the devices that have them.  Their gradients are summed over these, and no others: a
 * device without a clip adds zeros.  Their memory has the tag of buffers: no formula predicts it.  trainer.c,
 * trainer_batch.c and trainer_open.c call these functions.
 */
#ifndef ORRERY_ENCODERS_H
#define ORRERY_ENCODERS_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/modality/placement.h"

struct trainer;

/* A row of the stream that is a patch: on which device, in which microbatch. */
struct needed { int32_t patch, micro, row; };
struct needs { int count; struct needed *of; };         /* by patch */

struct encoders {
    const struct encoder_request *request;      /* of the plan */
    struct group world, with[MODALITIES];               /* the devices that have an encoder */
    bool here[MODALITIES];              /* this device has the encoder's weights */
    struct tensor w[MODALITIES], g[MODALITIES], state[MODALITIES][OPTIMIZER_MAX_STATES];    /* [encoder_counts] */

    /* of a step */
    struct clips clips;                 /* of the whole batch, the same list on every device */
    int32_t *device;                    /* [clips] that encodes each */
    int32_t *source, *home;             /* [patches] the device that encodes each; that returns its gradient */
    struct needs *needs;                /* [devices] of the world */
    struct tensor x[MODALITIES], up[MODALITIES], act[MODALITIES], out[MODALITIES], d_out[MODALITIES];   /* of the clips
                                                                         * that this device encodes, by modality */
    struct account bridged, reduced;    /* what the steps so far have sent, by formula */
    uint64_t peak;                      /* bytes of the largest chunk's buffers of this device, by formula */
};

/** Create this device's encoders, if the plan has any.  Local.  @return OK, ERR_PLAN or ERR_MEMORY. */
enum error_code encoders_open(struct trainer *, struct error *);
void encoders_close(struct trainer *);

/** Find the clips of a batch that has been read: mark its tokens.  Local.  @return OK or ERR_MEMORY. */
enum error_code encoders_take_batch(struct trainer *, int32_t *ids, int32_t *labels, struct error *);

/** Encode a step's clips and bring the embeddings to the first stage; after the passes, bring their gradients back,
 *  compute those of the encoders' weights, and sum them.  Collective over all devices.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code encoders_forward(struct trainer *, struct error *);
enum error_code encoders_backward(struct trainer *, struct error *);

/** Step this device's encoders, and zero their gradients.  Local. */
void encoders_update(struct trainer *, double gradient_scale);

#endif
