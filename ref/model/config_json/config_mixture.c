/* config_mixture.c -- what the config.json of every mixture says of its routers and experts.
 *
 * As in transformers, the load-balancing loss is added to a mixture's loss only if output_router_logits is true.
 * transformers has a z loss only for other mixtures; its coefficient has the same key here: router_z_loss_coef.
 * Other rules of a router have DeepSeek's keys: scoring_func, topk_method, n_group, topk_group, routed_scaling_factor,
 * aux_loss_alpha, n_shared_experts; experts without computation have LongCat's, zero_expert_num and zero_expert_type;
 * the width of shared experts has Qwen's, shared_expert_intermediate_size.  shared_expert_gate, router_bias_*,
 * router_active_experts, orrery_router and expert_* are our own: no released config.json has them, nor the type "null"
 * and the scores "near".  Uni-MoE's are mlp_dynamic_top_p, l_aux_weight and, for how near logits are,
 * router_jitter_noise.  config_decoder.c and families/deepseek_v2.c call these functions.  ERR_FORMAT names the key
 * and the values that exist.
 */
#include "ref/io/json.h"
#include "ref/model/config_json/config_json.h"
#include "ref/io/output.h"
#include "ref/routers/router.h"
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* How experts are chosen: by their scores, in groups, or in groups by biased scores. */
static const char *const methods[] = { "greedy", "group_limited_greedy", "noaux_tc" };
static const char *const zeros[] = { "identity", "null" };
static const char *const orders[] = { "position", "weight" };
static const char *const updates[] = { [BIAS_BY_SIGN] = "sign", [BIAS_BY_SHARE] = "share" };
static const char *const scores[] = { [SCORES_SOFTMAX] = "softmax", [SCORES_SIGMOID] = "sigmoid",
                                     [SCORES_NEAR] = "near" };

static enum error_code find_word(int *place, const char *const *words, int n, const char *word, const char *key,
                                 const char *path, struct error *err)
{
    for (*place = 0; word && *place < n; ++*place)
        if (strcmp(words[*place], word) == 0) return OK;
    if (word == NULL) return *place = 0, OK;
    return fail(err, ERR_FORMAT, "%s: %s is \"%.60s\"; Orrery has only %s and %s%s%s", path, key, printable(word).text,
                words[0], words[1], n > 2 ? " and " : "", n > 2 ? words[2] : "");
}

/* Check which tokens an expert's capacity counts. */
static enum error_code check_scope(const char *scope, const char *path, struct error *err)
{
    if (scope == NULL || strcmp(scope, "sequence") == 0) return OK;
    return fail(err, ERR_FORMAT, "%s: expert_capacity_scope is \"%.60s\"; Orrery has only sequence: a capacity of a "
                "device or a microbatch is another model in each layout, and one of the batch waits in each layer for "
                "all microbatches", path, printable(scope).text);
}

enum error_code mixture_finish(struct config_reading *reading, const char *path, struct error *err)
{
    struct router_rule *r = &reading->c.mixture.router;
    int score = 0, method = 0, update = 0, order = 0, zero = 0;
    enum error_code e = find_word(&score, scores, 3, reading->scoring_func, "scoring_func", path, err);
    if (!e) e = find_word(&method, methods, 3, reading->topk_method, "topk_method", path, err);
    if (!e) e = find_word(&update, updates, 2, reading->bias_update, "router_bias_update", path, err);
    if (!e) e = find_word(&order, orders, 2, reading->drop_order, "expert_drop_order", path, err);
    if (!e) e = check_scope(reading->drop_scope, path, err);
    if (!e) e = find_word(&zero, zeros, 2, reading->zero_type, "zero_expert_type", path, err);
    if (!e && r->near > 0 && score != SCORES_NEAR)
        return fail(err, ERR_FORMAT, "%s: router_jitter_noise is %g; Orrery has only 0 without scoring_func \"near\": "
                    "transformers multiplies what a router sees by random numbers then, while it trains", path,
                    r->near);
    reading->c.mixture.zero_is_null = reading->c.mixture.zero > 0 && zero == 1;
    if (reading->layers_balance > 0)
        reading->c.mixture.sequence_coefficient = reading->layers_balance / (double)reading->c.L;
    r->scores = score, r->bias_update = update, reading->c.mixture.drops_by_weight = order == 1;
    r->biased = method == 2;
    if (method == 0 || r->groups <= 1) r->groups = r->kept = 0;
    r->sums_two = r->biased && r->groups > 1;
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

bool router_to_json(const struct router_rule *rule, cJSON *root)
{
    const bool groups = rule->groups > 1;
    bool ok = cJSON_AddBoolToObject(root, "norm_topk_prob", rule->normalized) &&
              cJSON_AddStringToObject(root, "scoring_func", scores[rule->scores]) &&
              cJSON_AddStringToObject(root, "topk_method", methods[rule->biased ? 2 : groups]) &&
              json_add(root, "routed_scaling_factor %g", rule->scale);
    if (groups) ok = cJSON_AddNumberToObject(root, "n_group", (double)rule->groups) &&
                     cJSON_AddNumberToObject(root, "topk_group", (double)rule->kept) && ok;
    if (rule->biased) ok = cJSON_AddStringToObject(root, "router_bias_update", updates[rule->bias_update]) &&
                        cJSON_AddNumberToObject(root, "router_bias_speed", rule->bias_speed) && ok;
    if (rule->top_p > 0) ok = cJSON_AddNumberToObject(root, "mlp_dynamic_top_p", rule->top_p) && ok;
    if (rule->near > 0) ok = cJSON_AddNumberToObject(root, "router_jitter_noise", rule->near) && ok;
    if (rule->active > 0) ok = cJSON_AddNumberToObject(root, "router_active_experts", rule->active) && ok;
    return ok;
}

bool zero_experts_to_json(const struct mixture_config *config, cJSON *root)
{
    return config->zero == 0 || (cJSON_AddNumberToObject(root, "zero_expert_num", (double)config->zero) &&
                                 cJSON_AddStringToObject(root, "zero_expert_type", zeros[config->zero_is_null]));
}

bool mixture_to_json(const struct mixture_config *config, cJSON *root)
{
    const struct router_rule mixtral = { .scores = SCORES_SOFTMAX, .normalized = true, .scale = 1 };
    const struct { const char *key; double value; } number[] = {
        { "num_local_experts", (double)config->E }, { "num_experts_per_tok", (double)config->k },
    };
    bool ok = config_add_real(root, "router_aux_loss_coef", config->balance_coefficient);
    if (config->z_coefficient > 0) ok = config_add_real(root, "router_z_loss_coef", config->z_coefficient) && ok;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = (router_same(&config->router, &mixtral) || router_to_json(&config->router, root))
        && zero_experts_to_json(config, root) && ok;
    if (config->sequence_coefficient > 0)
        ok = cJSON_AddNumberToObject(root, "aux_loss_alpha", config->sequence_coefficient) &&
             cJSON_AddTrueToObject(root, "seq_aux") && ok;
    if (config->shared > 0)
        ok = cJSON_AddNumberToObject(root, "shared_expert_intermediate_size", (double)config->shared) &&
             cJSON_AddBoolToObject(root, "shared_expert_gate", config->shared_gate) && ok;
    if (config->capacity_factor > 0)
        ok = cJSON_AddNumberToObject(root, "expert_capacity_factor", config->capacity_factor) &&
             cJSON_AddStringToObject(root, "expert_drop_order", orders[config->drops_by_weight]) && ok;
    return cJSON_AddBoolToObject(root, "output_router_logits", config->balance_coefficient > 0) && ok;
}
