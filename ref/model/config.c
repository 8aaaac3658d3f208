/* config.c -- has the presets of models, and checks the shape of a model.  run/words/take.c takes a preset;
 * plan/check.c and ref/model/transformer.c check a shape before use.  An unknown preset is ERR_USAGE, and a shape
 * that cannot be computed is ERR_PLAN.  The checks change nothing. */
#include "ref/model/config.h"
#include "ref/io/file_kind.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/model/adapters.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/sizes.h"
#include "ref/routers/router.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2(name_, L_, H_, D_, F_, S_, V_)                                                                     \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = H_, .A = D_ / H_, .F = F_, .L = L_, .V = V_,                \
      .family = &family_gpt2, .biases = BIASES_BLOCK, .tied = true, .eps = 1e-5, .init_std = 0.02 }

#define LLAMA(name_, L_, H_, K_, D_, F_, S_, V_, ...)                                                           \
    WIDE_HEADS(name_, L_, H_, K_, D_ / H_, D_, F_, S_, V_, __VA_ARGS__)

#define WIDE_HEADS(name_, L_, H_, K_, A_, D_, F_, S_, V_, ...)                                                  \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = K_, .A = A_, .F = F_, .L = L_, .V = V_,                    \
      .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 },                            \
      .eps = 1e-5, .init_std = 0.02, __VA_ARGS__ }

/* With layernorms and a feed-forward without a gate beside a Llama's attention. */
#define LAYERNORMS(name_, L_, H_, K_, D_, F_, S_, V_, of_, ...)                                                 \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = K_, .A = D_ / H_, .F = F_, .L = L_, .V = V_,               \
      .family = &family_##of_, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 },                     \
      .eps = 1e-5, .init_std = 0.02, __VA_ARGS__ }

/* A released Llama or Mixtral: theta of its rotary positions. */
#define RELEASED(name_, L_, H_, K_, D_, F_, S_, V_, theta_, ...)                                                \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = K_, .A = D_ / H_, .F = F_, .L = L_, .V = V_,               \
      .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = theta_ },                           \
      .eps = 1e-5, .init_std = 0.02, __VA_ARGS__ }

/* DeepSeek-V3's router: sigmoids, and a bias that moves by its training's 0.001 each step. */
#define DEEPSEEK_V3_ROUTER(groups_, kept_)                                                                      \
    { .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5, .biased = true, .groups = groups_,            \
      .kept = kept_, .sums_two = true, .bias_update = BIAS_BY_SIGN, .bias_speed = 0.001 }

#define GPTJ(name_, L_, H_, D_, R_, F_, S_, V_)                                                                 \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = H_, .A = D_ / H_, .F = F_, .L = L_, .V = V_,               \
      .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000, .turned = R_, .neighbours = true },            \
      .parallel = true, .family = &family_gptj, .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD),                       \
      .eps = 1e-5, .init_std = 0.02 }

/* A GPT-OSS: windows of w_ tokens in layers 0, 2, .., L-2; YaRN by 32 from s_ tokens on. */
#define EVEN_LAYERS(L_) { 0x5555555555555555 >> (64 - L_) }
#define GPT_OSS(name_, L_, H_, K_, A_, D_, F_, S_, V_, E_, k_, w_, s_)                                          \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = K_, .A = A_, .F = F_, .L = L_, .V = V_,                    \
      .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .sinks = true, .eps = 1e-5,          \
      .family = &family_gpt_oss, .biases = BIASES_BLOCK | HAS_BIAS(ROLE_ROUTER), .init_std = 0.02,           \
      .rotary = { .theta = 150000, .scaling = SCALING_YARN, .factor = 32, .low_frequency = 1,                   \
                  .high_frequency = 32, .original_positions = s_, .enlarged = 1.3465735902799727,               \
                  .between_pairs = true },                                                                      \
      .windows = { w_, EVEN_LAYERS(L_) },                                                                       \
      .mixture = { E_, k_, .router = { .normalized = true, .scale = 1 }, .clamped = { 1.702, 7 } } }

/* With LongRoPE from s_ tokens on, which enlarges cosines and sines. */
#define PHI3(name_, L_, H_, K_, D_, F_, S_, V_, s_, enlarged_)                                                  \
    { .name = name_, .S = S_, .D = D_, .H = H_, .K = K_, .A = D_ / H_, .F = F_, .L = L_, .V = V_,               \
      .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .family = &family_phi3, .eps = 1e-5,    \
      .rotary = { .theta = 10000, .scaling = SCALING_LONG, .original_positions = s_, .enlarged = enlarged_,     \
                  .shorter = { 1, 1 }, .longer = { 1.1, 3.2 } }, .init_std = 0.02 }

#define DENSE(of_) .family = &family_##of_, .mlp = MLP_SWIGLU
#define GEMMA(of_) .family = &family_##of_, .mlp = MLP_GEGLU, .norms_from_one = true, .scaled_embedding = true
#define MIXTURE(of_, E_, k_) .family = &family_##of_, .mlp = MLP_MIXTURE, \
                                 .mixture = { E_, k_, .router = { .normalized = true, .scale = 1 }, \
                                              .balance_coefficient = 0.02 }

