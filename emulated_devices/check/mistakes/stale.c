#include "emulated_devices/check/mistakes/stale.h"
#include "ref/model/operands.h"
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/turns.h"
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

/* ---- another pass ------------------------------------------------------------------------------------------------ */

/* What a pass may have in place of its own: weights or batch of the step before; or each copy of the model has the
 * tokens of the one `turn` further.  If labels turn, too, it is the masks of dropout that change places: then `turn` is
 * the other way.  The number in the words is that of the step before, or of the step where copies take turns. */
struct other { const char *words; bool weights, batch; int turn; bool labels; };

static const struct other others[] = {
    { "stale weights: it is what the weights that step %d began with give", .weights = true },
    { "stale: it is what the batch of step %d gives", .batch = true },
    { "copies take turns: in step %d each of them has the inputs of the next", .turn = 1 },
    { "copies take turns: in step %d each of them has the inputs of the one before", .turn = -1 },
    { "copies take turns: in step %d each of them has the masks of the next", .turn = -1, .labels = true },
    { "copies take turns: in step %d each of them has the masks of the one before", .turn = 1, .labels = true },
};

/* The weights that step k, from 1, began with. */
static enum error_code weights_before(struct transformer *m, const struct golden *g, const char *optimizer, int k,
                                      struct error *err)
{
    char name[160];
    enum error_code e = OK;
    for (int i = 0; i < m->params && !e; i++) {
        if (k == 1) snprintf(name, sizeof name, "start/%s", m->spec[i].name);
        else snprintf(name, sizeof name, "%.31s/%d/weight/%.*s", optimizer, k - 1, PARAM_NAME, m->spec[i].name);
        e = golden_read(g, name, F64, tensor_count(m->w[i]), m->w[i].data, err);
    }
    return e;
}

static enum error_code forward(struct transformer *m, const struct golden *g, const int32_t *ids, const int32_t *labels,
                               int step, struct error *err)
{
    double loss;
    m->seed = dropout_seed(g->seed, step);
    return transformer_forward(m, ids, labels, g->B, g->S, &loss, err);
}

/* The corrections of routers after so many steps.  Files have those of the start: they follow from what experts the
 * tokens of each step chose. */
static enum error_code biases_after(struct transformer *m, const struct golden *g, const char *optimizer, int steps,
                                    struct error *err)
{
    const int64_t n = g->B * g->S;
    const bool moves = m->config.mlp == MLP_MIXTURE && m->config.mixture.router.biased;
    enum error_code e = golden_read_biases(g, m->router_bias, err);
    for (int k = 0; k < steps && moves && !e; k++) {
        e = weights_before(m, g, optimizer, k + 1, err);
        if (!e) e = forward(m, g, g->ids + k * n, g->labels + k * n, k, err);
        if (!e) transformer_move_biases(m);
    }
    return e;
}

/* The tokens of a step, as a pass has them: [2 n] ids, then labels. */
static void fill(const struct golden *g, const struct other *o, int copies, int step, int32_t *to)
{
    const int64_t n = g->B * g->S, at = step * n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t turned = o->turn ? part_turned(g->B, copies, o->turn, i / g->S) * g->S + i % g->S : i;
        to[i] = g->ids[at + turned], to[n + i] = g->labels[at + (o->labels ? turned : i)];
    }
}

/* All gradients of step + 1, with something else in its place. */
static enum error_code run(struct transformer *m, const struct golden *g, const struct other *o, int copies,
                           const char *optimizer, int step, struct error *err)
{
    const int64_t n = g->B * g->S;
    int32_t *tokens = malloc(2 * (size_t)n * sizeof *tokens + 1);
    if (tokens == NULL) return fail(err, ERR_MEMORY, "no memory for a batch");
    fill(g, o, copies, o->batch ? step - 1 : step, tokens);
    enum error_code e = biases_after(m, g, optimizer, step, err);
    if (!e) e = weights_before(m, g, optimizer, o->weights ? step : step + 1, err);
    if (!e) e = forward(m, g, tokens, tokens + n, step, err);
    if (!e) transformer_backward(m);
    free(tokens);
    return e;
}

static bool cannot(const struct golden *g, const struct other *o, int copies)
{
    const struct model_config *c = &g->config;
    const bool drops = c->dropout_embedding > 0 || c->dropout_residual > 0 || c->dropout_attention > 0;
    return o->turn && (copies < ((o->turn > 0) == o->labels ? 3 : 2) || copies > g->B || (o->labels && !drops));
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
static bool is_of(const struct golden *g, const struct other *o, int copies, const char *name, int step,
                  const double *have, const double *right, double bound)
{
    struct transformer m;
    struct error ignored;
    char optimizer[32];
    bool same = false;
    const char *param = strstr(name, "/grad/") + strlen("/grad/");
    snprintf(optimizer, sizeof optimizer, "%.*s", (int)strcspn(name, "/"), name);
    if (cannot(g, o, copies) || transformer_open(&m, &g->config, F64, g->seed, &ignored) != OK) return false;
    const bool done = run(&m, g, o, copies, optimizer, step, &ignored) == OK;
    for (int i = 0; i < m.params && done; i++)
        if (strcmp(m.spec[i].name, param) == 0) same = is_near(have, m.g[i], right, bound);
    transformer_close(&m);
    return same;
}

static const struct other *other_pass(const struct golden *g, int copies, const char *name, int step,
                                      const double *have, const double *right, double bound)
{
    for (size_t k = 0; k < sizeof others / sizeof *others && step < g->steps; k++)
        if (is_of(g, &others[k], copies, name, step, have, right, bound)) return &others[k];
    return NULL;
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
        const struct other *o =
            format ? NULL : other_pass(g, a->mesh.size[DP], name, step, have, have + 2 * n, bound);
        if (format || o) snprintf(out, size, format ? format : o->words, o && o->turn ? step + 1 : step);
    }
    free(have);
    return out;
}
