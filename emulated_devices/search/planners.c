/* planners.c -- lists every planner, and finds one by its name.  A new one needs one line here.
 *
 * cli/train/search.c and cli/list/ ask here.  ERR_USAGE names a planner that does not exist.
 */
#include "emulated_devices/search/planner.h"
#include "ref/io/options.h"
#include <string.h>

#define PLANNERS(X)                     \
    X(planner_beam)                     \
    X(planner_exhaustive)               \
    X(planner_every_layer)              \
    X(planner_galvatron)                \
    X(planner_alpa)                     \
    X(planner_tensoropt)                \
    X(planner_integer)                  \
    X(planner_mindspore)                \
    X(planner_rec_core)                 \
    X(planner_flexflow)                 \
    X(planner_pipette)                  \
    X(planner_holmes)                   \
    X(planner_pipedream)                \
    X(planner_pipedream_2bw)            \
    X(planner_piper)

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

bool layers_exact_has(enum layers_exact which, const struct layer_table *table, const struct layer_plan *plan)
{
    const int p = plan->stages;
    bool even = (p & (p - 1)) == 0 && table->devices % p == 0, alike = true;
    for (int s = 0; s < p; s++)
        even = even && plan->devices[s] == table->devices / p && plan->first[s] == s * (table->layers / p);
    for (int l = 1; l < table->layers; l++) alike = alike && plan->strategy[l] == plan->strategy[0];
    switch (which) {
    case LAYERS_ALL: return true;
    case LAYERS_EVEN: return even;
    case LAYERS_ONE_STAGE: return p == 1;
    case LAYERS_ALIKE: return even && alike;
    default: return false;
    }
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
