/* arrange.c -- lists the splits of cp and the shards of a data scheme.  plan_space.c calls; no function fails.
 *
 * Source   LoongTrain, arXiv:2406.18485, section 4: head parallelism, inner rings and placement are chosen for a
 *          cluster; InternEvo (Buff), arXiv:2401.09149, section 4: each kind of state has a group of its own
 */
#include "emulated_devices/search/arrange.h"
#include "emulated_devices/schemes/data/data.h"

static bool chooses_split(const struct plan_space *space, const struct plan *plan)
{
    const struct attention_scheme *s;
    return (space->splits || space->only[BY_SPLIT] || space->windows || space->context_first) &&
           plan->mesh.size[CP] > 1 && attention_scheme_find(&s, plan->attention, NULL) == OK && s->splits;
}

/* An inner ring of all devices is no window: window 0. */
static bool wants_split(const struct plan_space *space, const struct context_split *split, int ring)
{
    return plan_space_list_has(space->only[BY_SPLIT], split->heads) &&
           plan_space_list_has(space->windows, split->window > 0 ? split->window : ring) &&
           (split->context_first || !space->context_first);
}

/* A walk over values, of which the nth is wanted. */
struct walk { int n, found; };

/* Count one more value.  @return whether it is the nth. */
static bool walk_takes(struct walk *walk) { return walk->found++ == walk->n; }

/* All windows and both placements of one number of heads. */
static void walk_heads(struct walk *walk, const struct plan_space *space, int heads, int ring, bool windows,
                       struct context_split *split)
{
    for (int w = ring; w >= 1 && walk->found <= walk->n; w--) {
        if (ring % w != 0 || (w < ring && (w == 1 || !windows))) continue;
        for (int first = 0; first <= (heads > 1 && ring > 1); first++) {
            const struct context_split s = { heads, w < ring ? w : 0, first };
            if (wants_split(space, &s, ring) && walk_takes(walk)) *split = s;
        }
    }
}

int arrange_split(const struct plan_space *space, const struct plan *plan, int n, struct context_split *split)
{
    struct plan usual = *plan;
    struct walk walk = { .n = n };
    if (!chooses_split(space, plan)) return 1;
    /* The default has as many heads as there can be. */
    usual.split = (struct context_split){ 0 };
    const struct context_parallel share = plan_context_share(&usual, NULL, 0);
    const int cp = plan->mesh.size[CP];
    for (int h = share.split.heads; h >= 1 && walk.found <= n; h--)
        if (cp % h == 0) walk_heads(&walk, space, h, cp / h, share.scheme->windows, split);
    return walk.found;
}

int arrange_shards(const struct plan_space *space, const struct plan *plan, int n, int shards[3])
{
    const int P = plan_copies(plan);
    const struct data_scheme *s;
    struct walk walk = { .n = n };
    if (!space->shards || P == 1 || plan->data.group > 0 || data_scheme_find(&s, plan->data.scheme, NULL) ||
        !s->any_shards) return 1;
    for (int w = 1; w <= P && walk.found <= n; w++)
        for (int g = w; g <= P && P % w == 0 && walk.found <= n; g += w)
            for (int o = g; o <= P && P % g == 0 && walk.found <= n; o += g)
                if (P % o == 0 && walk_takes(&walk)) shards[0] = w, shards[1] = g, shards[2] = o;
    return walk.found;
}
