/* cases.h -- what `orrery verify` trains on so many devices: every scheme of a kind on every mesh that splits its axis,
 * and every pair of values of everything else that goes together, each case beside one device; and which cases must end
 * with the same bits.
 */
#ifndef ORRERY_CASES_H
#define ORRERY_CASES_H

#include "emulated_devices/verify/case.h"
#include "emulated_devices/verify/space.h"

struct seen_bits;

struct cases {
    struct space space;
    struct covering covering;
    struct seen_bits *seen;             /* [count] by key, the first case's bits */
    int count, room;
};

/** @return OK or ERR_MEMORY; cases_close either way. */
enum error_code cases_open(struct cases *, int devices, struct error *);
void cases_close(struct cases *);

/** Begin with the cases of a kind of schemes.  Pairs of values that cases of another kind have had are
 * not tried again. */
void cases_begin(struct cases *, enum scheme_kind);

/** The next case, or pair of values that no plan has.  The same on every device.  As covering_next. */
enum covering_result cases_next(struct cases *, struct choice *, struct value_pair *, struct error *why);

struct case_outcome {
    struct outcome outcome;
    bool has_twin, same_bits;           /* another plan must end with the same bits, and does; rank 0 */
    struct error verdict;               /* of all */
};

/**
 * Train a case beside the reference, and its twin alone: the most usual plan that must end with the same bits, if it is
 * another and has not been trained.  Collective.
 * @param[out] plan  that was trained.
 * @return OK when there is an outcome, whatever its verdict; or the same error on every device.
 */
enum error_code cases_run(struct cases *, const struct choice *, struct plan *plan, struct case_outcome *,
                          struct error *);

/** What is not usual about a choice, in words, but for mesh, microbatches, chunks and what `but` says;
 * empty if all is. */
char *cases_describe(const struct cases *, const struct choice *, enum dimension but, char *text, size_t size);

#endif
