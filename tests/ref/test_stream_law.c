/* Parallel streams: published numbers of parameters to the last digit, and the law of the published losses beside what
 * the authors' own script finds (QwenLM/ParScale, parametric_fit.py, run with SciPy's L-BFGS-B).
 * tier: check
 */
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/stream_law.h"
#include <stdio.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* What the script prints for each corpus: the law, its misfit and R^2. */
static const struct { struct stream_law law; double misfit, explained; } script[STREAM_CORPORA] = {
    { { 0.69123678, 0.01130616, 0.18937067, 0.39346300 }, 3.6767408482543555e-05, 0.9978329433961804 },
    { { 1.28876563, 0.19735203, 0.19633308, 0.33445557 }, 1.8139332932468087e-05, 0.9986760167298065 },
};

static void test_parameters(void **state)
{
    (void)state;
    for (int i = 0; i < STREAM_SIZES; i++)
        for (int j = 0; j < STREAM_COUNTS; j++) {
            const int64_t D = stream_widths[i], want = stream_parameters[j][i];
            const int64_t got = stream_parameters[0][i] + stream_extra_parameters(stream_counts[j], D, STREAM_LAYERS,
                                                                                  STREAM_PREFIX, D / STREAM_KEY_SHARE);
            if (got != want)
                fail_msg("width %lld, %d streams: %lld parameters; published are %lld", (long long)D, stream_counts[j],
                         (long long)got, (long long)want);
        }
}

/* A published model's shape; F is what its number of parameters without streams leaves. */
static struct model_config shape_of(int size, int64_t P)
{
    const int64_t D = stream_widths[size], A = D / STREAM_KEY_SHARE, L = STREAM_LAYERS;
    struct model_config c = { .S = 8, .D = D, .H = STREAM_KEY_SHARE, .K = 1, .A = A, .F = 1, .L = L, .V = 1,
                              .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .tied = true,
                              .rotary = { .theta = 1e6 }, .biases = HAS_BIAS(ROLE_QKV),
                              .family = P > 1 ? &family_parscale : &family_qwen2, .eps = 1e-6 };
    const int64_t without = model_elements(&c) - c.V * D - 3 * L * D;
    c.F = (stream_parameters[0][size] - without) / (3 * L * D);
    if (P > 1) c.streams = (struct streams_config){ .P = P, .prefix = STREAM_PREFIX, .smoothing = 0.01 };
    return c;
}

static void test_parameters_of_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < STREAM_SIZES; i++)
        for (int j = 0; j < STREAM_COUNTS; j++) {
            const struct model_config c = shape_of(i, stream_counts[j]);
            const int64_t got = model_elements(&c) - c.V * c.D, want = stream_parameters[j][i];
            if (got != want)
                fail_msg("width %lld, %d streams: the model has %lld parameters; published are %lld", (long long)c.D,
                         stream_counts[j], (long long)got, (long long)want);
        }
}

static enum error_code parse(struct model_config *c, int P, int prefix, const char *smoothing, struct error *err)
{
    char text[600];
    snprintf(text, sizeof text,
             "{\"model_type\":\"qwen2_parscale\",\"max_position_embeddings\":8,\"hidden_size\":8,\"vocab_size\":9,"
             "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"intermediate_size\":5,"
             "\"parscale_n\":%d,\"parscale_n_tokens\":%d,\"parscale_attn_smooth\":%s}", P, prefix, smoothing);
    return model_config_parse(c, text, "here", err);
}

static void test_config(void **state)
{
    struct model_config c;
    struct error err;
    (void)state;
    assert_int_equal(parse(&c, 1, 48, "0.01", &err), OK);
    assert_ptr_equal(c.family, &family_qwen2);
    assert_int_equal(c.streams.prefix, 0);
    assert_int_equal(parse(&c, 3, 5, "0.25", &err), OK);
    assert_ptr_equal(c.family, &family_parscale);
    assert_true(c.streams.P == 3 && c.streams.prefix == 5 && c.streams.smoothing == 0.25);
    assert_int_equal(parse(&c, 3, 5, "1.5", &err), ERR_PLAN);
    assert_int_equal(parse(&c, 3, 0, "0.1", &err), ERR_FORMAT);
    assert_int_equal(parse(&c, 2000, 5, "0.1", &err), ERR_PLAN);
}

/* The law that the script finds, not ours: its misfit and R^2, to the digits that the script prints of the law. */
static void test_misfit_of_the_scripts_law(void **state)
{
    (void)state;
    for (int i = 0; i < STREAM_CORPORA; i++) {
        const double misfit = stream_law_misfit(&script[i].law, &stream_losses[i]);
        const double explained = stream_law_explained(&script[i].law, &stream_losses[i]);
        if (!(fabs(misfit / script[i].misfit - 1) < 1e-5))
            fail_msg("%s: misfit %.9g of the script's law; the script has %.9g", stream_losses[i].corpus, misfit,
                     script[i].misfit);
        if (!(fabs(explained - script[i].explained) < 1e-6))
            fail_msg("%s: R^2 %.9g of the script's law; the script has %.9g", stream_losses[i].corpus, explained,
                     script[i].explained);
    }
}

static void same_in_three_digits(const char *corpus, const char *what, double got, double want)
{
    if (!(fabs(got / want - 1) < 5e-4)) fail_msg("%s: %s is %.6f; the script finds %.6f", corpus, what, got, want);
}

static void test_fit(void **state)
{
    (void)state;
    for (int i = 0; i < STREAM_CORPORA; i++) {
        const struct stream_losses *s = &stream_losses[i];
        const struct stream_law l = stream_law_fit(s);
        same_in_three_digits(s->corpus, "E", l.E, script[i].law.E);
        same_in_three_digits(s->corpus, "alpha", l.alpha, script[i].law.alpha);
        same_in_three_digits(s->corpus, "k", l.k, script[i].law.k);
        same_in_three_digits(s->corpus, "R^2", stream_law_explained(&l, s), script[i].explained);
        if (!(stream_law_misfit(&l, s) <= script[i].misfit))
            fail_msg("%s: misfit %.9g; the script finds %.9g", s->corpus, stream_law_misfit(&l, s), script[i].misfit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_parameters_of_the_model),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_misfit_of_the_scripts_law),
        cmocka_unit_test(test_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
