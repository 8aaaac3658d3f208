/* planner.h -- how a search chooses the plans that it looks at.  A planner is a file, and a line in planners.c.
 *
 * Callers: cli/train/search.c finds a planner and runs it; cli/list/ lists all.
 */
#ifndef ORRERY_SEARCH_PLANNER_H
#define ORRERY_SEARCH_PLANNER_H

#include "emulated_devices/search/search.h"

struct planner {
    const char *name;                   /* as typed */
    const char *description, *source;   /* one line; the paper */
    const char *promise;                /* what is known of the winner if all that was chosen was planned, too */
    int most;                           /* plans that are planned, by default; 0: all */
    double work;                        /* likewise, what planning them takes (struct estimate); 0: any */
    /** Add the plans that are worth ranking to a search (search_add).  Its estimator, memory and space are set.
     *  @return OK; ERR_PLAN: the space is not for this planner; ERR_MEMORY. */
    enum error_code (*choose)(struct search *, struct error *);
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
