/* copies.c -- what copies of the model have before they add up their gradients: no program shows it after that, so it
 * comes from whoever gives the tensors (struct single_source). */
#include "emulated_devices/check/mistakes/mistakes.h"
#include <stdio.h>

static double square_of(struct single *s, int copy)
{
    char kind[32];
    double sum = 0;
    const int used = s->used;
    snprintf(kind, sizeof kind, "copy/%d/grad/", copy);
    for (int i = 0; i < model_param_count(s->config) && single_going(s); i++) {
        const struct param_spec p = model_param(s->config, i);
        const struct tensor g = single_input(s, single_param_name(s, kind, i), p.ndim > 1 ? p.dim[0] : 1,
                                             p.dim[p.ndim - 1]);
        for (int64_t k = 0; single_going(s) && k < tensor_count(g); k++) sum += numbers(g)[k] * numbers(g)[k];
        single_release(s, used);
    }
    return sum;
}

struct suspect_copies suspect_copies(struct single *s)
{
    struct suspect_copies c = { .n = s->source.copies };
    const int used = s->used;
    if (c.n < 2 || c.n > SUSPECT_RANKS) return (struct suspect_copies){ 0 };
    s->now.lacks[0] = 0, s->unknown = false;
    for (int k = 0; k < c.n && single_going(s); k++) {
        char name[32];
        snprintf(name, sizeof name, "copy/%d/share", k);
        const struct tensor share = single_input(s, single_name("", name), 1, 1);
        if (single_going(s)) c.share[k] = numbers(share)[0], c.norm[k] = sqrt(square_of(s, k));
        single_release(s, used);
    }
    return single_going(s) ? c : (struct suspect_copies){ 0 };
}
