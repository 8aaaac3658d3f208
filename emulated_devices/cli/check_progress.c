#include "emulated_devices/cli/check_progress.h"
#include <string.h>

static const double share[] = { 0.25, 0.75 };   /* of the time: to recompute an operation takes longer */

static void show(struct check_progress *p, const char *name)
{
    double part = 0;
    for (int i = 0; i < 2; i++) {
        const double done = p->all[i] > 0 ? p->done[i] / p->all[i] : 1;
        part += share[i] * (p->phase > i || done > 1 ? 1 : done);
    }
    time_left_show(&p->line, part, p->phase ? "recomputing" : "comparing", name);
}

static void see(void *context, const char *name, int64_t elements)
{
    struct check_progress *p = context;
    p->done[p->phase] += (double)elements;
    show(p, name);
}

/* Of a run whose steps are not all in the file only the first pass. */
static bool is_recomputed(const struct golden *g, const char *name)
{
    const bool pass = strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0;
    return pass || ((g->every_step || g->steps == 1) && checked_kind_of(name) == KIND_STEP);
}

void check_progress_begin(struct check_progress *p, const struct golden *g, struct actual *a)
{
    *p = (struct check_progress){ .phase = 0 };
    time_left_begin(&p->line);
    if (!p->line.shown) return;
    for (int i = 0; i < g->file.count; i++) {
        const struct safetensors_entry *t = &g->file.entry[i];
        const bool weight = strncmp(t->name, "start/", 6) == 0;
        if ((golden_is_input(t->name) && !weight) || !actual_has(a, t->name)) continue;
        p->all[0] += (double)t->count;
        if (!weight && is_recomputed(g, t->name)) p->all[1] += (double)t->count;
    }
    a->seen = see, a->seen_context = p;
}

void check_progress_next(struct check_progress *p) { p->phase = 1; }

void check_progress_end(struct check_progress *p) { time_left_end(&p->line); }
