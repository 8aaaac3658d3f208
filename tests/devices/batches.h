/* batches.h -- batches of tokens for a plan, for the source of a trainer whose context is the plan.  Tests in
 * tests/devices/ that open a trainer include this file.  No function returns an error code. */
#ifndef TESTS_BATCHES_H
#define TESTS_BATCHES_H

#include "emulated_devices/model/trainer.h"
#include "ref/numeric/philox.h"

/* Each token and each label is drawn by its place in the batch; every token has a label. */
static inline void fill_drawn(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                              int32_t *labels, int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = (int32_t)(random_uniform((uint64_t)step, 5, at) * (double)p->model.V);
        labels[i] = (int32_t)(random_uniform((uint64_t)step, 6, at) * (double)p->model.V);
    }
}

/* Token and label are the place in the text and the step, added up. */
static inline void fill_counting(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                                 int32_t *labels, int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++)
        ids[i] = labels[i] = (int32_t)((first * p->S + i + step) % p->model.V);
}

/* Tokens depend on their place and the step; labels on their place in the microbatch. */
static inline void fill_strided(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                                int32_t *labels, int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        ids[i] = (int32_t)((i + first * p->S) * (step + 3) % p->model.V);
        labels[i] = (int32_t)((i * i + step) % p->model.V);
    }
}

#endif
