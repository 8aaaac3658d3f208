/* grade.h -- grades a submission: reads its files, judges each lesson, and writes reports.  cli/course/grade.c calls
 * these functions. */
#ifndef ORRERY_COURSE_GRADE_H
#define ORRERY_COURSE_GRADE_H

#include "emulated_devices/course/judge.h"

struct grading {
    const char *submission, *lessons;   /* a folder or a file; a list; NULL: all */
    const char *json, *junit;           /* reports; NULL: none */
    const char *language;               /* "c" or "python": which file counts where both are there; NULL: see grade.c */
    const char *secret, *user;          /* a file that hidden inputs are drawn from; who runs the code; NULL: default */
    bool sanitize, own_code;            /* compile with sanitizers; the code is trusted */
    uint64_t variant;                   /* of the course */
    void (*graded)(const struct score *);       /* is told of each lesson; NULL: nobody */
    int tenths, of;                     /* result: all points */
    struct score *score;                /* of each chosen lesson */
    int scores;                         /**< Entries of `score`. */
    int found;                          /* result: lessons whose file is in the submission */
    enum error_code broken;             /* a report could not be written */
    struct error *err;                  /**< Message of the error in `broken`. */
};

/** Grade a submission.  @return OK, also without points; ERR_USAGE, ERR_FILE, ERR_MEMORY: nothing was graded. */
enum error_code grade(struct grading *, struct error *);

/* ---- for a class ------------------------------------------------------------------------------------------------- */

/** Read the seed of hidden inputs from a file, which may have any bytes.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code grade_secret(const char *path, uint64_t *seed, struct error *);

/**
 * Whether the chosen lessons can be compiled, or run by python3, here: otherwise nobody gets 0 points.
 * @param grading  whose files say which languages; NULL: a class, whose files in C are looked at.
 * @param chosen   [MOST_LESSONS]
 * @return OK; ERR_FILE; ERR_USAGE: there is no python3 with numpy.
 */
enum error_code grade_compilers(const struct grading *grading, const struct judging *, const bool *chosen,
                                struct error *);

#endif
