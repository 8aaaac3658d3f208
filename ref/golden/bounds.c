#include "ref/golden/bounds.h"
#include "ref/io/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const enum dtype bound_formats[BOUND_FORMATS] = { F32, F64 };

/* Up to three decimal digits, so that the text is the same wherever the measurement nearly is. */
static double three_digits(double x)
{
    char text[32];
    double rounded;
    snprintf(text, sizeof text, "%.2e", x);
    rounded = strtod(text, NULL);
    if (rounded < x) {
        snprintf(text, sizeof text, "%.2e", x * 1.005);
        rounded = strtod(text, NULL);
    }
    return rounded;
}

enum error_code bounds_measure(const struct replay *plain, double bound[], struct error *err)
{
    const enum dtype t = plain->model.ops->dtype;
    for (int i = 0; i < plain->records; i++) bound[i] = 0;
    for (uint64_t seed = 1; seed <= BOUND_TWINS; seed++) {
        struct replay twin;
        const enum error_code e = replay_run(&twin, plain->golden, t, seed, PERTURB_LAMBDA, err);
        if (e) return e;
        for (int i = 0; i < plain->records; i++) {
            const double d = tensor_apart(twin.record[i].values, plain->record[i].values).relative + 2 * dtype_unit(t);
            if (!(d <= bound[i])) bound[i] = d;
        }
        replay_free(&twin);
    }
    for (int i = 0; i < plain->records; i++) bound[i] = three_digits(bound[i]);
    return OK;
}

/* ---- the file ------------------------------------------------------------------------------------------------------------ */

struct path { char text[4096]; };

/* NAME.safetensors has NAME.bounds.json beside it. */
static struct path path_beside(const struct golden *g)
{
    struct path p;
    const char *end = strrchr(g->file.path, '.');
    snprintf(p.text, sizeof p.text, "%.*s.bounds.json", (int)(end ? (size_t)(end - g->file.path) : strlen(g->file.path)), g->file.path);
    return p;
}

enum error_code bounds_read(const struct replay *plain, double bound[], struct error *err)
{
    const struct path path = path_beside(plain->golden);
    const cJSON *list;
    cJSON *root;
    enum error_code e = json_read(path.text, &root, err);
    if (e) return e;
    e = json_object(root, path.text, dtype_name(plain->model.ops->dtype), &list, err);
    for (int i = 0; i < plain->records && !e; i++) {
        e = json_double(list, path.text, plain->record[i].name, &bound[i], err);
        if (!e && !(bound[i] > 0)) e = fail(err, ERR_FORMAT, "%s: the bound of %s is %g; it must be above 0", path.text, plain->record[i].name, bound[i]);
    }
    cJSON_Delete(root);
    return e;
}

static enum error_code add_format(cJSON *root, const struct golden *g, enum dtype t, struct error *err)
{
    struct replay plain;
    enum error_code e = replay_run(&plain, g, t, 0, 0, err);
    if (e) return e;
    double *bound = calloc((size_t)plain.records + 1, sizeof *bound);
    cJSON *list = cJSON_AddObjectToObject(root, dtype_name(t));
    bool ok = bound && list;
    if (ok) e = bounds_measure(&plain, bound, err);
    for (int i = 0; i < plain.records && ok && !e; i++) ok = cJSON_AddNumberToObject(list, plain.record[i].name, bound[i]) != NULL;
    free(bound);
    replay_free(&plain);
    return e || ok ? e : fail(err, ERR_MEMORY, "no memory for the bounds of %s", g->file.path);
}

enum error_code bounds_write(const struct golden *g, struct error *err)
{
    const struct path path = path_beside(g);
    const char *slash = strrchr(g->file.path, '/');
    cJSON *root = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(root, "golden", slash ? slash + 1 : g->file.path) && cJSON_AddNumberToObject(root, "lambda", PERTURB_LAMBDA)
              && cJSON_AddNumberToObject(root, "twins", BOUND_TWINS);
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "%s: no memory to write it", path.text);
    for (int f = 0; f < BOUND_FORMATS && !e; f++) e = add_format(root, g, bound_formats[f], err);
    if (!e) e = json_write(path.text, root, err);
    cJSON_Delete(root);
    return e;
}
