#include "emulated_devices/schemes/attention/attention.h"

struct intervals context_tokens(const struct context_parallel *cp)
{
    struct intervals tokens = { 0 };
    cp->scheme->cut(&tokens, cp, cp->rank);
    return tokens;
}
