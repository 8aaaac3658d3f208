/* saved.c -- writes and reads the folder of a weather model.
 *
 * run.c and cli/train/weather.c call these functions.  Errors: ERR_FILE, ERR_FORMAT with the file's or tensor's name,
 * ERR_USAGE of a setting that differs, ERR_MEMORY, and those of messages.
 */
#include "emulated_devices/weather/saved.h"
#include "emulated_devices/device/compute.h"
#include "ref/io/output.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_OF_WEIGHTS "model.safetensors"
#define FILE_OF_STATES  "optimizer.safetensors"
#define LIST_OF_FILES   "weather.sha256"        /* so a checkpoint of a model of tokens is not taken for one */

static const struct bundle_kind weather_files = {
    .title = "a checkpoint of a weather model", .list = LIST_OF_FILES,
    .name = { FILE_OF_WEIGHTS, FILE_OF_STATES },
};

enum { STATE_NAME = WEATHER_NAME + 40, SETTING_TEXT = 40 };

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* A run that continues must have these as the run before it.  In the text no digit is lost. */
struct setting { const char *flag; char text[SETTING_TEXT]; };
enum { SETTINGS = 14 };

static void list_settings(const struct weather_job *job, struct setting list[SETTINGS])
{
    const struct hyperparameters *const h = &job->hyper;
    const struct { const char *flag; double value; } number[] = {
        { "--fairness", job->alpha }, { "--lr", h->lr }, { "--min-lr", h->min_lr }, { "--beta1", h->beta1 },
        { "--beta2", h->beta2 }, { "--eps", h->eps }, { "--weight-decay", h->weight_decay }, { "--clip", h->clip },
        { "--warmup", (double)h->warmup }, { "--batch", (double)job->samples },
        { "--members", (double)job->members },
    };
    int n = 0;
    list[n].flag = "--model", snprintf(list[n++].text, SETTING_TEXT, "%s", job->shape->name);
    list[n].flag = "--optimizer", snprintf(list[n++].text, SETTING_TEXT, "%s", job->optimizer->name);
    list[n].flag = "--seed", snprintf(list[n++].text, SETTING_TEXT, "%" PRIu64, job->seed);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        list[n].flag = number[i].flag, snprintf(list[n++].text, SETTING_TEXT, "%.17g", number[i].value);
}

enum error_code weather_saved_check(const struct weather_saved *saved, const struct weather_job *job, const char *dir,
                                    struct error *err)
{
    struct setting list[SETTINGS];
    list_settings(job, list);
    for (int i = 0; i < SETTINGS; i++) {
        const char *const was = safetensors_metadata(&saved->weights, list[i].flag);
        if (was == NULL)
            return fail(err, ERR_FORMAT, "--resume %s: " FILE_OF_WEIGHTS " does not say %s", printable_path(dir).text,
                        list[i].flag);
        if (strcmp(was, list[i].text) != 0)
            return fail(err, ERR_USAGE, "--resume %s: %s: saved %s, now %s", printable_path(dir).text, list[i].flag,
                        printable(was).text, list[i].text);
    }
    return OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code open_file(const struct bundle *folder, const char *name, struct safetensors *file,
                                 struct error *err)
{
    char path[BUNDLE_PATH];
    const enum error_code e = bundle_check(folder, name, err);
    if (e) return e;
    bundle_find(folder, name, path);
    return safetensors_open(file, path, err);
}

/* A number of steps is digits alone. */
static enum error_code read_step(struct weather_saved *saved, const char *dir, struct error *err)
{
    const char *const text = safetensors_metadata(&saved->weights, "step");
    if (text == NULL || text[0] == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 9)
        return fail(err, ERR_FORMAT, "--resume %s: " FILE_OF_WEIGHTS " does not say after how many steps",
                    printable_path(dir).text);
    saved->step = strtol(text, NULL, 10);
    return OK;
}

enum error_code weather_saved_open(struct weather_saved *saved, const char *dir, struct error *err)
{
    struct bundle folder;
    bool there;
    *saved = (struct weather_saved){ .step = 0 };
    enum error_code e = fail_about(err, bundle_open(&folder, &weather_files, dir, &there, err), "--resume");
    if (e) return e;
    if (!there)
        return fail(err, ERR_FORMAT, "--resume %s: not a checkpoint of a weather model: there is no " LIST_OF_FILES,
                    printable_path(dir).text);
    e = fail_about(err, open_file(&folder, FILE_OF_WEIGHTS, &saved->weights, err), "--resume");
    if (e) return e;
    e = fail_about(err, open_file(&folder, FILE_OF_STATES, &saved->states, err), "--resume");
    if (e) {
        safetensors_close(&saved->weights);
        return e;
    }
    e = read_step(saved, dir, err);
    if (e) weather_saved_close(saved);
    return e;
}

void weather_saved_close(struct weather_saved *saved)
{
    safetensors_close(&saved->weights), safetensors_close(&saved->states);
    *saved = (struct weather_saved){ .step = 0 };
}

/* State -1 is the weights. */
static enum tensor_kind saved_kind(int state)
{
    return state < 0 ? KIND_WEIGHT : (enum tensor_kind)((int)KIND_STATE + state);
}

/* The name of a parameter's weights, or of a state, in its file. */
static const char *saved_name(const struct weather_learner *learner, int param, int state, char name[STATE_NAME])
{
    const char *const of = learner->network.param[param].name;
    if (state < 0) snprintf(name, STATE_NAME, "%s", of);
    else snprintf(name, STATE_NAME, "%s.%.38s", of, learner->job->optimizer->state_name[state]);
    return name;
}

/* Read the degrees of a parameter that are asked for; of others all is read. */
static enum error_code read_degrees(const struct weather_saved *saved, const struct weather_learner *learner, int param,
                                    int state, struct interval degrees, double *out, struct error *err)
{
    const struct weather_param *const p = &learner->network.param[param];
    const struct safetensors *const file = state < 0 ? &saved->weights : &saved->states;
    int64_t start[WEATHER_DIMS] = { 0 }, extent[WEATHER_DIMS];
    char name[STATE_NAME];
    const struct safetensors_entry *const entry = safetensors_find(file, saved_name(learner, param, state, name));
    if (entry == NULL) return fail(err, ERR_FORMAT, "%s: has no tensor %s", printable_path(file->path).text, name);
    bool fits = entry->ndim == p->dims;
    for (int i = 0; i < p->dims && fits; i++) fits = entry->dim[i] == p->size[i];
    if (!fits) return fail(err, ERR_FORMAT, "%s: %s has another shape", printable_path(file->path).text, name);
    memcpy(extent, p->size, sizeof extent);
    if (p->share == WEATHER_DEGREES) start[2] = degrees.first, extent[2] = degrees.count;
    return safetensors_read_box(file, entry, start, extent, false, F64, out, err);
}

enum error_code weather_saved_whole(const struct weather_saved *saved, const struct weather_learner *learner, int state,
                                    double *out, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < learner->network.params && !e; i++)
        e = read_degrees(saved, learner, i, state, (struct interval){ 0, learner->network.shape.degrees },
                         out + learner->network.param[i].at, err);
    return e;
}

