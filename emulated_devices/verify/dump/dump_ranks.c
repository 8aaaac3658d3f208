/* dump_ranks.c -- writes on each device a file of its own parts of a run's tensors.  run/golden.c calls on all
 * ranks.  A folder with files of a dump is ERR_FILE; without memory the code is ERR_MEMORY.  Files get their names only
 * after every device has written. */
#include "emulated_devices/verify/dump/dump_ranks.h"
#include "emulated_devices/comm/folding.h"
#include "emulated_devices/verify/dump/dump_pieces.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/io/disk.h"
#include "ref/io/json.h"
#include "ref/model/params.h"
#include "ref/numeric/convert.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static enum error_code dump_ranks_add(struct dump_ranks *ranks, const char *key, struct tensor t, struct error *err)
{
    if (ranks->count == ranks->room) {
        const int room = ranks->room ? 2 * ranks->room : 256;
        struct record *more = realloc(ranks->all, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory to dump %s", key);
        ranks->all = more, ranks->room = room;
    }
    struct record *r = &ranks->all[ranks->count];
    *r = (struct record){ .values = t };
    snprintf(r->name, sizeof r->name, "%s", key);
    r->values.dtype = dump_format(t.dtype);
    r->values.data = malloc(tensor_bytes(r->values) + 1);
    if (r->values.data == NULL) return fail(err, ERR_MEMORY, "no memory to dump %s", key);
    convert_numbers(r->values.data, r->values.dtype, t.data, t.dtype, tensor_count(t));
    ranks->count++;
    return OK;
}

cJSON *dump_intervals(const struct intervals *intervals)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < intervals->count; i++) {
        const double pair[] = { (double)intervals->at[i].first, (double)intervals->at[i].count };
        cJSON_AddItemToArray(list, cJSON_CreateDoubleArray(pair, 2));
    }
    return list;
}

enum error_code dump_add_piece(struct dump_ranks *ranks, const char *key, const struct part *part, struct tensor t,
                               int micro, double times, cJSON *partial, struct error *err)
{
    const double of[] = { (double)part->dim[0], (double)part->dim[1] };
    cJSON *entry = cJSON_AddObjectToObject(ranks->layout, key);
    cJSON_AddItemToObject(entry, "of", cJSON_CreateDoubleArray(of, 2));
    cJSON_AddItemToObject(entry, "rows", dump_intervals(&part->rows));
    cJSON_AddItemToObject(entry, "cols", dump_intervals(&part->cols));
    if (micro >= 0) json_add(entry, "micro %d", micro);
    if (times != 1) json_add(entry, "times %g", times);
    if (partial) cJSON_AddItemToObject(entry, "partial", partial);
    return dump_ranks_add(ranks, key, tensor_2d(t.data, t.dtype, intervals_total(&part->rows),
                                                intervals_total(&part->cols)), err);
}

/* The devices along tp that have copies of this one's keys and values: {"tp": [[begin, count], ..]}.  With sections a
 * dump's mesh is a line of all devices (mesh_text): then their ranks on it. */
