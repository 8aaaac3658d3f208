/* encoders.c -- compares encoders of images or sound on all devices with the one-device run, on rank 0. watch.c
 * calls after gradients and after weights.  ERR_CHECK is a verdict; other errors end the run.  Without memory the
 * code is ERR_MEMORY. */
#include "emulated_devices/verify/reference/encoders.h"
#include <stdlib.h>
#include <string.h>

/* Rounding explains this relative distance: an encoder's gradient sums a batch's patches and what the model sends
 * back.  The 4096 units of rounding are a fixed allowance, not a measured bound. */
static double most_off(enum dtype dtype) { return 4096 * dtype_unit(dtype); }

/* Rank 0 holds each device's copy of one encoder to the truth, and to the first copy, bit by bit.  The bytes `all`
 * [devices, bytes] are zeros for devices without the encoder, which are passed over. */
static enum error_code compare_one(const struct trainer *trainer, const struct reference *reference,
                                   struct tensor truth,
                                   int modality, bool gradients, const char *all, struct error *err)
{
    const char *name = modalities[modality].name, *what = gradients ? "gradients" : "weights", *first = NULL;
    const size_t bytes = tensor_bytes(truth);
    for (int d = 0; d < trainer->comm->size; d++) {
        if (!encoder_is_on(&trainer->plan.encoders, trainer->comm->size, modality, d)) continue;
        char *const own = (char *)all + (size_t)d * bytes;
        const double off = tensor_distance(tensor_1d(own, truth.dtype, tensor_count(truth)), truth),
                     norm = norm_of(reference, truth);
        if (!(off <= most_off(truth.dtype) * norm))
            return fail(err, ERR_CHECK, "step %lld: %s of the %s encoder on device %d differ from the one-device run's "
                        "by %.3g of their norm %.3g", (long long)trainer->step + gradients, what, name, d, off, norm);
        if (first && memcmp(first, own, bytes) != 0)
            return fail(err, ERR_CHECK, "step %lld: %s of the %s encoder on device %d have other bits than the first's",
                        (long long)trainer->step + gradients, what, name, d);
        if (first == NULL) first = own;
    }
    return OK;
}

/* Bring one encoder's weights or gradients of all devices to rank 0 and compare them there.  The call is collective.
 * A device without the encoder brings zeros. */
static enum error_code encoders_bring(struct trainer *trainer, const struct reference *reference, int m, bool gradients,
                                      struct error *err)
{
    const struct encoders *x = &trainer->encoders;
    const enum dtype own_format = trainer->device->dtype;
    const size_t bytes = (size_t)encoder_counts(&modalities[m], trainer->plan.model.D) * dtype_size(own_format);
    const bool first = trainer->comm->rank == 0;
    char *own = calloc(1, bytes), *all = first ? malloc(bytes * (size_t)trainer->comm->size) : NULL;
    enum error_code e = own && (all || !first) ? OK : fail(err, ERR_MEMORY, "no memory to compare encoders");
    /* All devices know whether memory was there before the first of them sends. */
    e = comm_agree(trainer->comm, e, err);
    struct views v = views_of(trainer->device);
    if (!e && x->here[m]) memcpy(own, view_read(&v, gradients ? x->g[m] : x->w[m]).data, bytes);
    views_end(&v);
    if (!e) e = comm_bring(trainer->comm, own, bytes, all, err);
    if (!e && first)
        e = compare_one(trainer, reference, gradients ? reference->encoders.g[m] : reference->encoders.w[m], m,
                        gradients, all, err);
    free(own), free(all);
    return e;
}

enum error_code encoders_compare(struct trainer *trainer, const struct reference *reference, bool gradients,
                                 struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++)
        e = comm_agree(trainer->comm, encoders_bring(trainer, reference, m, gradients, err), err);
    return e;
}
