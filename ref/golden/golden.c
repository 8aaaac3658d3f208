/* golden.c -- opens golden files and reads their tensors, checked by their hashes.
 *
 * replay.c, make.c, check/ and cli/ call this file; golden.h declares its functions with seal.h.  Errors are
 * ERR_FORMAT, ERR_FILE and ERR_MEMORY, which name the file.  After a failed open there is nothing to close.
 */
#include "ref/golden/seal.h"
#include "ref/io/file_kind.h"
#include "ref/io/json.h"
#include "ref/model/balance.h"
#include "ref/model/loss_rule.h"
#include "ref/model/sample_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* Everything else in the file is a result, which a run has to compute. */
bool golden_is_input(const char *name)
{
    return strcmp(name, "ids") == 0 || strcmp(name, "labels") == 0
           || strcmp(name, GOLDEN_POSITIONS) == 0 || begins(name, "init/") || begins(name, "start/")
           || begins(name, "mask/") || (strlen(name) > 3 && strcmp(name + strlen(name) - 3, "/lr") == 0);
}

/* A hash is of the stored bytes, so it is checked only if nothing was converted. */
enum error_code golden_read(const struct golden *golden, const char *name, enum dtype dtype, int64_t count, void *out,
                            struct error *err)
{
    const struct safetensors_entry *e = safetensors_find(&golden->file, name);
    if (e == NULL) return fail(err, ERR_FORMAT, "%s: there is no tensor %s",
                               printable_path(golden->file.path).text, name);
    if (e->count != count)
        return fail(err, ERR_FORMAT, "%s: %s has %lld elements; its model has %lld",
                    printable_path(golden->file.path).text, name, (long long)e->count, (long long)count);
    const enum error_code read = safetensors_read(&golden->file, e, dtype, out, err);
    return read || strcmp(e->dtype, dtype_file_name(dtype)) != 0 ? read
           : seal_check(golden, name, out, (size_t)e->bytes, err);
}

/* Elements first .. first + count - 1 of a tensor of any shape, as one row. */
enum error_code golden_read_some(const struct golden *golden, const char *name, int64_t first,
                                 int64_t count, double *out, struct error *err)
{
    const struct safetensors_entry *e = safetensors_find(&golden->file, name);
    if (e == NULL) return fail(err, ERR_FORMAT, "%s: there is no tensor %s",
                               printable_path(golden->file.path).text, name);
    struct safetensors_entry row = *e;
    row.ndim = 1, row.dim[0] = e->count;
    return safetensors_read_box(&golden->file, &row, &first, &count, false, F64, out, err);
}

/* The tensor passes in pieces, so that it need not fit into memory; its hash is complete at the end. */
enum error_code golden_each(const struct golden *golden, const char *name,
                            void (*f)(void *context, const double *values, int64_t count), void *context,
                            struct error *err)
{
    enum { SOME = 1 << 16 };
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    double *some = malloc(SOME * sizeof *some);
    enum error_code e = some ? OK : fail(err, ERR_MEMORY, "no memory to read %s", name);
    /* The hash of the pieces is that of the whole tensor in fp64. */
    uint64_t hash = seal_begin(entry ? (size_t)entry->bytes : 0);
    if (!e && entry == NULL) e = golden_read_some(golden, name, 0, 0, some, err);
    for (int64_t at = 0; !e && at < entry->count; at += SOME) {
        const int64_t n = entry->count - at < SOME ? entry->count - at : SOME;
        e = golden_read_some(golden, name, at, n, some, err);
        if (e) break;
        hash = seal_more(hash, some, (size_t)n);
        f(context, some, n);
    }
    free(some);
    if (e || golden->seal == NULL || strcmp(entry->dtype, dtype_file_name(F64)) != 0) return e;
    return seal_check_hash(golden, name, seal_end(hash, NULL, 0), err);
}

static enum error_code read_tokens(struct golden *golden, const char *name, int32_t **out, struct error *err)
{
    const int64_t count = golden->steps * golden->B * golden->S;
    *out = malloc((size_t)count * sizeof **out + 1);
    if (*out == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)count);
    return golden_read(golden, name, I32, count, *out, err);
}

