#include "ref/model/config.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GPT2(name_, L_, H_, D_, F_, S_, V_)                                                                     \
    { .name = name_, .S = S_, .D = D_, .H = H_, .A = D_ / H_, .F = F_, .L = L_, .V = V_, .tied = true,          \
      .eps = 1e-5, .init_std = 0.02 }

const struct model_preset model_presets[] = {
    { GPT2("small", 4, 4, 128, 512, 64, 256), "0.8M parameters; learns to write words in a minute on two cores", 16 },
    { GPT2("tiny", 8, 8, 32, 128, 32, 256), "0.1M parameters; 8 layers and 8 heads, so that it fits every mesh of 8", 8 },
    { GPT2("11m", 6, 6, 384, 1536, 256, 256), "11M parameters; what `orrery bench step` times", 4 },
    { GPT2("gpt2", 12, 12, 768, 3072, 1024, 50257), "the 124M parameters of GPT-2", 4 },
    { { .name = "" }, NULL, 0 },
};

enum error_code model_config_preset(struct model_config *c, int64_t *batch, const char *name, struct error *err)
{
    const char *names[sizeof model_presets / sizeof *model_presets];
    size_t n = 0;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        if (strcmp(p->config.name, name) == 0) {
            *c = p->config;
            *batch = p->batch;
            return OK;
        }
        names[n++] = p->config.name;
    }
    if (strchr(name, '/')) return fail(err, ERR_USAGE, "--model %s: there is no such folder", shown_path(name).text);
    return fail_unknown_name(err, "--model", name, names, n);
}

enum error_code model_config_check(const struct model_config *c, struct error *err)
{
    const struct { const char *letter; int64_t value; } positive[] = {
        { "S (positions)", c->S }, { "D (width)", c->D }, { "H (heads)", c->H }, { "F (feed-forward)", c->F },
        { "L (layers)", c->L }, { "V (vocabulary)", c->V },
    };
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value < 1 || positive[i].value > INT32_MAX)
            return fail(err, ERR_PLAN, "model: %s = %lld; it must be from 1 to 2^31 - 1", positive[i].letter,
                        (long long)positive[i].value);
    if (c->L > 100000) return fail(err, ERR_PLAN, "model: L (layers) = %lld; it can be at most 100000", (long long)c->L);
    const double size = (double)c->D * (double)(c->V + c->S) + (double)c->L * (double)c->D * (4.0 * (double)c->D + 2.0 * (double)c->F);
    if (size > 1e14) return fail(err, ERR_PLAN, "model: it would have %.3g parameters; at most 1e14 can be counted", size);
    if (c->H * c->A != c->D)
        return fail(err, ERR_PLAN, "model: width D=%lld is not a multiple of H=%lld heads", (long long)c->D, (long long)c->H);
    const double p[] = { c->dropout_embedding, c->dropout_residual, c->dropout_attention };
    for (int i = 0; i < 3; i++)
        if (!(p[i] >= 0 && p[i] < 1)) return fail(err, ERR_PLAN, "model: dropout %g; it must be at least 0 and below 1", p[i]);
    if (!(c->eps > 0)) return fail(err, ERR_PLAN, "model: layernorm epsilon %g; it must be above 0", c->eps);
    if (!(c->init_std >= 0))
        return fail(err, ERR_PLAN, "model: standard deviation of initial weights %g; it must be at least 0", c->init_std);
    return OK;
}

/* ---- parameters ---------------------------------------------------------------------------------------------- */

int model_param_count(const struct model_config *c) { return param_final_norm(c) + 2 + !c->tied; }

static struct param_spec make(const char *name, enum param_role role, int layer, int64_t rows, int64_t cols, double std)
{
    struct param_spec s = { .role = role, .layer = layer, .ndim = cols ? 2 : 1, .dim = { rows, cols }, .std = std,
                            .decay = cols != 0 };
    snprintf(s.name, sizeof s.name, "%s", name);
    return s;
}

static struct param_spec block_param(const struct model_config *c, int layer, enum block_param p)
{
    const double std = c->init_std, into_residual = c->init_std / sqrt(2.0 * (double)c->L);
    const int64_t D = c->D, F = c->F;
    static const char *const name[BLOCK_PARAMS] = {
        "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
        "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
    };
    const struct { enum param_role role; int64_t rows, cols; double std; } shape[BLOCK_PARAMS] = {
        [LN1_W] = { ROLE_NORM, D, 0, 0 },                     [LN1_B] = { ROLE_NORM, D, 0, 0 },
        [QKV_W] = { ROLE_QKV, 3 * D, D, std },                [QKV_B] = { ROLE_QKV, 3 * D, 0, 0 },
        [PROJ_W] = { ROLE_ATTENTION_OUT, D, D, into_residual }, [PROJ_B] = { ROLE_ATTENTION_OUT, D, 0, 0 },
        [LN2_W] = { ROLE_NORM, D, 0, 0 },                     [LN2_B] = { ROLE_NORM, D, 0, 0 },
        [UP_W] = { ROLE_UP, F, D, std },                      [UP_B] = { ROLE_UP, F, 0, 0 },
        [DOWN_W] = { ROLE_DOWN, D, F, into_residual },        [DOWN_B] = { ROLE_DOWN, D, 0, 0 },
    };
    char full[64];
    snprintf(full, sizeof full, "h.%d.%s", layer, name[p]);
    struct param_spec s = make(full, shape[p].role, layer, shape[p].rows, shape[p].cols, shape[p].std);
    s.mean = p == LN1_W || p == LN2_W;
    s.file_transposed = s.ndim == 2;
    return s;
}

struct param_spec model_param(const struct model_config *c, int i)
{
    const int final = param_final_norm(c);
    if (i == PARAM_WTE) return make("wte.weight", ROLE_TOKENS, -1, c->V, c->D, c->init_std);
    if (i == PARAM_WPE) return make("wpe.weight", ROLE_POSITIONS, -1, c->S, c->D, c->init_std);
    if (i < final) return block_param(c, (i - PARAM_BLOCKS) / BLOCK_PARAMS, (i - PARAM_BLOCKS) % BLOCK_PARAMS);
    if (i == final + 2) return make("lm_head.weight", ROLE_HEAD, (int)c->L, c->V, c->D, c->init_std);
    struct param_spec s = make(i == final ? "ln_f.weight" : "ln_f.bias", ROLE_NORM, (int)c->L, c->D, 0, 0);
    s.mean = i == final;
    return s;
}

int64_t model_elements(const struct model_config *c)
{
    int64_t n = 0;
    for (int i = 0; i < model_param_count(c); i++) {
        struct param_spec s = model_param(c, i);
        n += s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
    }
    return n;
}

double model_step_flops(const struct model_config *c, int64_t B, int64_t S)
{
    const int64_t N = B * S;
    const struct attention a = { .S = S, .H = c->H, .K = c->H, .A = c->A };
    double block = linear_cost(N, c->D, 3 * c->D, F32).flops + linear_cost(N, c->D, c->D, F32).flops
                   + linear_cost(N, c->D, c->F, F32).flops + linear_cost(N, c->F, c->D, F32).flops;
    double attention = attention_forward_cost(N, a, F32).flops + attention_backward_cost(N, a, F32).flops;
    return (double)c->L * (3 * block + attention) + 3 * linear_cost(N, c->D, c->V, F32).flops;
}
