/* adapters.c -- merges adapters into a one-device model's matrices for a pass, and folds gradients into theirs.
 * transformer.c opens and closes the memory, forward.c and backward.c call the rest; config.c checks a model's.
 * ERR_USAGE names a set that is none; ERR_PLAN says what a model cannot have. */
#include "ref/model/adapters.h"
#include "ref/io/output.h"
#include "ref/model/params.h"
#include "ref/model/trained.h"
#include "ref/model/kinds.h"
#include "ref/model/transformer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name; enum adapted_set set; } names[] = {
    { "attention", LOW_ON_ATTENTION }, { "feed", LOW_ON_FEED }, { "experts", LOW_ON_EXPERTS },
};
enum { NAMES = sizeof names / sizeof *names };

enum error_code adapted_read(unsigned *sets, const char *list, struct error *err)
{
    *sets = 0;
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        unsigned found = 0;
        for (int i = 0; i < NAMES; i++)
            if (strlen(names[i].name) == n && strncmp(names[i].name, at, n) == 0) found = names[i].set;
        if (!found)
            return fail(err, ERR_USAGE, "--lora-of %s: there are attention, feed and experts", printable(list).text);
        *sets |= found, at += n;
        if (*at == '\0') return OK;
    }
}

struct adapted_text adapted_text(unsigned sets)
{
    struct adapted_text t = { "" };
    size_t used = 0;
    for (int i = 0; i < NAMES; i++)
        if (sets & names[i].set)
            used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%s", used > 0 ? "," : "", names[i].name);
    return t;
}

bool param_is_adapted(const struct model_config *config, const struct param_spec *spec)
{
    const unsigned of = config->adapters.rank > 0 && spec->ndim == 2 ? config->adapters.of : 0;
    switch (spec->role) {
    case ROLE_QKV: case ROLE_ATTENTION_OUT: return of & LOW_ON_ATTENTION;
    case ROLE_UP: case ROLE_DOWN: return of & (spec->expert >= 0 ? LOW_ON_EXPERTS : LOW_ON_FEED);
    case ROLE_DENSE_UP: case ROLE_DENSE_DOWN: return of & LOW_ON_FEED;
    default: return false;
    }
}

static enum error_code check_trained(const struct model_config *config, struct error *err)
{
    static const struct { unsigned of; enum trained_class class; const char *name; } sets[] = {
        { LOW_ON_ATTENTION, CLASS_ATTENTION, "attention" }, { LOW_ON_FEED, CLASS_FEED, "feed" },
        { LOW_ON_EXPERTS, CLASS_EXPERTS, "experts" },
    };
    if (!(config->trains >> CLASS_ADAPTERS & 1))
        return fail(err, ERR_PLAN, "--train-only %s: without adapters, which --lora adds to be trained",
                    trained_text(config->trains).text);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (config->adapters.of & sets[i].of && config->trains >> sets[i].class & 1)
            return fail(err, ERR_PLAN, "--train-only %s: matrices of %s have adapters, and do not train beside these",
                        trained_text(config->trains).text, sets[i].name);
    return OK;
}

enum error_code adapters_check(const struct model_config *config, struct error *err)
{
    const struct adapters_config *const a = &config->adapters;
    const bool mixture = config->mlp == MLP_MIXTURE, dense = !mixture || layer_set_count(&config->dense.at, config->L);
    if (a->rank == 0 && config->trains >> CLASS_ADAPTERS & 1)
        return fail(err, ERR_PLAN, "--train-only adapters: there are none; --lora RANK adds them");
    if (a->rank == 0) return OK;
    if (a->rank < 0 || a->rank > config->D || !(a->alpha > 0) || !isfinite(a->alpha))
        return fail(err, ERR_PLAN, "--lora %lld: the rank must be from 1 to D=%lld, and --lora-alpha above 0",
                    (long long)a->rank, (long long)config->D);
    if (config->shortcut)
        return fail(err, ERR_PLAN, "--lora: model %s has two blocks in a layer, whose matrices have no adapters",
                    config->name);
    if ((a->of & LOW_ON_EXPERTS && !mixture) || (a->of & LOW_ON_FEED && !dense) || a->of == 0)
        return fail(err, ERR_PLAN, "--lora-of: model %s has no %s", config->name,
                    a->of & LOW_ON_EXPERTS && !mixture ? "experts" : "feed-forward that all tokens share");
    return check_trained(config, err);
}

