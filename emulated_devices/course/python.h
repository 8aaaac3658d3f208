/* python.h -- a student's file in Python: finds python3 with numpy, looks at the text, and runs it on devices.
 *
 *     judge.c    build_python, python_close      a file, and a check
 *     serve.c    python_start_devices, python_status     one run, in the process that has the devices
 *     trial.c    python_end_run
 *
 * A check starts tutorials/worker/worker.py once, in the cage: it loads numpy, which takes longer than a run.  For each
 * run it makes a copy of itself for each device.  Nothing that a student wrote wrong is an error: ERR_USAGE means that
 * this machine has no python3 with numpy, ERR_FILE that it cannot be locked in.
 */
#ifndef ORRERY_COURSE_PYTHON_H
#define ORRERY_COURSE_PYTHON_H

#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/judge.h"
#include "emulated_devices/course/trial.h"

/* A check asks worker.py over a socket, in two whole numbers: this kind, and a number.
 * PYTHON_RUN: of devices, whose sockets come with it.  PYTHON_STATUS: of a process; the answer is how it ended.
 * PYTHON_END: none; the answer is the seconds of a processor that all copies have taken so far, a double. */
enum python_asked { PYTHON_RUN = 1, PYTHON_STATUS, PYTHON_END };

/* Computing in Python takes longer than in C: so many times the seconds of a lesson in C. */
enum { PYTHON_TIMES = 4 };

/** The name of a lesson's file in Python: "ring.py".  @return false: the lesson is a text, or one of kernels. */
bool python_file(const struct lesson *, char *to, size_t size);

/** Whether a path is that of a file in Python. */
bool is_python(const char *path);

/** Find python3: PYTHON, or the first one of PATH that has numpy.  The result is kept.  @return OK; ERR_USAGE:
 *  there is none. */
enum error_code python_find(struct error *);

/** Lay out a folder for a student's text, and try the text: whether it can be read, and has the lesson's functions.
 *  @return as build_worker; ERR_USAGE, ERR_FILE: this machine cannot run it. */
enum error_code build_python(struct build *, const struct lesson *, const char *text, size_t bytes,
                             const struct judging *, char *why, size_t size, struct error *);

/** A student's processes see this: python3, its libraries, and the folder.  Valid as long as the build. */
struct cage_view python_view(const struct build *);

/** In the process of a check: start worker.py if it does not run yet.  @return false: `why` says what keeps it. */
bool python_open(struct judge *, char *why, size_t size);

/** End worker.py, and all that it has started. */
void python_close(struct judge *);

/** In the process of a run: give each device's process its end of a socket.  @return 0, or an errno. */
int python_start_devices(const struct trial *, const int *ends);

/** How a device's process has ended, as waitpid says it; -1: worker.py is gone. */
int python_status(const struct trial *, int32_t process);

/** After a run: end its devices' processes, and add up what they took (struct judge, python_seconds).
 *  @param first  the process of device 0; 0: none has started. */
void python_end_run(struct judge *, int32_t first);

#endif
