/* assembly.h -- a tensor of another program, put together from the pieces of all ranks.
 *
 * Serial.  Ranks whose pieces are parts of the same sum ("partial") are a group; any other rank is a group by itself.
 * A tensor may have both: queries that ranks have whole, and keys of which copies have parts.  What a group has is
 * added up, then laid into the whole.  An element that several groups have must be the same in all of
 * them; one that a rank has twice, or that some of a sum's ranks do not have, is an error.
 * report/checker.c, checker_route.c, difference.c, passes.c and singles.c put tensors together with it, and so does
 * recompute/own_pass.c.
 */
#ifndef ORRERY_ASSEMBLY_H
#define ORRERY_ASSEMBLY_H

#include "emulated_devices/check/dump/actual.h"
#include "emulated_devices/check/dump/devices.h"

/* Elements of which groups have different copies.  How far apart they are: a square norm. */
struct copies {
    int64_t elements;                   /* that are not the same number */
    double apart;                       /* the largest square norm of the difference of any group's copies */
    int64_t worst;                      /* the element that is furthest apart in that group */
    int rank[2];                        /* who has these numbers: the first rank that has it, and this group's first */
    double value[2];                    /**< Numbers of these two ranks. */
};

struct assembly {
    bool any;                           /* some rank has a piece */
    int64_t missing;                    /* elements on no rank */
    int64_t hole;                       /* the first of them */
    int parts;                          /* ranks whose pieces are added up, the most of any group */
    struct copies copies;               /**< Comparison of the copies of the ranks. */
};

enum { ASSEMBLY_NO_SUMS = -1 };

/* Who wants to see what groups have, before it is laid into the whole.  All may be NULL.  Groups count from 0. */
struct assembly_watch {
    /* see() gets consecutive elements, from index `at` of the whole on. */
    void (*see)(void *context, int group, const struct actual_piece *, int64_t at, int64_t length,
                const double *values);  /**< Called with consecutive elements. */
    /* The group is complete.  @param rank  [ranks] its members. */
    void (*end)(void *context, int group, const int rank[], int ranks); /**< Called when a group is complete. */
    void *context;                                                      /**< First argument of the functions. */
    double *absolute;                   /* [elements] of a sum: its parts' absolute values, added up; else its own */
    const struct devices *over;         /* these ranks' copies are laid over those of others; NULL: the first stay */
    const struct devices *last;         /* and those of these ranks over all; NULL: of none */
    struct devices *apart;              /* ranks whose copies are not the same as the first's are added; may be NULL */
    int part;                           /* 0: all is read.  k: of each sum only what its k-th rank has is added, and
                                         * nothing of what is no sum.  ASSEMBLY_NO_SUMS: only what is no sum */
    struct interval rows;               /* only these are put together: `whole` and `absolute` have no others; none: all
                                         * of them */
};

/**
 * Put a tensor together.
 * @param dim    its rows and columns.
 * @param whole  [dim[0] * dim[1]]; elements on no rank are not changed.  NULL: nobody wants it; then some rows are put
 *               together after the others, 20 bytes of each of 2^18 elements at a time, at least a row.
 * @return OK, also if there are holes or copies that differ; ERR_CHECK if pieces do not fit the tensor or each other,
 *         naming tensor, file or rank, and place; ERR_FORMAT, ERR_FILE, ERR_MEMORY.
 */
enum error_code assembly_make(struct assembly *, const struct actual *, const char *ours, const int64_t dim[2],
                              double *whole, const struct assembly_watch *, struct error *);

/** Put a frozen weight together without its adapters.  @return as assembly_make. */
enum error_code assembly_base(struct assembly *, const struct actual *, const char *ours, const int64_t dim[2],
                              double *whole, struct error *);

/** "dp=1 tp=0" of a mesh, "rank 3 (dp=1 tp=1)" of a dump.  @return out. */
const char *assembly_rank(const struct actual *, int rank, char *out, size_t size);

#endif
