/* exhaustive.c -- the planner that looks at every legal plan.
 *
 * All of them are estimated, and planned in the order of what they promise: with --plans N the first N; without, all
 * are planned, and the winner is the best there is.
 *
 * cli/train/search.c and test_search.c run the planner.  ERR_PLAN says that there are more legal plans than MOST.
 */
#include "emulated_devices/search/planner.h"

enum { MOST = 200000 };                 /* legal plans */

/* Add one legal plan.  ERR_CHECK, without a text, ends the walk of a search that shall end. */
static enum error_code exhaustive_look(const struct plan *plan, const struct choice *choice, void *context,
                                       struct error *err)
{
    struct search *s = context;
    if (s->count == MOST)
        return fail(err, ERR_PLAN, "--planner exhaustive: there are more than %d legal plans; limit them, such as with "
                    "--attention ring-zigzag --tensor 1d,1d-sp, or take --planner beam", MOST);
    if (search_ends(s)) return ERR_CHECK;
    if (s->tell) s->tell(s->context, "estimating", (double)choice->value[BY_MESH] / s->space->meshes);
    return search_find(s, choice) >= 0 ? OK : search_add(s, plan, choice, true, NULL, err);
}

static enum error_code exhaustive_choose(struct search *search, struct error *err)
{
    const enum error_code e = plan_space_each(search->space, exhaustive_look, search, err);
    return search->ended ? OK : e;
}

const struct planner planner_exhaustive = {
    .name = "exhaustive", .description = "every legal plan",
    .source = "none: the definition of the search",
    .promise = "no legal plan is faster and fits",
    .most = 0, .work = 0, .choose = exhaustive_choose,
};
