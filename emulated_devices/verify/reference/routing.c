/* routing.c -- keeps, measures and decides choices of experts: the truth takes a device's choice that rounding
 * explains.  The caller is reference.c, which also installs the observer.  The only error is ERR_MEMORY, when a
 * routing is opened. */
#include "emulated_devices/verify/reference/routing.h"
#include "ref/model/kinds.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum error_code routing_open(struct routing *routing, const struct model_config *config, int64_t tokens,
                             struct error *err)
{
    *routing = (struct routing){ 0 };
    if (config->mlp != MLP_MIXTURE) return OK;
    const size_t choices = (size_t)(config->L * tokens * config->mixture.k);
    *routing = (struct routing){ .L = config->L,
                           .E = mixture_columns(&config->mixture),
                           .k = config->mixture.k,
                           .experts = calloc(choices, sizeof *routing->experts),
                           .theirs = calloc(choices, sizeof *routing->theirs),
                           .bound = calloc((size_t)config->L, sizeof *routing->bound),
                           .rule = config->mixture.router,
                           .keys = calloc(2 * (size_t)mixture_columns(&config->mixture), sizeof *routing->keys),
                           .found = calloc((size_t)config->L, sizeof *routing->found) };
    return routing->experts && routing->theirs && routing->bound && routing->keys && routing->found
               ? routing_drops_open(&routing->drops, config, tokens, err)
               : fail(err, ERR_MEMORY, "no memory for %zu choices of experts", choices);
}

void routing_close(struct routing *routing)
{
    free(routing->experts), free(routing->theirs), free(routing->bound), free(routing->keys), free(routing->found);
    routing_drops_close(&routing->drops);
    *routing = (struct routing){ 0 };
}

