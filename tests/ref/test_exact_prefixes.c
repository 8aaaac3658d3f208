/* With exact sums a token's logits have the same bits in a prefix of its sequence, in a batch and in a pack of samples.
 * tier: check
 */
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { B = 3, S = 21, SAMPLE = 7 };
static const char *const names[] = { "tiny", "llama-tiny", "qwen3-tiny", "gemma2-tiny", "gpt-oss-tiny",
                                     "mixtral-tiny" };
enum { MODELS = sizeof names / sizeof *names };

static void open_exact(struct transformer *m, const char *name, enum dtype dtype, enum exact_rule rule)
{
    struct model_config c;
    struct error err;
    int64_t batch;
    if (model_config_preset(&c, &batch, name, &err) != OK) fail_msg("%s", err.text);
    c.exact = rule;
    if (transformer_open(m, &c, dtype, 7, &err) != OK) fail_msg("%s: %s", name, err.text);
}

static void draw_ids(int32_t ids[B * S], int64_t V)
{
    for (int i = 0; i < B * S; i++) ids[i] = (int32_t)(random_uniform(3, 4, (uint64_t)i) * (double)V);
}

static void prefixes_forward(struct transformer *m, const int32_t *ids, int64_t sequences, int64_t tokens)
{
    struct error err;
    double loss;
    if (transformer_forward(m, ids, ids, sequences, tokens, &loss, &err) != OK) fail_msg("%s", err.text);
}

/* The logits of the last forward must be these, of a longer one, from a row on. */
static void must_have(const struct transformer *m, const char *whole, int64_t row, const char *what)
{
    const size_t bytes = (size_t)tensor_cols(m->logits) * dtype_size(m->logits.dtype);
    for (int64_t n = 0; n < tensor_rows(m->logits); n++)
        if (memcmp((char *)m->logits.data + (size_t)n * bytes, whole + (size_t)(row + n) * bytes, bytes) != 0)
            fail_msg("%s: the logits of token %d have other bits %s", m->config.name, (int)n, what);
}

static void check_model(const char *name, enum dtype dtype, enum exact_rule rule)
{
    struct transformer m, alone;
    int32_t ids[B * S], packed[B * S];
    open_exact(&m, name, dtype, rule), open_exact(&alone, name, dtype, rule);
    draw_ids(ids, m.config.V);
    prefixes_forward(&m, ids, B, S);
    for (int64_t n = 1; n <= S; n += 1 + n / 2)
        prefixes_forward(&alone, ids + S, 1, n), must_have(&alone, m.logits.data, S, "in a batch of longer sequences");
    /* Three samples of 7 tokens in each sequence, with positions of their own. */
    for (int i = 0; i < B * S; i++) packed[i] = i % SAMPLE;
    m.packed = packed;
    prefixes_forward(&m, ids, B, S);
    for (int first = 0; first < B * S; first += SAMPLE)
        prefixes_forward(&alone, ids + first, 1, SAMPLE), must_have(&alone, m.logits.data, first, "in a pack");
    transformer_close(&m), transformer_close(&alone);
}

static void test_fp32(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) check_model(names[i], F32, SUMS_EXACT);
    check_model("tiny", F32, SUMS_EXACT2);
}

static void test_bf16(void **state)
{
    (void)state;
    check_model("llama-tiny", BF16, SUMS_EXACT), check_model("llama-tiny", BF16, SUMS_EXACT2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fp32), cmocka_unit_test(test_bf16) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
