/* steps.c -- training steps on this machine, beside their virtual time on it: runs this program on some meshes.
 * cli/calibrate/check.c prints.  Errors: ERR_USAGE for too many models, ERR_FILE if a file cannot be written,
 * ERR_MEMORY, and those of a run. */
#include "emulated_devices/bench/calibrate/steps.h"
#include "emulated_devices/launch/launch.h"
#include "ref/io/json.h"
#include "ref/machine/measure.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word of each axis, and of schemes that are not the usual. */
static const struct steps_mesh meshes[] = {
    { 1, "one device", { NULL } },
    { 2, "dp 2", { "--dp", "2" } },
    { 2, "tp 2", { "--tp", "2" } },
    { 2, "pp 2", { "--pp", "2", "--micro", "4" } },
    { 2, "dp 2, zero3", { "--dp", "2", "--zero", "3" } },
    { 4, "dp 2 tp 2", { "--dp", "2", "--tp", "2" } },
    { 4, "tp 2 pp 2", { "--tp", "2", "--pp", "2", "--micro", "4" } },
    { 4, "dp 4", { "--dp", "4" } },
    { 8, "dp 2 tp 2 pp 2", { "--dp", "2", "--tp", "2", "--pp", "2", "--micro", "4" } },
};
enum { MESHES = sizeof meshes / sizeof *meshes, MODELS_MOST = 16,
       RUN_LIMIT = 1800 };              /* seconds: a run that has not ended by then never will */

struct check {
    const struct steps_request *asked;
    const char *cluster[MESHES];        /* of each mesh */
    const char *result, *text;          /* files: of a run; of what it reads */
    struct timed_steps *to;
};

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

/* The file of so many devices; meshes of as many have the same. */
static enum error_code calibrate(struct check *check, int at, struct error *err)
{
    char devices[16];
    const struct steps_request *a = check->asked;
    for (int i = 0; i < at; i++)
        if (meshes[i].devices == meshes[at].devices) return check->cluster[at] = check->cluster[i], OK;
    if ((check->cluster[at] = temporary_file(err)) == NULL) return err->code;
    snprintf(devices, sizeof devices, "%d", meshes[at].devices);
    const char *const words[] = { a->program, "calibrate", "--devices", devices, "--dtype", a->dtype, "--quiet",
                                  "--out", check->cluster[at], a->quick ? "--quick" : NULL, NULL };
    return run_aside(words, RUN_LIMIT, err);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static enum error_code read_steps(struct steps_row *row, const char *path, struct error *err)
{
    cJSON *root;
    const cJSON *steps, *step;
    double virtual_ps = 0;
    int n = 0;
    enum error_code e = json_read(path, &root, err);
    if (e) return e;
    e = json_double(root, path, "virtual_step_ps", &virtual_ps, err);
    if (!e) e = json_array(root, path, "steps", &steps, err);
    row->clock = 1e-12 * virtual_ps;
    if (!e) cJSON_ArrayForEach(step, steps) {
        double seconds;
        if (e || n++ == 0 || row->steps == STEPS_SECONDS) continue;        /* the first is to warm up */
        e = json_double(step, path, "seconds", &seconds, err);
        if (!e) row->seconds[row->steps++] = seconds;
    }
    cJSON_Delete(root);
    return e;
}

static enum error_code check_run(struct check *check, struct steps_row *row, struct error *err)
{
    enum { OWN = 14 };                  /* words of every run */
    char steps[16];
    const struct steps_request *a = check->asked;
    snprintf(steps, sizeof steps, "%d", a->steps);
    const char *words[OWN + 9] = { a->program, "train", "--model", row->model, "--steps", steps, "--dtype", a->dtype,
                                   "--cluster", check->cluster[row->mesh - meshes], "--data", check->text, "--json",
                                   check->result };
    for (int i = 0, n = OWN; row->mesh->words[i]; i++) words[n++] = row->mesh->words[i];
    const enum error_code e = run_aside(words, RUN_LIMIT, err);
    return e ? e : read_steps(row, check->result, err);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum error_code add_model(struct check *check, const char *name, struct error *err)
{
    struct model_config shape;
    int64_t batch;
    const enum error_code e = fail_about(err, model_config_preset(&shape, &batch, name, err), "--model");
    for (int i = 0; i < MESHES && !e; i++) {
        if (meshes[i].devices > check->asked->devices) continue;
        struct steps_row *r = &check->to->row[check->to->rows++];
        r->mesh = &meshes[i];
        snprintf(r->model, sizeof r->model, "%s", name);
    }
    return e;
}

static enum error_code add_models(struct check *check, struct error *err)
{
    char name[64];
    const char *at = check->asked->models;
    enum error_code e = OK;
    for (int n = 0; *at && !e; n++) {
        const size_t length = strcspn(at, ",");
        if (n == MODELS_MOST) return fail(err, ERR_USAGE, "--model: at most %d models", MODELS_MOST);
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        e = add_model(check, name, err);
        at += length + (at[length] == ',');
    }
    return e;
}

static enum error_code run_all(struct check *check, struct error *err)
{
    enum error_code e = (check->result = handover_file(err)) ? OK : err->code;
    for (int i = 0; i < MESHES && !e; i++) {
        if (meshes[i].devices > check->asked->devices) continue;
        if (check->asked->cluster) check->cluster[i] = check->asked->cluster;
        else e = calibrate(check, i, err);
    }
    for (int round = 0; round < check->asked->rounds; round++)
        for (int i = 0; i < check->to->rows && !e; i++) e = check_run(check, &check->to->row[i], err);
    for (int i = 0; i < check->to->rows && !e; i++) {
        struct steps_row *r = &check->to->row[i];
        r->took.median = measure_median(r->seconds, r->steps), r->took.least = r->seconds[0];   /* sorted */
    }
    return e;
}

/* Numbers in words, as a text for the models. */
static enum error_code write_text(struct check *check, struct error *err)
{
    enum { LINES = 4000 };
    if ((check->text = temporary_file(err)) == NULL) return err->code;
    FILE *out = fopen(check->text, "w");
    for (int i = 0; out && i < LINES; i++) fprintf(out, "%d\n", i);
    return out && fclose(out) == 0 ? OK : fail(err, ERR_FILE, "%s: cannot be written", check->text);
}

enum error_code steps_time(const struct steps_request *asked, struct timed_steps *to, struct error *err)
{
    struct check c = { .asked = asked, .to = to };
    *to = (struct timed_steps){ .row = calloc((size_t)MESHES * MODELS_MOST, sizeof *to->row) };
    enum error_code e = to->row ? add_models(&c, err) : fail(err, ERR_MEMORY, "no memory for the runs");
    if (!e) e = write_text(&c, err);
    return e ? e : run_all(&c, err);
}
