/* checkpoint.c -- reads checkpoints; checkpoint_write.c writes them.  run/session.c and run/speaker.c call the
 * readers; run/words/take.c opens the folder.  Errors: ERR_FILE, ERR_FORMAT with the file's name, ERR_MEMORY. */
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/checkpoint_source.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "emulated_devices/model/collection/holding.h"
#include "ref/machine/threads.h"
#include "ref/model/kinds.h"
#include "ref/model/weights.h"
#include "ref/numeric/convert.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = BUNDLE_PATH };

const struct bundle_kind checkpoint_files = {
    .title = "a checkpoint of orrery", .list = CHECKPOINT_LIST,
    .name = { CONFIG_FILE, WEIGHTS_FILE, STATES_FILE, TRAINING_FILE, ORIGIN_FILE },
};

const struct bundle_kind sharded_files = {
    .title = "a sharded checkpoint of orrery", .list = CHECKPOINT_LIST,
    .name = { CONFIG_FILE, SHARDS_FILE, TRAINING_FILE, ORIGIN_FILE },
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void path_of(char path[PATH_ROOM], const char *dir, const char *file)
{
    snprintf(path, PATH_ROOM, "%s/%s", dir, file);
}

/* Read boxes into a piece, from the first of its elements that they have; in the order of its memory they are next to
 * each other. */
static enum error_code read_boxes(struct checkpoint_source *source, const struct param_spec *spec, const char *suffix,
                                  const struct boxes *boxes, enum dtype format, char *next, struct error *err)
{
    enum error_code e = boxes_lost(boxes) ? fail(err, ERR_MEMORY, "no memory for the boxes of %s", spec->name) : OK;
    for (int b = 0; b < boxes->count && !e; b++) {
        e = source_read(source, spec, suffix, &boxes->at[b], format, next, err);
        next += (size_t)box_elements(&boxes->at[b], spec->ndim) * dtype_size(format);
    }
    return e;
}

/* A model that is saved without adapters gets new ones: whether the files have neither matrix of one. */
static bool is_new_adapter(const struct checkpoint_source *source, const struct param_spec *spec)
{
    char other[PARAM_NAME];
    if (spec->role != ROLE_LOW_IN && spec->role != ROLE_LOW_OUT) return false;
    snprintf(other, sizeof other, "%s", spec->name);
    char *const letter = strstr(other, ".lora_") + strlen(".lora_");
    *letter = *letter == 'A' ? 'B' : 'A';
    return !source_has(source, spec->name) && !source_has(source, other);
}

/* A device reads what it keeps: of weights all with which it computes; the masters are among them.  The rest of the
 * piece is zeros, which nobody takes. */
static enum error_code read_own(struct trainer *trainer, struct checkpoint_source *source,
                                const struct parameter *parameter, const char *suffix, enum tensor_kind kind,
                                struct error *err)
{
    const struct param_spec spec = data_spec(&trainer->data, &parameter->spec, kind);
    const bool weights = kind == KIND_WEIGHT || kind == KIND_MASTER;
    const enum dtype format = data_format(&trainer->data, weights ? KIND_MASTER : kind);
    struct boxes boxes = { 0 };
    struct holding held;
    if (spec.ndim == 0 || (weights && is_new_adapter(source, &spec))) return OK;
    enum error_code e = holding_of(trainer, trainer->comm->rank, parameter->index, parameter->tile,
                                   weights ? KIND_WEIGHT : kind, &held, err);
    if (e) return e;
    struct tensor piece = tensor_1d(NULL, format, layout_count(&held.layout));
    piece.data = calloc(tensor_bytes(piece) + 1, 1);
    if (piece.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", parameter->spec.name);
    boxes_add_layout(&boxes, &held.layout, held.kept);
    e = read_boxes(source, &spec, suffix, &boxes, format,
                   (char *)piece.data + (size_t)held.kept.first * dtype_size(format), err);
    /* Weights and masters come from one tensor: weights are rounded from it. */
    if (!e && weights) e = collect_keep_weights(trainer, parameter, piece, err);
    else if (!e) collect_keep(trainer, parameter, kind, piece);
    boxes_free(&boxes);
    free(piece.data);
    return e;
}

/* A device reads what it keeps of an encoder's parameter, as in read_own. */
static enum error_code read_encoder_param(struct trainer *trainer, struct checkpoint_source *source, int m,
                                          enum encoder_param p, const char *suffix, enum tensor_kind kind,
                                          struct tensor into, struct error *err)
{
    const struct param_spec spec = encoder_spec(&modalities[m], trainer->plan.model.D, p);
    const struct layout whole = layout_whole(spec.ndim, spec.dim);
    struct boxes boxes = { 0 };
    struct interval kept;
    enum error_code e = encoder_kept(trainer, m, trainer->comm->rank, p, kind == KIND_MASTER ? KIND_WEIGHT : kind,
                                     &kept, err);
    if (e) return e;
    boxes_add_layout(&boxes, &whole, kept);
    e = read_boxes(source, &spec, suffix, &boxes, into.dtype,
                   (char *)into.data + (size_t)kept.first * dtype_size(into.dtype), err);
    boxes_free(&boxes);
    return e;
}

/* All tensors of a kind of one encoder; the rest of them is zeros, which nobody takes. */
static enum error_code read_encoder(struct trainer *trainer, struct checkpoint_source *source, int m,
                                    const char *suffix, enum tensor_kind kind, struct error *err)
{
    const int64_t D = trainer->plan.model.D;
    struct tensor whole = tensor_1d(NULL, data_format(&trainer->data, kind), encoder_counts(&modalities[m], D));
    whole.data = calloc(tensor_bytes(whole), 1);
    enum error_code e = whole.data ? OK : fail(err, ERR_MEMORY, "no memory to read an encoder");
    for (enum encoder_param p = 0; p < ENCODER_PARAMS && !e; p++)
        e = read_encoder_param(trainer, source, m, p, suffix, kind, encoder_view(&modalities[m], D, whole, p), err);
    if (!e) e = encoders_keep(trainer, m, kind, whole, err);
    free(whole.data);
    return e;
}

/* A language model that is saved by itself gets new encoders, with the weights that were drawn. */
static enum error_code read_encoders(struct trainer *trainer, struct checkpoint_source *source, const char *suffix,
                                     enum tensor_kind kind, struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++)
        if (trainer->encoders.of[m].here && source_has(source, encoder_spec(&modalities[m], 1, ENCODER_UP_W).name))
            e = read_encoder(trainer, source, m, suffix, kind, err);
    return e;
}

static enum error_code read_weights(struct trainer *trainer, struct checkpoint_source *source, struct error *err)
{
    enum error_code e = OK;
    struct trainer *part;
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL; n++)
        for (int i = 0; i < part->parameters.count && !e; i++)
            e = read_own(part, source, &part->parameters.all[i], "", KIND_WEIGHT, err);
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL && !e; n++) {
        e = data_requantise(&part->data, err);
        if (!e) data_same_versions(&part->data);           /* files have one version: both versions start from it */
        if (!e) data_start_round(&part->data);
    }
    return e ? e : read_encoders(trainer, source, "", KIND_MASTER, err);
}

