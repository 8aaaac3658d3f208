/* replaying.h -- for tests of replay: the one-device model of a golden file's shape is the program under test.  An
 * observer keeps its tensors, and may make an error in one of them, with which the program then goes on.
 * test_mistakes.c, test_replay.c and test_replay_models.c call these functions. */
#ifndef TESTS_REPLAYING_H
#define TESTS_REPLAYING_H

#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/replay.h"
#include "ref/golden/golden.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include "emulated_devices/check/recompute/graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* What to do to one tensor. */
enum error_kind { NO_ERROR, TIMES, ONE_ELEMENT, ONE_ROW, ONE_HEAD, HEAD_ROWS, ZEROS, SHIFTED, MARKED };

struct shown { char name[SINGLE_NAME]; struct tensor values; bool checked; };

/* A run, its tensors, and what was found in them. */
struct dump {
    struct golden golden;
    enum dtype format, sums;            /* sums: as declared to the check */
    int parts;
    bool fused, stored_norms;           /* declared to the check */
    bool scaled;                        /* gradients are those of the loss times loss_scale */
    int64_t tile;                       /* numbers that are read at a time; 0: whole tensors */
    int whole;                          /* how often a block's activation, or the embedding's, is read whole */
    int64_t most;                       /* bytes of matrices that a check has had at once */
    struct transformer model;
    struct ops ops;
    struct shown kept[MOST];
    int count, numbers;                 /* numbers: losses and the norm, which no observer sees */
    const char *target[2];              /* tensors with an error; NULL: none */
    enum error_kind error;
    bool marked[MOST];                  /* rows with an error of that kind */
    const char *without;                /* a tensor that is not in the dump */
    const char *split;                  /* one of which two ranks have parts: itself + by, and -by */
    double by;
    int checked, stepwise, wrong, lacking, unknown;
    struct single_result first, second; /* wrong */
    struct single_result lacks, first_unknown, by_steps;
    double largest;                     /* ratio */
};

static int by_size(const void *a, const void *b)
{
    const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

/* The element whose size is the median of those that are not zero. */
static int64_t median_element(struct tensor t)
{
    const int64_t n = tensor_count(t);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    int64_t left = 0, at = 0;
    assert_non_null(sorted);
    for (int64_t i = 0; i < n; i++)
        if (tensor_get(t, i) != 0) sorted[left++] = tensor_get(t, i);
    assert_true(left > 0);
    qsort(sorted, (size_t)left, sizeof *sorted, by_size);
    while (tensor_get(t, at) != sorted[left / 2]) at++;
    free(sorted);
    return at;
}

static void make_error(const struct dump *d, enum error_kind kind, struct tensor t)
{
    const int64_t n = tensor_count(t), cols = tensor_cols(t), median = median_element(t);
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_get(t, i);
        if (kind == TIMES) x *= 1.1;
        if (kind == ONE_ELEMENT && i == median) x *= 1 + 0x1p-6;
        if (kind == ONE_ROW && i / cols == 3) x *= 1.25;
        if (kind == ONE_HEAD && i % cols < 2) x *= 1.5;
        if (kind == HEAD_ROWS && i / cols < 2) x *= 1.5;
        if (kind == MARKED && d->marked[i / cols]) x *= 1.5;
        if (kind == ZEROS) x = 0;
        if (kind == SHIFTED && i + cols < n) x = tensor_get(t, i + cols);
        tensor_set(t, i, x);
    }
}

/* Names as in golden files: a tensor inside a block has its layer as an argument, a parameter in its name. */
static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct dump *d = context;
    const char *suffix = strrchr(name, '.');
    const bool parameter = suffix && (strcmp(suffix, ".weight") == 0 || strcmp(suffix, ".bias") == 0),
               in_block = layer >= 0 && layer < d->model.config.L && !parameter;
    struct shown *k = &d->kept[d->count++];
    (void)terms;
    k->checked = false;
    assert_true(d->count < MOST);
    if (in_block) snprintf(k->name, sizeof k->name, "%s/h.%d.%s", gradient ? "grad" : "act", layer, name);
    else snprintf(k->name, sizeof k->name, "%s/%s", gradient ? "grad" : "act", name);
    for (int i = 0; i < 2; i++)
        if (d->target[i] && strcmp(d->target[i], k->name) == 0) make_error(d, d->error, t);
    k->values = t;
    k->values.dtype = F64;
    k->values.data = malloc((size_t)tensor_count(t) * sizeof(double));
    assert_non_null(k->values.data);
    for (int64_t i = 0; i < tensor_count(t); i++)
        tensor_set(k->values, i, tensor_get(t, i) / (gradient && !d->scaled ? d->model.loss_scale : 1));
}

