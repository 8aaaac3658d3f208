#include "emulated_devices/model/checkpoint.h"
#include "emulated_devices/model/checkpoint_states.h"
#include "ref/model/weights.h"
#include "ref/numeric/convert.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code read_boxes(const struct weights *file, const struct param_spec *s, const char *suffix, const struct layout *l,
                                  struct tensor into, struct error *err)
{
    enum error_code e = OK;
    char *next = into.data;
    for (int b = 0; b < l->boxes && !e; b++) {
        const struct box *box = &l->box[b];
        e = weights_read_box(file, s, suffix, box->start, box->extent, into.dtype, next, err);
        next += (size_t)(box->extent[0] * (l->ndim == 2 ? box->extent[1] : 1)) * dtype_size(into.dtype);
    }
    return e;
}

static void path_of(char path[PATH_ROOM], const char *dir, const char *file) { snprintf(path, PATH_ROOM, "%s/%s", dir, file); }

/* The weights are what is read, rounded: of 16-bit weights files have the masters. */
static enum error_code keep_weights(struct trainer *t, const struct parameter *p, struct tensor piece, struct error *err)
{
    struct tensor rounded = tensor_1d(NULL, t->plan.dtype, tensor_count(piece));
    rounded.data = malloc(tensor_bytes(rounded) + 1);
    if (rounded.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", p->spec.name);
    tensor_convert(rounded, piece);
    if (data_has_masters(&t->data)) collect_keep(t, p, KIND_MASTER, piece);
    collect_keep(t, p, KIND_WEIGHT, rounded);
    free(rounded.data);
    return OK;
}

/* A device that keeps only some elements of its boxes reads all of them, one tensor at a time. */
static enum error_code read_own(struct trainer *t, const struct weights *file, const struct parameter *p, const char *suffix,
                                enum tensor_kind kind, struct error *err)
{
    const struct param_spec spec = data_spec(&t->data, &p->spec, kind);
    const struct layout layout = data_keeps_whole(&t->data, kind) ? layout_whole(spec.ndim, spec.dim) : p->layout;
    struct tensor piece = tensor_1d(NULL, dtype_wide(t->plan.dtype), layout_count(&layout));
    if (spec.ndim == 0) return OK;
    piece.data = malloc(tensor_bytes(piece) + 1);
    if (piece.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", p->spec.name);
    enum error_code e = read_boxes(file, &spec, suffix, &layout, piece, err);
    if (!e && (kind == KIND_WEIGHT || kind == KIND_MASTER)) e = keep_weights(t, p, piece, err);
    else if (!e) collect_keep(t, p, kind, piece);
    free(piece.data);
    return e;
}

static enum error_code read_weights(struct trainer *t, const struct weights *file, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < t->parameters.count && !e; i++) {
        e = read_own(t, file, &t->parameters.all[i], "", KIND_WEIGHT, err);
    }
    if (!e) e = data_requantise(&t->data, err);
    if (!e) data_same_versions(&t->data);            /* files have one version: training starts anew from it */
    if (!e) data_start_round(&t->data);
    return e;
}

enum error_code checkpoint_load_weights(struct trainer *t, const char *dir, struct error *err)
{
    struct weights file;
    enum error_code e = weights_open(&file, dir, err);
    if (!e) {
        e = weights_check_tied(&file, &t->plan.model, err);
        if (!e) e = read_weights(t, &file, err);
        weights_close(&file);
    }
    return comm_agree(t->comm, e, err);
}

/* A count in metadata; -1 if it is none. */
static int64_t count_of(const char *text)
{
    const size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits < 16 && text[digits] == '\0' ? atoll(text) : -1;
}

/* A file of a run that had none says nothing about it, or 1. */
static enum error_code read_loss_scale(struct trainer *t, const struct safetensors *states, struct error *err)
{
    const char *scale = safetensors_metadata(states, "orrery.loss_scale"), *good = safetensors_metadata(states, "orrery.loss_scale.good");
    const char *skipped = safetensors_metadata(states, "orrery.skipped");
    if (skipped == NULL) return OK;
    t->skipped = t->skipped_before = count_of(skipped);
    if (t->skipped < 0 || t->skipped > t->step)
        return fail(err, ERR_FORMAT, "%s: orrery.skipped is %.40s; it must be a number of steps", shown_path(states->path).text, shown(skipped).text);
    if (t->loss_scale.interval == 0 || scale == NULL || good == NULL) return OK;
    char *end;
    const double x = strtod(scale, &end);
    if (*end != '\0' || !(x >= 0x1p-149 && x <= 0x1p127) || count_of(good) < 0)
        return fail(err, ERR_FORMAT, "%s: orrery.loss_scale is %.40s, after %.40s good steps; it must be a positive number", shown_path(states->path).text,
                    shown(scale).text, shown(good).text);
    t->loss_scale.scale = x, t->loss_scale.good = count_of(good);
    return OK;
}

/* A run whose replicas train apart goes on with as many. */
static enum error_code check_replicas(const struct trainer *t, const struct safetensors *states, struct error *err)
{
    const char *text = safetensors_metadata(states, "orrery.replicas");
    const int own = shards_replicas(&t->data.shards);
    if (text == NULL) return OK;
    if (!t->data.shards.apart)
        return fail(err, ERR_FORMAT, "%s: of %.20s replicas that train apart, with --data-parallel local-sgd or diloco; --model DIR takes what their last "
                    "outer step made", shown_path(states->path).text, text);
    if (count_of(text) != own)
        return fail(err, ERR_FORMAT, "%s: of %.20s replicas that train apart; --data-parallel %s makes %d of --dp %d", shown_path(states->path).text, text,
                    t->data.scheme->name, own, t->plan.mesh.size[DP]);
    return OK;
}

/* The step that both files must have been written at. */
static enum error_code read_progress(struct trainer *t, const struct safetensors *weights, const struct safetensors *states, struct error *err)
{
    const char *a = safetensors_metadata(weights, "orrery.step"), *b = safetensors_metadata(states, "orrery.step");
    const char *optimizer = safetensors_metadata(states, "orrery.optimizer"), *seed = safetensors_metadata(states, "orrery.seed");
    char own_seed[32];
    snprintf(own_seed, sizeof own_seed, "%llu", (unsigned long long)t->plan.seed);
    if (count_of(a) < 0 || count_of(b) < 0 || optimizer == NULL || seed == NULL)
        return fail(err, ERR_FORMAT, "%s: not a checkpoint of orrery train --save; --model DIR takes its weights alone", shown_path(states->path).text);
    if (strcmp(a, b) != 0)
        return fail(err, ERR_FORMAT, "%s is of step %.20s, the weights beside it of step %.20s: saving was interrupted", shown_path(states->path).text, b, a);
    if (strcmp(optimizer, t->plan.optimizer->name) != 0)
        return fail(err, ERR_FORMAT, "%s has the state of %.40s; --optimizer is %s", shown_path(states->path).text, shown(optimizer).text, t->plan.optimizer->name);
    if (strcmp(seed, own_seed) != 0)
        return fail(err, ERR_FORMAT, "%s was made with --seed %.20s; --seed is %s", shown_path(states->path).text, shown(seed).text, own_seed);
    t->step = count_of(a);
    const enum error_code e = check_replicas(t, states, err);
    return e ? e : read_loss_scale(t, states, err);
}

/* Of replicas that train apart a device reads its own.  A file of copies that did not serves all of them: here they part. */
static enum error_code read_states(struct trainer *t, const struct weights *file, struct error *err)
{
    const char *replicas = safetensors_metadata(&file->file[0], "orrery.replicas");
    const int count = checkpoint_states(t, replicas ? shards_replicas(&t->data.shards) : 0, NULL);
    struct state_tensor *list = malloc((size_t)count * sizeof *list + 1);
    enum error_code e = list ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d states", count);
    if (!e) checkpoint_states(t, replicas ? shards_replicas(&t->data.shards) : 0, list);
    for (int k = 0; k < count && !e; k++) {
        const bool own = replicas == NULL || kind_is_common(list[k].kind) || list[k].replica == shards_replica_of(&t->data.shards, t->dp.rank);
        for (int i = 0; i < t->parameters.count && own && !e; i++)
            e = read_own(t, file, &t->parameters.all[i], list[k].suffix, list[k].kind, err);
    }
    free(list);
    return e;
}

enum error_code checkpoint_resume(struct trainer *t, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    struct weights weights, states;
    path_of(path, dir, "model.safetensors");
    enum error_code e = weights_open_file(&weights, path, err);
    if (!e) {
        path_of(path, dir, "optimizer.safetensors");
        e = weights_open_file(&states, path, err);
        if (!e) {
            e = read_progress(t, &weights.file[0], &states.file[0], err);
            if (!e) e = read_weights(t, &weights, err);
            if (!e) e = read_states(t, &states, err);
            weights_close(&states);
        }
        weights_close(&weights);
    }
    return comm_agree(t->comm, e, err);
}

enum error_code checkpoint_batch(const char *dir, int64_t *batch, struct error *err)
{
    struct weights w;
    enum error_code e = weights_open(&w, dir, err);
    if (e) return e;
    const int64_t found = count_of(safetensors_metadata(&w.file[0], "orrery.batch"));
    if (found > 0) *batch = found;
    weights_close(&w);
    return OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

/* One of the two files, as rank 0 writes it. */
static enum error_code start_file(struct weights_writer *w, const struct trainer *t, const char *path, const struct param_spec *spec,
                                  const struct state_tensor *list, int count, struct error *err)
{
    const char **suffix = malloc((size_t)count * sizeof *suffix + 1);
    char step[32], seed[32], batch[32], scale[32], good[32], skipped[32], replicas[32];
    if (suffix == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d tensors", count);
    for (int k = 0; k < count; k++) suffix[k] = list[k].suffix;
    snprintf(scale, sizeof scale, "%.17g", t->loss_scale.scale);
    snprintf(good, sizeof good, "%lld", (long long)t->loss_scale.good);
    snprintf(skipped, sizeof skipped, "%lld", (long long)t->skipped);
    snprintf(batch, sizeof batch, "%lld", (long long)t->plan.B);
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)t->plan.seed);
    snprintf(replicas, sizeof replicas, "%d", shards_replicas(&t->data.shards));
    const struct safetensors_pair metadata[] = {
        { "format", "pt" }, { "orrery.step", step }, { "orrery.seed", seed }, { "orrery.optimizer", t->plan.optimizer->name }, { "orrery.batch", batch },
        { "orrery.loss_scale", scale }, { "orrery.loss_scale.good", good }, { "orrery.skipped", skipped }, { "orrery.replicas", replicas },
    };
    const enum error_code e = weights_create(w, spec, model_param_count(&t->plan.model), dtype_wide(t->plan.dtype), path, suffix, count, metadata,
                                             (int)(sizeof metadata / sizeof *metadata) - !t->data.shards.apart, err);
    free(suffix);
    return e;
}

/* What a file has of each parameter. */
static void list_specs(const struct trainer *t, const struct state_tensor *list, int count, struct param_spec *out)
{
    for (int i = 0; i < model_param_count(&t->plan.model) * count; i++) {
        const struct param_spec s = t->spec[i / count];
        out[i] = data_spec(&t->data, &s, list[i % count].kind);
    }
}

/* Every device takes part in collecting, also when rank 0 has failed already. */
static enum error_code write_tensors(struct trainer *t, struct weights_writer *w, const struct state_tensor *list, int count, enum error_code e,
                                     struct error *err)
{
    for (int i = 0; i < model_param_count(&t->plan.model) * count; i++) {
        const struct state_tensor *of = &list[i % count];
        const struct param_spec parameter = t->spec[i / count], s = data_spec(&t->data, &parameter, of->kind);
        if (s.ndim == 0) continue;
        const enum dtype format = data_format(&t->data, of->kind);
        struct tensor whole = s.ndim == 2 ? tensor_2d(NULL, format, s.dim[0], s.dim[1]) : tensor_1d(NULL, format, s.dim[0]);
        if (t->comm->rank == 0 && !e) {
            whole.data = malloc(tensor_bytes(whole));
            if (whole.data == NULL) e = fail(err, ERR_MEMORY, "no memory to collect %s", s.name);
        }
        e = comm_agree(t->comm, e, err);
        if (e) return e;
        e = collect_replica(t, of->replica, i / count, of->kind, whole, err);
        if (!e && t->comm->rank == 0) e = weights_write(w, i / count, i % count, whole.data, err);
        free(whole.data);
    }
    return comm_agree(t->comm, e, err);
}

/* @param[out] made  whether it was not there. */
static enum error_code make_folder(const char *dir, bool *made, struct error *err)
{
    struct stat st;
    *made = false;
    if (strlen(dir) > PATH_ROOM - 100) return fail(err, ERR_FILE, "%s: this name is too long", shown_path(dir).text);
    *made = mkdir(dir, 0777) == 0;
    if (*made || (errno == EEXIST && stat(dir, &st) == 0 && S_ISDIR(st.st_mode))) return OK;
    return fail(err, ERR_FILE, "%s: this folder cannot be made: %s", shown_path(dir).text, strerror(errno == EEXIST ? ENOTDIR : errno));
}

enum error_code checkpoint_probe(const char *dir, struct error *err)
{
    static const char *const files[] = { "config.json", "model.safetensors", "optimizer.safetensors" };
    char path[PATH_ROOM];
    bool made;
    enum error_code e = make_folder(dir, &made, err);
    for (int i = 0; i < 3 && !e; i++) {
        path_of(path, dir, files[i]);
        e = output_probe(path, err);
    }
    if (made) rmdir(dir);
    return e;
}

/* All that can fail first: the names change last, one right after the other. */
static enum error_code commit(struct weights_writer *weights, struct weights_writer *states, const struct model_config *config,
                              const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    path_of(path, dir, "config.json");
    enum error_code e = output_flush(&weights->writer.file, err);
    if (!e) e = output_flush(&states->writer.file, err);
    if (!e) e = model_config_write(config, path, err);
    if (!e) e = weights_commit(states, err);
    if (!e) e = weights_commit(weights, err);
    return e;
}

enum error_code checkpoint_save(struct trainer *t, const char *dir, struct error *err)
{
    struct weights_writer weights = { 0 }, states = { 0 };
    const struct state_tensor model = checkpoint_weights(t);
    const int replicas = t->data.shards.apart ? shards_replicas(&t->data.shards) : 0, count = checkpoint_states(t, replicas, NULL);
    struct state_tensor *list = malloc((size_t)count * sizeof *list + 1);
    const size_t params = (size_t)model_param_count(&t->plan.model);
    struct param_spec *specs = malloc(params * (size_t)count * sizeof *specs + 1), *model_specs = malloc(params * sizeof *model_specs);
    const bool writer = t->comm->rank == 0;
    char path[PATH_ROOM];
    bool made = false;
    enum error_code e = comm_agree(t->comm, list && specs && model_specs ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d states", count), err);
    if (!e) checkpoint_states(t, replicas, list), list_specs(t, list, count, specs), list_specs(t, &model, 1, model_specs);
    if (!e && writer) e = make_folder(dir, &made, err);
    path_of(path, dir, "model.safetensors");
    if (writer && !e) e = start_file(&weights, t, path, model_specs, &model, 1, err);
    path_of(path, dir, "optimizer.safetensors");
    if (writer && !e) e = start_file(&states, t, path, specs, list, count, err);
    e = write_tensors(t, &weights, &model, 1, e, err);
    if (!e) e = write_tensors(t, &states, list, count, e, err);
    if (writer && !e) e = commit(&weights, &states, &t->plan.model, dir, err);
    weights_abort(&weights);
    weights_abort(&states);
    free(list), free(specs), free(model_specs);
    if (e && made) rmdir(dir);
    return comm_agree(t->comm, e, err);
}
