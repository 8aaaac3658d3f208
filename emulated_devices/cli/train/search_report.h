/* search_report.h -- a search as the command line asks for it, and what is said of it.
 *
 * `orrery search` prints the whole report; `orrery plan --devices` and --fewest plan the best in full, and print the
 * next ones in a table.  search.c and choose.c call these functions on rank 0.  Functions without a code report no
 * errors.
 */
#ifndef ORRERY_TRAIN_SEARCH_REPORT_H
#define ORRERY_TRAIN_SEARCH_REPORT_H

#include "emulated_devices/run/run.h"
#include "emulated_devices/search/likes.h"
#include "emulated_devices/search/planner.h"
#include "ref/io/time_left.h"

/* This holds what the command line says besides the options of `orrery train`.  A process searches once. */
struct search_asked {
    int devices, plans, top;            /* devices of a plan, plans to look at, and rows to print */
    const char *planner, *like;         /* words of --planner and --like */
    const char *out;                    /* a file for the first plan; NULL: none */
    double seconds;                     /* at most; 0: without end */
    bool plans_given, like_given;
    const char *table, *table_out;      /* files of a table by layers, to read and to write; NULL: none */
    const char *page;                   /* a file of HTML for planners by layers; NULL: none */
    bool explain;                       /* say what every planner by layers does, and why one is the first */
    const char *zero;                   /* stages of ZeRO, another way to name data schemes; NULL: not given */
    struct plan_space space;            /* the lists as typed */
};
extern struct search_asked search_asked;

/* The options that set it, and those of `orrery train` that a search does not have; ends with { 0 } and NULL. */
extern const struct option search_options[];
extern const char *const search_without[];

struct searched {
    const struct train_options *options; /* what the command line asks for */
    struct plan_space space;            /* with the lists of --like and --zero, which are kept below */
    struct likes likes;                 /* schemes that --like leaves */
    char data[64];
    struct search search;               /* what was found */
    const struct planner *planner;      /* who chose the order */
    int fit, ranked, *frontier, frontiers;      /* ranked: of those that fit, the ones that are compared */
    int *first;                         /* [ranked] the first plan of each one's group (search_group) */
    int *row, rows, shown;              /* [rows] the first plans of all groups; the first `shown` are printed */
    bool beaten;                        /* the others take longer by the clocks (search_replay) */
    double started, seconds;            /* by the clock; of the search */
    double answered;                    /* seconds until a plan that fits was known; 0: none is */
    struct time_left line;              /* on the terminal */
    bool *of_all;                       /* [argc] whether a word of the command line is of all plans */
    char common[1024];                  /* these words */
    char of_plan[256];                  /* words that they have as `orrery plan`, besides */
    FILE *out;                          /* where the report goes */
};

/* ---- search.c: running ------------------------------------------------------------------------------------------- */

/** Open the space and the search of what is asked.  searched_close in any case.
 *  @param own  the options of the search, which are no words of its plans.
 *  @return OK; ERR_USAGE or ERR_PLAN for words that no plan fits; ERR_MEMORY. */
enum error_code searched_open(struct searched *, const struct train_options *, const struct option *own,
                              struct error *);
void searched_close(struct searched *);

/** Choose, plan, rank and replay.  @return OK, also if no plan fits: then nothing is ranked; or an error. */
enum error_code searched_run(struct searched *, struct error *);

/** Look for the plan that needs least memory, until one fits (search_leanest).
 *  @param[out] place  among the candidates; -1: no plan is legal.  @return OK or an error. */
enum error_code searched_leanest(struct searched *, int *place, struct error *);

/** Plan a choice before all others, so that there is an answer.  @return OK or an error. */
enum error_code searched_begin_with(struct searched *, const struct choice *, struct error *);

/** Call f for each word that all plans have: of the command line, and where rows of a mixture go if none says it. */
void searched_each_common(const struct searched *, void (*f)(void *context, const char *word), void *context);

/* ---- search_out.c: a file of the first plan ---------------------------------------------------------------------- */

/** Write the words of the first plan as settings.  @return OK, ERR_FILE or ERR_MEMORY; then no file is left. */
enum error_code searched_write(const struct searched *, const char *path, struct error *);

/* ---- search_report.c: saying ------------------------------------------------------------------------------------- */

/** Group the ranked plans into rows.  @return OK or ERR_MEMORY. */
enum error_code searched_make_rows(struct searched *, struct error *);

/** The words of the plan at a place, beside those that all plans have.  @return text. */
const char *searched_words(const struct searched *, int place, char *text);

/** "--seconds", or the name of the signal that ended the search. */
const char *searched_why_ended(void);

void searched_print_head(const struct searched *);

/** Print the shown rows from row `from` on, with their words.  @param command  that each plan's words are of. */
void searched_print_plans(const struct searched *, int from, const char *command);

/** Print everything. */
void searched_print(const struct searched *);

/** Add a plan to a list of JSON. */
void searched_add_plan(cJSON *list, const struct searched *, int place);

/** Write the JSON of `orrery search`.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code searched_json(const struct searched *, struct error *);

/** Say that no plan fits, which one needs least, and what would fit.  @return ERR_CHECK, or ERR_PLAN: none is legal. */
enum error_code searched_nothing_fits(const struct searched *, struct error *);

#endif
