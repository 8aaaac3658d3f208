/* bias.c -- how a step moves the correction bias of a layer's experts, so that all get as many tokens.
 *
 * Source  by sign: L. Wang et al., "Auxiliary-loss-free load balancing", arXiv:2408.15664, algorithm 1, as in
 *         DeepSeek-V3; by share: Meituan, "LongCat-Flash", arXiv:2509.01322, section 2.1
 * Rule    c_e: choices of expert e in the whole batch; m: their mean
 *         by sign: bias_e += speed sign(m - c_e);  by share: bias_e += speed (1 / E - c_e / sum of c)
 */
#include "ref/routers/router.h"

void router_move_bias(const struct router_rule *r, double *bias, const double *choices, int64_t E)
{
    double total = 0;
    for (int64_t e = 0; e < E; e++) total += choices[e];
    for (int64_t e = 0; e < E && total > 0; e++) {
        const double behind = total / (double)E - choices[e];
        bias[e] += r->bias_speed * (r->bias_update == BIAS_BY_SHARE ? behind / total : (behind > 0) - (behind < 0));
    }
}
