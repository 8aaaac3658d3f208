/* A layer of a mixture in which some choices are computed by no expert, forward and backward, against autograd of
 * released classes and of a program of its own (golden/mixtures.safetensors); the controller of biases, where a token
 * is to have some experts that compute, on average.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer_parts.h"
#include "ref/numeric/philox.h"
#include "ref/routers/router.h"
#include "ref/model/families/families.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

enum { WIDTH = 128 };
static struct safetensors file;
static struct error err;

/* ---- golden/mixtures.safetensors --------------------------------------------------------------------------------- */

static const char *text(const char *name, const char *key)
{
    char full[WIDTH];
    snprintf(full, sizeof full, "%s.%s", name, key);
    const char *value = safetensors_metadata(&file, full);
    if (value == NULL) fail_msg("golden/mixtures.safetensors has no %s", full);
    return value;
}

static double number(const char *name, const char *key) { return strtod(text(name, key), NULL); }

static const struct safetensors_entry *find(const char *name, const char *what)
{
    char full[WIDTH];
    snprintf(full, sizeof full, "%s/%s", name, what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("golden/mixtures.safetensors has no %s", full);
    return e;
}

/* Elements [first, first + count of t) of a stored tensor. */
static void take(const char *name, const char *what, int64_t first, struct tensor t)
{
    const struct safetensors_entry *e = find(name, what);
    double *all = malloc((size_t)e->count * sizeof *all);
    if (all == NULL || safetensors_read(&file, e, F64, all, &err) != OK) fail_msg("%s", err.text);
    assert_true(first + tensor_count(t) <= e->count);
    memcpy(t.data, all + first, tensor_bytes(t));
    free(all);
}

static void expect(const char *name, const char *what, int64_t first, struct tensor is)
{
    struct tensor want = is;
    double off = 0, size = 0;
    want.data = malloc(tensor_bytes(is) + 1);
    assert_non_null(want.data);
    take(name, what, first, want);
    for (int64_t i = 0; i < tensor_count(is); i++) {
        off = fmax(off, fabs(tensor_get(is, i) - tensor_get(want, i)));
        size = fmax(size, fabs(tensor_get(want, i)));
    }
    if (!(off <= 1e-13 * size))
        fail_msg("%s: %s, from %d on, is off by %.3g of %.3g", name, what, (int)first, off, size);
    free(want.data);
}

static struct model_config config_of(const char *name)
{
    const struct safetensors_entry *x = find(name, "x"), *down = find(name, "down");
    const struct router *r;
    struct model_config c = { .S = (int64_t)strtod(safetensors_metadata(&file, "sequence"), NULL), .D = x->dim[1],
                              .H = 1, .K = 1, .A = x->dim[1], .F = down->dim[2], .L = 1, .V = 2, .norm = NORM_RMS,
                              .positions = POSITIONS_ROTARY, .family = &family_mixtral, .mlp = MLP_MIXTURE,
                              .eps = 1e-5, .init_std = 0.02,
                              .rotary = { .theta = 10000 } };
    struct mixture_config *m = &c.mixture;
    m->E = (int64_t)number(name, "E"), m->k = (int64_t)number(name, "k"), m->zero = (int64_t)number(name, "zero");
    if (router_find(&r, text(name, "router"), &err) != OK) fail_msg("%s", err.text);
    m->router = router_fit(r, m->E, m->k), m->router.scale = number(name, "scale");
    if (r->rule.top_p > 0) m->router.top_p = number(name, "top_p"), m->router.near = number(name, "near");
    if (r->rule.top_p > 0) m->sequence_coefficient = (double)(x->dim[0] / c.S);        /* the losses' sum */
    m->zero_is_null = m->zero > 0 && r->zero_is_null;
    m->capacity_factor = number(name, "capacity"), m->drops_by_weight = number(name, "by_weight") != 0;
    return c;
}

static void open_layer(struct transformer *m, const char *name)
{
    const struct model_config c = config_of(name);
    const int64_t rows = find(name, "x")->dim[0];
    if (transformer_open(m, &c, F64, 1, &err) != OK || transformer_make_buffers(m, rows / c.S, c.S, &err) != OK)
        fail_msg("%s: %s", name, err.text);
    const struct tensor router = m->w[param_of_block(&c, 0, ROUTER_W)];
    take(name, "router", 0, router);
    take(name, "bias", 0, tensor_1d(transformer_router_bias(m, 0), F64, mixture_columns(&c.mixture)));
    for (int64_t e = 0; e < c.mixture.E; e++) {
        const struct tensor up = m->w[param_of_expert(&c, 0, e, UP_W)], down = m->w[param_of_expert(&c, 0, e, DOWN_W)];
        take(name, "up", e * tensor_count(up), up), take(name, "down", e * tensor_count(down), down);
    }
    take(name, "x", 0, m->block[0].ln2);
    transformer_zero_gradients(m);
    if (router_losses_begin(m, &err) != OK) fail_msg("%s", err.text);
}

static void expect_choices(const struct transformer *m, const char *name)
{
    const struct safetensors_entry *e = find(name, "experts");
    int32_t *want = malloc((size_t)e->count * sizeof *want);
    const int32_t *is = m->block[0].experts.data;
    const int64_t k = m->config.mixture.k;
    if (want == NULL || safetensors_read(&file, e, I32, want, &err) != OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < e->count; i++)
        if (choice_made(is[i]) != (want[i] < 0 ? CHOICE_NONE : want[i]))
            fail_msg("%s: choice %d of row %d is expert %d instead of %d", name, (int)(i % k), (int)(i / k), is[i],
                     want[i]);
    free(want);
}

static void golden_layer(const char *name)
{
    struct transformer m;
    open_layer(&m, name);
    const struct model_config *c = &m.config;
    mixture_forward(&m, 0);
    expect_choices(&m, name);
    expect(name, "y", 0, m.branch);
    double loss = router_losses_end(&m);
    if (c->mixture.sequence_coefficient > 0) expect(name, "loss", 0, tensor_1d(&loss, F64, 1));
    take(name, "dy", 0, m.d_branch);
    mixture_backward(&m, 0, tensor_none);
    expect(name, "dx", 0, m.d_branch);
    expect(name, "drouter", 0, m.g[param_of_block(c, 0, ROUTER_W)]);
    for (int64_t e = 0; e < c->mixture.E; e++) {
        const struct tensor up = m.g[param_of_expert(c, 0, e, UP_W)], down = m.g[param_of_expert(c, 0, e, DOWN_W)];
        expect(name, "dup", e * tensor_count(up), up), expect(name, "ddown", e * tensor_count(down), down);
    }
    transformer_close(&m);
}

static void as_autograd(void **state)
{
    char names[1000], *rest = names;
    (void)state;
    if (safetensors_open(&file, "golden/mixtures.safetensors", &err) != OK) fail_msg("%s", err.text);
    snprintf(names, sizeof names, "%s", safetensors_metadata(&file, "cases"));
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; ) golden_layer(name);
    safetensors_close(&file);
}

