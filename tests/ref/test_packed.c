/* Packed samples: a model's loss and gradients are those of the samples one by one, and no token sees another sample.
 * tier: check
 */
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, S = 12, SAMPLES = 6 };

static struct error err;
static int32_t ids[B * S], labels[B * S], within[B * S];

/* Samples of 5, 4, 3 tokens, and of 1, 10, 1. */
static const struct { int first, count; } sample[SAMPLES] = {
    { 0, 5 }, { 5, 4 }, { 9, 3 }, { 12, 1 }, { 13, 10 }, { 23, 1 }
};

static void take_batch(const struct model_config *c)
{
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < sample[s].count; i++) {
            const int n = sample[s].first + i;
            ids[n] = (int32_t)(random_uniform(1, 2, (uint64_t)n) * (double)c->V);
            labels[n] = i == 3 ? IGNORE_LABEL : (int32_t)(random_uniform(1, 3, (uint64_t)n) * (double)c->V);
            within[n] = i;
        }
}

static struct model_config config_of(const char *name)
{
    struct model_config c;
    int64_t usual;
    assert_int_equal(model_config_preset(&c, &usual, name, &err), OK);
    c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0;
    return c;
}

static void open_model(struct transformer *m, const struct model_config *c)
{
    assert_int_equal(transformer_open(m, c, F64, 5, &err), OK);
    transformer_zero_gradients(m);
}

static double packed_loss(struct transformer *m)
{
    double loss;
    m->packed = within;
    if (transformer_forward(m, ids, labels, B, S, &loss, &err) != OK) fail_msg("%s", err.text);
    return loss;
}

/* The same mean, and its gradients, a sample at a time. */
static double loss_one_by_one(struct transformer *m, int64_t counted)
{
    double sum = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double loss;
        const int at = sample[s].first;
        if (transformer_forward(m, ids + at, labels + at, 1, sample[s].count, &loss, &err)) fail_msg("%s", err.text);
        m->loss_scale = (double)m->counted / (double)counted;
        sum += loss * m->loss_scale;
        transformer_backward(m);
    }
    return sum;
}

static double distance(struct tensor a, struct tensor b)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) {
        const double x = tensor_get(a, i), y = tensor_get(b, i);
        difference += (x - y) * (x - y), size += y * y;
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

static void check_model(const char *name)
{
    struct transformer packed, alone;
    const struct model_config c = config_of(name);
    take_batch(&c);
    open_model(&packed, &c), open_model(&alone, &c);
    const double loss = packed_loss(&packed), want = loss_one_by_one(&alone, packed.counted);
    transformer_backward(&packed);
    if (!(fabs(loss - want) <= 1e-13 * want)) fail_msg("%s: loss %.17g, one by one %.17g", name, loss, want);
    for (int i = 0; i < packed.params; i++) {
        const double off = distance(packed.g[i], alone.g[i]);
        if (!(off <= 1e-12)) fail_msg("%s: gradient of %s is off by %.3g", name, packed.spec[i].name, off);
    }
    transformer_close(&packed), transformer_close(&alone);
}

static void test_one_by_one(void **state)
{
    (void)state;
    check_model("tiny"), check_model("llama-tiny");
}

/* Other tokens in one sample change no bit of the logits of all others. */
static void test_no_leak(void **state)
{
    (void)state;
    const struct model_config c = config_of("llama-tiny");
    struct transformer m;
    take_batch(&c);
    open_model(&m, &c);
    packed_loss(&m);
    const size_t bytes = tensor_bytes(m.logits);
    double *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, m.logits.data, bytes);
    for (int i = 0; i < sample[1].count; i++) ids[sample[1].first + i] = (ids[sample[1].first + i] + 1) % (int32_t)c.V;
    packed_loss(&m);
    for (int n = 0; n < B * S; n++) {
        const double *row = (double *)m.logits.data + n * c.V;
        const bool same = memcmp(before + n * c.V, row, (size_t)c.V * sizeof *before) == 0;
        const bool changed = n >= sample[1].first && n < sample[2].first;
        if (same == changed) fail_msg("token %d: its logits %s", n, same ? "did not change" : "saw another sample");
    }
    free(before);
    transformer_close(&m);
}

static void test_holes(void **state)
{
    (void)state;
    const struct model_config c = config_of("tiny");
    struct transformer m;
    double loss;
    open_model(&m, &c);
    for (int n = 0; n < 2; n++) {
        take_batch(&c);
        within[n ? S : 6] = n ? 1 : 3;          /* a hole, and a sequence that begins inside a sample */
        m.packed = within;
        assert_int_equal(transformer_forward(&m, ids, labels, B, S, &loss, &err), ERR_USAGE);
        assert_non_null(strstr(err.text, n ? "token 0 of sequence 1 has position 1"
                                           : "token 6 of sequence 0 has position 3"));
    }
    transformer_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_no_leak), cmocka_unit_test(test_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
