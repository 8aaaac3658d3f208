#include "emulated_devices/cli/check_progress.h"
#include "emulated_devices/cli/measure.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 30, BESIDE = 37 };        /* columns: of the bar; of the rest but the name */
static const double share[] = { 0.25, 0.75 };   /* of the time: to recompute an operation takes longer */

/* "3 min left"; nothing before it can be told. */
static const char *left_of(const struct check_progress *p, double part, char out[16])
{
    const double gone = measure_now() - p->began, left = gone / part * (1 - part);
    out[0] = 0;
    if (gone < 1 || part < 0.02) return out;
    if (left < 100) snprintf(out, 16, "%.0f s left", left);
    else if (left < 6000) snprintf(out, 16, "%.0f min left", left / 60);
    else snprintf(out, 16, "%.0f h left", fmin(left / 3600, 999));
    return out;
}

static void show(struct check_progress *p, const char *name)
{
    double part = 0;
    char bar[WIDTH + 1] = "", left[16];
    const int columns = terminal_columns(stderr), width = columns < WIDTH + BESIDE ? columns - BESIDE : WIDTH;
    for (int i = 0; i < 2; i++) {
        const double done = p->all[i] > 0 ? p->done[i] / p->all[i] : 1;
        part += share[i] * (p->phase > i || done > 1 ? 1 : done);
    }
    const int percent = (int)(100 * part);
    if (percent == p->percent) return;
    p->percent = percent;
    for (int i = 0; i < width; i++) bar[i] = i < (int)(part * width) ? '#' : '-';
    fprintf(stderr, "\r[%s] %3d %%  %s %s%s%.*s\033[K", bar, percent, p->phase ? "recomputing" : "comparing  ",
            left_of(p, part, left), left[0] ? "  " : "", columns - width - BESIDE, name);
    fflush(stderr);
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
    *p = (struct check_progress){ .shown = isatty(STDERR_FILENO), .percent = -1, .began = measure_now() };
    if (!p->shown) return;
    for (int i = 0; i < g->file.count; i++) {
        const struct safetensors_entry *t = &g->file.entry[i];
        if (golden_is_input(t->name) || !actual_has(a, t->name)) continue;
        p->all[0] += (double)t->count;
        if (is_recomputed(g, t->name)) p->all[1] += (double)t->count;
    }
    a->seen = see, a->seen_context = p;
}

void check_progress_next(struct check_progress *p) { p->phase = 1; }

void check_progress_end(struct check_progress *p)
{
    if (p->shown && p->percent >= 0) fprintf(stderr, "\r\033[K");
}
