/* proposal_claims.c -- claims of speculative decoding.  claims.c calls.  No errors. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/serve/proposal.h"
#include "ref/text/sampling.h"
#include <math.h>
#include <stdint.h>

enum { CLAIMED_TOKENS = 4, CLAIMED_MOST = 4, CLAIMED_PASSES = 20000 };

/* sum min(p, q) is 0.8. */
static const double claimed_p[CLAIMED_TOKENS] = { 0.5, 0.3, 0.15, 0.05 },
                    claimed_q[CLAIMED_TOKENS] = { 0.3, 0.5, 0.15, 0.05 };

/* Tokens of passes with 4 proposals each, drawn; *chi: Pearson's statistic of all tokens. */
static double drawn_tokens(double *chi)
{
    int64_t place = 0, count[CLAIMED_TOKENS] = { 0 };
    double room[CLAIMED_TOKENS];
    for (int pass = 0; pass < CLAIMED_PASSES; pass++) {
        bool goes_on = true;
        for (int i = 0; i <= CLAIMED_MOST && goes_on; i++, place++) {
            const struct place_numbers u = place_numbers_of(7, place);
            const struct proposal x = {
                i < CLAIMED_MOST ? sampling_draw(claimed_q, CLAIMED_TOKENS, u.propose) : NO_PROPOSAL, claimed_q };
            const int32_t token = proposal_settle(RULE_RATIO, claimed_p, CLAIMED_TOKENS, x, &u, room);
            count[token]++;
            goes_on = token == x.token;
        }
    }
    *chi = 0;
    for (int v = 0; v < CLAIMED_TOKENS; v++) {
        const double expected = claimed_p[v] * (double)place, off = (double)count[v] - expected;
        *chi += off * off / expected;
    }
    return (double)place / CLAIMED_PASSES;
}

/* The most that proposals gain, and how many, if a pass of the proposer takes `cost` of one of the model. */
static double best_gain(double chance, double cost, int *best)
{
    double most = 1;
    *best = 0;
    for (int g = 1; g <= 40; g++) {
        const double gain = proposal_tokens(chance, g) / (g * cost + 1);
        if (gain > most) most = gain, *best = g;
    }
    return most;
}

enum error_code proposal_claims(const struct serving_claims *claims, struct error *err)
{
    double chi;
    int eight, four, none;
    (void)err;
    const double ours = drawn_tokens(&chi), formula = proposal_tokens(0.8, CLAIMED_MOST);
    /* A pass gives 1 to 5 tokens: its deviation is below 2. */
    serving_claim(claims, "Speculative", "tokens a pass: 4 proposals, each taken with 0.8: (1 - a^5) / (1 - a)",
                  "3.362", fabs(ours - formula) < 4 * 2 / sqrt(CLAIMED_PASSES), "%.3f, drawn", ours);
    serving_claim(claims, "Speculative", "the model's distribution stays: chi-square, 3 degrees of freedom", "< 21.1",
                  chi < 21.1, "%.1f", chi);
    const double fast = best_gain(0.8, 0.05, &eight), slow = best_gain(0.8, 0.2, &four),
                 lost = best_gain(0.6, 0.7, &none);
    serving_claim(claims, "Speculative", "best number of proposals, gain: a .8, a draft of .05, of .2; a .6, of .7",
                  "8: 3.09, 4: 1.87, 0: 1", eight == 8 && four == 4 && none == 0, "%d: %.2f, %d: %.2f, %d: %.0f", eight,
                  fast, four, slow, none, lost);
    return OK;
}