/* change: of the shape; NULL: none. */
static void open_changed(struct dump *d, const char *path, void (*change)(struct model_config *), enum dtype t)
{
    struct error err;
    *d = (struct dump){ .format = t, .sums = DTYPE_COUNT, .parts = 1 };
    if (golden_open(&d->golden, path, &err) != OK) fail_msg("%s", err.text);
    if (change) change(&d->golden.config);
    if (model_config_check(&d->golden.config, &err) != OK) fail_msg("%s", err.text);
    if (transformer_open(&d->model, &d->golden.config, t, 1, &err) != OK) fail_msg("%s", err.text);
    if (dtype_is_narrow(t) && transformer_keep_gradients_in(&d->model, dtype_wide(t), &err) != OK)
        fail_msg("%s", err.text);
    if (t == F16) d->model.loss_scale = 1024;
    if (change == NULL && golden_read_biases(&d->golden, d->model.router_bias, &err) != OK) fail_msg("%s", err.text);
    d->model.observer = (struct observer){ see, d };
}

static void forget(struct dump *d)
{
    while (d->count > 0) free(d->kept[--d->count].values.data);
}

static void close_dump(struct dump *d)
{
    forget(d);
    transformer_close(&d->model);
    golden_close(&d->golden);
}

static void run(struct dump *d)
{
    struct error err;
    double loss;
    forget(d);
    transformer_zero_gradients(&d->model);
    if (transformer_forward(&d->model, d->golden.ids, d->golden.labels, d->golden.B, d->golden.S, &loss, &err) != OK)
        fail_msg("%s", err.text);
    transformer_backward(&d->model);
    const struct { const char *name; double value; } number[] = {
        { "loss", loss }, { "norm", transformer_gradient_norm(&d->model) / d->model.loss_scale },
        { "balance_loss", d->model.balance_loss }, { "z_loss", d->model.z_loss },
    };
    d->numbers = d->golden.config.mlp == MLP_MIXTURE ? 4 : 2;
    for (int i = 0; i < d->numbers; i++) {
        struct shown *k = &d->kept[d->count++];
        k->checked = false;
        snprintf(k->name, sizeof k->name, "%s", number[i].name);
        k->values = tensor_1d(malloc(sizeof(double)), F64, 1);
        assert_non_null(k->values.data);
        tensor_set(k->values, 0, number[i].value);
    }
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

/* By the rule: mask/1/embedding, mask/1/h.L.PLACE. */
static void make_mask(const struct dump *d, const char *name, struct tensor out)
{
    const struct model_config *c = &d->golden.config;
    char where[64];
    int layer = -1;
    if (sscanf(name, "mask/1/h.%d.%63s", &layer, where) != 2) snprintf(where, sizeof where, "%s", name + 7);
    const bool residual = strcmp(where, "probabilities") != 0;
    const double p = layer < 0 ? c->dropout_embedding : residual ? c->dropout_residual : c->dropout_attention;
    for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(out, i, 1);
    ops_for(F64)->dropout(out, out, dropout_at(p, d->model.seed, layer, where, 0, 0, tensor_cols(out)));
    for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(out, i, tensor_get(out, i) != 0);
}

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    struct dump *d = context;
    const struct tensor *have = NULL;
    (void)err;
    *found = SINGLE_HAS;
    if (strncmp(name, "mask/", 5) == 0) {
        make_mask(d, name, out);
        return OK;
    }
    d->whole += (strncmp(name, "act/h.", 6) == 0 && strstr(name, ".router.") == NULL) || strstr(name, "/embedding");
    *found = SINGLE_HAS_NOT;
    if (d->without && strcmp(d->without, name) == 0) return OK;
    for (int i = 0; i < d->count; i++)
        if (strcmp(name, d->kept[i].name) == 0) have = &d->kept[i].values;
    for (int i = 0; have == NULL && i < d->model.params; i++)
        if (strncmp(name, "start/", 6) == 0 && strcmp(name + 6, d->model.spec[i].name) == 0) have = &d->model.w[i];
    for (int l = 0; have == NULL && l < d->model.config.L; l++) {
        const struct param_spec s = model_router_bias(&d->model.config, l);
        if (s.ndim == 0 || strncmp(name, "start/", 6) != 0 || strcmp(name + 6, s.name) != 0) continue;
        memcpy(out.data, transformer_router_bias(&d->model, l), tensor_bytes(out));
        *found = SINGLE_HAS;
        return OK;
    }
    if (have == NULL) return OK;
    assert_int_equal(tensor_count(*have), tensor_count(out));
    tensor_convert(out, *have);
    *found = SINGLE_HAS;
    return OK;
}

