/* Goldens of somebody's own, held to what they must be: the parts of microbatches add up, a mask is where zeros are,
 * one step is one step of the optimizer from the tensors before it.
 */
#include "ref/golden/batch.h"
#include "ref/golden/bounds.h"
#include "ref/golden/make.h"
#include "ref/numeric/distance.h"
#include "tests/ref/scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct golden made;              /* the file that the tests look at */
enum { STEPS = 3, SEQUENCES = 5, TOKENS = 6, MICROS = 2 };

static struct model_config a_model(double dropout)
{
    struct model_config c;
    struct error err;
    int64_t batch;
    assert_int_equal(model_config_preset(&c, &batch, "tiny", &err), OK);
    c.L = 2, c.D = 12, c.H = c.K = 3, c.A = 4, c.F = 10, c.V = 31, c.S = 8;
    c.dropout_embedding = c.dropout_residual = c.dropout_attention = dropout;
    return c;
}

/* Labels are ignored unevenly: of the first sequence all, of the second all but one. */
static void fill_batches(struct golden *g)
{
    struct error err;
    assert_int_equal(batch_allocate(g, &err), OK);
    for (int64_t i = 0; i < g->steps * g->B * g->S; i++) {
        const int64_t sequence = i / g->S % g->B, token = i % g->S;
        g->ids[i] = (int32_t)(i * 37 % g->config.V);
        g->labels[i] = sequence == 0 || (sequence == 1 && token > 0) ? -100 : (int32_t)(i * 61 % g->config.V);
    }
    if (batch_check(g, "batch", &err) != OK) fail_msg("%s", err.text);
}

