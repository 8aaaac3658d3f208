/* Real files: config.json files of the same models, from several versions of transformers, must give the same models.
 *
 * golden/make_configs.py made tests/ref/configs/transformers-VERSION/NAME.json with that version. */
#include "ref/routers/router.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "tests/ref/scratch.h"
#include <glob.h>

enum { LEAST = 30 };

static const struct { const char *name; struct model_config c;
} models[] = {
#define GPT2(...) \
    { \
        .S = 48, .D = 21, .H = 3, .K = 3, .A = 7, .L = 2, .V = 61, .family = &family_gpt2, .biases = BIASES_BLOCK, \
        .eps = 1e-4, \
        .init_std = 0.03, \
        .dropout_residual = 0.2, .dropout_embedding = 0.3, .dropout_attention = 0.4, __VA_ARGS__ \
    }
#define LLAMA(...) \
    { \
        .S = 48, .D = 24, .H = 6, .F = 37, .L = 2, .V = 61, .norm = NORM_RMS, .positions = POSITIONS_ROTARY, \
        .eps = 1e-4, .init_std = 0.03, __VA_ARGS__ \
    }
#define GPTJ(...) \
    { \
        .S = 48, .D = 21, .H = 3, .K = 3, .A = 7, .L = 2, .V = 61, .positions = POSITIONS_ROTARY, .parallel = true, \
        .rotary = { .theta = 10000, .turned = 4, .neighbours = true }, .family = &family_gptj, \
        .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD), .eps = 1e-4, \
        .init_std = 0.03, \
        .dropout_residual = 0.2, .dropout_embedding = 0.3, .dropout_attention = 0.4, __VA_ARGS__ \
    }
#define LAYERNORMS(...) \
    { \
        .S = 48, .D = 24, .H = 6, .F = 37, .L = 2, .V = 61, .positions = POSITIONS_ROTARY, \
        .rotary = { .theta = 500 }, .eps = 1e-4, .init_std = 0.03, __VA_ARGS__ \
    }
