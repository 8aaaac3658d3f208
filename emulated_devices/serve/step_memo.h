/* step_memo.h -- how long iterations take, so that a run without numbers need not go through all layers again.
 *
 * On a replica of one device, the time of an iteration depends on three numbers: its rows, those whose logits are asked
 * for, and the time of the attention kernel, which each of L layers starts once.  With the first two fixed, the time is
 * built of this kernel's time by sums and maxima alone.  So as a function of the kernel's time it is convex, and no
 * steeper than L.  If three iterations of equal rows lie on a line, then so do all between the first and the third,
 * exactly; and if the line is as steep as L, all beyond, too.
 *
 * Sequences grow, so kernels become longer.  Therefore two iterations are computed, and the second is tried once more
 * with a longer kernel, whose time alone counts.  What is on no line is computed.  engine.c calls these functions.
 */
#ifndef ORRERY_STEP_MEMO_H
#define ORRERY_STEP_MEMO_H

#include <stdbool.h>
#include <stdint.h>

/* An iteration, as far as its time depends on it. */
struct step_key {
    int64_t rows, asked;                /* its rows; those with logits */
    int64_t kernel;                     /* time of attention in a layer, in picoseconds */
    int64_t room;                       /* memory for keys, in rows: as much must be taken once, beside as many rows, so
                                         * that peaks of memory are those of all iterations */
};

struct step_times;

enum { STEP_ENTRIES = 8192, STEP_SIZES = 40 };

struct step_memo {
    struct step_times *entry;           /* [STEP_ENTRIES] of kinds of iterations; NULL: no memo */
    int64_t room[STEP_SIZES];           /* the most of iterations that were computed, with 2^i rows or more */
};

/** @return false without memory. */
bool step_memo_open(struct step_memo *);
void step_memo_close(struct step_memo *);

/** The time of an iteration, in picoseconds.  @return false: it must be computed. */
bool step_memo_find(const struct step_memo *, const struct step_key *, int64_t *takes);

/** An iteration was computed, and took so long.  @param layers  that have started its kernel. */
void step_memo_note(struct step_memo *, const struct step_key *, int64_t layers, int64_t takes);

/** The kernel with which an iteration that was computed is worth another try, in picoseconds; 0: none. */
int64_t step_memo_try(const struct step_memo *, const struct step_key *);

/** The last iteration that was noted was tried with the key's kernel, and took so long. */
void step_memo_tried(struct step_memo *, const struct step_key *, int64_t takes);

#endif
