/* build.h -- a student's file becomes a worker's program.  judge.c builds and runs with it.
 * emulated_devices/cli/course/ and course/teacher/ ask for the lessons' folder and for a compiler; kernel_file.c and
 * plugin.c ask for the folder of Orrery's headers.  Nothing that a student wrote wrong is an error: ERR_FILE
 * means that this machine cannot build. */
#ifndef ORRERY_COURSE_BUILD_H
#define ORRERY_COURSE_BUILD_H

#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/judge.h"
#include <limits.h>

/* Seconds in which a command does not even want to compute, and seconds by the clock: then it is stopped.  On a busy
 * machine a command that computes for some seconds takes minutes; so the second number is large. */
enum { ASLEEP_SECONDS = 20, COMMAND_SECONDS = 300 };
enum { COMPILE_SECONDS = 600 };         /* by the clock, for a plug-in or kernels of whoever calls this program */
enum { RESULT_MOST = 32 << 20 };        /* bytes of a file that a compiler makes */
enum { USER_PROCESSES = 128 };          /* of the student's user: the system counts those of other commands, too */

/* For programs with sanitizers: a crash is one, and they look at no other process. */
#define SANITIZERS "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0"

#if defined __SANITIZE_ADDRESS__
enum { BUILT_WITH_SANITIZERS = 1 };     /* this program has as many addresses as there are, and reads /proc */
#else
enum { BUILT_WITH_SANITIZERS = 0 };
#endif

/* A folder of this process, which holds what a file becomes:
 *     in/    the student's file and its public headers: a compiler reads them
 *     with/  what it is linked with
 *     work/  the only folder in which a compiler can write
 *     run/   the program, which this process has taken from there
 *     root/  where the cage mounts its file system */
struct build {
    char folder[PATH_MAX / 2], worker[PATH_MAX], source[PATH_MAX], compiler[PATH_MAX];
    bool plus;                          /* C++ */
    bool python;                        /* nothing is compiled: `worker` is worker.py (python.c) */
    const char *user;                   /* as struct judging */
    bool sanitize;                      /* compile with AddressSanitizer and UndefinedBehaviorSanitizer */
};

/**
 * Compile a student's text in a new folder, look at what came out (object.h), and link it with worker.c and the
 * lesson's calls.c; all that in the cage.
 * @param[out] build    .worker: the program, or "" if the text has to be changed: then `why` says how.
 * @return OK also then; ERR_FILE, ERR_MEMORY: nothing can be compiled at all.
 */
enum error_code build_worker(struct build *build, const struct lesson *, const char *text, size_t bytes,
                             const struct judging *, char *why, size_t size, struct error *);
void build_remove(struct build *);

/** A program that was built sees this when it runs: itself and libraries.  Valid as long as the build. */
struct cage_view build_view(const struct build *);

/**
 * Whether an empty file becomes a program that runs, with the compiler and the user that students' files have.  Called
 * before a grader gives points; what is built here calls it when something does not compile.
 * @return OK or ERR_FILE, with what keeps it from working: that is nobody's mistake in a lesson.
 */
enum error_code check_compiler(bool kernels, const struct judging *, struct error *);

/** Find the folder tutorials/: $ORRERY_TUTORIALS, that of an installed program, or of the sources.
 *  @return OK or ERR_FILE. */
enum error_code course_folder(char *to, size_t size, struct error *err);

/** The folder that has ref/ and emulated_devices/: ORRERY_INCLUDE, that of an installed program, or the sources.
 *  @return false: there is none. */
bool source_folder(char *out, size_t size);

/** Run a compiler of whoever calls this program, outside of any cage, for COMPILE_SECONDS at most.
 *  @param words      [0] the program; ends with NULL.
 *  @param[out] status  the exit status; 127: there is no such program; -1: a signal has ended it.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code build_aside(char *const words[], int *status, struct error *);

/** As source_folder.  @return OK, or ERR_FILE saying that nothing can be compiled without it. */
enum error_code build_headers(char *out, size_t size, struct error *);

/** In that folder: what compiles a file of kernels, for the judge of kernels. */
#define KERNEL_BUILD "emulated_devices/device/cuda/emulated/judge/build.sh"

/** The meaning of its exit status, such as "does not compile". */
const char *kernel_build_failure(int status);

/**
 * Compile a student's kernels with the lesson's calls.cu and the judge of kernels: as build_worker.  The kernels can
 * call nothing of the system.
 * @return ERR_FILE also if there is no C++ compiler.
 */
enum error_code build_kernels(struct build *, const struct lesson *, const char *text, size_t bytes,
                              const struct judging *, char *why, size_t size, struct error *);

/** Keep an object that this process has compiled itself, for files that come later.
 *  @param made  its name in the folder.  @param[out] path  a new file of this process, to be removed; "": none.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code build_keep(const struct build *, const char *made, char *path, size_t size, struct error *);

/** Append to a compiler's messages which words of the text a lesson does not need (source.h).
 *  @param contract  "ring.h". */
void build_advise(char *why, size_t size, const char *text, const char *contract);

/** Join folder/inside; "" if that is too long. */
void path_of(char *to, size_t size, const char *folder, const char *inside);

/* ---- workshop.c: the folder, and commands in it ------------------------------------------------------------------ */

/** Make the folder, for this compiler.  @return OK; ERR_FILE: also if there is no such compiler, or no such user. */
enum error_code build_open(struct build *, bool kernels, const struct judging *, struct error *);

/** Make the folder, for a text that nobody compiles.  @return as build_open. */
enum error_code build_open_text(struct build *, const struct judging *, struct error *);

/** Write a text into the folder: "in/ring.c". */
enum error_code build_put(const struct build *, const char *name, const char *text, size_t bytes, struct error *);
/** Copy a file that is this program's own into the folder. */
enum error_code build_copy(const struct build *, const char *from, const char *name, struct error *);
/** Copy all files of a folder whose names end so: headers. */
enum error_code build_copy_all(const struct build *, const char *from, const char *end, const char *name,
                               struct error *);

/** Make work/ empty. */
enum error_code build_empty(const struct build *, struct error *);

/** Read a file in work/.  It is read only if it is a file, no link, and of at most so many bytes.
 *  @return its bytes for free(), or NULL with ERR_FILE. */
char *build_read(const struct build *, const char *name, size_t most, size_t *count, struct error *);

/** Take a file from work/ to another place in the folder, and make work/ empty.  @return as build_read, of RESULT_MOST
 *  bytes. */
enum error_code build_take(const struct build *, const char *name, const char *to, struct error *);

/* These are the words of a command line. */
enum { BUILD_WORDS = 48 };
struct words { const char *word[BUILD_WORDS]; int count; char text[400]; };
void add_word(struct words *, const char *word);
/** Add the words of the compiler; they stay in the struct. */
void add_compiler(struct words *, const char *compiler);

/**
 * Run a command in the cage, where it sees the compiler's files, and writes into work/.
 * @param linking  it also sees with/.
 * @param tree     more that it sees, absolute paths; may be NULL.
 * @param[out] why  what it says; empty if it has said nothing.
 * @param[out] how  as it ended.
 * @return whether it has ended well; `err`: it cannot run at all.
 */
bool build_run(struct words *, const struct build *, bool linking, const char *const tree[CAGE_READS], char *why,
               size_t size, int *how, struct error *);

/** Run the program run/worker, without words and in its view.  @return whether it ends with status 0. */
bool build_runs(const struct build *);

#endif
