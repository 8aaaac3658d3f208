/* build.h -- a student's file becomes a worker's program.  Private to this folder. */
#ifndef ORRERY_COURSE_BUILD_H
#define ORRERY_COURSE_BUILD_H

#include "emulated_devices/course/judge.h"
#include <limits.h>

enum { COMPILE_SECONDS = 600 };         /* on the clock: a compiler that has not ended by then is stopped */

struct build { char folder[PATH_MAX / 2], worker[PATH_MAX], source[PATH_MAX]; };

/**
 * Compile a student's text in a new folder, look at what came out (object.h), and link it with worker.c and the
 * lesson's calls.c.
 * @param[out] b    .worker: the program, or "" if the text has to be changed: then `why` says how.
 * @return OK also then; ERR_FILE, ERR_MEMORY: nothing can be compiled at all.
 */
enum error_code build_worker(struct build *b, const struct lesson *, const char *text, size_t bytes,
                             const struct judging *, char *why, size_t size, struct error *);
void build_remove(struct build *);

/**
 * Whether an empty file becomes a program that runs, with the compiler and the user that students' files have.  Called
 * before a grader gives points; what is built here calls it when something does not compile.
 * @return OK or ERR_FILE, with what keeps it from working: that is nobody's mistake in a lesson.
 */
enum error_code check_compiler(bool kernels, const struct judging *, struct error *);

/** The folder tutorials/: $ORRERY_TUTORIALS, that of an installed program, or of the sources.
 *  @return OK or ERR_FILE. */
enum error_code course_folder(char *to, size_t size, struct error *);

/** The folder that has ref/ and emulated_devices/: ORRERY_INCLUDE, that of an installed program, or the sources.
 *  @return false: there is none. */
bool source_folder(char *out, size_t size);

/** In that folder: what compiles a file of kernels, for the judge of kernels. */
#define KERNEL_BUILD "emulated_devices/device/cuda/emulated/judge/build.sh"

/** What its exit status means, such as "does not compile". */
const char *kernel_build_failure(int status);

/**
 * Compile a student's kernels with the lesson's calls.cu and the judge of kernels: as build_worker.  The kernels can
 * call nothing of the system.
 * @return ERR_FILE also if there is no C++ compiler.
 */
enum error_code build_kernels(struct build *, const struct lesson *, const char *text, size_t bytes,
                              const struct judging *, char *why, size_t size, struct error *);

/** folder/inside; "" if that is too long. */
void path_of(char *to, size_t size, const char *folder, const char *inside);

#endif
