/* step_run.h -- the program under test of test_steps.c and test_clipping.c: our own run of a golden file's model, with
 * the tensors of every step, of which single ones are changed.  A wrong result fails the test. */
#ifndef ORRERY_STEP_RUN_H
#define ORRERY_STEP_RUN_H

#include "ref/golden/replay.h"
#include "ref/numeric/convert.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/steps.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_RUN_MICROS = 2 };

struct run {
    struct golden golden;
    struct replay replay;
    enum dtype format;
    int checked, wrong, lacking, unknown;
    struct single_result first;         /* that is wrong */
    double largest;
    int copies;                         /* whose gradients it has */
    bool (*more)(const struct run *, const char *name, struct tensor out);     /* other tensors that it has; or NULL */
    /* as in struct single_source */
    enum error_code (*parts)(void *, const char *, int64_t, int64_t, struct tensor, int *, struct error *);
    int64_t tile;                       /* the same; 0: tensors are read whole */
    int whole;                          /* matrices that have been read whole */
    int gradients;                      /* gradients that have been read */
};

static void open_run(struct run *r, const char *path, enum dtype t)
{
    struct error err;
    *r = (struct run){ .format = t };
    if (golden_open(&r->golden, path, &err) != OK) fail_msg("%s", err.text);
    r->golden.every_step = true, r->golden.micros = STEP_RUN_MICROS;
    if (replay_run(&r->replay, &r->golden, t, NULL, &err) != OK) fail_msg("%s", err.text);
}

static void close_run(struct run *r)
{
    replay_free(&r->replay);
    golden_close(&r->golden);
}

static struct tensor *record_of(const struct run *r, const char *name)
{
    for (int i = 0; i < r->replay.records; i++)
        if (strcmp(r->replay.record[i].name, name) == 0) return &r->replay.record[i].values;
    return NULL;
}

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    struct run *r = context;
    const struct tensor *have = record_of(r, name);
    r->whole += tensor_rows(out) > 1;
    r->gradients += strncmp(name, "grad/", 5) == 0 || strstr(name, "/grad/") != NULL;
    *found = SINGLE_HAS;
    if (r->more && r->more(r, name, out)) return OK;
    *found = have || strncmp(name, "start/", 6) == 0 ? SINGLE_HAS : SINGLE_HAS_NOT;
    if (have) assert_int_equal(tensor_count(*have), tensor_count(out));
    if (have) tensor_convert(out, *have);
    else if (*found == SINGLE_HAS) {
        struct tensor narrow = tensor_1d(malloc((size_t)tensor_count(out) * 8), r->format, tensor_count(out));
        assert_non_null(narrow.data);
        struct tensor wide = out;
        wide.dtype = dtype_wide(r->format);
        const enum error_code e = golden_read(&r->golden, name, wide.dtype, tensor_count(out), out.data, err);
        for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(narrow, i, tensor_get(wide, i));
        for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(out, i, tensor_get(narrow, i));
        free(narrow.data);
        return e;
    }
    return OK;
}

static enum error_code fetch_rows(void *context, const char *name, int64_t first, int64_t whole, struct tensor out,
                                  enum single_found *found, struct error *err)
{
    const int64_t cols = tensor_cols(out);
    const struct tensor all = tensor_2d(malloc((size_t)(whole * cols) * sizeof(double)), F64, whole, cols);
    assert_non_null(all.data);
    const int before = ((struct run *)context)->whole;
    const enum error_code e = fetch(context, name, all, found, err);
    ((struct run *)context)->whole = before;
    memcpy(out.data, (double *)all.data + first * cols, tensor_bytes(out));
    free(all.data);
    return e;
}

static void found(void *context, const struct single_result *one)
{
    struct run *r = context;
    r->checked++;
    r->wrong += one->verdict == SINGLE_WRONG, r->lacking += one->verdict == SINGLE_LACKS;
    r->unknown += one->verdict == SINGLE_UNKNOWN;
    if (one->verdict == SINGLE_WRONG && r->wrong == 1) r->first = *one;
    if (!(one->ratio <= r->largest)) r->largest = one->ratio;
}

static void check_steps(struct run *r, const char *optimizer, const struct hyperparameters *hyper)
{
    const struct golden *g = &r->golden;
    double lr[GOLDEN_MOST_STEPS];
    char name[64];
    struct error err;
    snprintf(name, sizeof name, "%s/lr", optimizer);
    if (golden_read(g, name, F64, g->steps, lr, &err) != OK) fail_msg("%s", err.text);
    const struct single_steps steps = { optimizer, hyper ? *hyper : golden_hyperparameters(g, optimizer), g->steps, lr,
                                        r->format, 0 };
    r->checked = r->wrong = r->lacking = r->unknown = 0, r->largest = 0;
    const struct rounding rounding = rounding_of(r->format, DTYPE_COUNT, 1);
    const struct single_source source = { .explainer = &mistakes_explainer, .fetch = fetch,
                                          .fetch_rows = r->tile ? fetch_rows : NULL, .tile = r->tile, .found = found,
                                          .context = r, .parts = r->parts, .copies = r->copies };
    enum error_code e = single_check_norms(&g->config, &steps, rounding, source, &err);
    for (int64_t k = 0; k < g->steps && !e; k++)
        e = single_check_step(&g->config, &steps, k, rounding, source, &err);
    if (e) fail_msg("%s", err.text);
}

#endif
