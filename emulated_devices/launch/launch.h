/* launch.h -- starts the devices of a job as processes of this program, watches them, and ends them: the only room
 * that starts one.  Files of cli/, bench/, launch/, run/ and other rooms call these functions. */
#ifndef ORRERY_LAUNCH_H
#define ORRERY_LAUNCH_H

#include "ref/error.h"
#include "ref/machine/threads.h"
#include "ref/numeric/dtype.h"
#include <stdbool.h>

/* ---- process.c: one of many processes ---------------------------------------------------------------------------- */

/** Call first in main: sets up streams, signals and environment.  May restart the program. */
void prepare_process(char **argv);

/** End main with this status.  A device of a launcher ends at once, without the exit handlers of libraries: one that
 *  dies there, after all its work, would end the job.  Others return.  After comm_close. */
int end_process(int status);

/** The OpenBLAS kernels for this processor, if OpenBLAS would choose much older ones; else NULL.  kernels.c */
const char *better_kernels(void);

/** Tell the waiting launch_devices() this process's rank and place: one line on stderr, which launch_devices() does not
 *  print. */
void announce_process(int rank, const char *place);
#define PROCESS_LINE "orrery-process "  /* its beginning */

/** Tell it that this process, rank 0, ends the run after its step if it gets one of two signals: that stand for those
 *  which the launcher got. */
void announce_stopping(void);

/** Tell it that this process, rank 0, has said all that the run has to say.  A death afterwards changes nothing. */
void announce_end(int status);
#define STOPS_LINE "orrery-stops "
#define ASKED_BY_INT SIGUSR1
#define ASKED_BY_TERM SIGUSR2

/* the beginning of the line that says on which host a rank is */
#define END_LINE "orrery-end "          /* status: on standard output, behind all else that the run says */
#define HOST_LINE "orrery-host "
#define STARTING "starting"             /* the place of a device whose MPI has not started */
/* the beginning of the line about a process that ended without a last message: its signal, when, whether it had lost
 * its parent, its rank */
#define LOST_LINE "orrery-lost "
enum { LINGER = 1 };                    /* seconds that a device waits after it has announced that it aborts */

/** Seconds without progress after which a job ends: from the environment (ORRERY_WAIT_LIMIT), else the default. */
double wait_limit(double usual);

/** Seconds without a device that gets further while devices start, or of a mpiexec whose devices have ended, until
 *  launch_devices() ends the job (ORRERY_START_LIMIT).  It ends the job after a twentieth of it if mpiexec has said
 *  that it cannot start a device.  After a tenth of it, it says that no device has reported. */
double start_limit(void);

/** Set the wait limit in the environment, for this process and all processes that it starts. */
void set_wait_limit(double seconds);

/** Make --backend the default backend of this process and of those that it starts; NULL: no change.
 *  @return OK, or ERR_USAGE naming the most similar. */
enum error_code set_backend(const char *name, struct error *);

/** Whether output goes to a terminal, also if mpiexec is in between. */
bool on_terminal(void);

struct cluster;
struct comm;

/* The work of one device of a job; asked: the user's options. */
typedef enum error_code device_fn(struct comm *world, const void *asked, struct error *);

/**
 * Run one device of a job: connect with the others, tell the launcher this device's rank, run, disconnect.  Collective
 * over the processes of the job.  device.c
 * @param dtype    the device's number format.
 * @param cluster  for virtual time; NULL: no virtual time.
 * @return the error of run, or why there is no device.
 */
enum error_code be_a_device(enum dtype dtype, const struct cluster *cluster, device_fn *run, const void *asked,
                            struct error *);

/* ---- launcher.c: who started this process ------------------------------------------------------------------------ */

/** Call before any file is opened: removes variables by which a launcher told another process its rank. */
void launcher_forget_others(void);

/** Whether a launcher (mpiexec, srun) has started this process as one of several.  After launcher_forget_others. */
bool under_launcher(void);

/** This process's rank from the launcher's environment, before MPI is initialised; 0 without a launcher. */
int launcher_rank(void);

/** The number of the socket to a PMI launcher, PMI_FD.  @return -1: there is none, or this process has closed it. */
int launcher_line(void);

/** Whether the other end of launcher_line() was made by this process's parent, such as MPICH's proxy (Linux). */
bool launcher_is_parent(void);

/* ---- launch.c: starting devices ---------------------------------------------------------------------------------- */

/**
 * Run this program again, with the same words, as several processes under mpiexec, and wait for it.
 *
 * Their output is passed on; what mpiexec itself prints is not.  A signal that stops this process first stops all of
 * them.  After a caught signal, this process ends by that signal.  If the reader of the output has gone, the rest of
 * the output is dropped, and the devices finish.
 * @param[out] status  the devices' exit status.
 * @return OK if the devices have printed their own errors; ERR_COMM if mpiexec cannot be started, or a device died,
 *         which is named; ERR_FILE if the output cannot be written.
 */
enum error_code launch_devices(int devices, int argc, char **argv, int *status, struct error *);

/** Whether this process may start devices.  @return OK; ERR_COMM: it is one of srun's tasks that do not know of each
 *  other, or a launcher started it that does not tell its rank. */
enum error_code launch_check(struct error *);

/* How a job has ended whose process was killed: a device, mpiexec or what stands between them. */
struct job_death {
    double when;                        /* by measure_now() */
    const char *what;                   /* the line that says so */
    bool ended;                         /* the run had said all it had to say (announce_end), */
    int status;                         /* with this exit status */
};

/** Whether the devices are started again.  All processes of the job have ended. */
typedef bool launch_again_fn(void *context, const struct job_death *);

/** The same, but a job of which a process was killed ends at once, and `again` is asked whether it begins anew.
 *  @return as launch_devices, of the last job. */
enum error_code launch_devices_again(int devices, int argc, char **argv, launch_again_fn *again, void *context,
                                     int *status, struct error *err);

/**
 * Run this program with other words, without input and output, and wait for it.
 * @param words  [0] the program, then its words; ends with NULL.
 * @param limit  seconds until it is stopped, with what it started.
 * @return OK, or ERR_COMM with its own error: it did not end with status 0; or its words, if it was stopped, which of
 *         its processes computed, in what others waited, and the last that they had said.
 */
enum error_code run_aside(const char *const *words, double limit, struct error *err);

/**
 * The last words of a process that a signal stops, when its children (ref/io/child.h) have ended: says so, removes its
 * temporary files, and ends by the signal, so that a shell sees it.
 */
void end_by_signal(int number);

/**
 * An empty file that is removed when this process ends, also if it is stopped or killed while a job runs.
 * @return its path, or NULL and ERR_FILE or ERR_MEMORY in err.
 */
const char *temporary_file(struct error *err);

/** The file in which jobs leave their results: one per process, created by the first call.  As temporary_file. */
const char *handover_file(struct error *err);

/* ---- lifeline.c: ending with the processes that started us ------------------------------------------------------- */

/** Tell processes that inherit a pipe's end its number and its inode: a device on another machine has another file with
 *  that number.  @param name  of the environment variable. */
void tell_pipe(const char *name, int fd);

/** The number of that end, or -1. */
int told_pipe(const char *name);

/** On Linux: this process is killed when its parent ends, also after an exec. */
void die_with_parent(void);

/** In a device, before anything else: from now on it is killed when its launcher, mpiexec or the process between
 *  mpiexec and it ends. */
void hold_lifeline(void);

/** In a device or its witness: whether MPICH's proxy, which started the device, has ended. */
bool proxy_is_gone(void);

#endif
