/* class.h -- grades the submissions of a class: some at a time, each file once, with a table of points.
 * cli/course/grade.c calls class_grade; similar.c compares the files.  A submission that is wrong, or that nothing can
 * be done with, is a row of the table and never an error. */
#ifndef ORRERY_COURSE_CLASS_H
#define ORRERY_COURSE_CLASS_H

#include "emulated_devices/course/class/submissions.h"
#include "ref/io/sha256.h"

/* The result of a student's file of a lesson. */
enum file_state { FILE_MISSING, FILE_WAITS, FILE_RUNS, FILE_GRADED, FILE_BROKEN };
struct file_result {
    enum file_state state;              /* FILE_BROKEN: the machine could not judge it, and `result` is NULL */
    struct sha256_text key;             /* of the file, the lesson, the variant, the secret and the program */
    struct cJSON *result;               /* what class.c keeps; NULL: none */
    bool again;                         /* to be judged although there is a result */
    int tenths, of;                     /* points, in tenths */
};

struct class_grading {
    const char *folder, *lessons;       /* of submissions; a list; NULL: all */
    const char *csv, *json, *similar;   /* reports; NULL: none.  similar: a folder */
    const char *roster, *results;       /* names and variants; the folder that keeps results; NULL: no roster, the usual
                                         * place */
    const char *secret, *user;          /* as in struct grading */
    const char *regrade;                /* a student's name, or "all": judge again; NULL: only what is new */
    bool sanitize, own_code;            /* as in struct grading */
    int jobs;                           /* files that are judged at the same time */
    uint64_t variant;                   /* of students whom the roster does not name */
    void (*graded)(const struct class_grading *, const struct submission *, int tenths, int of);  /* of whom all is
                                                                                                   * judged */
    /* results */
    bool chosen[MOST_LESSONS];          /* lessons */
    struct submissions all;             /* students */
    struct file_result *file;           /* [students x MOST_LESSONS] */
    int judged, kept, broken;           /* files that ran, that had a result, that could not be judged */
    int stopped;                        /* the signal that ended it early; 0: none */
};

/** The result of a student's lesson.  @param lesson  index of lessons[]. */
struct file_result *class_file(const struct class_grading *, int student, int lesson);

/** Points of a student over the chosen lessons, in tenths.  @return false: a lesson was not judged yet. */
bool class_points(const struct class_grading *, int student, int *tenths, int *of);

/**
 * Grade a class.  Reports are written at the end, also after a signal; the table also while grading goes on.
 * @return OK, whatever points there are; ERR_USAGE, ERR_FILE, ERR_FORMAT, ERR_MEMORY: of the arguments, the folder, the
 *         roster or a report.  class_free follows in both cases.
 */
enum error_code class_grade(struct class_grading *, struct error *);
void class_free(struct class_grading *);

/* ---- class_reports.c --------------------------------------------------------------------------------------------- */

/** Write the table: name, variant, points of each lesson, the sum, a note.  Cells that a spreadsheet would compute are
 *  texts there.  @return OK or the error of the file. */
enum error_code class_write_csv(const struct class_grading *, struct error *);

/** Write students, results of checks, and how many files each check fails for. */
enum error_code class_write_json(const struct class_grading *, struct error *);

/** Print which checks fail for how many, those that fail most first. */
void class_print_checks(const struct class_grading *, int most);

/* ---- similar.c --------------------------------------------------------------------------------------------------- */

/** Write similar.json and similar.html: pairs of files that have much in common. */
enum error_code class_write_similar(const struct class_grading *, struct error *);

#endif
