/* exhaustive.c -- the planner that looks at every legal plan.
 *
 * With --plans N all of them are estimated, and the N that promise most are planned; without, all are planned, and the
 * winner is the best there is.
 *
 * cli/train/search.c and test_search.c run the planner.  ERR_PLAN says that there are more legal plans than MOST.
 */
#include "emulated_devices/search/planner.h"

enum { MOST = 200000 };                 /* legal plans */

/* Add one legal plan.  An estimate is worth its time only if not all plans are planned. */
static enum error_code exhaustive_look(const struct plan *plan, const struct choice *choice, void *context,
                                       struct error *err)
{
    struct search *s = context;
    if (s->count == MOST)
        return fail(err, ERR_PLAN, "--planner exhaustive: there are more than %d legal plans; limit them, such as with "
                    "--attention ring-zigzag --tensor 1d,1d-sp, or take --planner beam", MOST);
    return search_add(s, plan, choice, s->most > 0, NULL, err);
}

static enum error_code exhaustive_choose(struct search *search, struct error *err)
{
    return plan_space_each(search->space, exhaustive_look, search, err);
}

const struct planner planner_exhaustive = {
    .name = "exhaustive", .description = "every legal plan",
    .source = "none: the definition of the search",
    .promise = "no legal plan is faster and fits",
    .most = 0, .choose = exhaustive_choose,
};