static void make_with(double dropout)
{
    struct golden g = { .config = a_model(dropout), .seed = 7, .steps = STEPS, .B = SEQUENCES, .S = TOKENS,
                        .micros = MICROS, .every_step = true };
    struct golden_request q = { .optimizers = 2, .path = scratch("made.safetensors") };
    struct error err;
    int tensors;
    fill_batches(&g);
    assert_int_equal(optimizer_find(&q.optimizer[0], "adamw", &err), OK);
    assert_int_equal(optimizer_find(&q.optimizer[1], "sgd", &err), OK);
    q.hyper[0] = q.optimizer[0]->usual, q.hyper[1] = q.optimizer[1]->usual;
    q.hyper[1].lr = 0.25, q.hyper[1].clip = 0;
    if (golden_make(&g, &q, &tensors, &err) != OK) fail_msg("%s", err.text);
    if (golden_open(&made, q.path, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(made.micros, MICROS);
    assert_true(made.every_step);
    assert_int_equal(scratch_count("made"), 2);         /* the file and its bounds, and nothing else */
    golden_close(&g);
}

static double *get(const char *name, int64_t *n)
{
    const struct safetensors_entry *e = safetensors_find(&made.file, name);
    struct error err;
    if (e == NULL) fail_msg("there is no %s", name);
    double *x = malloc((size_t)e->count * sizeof *x + 1);
    assert_non_null(x);
    if (golden_read(&made, name, F64, e->count, x, &err) != OK) fail_msg("%s", err.text);
    *n = e->count;
    return x;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Sums over at most 30 tokens and two parts, in fp64: 1e-13 of the norm is hundreds of units. */
static void expect_equal(const char *what, const double *x, const double *y, int64_t n)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) apart += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
    if (!(sqrt(apart) <= 1e-13 * sqrt(size) + 1e-17))
        fail_msg("%s: differs by %g of %g", what, sqrt(apart), sqrt(size));
}

/* The losses of the microbatches, and the gradients of these parameters, add up to those of the batch. */
static void expect_parts_add_up(const char *const *names)
{
    int64_t n, m;
    double *loss = get("loss", &n), *parts = get("micro/loss", &m);
    assert_int_equal(m, MICROS);
    const double sum = parts[0] + parts[1];
    expect_equal("micro/loss", &sum, loss, 1);
    free(loss), free(parts);
    for (int i = 0; names[i]; i++) {
        char a[128], b[128], whole[128];
        snprintf(whole, sizeof whole, "grad/%s", names[i]);
        snprintf(a, sizeof a, "micro/0/grad/%s", names[i]);
        snprintf(b, sizeof b, "micro/1/grad/%s", names[i]);
        double *w = get(whole, &n), *x = get(a, &n), *y = get(b, &m);
        for (int64_t k = 0; k < n; k++) x[k] += y[k];
        expect_equal(whole, x, w, n);
        free(w), free(x), free(y);
    }
}

static void test_parts_add_up(void **state)
{
    (void)state;
    static const char *const names[] = { "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias", "wte.weight", "ln_f.weight",
                                         NULL };
    make_with(0.1);                         /* each microbatch drops what its sequences drop in the whole batch */
    expect_parts_add_up(names);
    golden_close(&made);
}

/* w after step K is w before it, minus lr times the gradient of step K, minus decay. */
static void test_steps_follow(void **state)
{
    (void)state;
    static const char *const before[] = { "start/%s", "sgd/1/weight/%s", "sgd/2/weight/%s" },
                      *const gradient[] = { "grad/%s", "sgd/2/grad/%s", "sgd/3/grad/%s" },
                      *const after[] = { "sgd/1/weight/%s", "sgd/2/weight/%s", "sgd/weight/%s" };
    make_with(0);
    const struct hyperparameters h = golden_hyperparameters(&made, "sgd");
    for (int step = 0; step < STEPS; step++) {
        char name[3][128];
        int64_t n;
        snprintf(name[0], sizeof name[0], before[step], "h.1.mlp.c_fc.weight");
        snprintf(name[1], sizeof name[1], gradient[step], "h.1.mlp.c_fc.weight");
        snprintf(name[2], sizeof name[2], after[step], "h.1.mlp.c_fc.weight");
        double *w = get(name[0], &n), *g = get(name[1], &n), *want = get(name[2], &n);
        for (int64_t i = 0; i < n; i++) w[i] -= 0.25 * (g[i] + h.weight_decay * w[i]);
        expect_equal(name[2], w, want, n);
        free(w), free(g), free(want);
    }
    golden_close(&made);
}

/* The embedding is zero where its mask is, and nowhere else; masks of steps differ; what attention gives is the sum of
 * the values with probabilities that are dropped by the mask. */
static void test_masks(void **state)
{
    (void)state;
    int64_t n, m, zeros = 0, same = 0;
    make_with(0.25);
    double *x = get("act/embedding", &n);
    uint8_t *mask = malloc((size_t)n), *next = malloc((size_t)n);
    struct error err;
    assert_true(mask && next);
    assert_int_equal(golden_read(&made, "mask/1/embedding", U8, n, mask, &err), OK);
    assert_int_equal(golden_read(&made, "mask/2/embedding", U8, n, next, &err), OK);
    for (int64_t i = 0; i < n; i++) {
        if ((x[i] != 0) != mask[i]) fail_msg("embedding %d is %g, its mask %d", (int)i, x[i], mask[i]);
        zeros += !mask[i], same += mask[i] == next[i];
    }
    /* Each of n is dropped with probability 1/4, and n is hundreds: five deviations. */
    assert_true(fabs((double)zeros - 0.25 * (double)n) < 5 * sqrt(0.25 * 0.75 * (double)n));
    if (same == n) fail_msg("masks of two steps are the same");
    free(x), free(mask), free(next);

    const struct model_config *c = &made.config;
    const int64_t S = TOKENS, width = (c->H + 2 * c->K) * c->A;
    double *qkv = get("act/h.0.attn.qkv", &n), *heads = get("act/h.0.attn.heads", &m), *got = calloc((size_t)m, 8);
    uint8_t *keep = malloc((size_t)(SEQUENCES * c->H * S * S));
    assert_true(got && keep);
    assert_int_equal(golden_read(&made, "mask/1/h.0.probabilities", U8, SEQUENCES * c->H * S * S, keep, &err), OK);
    for (int64_t b = 0; b < SEQUENCES; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t q = 0; q < S; q++) {
                double p[TOKENS], total = 0;
                for (int64_t k = 0; k <= q; k++) {
                    double dot = 0;
                    for (int64_t d = 0; d < c->A; d++)
                        dot += qkv[(b * S + q) * width + h * c->A + d] *
                               qkv[(b * S + k) * width + (c->H + h) * c->A + d];
                    total += p[k] = exp(dot / sqrt((double)c->A));
                }
                for (int64_t k = 0; k <= q; k++)
                    for (int64_t d = 0; d < c->A && keep[((b * c->H + h) * S + q) * S + k]; d++)
                        got[((b * S + q) * c->H + h) * c->A + d] +=
                            p[k] / total / 0.75 * qkv[(b * S + k) * width + (2 * c->H + h) * c->A + d];
            }
    expect_equal("attention by the mask", got, heads, m);
    free(qkv), free(heads), free(got), free(keep);
    golden_close(&made);
}

/* What another machine computes: our model again. */
/* One bit of one tensor is another: the hash beside the file notices it when that tensor is read, and no other. */
static void expect_sealed(void)
{
    struct error err;
    double x[20] = { 0 };
    const struct safetensors_entry e = *safetensors_find(&made.file, "grad/h.1.ln_1.weight"),
                                   *other = safetensors_find(&made.file, "grad/h.1.ln_1.bias");
    assert_true(made.seal != NULL && e.count <= 20 && other->count <= 20);
    assert_int_equal(golden_read(&made, "grad/h.1.ln_1.weight", F64, e.count, x, &err), OK);
    FILE *f = fopen(made.file.path, "r+b");
    assert_non_null(f);
    fseek(f, e.offset + e.bytes - 8, SEEK_SET);
    x[e.count - 1] = nextafter(x[e.count - 1], 1);
    assert_int_equal(fwrite(&x[e.count - 1], 8, 1, f), 1);
    fclose(f);
    assert_int_equal(golden_read(&made, "grad/h.1.ln_1.weight", F64, e.count, x, &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "grad/h.1.ln_1.weight is not what it was when "));
    assert_int_equal(golden_read(&made, "grad/h.1.ln_1.bias", F64, other->count, x, &err), OK);
}

static void test_it_is_what_our_model_computes(void **state)
{
    (void)state;
    struct replay r;
    struct error err;
    make_with(0.1);
    assert_true(golden_is_own(&made));
    if (replay_run(&r, &made, F64, NULL, &err) != OK) fail_msg("%s", err.text);
    if (replay_covers(&r, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < r.records; i++) {
        struct apart a;
        struct tensor want;
        assert_int_equal(replay_compare(&r, i, &a, &want, &err), OK);
        if (!(a.relative == 0)) fail_msg("%s: differs by %g", r.record[i].name, a.relative);
        free(want.data);
    }
    replay_free(&r);
    expect_sealed();
    golden_close(&made);
}

/* A twin keeps distances only, and is run many times: they are those of a run that keeps its tensors, also after
 * another. */
static void test_twins_are_runs(void **state)
{
    (void)state;
    static const enum dtype formats[] = { F64, F16 };
    struct replay truth, twin, run;
    struct error err;
    make_with(0.1);
    if (replay_run(&truth, &made, F64, NULL, &err) != OK) fail_msg("%s", err.text);
    double *apart = calloc((size_t)truth.records, sizeof *apart);
    assert_non_null(apart);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct perturbation p = bound_twin(formats[f]);
        if (replay_twin_open(&twin, &truth, formats[f], &err) != OK) fail_msg("%s", err.text);
        for (p.seed = 1; p.seed <= 2; p.seed++) {
            if (replay_twin_run(&twin, &p, apart, NULL, &err) != OK ||
                replay_following(&run, &truth, formats[f], &p, &err))
                fail_msg("%s", err.text);
            int moved = 0;
            assert_true(twin.records == truth.records && run.records == truth.records);
            for (int i = 0; i < truth.records; i++) {
                const double want = squared_distance_of_quotient(run.record[i].values, 1, truth.record[i].values);
                moved += want > 0;
                if (!(apart[i] == want))
                    fail_msg("%s: a twin of %s is %g apart, a run %g", run.record[i].name, dtype_name(formats[f]),
                             apart[i], want);
            }
            assert_true(moved > truth.records / 2);
            replay_free(&run);
        }
        replay_free(&twin);
    }
    free(apart);
    replay_free(&truth);
    golden_close(&made);
}

/* Routers' losses count tokens, the cross entropy counts labels; the parts of microbatches add up all the same. */
static void test_parts_of_a_mixture(void **state)
{
    (void)state;
    static const char *const names[] = { "model.layers.0.block_sparse_moe.gate.weight", "model.embed_tokens.weight",
                                         NULL };
    struct golden g = { .seed = 7, .steps = 1, .B = SEQUENCES, .S = TOKENS, .micros = MICROS, .every_step = true };
    struct golden_request q = { .optimizers = 0, .path = scratch("made.safetensors"), .bound = 1e-9 };
    struct error err;
    int64_t usual;
    int tensors;
    assert_int_equal(model_config_preset(&g.config, &usual, "mixtral-tiny", &err), OK);
    g.config.L = 2, g.config.mixture.z_coefficient = 0.1, g.config.mixture.balance_coefficient = 0.3;
    assert_int_equal(golden_take_conventions(&g, "torch,balance-over=microbatch", &err), OK);
    fill_batches(&g);
    for (int64_t i = 0; i < g.S; i++) if (g.labels[i] == IGNORE_LABEL) g.labels[i] = (int32_t)i * (i % 2);
    if (golden_make(&g, &q, &tensors, &err) != OK) fail_msg("%s", err.text);
    if (golden_open(&made, q.path, &err) != OK) fail_msg("%s", err.text);
    assert_int_not_equal(golden_labels(&made, 0, 3) * 2, golden_labels(&made, 3, 2) * 3);       /* uneven shares */
    expect_parts_add_up(names);
    golden_close(&made), golden_close(&g);
}

static void test_microbatches_of_any_number(void **state)
{
    (void)state;
    for (int64_t B = 1; B <= 7; B++)
        for (int64_t M = 1; M <= B; M++) {
            const struct golden g = { .B = B, .micros = M };
            int64_t next = 0;
            for (int64_t k = 0; k < M; k++) {
                int64_t count;
                assert_int_equal(golden_micro(&g, k, &count), next);
                assert_true(count >= B / M && count <= B / M + 1);
                next += count;
            }
            assert_int_equal(next, B);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_parts_of_a_mixture),
        cmocka_unit_test(test_steps_follow),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_it_is_what_our_model_computes),
        cmocka_unit_test(test_twins_are_runs),
        cmocka_unit_test(test_microbatches_of_any_number),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
