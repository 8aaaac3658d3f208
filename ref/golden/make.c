/* make.c -- computes a golden file for a model and batches, with bounds, in fp64 on one device.
 *
 * cli/golden/make.c and bench/check_speed.c call golden_make; replay.c computes, bounds.c measures.  Errors are
 * ERR_PLAN for a model whose file would not be valid, ERR_DIVERGED, ERR_FILE and ERR_MEMORY; no file is left then.
 */
#include "ref/golden/make.h"
#include "ref/golden/bounds.h"
#include "ref/golden/seal.h"
#include "ref/io/json.h"
#include "ref/model/family.h"
#include "ref/model/sample_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* The list owns the tensor's memory, which is zeros. */
enum error_code golden_tensors_add(struct golden_tensors *list, const char *name, struct tensor like,
                                   struct tensor *tensor, struct error *err)
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
    *tensor = r->values;
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
static enum error_code add_record(struct golden_tensors *list, struct record *record, struct error *err)
{
    struct record *grown = realloc(list->all, (size_t)(list->count + 1) * sizeof *grown);
    if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for %s", record->name);
    list->all = grown;
    list->all[list->count++] = *record;
    record->values.data = NULL;
    return OK;
}

void golden_tensors_free(struct golden_tensors *list)
{
    for (int i = 0; i < list->count; i++) free(list->all[i].values.data);
    free(list->all);
    *list = (struct golden_tensors){ 0 };
}

enum { MOST_PAIRS = 12 + 8 * GOLDEN_MOST_OPTIMIZERS };

/* The metadata of the file, whose texts live here. */
struct notes {
    struct safetensors_pair pair[MOST_PAIRS];
    struct { char key[48], value[400]; } text[MOST_PAIRS];
    int count;
    char *config, *names;
};

static void make_note(struct notes *notes, const char *value, const char *key)
{
    snprintf(notes->text[notes->count].key, sizeof notes->text[0].key, "%s", key);
    snprintf(notes->text[notes->count].value, sizeof notes->text[0].value, "%s", value);
    notes->pair[notes->count] = (struct safetensors_pair){ notes->text[notes->count].key,
                                                          notes->text[notes->count].value };
    notes->count++;
}

static void note_number(struct notes *notes, double x, const char *optimizer, const char *key)
{
    char full[48], value[32];
    snprintf(full, sizeof full, "%s.%s", optimizer, key);
    snprintf(value, sizeof value, "%.17g", x);
    if (x != 0) make_note(notes, value, full);           /* what is missing reads as 0 */
}

/* The hyperparameters as golden_hyperparameters reads them. */
static void note_optimizer(struct notes *notes, const struct optimizer *optimizer, const struct hyperparameters *hyper)
{
    note_number(notes, hyper->beta1, optimizer->name, "beta1");
    note_number(notes, hyper->beta2, optimizer->name, "beta2");
    note_number(notes, hyper->eps, optimizer->name, "eps");
    note_number(notes, hyper->weight_decay, optimizer->name, "weight_decay");
    note_number(notes, hyper->momentum, optimizer->name, "momentum");
    note_number(notes, hyper->clip, optimizer->name, "clip");
}

static bool drops(const struct model_config *config)
{
    return config->dropout_embedding > 0 || config->dropout_residual > 0 || config->dropout_attention > 0;
}

/* These notes tell a reader where the numbers come from. */
static enum error_code make_describe(struct notes *notes, const struct golden *golden,
                                     const struct golden_request *request, struct error *err)
{
    char text[128] = "";
    make_note(notes, GOLDEN_MAKER, "generator");
    make_note(notes, golden->config.family->name, "model");
    snprintf(text, sizeof text, "%llu", (unsigned long long)golden->seed);
    make_note(notes, text, "seed");
    snprintf(text, sizeof text, "%lld", (long long)golden->micros);
    if (golden->micros > 0) make_note(notes, text, "microbatches");
    if (golden->every_step) make_note(notes, "all", "steps_kept");
    if (golden->as.text[0]) make_note(notes, golden->as.text, "as");
    if (drops(&golden->config))
        make_note(notes,
                  "kept where uniform(seed + 0x9E3779B97F4A7C15 (step + 1), stream \"dropout.LAYER.PLACE\", "
                  "row * columns + column) >= p, then times 1/(1-p); embedding: LAYER -1; probabilities: row "
                  "(b H + h) S + query; uniform: philox.py; the masks are the tensors mask/STEP/...",
                  "dropout");
    text[0] = '\0';
    for (int i = 0; i < request->optimizers; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", request->optimizer[i]->name);
        note_optimizer(notes, request->optimizer[i], &request->hyper[i]);
    }
    make_note(notes, text, "optimizers");
    enum error_code e = model_config_text(&golden->config, &notes->config, err);
    if (!e) e = golden_names_text(&golden->config, &notes->names, err);
    notes->pair[notes->count++] = (struct safetensors_pair){ "config", notes->config };
    notes->pair[notes->count++] = (struct safetensors_pair){ "names", notes->names };
    return e;
}

