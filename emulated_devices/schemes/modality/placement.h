/* placement.h -- which devices have which encoders, and which device encodes which clip.  Pure functions.
 *
 * Source  everywhere  Meituan LongCat Team, "LongCat-Flash-Omni technical report", arXiv:2511.00279: encoders on all
 *                     devices, each of which encodes clips of its own copy of the batch, whatever stage of the language
 *                     model it has (modality-decoupled parallelism)
 *         apart       Y. Li et al., "Uni-MoE", arXiv:2405.11273: an encoder only on the devices that process its
 *                     modality (modality-level data parallelism)
 * Called  model/encoders.c and verify/reference/encoders.c call these functions.
 */
#ifndef ORRERY_MODALITY_PLACEMENT_H
#define ORRERY_MODALITY_PLACEMENT_H

#include "ref/model/modality.h"

enum encoder_placement { ENCODERS_EVERYWHERE, ENCODERS_APART };

struct encoder_request {
    int kinds;                          /* of modalities: the first of the list; 0: text only */
    unsigned only;                      /* a bit for each modality that has clips; 0: all have */
    bool given;                         /* the file of lengths says which samples have which clips (samples.h); else
                                         * they are drawn */
    enum encoder_placement placement;   /* which device encodes a clip */
    int chunks;                         /* in which embeddings and their gradients are sent */
    int slack;                          /* a clip stays on a device that needs it, unless it has so many percent of the
                                         * longest clip's work more than the least loaded */
};

/** Whether a device has the encoder of a modality.  @param devices  of the job; of fewer than modalities a device has
 *  several. */
bool encoder_is_on(const struct encoder_request *, int devices, int modality, int device);

/** Work of a clip: multiplications. */
int64_t clip_work(const struct clip *, int64_t D);

/**
 * Share out clips: those with most work first, each to the device with the least work of those that may encode it; or
 * to one that needs its embeddings, within the slack.
 * @param may     [clips, devices] which devices may encode which; each clip has one at least.
 * @param needs   [clips, devices] which need its first row.
 * @param[out] device  [clips].
 * @return OK or ERR_MEMORY.
 */
enum error_code clips_share_out(const struct clips *, int64_t D, int devices, int slack, const bool may[],
                                const bool needs[], int32_t device[], struct error *);

#endif