static enum error_code fetch_rows(void *context, const char *name, int64_t first, int64_t whole, struct tensor out,
                                  enum single_found *found, struct error *err)
{
    const int64_t cols = tensor_cols(out);
    const struct tensor all = tensor_2d(calloc((size_t)(whole * cols), sizeof(double)), F64, whole, cols);
    assert_non_null(all.data);
    const int before = ((struct dump *)context)->whole;
    const enum error_code e = fetch(context, name, all, found, err);
    ((struct dump *)context)->whole = before;
    memcpy(out.data, (double *)all.data + first * cols, tensor_bytes(out));
    free(all.data);
    return e;
}

static enum error_code parts_of(void *context, const char *name, int64_t first, int64_t whole, struct tensor absolute,
                                int *parts, struct error *err)
{
    const struct dump *d = context;
    const int64_t from = whole > 0 ? first * tensor_cols(absolute) : 0;
    (void)err;
    *parts = d->split && strcmp(d->split, name) == 0 ? 2 : 1;
    for (int i = 0; *parts == 2 && tensor_present(absolute) && i < d->count; i++)
        for (int64_t j = 0; strcmp(d->kept[i].name, name) == 0 && j < tensor_count(absolute); j++)
            tensor_set(absolute, j, fabs(tensor_get(d->kept[i].values, from + j)) + 2 * d->by);
    return OK;
}

static void found(void *context, const struct single_result *r)
{
    struct dump *d = context;
    d->checked++;
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->kept[i].name, r->name) == 0) d->kept[i].checked = true;
    d->stepwise += r->verdict == SINGLE_STEPWISE, d->wrong += r->verdict == SINGLE_WRONG;
    if (r->verdict == SINGLE_STEPWISE && d->stepwise == 1) d->by_steps = *r;
    if (r->verdict == SINGLE_LACKS && d->lacking++ == 0) d->lacks = *r;
    if (r->verdict == SINGLE_UNKNOWN && d->unknown++ == 0) d->first_unknown = *r;
    if (r->verdict == SINGLE_WRONG && d->wrong == 1) d->first = *r;
    if (r->verdict == SINGLE_WRONG && d->wrong == 2) d->second = *r;
    d->largest = fmax(d->largest, r->ratio);
}

static void check(struct dump *d)
{
    const struct golden *g = &d->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions };
    struct error err;
    d->checked = d->stepwise = d->wrong = d->lacking = d->unknown = 0, d->largest = 0, d->most = 0;
    const struct single_source source = { .explainer = &mistakes_explainer, .fetch = fetch,
                                          .fetch_rows = d->tile ? fetch_rows : NULL, .tile = d->tile,
                                          .found = found, .context = d, .parts = parts_of, .most = &d->most };
    struct rounding rounding = rounding_of(d->format, d->sums, d->parts);
    rounding.fused = d->fused, rounding.stored_norms = d->stored_norms;
    if (replay_check(&g->config, batch, rounding, source, &err) != OK)
        fail_msg("%s", err.text);
}

