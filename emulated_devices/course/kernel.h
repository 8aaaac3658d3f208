/* kernel.h -- lessons whose exercise is a file of CUDA kernels: `.file` ends with ".cu", and there are no functions.
 *
 * The kernels run on this machine's cores, in a process of their own, and each of their accesses is watched
 * (docs/authors/backends.md, "The judge").  That process has limits of time, memory and files, and the rights of
 * --user; the kernels cannot call anything of the system (judge/build.sh).
 * Checks of lessons 19 and 20 call it.  A run that does not come back fails the check.  tutorials/19_scan/check.c and
 * tutorials/20_warps/check.c call these functions.
 */
#ifndef ORRERY_COURSE_KERNEL_H
#define ORRERY_COURSE_KERNEL_H

#include "emulated_devices/course/lesson.h"

enum { KERNEL_NUMBERS = 4, KERNEL_MOST = 1 << 16 };

/* One call, and what came of it. */
struct kernel_trial {
    int which;                          /* of calls.cu */
    int number[KERNEL_NUMBERS];         /* for it */
    const char *order;                  /* of threads: "forward", "reverse", a number */
    const float *x;                     /* [n] */
    int n, m;                           /* numbers of x and of y */
    float y[KERNEL_MOST];               /* [m] */
    int reports;                        /* of the judge */
    char report[JUDGE_TEXT];            /* the first one, or the first that ends a program on a GPU */
    long accesses;                      /* the most that one thread made, of memory that other threads see */
};

/** Run a call.  @return false: it has not come back, or would not on a GPU, and the check has failed. */
bool kernel_try(struct judge *, struct kernel_trial *);

/** The check fails, for this reason; behind it stands what the judge of kernels has seen first, if anything.
 *  @return false. */
bool kernel_fails(struct judge *, const struct kernel_trial *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A hint to what a result may mean, to be written behind it; "" if nothing is strange about it. */
const char *kernel_meaning(float);

#endif
