/* mistake.h -- which usual mistake explains wrong numbers of a student's code, in words for the student.
 * trial.c calls mistake_explain for each wrong array; a lesson that compares parts of an array calls it, too.  judge.c
 * orders the hints of a check by what was found.  No function returns an error code: without an explanation the text
 * is empty.
 */
#ifndef ORRERY_COURSE_MISTAKE_H
#define ORRERY_COURSE_MISTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trial;

/* The mistakes that are told apart.  A hint of a check names those that it fits (struct check). */
enum mistake {
    MISTAKE_UNKNOWN,
    MISTAKE_TOO_LARGE,                  /* W times as much: a sum in place of a mean */
    MISTAKE_TOO_SMALL,                  /* a W-th: a mean in place of a sum, or a division too many */
    MISTAKE_UNWRITTEN,                  /* memory that nobody has written */
    MISTAKE_UNCHANGED,                  /* as it was before the call */
    MISTAKE_STALE,                      /* the result of a step before */
    MISTAKE_BYTES,                      /* a number of elements in place of a number of bytes */
    MISTAKE_NEIGHBOUR,                  /* what another device had */
    MISTAKE_MISSING,                    /* a sum without some device's numbers */
    MISTAKE_TWICE,                      /* a sum with some device's numbers twice */
    MISTAKE_TRANSPOSED,                 /* rows for columns */
    MISTAKE_SHIFTED,                    /* right numbers in a wrong place */
    MISTAKE_ORDER,                      /* only rounding differs: another order of additions */
    MISTAKE_DEADLOCK,                   /* devices that wait for each other */
    MISTAKE_LEAK,                       /* memory that was not released */
    MISTAKES
};

/* This is a set of mistakes, for the hints of a check: FITS(STALE) | FITS(UNCHANGED). */
#define FITS(name) (1u << MISTAKE_##name)

/* This is a wrong array, or a part of one. */
struct wrong {
    const float *got;                   /* [count] what came back */
    const double *want;                 /* [count] what is right */
    int64_t first, count;               /* where the part begins in buffer `buffer`; its length */
    int device, buffer;                 /* of the trial */
    bool exact;                         /* results are compared to the bit */
};

/**
 * Find the mistake that explains a wrong array.
 * @param to  becomes ": " and the explanation, or "".
 * @return the mistake; MISTAKE_UNKNOWN if none explains all wrong numbers.
 */
enum mistake mistake_explain(const struct trial *, const struct wrong *, char *to, size_t size);

/** A hint for a mistake in any lesson; NULL: there is none. */
const char *mistake_advice(enum mistake);

/** The word of a mistake in reports: "too large"; "" if it is unknown. */
const char *mistake_name(enum mistake);

#endif
