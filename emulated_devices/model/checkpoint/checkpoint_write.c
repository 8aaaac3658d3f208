/* checkpoint_write.c -- writes checkpoints; checkpoint.c reads them.  run/between.c saves; run/session.c probes the
 * folder before a long run.  Errors: ERR_MEMORY, and ERR_FILE of what cannot be written. */
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/machine/threads.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Start one of the two files, of so many tensors and their states, on rank 0. */
static enum error_code start_file(struct weights_writer *writer, const struct trainer *trainer, const char *path,
                                  const struct param_spec *spec, int tensors, const struct state_tensor *list,
                                  int count, struct error *err)
{
    static const struct safetensors_pair format = { "format", "pt" };
    struct weights_suffix *suffix = malloc((size_t)count * sizeof *suffix + 1);
    if (suffix == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d tensors", count);
    for (int k = 0; k < count; k++)
        suffix[k] = (struct weights_suffix){ list[k].suffix, data_format(&trainer->data, list[k].kind) };
    const enum error_code e = weights_create(writer, spec, tensors, path, suffix, count, &format, 1, err);
    free(suffix);
    return e;
}

/* Names and shapes of a file's tensors for each parameter. */
static void list_specs(const struct trainer *trainer, const struct state_tensor *list, int count,
                       struct param_spec *out)
{
    for (int i = 0; i < model_param_count(&trainer->plan.model) * count; i++) {
        const struct param_spec s = trainer_spec(trainer, i / count);
        out[i] = data_spec(&trainer->data, &s, list[i % count].kind);
    }
}

/* Every device takes part in collecting, even if rank 0 has already failed. */
static enum error_code write_tensors(struct trainer *trainer, struct weights_writer *writer,
                                     const struct state_tensor *list, int count, enum error_code e, struct error *err)
{
    for (int i = 0; i < model_param_count(&trainer->plan.model) * count; i++) {
        const struct state_tensor *of = &list[i % count];
        const struct param_spec parameter = trainer_spec(trainer, i / count),
            s = data_spec(&trainer->data, &parameter, of->kind);
        /* Some parameters do not have this state. */
        if (s.ndim == 0) continue;
        const enum dtype format = data_format(&trainer->data, of->kind);
        struct tensor whole =
            s.ndim == 2 ? tensor_2d(NULL, format, s.dim[0], s.dim[1]) : tensor_1d(NULL, format, s.dim[0]);
        if (trainer->comm->rank == 0 && !e) {
            whole.data = malloc(tensor_bytes(whole));
            if (whole.data == NULL) e = fail(err, ERR_MEMORY, "no memory to collect %s", s.name);
        }
        e = comm_agree(trainer->comm, e, err);
        if (e) return e;
        collect_replica(trainer, of->replica, i / count, of->kind, whole);
        if (trainer->comm->rank == 0) e = weights_write(writer, i / count, i % count, whole.data, err);
        free(whole.data);
    }
    return comm_agree(trainer->comm, e, err);
}

/* The correction biases of routers, layer by layer.  All devices have the same. */
static bool add_biases(const struct trainer *trainer, cJSON *root)
{
    const struct model_config *m = &trainer->plan.model;
    if (m->mlp != MLP_MIXTURE || !m->mixture.router.biased) return true;
    cJSON *list = cJSON_AddArrayToObject(root, "router_bias");
    bool ok = list != NULL;
    for (int64_t i = 0; i < m->L * mixture_columns(&m->mixture) && ok; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.17g", trainer->routers.bias[i]);
        ok = cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
    return ok;
}

/* Write the threads and kernels on which bits depend, too. */
static bool add_arithmetic(cJSON *root)
{
    const struct arithmetic a = arithmetic_now();
    cJSON *o = cJSON_AddObjectToObject(root, "arithmetic");
    return o && cJSON_AddNumberToObject(o, "threads", a.threads) && cJSON_AddStringToObject(o, "kernel", a.kernel) &&
           json_add(o, "blas %s", a.blas);
}

/* Everything that is not a tensor.  Numbers are saved as text where JSON would not keep every bit. */
cJSON *checkpoint_training(const struct trainer *trainer, const cJSON *run, uint64_t fingerprint, struct error *err)
{
    char scale[32], print[CHECKPOINT_PRINT];
    cJSON *root = cJSON_CreateObject(), *copy = cJSON_Duplicate(run, true);
    snprintf(scale, sizeof scale, "%.17g", trainer->loss_scale.scale);
    bool ok = cJSON_AddNumberToObject(root, "step", (double)trainer->step) &&
              cJSON_AddNumberToObject(root, "skipped", (double)trainer->skipped) &&
              cJSON_AddStringToObject(root, "loss_scale", scale) &&
              json_add(root, "good_steps %g", (double)trainer->loss_scale.good);
    if (ok && trainer->loss_scale.interval > 0)
        ok = cJSON_AddNumberToObject(root, "overflows_left", (double)trainer->loss_scale.left) != NULL;
    if (ok && trainer->data.shards.apart)
        ok = cJSON_AddNumberToObject(root, "replicas", shards_replicas(&trainer->data.shards)) != NULL;
    checkpoint_print(fingerprint, print);
    ok = ok && add_biases(trainer, root) && add_arithmetic(root) && json_add(root, "fingerprint %s", print);
    if (ok && copy != NULL && cJSON_AddItemToObject(root, "run", copy)) return root;
    if (copy && !cJSON_HasObjectItem(root, "run")) cJSON_Delete(copy);
    cJSON_Delete(root);
    fail(err, ERR_MEMORY, "%s: no memory to write it", TRAINING_FILE);
    return NULL;
}

enum error_code checkpoint_probe(const char *dir, struct error *err)
{
    struct bundle_writer w;
    char path[BUNDLE_PATH];
    enum error_code e = bundle_begin(&w, checkpoint_kind(dir), dir, err);
    if (!e) e = output_probe(bundle_new_path(&w, TRAINING_FILE, path), err);
    bundle_end(&w);
    return e;
}

/* All devices collect; rank 0 writes. */
struct saving {
    struct bundle_writer folder;
    struct weights_writer weights, states;
    struct param_spec *weights_spec, *states_spec;
    struct state_tensor model, *list;
    int params, count;                  /* weights, and then a bias of each layer's router; states of a weight */
    int encoders;                       /* parameters of encoders, which are last in both files */
    uint64_t fingerprint;               /* of all weights */
};

static enum error_code list_tensors(struct saving *saving, const struct trainer *trainer, struct error *err)
{
    const int replicas = trainer->data.shards.apart ? shards_replicas(&trainer->data.shards) : 0;
    const int64_t L = trainer->plan.model.L;
    const size_t params = (size_t)model_param_count(&trainer->plan.model);
    saving->params = (int)params;
    saving->model = checkpoint_weights(trainer);
    saving->count = checkpoint_states(trainer, replicas, NULL);
    saving->list = malloc((size_t)saving->count * sizeof *saving->list + 1);
    saving->encoders = ENCODER_PARAMS * trainer->plan.encoders.kinds;
    const size_t more = (size_t)saving->encoders;
    saving->weights_spec = malloc((params + (size_t)L + more) * sizeof *saving->weights_spec);
    saving->states_spec = malloc((params + more) * (size_t)saving->count * sizeof *saving->states_spec + 1);
    if (!saving->list || !saving->weights_spec || !saving->states_spec)
        return fail(err, ERR_MEMORY, "no memory for a list of %d states", saving->count);
    checkpoint_states(trainer, replicas, saving->list);
    list_specs(trainer, saving->list, saving->count, saving->states_spec);
    list_specs(trainer, &saving->model, 1, saving->weights_spec);
    for (int64_t l = 0; l < L; l++)
        saving->weights_spec[saving->params + l] = model_router_bias(&trainer->plan.model, l);
    for (int i = 0; i < saving->encoders; i++) {
        const struct param_spec spec = encoder_spec(&modalities[i / ENCODER_PARAMS], trainer->plan.model.D,
                                                    (enum encoder_param)(i % ENCODER_PARAMS));
        saving->weights_spec[saving->params + L + i] = spec;
        for (int k = 0; k < saving->count; k++) saving->states_spec[(saving->params + i) * saving->count + k] = spec;
    }
    return OK;
}

static enum error_code start_files(struct saving *saving, const struct trainer *trainer, const char *dir,
                                   struct error *err)
{
    char path[BUNDLE_PATH];
    enum error_code e = checkpoint_complete_other(&checkpoint_files, dir, err);
    if (!e) e = bundle_begin(&saving->folder, &checkpoint_files, dir, err);
    if (!e)
        e = start_file(&saving->weights, trainer, bundle_new_path(&saving->folder, WEIGHTS_FILE, path),
                       saving->weights_spec, saving->params + (int)trainer->plan.model.L + saving->encoders,
                       &saving->model, 1, err);
    if (!e)
        e = start_file(&saving->states, trainer, bundle_new_path(&saving->folder, STATES_FILE, path),
                       saving->states_spec, saving->params + saving->encoders, saving->list, saving->count, err);
    return e;
}

/* One tensor of each parameter of an encoder.  All devices collect; on rank 0 `first` is the place of its first
 * parameter in the file, and k that of the tensor among those of a parameter. */
static enum error_code write_encoder(struct trainer *trainer, struct weights_writer *writer, int m,
                                     enum tensor_kind kind, int first, int k, struct error *err)
{
    const int64_t D = trainer->plan.model.D;
    struct tensor whole = tensor_1d(NULL, data_format(&trainer->data, kind), encoder_counts(&modalities[m], D));
    whole.data = malloc(tensor_bytes(whole));
    enum error_code e = whole.data ? OK : fail(err, ERR_MEMORY, "no memory to collect an encoder");
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = encoders_collect(trainer, m, kind, whole, err);
    for (enum encoder_param p = 0; p < ENCODER_PARAMS && !e && trainer->comm->rank == 0; p++)
        e = weights_write(writer, first + (int)p, k, encoder_view(&modalities[m], D, whole, p).data, err);
    free(whole.data);
    return comm_agree(trainer->comm, e, err);
}

static enum error_code write_encoders(struct saving *saving, struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++) {
        const int first = saving->params + m * ENCODER_PARAMS;
        e = write_encoder(trainer, &saving->weights, m, KIND_MASTER, first + (int)trainer->plan.model.L, 0, err);
        for (int k = 0; k < saving->count && !e; k++)
            e = write_encoder(trainer, &saving->states, m, saving->list[k].kind, first, k, err);
    }
    return e;
}

static enum error_code write_biases(struct saving *saving, const struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int l = 0; l < trainer->plan.model.L && !e; l++) {
        const struct param_spec *spec = &saving->weights_spec[saving->params + l];
        const int64_t n = spec->dim[0];
        if (spec->ndim == 0) continue;
        e = weights_write_bias(&saving->weights, saving->params + l, trainer->routers.bias + l * n, n,
                               dtype_wide(trainer->plan.dtype), err);
    }
    return e;
}