void routing_keep(struct routing *routing, const struct transformer *truth)
{
    /* N may change from step to step with a batch plan; experts [L, N, k] is laid out anew. */
    routing->N = truth->B * truth->S, routing->truth = truth;
    routing_drops_begin(routing, truth);
    for (int64_t l = 0; l < routing->L; l++)
        for (int64_t i = 0; i < routing->N * routing->k && layer_mlp(&truth->config, l) == MLP_MIXTURE; i++)
            routing_of_layer(routing, routing->experts, (int)l)[i] = ((const int32_t *)truth->block[l].experts.data)[i];
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static bool has_groups(const struct routing *routing) { return routing->rule.groups > 1; }

/* Turn a row of logits into keys, in place. */
static void to_keys(const struct routing *routing, int layer, double *x)
{
    double total = 0, top = x[0];
    /* Without a bias and without sums of two, logits have the order of the scores, so logits are the keys. */
    if (!routing->rule.biased && !(has_groups(routing) && routing->rule.sums_two)) return;
    for (int64_t e = 1; e < routing->E; e++) top = fmax(top, x[e]);
    /* The largest logit is subtracted first, so no exponential overflows. */
    for (int64_t e = 0; e < routing->E; e++) total += exp(x[e] - top);
    for (int64_t e = 0; e < routing->E; e++) {
        x[e] = routing->rule.scores == SCORES_SIGMOID ? 1 / (1 + exp(-x[e])) : exp(x[e] - top) / total;
        if (routing->rule.biased && routing->bias) x[e] += routing->bias[layer * routing->E + e];
    }
}

/* keys [E] = the keys of one row of logits [N, E]. */
static void read_keys(const struct routing *routing, int layer, struct tensor logits, int64_t row, double *keys)
{
    for (int64_t e = 0; e < routing->E; e++) keys[e] = tensor_get(logits, row * routing->E + e);
    to_keys(routing, layer, keys);
}

void routing_measure(struct routing *routing, const struct transformer *truth, const struct transformer *twin)
{
    for (int64_t l = 0; l < routing->L; l++) {
        const struct tensor a = truth->block[l].router, b = twin->block[l].router;
        double far = 0, large = 0, *const x = routing->keys, *const y = routing->keys + routing->E;
        if (layer_mlp(&truth->config, l) != MLP_MIXTURE) continue;
        for (int64_t n = 0; n < tensor_rows(a); n++) {
            read_keys(routing, (int)l, a, n, x), read_keys(routing, (int)l, b, n, y);
            for (int64_t e = 0; e < routing->E; e++) {
                const double off = fabs(y[e] - x[e]);
                if (exceeds(off, far)) far = off;
                if (exceeds(fabs(x[e]), large)) large = fabs(x[e]);
            }
        }
        /* bound = 2 (error of a key + 2u of the largest key): two keys may move towards each other. */
        routing->bound[l] = 2 * (far + 2 * dtype_unit(a.dtype) * large);
        routing_drops_measure(routing, (int)l, a, b);
    }
}

void routing_start_step(struct routing *routing)
{
    if (routing->L > 0) memset(routing->found, 0, (size_t)routing->L * sizeof *routing->found);
    if (routing->drops.found) memset(routing->drops.found, 0, (size_t)routing->L * sizeof *routing->drops.found);
    /* A deciding pass belongs to the same step, so its count stays. */
    if (!routing->deciding) routing->compared = 0;
}

bool routing_counts(const struct routing *routing, int layer, int64_t token)
{
    return routing->truth == NULL || transformer_judges(routing->truth, layer, token);
}

bool routing_differs(struct routing *routing)
{
    bool differs = false;
    for (int64_t i = 0; i < routing->L * routing->N; i++) {
        if (!routing_counts(routing, (int)(i / routing->N), i % routing->N)) continue;
        routing->compared++;
        const int32_t *const own = routing->experts + i * routing->k;
        differs = differs || memcmp(own, routing->theirs + i * routing->k, (size_t)routing->k * sizeof *own) != 0;
    }
    return differs;
}

void routing_begin(struct routing *routing)
{
    for (int64_t i = 0; i < routing->L * routing->N; i++)
        if (routing_counts(routing, (int)(i / routing->N), i % routing->N))
            memcpy(routing->experts + i * routing->k, routing->theirs + i * routing->k,
                   (size_t)routing->k * sizeof *routing->experts);
    routing->deciding = true;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* Whether an expert is among the first `count` chosen. */
static bool is_among(const int32_t *chosen, int64_t count, int32_t e)
{
    for (int64_t i = 0; i < count; i++)
        if (chosen[i] == e) return true;
    return false;
}

/* A token has its keys, and the groups that its experts may come from. */
struct token {
    const struct routing *r;
    const double *key;
    bool open[ROUTER_MOST_GROUPS];
};

/* Whether an expert's group is open for this token; without groups all experts are open. */
static bool is_open(const struct token *token, int64_t e)
{
    return !has_groups(token->r) || token->open[e / (token->r->E / token->r->rule.groups)];
}

/* The result is the expert with the largest key that is not among the first `done` chosen; of equal experts the
 * first. */
static int32_t preferred(const struct token *token, const int32_t *chosen, int64_t done)
{
    int32_t best = -1;
    for (int32_t e = 0; e < token->r->E; e++)
        if (is_open(token, e) && !is_among(chosen, done, e) && (best < 0 || token->key[e] > token->key[best])) best = e;
    return best;
}

/* Find the best expert of a group, and the group's key. */
static int32_t best_of_group(const struct token *token, int64_t g, double *key)
{
    const int64_t size = token->r->E / token->r->rule.groups, first = g * size;
    int32_t best = (int32_t)first, second = -1;
    for (int32_t e = (int32_t)first + 1; e < first + size; e++)
        if (token->key[e] > token->key[best]) second = best, best = e;
        else if (second < 0 || token->key[e] > token->key[second]) second = e;
    *key = token->key[best] + (token->r->rule.sums_two ? token->key[second] : 0);
    return best;
}

/* Open the best groups, after those that are open already, until all that are kept are. */
static void routing_open_groups(struct token *token)
{
    double key[ROUTER_MOST_GROUPS];
    int64_t n = 0;
    for (int64_t g = 0; g < token->r->rule.groups; g++) best_of_group(token, g, &key[g]), n += token->open[g];
    for (; n < token->r->rule.kept; n++) {
        int64_t best = -1;
        for (int64_t g = 0; g < token->r->rule.groups; g++)
            if (!token->open[g] && (best < 0 || key[g] > key[best])) best = g;
        token->open[best] = true;
    }
}

/* Enter a difference with its margin; the largest margin of a token stays, and NaN is larger than any. */
static void enlarge(struct routing_found *found, bool *differs, int64_t n, int32_t own, int32_t theirs, double margin)
{
    if (!*differs || exceeds(margin, found->margin))
        *found = (struct routing_found){ .token = n, .own = own, .theirs = theirs, .margin = margin };
    *differs = true;
}

/* Whether choice i is an expert that the token has not chosen before. */
static bool is_valid(const struct routing *routing, const int32_t *chosen, int64_t i)
{
    return chosen[i] >= 0 && chosen[i] < routing->E && !is_among(chosen, i, chosen[i]);
}

/* Open the groups of a choice.  @return how many. */
static int64_t open_chosen(struct token *token, const int32_t *chosen)
{
    int64_t opened = 0;
    for (int64_t i = 0; i < token->r->k; i++)
        if (is_valid(token->r, chosen, i)) token->open[chosen[i] / (token->r->E / token->r->rule.groups)] = true;
    for (int64_t g = 0; g < token->r->rule.groups; g++) opened += token->open[g];
    return opened;
}

/* Compare the groups that are open in only one of both: the margin is the difference of their keys.  A sum of two
 * keys has twice the error, so its margin is halved. */
static bool compare_groups(const struct token *own, const struct token *theirs, int64_t n, struct routing_found *found)
{
    const struct routing *r = own->r;
    bool differs = false;
    for (int64_t g = 0; g < r->rule.groups; g++)
        for (int64_t h = 0; h < r->rule.groups; h++) {
            double a, b;
            if (!own->open[g] || theirs->open[g] || own->open[h] || !theirs->open[h]) continue;
            const int32_t mine = best_of_group(own, g, &a), other = best_of_group(own, h, &b);
            enlarge(found, &differs, n, mine, other, (a - b) / (r->rule.sums_two ? 2 : 1));
        }
    return differs;
}

/* ---- fewer choices, with top_p: keys are logits ---- */

/* probability(e) = exp(key e) / sum of exp(key): the softmax of the logits. */
static double probability(const struct token *token, int32_t expert)
{
    double total = 0;
    for (int64_t e = 0; e < token->r->E; e++) total += exp(token->key[e] - token->key[expert]);
    return 1 / total;
}

/* The result is the number of choices before the first that is none. */
static int64_t routing_count_of(const struct routing *routing, const int32_t *chosen)
{
    int64_t n = 0;
    while (n < routing->k && chosen[n] != CHOICE_NONE) n++;
    return n;
}

/* Whether these are more choices than needed, or fewer; the margin: by how much their probabilities miss top_p.  A sum
 * of probabilities moves by less than the logits do. */
static bool compare_count(const struct token *own, int64_t n, const int32_t *chosen, bool *differs,
                          struct routing_found *found)
{
    const struct routing *r = own->r;
    const int64_t count = routing_count_of(r, chosen);
    double sum = 0, before = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!is_valid(r, chosen, i)) return *differs;           /* found already */
        before = sum, sum += probability(own, chosen[i]);
    }
    /* After the first absent choice all must be absent, and only a rule with top_p may leave choices out. */
    for (int64_t i = count; i < r->k; i++)
        if (chosen[i] != CHOICE_NONE || r->rule.top_p == 0) before = sum = NAN;
    if (count == 0) enlarge(found, differs, n, preferred(own, chosen, 0), CHOICE_NONE, NAN);
    else if (count < r->k && !(sum >= r->rule.top_p))
        enlarge(found, differs, n, preferred(own, chosen, count), CHOICE_NONE, r->rule.top_p - sum);
    else if (before >= r->rule.top_p)
        enlarge(found, differs, n, CHOICE_NONE, chosen[count - 1], before - r->rule.top_p);
    return *differs;
}

