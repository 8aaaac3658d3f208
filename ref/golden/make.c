#include "ref/golden/make.h"
#include "ref/golden/bounds.h"
#include "ref/golden/seal.h"
#include "ref/io/json.h"
#include "ref/model/weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists ------------------------------------------------------------------------------------------------------- */

enum error_code golden_tensors_add(struct golden_tensors *list, const char *name, struct tensor like, struct tensor *t,
                                   struct error *err)
{
    struct record *grown = realloc(list->all, (size_t)(list->count + 1) * sizeof *grown);
    if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for %s", name);
    list->all = grown;
    struct record *r = &list->all[list->count];
    *r = (struct record){ .values = like };
    snprintf(r->name, sizeof r->name, "%s", name);
    r->values.data = calloc(1, tensor_bytes(like) + 1);
    if (r->values.data == NULL) return fail(err, ERR_MEMORY, "no memory for %s", name);
    list->count++;
    *t = r->values;
    return OK;
}

static enum error_code add_copy(struct golden_tensors *list, const char *name, struct tensor of, struct error *err)
{
    struct tensor t = tensor_none;
    const enum error_code e = golden_tensors_add(list, name, of, &t, err);
    if (!e) memcpy(t.data, of.data, tensor_bytes(of));
    return e;
}

/* The list takes over the numbers. */
static enum error_code add_record(struct golden_tensors *list, struct record *r, struct error *err)
{
    struct record *grown = realloc(list->all, (size_t)(list->count + 1) * sizeof *grown);
    if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for %s", r->name);
    list->all = grown;
    list->all[list->count++] = *r;
    r->values.data = NULL;
    return OK;
}

void golden_tensors_free(struct golden_tensors *list)
{
    for (int i = 0; i < list->count; i++) free(list->all[i].values.data);
    free(list->all);
    *list = (struct golden_tensors){ 0 };
}

enum { MOST_PAIRS = 12 + 8 * GOLDEN_MOST_OPTIMIZERS };

struct notes {
    struct safetensors_pair pair[MOST_PAIRS];
    struct { char key[48], value[400]; } text[MOST_PAIRS];
    int count;
    char *config;
};

static void note(struct notes *n, const char *value, const char *key)
{
    snprintf(n->text[n->count].key, sizeof n->text[0].key, "%s", key);
    snprintf(n->text[n->count].value, sizeof n->text[0].value, "%s", value);
    n->pair[n->count] = (struct safetensors_pair){ n->text[n->count].key, n->text[n->count].value };
    n->count++;
}

static void note_number(struct notes *n, double x, const char *optimizer, const char *key)
{
    char full[48], value[32];
    snprintf(full, sizeof full, "%s.%s", optimizer, key);
    snprintf(value, sizeof value, "%.17g", x);
    if (x != 0) note(n, value, full);           /* what is missing reads as 0 */
}

static void note_optimizer(struct notes *n, const struct optimizer *o, const struct hyperparameters *h)
{
    note_number(n, h->beta1, o->name, "beta1");
    note_number(n, h->beta2, o->name, "beta2");
    note_number(n, h->eps, o->name, "eps");
    note_number(n, h->weight_decay, o->name, "weight_decay");
    note_number(n, h->momentum, o->name, "momentum");
    note_number(n, h->clip, o->name, "clip");
}

static bool drops(const struct model_config *c)
{
    return c->dropout_embedding > 0 || c->dropout_residual > 0 || c->dropout_attention > 0;
}

/* What a reader needs to know of the numbers. */
static enum error_code describe(struct notes *n, const struct golden *g, const struct golden_request *q,
                                struct error *err)
{
    char text[128] = "";
    note(n, GOLDEN_MAKER, "generator");
    note(n, model_family_name(model_family(&g->config)), "model");
    snprintf(text, sizeof text, "%llu", (unsigned long long)g->seed);
    note(n, text, "seed");
    snprintf(text, sizeof text, "%lld", (long long)g->micros);
    if (g->micros > 0) note(n, text, "microbatches");
    if (g->every_step) note(n, "all", "steps_kept");
    if (g->as.text[0]) note(n, g->as.text, "as");
    if (drops(&g->config))
        note(n, "kept where uniform(seed + 0x9E3779B97F4A7C15 (step + 1), stream \"dropout.LAYER.PLACE\", row * columns"
                " + column) >= p, then times 1/(1-p); embedding: LAYER -1; probabilities: row (b H + h) S + query;"
                " uniform: philox.py; the masks are the tensors mask/STEP/...",
             "dropout");
    text[0] = '\0';
    for (int i = 0; i < q->optimizers; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", q->optimizer[i]->name);
        note_optimizer(n, q->optimizer[i], &q->hyper[i]);
    }
    note(n, text, "optimizers");
    const enum error_code e = model_config_text(&g->config, &n->config, err);
    n->pair[n->count++] = (struct safetensors_pair){ "config", n->config };
    return e;
}

