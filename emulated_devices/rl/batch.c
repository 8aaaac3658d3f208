/* batch.c -- fills batches with samples, and scores them.  loop.c, learner.c and serial.c call.  Errors are those of a
 * step. */
#include "emulated_devices/rl/batch.h"
#include "emulated_devices/train/training.h"
#include "ref/ops/ops.h"
#include <math.h>

void batch_fill(const struct batch_view *view, int64_t first, int64_t count, int32_t *ids, int32_t *labels)
{
    const struct samples *const all = view->samples;
    const int64_t S = samples_length(all);
    for (int64_t b = 0; b < count; b++) {
        const int32_t *const token = samples_at(all, first + b);
        const int64_t end = all->prompt + all->tokens[first + b];
        for (int64_t s = 0; s < S; s++) {
            const bool says = s + 1 >= all->prompt && s + 1 < end;
            ids[b * S + s] = s < end ? token[s] : 0;
            labels[b * S + s] = !says ? IGNORE_LABEL : view->critic ? CRITIC_LABEL : token[s + 1];
        }
    }
}

static int64_t batch_first(const struct batch_view *view, int64_t step)
{
    return (step - view->begin) * view->B % view->samples->count;
}

static void batch_source_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                              int32_t *labels, int32_t *within)
{
    const struct batch_view *const view = context;
    (void)within;
    batch_fill(view, batch_first(view, step) + first, count, ids, labels);
}

struct batch_source batch_source_of(const struct batch_view *view)
{
    return (struct batch_source){ .fill = batch_source_fill, .context = view };
}

int64_t batch_place(const struct batch_view *view, int64_t step, int64_t row)
{
    const int64_t S = samples_length(view->samples);
    return (batch_first(view, step) + row / S) * view->samples->most + row % S + 1 - view->samples->prompt;
}

static double score_row(const void *context, int64_t row, double number, double *slope)
{
    const struct scorer *const scorer = context;
    scorer->to[batch_place(&scorer->view, scorer->trainer->step, row)] = number;
    if (slope) *slope = 0;
    return 0;
}

enum error_code scorer_run(struct scorer *scorer, struct trainer *trainer, const struct samples *samples, double *to,
                           bool of_logit, struct error *err)
{
    scorer->view.samples = samples, scorer->view.critic = of_logit, scorer->view.begin = trainer->step;
    scorer->trainer = trainer, scorer->to = to;
    scorer->loss = (struct row_loss){ .of_row = score_row, .context = scorer, .of_logit = of_logit };
    for (int64_t i = 0; i < samples->count * samples->most; i++)
        to[i] = i % samples->most < samples->tokens[i / samples->most] ? (double)NAN : 0;
    for (int c = 0; c < trainer->plan.chunks; c++) trainer->stage[c].row_loss = &scorer->loss;
    const enum error_code e = training_run(trainer, samples->count / scorer->view.B, NULL, 0, NULL, err);
    for (int c = 0; c < trainer->plan.chunks; c++) trainer->stage[c].row_loss = NULL;
    return e;
}
