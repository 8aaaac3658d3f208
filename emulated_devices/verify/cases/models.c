/* models.c -- the models of cases: small shapes of every architecture, in which nothing divides.
 *
 * space.c makes each model a value of the dimension `model`; tests call the functions by name.  No function returns
 * an error code.
 */
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include <stdio.h>

/* H for up to 9 parts; D = 27, F = 50, V = 61 are rarely divisible by the number of parts. */
static void take_gpt2(struct plan *plan)
{
    plan->model = (struct model_config){
        .name = "nasty", .S = 9, .D = 27, .H = 9, .K = 9, .A = 3, .F = 50, .L = plan->model.L, .V = CASE_VOCABULARY,
        .family = &family_gpt2, .biases = BIASES_BLOCK, .tied = plan->model.tied, .eps = 1e-5, .init_std = 0.2,
    };
}

/* H=9 and K=3 for up to 9 parts: key/value heads, or with 4 or more parts their copies, are distributed unevenly except
 * over 3, 6 and 9; F is prime. */
void case_take_llama(struct plan *plan)
{
    const int64_t L = plan->model.L;
    plan->model = (struct model_config){
        .name = "nasty llama", .family = &family_llama,
        .S = 9, .D = 18, .H = 9, .K = 3, .A = 2, .F = 37, .L = L, .V = CASE_VOCABULARY,
        .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
        .mlp = MLP_SWIGLU, .rotary = { .theta = 100 }, .tied = plan->model.tied, .eps = 1e-5, .init_std = 0.2,
    };
}

/* This is the Llama with biases of queries, keys and values. */
void case_take_qwen2(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty qwen2");
    plan->model.family = &family_qwen2, plan->model.biases = HAS_BIAS(ROLE_QKV);
}

/* This is the Llama with biases of all matrices of its blocks. */
void case_take_biased(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty biased llama");
    plan->model.biases = BIASES_BLOCK;
}

/* Norms of heads, which are wider than D/H. */
void case_take_qwen3(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty qwen3");
    plan->model.family = &family_qwen3, plan->model.head_norms = true, plan->model.A = 4;
}

