/* planners.c -- lists every planner, and finds one by its name.  A new one needs one line here.
 *
 * cli/train/search.c and cli/list/ ask here.  ERR_USAGE names a planner that does not exist.
 */
#include "emulated_devices/search/planner.h"
#include "ref/io/options.h"
#include <string.h>

#define PLANNERS(X)                     \
    X(planner_beam)                     \
    X(planner_exhaustive)

#define X(symbol) extern const struct planner symbol;
PLANNERS(X)
#undef X

static const struct planner *const planners[] = {
#define X(symbol) &symbol,
    PLANNERS(X)
#undef X
    NULL
};
enum { COUNT = sizeof planners / sizeof *planners - 1 };

const struct planner *planner_at(int place) { return place < COUNT ? planners[place] : NULL; }

/* ERR_CHECK, without a text, ends the walk: there are too many. */
static enum error_code planner_count(const struct plan *plan, const struct choice *choice, void *context,
                                     struct error *err)
{
    int *const count = context;
    (void)plan, (void)choice, (void)err;
    return ++*count <= PLANNER_FEW ? OK : ERR_CHECK;
}

const struct planner *planner_usual(const struct plan_space *space)
{
    struct error unread;
    int count = 0;
    return plan_space_each(space, planner_count, &count, &unread) == OK ? &planner_exhaustive : &planner_beam;
}

enum error_code planner_find(const struct planner **found, const char *name, struct error *err)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++) {
        names[i] = planners[i]->name;
        if (strcmp(names[i], name) == 0) return *found = planners[i], OK;
    }
    return fail_unknown_name(err, "--planner", name, names, COUNT);
}
