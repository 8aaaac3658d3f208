/* Masks of attention by name.  Ranges, results, log-sum-exp and gradients are held to PyTorch with an explicit matrix
 * of which token sees which (golden/make_masks.py).  Whole models are held to models whose attention is known: a lambda
 * mask without sinks is a window, and a mask that hides nothing is causal attention.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/params.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "tests/ref/test_ops.h"

enum { A = 3, H = 4, K = 2, TOKENS = 40, MOST_TOKENS = 70 };

static struct error err;
static struct safetensors file;

static struct attention_mask mask_named(const char *text)
{
    struct attention_mask mask;
    if (attention_mask_parse(&mask, text, &err) != OK) fail_msg("%s: %s", text, err.text);
    return mask;
}

/* ---- PyTorch ----------------------------------------------------------------------------------------------------- */

static struct tensor stored(const char *name, const char *what)
{
    char full[100];
    snprintf(full, sizeof full, "%s%s%s", name, name[0] ? "/" : "", what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("%s has no %s", file.path, full);
    const enum dtype t = strcmp(e->dtype, "F64") == 0 ? F64 : strcmp(e->dtype, "I32") == 0 ? I32 : U8;
    struct tensor x = tensor_2d(malloc((size_t)e->count * 8), t, e->dim[0], e->ndim == 2 ? e->dim[1] : 1);
    if (safetensors_read(&file, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

static void expect_close(const char *name, const char *what, struct tensor is)
{
    const struct tensor want = stored(name, what);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double d = tensor_get(is, i) - tensor_get(want, i);
        difference += d * d, size += tensor_get(want, i) * tensor_get(want, i);
    }
    free(want.data);
    if (!(sqrt(difference / size) < 1e-14))
        fail_msg("--mask %s: %s differs from PyTorch's by %.2e, norm over norm", name, what, sqrt(difference / size));
}

/* The ranges of each token say what the stored matrix says.  @return the pairs that see each other. */
static int64_t expect_sees(const char *name, const int32_t *range, int ranges)
{
    const struct tensor sees = stored(name, "sees");
    int64_t pairs = 0;
    for (int query = 0; query < TOKENS; query++)
        for (int key = 0; key < TOKENS; key++) {
            bool seen = false;
            for (int r = 0; r < ranges; r++) {
                const int32_t *const at = range + (query * ranges + r) * 2;
                seen = seen || (key >= at[0] && key < at[1]);
            }
            const bool want = ((const uint8_t *)sees.data)[query * TOKENS + key];
            if (seen != want)
                fail_msg("--mask %s: token %d %s token %d, unlike PyTorch's matrix", name, query,
                         seen ? "sees" : "does not see", key);
            pairs += seen;
        }
    free(sees.data);
    return pairs;
}

static void hold_to_pytorch(const char *name, const int32_t *within)
{
    const struct ops *op = ops_for(F64);
    const struct attention_mask mask = mask_named(name);
    const int ranges = attention_mask_ranges(&mask);
    int32_t sees[TOKENS * 2 * ATTENTION_MASK_RANGES];
    const struct tensor QKV = stored("", "qkv"), dO = stored("", "dout"), O = matrix(F64, TOKENS, H * A),
                        lse = matrix(F64, H, TOKENS), dQKV = matrix(F64, TOKENS, (H + 2 * K) * A);
    struct attention a = { .S = TOKENS, .H = H, .K = K, .A = A, .scale = 1 / sqrt(A) };
    assert_int_equal(sample_mask(sees, &mask, within, 1, TOKENS, &err), OK);
    a.mask = tensor_2d(sees, I32, TOKENS, 2 * ranges);
    assert_int_equal((int64_t)attention_pairs(TOKENS, a), expect_sees(name, sees, ranges));
    op->attention_forward(O, lse, QKV, a);
    expect_close(name, "out", O), expect_close(name, "lse", lse);
    op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
    expect_close(name, "dqkv", dQKV);
    free(QKV.data), free(dO.data);
    check_guards_and_free();
}

static void attention_is_pytorchs(void **state)
{
    int32_t within[TOKENS];
    char names[400], *rest = names;
    int count = 0, at = 0;
    (void)state;
    if (safetensors_open(&file, "golden/masks.safetensors", &err) != OK) fail_msg("%s", err.text);
    const struct tensor samples = stored("", "samples");
    for (int64_t s = 0; s < tensor_count(samples); s++)
        for (int32_t i = 0; i < ((const int32_t *)samples.data)[s]; i++) within[at++] = i;
    assert_int_equal(at, TOKENS);
    snprintf(names, sizeof names, "%s", safetensors_metadata(&file, "cases"));
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; count++) hold_to_pytorch(name, within);
    assert_int_equal(count, 5);
    free(samples.data);
    safetensors_close(&file);
}

/* ---- every length ------------------------------------------------------------------------------------------------ */

/* The second range begins where the first one has ended or later; a token sees some key, and none behind itself. */
static void ranges_ascend(void **state)
{
    static const char *const masks[] = { "causal", "lambda", "lambda:3,4", "lambda:0,1", "lambda:5,0", "lambda:1,0",
                                         "shared-question", "shared-question:7,0.5", "shared-question:90,0",
                                         "blockwise", "blockwise:5,0", "blockwise:3,2", "blockwise:1,1" };
    (void)state;
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int64_t n = 1; n < MOST_TOKENS; n++) {
            const struct attention_mask mask = mask_named(masks[m]);
            const int ranges = attention_mask_ranges(&mask);
            int32_t sees[MOST_TOKENS * 2 * ATTENTION_MASK_RANGES];
            double pairs = 0;
            attention_mask_fill(&mask, 100, n, sees);
            for (int64_t at = 0; at < n; at++) {
                int32_t end = 100, keys = 0;
                for (int r = 0; r < ranges; r++) {
                    const int32_t *const range = sees + (at * ranges + r) * 2;
                    if (range[0] < end || range[1] < range[0] || range[1] > 100 + at + 1)
                        fail_msg("--mask %s: token %d of %d sees %d to %d", masks[m], (int)at, (int)n, range[0] - 100,
                                 range[1] - 100);
                    keys += range[1] - range[0], end = range[1];
                }
                if (keys == 0) fail_msg("--mask %s: token %d of %d sees no key", masks[m], (int)at, (int)n);
                pairs += keys;
            }
            if (pairs != attention_mask_pairs(&mask, n))
                fail_msg("--mask %s: %.0f pairs in %d tokens, counted %.0f", masks[m], attention_mask_pairs(&mask, n),
                         (int)n, pairs);
        }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The loss of a batch, and the sum of the squares of its gradient. */
struct trained { double loss, squares; };

static struct trained train_once(const char *name, const char *mask)
{
    enum { SEQUENCES = 2, S = 23 };
    struct model_config config;
    struct transformer m;
    struct trained t = { 0 };
    int32_t ids[SEQUENCES * S], labels[SEQUENCES * S];
    int64_t batch;
    assert_int_equal(model_config_preset(&config, &batch, name, &err), OK);
    config.mask = mask_named(mask);
    for (int i = 0; i < SEQUENCES * S; i++)
        ids[i] = (int32_t)(200 * random_uniform(3, 1, (uint64_t)i)), labels[i] = (ids[i] * 7 + 3) % 200;
    if (transformer_open(&m, &config, F64, 5, &err) != OK) fail_msg("%s", err.text);
    if (transformer_forward(&m, ids, labels, SEQUENCES, S, &t.loss, &err) != OK) fail_msg("%s", err.text);
    transformer_backward(&m);
    for (int i = 0; i < m.params; i++) t.squares += ops_squares(m.ops, m.g[i]);
    transformer_close(&m);
    return t;
}

static void expect_same(const char *what, struct trained is, struct trained want, bool same)
{
    if ((is.loss == want.loss && is.squares == want.squares) != same)
        fail_msg("%s: loss %.17g and squares %.17g; %.17g and %.17g", what, is.loss, is.squares, want.loss,
                 want.squares);
}

/* mistral-tiny is llama-tiny with windows of 12 tokens, which golden/mistral-windows holds to transformers. */
static void models_have_the_mask(void **state)
{
    (void)state;
    const struct trained causal = train_once("llama-tiny", "causal");
    expect_same("lambda:0,12 is a window of 12", train_once("llama-tiny", "lambda:0,12"),
                train_once("mistral-tiny", "causal"), true);
    expect_same("lambda:23,0 hides nothing", train_once("llama-tiny", "lambda:23,0"), causal, true);
    expect_same("one answer without a question hides nothing", train_once("llama-tiny", "shared-question:1,0"), causal,
                true);
    expect_same("one block hides nothing", train_once("llama-tiny", "blockwise:23,0"), causal, true);
    expect_same("lambda:2,12 has sinks", train_once("llama-tiny", "lambda:2,12"), train_once("mistral-tiny", "causal"),
                false);
    expect_same("answers do not see each other", train_once("llama-tiny", "shared-question"), causal, false);
    expect_same("blocks hide the middle", train_once("llama-tiny", "blockwise:3,1"), causal, false);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void words_are_read(void **state)
{
    static const struct { const char *word, *text; } good[] = {
        { "causal", "causal" }, { "lambda", "lambda:64,4096" }, { "lambda:2", "lambda:2,4096" },
        { "shared-question", "shared-question:4,0.2" }, { "shared-question:3,0.125", "shared-question:3,0.125" },
        { "blockwise", "blockwise:256,2" }, { "blockwise:8,0", "blockwise:8,0" },
        { "shared-question:3,0.12345678901", "shared-question:3,0.12345678901" }, { "lambda:1e3,2", "lambda:1000,2" },
    };
    static const struct { const char *word, *says; } bad[] = {
        { "lamda", "did you mean lambda" }, { "", "must be one of causal" }, { "causal:1", "has no numbers" },
        { "lambda:0,0", "would see no key" }, { "lambda:-1,4", "SINKS a whole number" },
        { "lambda:1.5,4", "SINKS a whole number" }, { "lambda:", "must be lambda:SINKS,WINDOW" },
        { "lambda:1,", "must be lambda:SINKS,WINDOW" }, { "lambda:1,2,3", "must be lambda:SINKS,WINDOW" },
        { "lambda:nan,4", "must be" }, { "lambda:0x4,4", "must be" }, { "lambda: 1,4", "must be" },
        { "lambda:+1,4", "must be" }, { "lambda:2,1e10", "WINDOW a whole number from 0 to 1e+09" },
        { "shared-question:0,0.2", "ANSWERS a whole number from 1" },
        { "shared-question:2,1", "PART a number from 0 to 0.999" }, { "blockwise:0,2", "TOKENS a whole number from 1" },
    };
    struct attention_mask mask;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        mask = mask_named(good[i].word);
        assert_string_equal(attention_mask_text(&mask).text, good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (attention_mask_parse(&mask, bad[i].word, &err) != ERR_USAGE) fail_msg("%s is taken", bad[i].word);
        if (!strstr(err.text, bad[i].says)) fail_msg("%s: %s", bad[i].word, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(attention_is_pytorchs), cmocka_unit_test(ranges_ascend),
                                        cmocka_unit_test(models_have_the_mask), cmocka_unit_test(words_are_read) };
    return cmocka_run_group_tests_name("masks of attention", tests, NULL, NULL);
}
