/* Replicas that train separately, and their outer step: ref/model/local.h compared with PyTorch
 * and with the released code of SlowMo (golden/local.safetensors).
 * tier: check
 */
#include "ref/golden/golden.h"
#include "ref/golden/replay.h"
#include "ref/model/local.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct error err;

enum { REPLICAS = 3, EVERY = 2 };
static const int64_t first[REPLICAS + 1] = { 0, 1, 3, 5 };

/* What `orrery golden` holds the models of golden/ to. */
#define LIMIT 1e-12

static double metadata(const struct golden *g, const char *kind, const char *what)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", kind, what);
    const char *text = safetensors_metadata(&g->file, key);
    if (text == NULL) fail_msg("no %s in the metadata", key);
    return atof(text);
}

/* A tensor of the file beside ours. */
static void hold(const struct golden *g, const char *name, struct tensor got)
{
    struct tensor want = got;
    want.data = malloc(tensor_bytes(got));
    if (golden_read(g, name, F64, tensor_count(got), want.data, &err)) fail_msg("%s", err.text);
    const double apart = tensor_apart(got, want).relative;
    if (!(apart <= LIMIT)) fail_msg("%s is off by %.3g", name, apart);
    free(want.data);
}

static void hold_all(const struct golden *g, const char *kind, const char *of, const struct transformer *m,
                     const struct tensor t[])
{
    char name[RECORD_NAME + 64];
    for (int i = 0; i < m->params; i++) {
        snprintf(name, sizeof name, "%s/%s/%s", kind, of, m->spec[i].name);
        hold(g, name, t[i]);
    }
}

static void begin(struct local_run *l, const struct golden *g, const char *kind,
                  const struct outer_rule *rule)
{
    const struct optimizer *inner;
    char key[64], name[RECORD_NAME];
    snprintf(key, sizeof key, "%s.inner", kind);
    assert_int_equal(optimizer_find(&inner, safetensors_metadata(&g->file, key), &err), OK);
    struct hyperparameters h = golden_hyperparameters(g, kind);
    h.lr = metadata(g, kind, "lr");
    if (strcmp(kind, "slowmo") == 0)                                    /* its rate has a course */
        h.steps = (int64_t)metadata(g, kind, "steps"), h.warmup = (int64_t)metadata(g, kind, "warmup"),
        h.min_lr = metadata(g, kind, "min_lr");
    const struct outer outer = { .rule = rule,
                                 .every = EVERY,
                                 .lr = metadata(g, kind, "outer_lr"),
                                 .momentum = metadata(g, kind, "outer_momentum") };
    if (local_open(l, REPLICAS, &g->config, F64, g->seed, inner, &h, outer, &err)) fail_msg("%s", err.text);
    const struct transformer *m = &l->replica[0].model;
    for (int i = 0; i < m->params; i++) {
        snprintf(name, sizeof name, "start/%s", m->spec[i].name);
        if (golden_read(g, name, F64, tensor_count(m->w[i]), m->w[i].data, &err)) fail_msg("%s", err.text);
    }
    local_start(l, m->w);
}

static void follows_pytorch(const char *kind, const struct outer_rule *rule)
{
    struct golden g;
    struct local_run l;
    double loss[64], norm[64];
    if (golden_open(&g, "golden/local.safetensors", &err)) fail_msg("%s", err.text);
    assert_true(g.steps >= 3 * EVERY && g.steps % EVERY == 1);          /* three rounds, and then apart again */
    begin(&l, &g, kind, rule);
    for (int64_t s = 0; s < g.steps; s++) {
        if (local_step(&l, g.ids + s * g.B * g.S, g.labels + s * g.B * g.S, first, g.S, 0, &err))
            fail_msg("%s", err.text);
        for (int r = 0; r < REPLICAS; r++)
            loss[s * REPLICAS + r] = l.replica[r].loss, norm[s * REPLICAS + r] = l.replica[r].norm;
    }
    if (outer_has_momentum(&l.outer)) hold_all(&g, kind, "momentum", &l.replica[0].model, l.momentum);
    hold_all(&g, kind, "anchor", &l.replica[0].model, l.anchor);
    char name[64];
    snprintf(name, sizeof name, "%s/loss", kind);
    hold(&g, name, tensor_1d(loss, F64, g.steps * REPLICAS));
    snprintf(name, sizeof name, "%s/norm", kind);
    hold(&g, name, tensor_1d(norm, F64, g.steps * REPLICAS));
    for (int r = 0; r < REPLICAS; r++) {
        snprintf(name, sizeof name, "replica%d", r);
        hold_all(&g, kind, name, &l.replica[r].model, l.replica[r].model.w);
    }
    local_close(&l);
    golden_close(&g);
}

static void diloco(void **state) { (void)state, follows_pytorch("diloco", &outer_nesterov); }
static void local_sgd(void **state) { (void)state, follows_pytorch("local-sgd", &outer_average); }
static void slowmo(void **state) { (void)state, follows_pytorch("slowmo", &outer_slow_momentum); }

/* In numbers that are exact: two replicas from 8, to 7 and 4, with momentum 1/2. */
static void by_hand(void **state)
{
    (void)state;
    for (enum dtype t = F32; t <= F64; t++) {
        const struct outer nesterov = { &outer_nesterov, .every = 1, .lr = 0.5, .momentum = 0.5 },
                           mean = { &outer_average, .every = 1, .lr = 1 },
                           slow = { &outer_slow_momentum, .every = 1, .lr = 0.5, .momentum = 0.5 };
        double room[4][1];
        struct tensor theta[2], anchor = tensor_1d(room[2], t, 1), m = tensor_1d(room[3], t, 1);
        for (int r = 0; r < 2; r++) theta[r] = tensor_1d(room[r], t, 1), tensor_set(theta[r], 0, r == 0 ? 7 : 4);
        tensor_set(anchor, 0, 8), tensor_set(m, 0, 2);
        outer_step(&nesterov, 1, anchor, m, theta, 2);
        assert_true(tensor_get(m, 0) == 0.5 * 2 + 2.5);
        assert_true(tensor_get(anchor, 0) == 8 - 0.5 * (2.5 + 0.5 * 3.5));
        for (int r = 0; r < 2; r++) {
            assert_true(tensor_get(theta[r], 0) == tensor_get(anchor, 0));
            tensor_set(theta[r], 0, r == 0 ? 7 : 4);
        }
        outer_step(&mean, 1, anchor, tensor_none, theta, 2);
        assert_true(tensor_get(anchor, 0) == 5.5 && tensor_get(theta[0], 0) == 5.5);
        for (int r = 0; r < 2; r++) tensor_set(theta[r], 0, r == 0 ? 7 : 4);
        tensor_set(anchor, 0, 8), tensor_set(m, 0, 2);
        outer_step(&slow, 0.25, anchor, m, theta, 2);
        assert_true(tensor_get(m, 0) == 0.5 * 2 + 2.5 / 0.25 && tensor_get(theta[1], 0) == 8 - 0.5 * 0.25 * 11);
    }
    const struct outer o = { .every = 3 };
    assert_true(!outer_follows(&o, 1) && outer_follows(&o, 3) && outer_steps(&o, 2, 9) == 3 &&
                outer_steps(&o, 3, 5) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_hand), cmocka_unit_test(diloco),
                                        cmocka_unit_test(local_sgd), cmocka_unit_test(slowmo) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