/* ---- training.json ----------------------------------------------------------------------------------------------- */

/* A run without a loss scale has saved the scale 1. */
static enum error_code read_loss_scale(struct trainer *trainer, const cJSON *root, const char *path, struct error *err)
{
    const char *scale;
    char *end;
    int64_t good, left;
    enum error_code e = json_string(root, path, "loss_scale", &scale, err);
    if (!e) e = json_int(root, path, "good_steps", -trainer->loss_scale.late, INT64_C(1) << 52, &good, err);
    if (!e) e = json_int(root, path, "skipped", 0, trainer->step, &trainer->skipped, err);
    if (e) return e;
    trainer->skipped_before = trainer->skipped;
    if (trainer->loss_scale.interval == 0) return OK;
    const double x = strtod(scale, &end);
    if (*end != '\0' || !(x >= LOSS_SCALE_LEAST && x <= LOSS_SCALE_MOST))
        return fail(err, ERR_FORMAT, "%s: loss_scale is %.40s; it must be a positive number", printable_path(path).text,
                    printable(scale).text);
    e = json_int(root, path, "overflows_left", 1, trainer->loss_scale.hysteresis, &left, err);
    if (e) return e;
    trainer->loss_scale.scale = x, trainer->loss_scale.good = good, trainer->loss_scale.left = left;
    return OK;
}