/* ---- the inputs -------------------------------------------------------------------------------------------------- */

/* Start weights are drawn from the seed or loaded; biases of routers are not parameters, so they come after. */
static enum error_code add_start(struct golden_tensors *list, const struct golden *golden, const char *weights,
                                 struct error *err)
{
    struct transformer m;
    enum error_code e = transformer_open(&m, &golden->config, F64, golden->seed, err);
    if (e) return e;
    if (weights) e = weights_load(&m, weights, err);
    for (int i = 0; i < m.params && !e; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", m.spec[i].name);
        e = add_copy(list, name, m.w[i], err);
    }
    for (int64_t l = 0; l < golden->config.L && !e; l++) {
        const struct param_spec s = model_router_bias(&golden->config, l);
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", s.name);
        if (s.ndim > 0) e = add_copy(list, name, tensor_1d(m.router_bias + l * s.dim[0], F64, s.dim[0]), err);
    }
    transformer_close(&m);
    return e;
}

/* The inputs are ids and labels [steps, B, S], a learning rate for each step, and the start weights. */
static enum error_code add_inputs(struct golden_tensors *list, const struct golden *golden,
                                  const struct golden_request *request, struct error *err)
{
    const struct tensor shape = { .dtype = I32, .ndim = 3, .dim = { golden->steps, golden->B, golden->S } };
    struct tensor ids = shape, labels = shape, rates = tensor_none;
    ids.data = golden->ids, labels.data = golden->labels;
    enum error_code e = add_copy(list, "ids", ids, err);
    if (!e) e = add_copy(list, "labels", labels, err);
    struct tensor positions = shape;
    positions.data = golden->positions;
    if (!e && positions.data) e = add_copy(list, GOLDEN_POSITIONS, positions, err);
    for (int i = 0; i < request->optimizers && !e; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "%s/lr", request->optimizer[i]->name);
        e = golden_tensors_add(list, name, tensor_1d(NULL, F64, golden->steps), &rates, err);
        for (int64_t t = 0; t < golden->steps && !e; t++)
            tensor_set(rates, t, request->rates ? request->rates[t] : learning_rate(&request->hyper[i], t + 1));
    }
    return e ? e : add_start(list, golden, request->weights, err);
}

/* A golden file that has inputs only: what the model computes from is what the file says.  It has no name any more
 * when this returns. */
static enum error_code open_inputs(struct golden *inputs, const struct golden_tensors *list, const struct notes *notes,
                                   const char *path, struct error *err)
{
    char name[4096];
    snprintf(name, sizeof name, "%.4000s.inputs.%ld", path, (long)getpid());
    enum error_code e = records_write(list->all, list->count, notes->pair, notes->count, name, err);
    if (e) return e;
    e = golden_open(inputs, name, err);
    unlink(name);
    return e;
}

/* ---- the results ------------------------------------------------------------------------------------------------- */

/* A microbatch without a label has no mean over labels that its routers' losses could stand beside. */
static bool lacks_labels(const struct golden *golden)
{
    for (int64_t k = 0; k < golden->micros; k++) {
        int64_t count;
        const int64_t first = golden_micro(golden, k, &count);
        if (golden_labels(golden, first, count) == 0) return true;
    }
    return false;
}

static bool has_padding(const struct golden *golden)
{
    for (int64_t i = 0; golden->positions && i < golden->steps * golden->B * golden->S; i++)
        if (is_padding(golden->positions[i])) return true;
    return false;
}

/* Gradients of microbatches have to add up to those of the batch, and dropped elements need masks.  These models
 * cannot have that. */
static enum error_code check_request(const struct golden *golden, struct error *err)
{
    const struct model_config *c = &golden->config;
    if (c->mlp == MLP_MIXTURE && c->mixture.balance_coefficient > 0 && golden->micros > 0 &&
        c->mixture.balance.over == OVER_BATCH)
        return fail(err, ERR_PLAN, "model %s: a balance loss of the whole batch is not a sum over microbatches; "
                    "without microbatches, or with --as %s,balance-over=microbatch", c->name, profile_names[AS_ORRERY]);
    if (mixture_layers(c) > 0 && lacks_labels(golden))
        return fail(err, ERR_PLAN, "model %s: routers' losses count tokens, the cross entropy counts labels; with "
                    "microbatches each needs a label that counts", c->name);
    if (mixture_layers(c) > 0 && has_padding(golden))
        return fail(err, ERR_PLAN, "model %s: routers' losses leave out padding, which `orrery check` does not; packed "
                    "sequences of a mixture must be full", c->name);
    if (c->loss.mean == MEAN_OF_PARTS && c->loss.parts > golden->B)
        return fail(err, ERR_PLAN, "--as: loss-parts=%lld: a batch of %lld sequences has at most as many parts",
                    (long long)c->loss.parts, (long long)golden->B);
    if (c->shortcut && drops(c))
        return fail(err, ERR_PLAN, "model %s: dropout beside a shortcut has no masks here; it must be 0", c->name);
    return OK;
}

