/* A model with its mixture on a shortcut, against autograd of the released LongCat-Flash with grouped-query attention
 * (golden/scmoe.safetensors): loss, logits and the gradient of every weight.
 * tier: check
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "ref/routers/router.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

static struct weights file;
static struct error err;

static double number(const char *key)
{
    const char *value = safetensors_metadata(&file.file[0], key);
    if (value == NULL) fail_msg("golden/scmoe.safetensors has no %s", key);
    return strtod(value, NULL);
}

static int64_t size(const char *key) { return (int64_t)number(key); }

static void take(const char *name, enum dtype t, void *out)
{
    const struct safetensors_entry *e = safetensors_find(&file.file[0], name);
    if (e == NULL || safetensors_read(&file.file[0], e, t, out, &err) != OK)
        fail_msg("golden/scmoe.safetensors: %s: %s", name, e ? err.text : "missing");
}

static struct model_config shape(void)
{
    const struct router *r;
    if (router_find(&r, "longcat", &err) != OK) fail_msg("%s", err.text);
    struct model_config c = { .S = size("S"), .D = size("D"), .H = size("H"), .K = size("K"), .F = size("F"),
                              .L = size("L"), .V = size("V"), .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
                              .rotary = { .theta = number("theta") }, .mlp = MLP_MIXTURE, .shortcut = true,
                              .family = &family_scmoe, .eps = number("eps"), .init_std = 0.02 };
    c.A = c.D / c.H;
    c.mixture = (struct mixture_config){ .E = size("E"), .k = size("k"), .zero = size("zero") };
    c.mixture.router = router_fit(r, c.mixture.E, c.mixture.k), c.mixture.router.scale = number("scale");
    return c;
}

/* Reads a parameter's value, or its gradient. */
static void take_parameter(const struct param_spec *s, const char *suffix, struct tensor t)
{
    const int64_t start[2] = { 0 };
    if (weights_read_box(&file, s, suffix, start, s->dim, F64, t.data, &err) != OK) fail_msg("%s", err.text);
}

static void expect(const char *name, struct tensor is, const double *want)
{
    double off = 0, most = 0;
    for (int64_t i = 0; i < tensor_count(is); i++)
        off = fmax(off, fabs(tensor_get(is, i) - want[i])), most = fmax(most, fabs(want[i]));
    if (!(off <= 1e-12 * most)) fail_msg("%s is off by %.3g of %.3g", name, off, most);
}

static void as_autograd(void **state)
{
    struct transformer m;
    static int32_t ids[1000], labels[1000];
    static double want[10000];
    double loss, wanted_loss;
    (void)state;
    if (weights_open_file(&file, "golden/scmoe.safetensors", &err) != OK) fail_msg("%s", err.text);
    const struct model_config c = shape();
    if (transformer_open(&m, &c, F64, 1, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < m.params; i++) take_parameter(&m.spec[i], "", m.w[i]);
    for (int l = 0; l < c.L; l++) {
        char name[16];
        snprintf(name, sizeof name, "bias.%d", l);
        take(name, F64, transformer_router_bias(&m, l));
    }
    take("ids", I32, ids), take("labels", I32, labels), take("loss", F64, &wanted_loss), take("logits", F64, want);
    if (transformer_forward(&m, ids, labels, size("batch"), c.S, &loss, &err) != OK) fail_msg("%s", err.text);
    if (!(fabs(loss - wanted_loss) <= 1e-13 * wanted_loss)) fail_msg("loss %.17g instead of %.17g", loss, wanted_loss);
    expect("logits", m.logits, want);
    transformer_backward(&m);
    for (int i = 0; i < m.params; i++) {
        take_parameter(&m.spec[i], ".grad", tensor_2d(want, F64, m.spec[i].dim[0], m.spec[i].dim[1]));
        expect(m.spec[i].name, m.g[i], want);
    }
    transformer_close(&m), weights_close(&file);
}

/* ---- how far rounding may move the gradient of a choice ---------------------------------------------------------- */

struct seen { int64_t terms; int layer; };

static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct seen *s = context;
    (void)t;
    if (gradient && layer == s->layer && strcmp(name, "router.weights") == 0) s->terms = terms;
}

/* The gradient of the last stream is orthogonal to it, because a norm follows, and what goes through an expert without
 * computation is nearly the stream: the products of the gradients of its choices cancel.  An observer hears of them as
 * of many more products. */
static void products_that_cancel(void **state)
{
    struct transformer m;
    struct model_config c;
    struct seen s = { 0 };
    int64_t batch;
    double loss;
    static int32_t ids[8 * 32];
    const struct router *r;
    (void)state;
    assert_int_equal(model_config_preset(&c, &batch, "scmoe-tiny", &err), OK);
    assert_int_equal(router_find(&r, "longcat", &err), OK);
    c.mixture.zero = 4, c.mixture.router = router_fit(r, c.mixture.E, c.mixture.k);
    for (int i = 0; i < 8 * 32; i++) ids[i] = i * 37 % 256;
    assert_int_equal(transformer_open(&m, &c, F64, 1, &err), OK);
    m.observer = (struct observer){ see, &s };
    s.layer = (int)c.L - 1;
    assert_int_equal(transformer_forward(&m, ids, ids, 8, 32, &loss, &err), OK);
    transformer_backward(&m);
    if (s.terms < 10 * c.D) fail_msg("%lld terms, D is %lld", (long long)s.terms, (long long)c.D);
    transformer_close(&m);
}

/* 13 parameters of a layer beside its experts'; a second block's are found by its number. */
static void parameters_in_order(void **state)
{
    struct model_config c;
    int64_t batch;
    (void)state;
    assert_int_equal(model_config_preset(&c, &batch, "scmoe-tiny", &err), OK);
    assert_ptr_equal(c.family, &family_scmoe);
    for (int l = 0; l < c.L; l++) {
        const struct param_spec first = model_param(&c, param_of_block(&c, l, QKV_W)),
                                second = model_param(&c, param_of_block(&c, second_block(&c, l), QKV_W));
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.0.qkv_proj.weight", l);
        assert_string_equal(first.name, name);
        snprintf(name, sizeof name, "model.layers.%d.self_attn.1.qkv_proj.weight", l);
        assert_string_equal(second.name, name);
    }
    assert_int_equal(param_of_block(&c, 1, LN1_W) - param_of_block(&c, 0, LN1_W), 13 + 2 * c.mixture.E);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_autograd),
        cmocka_unit_test(products_that_cancel), cmocka_unit_test(parameters_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
