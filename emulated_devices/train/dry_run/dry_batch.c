/* dry_batch.c -- fills the batches of a plan with lengths, once for all devices.  dry_run.c and alone.c call.  The only
 * error is ERR_MEMORY. */
#include "emulated_devices/train/dry_run/dry_batch.h"
#include "ref/io/samples.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include <stdlib.h>
#include <string.h>

enum error_code dry_batches_open(struct dry_batches *batches, const struct plan *plan, int64_t steps,
                                 struct error *err)
{
    const size_t n = plan->lengths ? (size_t)steps : 0, tokens = (size_t)(plan->B * plan->S),
                 width = 2 * (size_t)attention_mask_ranges(&plan->model.mask);
    *batches = (struct dry_batches){ .plan = plan, .of = calloc(n + 1, sizeof *batches->of),
                                     .filled = calloc(n + 1, sizeof *batches->filled) };
    bool ok = batches->of && batches->filled;
    for (; batches->steps < (int64_t)n && ok; batches->steps++) {
        struct shared_batch *const b = &batches->of[batches->steps];
        *b = (struct shared_batch){ .tokens = malloc(3 * tokens * sizeof *b->tokens),
                                    .mask = malloc(width * tokens * sizeof *b->mask),
                                    .masked = calloc((size_t)plan->B, sizeof *b->masked),
                                    .samples = { .first = calloc((size_t)plan->B + 1, sizeof *b->samples.first),
                                                 .length = malloc(tokens * sizeof *b->samples.length),
                                                 .labels = calloc((size_t)plan->B, sizeof *b->samples.labels) } };
        const struct step_samples *const s = &b->samples;
        ok = b->tokens && b->mask && b->masked && s->first && s->length && s->labels;
    }
    if (ok) return OK;
    dry_batches_close(batches);
    return fail(err, ERR_MEMORY, "no memory for the batches of %lld steps", (long long)steps);
}

void dry_batches_close(struct dry_batches *batches)
{
    for (int64_t i = 0; i < batches->steps; i++) {
        const struct shared_batch *const b = &batches->of[i];
        free(b->tokens), free(b->mask), free(b->masked);
        free(b->samples.first), free(b->samples.length), free(b->samples.labels);
    }
    free(batches->of), free(batches->filled);
    *batches = (struct dry_batches){ .steps = 0 };
}

/* List the samples of a batch that is filled: a token at position 0 begins one. */
static void list_samples(struct step_samples *samples, const struct plan *plan, const int32_t *labels,
                         const int32_t *within)
{
    int64_t n = 0;
    for (int64_t b = 0; b < plan->B; b++) {
        const int64_t end = (b + 1) * plan->S;
        int64_t counted = 0, length = 0;
        /* A sequence begins with a sample, so the last sample of the sequence before has ended. */
        for (int64_t i = b * plan->S; i < end; i++) {
            if (length > 0 && sample_position(within[i]) == 0) samples->length[n++] = length, length = 0;
            length++, counted += labels[i] != IGNORE_LABEL;
        }
        samples->length[n++] = length;
        samples->labels[b] += counted, samples->first[b + 1] = n;
    }
}

static const struct shared_batch *dry_batch_share(const void *context, int64_t step)
{
    const struct dry_batches *const all = context;
    const struct plan *const p = all->plan;
    struct shared_batch *const b = &all->of[step];
    const int64_t tokens = p->B * p->S;
    int32_t *const labels = b->tokens + tokens, *const within = labels + tokens;
    if (!all->filled[step]) {
        samples_fill(p->lengths, NULL, p->seed, step, 0, p->B, b->tokens, labels, within);
        list_samples(&b->samples, p, labels, within);
    }
    all->filled[step] = true;
    return b;
}

/* A trainer fills a batch of its own if the source does not share. */
static void dry_batch_never_fills(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                                  int32_t *labels, int32_t *within)
{
    (void)context, (void)step, (void)first, (void)count, (void)ids, (void)labels, (void)within;
}

struct batch_source dry_batches_source(struct dry_batches *batches)
{
    if (batches->steps == 0) return (struct batch_source){ .fill = NULL };
    return (struct batch_source){ .fill = dry_batch_never_fills, .share = dry_batch_share, .context = batches };
}
