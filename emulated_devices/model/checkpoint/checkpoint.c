/* checkpoint.c -- reads checkpoints; checkpoint_write.c writes them.  run/session.c and run/speaker.c call the
 * readers; run/words/take.c opens the folder.  Errors: ERR_FILE, ERR_FORMAT with the file's name, ERR_MEMORY. */
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
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

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code read_boxes(const struct weights *file, const struct param_spec *spec, const char *suffix,
                                  const struct layout *layout, struct tensor into, struct error *err)
{
    enum error_code e = OK;
    char *next = into.data;
    for (int b = 0; b < layout->boxes && !e; b++) {
        const struct box *box = &layout->box[b];
        e = weights_read_box(file, spec, suffix, box->start, box->extent, into.dtype, next, err);
        next += (size_t)(box->extent[0] * (layout->ndim == 2 ? box->extent[1] : 1)) * dtype_size(into.dtype);
    }
    return e;
}

static void path_of(char path[PATH_ROOM], const char *dir, const char *file)
{
    snprintf(path, PATH_ROOM, "%s/%s", dir, file);
}

/* A device that keeps only some elements of its boxes reads all of them, one tensor at a time. */
static enum error_code read_own(struct trainer *trainer, const struct weights *file, const struct parameter *parameter,
                                const char *suffix, enum tensor_kind kind, struct error *err)
{
    const struct param_spec spec = data_spec(&trainer->data, &parameter->spec, kind);
    const struct layout layout = data_keeps_whole(&trainer->data, kind) ? layout_whole(spec.ndim, spec.dim)
        : parameter->layout;
    const enum dtype format = data_format(&trainer->data, kind == KIND_WEIGHT ? KIND_MASTER : kind);
    struct tensor piece = tensor_1d(NULL, format, layout_count(&layout));
    if (spec.ndim == 0) return OK;
    piece.data = malloc(tensor_bytes(piece) + 1);
    if (piece.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", parameter->spec.name);
    enum error_code e = read_boxes(file, &spec, suffix, &layout, piece, err);
    /* Weights and masters come from one tensor: weights are rounded from it. */
    if (!e && (kind == KIND_WEIGHT || kind == KIND_MASTER)) e = collect_keep_weights(trainer, parameter, piece, err);
    else if (!e) collect_keep(trainer, parameter, kind, piece);
    free(piece.data);
    return e;
}

static enum error_code read_weights(struct trainer *trainer, const struct weights *file, struct error *err)
{
    enum error_code e = OK;
    struct trainer *part;
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL; n++)
        for (int i = 0; i < part->parameters.count && !e; i++)
            e = read_own(part, file, &part->parameters.all[i], "", KIND_WEIGHT, err);
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL && !e; n++) {
        e = data_requantise(&part->data, err);
        if (!e) data_same_versions(&part->data);           /* files have one version: both versions start from it */
        if (!e) data_start_round(&part->data);
    }
    return e;
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
    enum error_code e = bundle_open(&checkpoint->files, &checkpoint_files, dir, &checkpoint->there, err);
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
static enum error_code read_states(struct trainer *trainer, const struct weights *file, bool replicas,
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
                e = read_own(part, file, &part->parameters.all[i], list[k].suffix, list[k].kind, err);
    }
    free(list);
    return e;
}

/* Rank 0 reads both files once more than needed for the data: the cost of the checksums. */
static enum error_code checkpoint_check_files(const struct checkpoint *checkpoint, struct error *err)
{
    struct bundle now;
    bool there;
    enum error_code e = bundle_open(&now, &checkpoint_files, checkpoint->dir, &there, err);
    if (!e && memcmp(now.sum, checkpoint->files.sum, sizeof now.sum) != 0)
        e = fail(err, ERR_FILE, "%s: was saved anew while it was read", printable_path(checkpoint->dir).text);
    if (!e) e = bundle_check(&checkpoint->files, WEIGHTS_FILE, err);
    if (!e) e = bundle_check(&checkpoint->files, ORIGIN_FILE, err);
    return e ? e : bundle_check(&checkpoint->files, STATES_FILE, err);
}

static enum error_code read_files(struct trainer *trainer, const struct checkpoint *checkpoint, struct error *err)
{
    char path[BUNDLE_PATH];
    struct weights weights, states;
    bundle_find(&checkpoint->files, WEIGHTS_FILE, path);
    enum error_code e = weights_open_file(&weights, path, err);
    if (e) return e;
    bundle_find(&checkpoint->files, STATES_FILE, path);
    e = weights_open_file(&states, path, err);
    if (!e) {
        e = read_progress(trainer, checkpoint, err);
        if (!e) e = read_weights(trainer, &weights, err);
        if (!e) e = read_states(trainer, &states, json_has(checkpoint->root, "replicas"), err);
        weights_close(&states);
    }
    weights_close(&weights);
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

enum error_code checkpoint_resume(struct trainer *trainer, const struct checkpoint *checkpoint, struct error *err)
{
    const bool first = trainer->comm->rank == 0;
    /* Rank 0 holds the lock while all devices read, so that no one saves in between. */
    const int lock = first ? bundle_lock_to_read(checkpoint->dir) : -1;
    enum error_code e = comm_agree(trainer->comm, first ? checkpoint_check_files(checkpoint, err) : OK, err);
    if (!e) e = comm_agree(trainer->comm, read_files(trainer, checkpoint, err), err);
    if (!e) e = compare_fingerprint(trainer, checkpoint, err);
    if (lock >= 0) close(lock);
    return e;
}

/* The weights are those of a folder from elsewhere, or a file of a checkpoint. */
static enum error_code open_weights(struct weights *file, const struct checkpoint *checkpoint, struct error *err)
{
    char path[BUNDLE_PATH];
    if (!checkpoint->there) return weights_open(file, checkpoint->dir, err);
    bundle_find(&checkpoint->files, WEIGHTS_FILE, path);
    return weights_open_file(file, path, err);
}

enum error_code checkpoint_load_serial(struct transformer *model, const struct checkpoint *checkpoint,
                                       struct error *err)
{
    struct weights file;
    enum error_code e = checkpoint->there ? bundle_check(&checkpoint->files, WEIGHTS_FILE, err) : OK;
    if (!e) e = open_weights(&file, checkpoint, err);
    if (e) return e;
    e = weights_read(model, &file, err);
    if (!e && checkpoint->there) e = read_biases(&model->config, checkpoint, model->router_bias, err);
    weights_close(&file);
    return e;
}

enum error_code checkpoint_load_weights(struct trainer *trainer, const struct checkpoint *checkpoint, struct error *err)
{
    struct weights file;
    enum error_code e =
        comm_agree(trainer->comm, checkpoint->there && trainer->comm->rank == 0
                   ? bundle_check(&checkpoint->files, WEIGHTS_FILE, err) : OK, err);
    if (e) return e;
    e = open_weights(&file, checkpoint, err);
    if (!e) {
        e = weights_check_tied(&file, &trainer->plan.model, err);
        if (!e) e = read_weights(trainer, &file, err);
        if (!e && trainer->routers.bias)
            e = weights_read_biases(&file, &trainer->plan.model, trainer->routers.bias, err);
        if (!e && checkpoint->there) e = read_biases(&trainer->plan.model, checkpoint, trainer->routers.bias, err);
        weights_close(&file);
    }
    return comm_agree(trainer->comm, e, err);
}