static cJSON *places_of_copies(const struct trainer *trainer, int layer)
{
    const struct trainer *const section = trainer_of_layer(trainer, layer);
    const struct group *const copies = &section->tensor.copies;
    const bool line = trainer->plan.sections != NULL;
    struct intervals places = { 0 };
    for (int i = 0; i < copies->size; i++) {
        const int rank = copies->member[i], place = line ? rank : mesh_coordinate(&section->plan.mesh, rank, TP);
        intervals_add(&places, (struct interval){ place, 1 });
    }
    cJSON *partial = cJSON_CreateObject();
    cJSON_AddItemToObject(partial, axis_name(line ? DP : TP), dump_intervals(&places));
    intervals_free(&places);
    return partial;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static enum error_code add_activation(struct dump_ranks *ranks, const struct probes *probes, const char *prefix, int i,
                                      int micro, double scale, struct error *err)
{
    const struct expected *x = &probes->expected[i];
    char name[RECORD_NAME - 96], key[RECORD_NAME];
    struct part part, copied;
    const void *data = probes_own(probes, i, micro, &part), *keys = probes_own_copied(probes, i, micro, &copied);
    if (data == NULL) return OK;
    activation_name(name, sizeof name, x->name, x->layer, (int)probes->trainer->plan.model.L);
    snprintf(key, sizeof key, "%.40s%s/%s#%d", prefix, x->gradient ? "grad" : "act", name, micro);
    const double times = x->gradient ? 1 / scale : 1;
    struct tensor t = tensor_1d((void *)(uintptr_t)data, x->format, part_count(&part));
    enum error_code e = part_count(&part) > 0 ? dump_add_piece(ranks, key, &part, t, micro, times, NULL, err) : OK;
    part_free(&part);
    if (keys == NULL) return e;
    snprintf(key, sizeof key, "%.40sgrad/%s#%d.keys", prefix, name, micro);
    t = tensor_1d((void *)(uintptr_t)keys, x->format, part_count(&copied));
    if (!e && part_count(&copied) > 0)
        e = dump_add_piece(ranks, key, &copied, t, micro, times, places_of_copies(probes->trainer, x->layer), err);
    part_free(&copied);
    return e;
}

enum error_code dump_ranks_activations(struct dump_ranks *ranks, struct probes *probes, const char *prefix,
                                       const char *only, const struct step_result *result, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < probes->count; i++) {
        if (!expected_is_dumped(&probes->expected[i], only)) continue;
        for (int micro = 0; micro < probes->trainer->plan.micros && !e; micro++)
            e = add_activation(ranks, probes, prefix, i, micro, result->loss_scale, err);
    }
    e = comm_agree(probes->trainer->comm, e, err);
    return e || !probes->probe.sorted ? e
           : dump_ranks_experts(ranks, probes, prefix, result->loss_scale, err);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* This holds what a device keeps of a parameter: some of the elements of its boxes. */
struct keeping {
    struct dump_ranks *dump;
    const char *name;
    int64_t dim[2];
    struct tensor data;                 /* [those elements] */
    int64_t used;                       /* of them */
    double times;
    int pieces;
};

static enum error_code add_rectangle(struct keeping *keeping, struct interval rows, struct interval cols,
                                     struct error *err)
{
    char key[RECORD_NAME];
    struct part part = { .dim = { keeping->dim[0], keeping->dim[1] } };
    if (rows.count == 0 || cols.count == 0) return OK;
    intervals_add(&part.rows, rows), intervals_add(&part.cols, cols);
    snprintf(key, sizeof key, "%.*s#%d", RECORD_NAME - 16, keeping->name, keeping->pieces++);
    const int64_t n = rows.count * cols.count;
    const struct tensor t = tensor_1d((char *)keeping->data.data + (size_t)keeping->used
                                      * dtype_size(keeping->data.dtype), keeping->data.dtype, n);
    keeping->used += n;
    const enum error_code e = part_made(&part)
        ? dump_add_piece(keeping->dump, key, &part, t, -1, keeping->times, NULL, err)
        : fail(err, ERR_MEMORY, "no memory to dump %s", key);
    part_free(&part);
    return e;
}

/* Some elements of a box, row by row: the end of a row, whole rows, and the beginning of a row. */
static enum error_code add_part_of_box(struct keeping *keeping, const struct box *box, int ndim, struct interval kept,
                                       struct error *err)
{
    const int64_t width = ndim > 1 ? box->extent[1] : 1, left = ndim > 1 ? box->start[1] : 0, end = interval_end(kept);
    int64_t at = kept.first;
    enum error_code e = OK;
    while (at < end && !e) {
        const int64_t row = at / width, col = at % width, whole = (end - at) / width,
                      rows = col == 0 && whole > 0 ? whole : 1,
                      cols = col == 0 && whole > 0 ? width : end - at < width - col ? end - at : width - col;
        e = add_rectangle(keeping, (struct interval){ box->start[0] + row, rows },
                          (struct interval){ left + col, cols }, err);
        at += rows * cols;
    }
    return e;
}

static enum error_code add_kept(struct keeping *keeping, const struct layout *layout, struct interval kept,
                                struct error *err)
{
    int64_t before = 0;
    enum error_code e = OK;
    for (int i = 0; i < layout->boxes && !e; i++) {
        const int64_t count = layout->box[i].extent[0] * (layout->ndim > 1 ? layout->box[i].extent[1] : 1);
        const struct interval here = interval_meet(kept, (struct interval){ before, count });
        e = add_part_of_box(keeping, &layout->box[i], layout->ndim, interval_moved(here, -before), err);
        before += count;
    }
    return e;
}

static enum error_code add_parameter(struct dump_ranks *ranks, const struct trainer *trainer, int index,
                                     const char *name, enum tensor_kind kind, double times, struct error *err)
{
    const struct param_spec spec = trainer_spec(trainer, index);
    trainer = trainer_of_layer(trainer, spec.layer);
    const struct parameter *own = trainer_takes_part(trainer) ? parameter_find(&trainer->parameters, index) : NULL;
    struct keeping k = { .dump = ranks, .name = name, .times = times,
                         .dim = { spec.dim[0], spec.ndim > 1 ? spec.dim[1] : 1 } };
    enum error_code e = OK;
    for (int tile = 0; own && tile < tiles_of(&trainer->plan.data, &spec) && !e; tile++) {
        struct interval kept;
        k.data = tensor_none, k.used = 0;
        e = collect_own(trainer, own + tile, kind, &kept, &k.data, err);
        const struct layout l = plan_tile_layout(&trainer->plan, trainer->comm->rank, &spec, tile);
        if (!e) e = add_kept(&k, &l, kept, err);
        free(k.data.data);
    }
    return e;
}

static enum error_code add_parameters(struct dump_ranks *ranks, const struct trainer *trainer, const char *kind_name,
                                      enum tensor_kind kind, double times, struct error *err)
{
    char name[RECORD_NAME];
    enum error_code e = OK;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && !e; i++) {
        snprintf(name, sizeof name, "%.31s/%s", kind_name, trainer_spec(trainer, i).name);
        e = add_parameter(ranks, trainer, i, name, kind, times, err);
    }
    return e;
}

