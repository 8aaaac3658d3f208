/* judge.h -- a lesson's points for a file: compiles it, runs the checks, adds up.
 * emulated_devices/cli/course/ and course/teacher/ call judge_file for each file.  Wrong code is an outcome with its
 * reason; an error means that this machine cannot judge. */
#ifndef ORRERY_COURSE_JUDGE_H
#define ORRERY_COURSE_JUDGE_H

#include "emulated_devices/course/lesson.h"

/* GATED: its part's values are wrong.  SKIPPED: an earlier check failed, and only the first failure was asked for. */
enum verdict { NOT_TRIED, PASSED, FAILED, GATED, SKIPPED };

struct outcome {
    const struct check *check;          /* of the lesson */
    bool hidden;                        /* the check ran on inputs that students do not see */
    int tenths, of;                     /* points, in tenths: got, and can be got */
    enum verdict verdict; /* GATED: the part's first check failed; SKIPPED: an earlier failure ended the judging */
    char said[JUDGE_TEXT], drawing[JUDGE_DRAWING], lines[JUDGE_TEXT];   /* as in struct judge */
    enum mistake mistake;               /* as in struct judge */
    struct cost cost;                   /* as in struct judge */
};

struct score {
    const struct lesson *lesson;        /* that was judged */
    int count, tenths, of;              /* points in tenths */
    bool compiled;                      /* false: `why_not` says why nothing was tried */
    char why_not[4000];                 /* what the compiler, or the look at its object, said */
    struct outcome outcome[2 * LESSON_CHECKS];  /* [count] open checks, then hidden ones */
};

struct judging {
    uint64_t variant, seed, secret;     /* secret: the seed of hidden inputs; 0: there are none */
    const char *user;                   /* who the student's code runs as; NULL: as root "nobody", else as this user */
    bool sanitize, first_failure;       /* stop at the first check that fails */
    struct trial_kept *kept;            /* where a run is kept for a page (kept.h); NULL: nowhere */
    void (*after)(void *context, const struct score *);         /* after each check; may be NULL */
    void *context;                      /* first argument of after */
};

/** The points that there are, none of them reached: what a score is before anything runs. */
void score_begin(struct score *, const struct lesson *, const struct judging *);

/**
 * Judge one file.
 * @param path   the student's file; missing: 0 points, and the score says so.
 * @return OK, also for 0 points; else what keeps the judge from judging: ERR_FILE, ERR_MEMORY, ERR_USAGE.
 */
enum error_code judge_file(struct score *, const struct lesson *, const char *path, const struct judging *,
                           struct error *);

/** Judge a text as if it stood in a file.  @param python  the text is Python.  Other arguments and errors as for
 *  judge_file. */
enum error_code judge_source(struct score *, const struct lesson *, bool python, const char *text, size_t bytes,
                             const struct judging *, struct error *);

/** Hints for a check that failed: those that fit its mistake come first.  A mistake that no hint of the check fits has
 *  a hint for all lessons in front.  @param hint  [CHECK_HINTS + 1].  @return how many. */
int outcome_hints(const struct outcome *, const char *hint[]);

/** Add up what all open checks have cost. */
struct cost score_cost(const struct score *);

/** Write points, as "4" or "2.8". */
struct points_text { char text[16]; };
struct points_text points_text(int tenths);

#endif
