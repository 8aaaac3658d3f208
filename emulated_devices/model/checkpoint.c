#include "emulated_devices/model/checkpoint.h"
#include "ref/io/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, NAME_ROOM = 128 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* transformers writes "transformer.wte.weight"; the files of the original GPT-2 leave the prefix out. */
static const struct safetensors_entry *find(const struct safetensors *file, const char *name)
{
    char full[NAME_ROOM];
    snprintf(full, sizeof full, "transformer.%s", name);
    const struct safetensors_entry *e = safetensors_find(file, full);
    return e ? e : safetensors_find(file, name);
}

/* The same shape, or its transpose where the file has it so. */
static enum error_code check_shape(const struct safetensors *file, const struct safetensors_entry *e, const struct param_spec *s, struct error *err)
{
    const int64_t rows = s->file_transposed ? s->dim[1] : s->dim[0], cols = s->file_transposed ? s->dim[0] : s->dim[1];
    if (e->ndim == s->ndim && e->dim[0] == rows && (s->ndim == 1 || e->dim[1] == cols)) return OK;
    char want[64], found[64] = "a scalar";
    snprintf(want, sizeof want, s->ndim == 2 ? "%lld x %lld" : "%lld", (long long)rows, (long long)cols);
    if (e->ndim > 0) snprintf(found, sizeof found, e->ndim >= 2 ? "%lld x %lld%s" : "%lld", (long long)e->dim[0], (long long)e->dim[1], e->ndim > 2 ? " x ..." : "");
    return fail(err, ERR_FORMAT, "%s: %s is %s; the model needs %s", shown_path(file->path).text, shown(e->name).text, found, want);
}

static enum error_code read_boxes(const struct safetensors *file, const char *name, const struct param_spec *s, const struct layout *l,
                                  struct tensor into, struct error *err)
{
    const struct safetensors_entry *entry = find(file, name);
    if (entry == NULL) return fail(err, ERR_FORMAT, "%s: there is no tensor %s", shown_path(file->path).text, name);
    enum error_code e = check_shape(file, entry, s, err);
    char *next = into.data;
    for (int b = 0; b < l->boxes && !e; b++) {
        const struct box *box = &l->box[b];
        e = safetensors_read_box(file, entry, box->start, box->extent, s->file_transposed, into.dtype, next, err);
        next += (size_t)(box->extent[0] * (l->ndim == 2 ? box->extent[1] : 1)) * dtype_size(into.dtype);
    }
    return e;
}

static void path_of(char path[PATH_ROOM], const char *dir, const char *file) { snprintf(path, PATH_ROOM, "%s/%s", dir, file); }

static enum error_code read_weights(struct trainer *t, const struct safetensors *file, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < t->parameters.count && !e; i++) {
        struct parameter *p = &t->parameters.all[i];
        e = read_boxes(file, p->spec.name, &p->spec, &p->layout, p->w, err);
    }
    return e;
}

enum error_code checkpoint_load_weights(struct trainer *t, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    struct safetensors file;
    path_of(path, dir, "model.safetensors");
    enum error_code e = safetensors_open(&file, path, err);
    if (!e) {
        e = read_weights(t, &file, err);
        safetensors_close(&file);
    }
    return comm_agree(t->comm, e, err);
}

enum error_code checkpoint_load_serial(struct transformer *m, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    struct safetensors file;
    path_of(path, dir, "model.safetensors");
    enum error_code e = safetensors_open(&file, path, err);
    if (e) return e;
    for (int i = 0; i < m->params && !e; i++) {
        const struct layout whole = layout_whole(m->spec[i].ndim, m->spec[i].dim);
        e = read_boxes(&file, m->spec[i].name, &m->spec[i], &whole, m->w[i], err);
    }
    safetensors_close(&file);
    return e;
}

static const char *state_name(char name[NAME_ROOM], const struct param_spec *s, const char *state)
{
    snprintf(name, NAME_ROOM, "%s.%s", s->name, state);
    return name;
}

/* A count in metadata; -1 if it is none. */
static int64_t count_of(const char *text)
{
    const size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits < 16 && text[digits] == '\0' ? atoll(text) : -1;
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
    return OK;
}

static enum error_code read_states(struct trainer *t, const struct safetensors *file, struct error *err)
{
    const struct optimizer *o = t->plan.optimizer;
    char name[NAME_ROOM];
    enum error_code e = OK;
    for (int i = 0; i < t->parameters.count; i++)
        for (int s = 0; s < o->states && !e; s++) {
            struct parameter *p = &t->parameters.all[i];
            e = read_boxes(file, state_name(name, &p->spec, o->state_name[s]), &p->spec, &p->layout, p->state[s], err);
        }
    return e;
}

enum error_code checkpoint_resume(struct trainer *t, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    struct safetensors weights, states;
    path_of(path, dir, "model.safetensors");
    enum error_code e = safetensors_open(&weights, path, err);
    if (!e) {
        path_of(path, dir, "optimizer.safetensors");
        e = safetensors_open(&states, path, err);
        if (!e) {
            e = read_progress(t, &weights, &states, err);
            if (!e) e = read_weights(t, &weights, err);
            if (!e) e = read_states(t, &states, err);
            safetensors_close(&states);
        }
        safetensors_close(&weights);
    }
    return comm_agree(t->comm, e, err);
}