/* Whoever reads a row by its position relies on positions without holes. */
enum error_code golden_check_positions(const struct golden *golden, const char *where, struct error *err)
{
    const int64_t sequences = golden->steps * golden->B;
    if (golden->positions == NULL) return OK;
    if (STREAMS(&golden->config) > 1)
        return fail(err, ERR_PLAN, "%s: packed documents: model %s has parallel streams, which run none", where,
                    golden->config.name);
    int32_t *mask = malloc((size_t)(2 * sequences * golden->S) * sizeof *mask + 1);
    const enum error_code e = mask
        ? sample_mask(mask, &golden->config.mask, golden->positions, sequences, golden->S, err)
        : fail(err, ERR_MEMORY, "no memory for a mask");
    free(mask);
    return fail_about(err, e, where);
}

/* The shape of ids is that of the batches: steps, sequences, tokens. */
static enum error_code read_batches(struct golden *golden, struct error *err)
{
    const struct safetensors_entry *ids = safetensors_find(&golden->file, "ids");
    if (ids == NULL || ids->ndim != 3 || ids->count < 1)
        return fail(err, ERR_FORMAT, "%s: no golden file: it needs a tensor ids [steps, batch, tokens]",
                    printable_path(golden->file.path).text);
    golden->steps = ids->dim[0], golden->B = ids->dim[1], golden->S = ids->dim[2];
    if (golden->steps > GOLDEN_MOST_STEPS)
        return fail(err, ERR_FORMAT, "%s: has %lld steps; at most %d", printable_path(golden->file.path).text,
                    (long long)golden->steps, GOLDEN_MOST_STEPS);
    enum error_code e = read_tokens(golden, "ids", &golden->ids, err);
    if (!e) e = read_tokens(golden, "labels", &golden->labels, err);
    if (!e && safetensors_find(&golden->file, GOLDEN_POSITIONS))
        e = read_tokens(golden, GOLDEN_POSITIONS, &golden->positions, err);
    if (!e) e = golden_check_positions(golden, printable_path(golden->file.path).text, err);
    if (e == ERR_USAGE) e = err->code = ERR_FORMAT;     /* the file's positions are nobody's words */
    return e;
}

/* The loss of logits; its parts are the file's microbatches where the words do not say how many. */
static enum error_code golden_take_loss(struct golden *golden, struct error *err)
{
    struct loss_rule *rule = &golden->config.loss;
    *rule = loss_rule_of(&golden->as);
    if (rule->mean != MEAN_OF_PARTS) return OK;
    if (rule->parts == 0) rule->parts = golden->micros;
    if (rule->parts == 0)
        return fail(err, ERR_USAGE, "--as: loss-mean=parts: the golden file has no microbatches; loss-parts=N says "
                    "how many parts the batch has");
    if (golden->B == 0 || rule->parts <= golden->B) return OK;
    return fail(err, ERR_USAGE, "--as: loss-parts=%lld: a batch of %lld sequences has at most as many parts",
                (long long)rule->parts, (long long)golden->B);
}

/* A file that does not say over what balance losses are has them over the whole batch. */
enum error_code golden_take_conventions(struct golden *golden, const char *as, struct error *err)
{
    const bool balances = golden->config.mlp == MLP_MIXTURE && golden->config.mixture.balance_coefficient > 0;
    char text[CONVENTIONS_TEXT + 64];
    snprintf(text, sizeof text, "%s,balance-over=batch", as ? as : profile_names[AS_ORRERY]);
    const bool whole = balances && (as == NULL || !conventions_say(as, BALANCE_OVER));
    enum error_code e = whole ? conventions_parse(&golden->as, text, err) : as
        ? conventions_parse(&golden->as, as, err) : OK;
    golden->config.mixture.balance = balance_rule_of(&golden->as);
    if (!e && balances && golden->config.mixture.balance.over == OVER_MICROBATCH && golden->micros == 0)
        e = fail(err, ERR_USAGE, "--as: balance-over=microbatch: the golden file has no microbatches");
    return e ? e : golden_take_loss(golden, err);
}

/* An error of the file's conventions is ERR_FORMAT, not a wrong option. */
static enum error_code read_conventions(struct golden *golden, struct error *err)
{
    const char *as = safetensors_metadata(&golden->file, "as");
    struct error why;
    if (golden_take_conventions(golden, as, &why) == OK) return OK;
    return fail(err, ERR_FORMAT, "%s: its metadata has steps as %s; `orrery list profiles` has what there is (%s)",
                printable_path(golden->file.path).text, printable(as ? as : "").text, why.text);
}

