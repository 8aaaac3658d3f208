/* registry.c -- the list of routers, fitted to a mixture's experts, and the check of a rule.
 *
 * run/words/take_model.c, ref/model/config.c and verify/cases/ call this file.  Errors are ERR_USAGE for an unknown
 * name and ERR_PLAN for a rule that cannot be.
 */
#include "ref/routers/router.h"
#include "ref/io/options.h"
#include <math.h>
#include <string.h>

extern const struct router router_top_k_softmax, router_softmax, router_sigmoid, router_group_limited, router_noaux_tc,
    router_longcat, router_top_p;

const struct router *const routers[] = {
    &router_top_k_softmax,
    &router_softmax,
    &router_sigmoid,
    &router_group_limited,
    &router_noaux_tc,
    &router_longcat,
    &router_top_p,
    NULL,
};

enum error_code router_find(const struct router **router, const char *name, struct error *err)
{
    const char *names[sizeof routers / sizeof *routers];
    size_t n = 0;
    for (; routers[n]; n++) {
        if (strcmp(routers[n]->name, name) == 0) return *router = routers[n], OK;
        names[n] = routers[n]->name;
    }
    return fail_unknown_name(err, "--router", name, names, n);
}

struct router_rule router_fit(const struct router *router, int64_t E, int64_t k)
{
    struct router_rule rule = router->rule;
    if (rule.groups <= 1) return rule;
    /* There are as many groups as the rule has, or the next smaller divisor of E that leaves each two experts. */
    while (rule.groups > 1 && (E % rule.groups != 0 || E / rule.groups < 2)) rule.groups--;
    /* A token has the published share of groups, rounded up, or more, until k experts can be found in them. */
    rule.kept = (rule.groups * router->rule.kept + router->rule.groups - 1) / router->rule.groups;
    while (rule.kept < rule.groups && rule.kept * (E / rule.groups) < k) rule.kept++;
    return rule;
}

/* Two rules are equal if every number that ref/ops/route.c reads is. */
bool router_same(const struct router_rule *a, const struct router_rule *b)
{
    return a->scores == b->scores && a->normalized == b->normalized && a->scale == b->scale && a->biased == b->biased &&
           a->groups == b->groups && a->kept == b->kept && a->sums_two == b->sums_two &&
           a->bias_update == b->bias_update && a->bias_speed == b->bias_speed && a->active == b->active &&
           a->top_p == b->top_p && a->near == b->near;
}

/* Each refusal is a rule that route.c does not compute, or that config.json cannot say. */
enum error_code router_check(const struct router_rule *rule, int64_t E, int64_t zero, int64_t k, struct error *err)
{
    /* 0 and 1 groups both mean that there are none. */
    const int64_t groups = rule->groups > 1 ? rule->groups : 1;
    if (!(rule->scale > 0) || !isfinite(rule->scale))
        return fail(err, ERR_PLAN, "model: scale %g of the router's weights; it must be above 0", rule->scale);
    if (rule->groups < 0 || groups > ROUTER_MOST_GROUPS || E % groups != 0)
        return fail(err, ERR_PLAN, "model: %lld groups of E=%lld experts; their number must divide E, at most %d",
                    (long long)rule->groups, (long long)E, ROUTER_MOST_GROUPS);
    if (!(rule->bias_speed >= 0) || (rule->bias_speed > 0 && !rule->biased))
        return fail(err, ERR_PLAN, "model: speed %g of the router's bias; it must be at least 0, and 0 without a bias",
                    rule->bias_speed);
    if (!(rule->active >= 0 && rule->active <= (double)k) || (rule->active > 0 && (zero == 0 || !rule->biased)))
        return fail(err, ERR_PLAN, "model: %g experts of a token compute, on average; it must be at most k=%lld, and 0 "
                    "without a bias or without experts that do not", rule->active, (long long)k);
    if (groups > 1 && zero > 0)
        return fail(err, ERR_PLAN, "model: %lld experts without computation and %lld groups; they are in no group",
                    (long long)zero, (long long)groups);
    if (!(rule->top_p >= 0 && rule->top_p <= 1) || !(rule->near >= 0 && isfinite(rule->near)))
        return fail(err, ERR_PLAN, "model: top-p %g, near %g; p must be from 0 to 1, and near at least 0", rule->top_p,
                    rule->near);
    if ((rule->top_p > 0 || rule->scores == SCORES_NEAR) && (rule->biased || groups > 1))
        return fail(err, ERR_PLAN, "model: top-p, or scores of near experts, with a bias or groups: they are of "
                    "experts in the order of their logits");
    if (rule->near > 0 && rule->scores != SCORES_NEAR)
        return fail(err, ERR_PLAN, "model: near %g is for the scores of near experts", rule->near);
    if (rule->scores == SCORES_NEAR && !rule->normalized)
        return fail(err, ERR_PLAN, "model: scores of near experts are always divided by their sum");
    if (groups == 1) return OK;
    if (rule->kept < 1 || rule->kept > groups || rule->kept * (E / groups) < k)
        return fail(err, ERR_PLAN,
                    "model: %lld of %lld groups of %lld experts are kept, of which a token goes to k=%lld",
                    (long long)rule->kept, (long long)groups, (long long)(E / groups), (long long)k);
    if (rule->sums_two && E / groups < 2)
        return fail(err, ERR_PLAN, "model: %lld groups of one expert cannot be compared by their two best",
                    (long long)groups);
    if (rule->sums_two != rule->biased)
        return fail(err, ERR_PLAN, "model: groups are compared by their two best if and only if the router has a bias: "
                    "config.json has no name for other rules");
    return OK;
}
