/* planner.h -- how a search chooses the plans that it looks at.  A planner is a file, and a line in planners.c.
 *
 * A planner chooses among plans of one mesh (`choose`), or gives every layer a strategy of its own (`solve`, a file of
 * search/layers/).
 *
 * Callers: cli/train/search.c finds a planner and runs it, cli/train/layered.c those by layers; cli/list/ lists all,
 * verify/ holds those by layers to brute force.
 */
#ifndef ORRERY_SEARCH_PLANNER_H
#define ORRERY_SEARCH_PLANNER_H

#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/search.h"

/* The plans by layers of which a planner finds the fastest that fits. */
enum layers_exact { LAYERS_NONE,        /* it is a heuristic */
                    LAYERS_ALL,
                    LAYERS_EVEN,        /* stages with as many devices and layers, the remainder in the last; their
                                         * number is a power of two */
                    LAYERS_ONE_STAGE,
                    LAYERS_ALIKE };     /* as LAYERS_EVEN, all layers with one strategy */

/** Whether a plan is among them. */
bool layers_exact_has(enum layers_exact, const struct layer_table *, const struct layer_plan *);

#define PLANNER_ALL "all"               /* --planner: every planner by layers, side by side */

struct planner {
    const char *name;                   /* as typed */
    const char *description, *source;   /* one line; the paper */
    const char *promise;                /* what is known of the winner if all that was chosen was planned, too */
    int most;                           /* plans that are planned, by default; 0: all */
    double work;                        /* likewise, what planning them takes (struct estimate); 0: any */
    /** Add the plans that are worth ranking to a search (search_add).  Its estimator, memory and space are set.
     *  NULL: the planner is for plans by layers.  @return OK; ERR_PLAN: the space is not for this planner;
     *  ERR_MEMORY. */
    enum error_code (*choose)(struct search *, struct error *);
    /** Find the best plan of a table by layers; sets what is found.  NULL: the planner is for plans of one mesh.
     *  @return OK, also if nothing fits; ERR_PLAN: the table is not for this planner; ERR_MEMORY. */
    enum error_code (*solve)(struct layer_search *, struct error *);
    enum layers_exact exact_of;         /* what `solve` promises */
    bool frontier;                      /* `solve` also gives all points that no plan of exact_of beats */
};

/** The planner at this place, from 0.  @return NULL after the last. */
const struct planner *planner_at(int place);

/** The planner of a space if nobody names one: the exhaustive one if there are at most PLANNER_FEW legal plans. */
const struct planner *planner_usual(const struct plan_space *);

/* So many plans of a small model are planned in about a minute (`orrery search`, 2 cores); the beam's winner took up to
 * 74 % longer than the best of some hundred plans where memory was short. */
enum { PLANNER_FEW = 2000 };

/** @return OK, or ERR_USAGE naming the most similar. */
enum error_code planner_find(const struct planner **, const char *name, struct error *);

#endif