/* The matrix of an adapter whose A is parameter i; -1: parameter i is no A. */
static int adapters_matrix(const struct transformer *model, int i)
{
    return model->spec[i].role == ROLE_LOW_IN ? param_adapted(&model->config, i) : -1;
}

bool adapters_open(struct transformer *model)
{
    if (model->config.adapters.rank == 0) return true;
    model->apart = calloc((size_t)model->params, sizeof *model->apart);
    bool ok = model->apart != NULL;
    for (int i = 0; i < model->params && ok; i++) {
        const int w = adapters_matrix(model, i);
        if (w < 0) continue;
        model->apart[w] = malloc(tensor_bytes(model->w[w]) + 1);
        ok = model->apart[w] != NULL;
    }
    return ok;
}

void adapters_close(struct transformer *model)
{
    for (int i = 0; model->apart && i < model->params; i++) free(model->apart[i]);
    free(model->apart);
    model->apart = NULL;
}

/* The memory of a matrix and that of its merged form change places. */
static void exchange(struct transformer *model, int w)
{
    void *const other = model->apart[w];
    model->apart[w] = model->w[w].data;
    model->w[w].data = other;
}

/* merged [out, in] = W + s B A, one element after another. */
static void merge_one(const struct transformer *model, int w, struct tensor A, struct tensor B)
{
    const double s = adapters_scale(&model->config);
    const struct tensor merged = model->w[w];
    struct tensor own = merged;
    own.data = model->apart[w];
    const int64_t in = tensor_cols(A), rank = tensor_rows(A);
    for (int64_t o = 0; o < tensor_rows(B); o++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < rank; r++) sum += tensor_get(B, o * rank + r) * tensor_get(A, r * in + i);
            tensor_set(merged, o * in + i, tensor_get(own, o * in + i) + s * sum);
        }
}

void adapters_merge(struct transformer *model)
{
    for (int i = 0; i < model->params && model->apart; i++) {
        const int w = adapters_matrix(model, i);
        if (w >= 0) exchange(model, w), merge_one(model, w, model->w[i], model->w[i + 1]);
    }
}

void adapters_split(struct transformer *model)
{
    for (int i = 0; i < model->params && model->apart; i++) {
        const int w = adapters_matrix(model, i);
        if (w >= 0) exchange(model, w);
    }
}

/* dA += s B^T dW, dB += s dW A^T. */
static void fold_one(struct transformer *model, int a, struct tensor dW)
{
    const double s = adapters_scale(&model->config);
    const struct tensor A = model->w[a], B = model->w[a + 1], dA = model->g[a], dB = model->g[a + 1];
    const int64_t in = tensor_cols(A), rank = tensor_rows(A), out = tensor_rows(B);
    for (int64_t r = 0; r < rank; r++) {
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < out; o++) sum += tensor_get(B, o * rank + r) * tensor_get(dW, o * in + i);
            tensor_set(dA, r * in + i, tensor_get(dA, r * in + i) + s * sum);
        }
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++) sum += tensor_get(dW, o * in + i) * tensor_get(A, r * in + i);
            tensor_set(dB, o * rank + r, tensor_get(dB, o * rank + r) + s * sum);
        }
    }
}

void adapters_fold(struct transformer *model)
{
    for (int i = 0; i < model->params && model->apart; i++) {
        const int w = adapters_matrix(model, i);
        if (w >= 0) fold_one(model, i, model->g[w]);
    }
    for (int i = 0; i < model->params; i++)
        if (!param_trains(&model->config, &model->spec[i])) memset(model->g[i].data, 0, tensor_bytes(model->g[i]));
}