/* ---- the inputs -------------------------------------------------------------------------------------------------- */

static enum error_code add_start(struct golden_tensors *list, const struct golden *g, const char *weights,
                                 struct error *err)
{
    struct transformer m;
    enum error_code e = transformer_open(&m, &g->config, F64, g->seed, err);
    if (e) return e;
    if (weights) e = weights_load(&m, weights, err);
    for (int i = 0; i < m.params && !e; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", m.spec[i].name);
        e = add_copy(list, name, m.w[i], err);
    }
    for (int64_t l = 0; l < g->config.L && !e; l++) {
        const struct param_spec s = model_router_bias(&g->config, l);
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", s.name);
        if (s.ndim > 0) e = add_copy(list, name, tensor_1d(m.router_bias + l * s.dim[0], F64, s.dim[0]), err);
    }
    transformer_close(&m);
    return e;
}

static enum error_code add_inputs(struct golden_tensors *list, const struct golden *g, const struct golden_request *q,
                                  struct error *err)
{
    const struct tensor shape = { .dtype = I32, .ndim = 3, .dim = { g->steps, g->B, g->S } };
    struct tensor ids = shape, labels = shape, rates = tensor_none;
    ids.data = g->ids, labels.data = g->labels;
    enum error_code e = add_copy(list, "ids", ids, err);
    if (!e) e = add_copy(list, "labels", labels, err);
    for (int i = 0; i < q->optimizers && !e; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "%s/lr", q->optimizer[i]->name);
        e = golden_tensors_add(list, name, tensor_1d(NULL, F64, g->steps), &rates, err);
        for (int64_t t = 0; t < g->steps && !e; t++) tensor_set(rates, t, q->hyper[i].lr);
    }
    return e ? e : add_start(list, g, q->weights, err);
}

/* A golden file that has inputs only: what the model computes from is what the file says.  It has no name any more
 * when this returns. */
static enum error_code open_inputs(struct golden *inputs, const struct golden_tensors *list, const struct notes *n,
                                   const char *path, struct error *err)
{
    char name[4096];
    snprintf(name, sizeof name, "%.4000s.inputs.%ld", path, (long)getpid());
    enum error_code e = records_write(list->all, list->count, n->pair, n->count, name, err);
    if (e) return e;
    e = golden_open(inputs, name, err);
    unlink(name);
    return e;
}

/* ---- the results ------------------------------------------------------------------------------------------------- */

/* Whether each microbatch of the first step has the share of the batch's labels that it has of the sequences. */
static bool labels_are_even(const struct golden *g)
{
    bool even = true;
    for (int64_t k = 0; k < g->micros; k++) {
        int64_t count;
        const int64_t first = golden_micro(g, k, &count);
        even = even && golden_labels(g, first, count) * g->B == golden_labels(g, 0, g->B) * count;
    }
    return even;
}

static enum error_code check_request(const struct golden *g, struct error *err)
{
    const struct model_config *c = &g->config;
    if (c->mlp == MLP_MIXTURE && c->mixture.balance_coefficient > 0 && g->micros > 0 &&
        c->mixture.balance.over == OVER_BATCH)
        return fail(err, ERR_PLAN, "model %s: a balance loss of the whole batch is not a sum over microbatches; "
                    "without microbatches, or with --as %s,balance-over=microbatch", c->name, profile_names[AS_ORRERY]);
    if (c->mlp == MLP_MIXTURE && g->micros > 0 && !labels_are_even(g))
        return fail(err, ERR_PLAN, "model %s: routers' losses count tokens, the cross entropy counts labels; with "
                    "microbatches each must have the same share of both", c->name);
    if (c->shortcut && drops(c))
        return fail(err, ERR_PLAN, "model %s: dropout beside a shortcut has no masks here; it must be 0", c->name);
    return OK;
}