/* ---- experts that compute, on average ---------------------------------------------------------------------------- */

/* Logits that prefer some columns by far, the last ones, which do not compute, most.  The controller brings the mean
 * number of experts of a token that compute to what is wanted, and each of them to the same share, within 1 percent,
 * over the second half of the steps. */
static void settles(double active, double wanted)
{
    enum { N = 128, E = 6, ZERO = 3, COLUMNS = E + ZERO, K = 4, STEPS = 1600 };
    static double x[N * COLUMNS], w[N * K];
    static int32_t chosen[N * K];
    const struct router *r;
    double bias[COLUMNS] = { 0 }, mean[COLUMNS] = { 0 }, computed = 0, first = 0;
    assert_int_equal(router_find(&r, "longcat", &err), OK);
    struct router_rule rule = r->rule;
    rule.bias_speed = 0.02, rule.active = active;
    if (router_check(&rule, E, ZERO, K, &err) != OK) fail_msg("%s", err.text);
    for (int step = 0; step < STEPS; step++) {
        double count[COLUMNS] = { 0 };
        for (int64_t i = 0; i < N * COLUMNS; i++)
            x[i] = 0.3 * (double)(i % COLUMNS) +
                   2 * random_uniform((uint64_t)step, random_stream("skewed"), (uint64_t)i) - 1;
        ops_for(F64)->route_forward(tensor_2d(w, F64, N, K), tensor_2d(chosen, I32, N, K),
                                    tensor_2d(x, F64, N, COLUMNS), &rule, bias);
        for (int i = 0; i < N * K; i++) count[chosen[i]]++;
        router_move_bias(&rule, bias, count, E, ZERO, K);
        for (int e = 0; e < E; e++) {
            if (step == 0) first += count[e] / N;
            if (step >= STEPS / 2) mean[e] += count[e] / N / (STEPS - STEPS / 2);
        }
    }
    for (int e = 0; e < E; e++) computed += mean[e];
    for (int e = E; e < COLUMNS; e++) assert_true(bias[e] == 0);
    if (!(fabs(first / wanted - 1) > 0.2 && fabs(computed / wanted - 1) < 0.01))
        fail_msg("%g experts of a token compute at first, then %g instead of %g", first, computed, wanted);
    for (int e = 0; e < E; e++)
        if (!(fabs(mean[e] * E / wanted - 1) < 0.01))
            fail_msg("expert %d is chosen by %g of the tokens instead of %g", e, mean[e], wanted / E);
}

static void biases_keep_the_mean(void **state)
{
    (void)state;
    settles(0, 4 * 6 / 9.0);                            /* as much as their part of all columns */
    settles(3.2, 3.2);
}

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

static void rules_that_are_none(void **state)
{
    (void)state;
    static const struct { struct router_rule r; int64_t zero; const char *says; } bad[] = {
        { { .scale = 1, .biased = true, .active = 2.5 }, 2, "2.5 experts of a token compute, on average; it must be at "
                                                            "most k=2" },
        { { .scale = 1, .biased = true, .active = 1 }, 0, "1 experts of a token compute" },
        { { .scale = 1, .active = 1 }, 2, "1 experts of a token compute" },
        { { .scale = 1, .groups = 2, .kept = 1 }, 2, "2 experts without computation and 2 groups" },
        { { .scale = 1, .top_p = 1.5 }, 0, "top-p 1.5, near 0; p must be from 0 to 1" },
        { { .scale = 1, .top_p = 0.5, .biased = true }, 0, "with a bias or groups" },
        { { .scale = 1, .near = 0.1 }, 0, "near 0.1 is for the scores of near experts" },
        { { .scale = 1, .scores = SCORES_NEAR }, 0, "are always divided by their sum" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (router_check(&bad[i].r, 4, bad[i].zero, 2, &err) != ERR_PLAN || strstr(err.text, bad[i].says) == NULL)
            fail_msg("not refused with \"%s\": %s", bad[i].says, err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_autograd), cmocka_unit_test(biases_keep_the_mean),
                                        cmocka_unit_test(rules_that_are_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