/* A run whose replicas train apart must continue with the same number of replicas. */
static enum error_code check_replicas(const struct trainer *trainer, const cJSON *root, const char *path,
                                      struct error *err)
{
    const int own = shards_replicas(&trainer->data.shards);
    int64_t replicas;
    if (!json_has(root, "replicas")) return OK;
    enum error_code e = json_int(root, path, "replicas", 1, MESH_MOST_LISTED, &replicas, err);
    if (e) return e;
    if (!trainer->data.shards.apart)
        return fail(err, ERR_FORMAT,
                    "%s: has %lld replicas that train apart, and --data-parallel %s has none; --model DIR takes the "
                    "weights of their last outer step",
                    printable_path(path).text, (long long)replicas, trainer->data.scheme->head.name);
    if (replicas != own)
        return fail(err, ERR_FORMAT, "%s: has %lld replicas that train apart; --data-parallel %s makes %d of --dp %d",
                    printable_path(path).text, (long long)replicas, trainer->data.scheme->head.name, own,
                    trainer->plan.mesh.size[DP]);
    return OK;
}

/* Correction biases of routers; of a folder that has none they stay 0. */
static enum error_code read_biases(const struct model_config *config, const struct checkpoint *checkpoint, double *bias,
                                   struct error *err)
{
    const cJSON *list, *one;
    char path[PATH_ROOM];
    int64_t i = 0;
    path_of(path, checkpoint->dir, TRAINING_FILE);
    if (config->mlp != MLP_MIXTURE || !config->mixture.router.biased || !json_has(checkpoint->root, "router_bias"))
        return OK;
    const enum error_code e = json_array(checkpoint->root, path, "router_bias", &list, err);
    if (e) return e;
    if (cJSON_GetArraySize(list) != config->L * mixture_columns(&config->mixture))
        return fail(err, ERR_FORMAT, "%s: router_bias has %d numbers; the model needs %lld", printable_path(path).text,
                    cJSON_GetArraySize(list), (long long)(config->L * mixture_columns(&config->mixture)));
    cJSON_ArrayForEach(one, list) {
        char *end = NULL;
        const double x = cJSON_IsString(one) ? strtod(one->valuestring, &end) : NAN;
        if (end == NULL || end == one->valuestring || *end != '\0' || !isfinite(x))
            return fail(err, ERR_FORMAT, "%s: router_bias: number %lld is none", printable_path(path).text,
                        (long long)i);
        bias[i++] = x;
    }
    return OK;
}

static enum error_code read_progress(struct trainer *trainer, const struct checkpoint *checkpoint, struct error *err)
{
    char path[PATH_ROOM];
    path_of(path, checkpoint->dir, TRAINING_FILE);
    trainer->step = checkpoint->step;
    enum error_code e = check_replicas(trainer, checkpoint->root, path, err);
    if (!e) e = read_biases(&trainer->plan.model, checkpoint, trainer->routers.bias, err);
    return e ? e : read_loss_scale(trainer, checkpoint->root, path, err);
}

void checkpoint_compare_arithmetic(const struct checkpoint *checkpoint, char *text, size_t size)
{
    const struct arithmetic now = arithmetic_now();
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(checkpoint->root, "arithmetic"),
                *threads = cJSON_GetObjectItemCaseSensitive(saved, "threads");
    const struct { const char *name, *now; } word[] = { { "kernel", now.kernel }, { "blas", now.blas } };
    size_t used = 0;
    text[0] = '\0';
    if (cJSON_IsNumber(threads) && threads->valueint != now.threads)
        used = (size_t)snprintf(text, size, "threads %d, not %d", now.threads, threads->valueint);
    for (int i = 0; i < 2 && used < size; i++) {
        const cJSON *was = cJSON_GetObjectItemCaseSensitive(saved, word[i].name);
        if (!cJSON_IsString(was) || strcmp(was->valuestring, word[i].now) == 0) continue;
        snprintf(text + used, size - used, "%s%s %s, not %.160s", used ? "; " : "", word[i].name, word[i].now,
                 printable(was->valuestring).text);
        return;                         /* OpenBLAS's own words for how it was built name the kernel again */
    }
}

