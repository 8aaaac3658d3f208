/* checkpoint_source.c -- opens the files of a checkpoint of either kind, and reads boxes from them.
 * checkpoint.c calls.  Errors: ERR_FILE, ERR_FORMAT with the tensor's name, ERR_MEMORY. */
#include "emulated_devices/model/checkpoint/checkpoint_source.h"
#include <stdio.h>

static enum error_code open_one(struct weights *file, bool *is_open, const struct checkpoint *checkpoint,
                                const char *name, struct error *err)
{
    char path[BUNDLE_PATH];
    bundle_find(&checkpoint->files, name, path);
    const enum error_code e = weights_open_file(file, path, err);
    *is_open = !e;
    return e;
}

enum error_code source_open(struct checkpoint_source *source, const struct checkpoint *checkpoint, bool states,
                            struct error *err)
{
    *source = (struct checkpoint_source){ .checkpoint = checkpoint };
    if (checkpoint->sharded) return sharded_open(&source->shards, &checkpoint->files, err);
    if (!checkpoint->there) {
        const enum error_code e = weights_open(&source->weights, checkpoint->dir, err);
        source->has_weights = !e;
        return e;
    }
    enum error_code e = open_one(&source->weights, &source->has_weights, checkpoint, WEIGHTS_FILE, err);
    return e || !states ? e : open_one(&source->states, &source->has_states, checkpoint, STATES_FILE, err);
}

void source_close(struct checkpoint_source *source)
{
    if (source->has_weights) weights_close(&source->weights);
    if (source->has_states) weights_close(&source->states);
    sharded_close(&source->shards);
    *source = (struct checkpoint_source){ 0 };
}

bool source_has(const struct checkpoint_source *source, const char *name)
{
    bool has = source->checkpoint->sharded && manifest_find(&source->shards.manifest, name) != NULL;
    for (int i = 0; source->has_weights && i < source->weights.files; i++)
        has = has || safetensors_find(&source->weights.file[i], name) != NULL;
    return has;
}

enum error_code source_read(struct checkpoint_source *source, const struct param_spec *spec, const char *suffix,
                            const struct box *box, enum dtype want, void *out, struct error *err)
{
    char name[TENSOR_NAME];
    if (!source->checkpoint->sharded)
        return weights_read_box(suffix[0] ? &source->states : &source->weights, spec, suffix, box->start, box->extent,
                                want, out, err);
    snprintf(name, sizeof name, "%s%s", spec->name, suffix);
    return sharded_read(&source->shards, name, spec->ndim, spec->dim, box, want, out, err);
}
