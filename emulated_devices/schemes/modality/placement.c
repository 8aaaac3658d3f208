/* placement.c -- where encoders are, and which device encodes which clip.
 *
 * model/encoders.c calls these functions, and verify/reference/encoders.c asks where an encoder is.  All devices
 * compute the same answer from the same clips.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/schemes/modality/placement.h"
#include "emulated_devices/device/interval.h"
#include <stdlib.h>

bool encoder_is_on(const struct encoder_request *request, int devices, int modality, int device)
{
    if (request->placement == ENCODERS_EVERYWHERE) return true;
    /* With fewer devices than modalities the encoders are dealt out in turn.  With more, each modality has a block of
     * devices. */
    if (devices < request->kinds) return modality % devices == device;
    const struct interval own = block_at(devices, request->kinds, modality);
    return device >= own.first && device < interval_end(own);
}

/* A clip of `count` rows goes through [C, F] and [F, D]: count F (C + D) multiplications. */
int64_t clip_work(const struct clip *clip, int64_t D)
{
    const struct modality *m = &modalities[clip->modality];
    return clip->count * m->F * (m->C + D);
}

/* The clip with the most work of those not yet given away; of equals the first. */
static int heaviest(const struct clips *clips, int64_t D, const int32_t device[])
{
    int best = -1;
    for (int i = 0; i < clips->count; i++)
        if (device[i] < 0 && (best < 0 || clip_work(&clips->clip[i], D) > clip_work(&clips->clip[best], D))) best = i;
    return best;
}

/* Among equals the device with the lowest rank wins; `may` excludes devices without the encoder. */
static int least_loaded(const int64_t load[], int devices, const bool may[])
{
    int best = -1;
    for (int d = 0; d < devices; d++)
        if (may[d] && (best < 0 || load[d] < load[best])) best = d;
    return best;
}

enum error_code clips_share_out(const struct clips *clips, int64_t D, int devices, int slack, const bool may[],
                                const bool needs[], int32_t device[], struct error *err)
{
    /* load [devices] is the work given away so far; device [clips] is -1 while a clip is not given away. */
    int64_t *load = calloc((size_t)devices, sizeof *load), longest = 0;
    if (load == NULL) return fail(err, ERR_MEMORY, "no memory to share out %d clips", clips->count);
    for (int i = 0; i < clips->count; i++) {
        device[i] = -1;
        if (clip_work(&clips->clip[i], D) > longest) longest = clip_work(&clips->clip[i], D);
    }
    /* Each round gives away the heaviest clip that is left. */
    for (int n = 0; n < clips->count; n++) {
        const int i = heaviest(clips, D, device);
        const bool *const allowed = may + (int64_t)i * devices, *const needed = needs + (int64_t)i * devices;
        int to = least_loaded(load, devices, allowed);
        /* A device that needs the embeddings takes the clip if its load is within the slack.  This saves a message. */
        const int64_t most = load[to] + longest * slack / 100;
        for (int d = devices - 1; d >= 0; d--)
            if (allowed[d] && needed[d] && load[d] <= most) to = d;
        device[i] = to, load[to] += clip_work(&clips->clip[i], D);
    }
    free(load);
    return OK;
}