static enum error_code finish_files(struct saving *saving, const struct trainer *trainer, const cJSON *run,
                                    const char *origin, struct error *err)
{
    char path[BUNDLE_PATH];
    enum error_code e = write_biases(saving, trainer, err);
    if (!e) e = weights_commit(&saving->weights, err);
    if (!e) e = weights_commit(&saving->states, err);
    if (!e) e = model_config_write(&trainer->plan.model, bundle_new_path(&saving->folder, CONFIG_FILE, path), err);
    cJSON *const training = e ? NULL : checkpoint_training(trainer, run, saving->fingerprint, err);
    if (!e)
        e = training ? json_finish(bundle_new_path(&saving->folder, TRAINING_FILE, path), training, err) : err->code;
    if (!e) e = file_write_all(bundle_new_path(&saving->folder, ORIGIN_FILE, path), origin, strlen(origin), err);
    if (!e) e = bundle_commit(&saving->folder, err);
    if (saving->folder.committed) checkpoint_forget_shards(saving->folder.dir);
    return e;
}

enum error_code checkpoint_save(struct trainer *trainer, const char *dir, const cJSON *run, const char *origin,
                                struct error *err)
{
    const bool writer = trainer->comm->rank == 0;
    struct saving s = { 0 };
    enum error_code e = comm_agree(trainer->comm, list_tensors(&s, trainer, err), err);
    if (!e && writer) e = start_files(&s, trainer, dir, err);
    e = write_tensors(trainer, &s.weights, &s.model, 1, e, err);
    if (!e) e = write_tensors(trainer, &s.states, s.list, s.count, e, err);
    if (!e) e = write_encoders(&s, trainer, err);
    if (!e) e = checkpoint_fingerprint(trainer, &s.fingerprint, err);
    if (writer && !e) e = finish_files(&s, trainer, run, origin, err);
    weights_abort(&s.weights);
    weights_abort(&s.states);
    bundle_end(&s.folder);
    free(s.list), free(s.weights_spec), free(s.states_spec);
    return comm_agree(trainer->comm, e, err);
}