/* chosen [k] = what the keys prefer: the largest keys, until their probabilities reach top_p. */
static void routing_choose(const struct token *own, int32_t *chosen)
{
    const struct routing *r = own->r;
    double sum = 0;
    for (int64_t i = 0; i < r->k; i++) {
        const bool enough = r->rule.top_p > 0 && sum >= r->rule.top_p;
        chosen[i] = enough ? CHOICE_NONE : preferred(own, chosen, i);
        if (!enough) sum += probability(own, chosen[i]);
    }
}

/* Compare a token's choice with what the keys prefer, if the device had these groups open. */
static bool compare_with(const struct token *own, const struct token *theirs, int64_t n, const int32_t *chosen,
                         struct routing_found *found)
{
    bool differs = has_groups(own->r) && compare_groups(own, theirs, n, found);
    /* Each choice must be the best that is left after the choices before.  The margin is the difference of both
     * keys. */
    for (int64_t i = 0; i < routing_count_of(own->r, chosen); i++) {
        const int32_t best = preferred(theirs, chosen, i);
        if (best == chosen[i]) continue;
        enlarge(found, &differs, n, best, chosen[i],
                is_valid(own->r, chosen, i) ? own->key[best] - own->key[chosen[i]] : NAN);
    }
    const bool all = own->r->rule.top_p == 0 && routing_count_of(own->r, chosen) == own->r->k;
    return all ? differs : compare_count(own, n, chosen, &differs, found);
}