enum error_code dump_ranks_gradients(struct dump_ranks *ranks, const struct trainer *trainer, const char *kind,
                                     const struct step_result *result, struct error *err)
{
    return add_parameters(ranks, trainer, kind, KIND_GRADIENT, 1 / result->loss_scale, err);
}

/* The corrections of routers, of which each device has all. */
static enum error_code add_biases(struct dump_ranks *ranks, const struct trainer *trainer, const char *folder,
                                  struct error *err)
{
    char name[RECORD_NAME];
    enum error_code e = OK;
    for (int64_t l = 0; l < trainer->plan.model.L && !e; l++) {
        const struct param_spec s = model_router_bias(&trainer->plan.model, l);
        snprintf(name, sizeof name, "%.31s/%s", folder, s.name);
        if (s.ndim > 0)
            e = dump_ranks_add(ranks, name, tensor_1d(trainer->routers.bias + l * s.dim[0], F64, s.dim[0]), err);
    }
    return e;
}

enum error_code dump_ranks_weights(struct dump_ranks *ranks, const struct trainer *trainer, int64_t step,
                                   struct error *err)
{
    const struct optimizer *o = trainer->plan.optimizer;
    char at[24] = "", name[64];
    if (step > 0) snprintf(at, sizeof at, "/%lld", (long long)step);
    snprintf(name, sizeof name, "%s%s/weight", o->name, at);
    enum error_code e = add_parameters(ranks, trainer, name, KIND_WEIGHT, 1, err);
    if (!e) e = add_biases(ranks, trainer, name, err);
    for (int k = 0; k < o->states && !e; k++) {
        snprintf(name, sizeof name, "%s%s/%s", o->name, at, o->state_name[k]);
        e = add_parameters(ranks, trainer, name, KIND_STATE + (enum tensor_kind)k, 1, err);
    }
    return e;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

enum error_code dump_ranks_numbers(struct dump_ranks *ranks, const struct step_result *result, struct error *err)
{
    double *loss = realloc(ranks->loss, (size_t)(ranks->steps + 1) * sizeof *loss);
    if (loss) ranks->loss = loss;
    double *norm = realloc(ranks->norm, (size_t)(ranks->steps + 1) * sizeof *norm);
    if (norm) ranks->norm = norm;
    if (loss == NULL || norm == NULL)
        return fail(err, ERR_MEMORY, "no memory for %lld losses", (long long)ranks->steps);
    loss[ranks->steps] = result->loss, norm[ranks->steps++] = result->norm;
    return OK;
}

/* Numbers of all steps.  Those of the steps before the dump begins are not there. */
static enum error_code add_all_steps(struct dump_ranks *ranks, const struct optimizer *optimizer, const char *what,
                                     double *numbers, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s", optimizer->name, what);
    if (ranks->begins > 0) {
        cJSON *rows = cJSON_AddArrayToObject(cJSON_AddObjectToObject(ranks->layout, name), "rows");
        cJSON_AddItemToArray(rows, cJSON_CreateDoubleArray((double[]){ (double)ranks->begins, (double)ranks->steps },
                                                           2));
    }
    return dump_ranks_add(ranks, name, tensor_1d(numbers, F64, ranks->steps), err);
}

static enum error_code add_numbers(struct dump_ranks *ranks, const struct optimizer *optimizer, bool ends,
                                   struct error *err)
{
    enum error_code e = OK;
    if (ranks->begins == 0) e = dump_ranks_add(ranks, "loss", tensor_1d(ranks->loss, F64, 1), err);
    if (!e && ranks->begins == 0) e = dump_ranks_add(ranks, "norm", tensor_1d(ranks->norm, F64, 1), err);
    if (!e && ends) e = add_all_steps(ranks, optimizer, "loss", ranks->loss, err);
    return e || !ends ? e : add_all_steps(ranks, optimizer, "norm", ranks->norm, err);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* An older dump would be read as a part of this one. */
static enum error_code make_folder(const char *folder, struct error *err)
{
    const char *why = "cannot be created";
    struct stat s;
    if (disk_make_folder(folder) == 0) return OK;
    DIR *d = stat(folder, &s) == 0 && S_ISDIR(s.st_mode) ? opendir(folder) : NULL;
    bool has = false;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) has = has || strstr(e->d_name, ".safetensors") != NULL;
    if (d) closedir(d);
    if (d && !has) return OK;
    if (has) why = "has files of a dump; the folder of a new one must have none";
    return fail(err, ERR_FILE, "--dump %s: %s", printable_path(folder).text, why);
}

enum error_code dump_ranks_open(struct dump_ranks *ranks, const char *folder, struct trainer *trainer,
                                struct error *err)
{
    *ranks = (struct dump_ranks){ .folder = folder, .layout = cJSON_CreateObject(), .begins = trainer->step };
    enum error_code e = ranks->layout ? OK : fail(err, ERR_MEMORY, "no memory for a dump");
    if (!e && trainer->comm->rank == 0) e = make_folder(folder, err);
    if (!e && ranks->begins > 0) e = dump_ranks_weights(ranks, trainer, ranks->begins, err);
    return comm_agree(trainer->comm, e, err);
}

/* Devices of sections are no product of axes: a line along dp, on which layouts say everything. */
static char *mesh_text(const struct mesh *mesh)
{
    cJSON *o = cJSON_CreateObject();
    if (folding_none(mesh).mesh.size[DP] > mesh->size[DP]) cJSON_AddNumberToObject(o, axis_name(DP), mesh->devices);
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (mesh->size[a] > 1) cJSON_AddNumberToObject(o, axis_name(a), mesh->size[a]);
    char *text = json_text(o, false);
    cJSON_Delete(o);
    return text;
}

/* All files get their names when all are written.  of_step: before the rank, "step2." or empty. */
static enum error_code write_file(const struct dump_ranks *ranks, struct trainer *trainer, const char *of_step,
                                  const char *mesh, const char *layout, struct error *err)
{
    char rank[16], begins[24], path[4096];
    struct safetensors_writer w;
    const char *const arithmetic = exact_rule_names[trainer->plan.model.exact];
    snprintf(rank, sizeof rank, "%d", trainer->comm->rank);
    snprintf(begins, sizeof begins, "%lld", (long long)ranks->begins);
    snprintf(path, sizeof path, "%.4000s/%srank%d.safetensors", ranks->folder, of_step, trainer->comm->rank);
    const struct safetensors_pair about[] = {
        { "orrery_dump", "1" }, { "rank", rank }, { "mesh", mesh }, { "dtype", dtype_name(trainer->plan.dtype) },
        { "program", "orrery train" }, { "layout", layout },
        /* The last two are not in every dump: pairs counts those that are. */
        { ranks->begins > 0 ? "begins" : "arithmetic", ranks->begins > 0 ? begins : arithmetic },
        { "arithmetic", arithmetic },
    };
    const int pairs = 6 + (ranks->begins > 0) + (trainer->plan.model.exact != SUMS_ROUND);
    enum error_code e = mesh && layout ? records_start(&w, ranks->all, ranks->count, about, pairs, path, err)
                                       : fail(err, ERR_MEMORY, "no memory to write %s", path);
    const bool started = !e;
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_agree(trainer->comm, safetensors_commit(&w, err), err);
    else if (started) safetensors_abort(&w);
    return fail_about(err, e, "--dump");
}

static enum error_code write_files(struct dump_ranks *ranks, struct trainer *trainer, const char *of_step,
                                   struct error *err)
{
    char *mesh = mesh_text(&trainer->plan.mesh), *layout = json_text(ranks->layout, false);
    const enum error_code e = write_file(ranks, trainer, of_step, mesh, layout, err);
    free(mesh), free(layout);
    if (!e) ranks->files += trainer->comm->size;
    return e;
}

enum error_code dump_ranks_write(struct dump_ranks *ranks, struct trainer *trainer, bool ends, struct error *err)
{
    enum error_code e = add_numbers(ranks, trainer->plan.optimizer, ends, err);
    if (!e && ends) e = dump_ranks_weights(ranks, trainer, 0, err);
    e = comm_agree(trainer->comm, e, err);
    if (e) return e;
    return write_files(ranks, trainer, "", err);
}

/* Forget the tensors; those of the next step follow. */
static void dump_ranks_empty(struct dump_ranks *ranks)
{
    for (int i = 0; i < ranks->count; i++) free(ranks->all[i].values.data);
    ranks->count = 0;
}

enum error_code dump_ranks_write_step(struct dump_ranks *ranks, struct trainer *trainer, int64_t step,
                                      struct error *err)
{
    static const char *const numbers[] = { "loss", "norm" };
    double *const value[] = { &ranks->loss[ranks->steps - 1], &ranks->norm[ranks->steps - 1] };
    char name[64];
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        if (step == 1) snprintf(name, sizeof name, "%s", numbers[i]);
        else snprintf(name, sizeof name, "%s/%lld/%s", trainer->plan.optimizer->name, (long long)step, numbers[i]);
        e = dump_ranks_add(ranks, name, tensor_1d(value[i], F64, 1), err);
    }
    e = comm_agree(trainer->comm, e, err);
    snprintf(name, sizeof name, "step%lld.", (long long)step);
    if (!e) e = write_files(ranks, trainer, name, err);
    dump_ranks_empty(ranks);
    cJSON_Delete(ranks->layout);
    ranks->layout = cJSON_CreateObject();
    return e || ranks->layout ? e : fail(err, ERR_MEMORY, "no memory for a dump");
}

void dump_ranks_free(struct dump_ranks *ranks)
{
    dump_ranks_empty(ranks);
    free(ranks->all), free(ranks->loss), free(ranks->norm);
    cJSON_Delete(ranks->layout);
    *ranks = (struct dump_ranks){ 0 };
}