enum error_code checkpoint_open(struct checkpoint *checkpoint, const char *dir, struct error *err)
{
    char path[PATH_ROOM], *text = NULL;
    size_t count;
    *checkpoint = (struct checkpoint){ .dir = dir };
    const struct bundle_kind *const kind = checkpoint_kind(dir);
    checkpoint->sharded = kind == &sharded_files;
    enum error_code e = bundle_open(&checkpoint->files, kind, dir, &checkpoint->there, err);
    if (e || !checkpoint->there) return e;
    path_of(path, dir, TRAINING_FILE);
    e = bundle_read(&checkpoint->files, TRAINING_FILE, JSON_FILE_LIMIT, &text, &count, err);
    if (!e) e = json_parse(text, count, path, &checkpoint->root, err);
    if (!e) e = json_int(checkpoint->root, path, "step", 0, INT64_C(1) << 52, &checkpoint->step, err);
    if (!e) e = json_object(checkpoint->root, path, "run", &checkpoint->run, err);
    free(text);
    if (e) checkpoint_close(checkpoint);
    return e;
}

enum error_code checkpoint_config(const struct checkpoint *checkpoint, struct model_config *config, struct error *err)
{
    char path[PATH_ROOM], *text;
    size_t count;
    if (!checkpoint->there) return model_config_read_folder(config, checkpoint->dir, err);
    path_of(path, checkpoint->dir, CONFIG_FILE);
    enum error_code e = bundle_read(&checkpoint->files, CONFIG_FILE, JSON_FILE_LIMIT, &text, &count, err);
    if (e) return e;
    e = model_config_parse(config, text, path, err);
    free(text);
    return e;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    cJSON_Delete(checkpoint->root);
    *checkpoint = (struct checkpoint){ 0 };
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* With replicas that train apart a device reads its own replica's states.  If the file has no replicas, all start from
 * the same states. */
static enum error_code read_states(struct trainer *trainer, struct checkpoint_source *source, bool replicas,
                                   struct error *err)
{
    const int count = checkpoint_states(trainer, replicas ? shards_replicas(&trainer->data.shards) : 0, NULL);
    struct state_tensor *list = malloc((size_t)count * sizeof *list + 1);
    enum error_code e = list ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d states", count);
    if (!e) checkpoint_states(trainer, replicas ? shards_replicas(&trainer->data.shards) : 0, list);
    for (int k = 0; k < count && !e; k++) {
        const bool own = !replicas || kind_is_common(list[k].kind) ||
                         list[k].replica == shards_replica_of(&trainer->data.shards, trainer->dp.rank);
        struct trainer *part;
        for (int n = 0; own && (part = trainer_section(trainer, n)) != NULL; n++)
            for (int i = 0; i < part->parameters.count && !e; i++)
                e = read_own(part, source, &part->parameters.all[i], list[k].suffix, list[k].kind, err);
        if (!e) e = read_encoders(trainer, source, list[k].suffix, list[k].kind, err);
    }
    free(list);
    return e;
}

/* Rank 0 reads both files once more than needed for the data: the cost of the checksums.  Devices' files are compared
 * by all devices. */
static enum error_code checkpoint_check_files(const struct checkpoint *checkpoint, struct error *err)
{
    const struct bundle_kind *const kind = checkpoint->files.kind;
    struct bundle now;
    bool there;
    enum error_code e = checkpoint_kind(checkpoint->dir) == kind ? bundle_open(&now, kind, checkpoint->dir, &there, err)
        : OK;
    if (!e && (checkpoint_kind(checkpoint->dir) != kind || memcmp(now.sum, checkpoint->files.sum, sizeof now.sum) != 0))
        e = fail(err, ERR_FILE, "%s: was saved anew while it was read", printable_path(checkpoint->dir).text);
    if (!e) e = bundle_check(&checkpoint->files, ORIGIN_FILE, err);
    if (!e && !checkpoint->sharded) e = bundle_check(&checkpoint->files, WEIGHTS_FILE, err);
    if (!e && !checkpoint->sharded) e = bundle_check(&checkpoint->files, STATES_FILE, err);
    return e;
}

/* The bytes of the boxes that this device keeps, in the files' format. */
static enum error_code count_wanted(struct trainer *trainer, const struct checkpoint_source *source, bool replicas,
                                    uint64_t *bytes, struct error *err)
{
    struct collection all;
    enum error_code e = collection_open(&all, trainer, FOR_FILES,
                                        replicas ? shards_replicas(&trainer->data.shards) : 0, err);
    *bytes = 0;
    for (int t = 0; t < all.count && !e; t++) {
        const struct shard_tensor *const file = manifest_find(&source->shards.manifest, all.tensor[t].name);
        struct boxes boxes = { 0 };
        e = collection_wants(&all, t, trainer->comm->rank, &boxes, err);
        *bytes += (uint64_t)boxes_total(&boxes, all.tensor[t].ndim) * (file ? dtype_size(file->format) : 0);
        boxes_free(&boxes);
    }
    collection_close(&all);
    return e;
}

/* Rank 0 learns what all devices have read. */
static enum error_code add_up_reading(struct comm *comm, const struct checkpoint_source *source, uint64_t wanted,
                                      uint64_t checked, struct checkpoint_reading *reading, struct error *err)
{
    const uint64_t own[3] = { wanted, source->shards.read, checked };
    uint64_t (*const all)[3] = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, own, sizeof own, all, err);
    for (int r = 0; all && r < comm->size && !e; r++)
        reading->wanted += all[r][0], reading->read += all[r][1], reading->checked += all[r][2];
    if (!e && all && reading->read != reading->wanted)
        e = fail(err, ERR_CHECK, "%s: devices have read %llu bytes of it, and keep %llu",
                 printable_path(source->checkpoint->dir).text, (unsigned long long)reading->read,
                 (unsigned long long)reading->wanted);
    free(all);
    return comm_agree(comm, e, err);
}

