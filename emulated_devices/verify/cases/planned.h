/* planned.h -- holds the planners by layers to brute force, on drawn tables.
 *
 * A table of 8 devices, 3 to 6 layers and up to three strategies for each number of devices is drawn, with edges, hops,
 * microbatches, and now and then unequal devices; the memory is drawn so that in about one of six tables nothing
 * fits.  All plans of a table are looked at.  Numbers are whole, so whoever promises the best plan must find its time
 * to the picosecond, and whoever promises the frontier all of its points.
 *
 * Callers: jobs/planners.c, cli/bench/planners.c, tests/devices/test_planners.c.  The functions are local.
 */
#ifndef ORRERY_VERIFY_PLANNED_H
#define ORRERY_VERIFY_PLANNED_H

#include "emulated_devices/search/planner.h"

enum { PLANNED_PLANNERS = 32, PLANNED_TABLES = 500 };

/* This is known of a planner after some tables. */
struct planned_row {
    const struct planner *planner;      /* whose row this is */
    int held;                           /* tables on which what it promises was compared */
    int missed;                         /* tables with a plan that fits, of which it found none */
    int compared, best;                 /* tables on which it found a plan; of these, those with no faster one */
    double gap, worst;                  /* sum, and largest, of its time / least time - 1 */
    int64_t looked;                     /* plans, or parts of plans, that it compared */
};

struct planned_count {
    int tables, infeasible;             /* tables so far; those of which no plan fits */
    int64_t plans;                      /* of all tables, which brute force looked at */
    struct planned_row row[PLANNED_PLANNERS];
    int rows;                           /* entries of `row` */
};

/** Draw a table and a memory: the same for equal numbers.  @return OK, for layer_table_free; ERR_MEMORY. */
enum error_code planned_draw(struct layer_table *, uint64_t *memory, int draw, struct error *);

/** Solve a drawn table with every planner by layers, hold what each promises to brute force, and count.
 *  @return OK; ERR_CHECK naming table, planner and both times; ERR_MEMORY. */
enum error_code planned_hold(struct planned_count *, int draw, struct error *);

#endif