enum error_code checkpoint_batch(const char *dir, int64_t *batch, struct error *err)
{
    char path[PATH_ROOM];
    struct safetensors file;
    path_of(path, dir, "model.safetensors");
    enum error_code e = safetensors_open(&file, path, err);
    if (e) return e;
    const int64_t found = count_of(safetensors_metadata(&file, "orrery.batch"));
    if (found > 0) *batch = found;
    safetensors_close(&file);
    return OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

/* One of the two files, as rank 0 writes it: `kinds` tensors for each parameter. */
struct job {
    struct trainer *trainer;
    struct safetensors_writer writer;
    struct safetensors_entry *entry;    /* [params * kinds] */
    char (*name)[NAME_ROOM];
    int kinds;
    bool open;
};

static enum error_code start_file(struct job *j, const char *path, bool weights, struct error *err)
{
    struct trainer *t = j->trainer;
    const int n = model_param_count(&t->plan.model);
    char step[32], seed[32], batch[32];
    snprintf(batch, sizeof batch, "%lld", (long long)t->plan.B);
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)t->plan.seed);
    const struct safetensors_pair metadata[] = {
        { "format", "pt" }, { "orrery.step", step }, { "orrery.seed", seed }, { "orrery.optimizer", t->plan.optimizer->name },
        { "orrery.batch", batch },
    };
    j->entry = calloc((size_t)(n * j->kinds) + 1, sizeof *j->entry);
    j->name = calloc((size_t)(n * j->kinds) + 1, sizeof *j->name);
    if (j->entry == NULL || j->name == NULL) return fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    for (int i = 0; i < n * j->kinds; i++) {
        const struct param_spec s = model_param(&t->plan.model, i / j->kinds);
        if (weights) snprintf(j->name[i], NAME_ROOM, s.role == ROLE_HEAD ? "%s" : "transformer.%s", s.name);
        else state_name(j->name[i], &s, t->plan.optimizer->state_name[i % j->kinds]);
        j->entry[i] = (struct safetensors_entry){ .name = j->name[i], .dtype = dtype_file_name(t->plan.dtype), .ndim = s.ndim,
                                                  .dim = { s.dim[0], s.dim[1] } };
        if (s.file_transposed) j->entry[i].dim[0] = s.dim[1], j->entry[i].dim[1] = s.dim[0];
    }
    enum error_code e = safetensors_create(&j->writer, path, j->entry, n * j->kinds, metadata, (int)(sizeof metadata / sizeof *metadata), err);
    j->open = !e;
    return e;
}

/* Every device takes part in collecting, also when rank 0 has failed already. */
static enum error_code write_tensors(struct job *j, enum tensor_kind first, enum error_code e, struct error *err)
{
    struct trainer *t = j->trainer;
    const int n = model_param_count(&t->plan.model);
    for (int i = 0; i < n * j->kinds; i++) {
        const struct param_spec s = model_param(&t->plan.model, i / j->kinds);
        struct tensor whole = s.ndim == 2 ? tensor_2d(NULL, t->plan.dtype, s.dim[0], s.dim[1]) : tensor_1d(NULL, t->plan.dtype, s.dim[0]);
        if (t->comm->rank == 0 && !e) {
            whole.data = malloc(tensor_bytes(whole));
            if (whole.data == NULL) e = fail(err, ERR_MEMORY, "no memory to collect %s", s.name);
        }
        e = comm_agree(t->comm, e, err);
        if (e) return e;
        e = collect_whole(t, i / j->kinds, first + (enum tensor_kind)(i % j->kinds), whole, err);
        if (!e && t->comm->rank == 0) e = safetensors_write_box(&j->writer, i, NULL, NULL, s.file_transposed, whole.data, err);
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
static enum error_code commit(struct job *weights, struct job *states, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    path_of(path, dir, "config.json");
    enum error_code e = output_flush(&weights->writer.file, err);
    if (!e) e = output_flush(&states->writer.file, err);
    if (!e) e = model_config_write(&weights->trainer->plan.model, path, err);
    if (!e) e = safetensors_commit(&states->writer, err);
    if (!e) e = safetensors_commit(&weights->writer, err);
    return e;
}

enum error_code checkpoint_save(struct trainer *t, const char *dir, struct error *err)
{
    struct job weights = { .trainer = t, .kinds = 1 }, states = { .trainer = t, .kinds = t->plan.optimizer->states };
    const bool writer = t->comm->rank == 0;
    char path[PATH_ROOM];
    bool made = false;
    enum error_code e = writer ? make_folder(dir, &made, err) : OK;
    path_of(path, dir, "model.safetensors");
    if (writer && !e) e = start_file(&weights, path, true, err);
    path_of(path, dir, "optimizer.safetensors");
    if (writer && !e) e = start_file(&states, path, false, err);
    e = write_tensors(&weights, KIND_WEIGHT, e, err);
    if (!e) e = write_tensors(&states, KIND_STATE, e, err);
    if (writer && !e) e = commit(&weights, &states, dir, err);
    if (weights.open) safetensors_abort(&weights.writer);
    if (states.open) safetensors_abort(&states.writer);
    if (e && made) rmdir(dir);
    free(weights.entry), free(weights.name), free(states.entry), free(states.name);
    return comm_agree(t->comm, e, err);
}