static enum error_code check_finite(const struct replay *r, struct error *err)
{
    for (int i = 0; i < r->records; i++)
        for (int64_t k = 0; k < tensor_count(r->record[i].values); k++)
            if (!isfinite(tensor_get(r->record[i].values, k)))
                return fail(err, ERR_DIVERGED, "%s is not finite: element %lld is %g; a golden file needs a smaller "
                            "learning rate or smaller weights", r->record[i].name, (long long)k,
                            tensor_get(r->record[i].values, k));
    return OK;
}

/* Both files are complete, or neither is there: the tensors get their name last. */
static enum error_code write_both(const struct golden_tensors *list, const struct notes *n, const char *path,
                                  const cJSON *bounds, struct error *err)
{
    struct safetensors_writer w;
    const struct bounds_path beside = bounds_beside(path);
    enum error_code e = records_start(&w, list->all, list->count, n->pair, n->count, path, err);
    if (e) return e;
    e = json_write(beside.text, bounds, err);
    if (e) {
        safetensors_abort(&w);
        return e;
    }
    e = safetensors_commit(&w, err);
    if (e) unlink(beside.text);
    return e;
}

static void say(const struct golden_request *q, const char *what)
{
    if (q->progress) q->progress(q->context, what);
}

/* The same bound for all.  @param computed  [count] */
static enum error_code give_bounds(cJSON *root, const struct record *computed, int count, double bound,
                                   struct error *err)
{
    bool ok = true;
    for (int f = 0; f < BOUND_FORMATS; f++) {
        cJSON *format = cJSON_AddObjectToObject(root, dtype_name(bound_formats[f])),
              *list = cJSON_AddObjectToObject(format, "bounds");
        for (int i = 0; i < count && ok; i++) ok = cJSON_AddNumberToObject(list, computed[i].name, bound) != NULL;
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the bounds of %d tensors", count);
}

static enum error_code measure(const struct golden *inputs, const struct golden_request *q,
                               const struct record *computed, int count, cJSON **bounds, struct error *err)
{
    const struct bounds_watch watch = { q->twin, q->context };
    *bounds = bounds_document(q->path);
    enum error_code e = *bounds ? OK : fail(err, ERR_MEMORY, "no memory for the bounds of %s", q->path);
    if (!e && q->bound > 0) return give_bounds(*bounds, computed, count, q->bound, err);
    for (int f = 0; f < BOUND_FORMATS && !e; f++) {
        char text[64];
        snprintf(text, sizeof text, "bounds of %s, %d twins", dtype_name(bound_formats[f]),
                 bound_twins(bound_formats[f]));
        say(q, text);
        e = bounds_add(*bounds, inputs, bound_formats[f], q->twin ? &watch : NULL, err);
    }
    return e;
}

static enum error_code compute(struct golden_tensors *list, const struct golden *inputs, int *tensors,
                               struct error *err)
{
    struct replay truth;
    enum error_code e = replay_run(&truth, inputs, F64, NULL, err);
    if (e) return e;
    *tensors = truth.records;
    e = check_finite(&truth, err);
    for (int i = 0; i < truth.records && !e; i++) e = add_record(list, &truth.record[i], err);
    replay_free(&truth);
    return e ? e : golden_add_masks(list, inputs, err);
}

static enum error_code make(const struct golden *g, const struct golden_request *q, struct golden_tensors *list,
                            const struct notes *n, int *tensors, struct error *err)
{
    struct golden inputs;
    cJSON *bounds = NULL;
    enum error_code e = add_inputs(list, g, q, err);
    if (!e) e = open_inputs(&inputs, list, n, q->path, err);
    if (e) return e;
    const int first = list->count;
    say(q, "every tensor in fp64");
    e = compute(list, &inputs, tensors, err);
    if (!e) e = measure(&inputs, q, list->all + first, *tensors, &bounds, err);
    if (!e) e = seal_add(bounds, list->all, list->count, err);
    if (!e) e = write_both(list, n, q->path, bounds, err);
    cJSON_Delete(bounds);
    golden_close(&inputs);
    return e;
}

enum error_code golden_make(const struct golden *g, const struct golden_request *q, int *tensors, struct error *err)
{
    struct golden_tensors list = { 0 };
    struct notes *n = calloc(1, sizeof *n);
    enum error_code e = n ? check_request(g, err) : fail(err, ERR_MEMORY, "no memory to make %s", q->path);
    if (!e) e = describe(n, g, q, err);
    if (!e) e = make(g, q, &list, n, tensors, err);
    golden_tensors_free(&list);
    if (n) free(n->config);
    free(n);
    return e;
}
