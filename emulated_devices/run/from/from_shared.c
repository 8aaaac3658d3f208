/* from_shared.c -- arithmetic that several frameworks need: which preset a model is nearest to, how many copies there
 * are, and into how many microbatches a batch falls.  Files of this folder call these functions; a problem is kept in
 * struct from. */
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/comm/mesh.h"
#include <string.h>

/* ---- the model --------------------------------------------------------------------------------------------------- */

void from_model_word(const struct from_model *model, char *word, size_t size)
{
    model_preset_word(model->family, model->number, word, size);
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
