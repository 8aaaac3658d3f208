/* folder.h -- the folder of a student: what is in it, what it remembers, and how it is written; reports on it.  Files
 * of course/teacher/, cli/course/, cli/teacher/ and course/ call these functions. */
#ifndef ORRERY_COURSE_FOLDER_H
#define ORRERY_COURSE_FOLDER_H

#include "emulated_devices/course/judge.h"
#include <limits.h>

enum { PUBLIC_SEED = 1, MOST_LESSONS = 100 };

/* A student's folder: where it is, and what it remembers (folder.c). */
struct folder {
    char path[PATH_MAX / 2];            /* absolute */
    bool python;                        /* the student has begun in Python (course.json) */
    uint64_t variant; /* of the course: which of the variants of its texts and checks the student has */
    struct cJSON *progress;             /* by lesson: points, digest of the file, hints shown, of which check */
};

#define COURSE_FILE   "course.json"     /* marks the folder; has the variant */
#define PROGRESS_FILE ".progress.json"

/** The folder that `from` is, or is in.  @return OK; ERR_USAGE: none of them is a course's. */
enum error_code folder_open(struct folder *, const char *from, struct error *);
void folder_close(struct folder *);

struct progress {
    int tenths, of;                     /* points when the lesson was last checked, and all that it gives; in tenths */
    int best;                           /* the most points that it ever had, in tenths */
    int hints;                          /* shown, of `check` */
    const struct check *check;          /* the first that failed; NULL: none */
    bool tried, changed;                /* the lesson was checked; the file has changed since */
};

/** The remembered progress of a lesson; changed: the file is not the one that was tried. */
struct progress folder_progress(const struct folder *, const struct lesson *);
enum error_code folder_remember(struct folder *, const struct lesson *, struct progress, struct error *);

/** The name of the file that a student writes.  python: "ring.py", where the lesson has one; else "ring.c". */
void lesson_file(const struct lesson *, bool python, char *to, size_t size);

/** folder/03_ring/ring.c, or ring.py: that of the folder's language, unless only the other is there. */
void folder_file(const struct folder *, const struct lesson *, char *to, size_t size);

/** Whether a list such as "1,3-5" names a lesson.  @return OK or ERR_USAGE; NULL: all. */
enum error_code lessons_chosen(const char *list, bool chosen[MOST_LESSONS], struct error *);

/* ---- reports.c: reports for other programs.  Nothing in them depends on the time or the machine. ----------------- */

enum error_code write_gradescope(const char *path, const struct score *, int scores, struct error *);
enum error_code write_junit(const char *path, const struct score *, int scores, struct error *);

/* ---- trees.c ----------------------------------------------------------------------------------------------------- */

/** Write a student's folder, which must be new: pages, contracts, skeletons, of one variant; and pages on the words. */
enum error_code write_student_tree(const char *folder, bool python, uint64_t variant, struct error *);

/** Whether tutorials/ has what runs a lesson's file in Python. */
bool lesson_in_python(const struct lesson *);

/** A text of tutorials/ as it stands there.  @return for free(), or NULL. */
char *tutorial_text(const char *inside, struct error *);

/** The text of a lesson's file in tutorials/, as a student or a teacher gets it.  @return for free(), or NULL. */
char *lesson_text(const struct lesson *, const char *file, bool solution, uint64_t variant, struct error *);

/** Names of the files of a lesson that a student gets.  python: those in Python, where the lesson has them.
 *  @return how many; names[1] is the file that the student completes. */
int lesson_files(const struct lesson *, bool python, const char *names[LESSON_GIVEN + 3]);

/* These write into a folder of a course; inside: "" is the folder itself. */
enum error_code tree_make_folder(const char *folder, const char *inside, struct error *);
enum error_code tree_write_file(const char *folder, const char *inside, const char *text, struct error *);
enum error_code tree_copy_text(const char *folder, const char *from, const char *to, struct error *);
enum error_code tree_write_lesson(const char *folder, const struct lesson *, bool python, bool solution,
                                  uint64_t variant, struct error *);
enum error_code tree_write_mark(const char *folder, bool python, uint64_t variant, struct error *);

#endif