static enum error_code read_files(struct trainer *trainer, const struct checkpoint *checkpoint,
                                  struct checkpoint_reading *reading, struct error *err)
{
    struct comm *const comm = trainer->comm;
    const bool replicas = json_has(checkpoint->root, "replicas");
    struct checkpoint_source source;
    uint64_t wanted = 0, checked = 0;
    enum error_code e = comm_agree(comm, source_open(&source, checkpoint, true, err), err);
    if (!e && checkpoint->sharded)
        e = comm_agree(comm, sharded_check(&source.shards, comm->rank, comm->size, &checked, err), err);
    if (!e) e = read_progress(trainer, checkpoint, err);
    if (!e) e = read_weights(trainer, &source, err);
    if (!e) e = read_states(trainer, &source, replicas, err);
    e = comm_agree(comm, e, err);
    if (!e && checkpoint->sharded) {
        e = comm_agree(comm, count_wanted(trainer, &source, replicas, &wanted, err), err);
        reading->files = source.shards.manifest.files;
        if (!e) e = add_up_reading(comm, &source, wanted, checked, reading, err);
    }
    source_close(&source);
    return e;
}

/* The devices must have the bits that were saved, on any mesh.  Another format of weights rounds them; a checkpoint of
 * an earlier version of this program has no fingerprint. */
static enum error_code compare_fingerprint(struct trainer *trainer, const struct checkpoint *checkpoint,
                                           struct error *err)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(checkpoint->root, "fingerprint"),
                *format = cJSON_GetObjectItemCaseSensitive(checkpoint->run, "--dtype");
    const enum dtype was = cJSON_IsString(format) ? dtype_by_name(format->valuestring) : DTYPE_COUNT;
    char print[CHECKPOINT_PRINT];
    uint64_t sum;
    if (!cJSON_IsString(saved) || was == DTYPE_COUNT || was != trainer->plan.dtype ||
        !trainer->device->backend->has_numbers || trainer->data.shards.apart || json_has(checkpoint->root, "replicas"))
        return OK;
    enum error_code e = checkpoint_fingerprint(trainer, &sum, err);
    checkpoint_print(sum, print);
    if (!e && trainer->comm->rank == 0 && strcmp(print, saved->valuestring) != 0)
        e = fail(err, ERR_FORMAT, "%s: weights have the fingerprint %s, and %s says %s",
                 printable_path(checkpoint->dir).text, print, TRAINING_FILE, printable(saved->valuestring).text);
    return comm_agree(trainer->comm, e, err);
}

