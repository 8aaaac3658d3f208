#include "emulated_devices/schemes/attention/attention.h"

struct intervals context_tokens_of(const struct context_parallel *cp, int member)
{
    struct intervals tokens = { 0 };
    if (cp->plan) context_plan_tokens(&tokens, cp->plan, member);
    else cp->scheme->cut(&tokens, cp, member);
    return tokens;
}

struct intervals context_tokens(const struct context_parallel *cp) { return context_tokens_of(cp, cp->rank); }
