/* Parallel streams: how far rounding may move the gradients of the logits that weigh them.
 * tier: check
 */
#include "ref/model/perturb.h"
#include "ref/ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { B = 2, S = 16 };

static struct error err;

static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    (void)layer, (void)t;
    if (gradient && strcmp(name, "streams.logits") == 0) *(int64_t *)context = terms;
}

/* What an observer hears of, where the prefixes that tell streams apart are so many times as large as usual. */
static int64_t terms_with(double prefix)
{
    static int32_t ids[B * S];
    struct model_config c;
    struct transformer m;
    int64_t batch, terms = 0;
    double loss;
    assert_int_equal(model_config_preset(&c, &batch, "parscale-tiny", &err), OK);
    for (int i = 0; i < B * S; i++) ids[i] = i * 37 % 256;
    assert_int_equal(transformer_open(&m, &c, F64, 1, &err), OK);
    for (int i = 0; i < m.params; i++)
        for (int64_t k = 0; strstr(m.spec[i].name, "prefix") && k < tensor_count(m.w[i]); k++)
            tensor_set(m.w[i], k, prefix * tensor_get(m.w[i], k));
    m.observer = (struct observer){ .see = see, .context = &terms };
    assert_int_equal(transformer_forward(&m, ids, ids, B, S, &loss, &err), OK);
    transformer_backward(&m);
    transformer_close(&m);
    return terms;
}

/* A logit's gradient is a stream's product with the mean's gradient, less the mean of all: the nearer streams are to
 * each other, the less is left of the products, and an observer hears of it as of many more. */
static void test_products_that_cancel(void **state)
{
    (void)state;
    const int64_t far = terms_with(30), usual = terms_with(1), near = terms_with(0.01);
    if (!(far < usual && 10 * usual < near))
        fail_msg("%lld terms, of streams that differ more %lld, less %lld", (long long)usual, (long long)far,
                 (long long)near);
}

/* A microbatch without sequences has as many streams as any other. */
static void test_no_tokens(void **state)
{
    enum { P = 3, D = 2 };
    double x[P * D] = { 1, 2, 3, 4, 5, 6 }, h[P * D] = { 6, 5, 4, 3, 2, 1 };
    const struct tensor X = tensor_2d(x, F64, 0, P * D), H = tensor_2d(h, F64, 0, D);
    (void)state;
    ops_for(F64)->streams_beside(X, H);
    ops_for(F64)->streams_beside_backward_input(H, X);
    assert_true(x[0] == 1 && x[P * D - 1] == 6 && h[0] == 6 && h[P * D - 1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_that_cancel), cmocka_unit_test(test_no_tokens),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
