#include "emulated_devices/verify/routing.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum error_code routing_open(struct routing *r, const struct model_config *c, int64_t tokens, struct error *err)
{
    *r = (struct routing){ 0 };
    if (c->mlp != MLP_MIXTURE) return OK;
    const size_t choices = (size_t)(c->L * tokens * c->mixture.k);
    *r = (struct routing){ .L = c->L,
                           .E = c->mixture.E,
                           .k = c->mixture.k,
                           .experts = calloc(choices, sizeof *r->experts),
                           .theirs = calloc(choices, sizeof *r->theirs),
                           .bound = calloc((size_t)c->L, sizeof *r->bound),
                           .found = calloc((size_t)c->L, sizeof *r->found) };
    return r->experts && r->theirs && r->bound && r->found
               ? OK
               : fail(err, ERR_MEMORY, "no memory for %zu choices of experts", choices);
}

void routing_close(struct routing *r)
{
    free(r->experts), free(r->theirs), free(r->bound), free(r->found);
    *r = (struct routing){ 0 };
}

static size_t layer_bytes(const struct routing *r) { return (size_t)(r->N * r->k) * sizeof *r->experts; }
static int32_t *of_layer(const struct routing *r, int32_t *experts, int64_t l) { return experts + l * r->N * r->k; }

void routing_keep(struct routing *r, const struct transformer *truth)
{
    r->N = truth->B * truth->S;
    memset(r->found, 0, (size_t)r->L * sizeof *r->found);
    for (int64_t l = 0; l < r->L; l++)
        memcpy(of_layer(r, r->experts, l), truth->block[l].experts.data, layer_bytes(r));
}

void routing_measure(struct routing *r, const struct transformer *truth, const struct transformer *twin)
{
    for (int64_t l = 0; l < r->L; l++) {
        const struct tensor a = truth->block[l].router, b = twin->block[l].router;
        double far = 0, large = 0;
        for (int64_t i = 0; i < tensor_count(a); i++) {
            const double x = tensor_get(a, i), off = fabs(tensor_get(b, i) - x);
            if (exceeds(off, far)) far = off;
            if (exceeds(fabs(x), large)) large = fabs(x);
        }
        r->bound[l] = 2 * (far + 2 * dtype_unit(a.dtype) * large);
    }
}

bool routing_differs(const struct routing *r)
{
    return memcmp(r->experts, r->theirs, (size_t)r->L * layer_bytes(r)) != 0;
}

void routing_begin(struct routing *r)
{
    memcpy(r->experts, r->theirs, (size_t)r->L * layer_bytes(r));
    r->deciding = true;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

static bool is_among(const int32_t *chosen, int64_t count, int32_t e)
{
    for (int64_t i = 0; i < count; i++)
        if (chosen[i] == e) return true;
    return false;
}

/* The expert with the largest logit that is not among the first `done` chosen; of equal ones the first. */
static int32_t preferred(const struct routing *r, struct tensor logits, int64_t n, const int32_t *chosen, int64_t done)
{
    int32_t best = -1;
    for (int32_t e = 0; e < r->E; e++)
        if (!is_among(chosen, done, e) &&
            (best < 0 || tensor_get(logits, n * r->E + e) > tensor_get(logits, n * r->E + best)))
            best = e;
    return best;
}

/* Compare a token's choice with what the logits prefer.  @return whether it differs; then the largest margin. */
static bool compare_choice(const struct routing *r, struct tensor logits, int64_t n, const int32_t *chosen,
                           struct routing_found *f)
{
    bool differs = false;
    for (int64_t i = 0; i < r->k; i++) {
        const int32_t own = preferred(r, logits, n, chosen, i), theirs = chosen[i];
        const bool valid = theirs >= 0 && theirs < r->E && !is_among(chosen, i, theirs);
        const double margin =
            valid ? tensor_get(logits, n * r->E + own) - tensor_get(logits, n * r->E + theirs) : NAN;
        if (own == theirs) continue;
        if (!differs || exceeds(margin, f->margin))
            *f = (struct routing_found){ .token = n, .own = own, .theirs = theirs, .margin = margin };
        differs = true;
    }
    return differs;
}

void routing_decide(struct routing *r, int layer, struct tensor logits)
{
    struct routing_found *found = &r->found[layer], one;
    int32_t *chosen = of_layer(r, r->experts, layer);
    *found = (struct routing_found){ 0 };
    for (int64_t n = 0; n < r->N; n++, chosen += r->k) {
        if (!compare_choice(r, logits, n, chosen, &one)) continue;
        one.differ = found->differ + 1;
        if (found->differ == 0 || exceeds(one.margin, found->margin)) *found = one;
        else found->differ++;
        if (one.margin <= r->bound[layer]) continue;
        for (int64_t i = 0; i < r->k; i++) chosen[i] = preferred(r, logits, n, chosen, i);
    }
}

static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct routing *r = context;
    r->then.see(r->then.context, name, layer, gradient, t, terms);
    if (r->deciding && !gradient && strcmp(name, "router.logits") == 0) routing_decide(r, layer, t);
}

struct observer routing_observer(struct routing *r, struct observer then)
{
    r->then = then;
    return (struct observer){ .see = see, .context = r };
}
