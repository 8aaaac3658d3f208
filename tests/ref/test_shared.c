/* Shared experts of the one-device model: what transformers' own blocks make of the same rows, forward and backward
 * (golden/shared.safetensors).
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer_parts.h"
#include "ref/routers/router.h"
#include "ref/model/families/families.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };
static struct safetensors file;
static struct error err;
static const char *now;                 /* the case */

static const struct safetensors_entry *find(const char *what)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s/%s", now, what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL && strstr(what, "shared.gate") == NULL) fail_msg("golden/shared.safetensors has no %s", full);
    return e;
}

static const char *said(const char *key)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", now, key);
    const char *text = safetensors_metadata(&file, full);
    if (text == NULL) fail_msg("golden/shared.safetensors has no %s", full);
    return text;
}

static void read_into(const char *what, int64_t first_row, struct tensor t)
{
    const struct safetensors_entry *e = find(what);
    const int64_t cols = tensor_cols(t);
    double *all = malloc((size_t)e->count * sizeof *all);
    assert_non_null(all);
    assert_true(first_row * cols + tensor_count(t) <= e->count);
    if (safetensors_read(&file, e, F64, all, &err) != OK) fail_msg("%s", err.text);
    memcpy(t.data, all + first_row * cols, tensor_bytes(t));
    free(all);
}

static void expect(const char *what, int64_t first_row, struct tensor is)
{
    double *all = malloc(tensor_bytes(is));
    double off = 0, size = 0;
    assert_non_null(all);
    const struct tensor want = tensor_2d(all, F64, tensor_rows(is), tensor_cols(is));
    read_into(what, first_row, want);
    for (int64_t i = 0; i < tensor_count(is); i++) {
        off = fmax(off, fabs(tensor_get(is, i) - tensor_get(want, i)));
        size = fmax(size, fabs(tensor_get(want, i)));
    }
    free(all);
    if (!(off <= 1e-13 * size)) fail_msg("%s: %s differs by %.3g of %.3g", now, what, off, size);
}

/* A parameter, or its gradient, in the golden file: its name, its first row there, and the tensor's part. */
static void each_weight(struct transformer *m, const struct tensor *of, const char *prefix,
                        void (*visit)(const char *, int64_t, struct tensor))
{
    const struct model_config *c = &m->config;
    const int64_t shared = c->mixture.shared;
    const struct { enum block_param p; const char *name; int64_t first, rows; } row[] = {
        { ROUTER_W, "gate", 0, c->mixture.E },
        { SHARED_UP_W, "shared.w1", 0, shared }, { SHARED_UP_W, "shared.w3", shared, shared },
        { SHARED_DOWN_W, "shared.w2", 0, c->D }, { SHARED_GATE_W, "shared.gate", 0, 1 },
    };
    char name[NAME];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const int at = param_of_block(c, 0, row[i].p);
        snprintf(name, sizeof name, "%s%s", prefix, row[i].name);
        if (at >= 0) visit(name, 0, tensor_rows_of(of[at], row[i].first, row[i].rows));
    }
    for (int64_t e = 0; e < c->mixture.E; e++) {
        snprintf(name, sizeof name, "%sw13", prefix);
        visit(name, e * 2 * c->F, of[param_of_expert(c, 0, e, UP_W)]);
        snprintf(name, sizeof name, "%sw2", prefix);
        visit(name, e * c->D, of[param_of_expert(c, 0, e, DOWN_W)]);
    }
}

static struct model_config config_of_case(void)
{
    const int64_t E = atoi(said("experts")), D = find("x")->dim[1];
    struct model_config c = { .S = find("x")->dim[0], .D = D, .H = 1, .K = 1, .A = D, .L = 1, .V = 2, .norm = NORM_RMS,
                              .positions = POSITIONS_ROTARY, .family = &family_mixtral, .mlp = MLP_MIXTURE,
                              .rotary = { .theta = 100, .turned = 2 }, .tied = true, .eps = 1e-6, .init_std = 0.1 };
    const struct router *r;
    if (router_find(&r, said("router"), &err) != OK) fail_msg("%s", err.text);
    c.F = find("w13")->dim[0] / E / 2;
    c.mixture = (struct mixture_config){ .E = E, .k = atoi(said("choices")), .router = r->rule };
    c.mixture.router.groups = c.mixture.router.kept = 0, c.mixture.router.sums_two = false;
    c.mixture.router.scale = 1;
    c.mixture.shared = find("shared.w1")->dim[0];
    c.mixture.shared_gate = find("shared.gate") != NULL;
    return c;
}

static void golden_case(void)
{
    const struct model_config c = config_of_case();
    struct transformer m;
    if (transformer_open(&m, &c, F64, 1, &err) != OK) fail_msg("%s: %s", now, err.text);
    if (transformer_make_buffers(&m, 1, c.S, &err) != OK) fail_msg("%s", err.text);
    each_weight(&m, m.w, "", read_into);
    read_into("x", 0, m.block[0].ln2);
    if (router_losses_begin(&m, &err) != OK) fail_msg("%s", err.text);
    mixture_forward(&m, 0);
    expect("y", 0, m.branch);
    read_into("dy", 0, m.d_branch);
    mixture_backward(&m, 0, tensor_none);
    expect("dx", 0, m.d_branch);
    each_weight(&m, m.g, "d", expect);
    transformer_close(&m);
}

static void test_as_the_released_blocks(void **state)
{
    char cases[500];
    (void)state;
    if (safetensors_open(&file, "golden/shared.safetensors", &err) != OK) fail_msg("%s", err.text);
    snprintf(cases, sizeof cases, "%s", safetensors_metadata(&file, "cases"));
    for (char *rest, *name = strtok_r(cases, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        now = name, golden_case();
    safetensors_close(&file);
}

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* Logits that are far from 0 on both sides: 1 - s must not be lost. */
static void test_gate(void **state)
{
    enum { N = 7, D = 5 };
    static const double logit[N] = { -700, -30, -1, 0, 1, 30, 700 };
    double x[N * D], dy[N * D], y[N * D], dx[N * D], dl[N];
    const struct ops *op = ops_for(F64);
    (void)state;
    for (int i = 0; i < N * D; i++) x[i] = i % 5 - 1.5, dy[i] = i % 3 + 0.25;
    const struct tensor X = tensor_2d(x, F64, N, D), L = tensor_2d((double *)logit, F64, N, 1),
                        DY = tensor_2d(dy, F64, N, D);
    op->gate_forward(tensor_2d(y, F64, N, D), X, L);
    op->gate_backward_input(tensor_2d(dx, F64, N, D), tensor_2d(dl, F64, N, 1), DY, X, L);
    for (int n = 0; n < N; n++) {
        const long double s = 1 / (1 + expl(-(long double)logit[n])), rest = 1 / (1 + expl((long double)logit[n]));
        long double sum = 0;
        for (int d = 0; d < D; d++) {
            const int i = n * D + d;
            sum += (long double)dy[i] * x[i];
            assert_true(fabsl(y[i] - x[i] * s) <= 1e-15L * fabsl(x[i] * s) + 1e-300L);
            assert_true(fabsl(dx[i] - dy[i] * s) <= 1e-15L * fabsl(dy[i] * s) + 1e-300L);
        }
        if (!(fabsl(dl[n] - sum * s * rest) <= 1e-14L * fabsl(sum * s * rest) + 1e-300L))
            fail_msg("the gradient of logit %g is %g instead of %Lg", logit[n], dl[n], sum * s * rest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_the_released_blocks), cmocka_unit_test(test_gate) };
    return cmocka_run_group_tests_name("shared experts", tests, NULL, NULL);
}
