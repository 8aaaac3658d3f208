#include "emulated_devices/verify/golden_bounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stored result is off by up to its format's u, and what lies between two of the tensors that have a name is stored a few
 * times: four u in all. */
static const struct golden_format formats[] = {
    { "fp64", F64, 0, 0 }, { "fp32", F32, 0, 0 }, { "bf16", F64, 0x1p-24, 4 * 0x1p-9 }, { "fp16", F64, 0x1p-24, 4 * 0x1p-12 },
};

const struct golden_format *golden_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

/* Loss and norm are single numbers, whose differences could be small by chance. */
static double floor_of(const struct golden_format *f, const struct record *r) { return tensor_count(r->values) == 1 ? f->storage : f->storage / 2; }

/* The farthest of a few twins. */
static enum error_code measure_storage(const struct replay *plain, const struct golden_format *f, double bound[], struct error *err)
{
    enum { TWINS = 4 };
    enum error_code e = OK;
    for (int i = 0; i < plain->records; i++) bound[i] = 0;
    for (uint64_t seed = 1; seed <= TWINS && !e; seed++) {
        struct replay twin;
        const struct perturbation disturb = { .seed = seed, .unit = f->unit, .storage = f->storage };
        e = replay_disturbed(&twin, plain->golden, F64, &disturb, err);
        for (int i = 0; !e && i < plain->records; i++) bound[i] = fmax(bound[i], tensor_apart(twin.record[i].values, plain->record[i].values).relative);
        if (!e) replay_free(&twin);
    }
    for (int i = 0; i < plain->records; i++) bound[i] += floor_of(f, &plain->record[i]);
    return e;
}

static enum error_code bounds_of(const struct replay *plain, const struct golden_format *f, double bound[], struct error *err)
{
    if (f->storage > 0) return measure_storage(plain, f, bound, err);
    const enum error_code e = bounds_read(plain, bound, err);
    return e == ERR_FILE ? bounds_measure(plain, bound, err) : e;
}

/* In fp32 rounding may be as large as the bound itself; a file of another run is off by far more. */
static enum error_code agree_with_file(const struct replay *r, const double bound[], struct error *err)
{
    enum error_code e = replay_covers(r, err);
    for (int i = 0; i < r->records && !e; i++) {
        struct apart apart;
        struct tensor want = tensor_none;
        e = replay_compare(r, i, &apart, &want, err);
        free(want.data);
        if (!e && !(apart.relative <= bound[i] + 1e-10))
            e = fail(err, ERR_CHECK, "%s: %s is not what our model computes; it differs by %.3g", shown_path(r->golden->file.path).text, r->record[i].name, apart.relative);
    }
    return e;
}

static enum error_code make_list(const struct replay *r, const double bound[], struct golden_list *list, struct error *err)
{
    *list = (struct golden_list){ .count = r->records, .all = calloc((size_t)r->records + 1, sizeof *list->all) };
    if (list->all == NULL) return fail(err, ERR_MEMORY, "no memory for %d bounds", r->records);
    for (int i = 0; i < r->records; i++) {
        memcpy(list->all[i].name, r->record[i].name, sizeof list->all[i].name);
        list->all[i].bound = bound[i];
    }
    return OK;
}

enum error_code golden_measure(const struct golden *g, const struct golden_format *format, struct golden_list *list, struct error *err)
{
    struct replay plain;
    *list = (struct golden_list){ 0 };
    enum error_code e = replay_run(&plain, g, format->dtype, 0, 0, err);
    if (e) return e;
    double *bound = calloc((size_t)plain.records + 1, sizeof *bound);
    e = bound ? bounds_of(&plain, format, bound, err) : fail(err, ERR_MEMORY, "no memory for %d bounds", plain.records);
    if (!e) e = agree_with_file(&plain, bound, err);
    if (!e) e = make_list(&plain, bound, list, err);
    free(bound);
    replay_free(&plain);
    return e;
}

void golden_list_free(struct golden_list *list)
{
    free(list->all);
    *list = (struct golden_list){ 0 };
}
