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
    int scores;
    enum error_code broken;             /* a report could not be written */
    struct error *err;
};

/** Grade a submission.  @return OK, also without points; ERR_USAGE, ERR_FILE, ERR_MEMORY: nothing was graded. */
enum error_code grade(struct grading *, struct error *);

#endif