#define GPT_NEOX(...) \
    LAYERNORMS(.family = &family_gpt_neox, .K = 6, .A = 4, .biases = BIASES_BLOCK, .rotary.turned = 2, \
               .activation = ACTIVATION_EXACT_GELU, .dropout_residual = 0.2, .dropout_embedding = 0.2, \
               .dropout_attention = 0.4, __VA_ARGS__)
    { "gpt2", GPT2(.F = 84, .tied = true) },
    { "gpt2-untied", GPT2(.F = 37) },
    { "gptj", GPTJ(.F = 84) },
    { "gptj-tied", GPTJ(.F = 37, .tied = true) },
    { "llama", LLAMA(.family = &family_llama, .A = 4, .K = 6, .mlp = MLP_SWIGLU, .rotary = { .theta = 10000 }) },
    { "llama-tied", LLAMA(.family = &family_llama, .A = 4, .K = 2, .mlp = MLP_SWIGLU, .tied = true,
                          .rotary = { .theta = 10000 }) },
    { "llama-linear",
      LLAMA(.family = &family_llama, .A = 4, .K = 2, .mlp = MLP_SWIGLU,
            .rotary = { .theta = 500, .scaling = SCALING_LINEAR, .factor = 2.5 }) },
    { "llama-llama3", LLAMA(.family = &family_llama, .A = 4, .K = 2, .mlp = MLP_SWIGLU,
                            .rotary = { .theta = 500,
                                        .scaling = SCALING_LLAMA3,
                                        .factor = 8,
                                        .low_frequency = 1,
                                        .high_frequency = 4,
                                        .original_positions = 32 }) },
    { "qwen2", LLAMA(.A = 4, .K = 2, .mlp = MLP_SWIGLU, .family = &family_qwen2, .biases = HAS_BIAS(ROLE_QKV),
                     .rotary = { .theta = 500 }) },
    { "qwen3", LLAMA(.family = &family_qwen3, .K = 2, .A = 8, .mlp = MLP_SWIGLU, .head_norms = true,
                     .rotary = { .theta = 500 }) },
    { "qwen2-windows", LLAMA(.A = 4, .K = 2, .mlp = MLP_SWIGLU, .family = &family_qwen2,
                             .biases = HAS_BIAS(ROLE_QKV), .rotary = { .theta = 500 },
                             .windows = { 20, { 2 } }) },
    { "mistral", LLAMA(.K = 2, .A = 8, .mlp = MLP_SWIGLU, .family = &family_mistral, .rotary = { .theta = 500 },
                       .windows = { 20, { 3 } }) },
    { "mistral-full", LLAMA(.K = 2, .A = 8, .mlp = MLP_SWIGLU, .family = &family_mistral, .rotary = { .theta = 500 }) },
    { "deepseek-v2", { .family = &family_deepseek_v2, .S = 48, .D = 24, .H = 6, .K = 6, .A = 10, .F = 13, .L = 2,
                       .V = 61, .norm = NORM_RMS,
                       .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03, .mlp = MLP_MIXTURE,
                       .rotary = { .theta = 10000, .turned = 4, .neighbours = true }, .dense = { 37, { { 1 } } },
                       .latent = { 0, 10, 7 },
                       .mixture = { .E = 6, .k = 3, .shared = 26,
                                    .router = { .scale = 2.5, .groups = 3, .kept = 2 } } } },
    { "deepseek-v3", { .S = 48, .D = 24, .H = 6, .K = 6, .A = 10, .F = 13, .L = 2, .V = 61, .norm = NORM_RMS,
                       .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03, .mlp = MLP_MIXTURE,
                       .family = &family_deepseek_v3, .rotary = { .theta = 10000, .turned = 4, .neighbours = true },
                       .dense = { 37, { { 1 } } }, .latent = { 9, 10, 7 },
                       .mixture = { .E = 6, .k = 3, .shared = 26,
                                    .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 1.5,
                                                .biased = true, .groups = 3, .kept = 2, .sums_two = true } } } },
    { "gpt-oss", { .family = &family_gpt_oss, .S = 48, .D = 24, .H = 6, .K = 2, .A = 8, .F = 37, .L = 2, .V = 61,
                   .norm = NORM_RMS,
                   .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03, .mlp = MLP_MIXTURE, .sinks = true,
                   .biases = BIASES_BLOCK | HAS_BIAS(ROLE_ROUTER),
                   .rotary = { .theta = 150000, .scaling = SCALING_YARN, .factor = 32, .low_frequency = 1,
                               .high_frequency = 32, .original_positions = 4096, .enlarged = 1.3465735902799727,
                               .between_pairs = true },
                   .windows = { 20, { 1 } },
                   .mixture = { .E = 5, .k = 3, .router = { .normalized = true, .scale = 1 },
                                .clamped = { 1.702, 3 } } } },
    { "qwen3-moe", { .family = &family_qwen3_moe, .S = 48, .D = 24, .H = 6, .K = 2, .A = 8, .F = 13, .L = 2,
                     .V = 61, .norm = NORM_RMS,
                     .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03, .mlp = MLP_MIXTURE,
                     .head_norms = true, .rotary = { .theta = 500 }, .dense = { 37, { { 1 } } },
                     .mixture = { .E = 5, .k = 3, .router = { .normalized = true, .scale = 1 } } } },
    { "olmo2", LLAMA(.family = &family_olmo2, .A = 4, .K = 2, .mlp = MLP_SWIGLU, .head_norms = true,
                     .normed_together = true,
                     .norms_at = NORMS_AFTER, .biases = HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT),
                     .rotary = { .theta = 500 }) },
    { "phi3", LLAMA(.A = 4, .K = 2, .mlp = MLP_SWIGLU, .family = &family_phi3, .dropout_residual = 0.2,
                    .rotary = { .theta = 500 }, .windows = { 20, { 3 } }) },
    { "phi3-long", LLAMA(.A = 4, .K = 2, .mlp = MLP_SWIGLU, .family = &family_phi3, .dropout_residual = 0.2,
                         .rotary = { .theta = 500, .scaling = SCALING_LONG, .original_positions = 16,
                                     .shorter = { 1, 1.5 }, .longer = { 2.5, 4 } }) },
    { "gemma", LLAMA(.family = &family_gemma, .K = 2, .A = 8, .mlp = MLP_GEGLU, .norms_from_one = true,
                     .scaled_embedding = true, .tied = true,
                     .rotary = { .theta = 500 }) },
    { "gemma2", LLAMA(.family = &family_gemma2, .K = 2, .A = 8, .mlp = MLP_GEGLU, .norms_from_one = true,
                      .scaled_embedding = true, .tied = true,
                      .rotary = { .theta = 500 }, .norms_at = NORMS_AROUND, .score_width = 8, .score_cap = 20,
                      .windows = { 20, { 1 } }) },
    { "gemma3", LLAMA(.family = &family_gemma3, .K = 2, .A = 8, .mlp = MLP_GEGLU, .norms_from_one = true,
                      .scaled_embedding = true, .tied = true,
                      .rotary = { .theta = 500, .scaling = SCALING_LINEAR, .factor = 2 }, .norms_at = NORMS_AROUND,
                      .head_norms = true, .score_width = 256, .logit_cap = 15, .local_theta = 20,
                      .windows = { 20, { 1 } }) },
    { "olmo3", LLAMA(.family = &family_olmo3, .A = 4, .K = 2, .mlp = MLP_SWIGLU, .head_norms = true,
                     .normed_together = true, .norms_at = NORMS_AFTER, .rotary = { .theta = 500000 },
                     .local_theta = 500000, .windows = { 20, { 2 } }) },
    { "olmoe", LLAMA(.family = &family_olmoe, .A = 4, .K = 2, .mlp = MLP_MIXTURE, .head_norms = true,
                     .normed_together = true, .rotary = { .theta = 500 },
                     .mixture = { .E = 5, .k = 3, .router = { .normalized = true, .scale = 1 } }) },
    { "qwen2-moe", { .family = &family_qwen2_moe, .S = 48, .D = 24, .H = 6, .K = 2, .A = 4, .F = 13, .L = 2, .V = 61,
                     .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03,
                     .mlp = MLP_MIXTURE, .biases = HAS_BIAS(ROLE_QKV), .rotary = { .theta = 500 },
                     .dense = { 37, { { 2 } } },
                     .mixture = { .E = 5, .k = 3, .router = { .scale = 1 }, .shared = 17, .shared_gate = true } } },
    { "glm4-moe", { .family = &family_glm4_moe, .S = 48, .D = 24, .H = 6, .K = 2, .A = 8, .F = 13, .L = 2, .V = 61,
                    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .eps = 1e-4, .init_std = 0.03,
                    .mlp = MLP_MIXTURE, .head_norms = true, .rotary = { .theta = 500, .turned = 4 },
                    .dense = { 37, { { 1 } } },
                    .mixture = { .E = 6, .k = 3, .shared = 26,
                                 .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 1.5, .biased = true,
                                             .groups = 3, .kept = 2, .sums_two = true } } } },
    { "granite", LLAMA(.family = &family_granite, .A = 4, .K = 2, .mlp = MLP_SWIGLU, .biases = BIASES_FEED,
                       .rotary = { .theta = 500 }, .multipliers = { 12, 0.22, 0.3, 8 }) },
    { "smollm3", LLAMA(.family = &family_smollm3, .A = 4, .K = 2, .mlp = MLP_SWIGLU, .tied = true,
                       .rotary = { .theta = 500 }, .unturned = { { 1 } }) },
    { "starcoder2", LAYERNORMS(.family = &family_starcoder2, .K = 2, .A = 4, .tied = true, .biases = BIASES_BLOCK,
                               .windows = { 20, { 3 } }, .dropout_residual = 0.2, .dropout_embedding = 0.3,
                               .dropout_attention = 0.4) },
    { "starcoder2-unbiased", LAYERNORMS(.family = &family_starcoder2, .K = 2, .A = 4, .dropout_residual = 0.2,
                                        .dropout_embedding = 0.3, .dropout_attention = 0.4) },
    { "nemotron", LAYERNORMS(.family = &family_nemotron, .K = 2, .A = 8, .biases = BIASES_ATTENTION,
                             .activation = ACTIVATION_SQUARED_RELU, .norms_from_one = true, .rotary.turned = 4) },
    { "gpt-neox", GPT_NEOX(.parallel = true, .two_norms = true) },
    { "gpt-neox-sequence", GPT_NEOX(.tied = true) },
    { "mixtral", LLAMA(.family = &family_mixtral, .A = 4, .K = 2, .mlp = MLP_MIXTURE, .rotary = { .theta = 1e6 },
                       .mixture = { .E = 5, .k = 3, .router = { .normalized = true, .scale = 1 } }) },
    { "mixtral-balanced", LLAMA(.family = &family_mixtral, .A = 4, .K = 2, .mlp = MLP_MIXTURE,
                                .rotary = { .theta = 500 },
                                .mixture = { .E = 5, .k = 3, .router = { .normalized = true, .scale = 1 },
                                             .balance_coefficient = 0.03 }) },
};
enum { MODELS = sizeof models / sizeof *models };

