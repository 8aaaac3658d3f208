/* collective_laws.h -- shared by collective.c and collective_sums.c: the laws of collectives, and a member of a crew
 * that is judged.  Only these two files include this header.  Functions return ERR_MEMORY, and errors of a call.
 */
#ifndef ORRERY_COLLECTIVE_LAWS_H
#define ORRERY_COLLECTIVE_LAWS_H

#include "emulated_devices/verify/plugins/calls.h"
#include "emulated_devices/verify/plugins/laws.h"

enum {
    VALUES, REDUCTIONS, FORMATS, BLOCKS, SIZES, NANS, GUARDS, KEPT_INPUT, REPEATS, ALIKE, ROUNDING, ORDER, COSTS, STEPS,
    SCRATCH, ACCEPTS, TURNS
};

enum { MOST_P = 9, TRIALS = 8 };

/* A member saw this, for laws that compare members. */
struct member_saw {
    uint64_t bits[2][TRIALS];           /* of all-reduces that round; of zeros and maxima */
    double lowest[TRIALS], highest[TRIALS];     /* of elements that all have the same terms */
    bool not_the_fold[TRIALS], took;    /* some element is not the fold by ranks; the calls were accepted */
    int64_t rounds;                     /* of the current call */
};

/* The crew of one number of devices.  All members are in this process and write to it. */
struct laws_crew {
    struct book *book;                  /**< Record of the verdicts. */
    const struct algorithm *algorithm;  /**< Algorithm that is judged. */
    const struct cluster *cluster;      /**< Cluster of the members. */
    int P;                              /**< Number of members. */
    int64_t calls;                      /* accepted calls of rank 0, on all crews so far */
    struct member_saw saw[MOST_P];      /**< Observations of each member. */
};

/* A member: its place in a crew, and what its calls need. */
struct law_member { struct laws_crew *crew; struct group *group; struct device *device; };

struct guarded { unsigned char *memory, *data; size_t bytes; };

/** Memory with guards around, filled with NaNs.  @return false: there is none; free() its memory in any case. */
bool guarded_make(struct guarded *, size_t bytes);

/** "allreduce mine of 257 bf16, max on 3 devices, root 0, in place". */
struct call_text { char text[200]; };
struct call_text call_describe(const struct law_call *, const char *name, bool in_place);

/** A call of a member's group, with equal blocks. */
struct law_call member_call(const struct law_member *, int64_t count, enum dtype dtype, enum reduction how);

/** Whether the algorithm accepts a call; it is asked twice. */
bool member_accepts(const struct law_member *, struct law_call *);

/** Add numbers whose sum shows the order; then, on one member, judge what all of them saw. */
enum error_code member_order(const struct law_member *, enum dtype dtype, struct error *);
void member_judge_order(const struct law_member *, enum dtype dtype);

/** Judge an all-reduce of numbers that round; judge where a NaN goes.  Collective over the crew. */
enum error_code member_rounding(const struct law_member *, struct error *);
enum error_code member_nans(const struct law_member *, struct error *);

#endif
