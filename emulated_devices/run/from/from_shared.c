/* from_shared.c -- arithmetic that several frameworks need: which preset a model is nearest to, how many copies there
 * are, and into how many microbatches a batch falls.  Files of this folder call these functions; a problem is kept in
 * struct from. */
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/comm/mesh.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include <string.h>

/* ---- the model --------------------------------------------------------------------------------------------------- */

enum { FROM_SIZES = sizeof MODEL_SIZE_LETTERS - 1, FROM_LEAST_POSITIONS = 1024 };

/* The sizes of a preset, in the order of MODEL_SIZE_LETTERS. */
static void from_sizes_of(const struct model_config *config, int64_t number[FROM_SIZES])
{
    const bool mixture = config->mlp == MLP_MIXTURE;
    const int64_t all[FROM_SIZES] = { config->L, config->D, config->H, config->K, config->A, config->F, config->V,
                                      config->S, mixture ? config->mixture.E : 0, mixture ? config->mixture.k : 0 };
    memcpy(number, all, sizeof all);
}

/* Presets of the kind are those that differ in sizes alone: no windows, no shared experts, no dense layers. */
static bool from_is_candidate(const struct model_config *config, const struct from_model *model)
{
    return strcmp(config->family->name, model->family) == 0
           && config->mixture.shared == 0 && config->dense.F == 0 && config->windows.size == 0;
}

static int from_other_sizes(const struct model_config *config, const struct from_model *model)
{
    int64_t number[FROM_SIZES];
    /* A preset for small meshes is taken only if its family has no other. */
    int others = config->S < FROM_LEAST_POSITIONS ? FROM_SIZES : 0;
    from_sizes_of(config, number);
    for (int i = 0; i < FROM_SIZES; i++) others += model->number[i] != 0 && model->number[i] != number[i];
    return others;
}

/* Whether --model gives a size by itself: key heads and the width of a head follow from the others (sizes.c). */
static bool from_follows(const struct from_model *model, const int64_t preset[FROM_SIZES], int at)
{
    enum { D = 1, H = 2, K = 3, A = 4 };
    if (at == K) return preset[K] == preset[H] && model->number[K] == model->number[H];
    return at == A && preset[A] * preset[H] == preset[D] && model->number[A] * model->number[H] == model->number[D];
}

/* The preset with the fewest other sizes.  If its layers differ in number or width it is another model, whose name
 * would mislead: then the first preset of the kind that is no small one. */
static const struct model_config *from_nearest(const struct from_model *model)
{
    const struct model_config *best = NULL, *first = NULL;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        const struct model_config *const c = &p->config;
        if (!from_is_candidate(c, model)) continue;
        if (best == NULL || from_other_sizes(c, model) < from_other_sizes(best, model)) best = c;
        if (first == NULL || (first->S < FROM_LEAST_POSITIONS && c->S >= FROM_LEAST_POSITIONS)) first = c;
    }
    return best && best->L == model->number[0] && best->D == model->number[1] ? best : first;
}

void from_model_word(const struct from_model *model, char *word, size_t size)
{
    const struct model_config *const best = from_nearest(model);
    int64_t number[FROM_SIZES];
    word[0] = '\0';
    if (best == NULL) return;
    from_sizes_of(best, number);
    size_t used = (size_t)snprintf(word, size, "%s", best->name);
    bool any = false;
    for (int i = 0; i < FROM_SIZES && used < size; i++) {
        if (model->number[i] == 0 || model->number[i] == number[i] || from_follows(model, number, i)) continue;
        used += (size_t)snprintf(word + used, size - used, "%c%c=%lld", any ? ',' : ':', MODEL_SIZE_LETTERS[i],
                                 (long long)model->number[i]);
        any = true;
    }
}

/* ---- the mesh ---------------------------------------------------------------------------------------------------- */

int64_t from_copies(struct from *from, int64_t devices, int64_t others, const char *devices_key, const char *keys)
{
    const int64_t typed = from_typed_whole(from, "--dp", 0);
    if (from->failed || typed > 0) return typed > 0 ? typed : 1;
    if (devices == 0) {
        from->failed = fail(from->err, ERR_USAGE, "%s: does not say on how many devices it runs (%s); add --dp N, the "
                            "number of copies", from->file, devices_key);
        return 1;
    }
    if (others < 1 || devices % others != 0) {
        from->failed = fail(from->err, ERR_USAGE, "%s: %s = %lld devices cannot be divided by %s = %lld; --dp N says "
                            "how many copies there are", from->file, devices_key, (long long)devices, keys,
                            (long long)others);
        return 1;
    }
    return devices / others;
}

void from_need_model(struct from *from)
{
    if (from->failed || from_typed(from, "--model")) return;
    from->failed = fail(from->err, ERR_USAGE, "%s: says nothing of the model; add --model NAME|DIR", from->file);
}

void from_batch(struct from *from, const char *batch_key, const char *micro_key, int64_t batch, int64_t micro,
                int64_t dp)
{
    const int64_t all = from_typed_whole(from, "--batch", batch);
    if (from->failed) return;
    if (micro < 1 || dp < 1 || micro > INT32_MAX / dp || all % (micro * dp) != 0) {
        from->failed = fail(from->err, ERR_USAGE, "%s: %s%s: a batch of %lld cannot be divided by %s%s %lld times %lld "
                            "copies", from->file, from->framework->dashes, batch_key, (long long)all,
                            from->framework->dashes, micro_key, (long long)micro, (long long)dp);
        return;
    }
    from_say(from, batch_key, "--batch", "%lld", (long long)batch);
    from_say(from, micro_key, "--micro", "%lld", (long long)(all / (micro * dp)));
}
