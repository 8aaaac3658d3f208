/* course.h -- what orrery learn, grade and course share. */
#ifndef ORRERY_CLI_COURSE_H
#define ORRERY_CLI_COURSE_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/judge.h"
#include <limits.h>

enum { PUBLIC_SEED = 1, MOST_LESSONS = 100 };

/* A student's folder: where it is, and what it remembers (folder.c). */
struct folder {
    char path[PATH_MAX / 2];
    uint64_t variant;
    struct cJSON *progress;             /* by lesson: points, digest of the file, hints shown, of which check */
};

#define COURSE_FILE   "course.json"     /* marks the folder; has the variant */
#define PROGRESS_FILE ".progress.json"

/** The folder that `from` is, or is in.  @return OK; ERR_USAGE: none of them is a course's. */
enum error_code folder_open(struct folder *, const char *from, struct error *);
void folder_close(struct folder *);

struct progress {
    int tenths, of;
    int hints;                          /* shown, of `check` */
    const struct check *check;          /* the first that failed; NULL: none */
    bool tried, changed;
};

/** What is remembered of a lesson; changed: the file is not the one that was tried. */
struct progress folder_progress(const struct folder *, const struct lesson *);
enum error_code folder_remember(struct folder *, const struct lesson *, struct progress, struct error *);

/** folder/03_ring/ring.c */
void folder_file(const struct folder *, const struct lesson *, char *to, size_t size);

/** Print what came of a lesson: a line for each check, of those that failed why, and a drawing.
 *  @param hints  of the first failure, so many. */
void print_score(const struct score *, int hints, bool drawings);

/** Whether a list such as "1,3-5" names a lesson.  @return OK or ERR_USAGE; NULL: all. */
enum error_code lessons_chosen(const char *list, bool chosen[MOST_LESSONS], struct error *);

/* ---- results.c: reports for other programs.  Nothing in them depends on the time or the machine. ----------------- */

enum error_code write_gradescope(const char *path, const struct score *, int scores, struct error *);
enum error_code write_junit(const char *path, const struct score *, int scores, struct error *);

/* ---- trees.c ----------------------------------------------------------------------------------------------------- */

/** Write a student's tree into a new folder: pages, contracts, skeletons, of one variant; and pages on the words. */
enum error_code write_student_tree(const char *folder, uint64_t variant, struct error *);

/** Write a teacher's: solutions, mutants, hidden seed, what Gradescope and GitHub need. */
enum error_code write_teacher_tree(const char *folder, uint64_t variant, struct error *);

/** The text of a lesson's file in tutorials/, as a student or a teacher gets it.  @return for free(), or NULL. */
char *lesson_text(const struct lesson *, const char *file, bool solution, uint64_t variant, struct error *);

/* ---- prove.c ----------------------------------------------------------------------------------------------------- */

/** Try the grader: the skeleton must have 0 points, the solution all, each mutant must lose what it says.
 *  @param most  mutants of each lesson; 0: all.  @return OK, ERR_CHECK if one does not. */
enum error_code prove_lessons(const bool chosen[MOST_LESSONS], uint64_t variant, int most, bool sanitize,
                              struct error *);

#endif
