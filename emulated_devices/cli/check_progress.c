/* check_progress.c -- shows on a terminal how far a check is.  cli/check_judged.c calls, and the line itself comes from
 * ref/io/time_left.c.  The work is counted in elements to compare and to recompute.  No function reports errors. */
#include "emulated_devices/cli/check_progress.h"
#include "ref/golden/golden.h"
#include <string.h>

static const double share[] = { 0.25, 0.75 };   /* of the time: to recompute an operation takes longer */

static void check_progress_show(struct check_progress *progress, const char *name)
{
    double part = 0;
    for (int i = 0; i < 2; i++) {
        const double done = progress->all[i] > 0 ? progress->done[i] / progress->all[i] : 1;
        part += share[i] * (progress->phase > i || done > 1 ? 1 : done);
    }
    time_left_show(&progress->line, part, progress->phase ? "recomputing" : "comparing", name);
}

static void check_progress_see(void *context, const char *name, int64_t elements)
{
    struct check_progress *p = context;
    p->done[p->phase] += (double)elements;
    check_progress_show(p, name);
}

/* A run whose steps are not all in the file counts with the first pass only. */
static bool is_recomputed(const struct golden *golden, const char *name)
{
    const bool pass = strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0;
    return pass || ((golden->every_step || golden->steps == 1) && checked_kind_of(name) == KIND_STEP);
}

void check_progress_begin(struct check_progress *progress, const struct golden *golden, struct actual *actual)
{
    *progress = (struct check_progress){ .phase = 0 };
    time_left_begin(&progress->line);
    if (!progress->line.shown) return;
    for (int i = 0; i < golden->file.count; i++) {
        const struct safetensors_entry *t = &golden->file.entry[i];
        const bool weight = strncmp(t->name, "start/", 6) == 0;
        if ((golden_is_input(t->name) && !weight) || !actual_has(actual, t->name)) continue;
        progress->all[0] += (double)t->count;
        if (!weight && is_recomputed(golden, t->name)) progress->all[1] += (double)t->count;
    }
    actual->seen = check_progress_see, actual->seen_context = progress;
}

void check_progress_next(struct check_progress *progress) { progress->phase = 1; }

void check_progress_end(struct check_progress *progress) { time_left_end(&progress->line); }