/* A group that the device kept, and chose no expert from, leaves no trace.  It need not be the best of the others:
 * of all that it may have been, the one that explains the choice best. */
static void compare_with_others(const struct token *own, const struct token *seen, const struct token *theirs,
                                int64_t n, const int32_t *chosen, struct routing_found *found)
{
    const int64_t groups = own->r->rule.groups;
    struct routing_found one;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t h = 0; h < groups; h++) {
            struct token other = *theirs;
            if (!theirs->open[g] || seen->open[g] || theirs->open[h]) continue;
            other.open[g] = false, other.open[h] = true;
            if (compare_with(own, &other, n, chosen, &one) && one.margin < found->margin) *found = one;
        }
}

/* @return whether the choice differs from what the keys prefer; then the largest margin. */
static bool compare_choice(const struct token *own, int64_t n, const int32_t *chosen, struct routing_found *found)
{
    const struct routing *r = own->r;
    struct token seen = { .r = r, .key = own->key }, theirs = seen;
    if (has_groups(r)) {
        bool differs = false;
        /* A choice from more groups than are kept has no margin that could explain it. */
        if (open_chosen(&seen, chosen) > r->rule.kept) {
            enlarge(found, &differs, n, preferred(own, NULL, 0), chosen[r->k - 1], NAN);
            return true;
        }
        theirs = seen;
        routing_open_groups(&theirs);
    }
    const bool differs = compare_with(own, &theirs, n, chosen, found);
    if (differs && has_groups(r)) compare_with_others(own, &seen, &theirs, n, chosen, found);
    return differs;
}

void routing_decide(struct routing *routing, int layer, struct tensor logits)
{
    struct routing_found *found = &routing->found[layer], one;
    int32_t *chosen = routing_of_layer(routing, routing->experts, layer);
    routing_drops_set_aside(routing, layer);
    for (int64_t n = 0; n < routing->N; n++, chosen += routing->k) {
        struct token own = { .r = routing, .key = routing->keys };
        if (!routing_counts(routing, layer, n)) continue;
        read_keys(routing, layer, logits, n, routing->keys);
        if (has_groups(routing)) routing_open_groups(&own);
        if (!compare_choice(&own, n, chosen, &one)) continue;
        /* The finding that exceeds its bound most is kept, with the count of all. */
        one.differ = found->differ + 1, one.bound = routing->bound[layer];
        if (routing_is_worse(one.margin, one.bound, found)) *found = one;
        else found->differ++;
        /* Rounding explains a margin within the bound, so the device's choice stands. */
        if (one.margin <= routing->bound[layer]) continue;
        routing_choose(&own, chosen);
    }
    routing_drops_decide(routing, layer, logits);
}

/* Pass each tensor on, then decide the choices as soon as a layer's logits exist and before its experts compute. */
static void routing_see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct routing *r = context;
    if (r->then.see) r->then.see(r->then.context, name, layer, gradient, t, terms);
    if (r->deciding && !gradient && strcmp(name, "router.logits") == 0) routing_decide(r, layer, t);
}

struct observer routing_observer(struct routing *routing, struct observer then)
{
    routing->then = then;
    return (struct observer){ .see = routing_see, .context = routing };
}
