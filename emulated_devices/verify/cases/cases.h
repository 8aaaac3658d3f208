/* cases.h -- the cases that `orrery verify` trains on a number of devices: every scheme of a kind on every mesh that
 * splits its axis, and every valid pair of values of all other dimensions.  Each case is compared with one device;
 * cases that must end with the same bits are compared with each other.  jobs/job.c and jobs/schemes.c call these
 * functions. */
#ifndef ORRERY_CASES_H
#define ORRERY_CASES_H

#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/space.h"

struct seen_bits;

struct cases {
    struct comm *world;                 /* the devices that run the cases; NULL: nobody will */
    struct space space;                 /* dimensions of plans, and their values */
    struct covering covering;           /* which pairs of values have had a case */
    struct seen_bits *seen;             /* [count] the first case's bits for each key */
    int count, room;                    /* entries of `seen`, and for how many there is memory */
};

/** Local.  world: of that many devices; or NULL, and then cases are listed and not run.  exact: as space_open.
 *  @return OK or ERR_MEMORY; call cases_close after both. */
enum error_code cases_open(struct cases *, struct comm *world, int devices, enum exact_rule, struct error *);
void cases_close(struct cases *);

/** Start the cases of a kind of schemes.  Pairs of values that cases of another kind have covered are not repeated. */
void cases_begin(struct cases *, enum scheme_kind);

/* covering_next gives a case, or a pair of values that no plan can have, or neither. */
struct next_case {
    enum covering_result result;        /* which of the fields below are set */
    struct choice choice;               /* of a case */
    struct value_pair pair;             /* that the case covers, or that no plan has */
    struct error why;                   /* the reason why no plan has the pair */
};

/** The next case: rank 0 searches, and tells the other ranks.  Collective over the world.
 *  @return OK or ERR_COMM, on every device. */
enum error_code cases_next(struct cases *, struct next_case *, struct error *);

struct case_outcome {
    struct outcome outcome;             /* of the case itself */
    bool has_twin, same_bits;           /* rank 0: another plan must end with the same bits; it does */
    struct error verdict;               /* of all */
};

/**
 * Train a case beside the reference.  Its twin is the plan with the most default values that must end with the same
 * bits; if it is another plan and has not been trained yet, train it too, without the reference.  Collective.
 * @param[out] plan  the plan of the case.
 * @return OK when there is an outcome, with any verdict; or the same error on every device.
 */
enum error_code cases_run(struct cases *, const struct choice *, struct plan *plan, struct case_outcome *,
                          struct error *);

/** The values of a choice that are not the defaults, as text, except mesh, microbatches, chunks and dimension `but`;
 *  empty if there are none. */
char *cases_describe(const struct cases *, const struct choice *, enum dimension but, char *text, size_t size);

#endif
