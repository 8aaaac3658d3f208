#include "emulated_devices/schemes/modality/placement.h"
#include "emulated_devices/device/interval.h"
#include <stdlib.h>

bool encoder_is_on(const struct encoder_request *r, int devices, int modality, int device)
{
    if (r->placement == ENCODERS_EVERYWHERE) return true;
    if (devices < r->kinds) return modality % devices == device;
    const struct interval own = block_at(devices, r->kinds, modality);
    return device >= own.first && device < interval_end(own);
}

int64_t clip_work(const struct clip *c, int64_t D)
{
    const struct modality *m = &modalities[c->modality];
    return c->count * m->F * (m->C + D);
}

/* The clip with the most work of those not yet given away; of equals the first. */
static int heaviest(const struct clips *c, int64_t D, const int32_t device[])
{
    int best = -1;
    for (int i = 0; i < c->count; i++)
        if (device[i] < 0 && (best < 0 || clip_work(&c->clip[i], D) > clip_work(&c->clip[best], D))) best = i;
    return best;
}

static int least_loaded(const int64_t load[], int devices, const bool may[])
{
    int best = -1;
    for (int d = 0; d < devices; d++)
        if (may[d] && (best < 0 || load[d] < load[best])) best = d;
    return best;
}

enum error_code clips_share_out(const struct clips *c, int64_t D, int devices, int slack, const bool may[],
                                const bool needs[], int32_t device[], struct error *err)
{
    int64_t *load = calloc((size_t)devices, sizeof *load), longest = 0;
    if (load == NULL) return fail(err, ERR_MEMORY, "no memory to share out %d clips", c->count);
    for (int i = 0; i < c->count; i++) {
        device[i] = -1;
        if (clip_work(&c->clip[i], D) > longest) longest = clip_work(&c->clip[i], D);
    }
    for (int n = 0; n < c->count; n++) {
        const int i = heaviest(c, D, device);
        const bool *const allowed = may + (int64_t)i * devices, *const needed = needs + (int64_t)i * devices;
        int to = least_loaded(load, devices, allowed);
        const int64_t most = load[to] + longest * slack / 100;
        for (int d = devices - 1; d >= 0; d--)
            if (allowed[d] && needed[d] && load[d] <= most) to = d;
        device[i] = to, load[to] += clip_work(&c->clip[i], D);
    }
    free(load);
    return OK;
}
