#include "emulated_devices/verify/check/stale.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the step before's: "grad/wte.weight".  @return the step before; 0 if there is none. */
static int before(const char *name, char *out, size_t size)
{
    const char *slash = strchr(name, '/'), *grad = strstr(name, "/grad/");
    const int step = slash && grad && grad != slash ? atoi(slash + 1) : 0;
    if (step < 2) return 0;
    if (step == 2) snprintf(out, size, "%s", grad + 1);
    else snprintf(out, size, "%.*s/%d%s", (int)(slash - name), name, step - 1, grad);
    return step - 1;
}

static bool is_there(const struct actual *a, const char *name, const int64_t dim[2], double *x)
{
    struct assembly all;
    struct error ignored;
    return assembly_make(&all, a, name, dim, x, NULL, &ignored) == OK && all.any && all.missing == 0;
}

static const char *words(const double *have, const double *old, const double *right, int64_t n, double bound)
{
    double off = 0, size = 0;
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const double d = have[i] - old[i] - right[i];
        same = same && have[i] == old[i];
        off += d * d, size += right[i] * right[i];
    }
    if (same) return "stale: it is that of step %d";
    return sqrt(off) <= bound * sqrt(size) ? "that of step %d has been added to it: it is not cleared" : NULL;
}

const char *stale_describe(char *out, size_t size, const struct golden *g, const struct actual *a, const char *name,
                           double bound)
{
    char old_name[160];
    struct error ignored;
    const struct safetensors_entry *entry = safetensors_find(&g->file, name);
    const int step = before(name, old_name, sizeof old_name);
    out[0] = 0;
    if (step == 0 || entry == NULL || entry->ndim < 1) return out;
    const int64_t dim[2] = { entry->dim[0], entry->ndim > 1 ? entry->dim[1] : 1 }, n = dim[0] * dim[1];
    double *have = calloc(3 * (size_t)n + 1, sizeof *have);
    if (have && is_there(a, name, dim, have) && is_there(a, old_name, dim, have + n) &&
        golden_read(g, name, F64, n, have + 2 * n, &ignored) == OK) {
        const char *format = words(have, have + n, have + 2 * n, n, bound);
        if (format) snprintf(out, size, format, step);
    }
    free(have);
    return out;
}