enum error_code weather_saved_read(const struct weather_saved *saved, struct weather_learner *learner,
                                   struct error *err)
{
    double *const piece = calloc((size_t)learner->network.share_at[WEATHER_SHARES] + 1, sizeof *piece);
    enum error_code e = piece ? OK : fail(err, ERR_MEMORY, "no memory to read a parameter");
    for (int state = -1; state < learner->job->optimizer->states && !e; state++) {
        const struct weather_own own = weather_own_of(learner, saved_kind(state));
        struct views v = views_of(learner->comm->device);
        double *const to = view_write(&v, own.numbers).data;
        for (int i = 0; i < learner->network.params && !e; i++) {
            const struct interval here = weather_owned(learner, &own, i);
            if (here.count <= 0) continue;
            e = read_degrees(saved, learner, i, state, learner->degrees, piece, err);
            if (!e)
                memcpy(to + learner->piece[i].at + here.first - own.part.first, piece + here.first,
                       (size_t)here.count * sizeof *piece);
        }
        views_end(&v);
    }
    free(piece);
    learner->step = saved->step;
    return comm_agree(learner->comm, e, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* On rank 0. */
struct writing {
    struct bundle_writer folder;
    struct safetensors_writer weights, states;
    char (*name)[STATE_NAME];           /* [params (1 + states)] */
    struct safetensors_entry *entry;    /* likewise: weights, then states of each parameter */
    uint64_t *all;                      /* the numbers of a parameter that each device has */
};

enum error_code weather_save_probe(const char *dir, struct error *err)
{
    struct bundle_writer w;
    char path[BUNDLE_PATH];
    enum error_code e = bundle_begin(&w, &weather_files, dir, err);
    if (!e) e = output_probe(bundle_new_path(&w, FILE_OF_WEIGHTS, path), err);
    bundle_end(&w);
    return e;
}

static void list_entries(struct writing *writing, const struct weather_learner *learner)
{
    const int params = learner->network.params;
    for (int state = -1, n = 0; state < learner->job->optimizer->states; state++)
        for (int i = 0; i < params; i++, n++) {
            const struct weather_param *const p = &learner->network.param[i];
            writing->entry[n] = (struct safetensors_entry){ .name = saved_name(learner, i, state, writing->name[n]),
                                                            .dtype = "F64", .ndim = p->dims };
            memcpy(writing->entry[n].dim, p->size, (size_t)p->dims * sizeof *p->size);
        }
}

/* The metadata of the weights. */
static enum error_code start_weights(struct writing *writing, const struct weather_learner *learner, const char *path,
                                     struct error *err)
{
    struct setting list[SETTINGS];
    struct safetensors_pair pair[SETTINGS + 2] = { { "format", "pt" } };
    char step[24];
    snprintf(step, sizeof step, "%lld", (long long)learner->step);
    list_settings(learner->job, list);
    pair[1] = (struct safetensors_pair){ "step", step };
    for (int i = 0; i < SETTINGS; i++) pair[2 + i] = (struct safetensors_pair){ list[i].flag, list[i].text };
    return safetensors_create(&writing->weights, path, writing->entry, learner->network.params, pair, SETTINGS + 2,
                              err);
}

static enum error_code start_writing(struct writing *writing, const struct weather_learner *learner, const char *dir,
                                     struct error *err)
{
    static const struct safetensors_pair format = { "format", "pt" };
    const int params = learner->network.params, states = learner->job->optimizer->states;
    const size_t entries = (size_t)(params * (1 + states));
    int64_t most = 0;
    char path[BUNDLE_PATH];
    for (int i = 0; i < params; i++)
        if (learner->network.param[i].count > most) most = learner->network.param[i].count;
    writing->name = calloc(entries, sizeof *writing->name), writing->entry = calloc(entries, sizeof *writing->entry);
    writing->all = calloc((size_t)(most * learner->comm->size), sizeof *writing->all);
    if (!writing->name || !writing->entry || !writing->all)
        return fail(err, ERR_MEMORY, "no memory to collect %lld numbers of each device", (long long)most);
    list_entries(writing, learner);
    enum error_code e = bundle_begin(&writing->folder, &weather_files, dir, err);
    if (!e) e = start_weights(writing, learner, bundle_new_path(&writing->folder, FILE_OF_WEIGHTS, path), err);
    if (!e)
        e = safetensors_create(&writing->states, bundle_new_path(&writing->folder, FILE_OF_STATES, path),
                               writing->entry + params, params * states, &format, 1, err);
    return e;
}

/* Bring a whole parameter to rank 0.  Each number comes from the first device that has it, as bits: those of the others
 * are zeros, so that nothing is rounded and no sign is lost. */
static enum error_code bring_param(struct weather_learner *learner, int param, enum tensor_kind kind,
                                   uint64_t *place, uint64_t *all, struct error *err)
{
    const int64_t n = learner->network.param[param].count;
    struct views v = views_of(learner->comm->device);
    const struct weather_own own = weather_own_of(learner, kind);
    const struct interval here = weather_owned(learner, &own, param);
    const double *const numbers = view_read(&v, own.numbers).data;
    memset(place, 0, (size_t)n * sizeof *place);
    for (int64_t k = here.first; k < interval_end(here) && own.first && weather_piece_is_first(learner, param); k++)
        memcpy(&place[weather_piece_place(learner, param, k)],
               &numbers[learner->piece[param].at + k - own.part.first], sizeof *place);
    views_end(&v);
    const enum error_code e = comm_bring(learner->comm, place, (uint64_t)n * sizeof *place, all, err);
    for (int r = 1; r < learner->comm->size && all && !e; r++)
        for (int64_t i = 0; i < n; i++) all[i] |= all[r * n + i];
    return e;
}

static enum error_code write_params(struct writing *writing, struct weather_learner *learner, struct error *err)
{
    const int params = learner->network.params;
    enum error_code e = OK;
    uint64_t *const own = calloc((size_t)learner->network.share_at[WEATHER_SHARES] + 1, sizeof *own);
    if (own == NULL) e = fail(err, ERR_MEMORY, "no memory to collect a parameter");
    e = comm_agree(learner->comm, e, err);
    for (int state = -1; state < learner->job->optimizer->states && !e; state++)
        for (int i = 0; i < params && !e; i++) {
            e = bring_param(learner, i, saved_kind(state), own, writing->all, err);
            if (!e && learner->comm->rank == 0)
                e = safetensors_write(state < 0 ? &writing->weights : &writing->states,
                                      state < 0 ? i : state * params + i, writing->all, err);
            e = comm_agree(learner->comm, e, err);
        }
    free(own);
    return e;
}

enum error_code weather_save(struct weather_learner *learner, const char *dir, struct error *err)
{
    const bool writes = learner->comm->rank == 0;
    struct writing w = { .entry = NULL };
    enum error_code e = comm_agree(learner->comm, writes ? start_writing(&w, learner, dir, err) : OK, err);
    if (!e) e = write_params(&w, learner, err);
    if (!e && writes) e = safetensors_commit(&w.weights, err);
    if (!e && writes) e = safetensors_commit(&w.states, err);
    if (!e && writes) e = bundle_commit(&w.folder, err);
    if (writes) {
        safetensors_abort(&w.weights), safetensors_abort(&w.states);
        if (w.folder.kind) bundle_end(&w.folder);
    }
    free(w.name), free(w.entry), free(w.all);
    return comm_agree(learner->comm, e, err);
}
