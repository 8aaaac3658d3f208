/* lesson.h -- what a lesson is: its tasks, its checks with points and hints.
 *
 * A lesson is a folder of tutorials/ (docs/adding/README.md says what is in it).  Its check.c defines a struct lesson,
 * which the Makefile finds and registers.  Checks are part of this program.  A student's code is not: it runs in
 * processes of its own, and a check only gets what came back, and what was counted (trial.h).
 * emulated_devices/cli/course/ lists and finds lessons; judge.c runs their checks; the check.c of each lesson
 * defines one.
 */
#ifndef ORRERY_LESSON_H
#define ORRERY_LESSON_H

#include "emulated_devices/course/mistake.h"
#include "emulated_devices/course/trial.h"
#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { JUDGE_TEXT = 1600, JUDGE_DRAWING = 6000, CHECK_HINTS = 4 };
enum { LESSON_CHECKS = 24, LESSON_VARIES = 6, LESSON_GIVEN = 12 };

struct cage;
struct trial_kept;
struct cage_view;
struct command_request;

/* These are the costs of runs, added up: a right solution is compared by them. */
struct cost {
    picoseconds time;                   /* virtual, of the slowest device of each run */
    uint64_t messages, bytes;           /* sent, by all devices */
    uint64_t peak;                      /* most bytes that a device had allocated at once, in any run */
};

/* A check sees this, and says what it has to say here.  One check runs in a process of its own. */
struct judge {
    const struct lesson *lesson;        /* the check's */
    const struct check *check;          /* that runs */
    const char *worker;                 /* program with the student's functions; NULL: the lesson is a text */
    const char *text;                   /* of the student's file, without NUL characters */
    struct command_request *request;    /* of a text: what command.h asks for; NULL: commands cannot be run */
    int asks, hears;                    /* ends of pipes: a byte says that the request, or its answer, is there */
    uint64_t seed;                      /* of inputs: another one if they are hidden */
    bool hidden;                        /* inputs that the student has not seen: also draw other sizes */
    uint64_t variant;                   /* of the course */
    const struct cage_view *view;       /* of the student's program (cage.h); of a text: nothing */
    const struct cage *cage;            /* which the check's process has entered */
    bool caged;                         /* false: under sanitizers */
    bool is_python;                     /* the student's file is one in Python: python.c runs it */
    int python;                         /* socket of worker.py, which this check has started; 0: not yet */
    int32_t python_process;             /* of worker.py */
    double python_seconds;              /* of processor, that its copies took in this check */
    char broken[JUDGE_TEXT];            /* why nothing could be tried; nobody's mistake in a lesson */
    double computed;                    /* seconds of processor that the lesson's runs took in earlier checks */
    uint64_t stream;                    /* of random numbers, known from the first on */
    uint64_t drawn;                     /* numbers so far: judge_draw */
    bool failed;                        /* judge_fails was called; the first failure counts */
    char said[JUDGE_TEXT];              /* why it failed: with numbers, for the student */
    char drawing[JUDGE_DRAWING];        /* of the run that failed */
    char lines[JUDGE_TEXT];             /* what the student's code said */
    struct trial_kept *kept;            /* where a run is kept (kept.h); NULL: nowhere */
    enum mistake mistake;               /* that explains the failure, if one does */
    struct cost cost;                   /* of the check's runs */
};

/* A check: what must hold, and what it is worth.  All checks of a part whose first one (values) failed are worth 0. */
struct check {
    int part;                           /* 1, 2, ..: parts can be solved apart from each other */
    const char *name;                   /* one word, as mutants and results name it: "values" */
    const char *title;                  /* what holds, as a sentence without its full stop */
    int points;                         /* what it is worth, in whole points */
    struct {                            /* what it does: { try_ring, AT_SENT, GATHER } */
        void (*run)(struct judge *);    /* tries the student's functions and reports by judge_fails */
        int look, what;                 /* for that function: what it compares, and in which task of the lesson */
    };
    const char *hint[CHECK_HINTS];      /* from a question to nearly the answer */
    uint32_t fits[CHECK_HINTS];         /* the mistakes that a hint is about: FITS(STALE); it comes first after them */
};

/* A choice that differs between courses.  Files of the lesson have its alternatives (annotated.h), as many as here;
 * variant 0 takes the first. */
struct vary { const char *name; int choices; };

struct lesson {
    const char *folder;                 /* "03_ring": its number and name */
    const char *title;                  /* one line for lists */
    const char *file;                   /* what the student writes, in that folder: "ring.c", or a text */
    const char *const *functions;       /* all that it may define, ends with NULL; NULL: it is a text */
    const char *calls;                  /* text that reaches the functions; NULL: calls.c of the folder */
    const char *given[LESSON_GIVEN];    /* other files of the lesson that students get; they do not hand them in */
    struct vary vary[LESSON_VARIES];    /* choices that differ between courses */
    struct check check[LESSON_CHECKS];  /* ends with an empty one */
};

/* All lessons, in the order of their folders; ends with NULL.  Generated by the Makefile from tutorials/. */
extern const struct lesson *const lessons[];

int lesson_number(const struct lesson *);
int lesson_points(const struct lesson *);

/** Whether its file is one of CUDA kernels: it has no functions, and ends with ".cu" (kernel.h). */
bool lesson_has_kernels(const struct lesson *);

/** Find the lesson of a word: "3", "03", "03_ring", "ring".  @return NULL with ERR_USAGE. */
const struct lesson *lesson_find(const char *word, struct error *);

/** The alternative of a choice that a variant of the course has: 0 .. choices-1.  Variant 0 has 0. */
int lesson_choice(const struct lesson *, const char *name, uint64_t variant);

/* ---- for checks -------------------------------------------------------------------------------------------------- */

/** Numbers of devices to try: 1 2 3 4 5 7 8, ends with 0. */
extern const int COURSE_DEVICES[];

/** Whether the student's code has used up the processor time of a lesson: then the check fails, and says so.  Before
 *  each run of it.  Time on the wall is no measure: it depends on what else a machine does. */
bool judge_used_up(struct judge *);

/** The check fails, for this reason; only the first one counts.  @return false. */
bool judge_fails(struct judge *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Make the choice of this course; see struct vary. */
int judge_choice(const struct judge *, const char *name);

/** Draw the next number of the inputs, in low .. high. */
int64_t judge_draw(struct judge *, int64_t low, int64_t high);

/** Fill an array with whole numbers in -range .. range: their sums are exact in fp32 in every order, up to 2^24. */
void judge_whole(struct judge *, float *x, int64_t count, int range);
/** Fill an array with numbers whose sums are not exact: the order of additions shows in the bits. */
void judge_rough(struct judge *, float *x, int64_t count);

/** a times b, rounded: no compiler makes a fused multiply-add of it, as the student's has none. */
static inline float judge_times(float a, float b)
{
    const volatile float product = a * b;
    return product;
}

/** C[m,n] = A[m,k] B[k,n] with the bits of matrix_product in course.h.  across_a: A is stored as [k,m]; across_b: B as
 *  [n,k]. */
void judge_matrix_product(float *C, const float *A, const float *B, int64_t m, int64_t k, int64_t n, bool across_a,
                          bool across_b);

#endif