/* Read the file's extent: its microbatches, whether it has every step, and whose steps they are. */
static enum error_code read_extent(struct golden *golden, struct error *err)
{
    const char *micros = safetensors_metadata(&golden->file, "microbatches"),
               *kept = safetensors_metadata(&golden->file, "steps_kept");
    golden->every_step = kept != NULL && strcmp(kept, "all") == 0;
    golden->micros = micros ? strtoll(micros, NULL, 10) : 0;
    if (micros == NULL || (golden->micros >= 1 && golden->micros <= golden->B)) return read_conventions(golden, err);
    return fail(err, ERR_FORMAT, "%s: its metadata has %s microbatches; a batch of %lld sequences has 1 to %lld",
                printable_path(golden->file.path).text, printable(micros).text, (long long)golden->B,
                (long long)golden->B);
}

/* The order matters: the model's shape is needed for batches, and batches for microbatches. */
enum error_code golden_open(struct golden *golden, const char *path, struct error *err)
{
    *golden = (struct golden){ 0 };
    enum error_code e = safetensors_open(&golden->file, path, err);
    if (e) return file_kind_refuse(e, path, "a golden file", FILE_GOLDEN, err);
    golden->seal = seal_read(path);
    const char *config = safetensors_metadata(&golden->file, "config"),
        *seed = safetensors_metadata(&golden->file, "seed");
    if (config == NULL || seed == NULL)
        e = file_kind_refuse(fail(err, ERR_FORMAT, "%s: no golden file: its metadata needs config and seed",
                                  printable_path(path).text), path, "a golden file", FILE_GOLDEN, err);
    if (!e) e = model_config_parse(&golden->config, config, path, err);
    if (!e) golden->seed = strtoull(seed, NULL, 10);
    if (!e) e = read_batches(golden, err);
    if (!e) e = read_extent(golden, err);
    if (e) golden_close(golden);
    return e;
}

void golden_close(struct golden *golden)
{
    free(golden->ids), free(golden->labels), free(golden->positions);
    cJSON_Delete(golden->seal);
    if (golden->file.path) safetensors_close(&golden->file);
    *golden = (struct golden){ 0 };
}

/* Labels that count in a loss, of sequences first .. first + count - 1 of the first step. */
int64_t golden_labels(const struct golden *golden, int64_t first, int64_t count)
{
    int64_t labels = 0;
    for (int64_t i = first * golden->S; i < (first + count) * golden->S; i++) labels += golden->labels[i] >= 0;
    return labels;
}

int64_t golden_balance_micros(const struct golden *golden)
{
    return golden->config.mlp == MLP_MIXTURE && golden->config.mixture.balance.over == OVER_MICROBATCH
           ? golden->micros : 0;
}

bool golden_is_own(const struct golden *golden)
{
    const char *generator = safetensors_metadata(&golden->file, "generator");
    return generator != NULL && strcmp(generator, GOLDEN_MAKER) == 0;
}

static double golden_number(const struct golden *golden, const char *optimizer, const char *key)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", optimizer, key);
    const char *text = safetensors_metadata(&golden->file, full);
    return text ? strtod(text, NULL) : 0;
}

/* A number that is missing in the metadata is 0. */
struct hyperparameters golden_hyperparameters(const struct golden *golden, const char *o)
{
    return (struct hyperparameters){ .beta1 = golden_number(golden, o, "beta1"),
                                     .beta2 = golden_number(golden, o, "beta2"),
                                     .eps = golden_number(golden, o, "eps"),
                                     .weight_decay = golden_number(golden, o, "weight_decay"),
                                     .momentum = golden_number(golden, o, "momentum"),
                                     .clip = golden_number(golden, o, "clip"),
                                     .as = golden->as };
}

/* Start with list NULL; the result is the rest of the list, NULL at its end. */
const char *golden_next_optimizer(const struct golden *golden, const char *list, char name[32])
{
    const char *all = safetensors_metadata(&golden->file, "optimizers");
    if (list == NULL) list = all ? all : "";
    list += strspn(list, " ");
    const size_t n = strcspn(list, " ");
    if (n == 0) return NULL;
    snprintf(name, 32, "%.*s", (int)n, list);
    return list + n;
}

/* bias gets the biases of all layers side by side, E for each; layers without them keep what is there. */
enum error_code golden_read_biases(const struct golden *golden, double *bias, struct error *err)
{
    enum error_code e = OK;
    for (int64_t l = 0; l < golden->config.L && !e; l++) {
        const struct param_spec s = model_router_bias(&golden->config, l);
        char name[PARAM_NAME + 8];
        snprintf(name, sizeof name, "start/%s", s.name);
        if (s.ndim > 0) e = golden_read(golden, name, F64, s.dim[0], bias + l * s.dim[0], err);
    }
    return e;
}