enum error_code checkpoint_resume(struct trainer *trainer, const struct checkpoint *checkpoint,
                                  struct checkpoint_reading *reading, struct error *err)
{
    struct checkpoint_reading own = { 0 };
    const bool first = trainer->comm->rank == 0;
    /* Rank 0 holds the lock while all devices read, so that no one saves in between. */
    const int lock = first ? bundle_lock_to_read(checkpoint->dir) : -1;
    enum error_code e = comm_agree(trainer->comm, first ? checkpoint_check_files(checkpoint, err) : OK, err);
    if (!e) e = read_files(trainer, checkpoint, &own, err);
    if (!e) e = compare_fingerprint(trainer, checkpoint, err);
    if (lock >= 0) close(lock);
    if (reading) *reading = own;
    return e;
}

/* A one-device model has every parameter whole. */
static enum error_code read_serial(struct transformer *model, struct checkpoint_source *source, struct error *err)
{
    enum error_code e = OK;
    if (!source->checkpoint->sharded) return weights_read(model, &source->weights, err);
    for (int i = 0; i < model->params && !e; i++) {
        const struct layout whole = layout_whole(model->spec[i].ndim, model->spec[i].dim);
        e = source_read(source, &model->spec[i], "", &whole.box[0], model->w[i].dtype, model->w[i].data, err);
    }
    return e;
}

enum error_code checkpoint_load_serial(struct transformer *model, const struct checkpoint *checkpoint,
                                       struct error *err)
{
    struct checkpoint_source source;
    uint64_t checked;
    enum error_code e = checkpoint->there && !checkpoint->sharded ? bundle_check(&checkpoint->files, WEIGHTS_FILE, err)
        : OK;
    if (e) return e;
    e = source_open(&source, checkpoint, false, err);
    if (!e && checkpoint->sharded) e = sharded_check(&source.shards, 0, 1, &checked, err);
    if (!e) e = read_serial(model, &source, err);
    if (!e && checkpoint->there) e = read_biases(&model->config, checkpoint, model->router_bias, err);
    source_close(&source);
    return e;
}

static enum error_code load_weights(struct trainer *trainer, struct checkpoint_source *source, struct error *err)
{
    const struct checkpoint *const checkpoint = source->checkpoint;
    const bool whole = !checkpoint->sharded;
    enum error_code e = whole ? weights_check_tied(&source->weights, &trainer->plan.model, err) : OK;
    if (!e) e = read_weights(trainer, source, err);
    if (!e && trainer->routers.bias && whole)
        e = weights_read_biases(&source->weights, &trainer->plan.model, trainer->routers.bias, err);
    return e || !checkpoint->there ? e : read_biases(&trainer->plan.model, checkpoint, trainer->routers.bias, err);
}

enum error_code checkpoint_load_weights(struct trainer *trainer, const struct checkpoint *checkpoint, struct error *err)
{
    struct comm *const comm = trainer->comm;
    struct checkpoint_source source;
    uint64_t checked;
    const bool whole = checkpoint->there && !checkpoint->sharded;
    enum error_code e =
        comm_agree(comm, whole && comm->rank == 0 ? bundle_check(&checkpoint->files, WEIGHTS_FILE, err) : OK, err);
    if (e) return e;
    e = comm_agree(comm, source_open(&source, checkpoint, false, err), err);
    if (!e && checkpoint->sharded)
        e = comm_agree(comm, sharded_check(&source.shards, comm->rank, comm->size, &checked, err), err);
    if (!e) e = load_weights(trainer, &source, err);
    source_close(&source);
    return comm_agree(comm, e, err);
}
