#include "emulated_devices/verify/check/stale.h"
#include "ref/model/transformer.h"
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

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* The weights that step k, from 1, began with. */
static enum error_code weights_before(struct transformer *m, const struct golden *g, const char *optimizer, int k,
                                      struct error *err)
{
    char name[160];
    enum error_code e = golden_read_biases(g, m->router_bias, err);
    for (int i = 0; i < m->params && !e; i++) {
        if (k == 1) snprintf(name, sizeof name, "start/%s", m->spec[i].name);
        else snprintf(name, sizeof name, "%.31s/%d/weight/%.*s", optimizer, k - 1, PARAM_NAME, m->spec[i].name);
        e = golden_read(g, name, F64, tensor_count(m->w[i]), m->w[i].data, err);
    }
    return e;
}

/* The gradient of a parameter, by the batch of step + 1 and the weights that `step` began with. */
static enum error_code with_old_weights(struct transformer *m, const struct golden *g, const char *optimizer, int step,
                                        struct error *err)
{
    double loss;
    const int64_t at = step * g->B * g->S;
    m->seed = dropout_seed(g->seed, step);
    enum error_code e = weights_before(m, g, optimizer, step, err);
    if (!e) e = transformer_forward(m, g->ids + at, g->labels + at, g->B, g->S, &loss, err);
    if (!e) transformer_backward(m);
    return e;
}

/* In 16 bits bounds are wide: it must also be much nearer than to what is right. */
static bool is_near(const double *have, struct tensor y, const double *right, double bound)
{
    double off = 0, size = 0, otherwise = 0;
    for (int64_t i = 0; i < tensor_count(y); i++) {
        const double want = tensor_get(y, i), d = have[i] - want, e = have[i] - right[i];
        off += d * d, size += want * want, otherwise += e * e;
    }
    return sqrt(off) <= bound * sqrt(size) && sqrt(off) <= sqrt(otherwise) / 2;
}

/* name: "adamw/2/grad/wte.weight". */
static bool has_old_weights(const struct golden *g, const char *name, int step, const double *have,
                            const double *right, double bound)
{
    struct transformer m;
    struct error ignored;
    char optimizer[32];
    bool same = false;
    const char *param = strstr(name, "/grad/") + strlen("/grad/");
    snprintf(optimizer, sizeof optimizer, "%.*s", (int)strcspn(name, "/"), name);
    if (step >= g->steps || transformer_open(&m, &g->config, F64, g->seed, &ignored) != OK) return false;
    const bool run = with_old_weights(&m, g, optimizer, step, &ignored) == OK;
    for (int i = 0; i < m.params && run; i++)
        if (strcmp(m.spec[i].name, param) == 0) same = is_near(have, m.g[i], right, bound);
    transformer_close(&m);
    return same;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

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
        if (format == NULL && has_old_weights(g, name, step, have, have + 2 * n, bound))
            format = "stale weights: it is what the weights that step %d began with give";
        if (format) snprintf(out, size, format, step);
    }
    free(have);
    return out;
}
