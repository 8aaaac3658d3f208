/* dry_batch.c -- fills the batches of a plan with lengths, once for all devices.  dry_run.c and alone.c call.  The only
 * error is ERR_MEMORY. */
#include "emulated_devices/train/dry_run/dry_batch.h"
#include "ref/io/samples.h"
#include <stdlib.h>
#include <string.h>

enum error_code dry_batches_open(struct dry_batches *batches, const struct plan *plan, int64_t steps,
                                 struct error *err)
{
    const size_t n = plan->lengths ? (size_t)steps : 0, tokens = (size_t)(plan->B * plan->S);
    *batches = (struct dry_batches){ .plan = plan, .of = calloc(n + 1, sizeof *batches->of),
                                     .filled = calloc(n + 1, sizeof *batches->filled) };
    bool ok = batches->of && batches->filled;
    for (; batches->steps < (int64_t)n && ok; batches->steps++) {
        struct shared_batch *const b = &batches->of[batches->steps];
        *b = (struct shared_batch){ .tokens = malloc(3 * tokens * sizeof *b->tokens),
                                    .mask = malloc(2 * tokens * sizeof *b->mask),
                                    .masked = calloc((size_t)plan->B, sizeof *b->masked) };
        ok = b->tokens && b->mask && b->masked;
    }
    if (ok) return OK;
    dry_batches_close(batches);
    return fail(err, ERR_MEMORY, "no memory for the batches of %lld steps", (long long)steps);
}

void dry_batches_close(struct dry_batches *batches)
{
    for (int64_t i = 0; i < batches->steps; i++)
        free(batches->of[i].tokens), free(batches->of[i].mask), free(batches->of[i].masked);
    free(batches->of), free(batches->filled);
    *batches = (struct dry_batches){ .steps = 0 };
}

static const struct shared_batch *dry_batch_share(const void *context, int64_t step)
{
    const struct dry_batches *const all = context;
    const struct plan *const p = all->plan;
    struct shared_batch *const b = &all->of[step];
    const int64_t tokens = p->B * p->S;
    if (!all->filled[step])
        samples_fill(p->lengths, NULL, p->seed, step, 0, p->B, b->tokens, b->tokens + tokens, b->tokens + 2 * tokens);
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
