/* attention.c -- the tokens of a member, by the scheme's cut or by the plan of a microbatch.  plan/context.c and
 * positions.c call these functions; they are local.  Without memory the list is lost, which the caller sees by
 * intervals_lost.  No function returns an error code. */
#include "emulated_devices/schemes/attention/attention.h"

/* A plan lists the tokens of all samples of a microbatch; a cut lists those of each sequence. */
struct intervals context_tokens_of(const struct context_parallel *cp, int member)
{
    struct intervals tokens = { 0 };
    if (cp->plan) context_plan_tokens(&tokens, cp->plan, member);
    else cp->scheme->cut(&tokens, cp, member);
    return tokens;
}

struct intervals context_tokens(const struct context_parallel *cp) { return context_tokens_of(cp, cp->rank); }
