/* layered.h -- a search by layers, as the command line asks for it: planners on one table, and what is said of them.
 *
 * search.c calls on rank 0 if --planner names a planner by layers, or all of them; layered_report.c says the result.
 * Functions without a code report no errors.
 */
#ifndef ORRERY_TRAIN_LAYERED_H
#define ORRERY_TRAIN_LAYERED_H

#include "emulated_devices/cli/train/search_report.h"

enum { LAYERED_PLANNERS = 32, LAYERED_TABLES = 16 };

/* One planner's best plan of all tables. */
struct layered_row {
    const struct planner *planner;      /* whose row this is */
    struct layer_search search;         /* what it found; its table is one of the search's */
    bool found;                         /* a plan that fits, also its planned step if there is one */
    char refused[400];                  /* why the planner did not take the tables; "": it did */
    uint64_t memory;                    /* that the planner was given: less than asked for if its first plan needed
                                         * more than the table says */
    picoseconds step;                   /* of the planned step; 0: not planned */
    uint64_t peak;                      /* likewise */
    bool above;                         /* the planned step needs more than the memory */
    double seconds;                     /* that the planner took */
};

struct layered {
    struct searched *searched;          /* the words of the command line */
    struct plan_space space;            /* as typed, with few usual values where nothing was typed */
    struct layer_table table[LAYERED_TABLES];   /* one for each number of microbatches */
    int tables;                         /* entries of `table` */
    double made;                        /* seconds that making the tables took */
    bool of_model;                      /* false: the table is a file's, and no step is planned */
    struct layered_row row[LAYERED_PLANNERS]; /**< Result of each planner, [rows]. */
    int rows;                           /* the best first, once they are solved */
};

/** Whether the command line asks for a search by layers. */
bool layered_asked(void);

/** Search, report, and write what is asked for.  @return OK; ERR_CHECK if nothing fits; ERR_USAGE, ERR_PLAN, ERR_FILE,
 *  ERR_FORMAT, ERR_MEMORY or ERR_STOPPED. */
enum error_code layered_run(struct searched *, struct error *);

/* ---- layered_report.c -------------------------------------------------------------------------------------------- */

void layered_print(const struct layered *);

/** Write the best plan as a file of --plan.  @return OK, ERR_FILE or ERR_MEMORY; ERR_USAGE: its table is no model's. */
enum error_code layered_write(const struct layered *, const char *path, struct error *);

/** layered_page.c: write a page of HTML with what planners find, the frontier, the first plan and its pipeline.
 *  @return OK, ERR_FILE or ERR_MEMORY, without a page. */
enum error_code layered_page(const struct layered *, const char *path, struct error *);

/** Write the JSON.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code layered_json(const struct layered *, struct error *);

/** Say that nothing fits, and what would.  @return ERR_CHECK. */
enum error_code layered_nothing_fits(const struct layered *, struct error *);

/** The table of a row's plan. */
static inline const struct layer_table *layered_table(const struct layered_row *row) { return row->search.table; }

#endif