static const struct model_config *wanted(const char *path)
{
    const char *file = strrchr(path, '/') + 1;
    for (int i = 0; i < MODELS; i++)
        if (strlen(file) == strlen(models[i].name) + 5 && strncmp(file, models[i].name, strlen(models[i].name)) == 0)
            return &models[i].c;
    fail_msg("%s: no model of this name is known here", path);
    return NULL;
}

/* A window that no sequence exceeds is none: a Mixtral of 4.36 has one of 4096. */
static bool same_windows(const struct model_config *a, const struct model_config *b)
{
    for (int64_t l = 0; l < a->L; l++) {
        const int64_t x = model_window(a, l), y = model_window(b, l);
        if ((x < a->S ? x : 0) != (y < b->S ? y : 0)) return false;
    }
    return true;
}

static void expect_config(const char *path, const struct model_config *a, const struct model_config *b)
{
    const struct rotary *r = &a->rotary, *s = &b->rotary;
    const struct mixture_config *m = &a->mixture, *n = &b->mixture;
    const struct { const char *what; bool same;
    } part[] = {
        { "sizes", a->S == b->S && a->D == b->D && a->H == b->H && a->K == b->K && a->A == b->A && a->F == b->F
                       && a->L == b->L && a->V == b->V },
        { "family", a->family == b->family },
        { "windows", same_windows(a, b) },
        { "tied", a->tied == b->tied },
        { "norms", a->norms_at == b->norms_at && a->norms_from_one == b->norms_from_one
                       && a->norms_unbiased == b->norms_unbiased },
        { "biases", a->biases == b->biases },
        { "activation", a->activation == b->activation },
        { "branches", a->parallel == b->parallel && a->two_norms == b->two_norms },
        { "multipliers", memcmp(&a->multipliers, &b->multipliers, sizeof a->multipliers) == 0 },
        { "layers without positions", memcmp(&a->unturned, &b->unturned, sizeof a->unturned) == 0 },
        { "scores", a->score_width == b->score_width && a->score_cap == b->score_cap && a->logit_cap == b->logit_cap },
        { "epsilon, standard deviation", a->eps == b->eps && a->init_std == b->init_std },
        { "dropout", a->dropout_embedding == b->dropout_embedding && a->dropout_residual == b->dropout_residual
                         && a->dropout_attention == b->dropout_attention },
        { "rotary theta", r->theta == s->theta && a->local_theta == b->local_theta },
        { "rotary width", r->turned == s->turned },
        { "rotary scaling", r->scaling == s->scaling && r->factor == s->factor && r->low_frequency == s->low_frequency
                                && r->high_frequency == s->high_frequency
                                && r->original_positions == s->original_positions
                                && memcmp(r->shorter, s->shorter, sizeof r->shorter) == 0
                                && memcmp(r->longer, s->longer, sizeof r->longer) == 0 },
        { "latents", memcmp(&a->latent, &b->latent, sizeof a->latent) == 0 && a->mixture.shared == b->mixture.shared },
        { "dense layers", a->dense.F == b->dense.F && memcmp(&a->dense.at, &b->dense.at, sizeof a->dense.at) == 0 },
        { "mixture", m->E == n->E && m->k == n->k && router_same(&m->router, &n->router)
                         && m->balance_coefficient == n->balance_coefficient && m->z_coefficient == n->z_coefficient },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (!part[i].same) fail_msg("%s: %s is not what transformers was told", path, part[i].what);
}

static void every_version_is_read_alike(void **state)
{
    (void)state;
    glob_t found;
    int seen[MODELS] = { 0 };
    const int status = glob("tests/ref/configs/*/*.json", 0, NULL, &found);
    if (status != 0 || found.gl_pathc < LEAST)
        fail_msg("%d files tests/ref/configs/*/*.json, at least %d wanted; tests run from the repository's root",
                 status ? 0 : (int)found.gl_pathc, LEAST);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        const struct model_config *want = wanted(path);
        struct model_config c, again;
        struct error err = { OK, "" };
        if (model_config_read(&c, path, &err) != OK) fail_msg("%s", err.text);
        expect_config(path, &c, want);
        if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&again, scratch("config.json"), &err) != OK) fail_msg("%s, written: %s", path, err.text);
        expect_config(path, &again, want);
        for (int k = 0; k < MODELS; k++) seen[k] += want == &models[k].c;
    }
    for (int k = 0; k < MODELS; k++)
        if (seen[k] < 2) fail_msg("%s: %d versions wrote it, at least 2 wanted", models[k].name, seen[k]);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_version_is_read_alike) };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