/* Every other layer has a window, which is shorter than a device's part of a sequence, and longer. */
void case_take_windows(struct plan *plan)
{
    case_take_qwen2(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty windowed qwen2");
    plan->model.windows.size = 3;
    for (int64_t l = 0; l < plan->model.L; l += 2) windows_add(&plan->model.windows, l, l + 1);
}

/* Four of the six numbers of a head are turned, by LongRoPE, in sequences beyond its original length. */
void case_take_phi3(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty phi3");
    plan->model.family = &family_phi3, plan->model.A = 6;
    plan->model.rotary = (struct rotary){ .theta = 50, .scaling = SCALING_LONG, .original_positions = 5,
                                         .enlarged = 1.2,
                                       .shorter = { 1.1, 1.3 }, .longer = { 1.7, 3.1 }, .turned = 4 };
}

/* Heads are wider than D/H. */
void case_take_gemma(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty gemma");
    plan->model.family = &family_gemma, plan->model.mlp = MLP_GEGLU, plan->model.A = 4;
    plan->model.norms_from_one = plan->model.scaled_embedding = true;
}

/* Norms around each branch, caps that scores and logits reach, and windows in every other layer.  Steps are small: with
 * larger ones, rounding errors of such a deep model grow from step to step, beyond what fp64 may have. */
void case_take_gemma2(struct plan *plan)
{
    case_take_gemma(plan);
    plan->hyper.lr = 0.004;
    snprintf(plan->model.name, sizeof plan->model.name, "nasty gemma2");
    plan->model.family = &family_gemma2, plan->model.norms_at = NORMS_AROUND;
    plan->model.score_width = 3, plan->model.score_cap = 0.5, plan->model.logit_cap = 0.7;
    plan->model.windows.size = 3;
    for (int64_t l = 0; l < plan->model.L; l += 2) windows_add(&plan->model.windows, l, l + 1);
}

/* This is Gemma 2 with norms of queries and keys and without caps; layers with a window have a theta of their own. */
void case_take_gemma3(struct plan *plan)
{
    case_take_gemma2(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty gemma3");
    plan->model.family = &family_gemma3, plan->model.head_norms = true,
        plan->model.score_cap = plan->model.logit_cap = 0;
    plan->model.local_theta = 3;
}

/* Norms of all queries and of all keys, and of what the branches give; heads wider than D/H. */
void case_take_olmo2(struct plan *plan)
{
    case_take_qwen3(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty olmo2");
    plan->model.family = &family_olmo2, plan->model.normed_together = true, plan->model.norms_at = NORMS_AFTER;
}

/* Do the same with windows in every other layer, and YaRN in the others. */
static void take_olmo3(struct plan *plan)
{
    case_take_olmo2(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty olmo3");
    m->family = &family_olmo3, m->local_theta = m->rotary.theta, m->windows.size = 3;
    for (int64_t l = 0; l < m->L; l += 2) windows_add(&m->windows, l, l + 1);
    m->rotary.scaling = SCALING_YARN, m->rotary.factor = 4, m->rotary.original_positions = 5;
    m->rotary.low_frequency = 1, m->rotary.high_frequency = 8, m->rotary.enlarged = 1.1;
}

/* A Qwen2 with three parallel streams; a prefix is shorter than a sequence. */
void case_take_streams(struct plan *plan)
{
    case_take_qwen2(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty parscale");
    plan->model.family = &family_parscale;
    plan->model.streams = (struct streams_config){ .P = 3, .prefix = 4, .smoothing = 0.1 };
}

/* H=9 for up to 9 parts; four of a head's five numbers are rotated; F, V and D are rarely divisible. */
void case_take_gptj(struct plan *plan)
{
    const int64_t L = plan->model.L;
    plan->model = (struct model_config){
        .name = "nasty gptj", .S = 9, .D = 45, .H = 9, .K = 9, .A = 5, .F = 37, .L = L, .V = CASE_VOCABULARY,
        .positions = POSITIONS_ROTARY,
        .rotary = { .theta = 100, .turned = 4, .neighbours = true }, .parallel = true, .family = &family_gptj,
        .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD), .tied = plan->model.tied,
        .eps = 1e-5, .init_std = 0.2,
    };
}

/* Coefficients large enough that an error in these losses is detected. */
void case_take_mixtral(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty mixtral");
    plan->model.family = &family_mixtral, plan->model.F = 13, plan->model.mlp = MLP_MIXTURE;
    plan->model.mixture = (struct mixture_config){ .E = 5, .k = 2, .router = { .normalized = true, .scale = 1 },
                                                .balance_coefficient = 0.5, .z_coefficient = 0.1 };
}

/* Norms of heads; with three layers the second is dense, and with one none. */
void case_take_qwen3_moe(struct plan *plan)
{
    case_take_mixtral(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty qwen3-moe");
    plan->model.family = &family_qwen3_moe, plan->model.head_norms = true, plan->model.A = 4;
    plan->model.mixture.router.normalized = false;
    if (plan->model.L > 1) plan->model.dense.F = 19, layer_set_add(&plan->model.dense.at, 1);
}

/* Norms of all queries and of all keys, and experts in every layer. */
static void take_olmoe(struct plan *plan)
{
    case_take_mixtral(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty olmoe");
    plan->model.family = &family_olmoe, plan->model.head_norms = plan->model.normed_together = true;
    plan->model.mixture.router.normalized = false;
}

/* Biases of queries, keys and values, and a shared expert with a gate; with three layers the second is dense. */
static void take_qwen2_moe(struct plan *plan)
{
    case_take_mixtral(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty qwen2-moe");
    m->family = &family_qwen2_moe, m->biases = HAS_BIAS(ROLE_QKV);
    m->mixture.shared = 17, m->mixture.shared_gate = true, m->mixture.router.normalized = false;
    if (m->L > 1) m->dense.F = 19, layer_set_add(&m->dense.at, 1);
}

/* Sinks, windows in the first and third layer, biases; heads wider than D/H.  The clamp of the experts is out of reach:
 * rounding to 16 bits may take a number beside it to the other side, where it has no gradient. */
void case_take_gpt_oss(struct plan *plan)
{
    case_take_mixtral(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty gpt-oss");
    m->family = &family_gpt_oss, m->sinks = true, m->A = 4, m->mixture.clamped = (struct clamped){ 1.702, 7 };
    m->biases = BIASES_BLOCK | HAS_BIAS(ROLE_ROUTER);
    m->windows.size = 4;
    for (int64_t l = 0; l < m->L; l += 2) windows_add(&m->windows, l, l + 1);
}

/* Latent attention, experts in groups beside shared ones; with three layers the first is dense. */
void case_take_deepseek(struct plan *plan)
{
    case_take_mixtral(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty deepseek-v2");
    m->family = &family_deepseek_v2, m->K = m->H, m->A = 6, m->rotary.turned = 4, m->rotary.neighbours = true;
    m->latent = (struct latent_config){ .q = 7, .kv = 5, .v = 3 };
    m->mixture = (struct mixture_config){ .E = 6, .k = 2, .router = { .scale = 2.5, .groups = 3, .kept = 2 },
                                          .sequence_coefficient = 0.2, .shared = 22 };
    if (m->L > 1) m->dense.F = 19, layer_set_add(&m->dense.at, 0);
}

/* Sigmoids, and a bias that moves so fast that it changes choices in the second step; biases of latents, and rotary
 * pairs that are halves. */
void case_take_deepseek_v3(struct plan *plan)
{
    case_take_deepseek(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty deepseek-v3");
    m->family = &family_deepseek_v3, m->biases = BIASES_LATENT_ATTENTION, m->rotary.neighbours = false;
    m->mixture.router = (struct router_rule){ .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5,
                                              .biased = true, .groups = 3, .kept = 2, .sums_two = true,
                                              .bias_update = BIAS_BY_SIGN, .bias_speed = 0.05 };
}

/* A router as a DeepSeek-V3's beside shared experts, norms of heads of which four numbers are turned; with three layers
 * the first is dense. */
static void take_glm4_moe(struct plan *plan)
{
    case_take_mixtral(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty glm4-moe");
    m->family = &family_glm4_moe, m->A = 6, m->rotary.turned = 4, m->head_norms = true, m->biases = HAS_BIAS(ROLE_QKV);
    m->mixture = (struct mixture_config){ .E = 6, .k = 2, .shared = 26 };
    m->mixture.router = (struct router_rule){ .scores = SCORES_SIGMOID, .normalized = true, .scale = 1.5,
                                              .biased = true, .groups = 3, .kept = 2, .sums_two = true,
                                              .bias_update = BIAS_BY_SIGN, .bias_speed = 0.05 };
    if (m->L > 1) m->dense.F = 19, layer_set_add(&m->dense.at, 0);
}

/* A Mixtral with its mixture on a shortcut past dense blocks. */
void case_take_scmoe(struct plan *plan)
{
    case_take_mixtral(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty scmoe");
    plan->model.family = &family_scmoe, plan->model.shortcut = true;
}

/* Two of three groups of two experts are kept.  A larger scale would enlarge rounding from layer to layer.  Biases
 * move so fast that they change choices in the second step. */
void case_take_router(struct plan *plan, const struct router *router)
{
    struct mixture_config *m = &plan->model.mixture;
    if (plan->model.mlp != MLP_MIXTURE) return;
    m->E = 6;
    m->router = router_fit(router, m->E, m->k);
    if (m->router.scale > 2.5) m->router.scale = 2.5;
    if (m->router.biased) m->router.bias_speed = m->router.bias_update == BIAS_BY_SHARE ? 0.3 : 0.05;
    if (m->router.biased && m->router.groups <= 1) m->zero = 3, m->router.active = 1.4;
    if (m->router.top_p > 0) m->zero = 2, m->k = 3;
    m->zero_is_null = router->zero_is_null;
    m->sequence_coefficient = 0.2;
    /* Capacities below and above an even load: some routers drop choices, others do not. */
    m->capacity_factor = router->rule.scores == SCORES_SIGMOID ? 0.8 : router->rule.groups > 1 ? 1.1
        : m->zero > 0 ? 1.2 : 0;
    m->drops_by_weight = router->rule.biased;
}

/* Shared experts whose width no number of devices divides, and which is not that of an expert. */
static void take_shared(struct plan *plan)
{
    case_take_mixtral(plan);
    plan->model.mixture.shared = 17, plan->model.mixture.shared_gate = true;
}

/* Factors of the embedding, of scores, of branches and of logits. */
static void take_granite(struct plan *plan)
{
    case_take_llama(plan);
    snprintf(plan->model.name, sizeof plan->model.name, "nasty granite");
    plan->model.family = &family_granite;
    plan->model.multipliers = (struct multipliers){ .embedding = 3, .residual = 0.4, .scores = 0.7,
                                                    .logit_divisor = 1.7 };
}

/* The first and the last layer have no positions; every other layer has a window. */
static void take_smollm3(struct plan *plan)
{
    case_take_llama(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty smollm3");
    m->family = &family_smollm3, m->biases = BIASES_BLOCK, m->windows.size = 3;
    layer_set_add(&m->unturned, 0), layer_set_add(&m->unturned, m->L - 1);
    for (int64_t l = 1; l < m->L; l += 2) windows_add(&m->windows, l, l + 1);
}

/* Layernorms, biases of all matrices, a gelu, and windows in all layers. */
static void take_starcoder2(struct plan *plan)
{
    case_take_llama(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty starcoder2");
    m->family = &family_starcoder2, m->norm = NORM_LAYER, m->mlp = MLP_GELU, m->biases = BIASES_BLOCK;
    m->windows.size = 4, windows_add(&m->windows, 0, m->L);
}

/* Layernorms from 1, the squared relu, four of a head's six numbers turned. */
static void take_nemotron(struct plan *plan)
{
    case_take_llama(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty nemotron");
    m->family = &family_nemotron, m->norm = NORM_LAYER, m->norms_from_one = true;
    m->mlp = MLP_GELU, m->activation = ACTIVATION_SQUARED_RELU, m->A = 6, m->rotary.turned = 4;
}

/* Branches side by side, each of a norm of its own; four of a head's five numbers are turned. */
static void take_gpt_neox(struct plan *plan)
{
    case_take_gptj(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty gpt-neox");
    m->family = &family_gpt_neox, m->two_norms = true, m->biases = BIASES_BLOCK;
    m->activation = ACTIVATION_EXACT_GELU, m->rotary.neighbours = false;
}

/* A GPT-2 with the exact gelu and without biases. */
static void take_nanogpt(struct plan *plan)
{
    take_gpt2(plan);
    struct model_config *m = &plan->model;
    snprintf(m->name, sizeof m->name, "nasty nanogpt");
    m->family = &family_nanogpt, m->activation = ACTIVATION_EXACT_GELU;
    m->biases = BIASES_NONE, m->norms_unbiased = true;
}

static const struct case_model models[] = {
    { "gpt2", take_gpt2 },
    { "llama", case_take_llama },
    { "gptj", case_take_gptj },
    { "qwen2", case_take_qwen2 },
    { "parscale", case_take_streams },
    { "qwen3", case_take_qwen3 },
    { "biased", case_take_biased },
    { "windows", case_take_windows },
    { "phi3", case_take_phi3 },
    { "gemma", case_take_gemma },
    { "gemma2", case_take_gemma2 },
    { "gemma3", case_take_gemma3 },
    { "olmo2", case_take_olmo2 },
    { "mixtral", case_take_mixtral },
    { "qwen3-moe", case_take_qwen3_moe },
    { "deepseek", case_take_deepseek },
    { "gpt-oss", case_take_gpt_oss },
    { "deepseek-v3", case_take_deepseek_v3 },
    { "shared", take_shared },
    { "olmo3", take_olmo3 },
    { "olmoe", take_olmoe },
    { "qwen2-moe", take_qwen2_moe },
    { "glm4-moe", take_glm4_moe },
    { "granite", take_granite },
    { "smollm3", take_smollm3 },
    { "starcoder2", take_starcoder2 },
    { "nemotron", take_nemotron },
    { "gpt-neox", take_gpt_neox },
    { "nanogpt", take_nanogpt },
};

const struct case_model *case_model_at(int place)
{
    return place < (int)(sizeof models / sizeof *models) ? &models[place] : NULL;
}

void case_take_dropout(struct plan *plan)
{
    plan->model.tied = false;
    plan->model.dropout_embedding = 0.1, plan->model.dropout_residual = 0.2, plan->model.dropout_attention = 0.3;
}