/* A number that is not finite has no distance, so it would have no bound. */
static enum error_code check_finite(const struct replay *replay, struct error *err)
{
    for (int i = 0; i < replay->records; i++)
        for (int64_t k = 0; k < tensor_count(replay->record[i].values); k++)
            if (!isfinite(tensor_get(replay->record[i].values, k)))
                return fail(err, ERR_DIVERGED, "%s is not finite: element %lld is %g; a golden file needs a smaller "
                            "learning rate or smaller weights", replay->record[i].name, (long long)k,
                            tensor_get(replay->record[i].values, k));
    return OK;
}

/* Both files are complete, or neither is there: the tensors get their name last. */
static enum error_code write_both(const struct golden_tensors *list, const struct notes *notes, const char *path,
                                  const cJSON *bounds, struct error *err)
{
    struct safetensors_writer w;
    const struct bounds_path beside = bounds_beside(path);
    enum error_code e = records_start(&w, list->all, list->count, notes->pair, notes->count, path, err);
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

static void make_say(const struct golden_request *request, const char *what)
{
    if (request->progress) request->progress(request->context, what);
}

/* Every record gets this bound.  @param computed  [count] */
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

/* Bounds are measured by twins in every format, unless the request states one for all. */
static enum error_code make_measure(const struct golden *inputs, const struct golden_request *request,
                                    const struct record *computed, int count, cJSON **bounds, struct error *err)
{
    const struct bounds_watch watch = { request->twin, request->context };
    *bounds = bounds_document(request->path);
    enum error_code e = *bounds ? OK : fail(err, ERR_MEMORY, "no memory for the bounds of %s", request->path);
    if (!e && request->bound > 0) return give_bounds(*bounds, computed, count, request->bound, err);
    for (int f = 0; f < BOUND_FORMATS && !e; f++) {
        char text[64];
        snprintf(text, sizeof text, "bounds of %s, %d twins", dtype_name(bound_formats[f]),
                 bound_twins(bound_formats[f]));
        make_say(request, text);
        e = bounds_add(*bounds, inputs, bound_formats[f], request->twin ? &watch : NULL, err);
    }
    return e;
}

/* The true results are those of a run in fp64, then the masks of dropout. */
static enum error_code make_compute(struct golden_tensors *list, const struct golden *inputs,
                                    const struct golden_request *request, int *tensors, struct error *err)
{
    struct replay truth;
    enum error_code e = replay_run(&truth, inputs, F64, NULL, err);
    if (e) return e;
    *tensors = truth.records;
    e = check_finite(&truth, err);
    if (!e && request->computed) request->computed(request->context, &truth);
    for (int i = 0; i < truth.records && !e; i++) e = add_record(list, &truth.record[i], err);
    replay_free(&truth);
    return e ? e : golden_add_masks(list, inputs, err);
}

/* The inputs go through a file and back, so that results are those of exactly these numbers. */
static enum error_code ref_golden_make(const struct golden *golden, const struct golden_request *request,
                                       struct golden_tensors *list,
                                       const struct notes *notes, int *tensors, struct error *err)
{
    struct golden inputs;
    cJSON *bounds = NULL;
    enum error_code e = add_inputs(list, golden, request, err);
    if (!e) e = open_inputs(&inputs, list, notes, request->path, err);
    if (e) return e;
    /* Behind the inputs come the results, which have bounds. */
    const int first = list->count;
    make_say(request, "every tensor in fp64");
    e = make_compute(list, &inputs, request, tensors, err);
    if (!e) e = make_measure(&inputs, request, list->all + first, *tensors, &bounds, err);
    if (!e) e = seal_add(bounds, list->all, list->count, err);
    if (!e) e = write_both(list, notes, request->path, bounds, err);
    cJSON_Delete(bounds);
    golden_close(&inputs);
    return e;
}

/* Check the request, describe it, compute, measure, write. */
enum error_code golden_make(const struct golden *golden, const struct golden_request *request, int *tensors,
                            struct error *err)
{
    struct golden_tensors list = { 0 };
    struct notes *n = calloc(1, sizeof *n);
    enum error_code e = n ? check_request(golden, err) : fail(err, ERR_MEMORY, "no memory to make %s", request->path);
    if (!e) e = make_describe(n, golden, request, err);
    if (!e) e = ref_golden_make(golden, request, &list, n, tensors, err);
    golden_tensors_free(&list);
    if (n) free(n->config), free(n->names);
    free(n);
    return e;
}
