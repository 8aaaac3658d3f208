/* join_experts.c -- reads dense models, compares what they share, and writes the mixture of their feed-forwards.
 * cli/mixture.c calls.  Errors are those of join_experts.h; a failure leaves no file. */
#include "emulated_devices/model/join_experts.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include "ref/model/modality.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "ref/numeric/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the config -------------------------------------------------------------------------------------------------- */

/* Configs of models that can be joined are the same text. */
static enum error_code same_config(const struct joining *joining, int model, struct error *err)
{
    struct model_config other;
    char *first = NULL, *text = NULL;
    enum error_code e = model_config_read_folder(&other, joining->dir[model], err);
    if (!e) e = model_config_text(&joining->dense, &first, err);
    if (!e) e = model_config_text(&other, &text, err);
    if (!e && strcmp(first, text) != 0)
        e = fail(err, ERR_USAGE, "%s: its config.json is not that of %s", printable_path(joining->dir[model]).text,
                 printable_path(joining->dir[0]).text);
    free(first), free(text);
    return e;
}

enum error_code joining_config(struct joining *joining, const struct model_config *like, struct error *err)
{
    const struct model_config *const dense = &joining->dense;
    struct model_config *const c = &joining->mixture;
    enum error_code e = OK;
    if (like->mlp != MLP_MIXTURE || dense->mlp == MLP_MIXTURE)
        return fail(err, ERR_USAGE, "%s has %s experts: dense models become a mixture like another one",
                    like->mlp == MLP_MIXTURE ? dense->name : like->name, like->mlp == MLP_MIXTURE ? "its" : "no");
    if (like->shortcut || like->dense.F > 0 || like->mixture.shared > 0)
        return fail(err, ERR_USAGE, "--like %s: has feed-forwards besides its experts, which no model gives",
                    like->name);
    if (like->mixture.router.biased || like->mixture.router.groups > 1)
        return fail(err, ERR_USAGE, "--like %s: its router has biases or groups, which are for experts that were "
                    "trained together", like->name);
    if (dense->mlp != MLP_SWIGLU)
        return fail(err, ERR_USAGE, "%s: its feed-forward is no swiglu, as experts are", dense->name);
    for (int m = 1; m < joining->models && !e; m++) e = same_config(joining, m, err);
    *c = *dense;
    c->family = like->family, c->mlp = MLP_MIXTURE, c->mixture = like->mixture, c->mixture.E = joining->models;
    return e ? e : fail_about(err, model_config_check(c, err), "the mixture");
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* The models' files, and the mixture while it is filled. */
struct join {
    struct joining *joining;
    struct weights file[JOINED_MOST];           /* [open] */
    int open;                                   /* files that were opened */
    int params, encoders;                       /* of the mixture; of encoders, which are last */
    struct param_spec *spec;                    /* [params + encoders] */
    struct weights_writer writer;               /* of the mixture's file */
};

static int64_t spec_numbers(const struct param_spec *spec)
{
    return spec->dim[0] * (spec->ndim == 2 ? spec->dim[1] : 1);
}

/* Read a whole parameter of one model.  @return an array of doubles for free(); NULL with *err. */
static double *read_whole(const struct join *join, int model, const struct param_spec *spec, struct error *err)
{
    static const int64_t start[2] = { 0 };
    double *const number = malloc((size_t)spec_numbers(spec) * sizeof *number + 1);
    const enum error_code e = number == NULL ? fail(err, ERR_MEMORY, "no memory to read %s", spec->name)
        : weights_read_box(&join->file[model], spec, "", start, spec->dim, F64, number, err);
    if (e) free(number);
    return e ? NULL : number;
}

/* Find the parameter in a dense model; its feed-forward is what an expert has. */
static enum error_code place_in_dense(const struct join *join, const struct param_spec *spec, struct param_spec *dense,
                                      struct error *err)
{
    const struct model_config *const c = &join->joining->dense;
    for (int i = 0; i < model_param_count(c); i++) {
        *dense = model_param(c, i);
        const bool is = spec->expert < 0 ? strcmp(dense->name, spec->name) == 0
            : dense->layer == spec->layer && dense->role == spec->role;
        if (is && dense->ndim == spec->ndim && spec_numbers(dense) == spec_numbers(spec)) return OK;
    }
    return fail(err, ERR_USAGE, "%s of the mixture is nothing of %s", spec->name, c->name);
}

/* Parameters that no expert has must be the same in all models. */
static enum error_code compare_shared(const struct join *join, const struct param_spec *spec, const double *first,
                                   struct error *err)
{
    enum error_code e = OK;
    for (int m = 1; m < join->open && !e; m++) {
        double *const other = read_whole(join, m, spec, err);
        if (other == NULL) return err->code;
        if (memcmp(other, first, (size_t)spec_numbers(spec) * sizeof *first) != 0)
            e = fail(err, ERR_USAGE, "%s: its %s is not that of %s; train each expert alone with --train-only feed",
                     printable_path(join->joining->dir[m]).text, spec->name,
                     printable_path(join->joining->dir[0]).text);
        free(other);
    }
    return e;
}

/* Numbers go into the file in its format, which must have them. */
static enum error_code write_numbers(struct join *join, int at, const double *number, struct error *err)
{
    const struct param_spec *const spec = &join->spec[at];
    struct tensor own = tensor_1d(NULL, join->joining->dtype, spec_numbers(spec));
    own.data = malloc(tensor_bytes(own) + 1);
    if (own.data == NULL) return fail(err, ERR_MEMORY, "no memory to write %s", spec->name);
    enum error_code e = OK;
    for (int64_t i = 0; i < tensor_count(own) && !e; i++) {
        tensor_set(own, i, number[i]);
        if (tensor_get(own, i) != number[i])
            e = fail(err, ERR_USAGE, "--dtype %s: would round %s; fp64 keeps its bits", dtype_name(own.dtype),
                     spec->name);
    }
    if (!e) e = weights_write(&join->writer, at, 0, own.data, err);
    free(own.data);
    return e;
}

static enum error_code join_param(struct join *join, int at, struct error *err)
{
    const struct param_spec *const spec = &join->spec[at];
    const bool expert = spec->expert >= 0;
    struct param_spec dense = *spec;
    enum error_code e = at < join->params ? place_in_dense(join, spec, &dense, err) : OK;
    double *const number = e ? NULL : read_whole(join, expert ? spec->expert : 0, &dense, err);
    if (number == NULL) return err->code;
    if (!expert) e = compare_shared(join, &dense, number, err);
    if (!e) e = write_numbers(join, at, number, err);
    *(expert ? &join->joining->joined : &join->joining->shared) += spec_numbers(spec);
    free(number);
    return e;
}

/* Nobody has trained the routers: they are drawn. */
static enum error_code draw_router(struct join *join, int at, struct error *err)
{
    const struct param_spec *const spec = &join->spec[at];
    struct tensor drawn = tensor_1d(NULL, join->joining->dtype, spec_numbers(spec));
    drawn.data = malloc(tensor_bytes(drawn) + 1);
    if (drawn.data == NULL) return fail(err, ERR_MEMORY, "no memory to draw %s", spec->name);
    param_init(spec, join->joining->seed, drawn.dtype, 0, tensor_count(drawn), drawn.data);
    join->joining->drawn += spec_numbers(spec);
    const enum error_code e = weights_write(&join->writer, at, 0, drawn.data, err);
    free(drawn.data);
    return e;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum error_code open_models(struct join *join, struct error *err)
{
    enum error_code e = OK;
    while (join->open < join->joining->models && !e) {
        e = weights_open(&join->file[join->open], join->joining->dir[join->open], err);
        join->open += !e;
    }
    return e;
}

static bool files_have(const struct weights *weights, const char *name)
{
    bool has = false;
    for (int i = 0; i < weights->files; i++) has = has || safetensors_find(&weights->file[i], name) != NULL;
    return has;
}

/* The mixture's parameters, and those of the encoders that the first model has. */
static enum error_code list_params(struct join *join, struct error *err)
{
    struct joining *const joining = join->joining;
    join->params = model_param_count(&joining->mixture);
    join->spec = calloc((size_t)(join->params + MODALITIES * ENCODER_PARAMS), sizeof *join->spec);
    if (join->spec == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d weights", join->params);
    for (int i = 0; i < join->params; i++) join->spec[i] = model_param(&joining->mixture, i);
    for (int m = 0; m < MODALITIES; m++) {
        const struct param_spec up = encoder_spec(&modalities[m], joining->dense.D, ENCODER_UP_W);
        if (!files_have(&join->file[0], up.name)) continue;
        for (int p = 0; p < ENCODER_PARAMS; p++)
            join->spec[join->params + join->encoders++] =
                encoder_spec(&modalities[m], joining->dense.D, (enum encoder_param)p);
        joining->encoders++;
    }
    return OK;
}

static enum error_code write_mixture(struct join *join, const char *out, struct error *err)
{
    static const struct safetensors_pair format = { "format", "pt" };
    const struct weights_suffix alone = { "", join->joining->dtype };
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    const int count = join->params + join->encoders;
    enum error_code e = weights_create(&join->writer, join->spec, count, path, &alone, 1, &format, 1, err);
    for (int i = 0; i < count && !e; i++) {
        const bool router = i < join->params && join->spec[i].role == ROLE_ROUTER;
        e = router ? draw_router(join, i, err) : join_param(join, i, err);
    }
    snprintf(path, sizeof path, "%s/config.json", out);
    if (!e) e = model_config_write(&join->joining->mixture, path, err);
    if (!e) e = weights_commit(&join->writer, err);
    weights_abort(&join->writer);
    return e;
}

enum error_code join_experts(struct joining *joining, const char *out, struct error *err)
{
    struct join join = { .joining = joining };
    joining->joined = joining->shared = joining->drawn = 0, joining->encoders = 0;
    enum error_code e = open_models(&join, err);
    if (!e) e = list_params(&join, err);
    if (!e) e = write_mixture(&join, out, err);
    for (int m = 0; m < join.open; m++) weights_close(&join.file[m]);
    free(join.spec);
    return e;
}
