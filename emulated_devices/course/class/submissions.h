/* submissions.h -- the submissions of a class in a folder: whose they are, and where each lesson's file is.
 *
 *     FOLDER/ann/03_ring/ring.c                               a folder for each student
 *     FOLDER/submission_101/ring.c, submission_metadata.yml   Gradescope's export
 *     FOLDER/Ann Lee_1234_assignsubmission_file/ring.c        Moodle's
 *     FOLDER/leeann_123_456_ring.c                            Canvas's: files of all students side by side
 *
 * class.c calls these functions.  Links are not followed, and nothing outside of the folder is read.
 */
#ifndef ORRERY_COURSE_SUBMISSIONS_H
#define ORRERY_COURSE_SUBMISSIONS_H

#include "emulated_devices/course/folder.h"

enum { STUDENT_NAME = 120 };

/* This is one student of a class, with the files that are handed in. */
struct submission {
    char name[STUDENT_NAME];            /* as the export or the roster has it */
    uint64_t variant;                   /* of this student's course */
    bool on_roster;                     /* the roster has this name, or there is no roster */
    char note[160];                     /* what a teacher should know: "no submission"; "" */
    char *file[MOST_LESSONS];           /* by index of lessons[]: path of the file, or NULL */
};

struct submissions { struct submission *of; int count, room; };

/**
 * Find the submissions in a folder, in the order of their names.
 * @param chosen   which lessons are looked for.
 * @param roster   a file with a line "name,variant" for each student, or NULL.  Names on it without files are
 *                 submissions without files; names that it lacks get `variant`.
 * @return OK; ERR_FILE: the folder or the roster cannot be read; ERR_USAGE: it is no folder, or nothing is in it;
 *         ERR_FORMAT: a line of the roster is none; ERR_MEMORY.  After an error there is nothing to free.
 */
enum error_code submissions_find(struct submissions *, const char *folder, const bool chosen[MOST_LESSONS],
                                 const char *roster, uint64_t variant, struct error *);

void submissions_free(struct submissions *);

#endif
