/* bias.c -- how a step moves the correction bias of a layer's experts, so that all get as many tokens.
 *
 * Source  by sign: L. Wang et al., "Auxiliary-loss-free load balancing", arXiv:2408.15664, algorithm 1, as in
 *         DeepSeek-V3; by share: Meituan, "LongCat-Flash", arXiv:2509.01322, section 2.1
 * Rule    c_e: choices of expert e in the whole batch, c: of all;  a: the wanted share of each expert that computes: 1
 *         of all columns, E and those without computation, or K_e / (k E), if a token is to have K_e of k such experts
 *         by sign: bias_e += speed sign(a c - c_e);  by share: bias_e += speed (a - c_e / c)
 *         The biases of experts without computation stay: the others decide how many choices are left to them
 * Called  model/mixture.c and ref/model/mixture.c call router_move_bias().  No function returns an error code.
 */
#include "ref/routers/router.h"

void router_move_bias(const struct router_rule *rule, double *bias, const double *choices, int64_t E, int64_t zero,
                      int64_t k)
{
    const double wanted = rule->active > 0 ? (double)(E * k) / rule->active : (double)(E + zero);
    double total = 0;
    for (int64_t e = 0; e < E + zero; e++) total += choices[e];
    /* An expert with fewer choices than its share gets a larger bias, which makes it chosen more often. */
    for (int64_t e = 0; e < E && total > 0; e++) {
        const double behind = total / wanted - choices[e];
        bias[e] += rule->bias_speed * (rule->bias_update == BIAS_BY_SHARE ? behind / total
                                       : (behind > 0) - (behind < 0));
    }
}
