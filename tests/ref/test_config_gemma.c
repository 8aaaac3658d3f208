/* The config.json of Gemmas: defaults, refusals that name the key, and what is written reads back.
 * tier: check
 */
#include "ref/model/transformer.h"
#include "tests/ref/scratch.h"
#include <math.h>
#include <string.h>

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 4, " \
              "\"num_attention_heads\": 16, \"max_position_embeddings\": 48"
static const char *const GEMMA = "{\"model_type\": \"gemma\", " SIZES;

static enum error_code parse(struct model_config *c, const char *start, const char *more, struct error *err)
{
    char text[1000];
    *err = (struct error){ OK, "" };
    snprintf(text, sizeof text, "%s%s%s}", start, more[0] ? ", " : "", more);
    return model_config_parse(c, text, "config.json", err);
}

static struct model_config parsed(const char *start, const char *more)
{
    struct model_config c;
    struct error err;
    if (parse(&c, start, more, &err) != OK) fail_msg("%s: %s", more, err.text);
    return c;
}

/* GemmaConfig's own; its class gives token 0 no gradient unless pad_token_id says otherwise. */
static void defaults(void **state)
{
    (void)state;
    const struct model_config c = parsed(GEMMA, "");
    assert_int_equal(model_family(&c), FAMILY_GEMMA);
    assert_true(c.H == 16 && c.K == 16 && c.A == 256 && c.tied && !c.biases && c.mlp == MLP_GEGLU);
    assert_true(c.norms_from_one && c.scaled_embedding && c.eps == 1e-6 && c.rotary.theta == 10000);
    assert_true(c.padding == 1 && parsed(GEMMA, "\"pad_token_id\": null").padding == 0);
    const struct param_spec norm = model_param(&c, param_of_block(&c, 1, LN1_W)),
                            final = model_param(&c, param_final_norm(&c));
    assert_true(norm.mean == 0 && norm.std == 0 && final.mean == 0);
    assert_true(parsed(GEMMA, "\"attention_bias\": true").biases ==
                (HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT)));
    assert_int_equal(parsed(GEMMA, "\"hidden_act\": \"gelu\", \"hidden_activation\": null, \"head_dim\": 6").A, 6);
}

/* As transformers has it: sqrt(3072) = 55.4256 is 55.5 in bf16. */
static void the_factor_is_rounded(void **state)
{
    (void)state;
    struct model_config c = parsed(GEMMA, "");
    c.D = 3072;
    if (embedding_factor(&c, BF16) != 55.5) fail_msg("the factor in bf16 is %.17g", embedding_factor(&c, BF16));
    assert_true(embedding_factor(&c, F32) == sqrtf(3072) && embedding_factor(&c, F64) == sqrt(3072));
    assert_true(embedding_factor(&c, F16) == 55.4375);
    c.scaled_embedding = false;
    assert_true(embedding_factor(&c, BF16) == 1);
}

static void what_we_have_not_is_refused(void **state)
{
    (void)state;
    static const struct { const char *const *start, *more, *says; } bad[] = {
        { &GEMMA, "\"hidden_act\": \"silu\"",
          "hidden_act is \"silu\"; Orrery has only \"gelu_pytorch_tanh\" or \"gelu\"" },
        { &GEMMA, "\"hidden_activation\": \"gelu\"", "hidden_activation is \"gelu\"" },
        { &GEMMA, "\"use_bidirectional_attention\": true", "use_bidirectional_attention is true" },
        { &GEMMA, "\"mlp_bias\": false", "does not know the key \"mlp_bias\"" },
        { &GEMMA, "\"head_dim\": 7", "heads are A=7 wide; rotary positions need an even width" },
        { &GEMMA, "\"query_pre_attn_scalar\": 8", "does not know the key \"query_pre_attn_scalar\"" },
        { &GEMMA, "\"architectures\": [\"GemmaForSequenceClassification\"]", "architectures has" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct error err;
        if (parse(&c, *bad[i].start, bad[i].more, &err) == OK) fail_msg("%s is accepted", bad[i].more);
        if (strstr(err.text, bad[i].says) == NULL)
            fail_msg("%s: \"%s\", which does not say \"%s\"", bad[i].more, err.text, bad[i].says);
    }
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    const struct { const char *const *start, *more; } files[] = {
        { &GEMMA, "" },
        { &GEMMA, "\"pad_token_id\": null, \"tie_word_embeddings\": false, \"head_dim\": 6, \"rope_theta\": 50.5, "
                  "\"num_key_value_heads\": 2, \"attention_bias\": true, \"hidden_act\": \"gelu\"" },
        { &GEMMA, "\"pad_token_id\": 17, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}" },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct model_config c = parsed(*files[i].start, files[i].more);
        struct model_config back;
        struct error err;
        struct model_number a[MODEL_NUMBERS], b[MODEL_NUMBERS];
        if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        assert_int_equal(model_family(&back), model_family(&c));
        assert_true(back.padding == c.padding && back.biases == c.biases && back.init_std == c.init_std);
        const int n = model_config_numbers(&c, a);
        assert_int_equal(model_config_numbers(&back, b), n);
        for (int k = 0; k < n; k++)
            if (a[k].value != b[k].value) fail_msg("%s: %s is read back as another number", files[i].more, a[k].name);
    }
}

/* google/gemma-2b and gemma-7b: the model cards' 2.5 and 8.5 billion parameters. */
static void published_sizes(void **state)
{
    (void)state;
    static const char *const start = "{\"model_type\": \"gemma\", \"vocab_size\": 256000, "
                                     "\"max_position_embeddings\": 8192";
    const struct model_config
        two = parsed(start, "\"hidden_size\": 2048, \"intermediate_size\": 16384, \"num_hidden_layers\": 18, "
                            "\"num_attention_heads\": 8, \"num_key_value_heads\": 1"),
        seven = parsed(start, "\"hidden_size\": 3072, \"intermediate_size\": 24576, \"num_hidden_layers\": 28, "
                              "\"num_attention_heads\": 16");
    assert_int_equal(model_elements(&two), 2506172416);
    assert_int_equal(model_elements(&seven), 8537680896);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(the_factor_is_rounded),
        cmocka_unit_test(what_we_have_not_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(published_sizes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
