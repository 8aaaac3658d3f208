/* proposal.c -- takes a proposed token, or draws another.  proposer.c, engine.c and judge.c call.  No errors. */
#include "emulated_devices/serve/proposal.h"
#include "ref/numeric/philox.h"
#include "ref/text/sampling.h"
#include <math.h>

struct place_numbers place_numbers_of(uint64_t seed, int64_t place)
{
    const uint64_t i = (uint64_t)place;
    return (struct place_numbers){ .draw = random_uniform(seed, random_stream("sample"), i),
                                   .take = random_uniform(seed, random_stream("take a proposal"), i),
                                   .propose = random_uniform(seed, random_stream("propose"), i) };
}

/* Probabilities by which the model is above the proposer, scaled to 1.  @return false: there are none. */
static bool remainder_of(const double *p, int64_t V, struct proposal proposal, double *remainder)
{
    double sum = 0;
    for (int64_t v = 0; v < V; v++) {
        const double q = proposal.q ? proposal.q[v] : (double)(v == proposal.token);
        remainder[v] = p[v] > q ? p[v] - q : 0;
        sum += remainder[v];
    }
    for (int64_t v = 0; v < V && sum > 0; v++) remainder[v] /= sum;
    return sum > 0;
}

int32_t proposal_settle(enum proposal_rule rule, const double *p, int64_t V, struct proposal proposal,
                        const struct place_numbers *numbers, double *room)
{
    const int32_t x = proposal.token;
    if (rule == RULE_SAME || x == NO_PROPOSAL) return sampling_draw(p, V, numbers->draw);
    if (numbers->take * (proposal.q ? proposal.q[x] : 1) < p[x]) return x;
    /* Where p is q but for rounding, nothing remains. */
    return remainder_of(p, V, proposal, room) ? sampling_draw(room, V, numbers->draw) : x;
}

double proposal_chance(enum proposal_rule rule, const double *p, int64_t V, struct proposal proposal)
{
    double chance = 0, p_before = 0, q_before = 0;
    if (proposal.q == NULL) return p[proposal.token];
    for (int64_t v = 0; v < V; v++) {
        const double p_end = p_before + p[v], q_end = q_before + proposal.q[v];
        chance += rule == RULE_RATIO ? fmin(p[v], proposal.q[v])
                                     : fmax(0, fmin(p_end, q_end) - fmax(p_before, q_before));
        p_before = p_end, q_before = q_end;
    }
    return chance;
}

double proposal_number(enum proposal_rule rule, const struct place_numbers *numbers)
{
    return rule == RULE_SAME ? numbers->draw : numbers->propose;
}

double proposal_tokens(double chance, int64_t proposals)
{
    double tokens = 1, all = 1;
    for (int64_t i = 0; i < proposals; i++) tokens += all *= chance;
    return tokens;
}
