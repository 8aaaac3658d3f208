/* Every mixture with every router: what is written to config.json reads back as the same rule, and the file says where
 * it is not the class's of transformers.
 * tier: check
 */
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/routers/router.h"
#include "tests/ref/config_text.h"

/* Written and read, to the last bit. */
static void reads_back(const struct model_config *c, const char *what)
{
    struct model_config back;
    struct error err = { OK, "" };
    const struct mixture_config *m = &c->mixture, *n = &back.mixture;
    if (model_config_write(c, scratch("config.json"), &err) != OK) fail_msg("%s of %s: %s", what, c->name, err.text);
    if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s of %s: %s", what, c->name, err.text);
    if (!router_same(&m->router, &n->router)) fail_msg("%s of %s: another router is read back", what, c->name);
    if (m->E != n->E || m->k != n->k || m->zero != n->zero || m->zero_is_null != n->zero_is_null)
        fail_msg("%s of %s: other experts are read back", what, c->name);
    if (back.family != c->family) fail_msg("%s of %s: another family is read back", what, c->name);
}

static void every_router_reads_back(void **state)
{
    int mixtures = 0;
    (void)state;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        if (p->config.mlp != MLP_MIXTURE) continue;
        mixtures++;
        reads_back(&p->config, "its own router");
        for (int r = 0; routers[r]; r++) {
            struct model_config c = p->config;
            c.mixture.router = router_fit(routers[r], c.mixture.E, c.mixture.k);
            reads_back(&c, routers[r]->name);
            if (c.mixture.router.groups > 1) continue;
            c.mixture.zero = 2, c.mixture.zero_is_null = routers[r]->zero_is_null;
            reads_back(&c, routers[r]->name);
        }
    }
    assert_true(mixtures >= 6);
}

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"moe_intermediate_size\": 13, " \
              "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_experts_per_tok\": 2, " \
              "\"n_routed_experts\": 6, \"n_group\": 1, \"topk_group\": 1, \"max_position_embeddings\": 11"

/* A DeepSeek's class in transformers does not read these keys, or not these values: a file must say that they hold. */
static void other_routers_of_a_deepseek(void **state)
{
    static const char *const start[] = { "{\"model_type\": \"deepseek_v2\", " SIZES,
                                         "{\"model_type\": \"deepseek_v3\", " SIZES };
    static const struct { int version; const char *more; } other[] = {
        { 0, "\"scoring_func\": \"sigmoid\"" },    { 0, "\"norm_topk_prob\": true" },
        { 0, "\"topk_method\": \"noaux_tc\"" },    { 0, "\"mlp_dynamic_top_p\": 0.5" },
        { 0, "\"zero_expert_num\": 2" },           { 1, "\"scoring_func\": \"softmax\"" },
        { 1, "\"topk_method\": \"greedy\"" },      { 1, "\"router_bias_update\": \"share\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct model_config c;
        struct error err;
        char more[200];
        const char *from = start[other[i].version];
        assert_int_equal(parse(&c, from, other[i].more, &err), ERR_FORMAT);
        assert_says(other[i].more, err.text, "other routers need orrery_router true");
        snprintf(more, sizeof more, "\"orrery_router\": true, %s", other[i].more);
        if (parse(&c, from, more, &err) != OK) fail_msg("%s: %s", more, err.text);
        reads_back(&c, other[i].more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_router_reads_back),
        cmocka_unit_test(other_routers_of_a_deepseek),
    };
    return cmocka_run_group_tests_name("config of routers", tests, scratch_make, scratch_remove);
}
