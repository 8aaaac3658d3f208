/* proposal.h -- speculative decoding: whether a proposed token is taken, and which token stands there if it is not.
 *
 * A cheap proposer proposes the next tokens of an answer.  The model computes them all in one pass, as it computes a
 * prompt, and has for each its own distribution p.  Two rules decide, both without changing the answer's distribution:
 *
 *   same    the model's token is drawn with the number that it would be drawn with anyway.  A proposal is taken if it
 *           is that token, so the answer is the one without proposals, token by token.  The proposer draws from its q
 *           with the same number.  Chance of being taken: the overlap of a token's two parts of [0,1), over all tokens.
 *   ratio   proposal x is taken with the probability min(1, p(x)/q(x)); else the token is drawn from max(p - q, 0),
 *           scaled to 1.  The answer has the model's distribution, but with its seed other tokens than without
 *           proposals.  Chance of being taken: the sum of min(p, q) over all tokens.
 *
 * A proposer without a distribution is certain: q is 1 for its token.  Then both rules take it with the probability
 * p(x).  If each proposal is taken with the same probability a, a pass of g proposals gives (1 - a^(g+1)) / (1 - a)
 * tokens on average.
 *
 * Source  Y. Leviathan et al., "Fast inference from transformers via speculative decoding", arXiv:2211.17192; C. Chen
 *         et al., "Accelerating large language model decoding with speculative sampling", arXiv:2302.01318.
 *
 * The code is pure.  proposer.c, engine.c and judge.c call these functions.
 */
#ifndef ORRERY_PROPOSAL_H
#define ORRERY_PROPOSAL_H

#include <stdint.h>

enum proposal_rule { RULE_SAME, RULE_RATIO };
enum { NO_PROPOSAL = -1 };

/* A token that was proposed for one place of an answer. */
struct proposal {
    int32_t token;                      /* NO_PROPOSAL: none */
    const double *q;                    /* [V] what it was drawn from; NULL: the proposer is certain */
};

/* The numbers in [0,1) of one place of an answer: each is used once, whatever was proposed before it. */
struct place_numbers { double draw, take, propose; };

/** Those of a request's seed and the place in its answer, from 0. */
struct place_numbers place_numbers_of(uint64_t seed, int64_t place);

/** The token of a place.  The proposal was taken if the token is the proposal.
 *  @param p     [V] the model's probabilities.
 *  @param room  [V] scratch. */
int32_t proposal_settle(enum proposal_rule, const double *p, int64_t V, struct proposal,
                        const struct place_numbers *, double *room);

/** The probability that a proposal is taken.  q without a distribution: that this token is. */
double proposal_chance(enum proposal_rule, const double *p, int64_t V, struct proposal);

/** The number in [0,1) that the proposer draws its token with. */
double proposal_number(enum proposal_rule, const struct place_numbers *);

/** Tokens of a pass with so many proposals on average, if each is taken with this probability. */
double proposal_tokens(double chance, int64_t proposals);

#endif