/* What is said of a run. */
struct said { int checked, stepwise, wrong, lacking; double largest; struct single_result first; };

static inline struct said say(struct dump *d, int64_t tile)
{
    d->tile = tile, d->whole = 0;
    d->first = (struct single_result){ 0 };
    check(d);
    return (struct said){ d->checked, d->stepwise, d->wrong, d->lacking, d->largest, d->first };
}

static inline void expect_same(const struct dump *d, const struct said *a, const struct said *b)
{
    if (a->checked != b->checked || a->stepwise != b->stepwise || a->wrong != b->wrong || a->lacking != b->lacking)
        fail_msg("%s in %s, by tiles: %d operations, %d by steps, %d wrong, such as %s, %d lack inputs; "
                 "at once %d, %d, %d, %d", d->golden.file.path, dtype_name(d->format), b->checked, b->stepwise,
                 b->wrong, b->first.name, b->lacking, a->checked, a->stepwise, a->wrong, a->lacking);
    if (!(fabs(a->largest - b->largest) <= 1e-3 * a->largest))
        fail_msg("%s in %s, by tiles: largest error/bound %.6g, at once %.6g", d->golden.file.path,
                 dtype_name(d->format), b->largest, a->largest);
    assert_string_equal(a->first.name, b->first.name);
    /* A tile has little that is right beside a wrong row, so it shows the row's factor where the whole may not. */
    if ((strstr(a->first.mistake, b->first.mistake) == NULL && strstr(b->first.mistake, "expected times 1.2") == NULL)
        || (a->first.mistake[0] && b->first.mistake[0] == 0))
        fail_msg("by tiles: %s, at once %s", b->first.mistake, a->first.mistake);
    assert_int_equal(a->first.wrong, b->first.wrong);
    assert_int_equal(a->first.wrong_rows, b->first.wrong_rows);
    assert_int_equal(a->first.wrong_cols, b->first.wrong_cols);
    assert_int_equal(a->first.first_row, b->first.first_row);
    assert_int_equal(a->first.last_col, b->first.last_col);
    assert_int_equal(a->first.worst, b->first.worst);
    assert_int_equal(a->first.rows, b->first.rows);
}

static inline void expect_clean(struct dump *d, const char *what)
{
    run(d);
    check(d);
    print_message("%s in %s, %s: %d operations, largest error/bound %.3g, %d only by steps\n", d->golden.file.path,
                  dtype_name(d->format), what, d->checked, d->largest, d->stepwise);
    if (d->wrong)
        fail_msg("%s in %s, %s: %s, %g times its bound", d->golden.file.path, dtype_name(d->format), what,
                 d->first.name, d->first.ratio);
    for (int i = 0; i < d->count; i++)
        if (!d->kept[i].checked) fail_msg("%s, %s: %s is not checked", d->golden.file.path, what, d->kept[i].name);
    assert_int_equal(d->checked, d->count);
    if (d->stepwise) fail_msg("%s, %s: %s is right by steps only", d->golden.file.path, what, d->by_steps.name);
    if (d->lacking) fail_msg("%s, %s: %s lacks %s", d->golden.file.path, what, d->lacks.name, d->lacks.lacks);
    assert_int_equal(d->unknown, 0);
}

/* The names of a clean run's results. */
static inline int names_of(struct dump *d, char name[][SINGLE_NAME])
{
    run(d);
    for (int i = 0; i < d->count; i++) memcpy(name[i], d->kept[i].name, sizeof *name);
    return d->count - d->numbers;
}

/* An error in one result: no other operation is wrong, although all that follow have other numbers.
 *  @return whether it was found. */
static inline bool is_found(struct dump *d, const char *name, enum error_kind kind)
{
    d->target[0] = name, d->error = kind;
    run(d);
    check(d);
    if (d->wrong > 1 || (d->wrong == 1 && strcmp(d->first.name, name) != 0))
        fail_msg("error %d in %s: %d are wrong, the first is %s, the second %s", kind, name, d->wrong, d->first.name,
                 d->second.name);
    return d->wrong == 1;
}

#endif
