/* progress.c -- takes and puts the numbers of a job that are no parameter's.  collection.c and transfer.c call.  No
 * function returns an error code. */
#include "emulated_devices/model/collection/progress.h"
#include "ref/model/kinds.h"

enum { STEPS, SKIPPED, SCALE, GOOD, LEFT, EXHAUSTED };

int64_t progress_biases(const struct model_config *config)
{
    return config->mlp == MLP_MIXTURE && config->mixture.router.biased ? config->L * mixture_columns(&config->mixture)
        : 0;
}

void progress_take(const struct trainer *trainer, double number[PROGRESS_NUMBERS])
{
    for (int i = 0; i < PROGRESS_NUMBERS; i++) number[i] = 0;
    number[STEPS] = (double)trainer->step, number[SKIPPED] = (double)trainer->skipped;
    number[SCALE] = trainer->loss_scale.scale, number[GOOD] = (double)trainer->loss_scale.good;
    number[LEFT] = (double)trainer->loss_scale.left, number[EXHAUSTED] = trainer->loss_scale.exhausted;
}

void progress_put(struct trainer *trainer, const double number[PROGRESS_NUMBERS])
{
    trainer->step = (int64_t)number[STEPS];
    trainer->skipped = trainer->skipped_before = (int64_t)number[SKIPPED];
    trainer->loss_scale.scale = number[SCALE], trainer->loss_scale.good = (int64_t)number[GOOD];
    trainer->loss_scale.left = (int64_t)number[LEFT], trainer->loss_scale.exhausted = number[EXHAUSTED] != 0;
}