/* The last number of a row is B: the sequences of a training step, unless --batch says otherwise. */
const struct model_preset model_presets[] = {
    { GPT2("small", 8, 8, 96, 384, 64, 256), "0.9M parameters; learns to write words in a minute on two cores", 16 },
    { GPT2("tiny", 8, 8, 32, 128, 32, 256), "0.1M parameters; 8 layers and 8 heads, so that it fits every mesh of 8",
      8 },
    { GPT2("11m", 6, 6, 384, 1536, 256, 256), "11M parameters; what `orrery bench step` times", 4 },
    { GPT2("43m", 24, 6, 384, 1536, 256, 256), "43M parameters, the layers of 11m four times", 4 },
    { GPT2("gpt2", 12, 12, 768, 3072, 1024, 50257), "the 124M parameters of GPT-2", 4 },
    { LLAMA("llama-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(llama)),
      "a Llama of 0.1M parameters, 8 layers, 8 heads and 4 key/value heads", 8 },
    { LLAMA("llama-small", 4, 4, 2, 128, 344, 64, 256, DENSE(llama)),
      "a Llama of 0.8M parameters, 4 heads and 2 key/value heads", 16 },
    { LLAMA("mistral-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(mistral),
            .windows = { .size = 12, .layers = { 0xFF } }),
      "llama-tiny as a Mistral: in all layers a token sees the last 12 tokens", 8 },
    { WIDE_HEADS("olmo2-tiny", 8, 8, 4, 4, 32, 88, 32, 256, DENSE(olmo2), .head_norms = true, .normed_together = true,
                 .norms_at = NORMS_AFTER),
      "an OLMo 2 of 0.1M parameters: llama-tiny with norms after its branches, and of all queries and keys", 8 },
    { PHI3("phi3-tiny", 8, 8, 4, 32, 88, 32, 256, 16, 1.118033988749895),
      "llama-tiny as a Phi-3: LongRoPE from 16 tokens to 32", 8 },
    { LLAMA("mixtral-tiny", 8, 8, 4, 32, 48, 32, 256, MIXTURE(mixtral, 8, 2)),
      "a Mixtral of 0.3M parameters, 8 experts of which a token goes to 2", 8 },
    { LLAMA("mixtral-small", 4, 4, 2, 128, 176, 64, 256, MIXTURE(mixtral, 8, 2)),
      "a Mixtral of 2.5M parameters, 8 experts of which a token goes to 2", 16 },
    { LLAMA("qwen2-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(qwen2), .biases = HAS_BIAS(ROLE_QKV)),
      "a Qwen2 of 0.1M parameters: llama-tiny with biases of queries, keys and values", 8 },
    { LLAMA("parscale-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(parscale), .biases = HAS_BIAS(ROLE_QKV),
            .streams = { .P = 4, .prefix = 8, .smoothing = 0.01 }),
      "qwen2-tiny as a ParScale: 4 parallel streams, each with a prefix of 8 tokens in every layer", 8 },
    { LLAMA("scmoe-tiny", 4, 8, 4, 32, 48, 32, 256, MIXTURE(scmoe, 8, 2), .shortcut = true),
      "a mixture on a shortcut past dense blocks, as LongCat-Flash's, of 0.2M parameters: 8 experts, 2 of a token", 8 },
    { WIDE_HEADS("qwen3-tiny", 8, 8, 4, 6, 32, 88, 32, 256, DENSE(qwen3), .head_norms = true, .tied = true),
      "a Qwen3 of 0.1M parameters: llama-tiny with norms of queries and keys, and heads that are wider than D/H", 8 },
    { WIDE_HEADS("qwen3-moe-tiny", 8, 8, 4, 6, 32, 24, 32, 256,
                 MIXTURE(qwen3_moe, 8, 2), .head_norms = true, .dense = { 88, { { 1 } } }),
      "a Qwen3-MoE of 0.2M parameters: qwen3-tiny whose layers but the first have 8 experts, 2 of a token", 8 },
    { WIDE_HEADS("gemma-tiny", 8, 8, 4, 6, 32, 88, 32, 256, GEMMA(gemma), .tied = true),
      "a Gemma of 0.1M parameters: scaled embeddings, norms from one, geglu, and heads that are wider than D/H", 8 },
    { { .name = "deepseek-v2-tiny", .family = &family_deepseek_v2,
        .S = 32, .D = 32, .H = 8, .K = 8, .A = 8, .F = 24, .L = 8, .V = 256,
        .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000, .turned = 4, .neighbours = true },
        .latent = { .q = 12, .kv = 8, .v = 6 }, .mlp = MLP_MIXTURE, .dense = { 88, { { 1 } } },
        .mixture = { .E = 8, .k = 2, .router = { .scale = 1, .groups = 4, .kept = 2 }, .shared = 48 },
        .eps = 1e-5, .init_std = 0.02 },
      "a DeepSeek-V2 of 0.2M parameters: latent attention, 8 experts in 4 groups, 2 shared ones, the first layer dense",
      8 },
    { { .name = "deepseek-v3-tiny", .S = 32, .D = 32, .H = 8, .K = 8, .A = 8, .F = 24, .L = 8, .V = 256,
        .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000, .turned = 4, .neighbours = true },
        .latent = { .q = 12, .kv = 8, .v = 6 }, .mlp = MLP_MIXTURE, .dense = { 88, { { 1 } } },
        .family = &family_deepseek_v3,
        .mixture = { .E = 8, .k = 2, .router = DEEPSEEK_V3_ROUTER(4, 2), .shared = 24 },
        .eps = 1e-6, .init_std = 0.02 },
      "a DeepSeek-V3 of 0.2M parameters: deepseek-v2-tiny with sigmoids and a correction bias, 1 shared expert", 8 },
    { GPT_OSS("gpt-oss-tiny", 8, 8, 4, 6, 32, 24, 32, 256, 8, 2, 8, 8),
      "a GPT-OSS of 0.2M parameters: sinks, windows of 8 tokens in every second layer, 8 experts, 2 of a token", 8 },
    { WIDE_HEADS("gemma2-tiny", 8, 8, 4, 6, 32, 88, 32, 256, GEMMA(gemma2), .tied = true, .norms_at = NORMS_AROUND,
                 .score_width = 4, .score_cap = 50, .logit_cap = 30,
                 .windows = { .size = 12, .layers = { 0x55 } }),
      "gemma-tiny as a Gemma 2: norms around its branches, capped scores and logits, windows in every other layer",
      8 },
    { WIDE_HEADS("gemma3-tiny", 8, 8, 4, 6, 32, 88, 32, 256, GEMMA(gemma3), .tied = true, .norms_at = NORMS_AROUND,
                 .head_norms = true, .score_width = 4, .local_theta = 100,
                 .windows = { .size = 12, .layers = { 0xDF } }),
      "gemma-tiny as a Gemma 3: gemma2-tiny's norms, and of queries and keys; two thetas, full attention in layer 5",
      8 },
    { WIDE_HEADS("olmo3-tiny", 8, 8, 4, 4, 32, 88, 32, 256, DENSE(olmo3), .head_norms = true, .normed_together = true,
                 .norms_at = NORMS_AFTER, .local_theta = 10000, .windows = { .size = 12, .layers = { 0x77 } }),
      "olmo2-tiny as an OLMo 3: in all layers but two a token sees the last 12 tokens", 8 },
    { WIDE_HEADS("olmoe-tiny", 8, 8, 4, 4, 32, 24, 32, 256, MIXTURE(olmoe, 8, 2), .head_norms = true,
                 .normed_together = true),
      "an OLMoE of 0.2M parameters: norms of all queries and keys, 8 experts, 2 of a token", 8 },
    { LLAMA("qwen2-moe-tiny", 8, 8, 4, 32, 24, 32, 256, .family = &family_qwen2_moe, .biases = HAS_BIAS(ROLE_QKV),
            .mlp = MLP_MIXTURE, .mixture = { 8, 2, .router = { .scale = 1 }, .balance_coefficient = 0.02, .shared = 48,
                                             .shared_gate = true }),
      "a Qwen2-MoE of 0.2M parameters: qwen2-tiny with 8 experts, 2 of a token, and a shared one with a gate", 8 },
    { WIDE_HEADS("glm4-moe-tiny", 8, 8, 4, 8, 32, 24, 32, 256, .family = &family_glm4_moe, .head_norms = true,
                 .mlp = MLP_MIXTURE, .mixture = { 8, 2, .router = DEEPSEEK_V3_ROUTER(4, 2), .shared = 24 },
                 .rotary.turned = 4, .dense = { 88, { { 1 } } }),
      "a GLM-4.5 of 0.2M parameters: half of a head turned, a router as deepseek-v3-tiny's, the first layer dense", 8 },
    { GPTJ("gptj-tiny", 8, 8, 32, 2, 128, 32, 256), "a GPT-J of 0.1M parameters, 8 layers and 8 heads", 8 },
    { LLAMA("granite-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(granite), .tied = true,
            .multipliers = { .embedding = 12, .residual = 0.22, .scores = 0.25, .logit_divisor = 8 }),
      "llama-tiny as a Granite: factors of embeddings, scores, branches and logits", 8 },
    { LLAMA("smollm3-tiny", 8, 8, 4, 32, 88, 32, 256, DENSE(smollm3), .tied = true, .unturned = { { 0x88 } }),
      "llama-tiny as a SmolLM3: every fourth layer has no rotary positions", 8 },
    { LAYERNORMS("starcoder2-tiny", 8, 8, 4, 32, 128, 32, 256, starcoder2, .tied = true, .biases = BIASES_BLOCK,
                 .windows = { .size = 12, .layers = { 0xFF } }),
      "a StarCoder2 of 0.1M parameters: layernorms, a gelu, biases, windows of 12 tokens", 8 },
    { LAYERNORMS("nemotron-tiny", 8, 8, 4, 32, 128, 32, 256, nemotron, .norms_from_one = true, .rotary.turned = 2,
                 .activation = ACTIVATION_SQUARED_RELU),
      "a Nemotron of 0.1M parameters: layernorms from 1, half of a head turned, squared relus", 8 },
    { LAYERNORMS("gpt-neox-tiny", 8, 8, 8, 32, 128, 32, 256, gpt_neox, .parallel = true, .two_norms = true,
                 .biases = BIASES_BLOCK, .rotary.turned = 2, .activation = ACTIVATION_EXACT_GELU),
      "a GPT-NeoX of 0.1M parameters, as Pythia: parallel branches, each with a norm of its own", 8 },
    { { .name = "nanogpt-tiny", .S = 32, .D = 32, .H = 8, .K = 8, .A = 4, .F = 128, .L = 8, .V = 256,
        .family = &family_nanogpt, .activation = ACTIVATION_EXACT_GELU, .norms_unbiased = true, .tied = true,
        .eps = 1e-5, .init_std = 0.02 },
      "tiny as a nanoGPT: the exact gelu, and no biases", 8 },
    { GPT2("gpt3-175b", 96, 96, 12288, 49152, 2048, 50257),
      "GPT-3's 175B parameters, for `orrery plan` (arXiv:2005.14165, table 2.1)", 1536 },
    { GPT2("megatron-1.7b", 24, 24, 2304, 9216, 2048, 51200),
      "A GPT of 1.7B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 512 },
    { GPT2("megatron-3.6b", 30, 32, 3072, 12288, 2048, 51200),
      "A GPT of 3.6B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 512 },
    { GPT2("megatron-7.5b", 36, 32, 4096, 16384, 2048, 51200),
      "A GPT of 7.5B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 512 },
    { GPT2("megatron-18b", 40, 48, 6144, 24576, 2048, 51200),
      "A GPT of 18.4B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 1024 },
    { GPT2("megatron-39b", 48, 64, 8192, 32768, 2048, 51200),
      "A GPT of 39.1B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 1536 },
    { GPT2("megatron-76b", 60, 80, 10240, 40960, 2048, 51200),
      "A GPT of 76.1B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 1792 },
    { GPT2("megatron-145b", 80, 96, 12288, 49152, 2048, 51200),
      "A GPT of 145.6B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 2304 },
    { GPT2("megatron-310b", 96, 128, 16384, 65536, 2048, 51200),
      "A GPT of 310.1B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 2160 },
    { GPT2("megatron-530b", 105, 128, 20480, 81920, 2048, 51200),
      "A GPT of 529.6B parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 2520 },
    { GPT2("megatron-1t", 128, 160, 25600, 102400, 2048, 51200),
      "A GPT of 1.008T parameters, for `orrery plan` (arXiv:2104.04473, table 1)", 3072 },
    { RELEASED("llama3-8b", 32, 32, 8, 4096, 14336, 8192, 128256, 500000, DENSE(llama)),
      "Llama 3 8B, for `orrery plan` (arXiv:2407.21783, table 3)", 64 },
    { RELEASED("llama3-70b", 80, 64, 8, 8192, 28672, 8192, 128256, 500000, DENSE(llama)),
      "Llama 3 70B, for `orrery plan` (the same)", 128 },
    { RELEASED("llama3-405b", 126, 128, 8, 16384, 53248, 8192, 128256, 500000, DENSE(llama)),
      "Llama 3 405B, for `orrery plan` (the same)", 512 },
    { RELEASED("mixtral-8x7b", 32, 32, 8, 4096, 14336, 32768, 32000, 1e6, MIXTURE(mixtral, 8, 2)),
      "Mixtral 8x7B, for `orrery plan` (arXiv:2401.04088, table 1)", 64 },
    { RELEASED("mixtral-8x22b", 56, 48, 8, 6144, 16384, 65536, 32768, 1e6, MIXTURE(mixtral, 8, 2)),
      "Mixtral 8x22B, for `orrery plan` (its config.json)", 64 },
    { RELEASED("mixtral-8x22b-g8t8", 56, 48, 8, 6144, 2048, 65536, 32768, 1e6, MIXTURE(mixtral, 64, 8)),
      "Mixtral 8x22B with 8 times as many experts, of an eighth, for `orrery plan` (arXiv:2504.14960)", 64 },
    { RELEASED("llama3-8x70b", 80, 64, 8, 8192, 28672, 8192, 128256, 500000, MIXTURE(mixtral, 8, 2)),
      "Llama 3 70B with 8 experts, 2 of a token, for `orrery plan` (arXiv:2504.14960)", 64 },
    { RELEASED("qwen2-57b-a14b", 28, 28, 4, 3584, 2560, 131072, 151936, 1e6, .family = &family_mixtral,
               .mlp = MLP_MIXTURE,
               .mixture = { 64, 8, .router = { .scale = 1 }, .balance_coefficient = 0.001,
                            .shared = 20480, .shared_gate = true }),
      "Qwen2-57B-A14B, for `orrery plan` (its config.json, without the biases of queries, keys and values)", 64 },
    { GPT_OSS("gpt-oss-20b", 24, 64, 8, 64, 2880, 2880, 131072, 201088, 32, 4, 128, 4096),
      "gpt-oss-20b, for `orrery plan` (its config.json)", 64 },
    { GPT_OSS("gpt-oss-120b", 36, 64, 8, 64, 2880, 2880, 131072, 201088, 128, 4, 128, 4096),
      "gpt-oss-120b, for `orrery plan` (its config.json)", 64 },
    { { .name = "deepseek-v3", .S = 4096, .D = 7168, .H = 128, .K = 128, .A = 192, .F = 2048, .L = 61, .V = 129280,
        .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
        .rotary = { .theta = 10000, .turned = 64, .neighbours = true },
        .latent = { .q = 1536, .kv = 512, .v = 128 }, .mlp = MLP_MIXTURE, .dense = { 18432, { { 7 } } },
        .family = &family_deepseek_v3,
        .mixture = { .E = 256, .k = 8, .router = DEEPSEEK_V3_ROUTER(8, 4), .shared = 2048,
                     .sequence_coefficient = 0.0001 },
        .eps = 1e-6, .init_std = 0.006 },
      "DeepSeek-V3's 671B parameters as it was trained, for `orrery plan` (arXiv:2412.19437, section 4.2)", 512 },
    { { .name = "" }, NULL, 0 },
};

/* ---- a preset with other sizes ----------------------------------------------------------------------------------- */

/* A letter of docs/words.md, and where its number is. */
struct size_letter { char letter; int64_t *number; bool given; };

enum { SIZE_MOST = 1 << 24 };
_Static_assert(MODEL_SIZES == sizeof MODEL_SIZE_LETTERS - 1, "a size for each letter");

static void size_letters(struct size_letter letters[MODEL_SIZES], struct model_config *config)
{
    int64_t *const numbers[MODEL_SIZES] = { &config->L, &config->D, &config->H, &config->K, &config->A, &config->F,
                                             &config->V, &config->S, &config->mixture.E, &config->mixture.k };
    for (int i = 0; i < MODEL_SIZES; i++)
        letters[i] = (struct size_letter){ MODEL_SIZE_LETTERS[i], numbers[i], false };
}

static enum error_code size_refuse(const char *word, const char *why, struct error *err)
{
    return fail(err, ERR_USAGE, "--model %s: %s", printable(word).text, why);
}

/* Read LETTER=NUMBER at *text, and pass it.  Letters E and k are of mixtures alone. */
static enum error_code size_read(const char **text, struct size_letter letters[MODEL_SIZES], bool mixture,
                                 const char *word, struct error *err)
{
    static const char letter[] = MODEL_SIZE_LETTERS;
    const char *const at = **text ? strchr(letter, **text) : NULL;
    if (at == NULL || (*text)[1] != '=')
        return size_refuse(word, "after the preset must stand sizes such as :L=32,D=4096, of the letters "
                           MODEL_SIZE_LETTERS, err);
    struct size_letter *const l = &letters[at - letter];
    if (l->given) return size_refuse(word, "a letter stands there twice", err);
    if ((l->letter == 'E' || l->letter == 'k') && !mixture)
        return size_refuse(word, "E and k are of mixtures, and the preset has no experts", err);
    char *end;
    const long long number = strtoll(*text + 2, &end, 10);
    const bool digits = (*text)[2] >= '0' && (*text)[2] <= '9';
    if (!digits || number < 1 || number > SIZE_MOST || (*end != ',' && *end != '\0'))
        return size_refuse(word, "a size must be a whole number from 1 to 16777216", err);
    *l->number = number, l->given = true;
    *text = *end == ',' ? end + 1 : end;
    return *end == ',' && **text == '\0' ? size_refuse(word, "the last comma has no size behind it", err) : OK;
}

enum error_code model_config_resize(struct model_config *config, const char *sizes, const char *word,
                                    struct error *err)
{
    struct size_letter letters[MODEL_SIZES];
    const struct model_config before = *config;
    enum error_code e = *sizes ? OK : size_refuse(word, "the colon has no sizes behind it", err);
    size_letters(letters, config);
    while (!e && *sizes) e = size_read(&sizes, letters, config->mlp == MLP_MIXTURE, word, err);
    if (e) return e;
    /* Heads that the word does not give follow the preset's: one key head a query head, D / H numbers a head. */
    if (!letters[3].given && before.K == before.H) config->K = config->H;
    if (!letters[4].given && before.A * before.H == before.D) config->A = config->D / config->H;
    if (!letters[4].given && before.A * before.H == before.D && config->A * config->H != config->D)
        return size_refuse(word, "H does not divide D; A=N says how wide a head is", err);
    snprintf(config->name, sizeof config->name, "%.63s", word);
    return OK;
}

enum error_code model_config_preset(struct model_config *config, int64_t *batch, const char *name, struct error *err)
{
    const char *names[sizeof model_presets / sizeof *model_presets];
    size_t n = 0;
    const size_t length = strcspn(name, ":");           /* sizes follow a colon */
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        if (strncmp(p->config.name, name, length) == 0 && p->config.name[length] == '\0') {
            *config = p->config;
            *batch = p->batch;
            return name[length] ? model_config_resize(config, name + length + 1, name, err) : OK;
        }
        names[n++] = p->config.name;
    }
    if (strchr(name, '/'))
        fail(err, ERR_USAGE, "--model %s: there is no such folder", printable_path(name).text);
    else fail_unknown_name(err, "--model", name, names, n);
    return file_kind_refuse(ERR_USAGE, name, "the folder of a model", FILE_MODEL, err);
}

/* ---- the preset that is nearest to some sizes -------------------------------------------------------------------- */

enum { RELEASED_POSITIONS = 1024 };

/* The sizes of a preset, in the order of MODEL_SIZE_LETTERS. */
static void preset_sizes_of(const struct model_config *config, int64_t number[MODEL_SIZES])
{
    const bool mixture = config->mixture.E > 0;
    const int64_t all[MODEL_SIZES] = { config->L, config->D, config->H, config->K, config->A, config->F, config->V,
                                      config->S, mixture ? config->mixture.E : 0, mixture ? config->mixture.k : 0 };
    memcpy(number, all, sizeof all);
}

/* Presets of the kind are those that differ in sizes alone: no windows, no shared experts, no dense layers. */
static bool preset_is_plain(const struct model_config *config, const char *family)
{
    return strcmp(config->family->name, family) == 0
           && config->mixture.shared == 0 && config->dense.F == 0 && config->windows.size == 0;
}

static int preset_other_sizes(const struct model_config *config, const int64_t wanted[MODEL_SIZES])
{
    int64_t number[MODEL_SIZES];
    /* A preset for small meshes is taken only if its family has no other. */
    int others = config->S < RELEASED_POSITIONS ? MODEL_SIZES : 0;
    preset_sizes_of(config, number);
    for (int i = 0; i < MODEL_SIZES; i++) others += wanted[i] != 0 && wanted[i] != number[i];
    return others;
}

/* Whether --model gives a size by itself: key heads and the width of a head follow from the others
 * (model_config_resize). */
static bool preset_follows(const int64_t wanted[MODEL_SIZES], const int64_t preset[MODEL_SIZES], int at)
{
    enum { D = 1, H = 2, K = 3, A = 4 };
    if (at == K) return preset[K] == preset[H] && wanted[K] == wanted[H];
    return at == A && preset[A] * preset[H] == preset[D] && wanted[A] * wanted[H] == wanted[D];
}

/* The preset with the fewest other sizes.  If its layers differ in number or width it is another model, whose name
 * would mislead: then the first preset of the kind that is no small one. */
static const struct model_config *preset_nearest(const char *family, const int64_t wanted[MODEL_SIZES])
{
    const struct model_config *best = NULL, *first = NULL;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        const struct model_config *const c = &p->config;
        if (!preset_is_plain(c, family)) continue;
        if (best == NULL || preset_other_sizes(c, wanted) < preset_other_sizes(best, wanted)) best = c;
        if (first == NULL || (first->S < RELEASED_POSITIONS && c->S >= RELEASED_POSITIONS)) first = c;
    }
    return best && best->L == wanted[0] && best->D == wanted[1] ? best : first;
}

void model_preset_word(const char *family, const int64_t wanted[MODEL_SIZES], char *word, size_t size)
{
    const struct model_config *const best = preset_nearest(family, wanted);
    int64_t number[MODEL_SIZES];
    word[0] = '\0';
    if (best == NULL) return;
    preset_sizes_of(best, number);
    size_t used = (size_t)snprintf(word, size, "%s", best->name);
    bool any = false;
    for (int i = 0; i < MODEL_SIZES && used < size; i++) {
        if (wanted[i] == 0 || wanted[i] == number[i] || preset_follows(wanted, number, i)) continue;
        used += (size_t)snprintf(word + used, size - used, "%c%c=%lld", any ? ',' : ':', MODEL_SIZE_LETTERS[i],
                                 (long long)wanted[i]);
        any = true;
    }
}

int64_t model_preset_layers(const char *word)
{
    struct model_config config;
    int64_t batch;
    return model_config_preset(&config, &batch, word, NULL) == OK ? config.L : 0;
}

int64_t layer_set_count(const struct layer_set *layer_set, int64_t end)
{
    int64_t n = 0;
    for (int64_t word = 0; word < LAYER_SET_MOST / 64 && 64 * word < end; word++) {
        /* Only bits of layers before `end` count in the last word. */
        const uint64_t before = end - 64 * word < 64 ? ((uint64_t)1 << (end - 64 * word)) - 1 : ~(uint64_t)0;
        /* Each turn clears the lowest bit that is set. */
        for (uint64_t left = layer_set->bits[word] & before; left; left &= left - 1) n++;
    }
    return n;
}

static enum error_code check_sizes(const struct model_config *config, struct error *err)
{
    const struct { const char *letter; int64_t value; } positive[] = {
        { "S (positions)", config->S }, { "D (width)", config->D }, { "H (heads)", config->H },
            { "F (feed-forward)", config->F },
        { "L (layers)", config->L }, { "V (vocabulary)", config->V }, { "K (key/value heads)", config->K },
    };
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value < 1 || positive[i].value > INT32_MAX)
            return fail(err, ERR_PLAN, "model: %s = %lld; it must be from 1 to 2^31 - 1", positive[i].letter,
                        (long long)positive[i].value);
    if (config->L > 100000)
        return fail(err, ERR_PLAN, "model: L (layers) = %lld; it can be at most 100000", (long long)config->L);
    /* An estimate of the parameters, in double: products of 64-bit sizes could overflow. */
    const double feeds = config->mlp == MLP_GELU ? 2 : config->mlp == MLP_MIXTURE ? 3.0 * (double)config->mixture.E : 3;
    const double attention = 2.0 * (double)(config->H + config->K) * (double)config->A;
    const double size = (double)config->D * (double)(config->V + config->S) +
                        (double)config->L * (double)config->D
                            * (config->shortcut ? 2 * attention + (feeds + 6) * (double)config->F
                                                                   : attention + feeds * (double)config->F);
    if (size > 1e14)
        return fail(err, ERR_PLAN, "model: it would have %.3g parameters; at most 1e14 can be counted", size);
    if (heads_width(config) != config->D && !LATENT(config)
        && (config->positions == POSITIONS_LEARNED || config->rotary.neighbours))
        return fail(err, ERR_PLAN, "model: width D=%lld is not a multiple of H=%lld heads", (long long)config->D,
                    (long long)config->H);
    if (config->A < 1 || config->A > INT32_MAX)
        return fail(err, ERR_PLAN, "model: heads are A=%lld wide; it must be from 1 to 2^31 - 1", (long long)config->A);
    if (config->H % config->K != 0)
        return fail(err, ERR_PLAN, "model: H=%lld heads are not a multiple of K=%lld key/value heads",
                    (long long)config->H, (long long)config->K);
    return OK;
}

static enum error_code check_streams(const struct model_config *config, struct error *err)
{
    const struct streams_config *s = &config->streams;
    if (s->P < 0 || s->P > 1024)
        return fail(err, ERR_PLAN, "model: P (parallel streams) = %lld; it must be from 1 to 1024", (long long)s->P);
    if (STREAMS(config) == 1) return OK;
    if (s->prefix < 1 || s->prefix > 65536)
        return fail(err, ERR_PLAN, "model: %lld tokens in the prefix of a stream; it must be from 1 to 65536",
                    (long long)s->prefix);
    if (!(s->smoothing >= 0 && s->smoothing <= 1))
        return fail(err, ERR_PLAN, "model: smoothing %g of the streams' weights; it must be from 0 to 1", s->smoothing);
    if (config->dropout_embedding > 0 || config->dropout_residual > 0 || config->dropout_attention > 0)
        return fail(err, ERR_PLAN, "model: dropout with parallel streams is not implemented; it must be 0");
    return OK;
}

int64_t model_windowed_layers(const struct model_config *config)
{
    int64_t n = 0;
    for (int64_t l = 0; config->windows.size > 0 && l < config->L && l < WINDOW_LAYERS; l++)
        n += model_window(config, l) > 0;
    return n;
}

struct rotary model_rotary(const struct model_config *config, int64_t layer)
{
    return model_is_local(config, layer) ? model_local_rotary(config) : config->rotary;
}

struct rotary model_local_rotary(const struct model_config *config)
{
    return (struct rotary){ .theta = config->local_theta, .turned = config->rotary.turned,
                           .neighbours = config->rotary.neighbours };
}

static enum error_code check_scores(const struct model_config *config, struct error *err)
{
    const struct { const char *what; double value; } number[] = {
        { "rotary theta of layers with a window", config->local_theta },
        { "width of scores", config->score_width }, { "cap of scores", config->score_cap },
            { "cap of logits", config->logit_cap },
        { "multiplier of embeddings", config->multipliers.embedding },
        { "multiplier of branches", config->multipliers.residual },
        { "multiplier of scores", config->multipliers.scores },
            { "divisor of logits", config->multipliers.logit_divisor },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!(number[i].value >= 0 && isfinite(number[i].value)))
            return fail(err, ERR_PLAN, "model: %s %g; it must be finite, and not negative", number[i].what,
                        number[i].value);
    return OK;
}

/* Options of a block that only some blocks can have. */
static enum error_code check_blocks(const struct model_config *config, struct error *err)
{
    const struct { bool has, can; const char *what, *where; } option[] = {
        { config->activation != ACTIVATION_GELU, config->mlp == MLP_GELU,
         "an activation of a feed-forward without a gate",
          "its feed-forward has a gate" },
        { config->two_norms, config->parallel, "two norms of parallel branches", "its branches are not parallel" },
        { config->norms_unbiased, config->norm == NORM_LAYER, "layernorms without biases", "its norms are rmsnorms" },
        { config->multipliers.residual > 0, !config->parallel && !config->shortcut && config->norms_at == NORMS_BEFORE,
          "a multiplier of branches", "its blocks are not those of a Llama" },
        { config->multipliers.embedding > 0, !config->scaled_embedding, "a multiplier of embeddings",
          "they are multiplied by the root of D" },
        { config->multipliers.scores > 0, config->score_width == 0 && !LATENT(config), "a multiplier of scores",
          "they are divided by a root" },
    };
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (option[i].has && !option[i].can)
            return fail(err, ERR_PLAN, "model: it has %s, but %s", option[i].what, option[i].where);
    if (config->activation > ACTIVATION_SQUARED_RELU)
        return fail(err, ERR_PLAN, "model: activation %d; there are 0 to %d", (int)config->activation,
                    (int)ACTIVATION_SQUARED_RELU);
    return OK;
}

static enum error_code check_unturned(const struct model_config *config, struct error *err)
{
    const int64_t layers = layer_set_count(&config->unturned, LAYER_SET_MOST);
    if (layers == 0) return OK;
    if (config->positions != POSITIONS_ROTARY || LATENT(config))
        return fail(err, ERR_PLAN, "model: layers without rotary positions, but %s",
                    LATENT(config) ? "its attention is latent" : "no layer has them");
    if (config->L > LAYER_SET_MOST)
        return fail(err, ERR_PLAN, "model: L=%lld layers, some without rotary positions; there can be at most %d then",
                    (long long)config->L, LAYER_SET_MOST);
    if (layers != layer_set_count(&config->unturned, config->L))
        return fail(err, ERR_PLAN, "model: layers without rotary positions that are not among its L=%lld layers",
                    (long long)config->L);
    return OK;
}

/* A number that tells apart sets of layers, of which each word has 64. */
static double which_layers(const uint64_t *words, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum = (sum ^ words[i]) * 0x9E3779B97F4A7C15u;
    return (double)(sum >> 32);
}

static enum error_code check_windows(const struct model_config *config, struct error *err)
{
    if (config->windows.size < 0 || config->windows.size > INT32_MAX)
        return fail(err, ERR_PLAN, "model: a window of %lld tokens; it must be from 1 to 2^31 - 1",
                    (long long)config->windows.size);
    if (config->windows.size > 0 && config->L > WINDOW_LAYERS)
        return fail(err, ERR_PLAN, "model: L (layers) = %lld, and attention has windows; it can have them in models of "
                    "at most %d layers", (long long)config->L, WINDOW_LAYERS);
    return OK;
}

/* A number that tells apart how LongRoPE stretches pairs. */
static double which_pairs(const struct rotary *rotary)
{
    uint64_t sum = 0, bits;
    for (int i = 0; i < 2 * ROTARY_PAIRS; i++) {
        memcpy(&bits, i < ROTARY_PAIRS ? &rotary->shorter[i] : &rotary->longer[i - ROTARY_PAIRS], sizeof bits);
        sum = (sum ^ bits) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 29;
    }
    return (double)(sum >> 32);
}

static enum error_code check_long(const struct model_config *config, struct error *err)
{
    const struct rotary *r = &config->rotary;
    const int64_t pairs = (r->turned ? r->turned : config->A) / 2;
    if (pairs > ROTARY_PAIRS)
        return fail(err, ERR_PLAN, "model: LongRoPE of %lld pairs of numbers of a head; there can be at most %d",
                    (long long)pairs, ROTARY_PAIRS);
    if (r->original_positions < 1 || !(r->enlarged > 0 && isfinite(r->enlarged)))
        return fail(err, ERR_PLAN, "model: rotary original positions %lld, attention_factor %g; both must be above 0",
                    (long long)r->original_positions, r->enlarged);
    for (int64_t i = 0; i < pairs; i++)
        if (!(r->shorter[i] > 0 && isfinite(r->shorter[i]) && r->longer[i] > 0 && isfinite(r->longer[i])))
            return fail(err, ERR_PLAN, "model: short_factor %g, long_factor %g of pair %lld; they must be above 0",
                        r->shorter[i], r->longer[i], (long long)i);
    return OK;
}

static bool scales_by_turns(const struct rotary *rotary)
{
    return rotary->scaling == SCALING_LLAMA3 || rotary->scaling == SCALING_YARN;
}

static enum error_code check_rotary(const struct model_config *config, struct error *err)
{
    const struct rotary *r = &config->rotary;
    if (config->positions != POSITIONS_ROTARY) return OK;
    if (r->turned == 0 && config->A % 2)
        return fail(err, ERR_PLAN, "model: heads are A=%lld wide; rotary positions need an even width",
                    (long long)config->A);
    if (r->turned < 0 || r->turned > config->A || r->turned % 2)
        return fail(err, ERR_PLAN,
                    "model: rotary positions turn %lld numbers of a head; it must be an even number, from 2 to A=%lld",
                    (long long)r->turned, (long long)config->A);
    if (!(r->theta > 0)) return fail(err, ERR_PLAN, "model: rotary theta %g; it must be above 0", r->theta);
    if (r->scaling == SCALING_LONG) return check_long(config, err);
    if (r->scaling != SCALING_NONE && !(r->factor >= 1))
        return fail(err, ERR_PLAN, "model: rotary scaling factor %g; it must be at least 1", r->factor);
    /* Equal ends of YaRN's ramp make it a step (yarn_ramp); Llama 3's zone would divide by 0. */
    const bool yarn = r->scaling == SCALING_YARN;
    if (scales_by_turns(r) && !(r->low_frequency > 0 && (yarn ? r->high_frequency >= r->low_frequency
                                                              : r->high_frequency > r->low_frequency)))
        return fail(err, ERR_PLAN, "model: rotary %s %g, %s %g; they must be above 0, and the second %s",
                    yarn ? "beta_slow" : "low_freq_factor", r->low_frequency, yarn ? "beta_fast" : "high_freq_factor",
                    r->high_frequency, yarn ? "not smaller" : "larger");
    if (yarn && !(r->enlarged > 0 && isfinite(r->enlarged) && r->theta > 1))
        return fail(err, ERR_PLAN,
                    "model: rotary attention_factor %g, theta %g; of YaRN the first must be above 0, the second "
                    "above 1",
                    r->enlarged, r->theta);
    if (scales_by_turns(r) && r->original_positions < 1)
        return fail(err, ERR_PLAN, "model: rotary original positions %lld; there must be at least 1",
                    (long long)r->original_positions);
    return OK;
}

int64_t mixture_capacity(const struct mixture_config *config, int64_t S)
{
    return (int64_t)ceil(config->capacity_factor * (double)(config->k * S) / (double)mixture_columns(config));
}

static enum error_code check_latent(const struct model_config *config, struct error *err)
{
    const struct latent_config *l = &config->latent;
    if (!LATENT(config)) return OK;
    if (l->kv > INT32_MAX || l->q < 0 || l->q > INT32_MAX)
        return fail(err, ERR_PLAN, "model: latents %lld and %lld wide; it must be from 1 to 2^31 - 1", (long long)l->q,
                    (long long)l->kv);
    if (config->K != config->H)
        return fail(err, ERR_PLAN, "model: K=%lld key/value heads of H=%lld; with latent attention each head has its "
                    "own", (long long)config->K, (long long)config->H);
    if (config->rotary.turned < 2 || config->rotary.turned >= config->A)
        return fail(err, ERR_PLAN, "model: of A=%lld numbers of a head %lld have positions; with latent attention some "
                    "have, and some not", (long long)config->A, (long long)config->rotary.turned);
    if (l->v < 1 || l->v > config->A)
        return fail(err, ERR_PLAN, "model: values are %lld wide; it must be from 1 to the A=%lld of queries and keys",
                    (long long)l->v, (long long)config->A);
    return OK;
}

static enum error_code check_dense(const struct model_config *config, struct error *err)
{
    const int64_t layers = layer_set_count(&config->dense.at, config->L);
    if (layers == 0 && config->dense.F == 0) return OK;
    if (config->mlp != MLP_MIXTURE || config->shortcut)
        return fail(err, ERR_PLAN, "model: dense layers beside those of a mixture, and it is not a mixture of such "
                    "layers");
    if (config->L > LAYER_SET_MOST)
        return fail(err, ERR_PLAN, "model: L=%lld layers, of which some are dense; there can be at most %d then",
                    (long long)config->L, LAYER_SET_MOST);
    if (layers == config->L)
        return fail(err, ERR_PLAN, "model: all L=%lld layers are dense; a mixture has at least one with experts",
                    (long long)config->L);
    if (layers != layer_set_count(&config->dense.at, LAYER_SET_MOST) || layers == 0)
        return fail(err, ERR_PLAN, "model: dense layers that are not among its L=%lld layers", (long long)config->L);
    if (config->dense.F < 1 || config->dense.F > INT32_MAX)
        return fail(err, ERR_PLAN, "model: dense layers %lld wide; it must be from 1 to 2^31 - 1",
                    (long long)config->dense.F);
    return OK;
}

static enum error_code check_shared(const struct model_config *config, struct error *err)
{
    const struct mixture_config *m = &config->mixture;
    if (m->shared < 0 || m->shared > INT32_MAX)
        return fail(err, ERR_PLAN, "model: shared experts %lld wide; it must be from 0 to 2^31 - 1",
                    (long long)m->shared);
    if (m->shared > 0 && config->shortcut)
        return fail(err, ERR_PLAN, "model: shared experts beside a mixture on a shortcut, which has dense "
                    "feed-forwards; Orrery has only one of these");
    if (m->shared_gate && m->shared == 0)
        return fail(err, ERR_PLAN, "model: a gate of shared experts, and there are none");
    return OK;
}

static enum error_code check_mixture(const struct model_config *config, struct error *err)
{
    const struct mixture_config *m = &config->mixture;
    if (config->mlp != MLP_MIXTURE) return OK;
    if (m->E < 1 || m->E > 65536)
        return fail(err, ERR_PLAN, "model: E (experts) = %lld; it must be from 1 to 65536", (long long)m->E);
    if (m->zero < 0 || m->zero > 65536)
        return fail(err, ERR_PLAN, "model: %lld experts without computation; there can be from 0 to 65536",
                    (long long)m->zero);
    if (m->k < 1 || m->k > mixture_columns(m))
        return fail(err, ERR_PLAN, "model: k (experts of a token) = %lld; it must be from 1 to E=%lld", (long long)m->k,
                    (long long)mixture_columns(m));
    if (config->L > 0 && mixture_columns(m) > 1000000 / config->L)
        return fail(err, ERR_PLAN,
                    "model: L=%lld layers of E=%lld experts; there can be at most 1000000 experts together",
                    (long long)config->L, (long long)mixture_columns(m));
    if (!(m->balance_coefficient >= 0) || !(m->z_coefficient >= 0) || !(m->sequence_coefficient >= 0))
        return fail(err, ERR_PLAN, "model: coefficients %g, %g and %g of the router's losses; they must be at least 0",
                    m->balance_coefficient, m->z_coefficient, m->sequence_coefficient);
    if (!(m->capacity_factor >= 0) || !isfinite(m->capacity_factor))
        return fail(err, ERR_PLAN, "model: capacity factor %g of experts; it must be at least 0", m->capacity_factor);
    const enum error_code e = check_shared(config, err);
    return e ? e : router_check(&m->router, m->E, m->zero, m->k, err);
}

int model_config_numbers(const struct model_config *config, struct model_number out[MODEL_NUMBERS])
{
    const struct rotary *r = &config->rotary;
    const struct router_rule *route = &config->mixture.router;
    const struct model_number numbers[] = {
        { "L", true, (double)config->L }, { "H", true, (double)config->H }, { "K", true, (double)config->K },
        { "D", true, (double)config->D }, { "A", true, (double)config->A },
        { "F", true, (double)config->F }, { "V", true, (double)config->V }, { "S", true, (double)config->S },
        { "shared experts' width", true, (double)config->mixture.shared },
        { "shared experts' gate", true, config->mixture.shared_gate },
        { "experts", true, (double)config->mixture.E }, { "experts of a token", true, (double)config->mixture.k },
        { "tied", true, config->tied }, { "rotary scaling", true, r->scaling },
        { "original positions", true, (double)r->original_positions }, { "eps", false, config->eps },
        { "rotary theta", false, r->theta }, { "rotary factor", false, r->factor },
        { "rotary low frequency", false, r->low_frequency }, { "rotary high frequency", false, r->high_frequency },
        { "rotary enlarged", false, r->enlarged }, { "rotary between pairs", true, r->between_pairs },
        { "router scores", true, route->scores }, { "router normalized", true, route->normalized },
        { "router scale", false, route->scale }, { "router biased", true, route->biased },
        { "router groups", true, (double)route->groups }, { "router groups kept", true, (double)route->kept },
        { "router groups by two", true, route->sums_two },
        { "router bias by share", true, route->bias_update == BIAS_BY_SHARE },
        { "router bias speed", false, route->bias_speed },
        { "capacity factor", false, config->mixture.capacity_factor },
        { "drops by weight", true, config->mixture.drops_by_weight },
        { "experts without computation", true, (double)config->mixture.zero },
        { "null experts", true, config->mixture.zero_is_null }, { "experts that compute", false, route->active },
        { "top-p", false, route->top_p }, { "near", false, route->near },
        { "streams", true, (double)STREAMS(config) }, { "prefix", true, (double)config->streams.prefix },
        { "stream smoothing", false, config->streams.smoothing },
        { "width of scores", false, config->score_width }, { "cap of scores", false, config->score_cap },
        { "cap of logits", false, config->logit_cap }, { "local theta", false, config->local_theta },
        { "window", true, (double)config->windows.size },
            { "layers with a window", true, (double)model_windowed_layers(config) },
        { "which layers", true, which_layers(config->windows.layers, WINDOW_LAYERS / 64) },
        { "which pairs", true, which_pairs(&config->rotary) },
        { "latent of queries", true, (double)config->latent.q },
            { "of keys and values", true, (double)config->latent.kv },
        { "value width", true, (double)config->latent.v }, { "mscale_all_dim", false, r->all_dim },
        { "dense layers", true, (double)layer_set_count(&config->dense.at, config->L) },
        { "dense layers' width", true, (double)config->dense.F },
        { "activation", true, config->activation }, { "two norms", true, config->two_norms },
        { "norms without biases", true, config->norms_unbiased },
        { "layers without rotary positions", true, which_layers(config->unturned.bits, LAYER_SET_MOST / 64) },
        { "multiplier of embeddings", false, config->multipliers.embedding },
        { "multiplier of branches", false, config->multipliers.residual },
        { "multiplier of scores", false, config->multipliers.scores },
        { "divisor of logits", false, config->multipliers.logit_divisor },
        { "sinks", true, config->sinks }, { "swiglu alpha", false, config->mixture.clamped.alpha },
        { "swiglu limit", false, config->mixture.clamped.limit },
        { "rotary turned", true, (double)r->turned },
    };
    enum { COUNT = sizeof numbers / sizeof *numbers };
    _Static_assert((int)COUNT <= (int)MODEL_NUMBERS, "room for all numbers of a shape");
    memcpy(out, numbers, sizeof numbers);
    return COUNT - (r->turned == 0);
}

enum error_code model_config_check_inputs(const struct model_config *config, const int32_t *ids, int64_t n,
                                          const char *where, struct error *err)
{
    for (int64_t i = 0; config->padding && i < n; i++)
        if (ids[i] == config->padding - 1)
            return fail(
                err, ERR_PLAN,
                "%s: token %lld is the model's pad_token_id, whose embedding transformers does not train where it is "
                "an input; set pad_token_id to null in config.json if it is an ordinary token",
                where, (long long)ids[i]);
    return OK;
}

enum error_code model_config_check(const struct model_config *config, struct error *err)
{
    enum error_code e = adapters_check(config, err);
    if (!e) e = check_mixture(config, err);
    if (!e) e = check_sizes(config, err);
    if (!e) e = check_dense(config, err);
    if (!e) e = check_latent(config, err);
    if (!e) e = check_rotary(config, err);
    if (!e) e = check_streams(config, err);
    if (!e) e = check_windows(config, err);
    if (!e) e = check_scores(config, err);
    if (!e) e = check_blocks(config, err);
    if (!e) e = check_unturned(config, err);
    if (!e) e = model_options_check(config, err);
    if (e) return e;
    const double p[] = { config->dropout_embedding, config->dropout_residual, config->dropout_attention };
    for (int i = 0; i < 3; i++)
        if (!(p[i] >= 0 && p[i] < 1))
            return fail(err, ERR_PLAN, "model: dropout %g; it must be at least 0 and below 1", p[i]);
    if (!(config->eps > 0))
        return fail(err, ERR_PLAN, "model: %s epsilon %g; it must be above 0",
                    config->norm == NORM_RMS ? "rmsnorm" : "layernorm", config->eps);
    if (!(config->init_std >= 0))
        return fail(err, ERR_PLAN, "model: standard deviation of initial weights %g; it must be at least 0",
                    config->init_std);
    return OK;
}
