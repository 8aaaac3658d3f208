/* cli.h -- what the subcommands of orrery share. */
#ifndef ORRERY_CLI_H
#define ORRERY_CLI_H

#include "ref/numeric/dtype.h"
#include "ref/error.h"
#include "ref/io/options.h"
#include <stdbool.h>

/* A subcommand.  argv: all words, argv[0] the program, argv[1] the subcommand.  It prints its result itself and returns
 * an error for main to say.  *status, 0 at first, is the exit status if there is no error: that of launched processes,
 * which have said themselves what went wrong. */
typedef enum error_code command_fn(int argc, char **argv, int *status, struct error *);
struct command {
    const char *name, *description;
    command_fn *run;
};

command_fn command_train, command_verify, command_check, command_show, command_bench, command_list, command_golden,
    command_dump;
command_fn show_sbp, show_tensor;       /* of command_show */

/* The option --cluster of every command that shows virtual time or whose algorithms follow nodes; the word is for
 * cluster_find.  what: what it is for, in few words. */
#define CLUSTER_OPTION(word, what) { "--cluster", "NAME|FILE", OPTION_STRING, &(word), \
                                     .help = what "; `orrery list clusters` shows them" }

/* The option --wait-limit of commands that run devices; seconds:
 * a double that holds wait_limit(the command's usual one). */
#define WAIT_LIMIT_OPTION(seconds) { "--wait-limit", "SECONDS", OPTION_DOUBLE, &(seconds), .min = 0.1, .max = 1e9, \
    .help = "end the job, and say which devices wait for which, when no device has computed and no message " \
            "has moved for so long" }
enum { SHORT_WAIT_LIMIT = 10 };         /* of commands whose devices write no large files */

/* ---- commands.c -------------------------------------------------------------------------------------------------- */

/** The command of a table, which ends with a NULL name.  @param of  what stands before the word: "" or "show ".
 *  @return NULL and ERR_USAGE in err if there is none; the nearest is suggested. */
const struct command *command_find(const struct command *table, const char *of, const char *word, struct error *err);

/** Print a subcommand's usage and its table of options to stdout. */
void print_usage(const char *command, const char *usage, const char *what, const struct option *table);

/** Names and descriptions, a line each, to stdout. */
void print_commands(const struct command *table);

/**
 * Run a command that consists of several: the one that argv[2] names gets all the words; its own begin at argv[3].
 * @param what         what they are, in one line, for the help.
 * @param has_default  without argv[2], or if that is a flag, run topics[0] as if it had been named; else show the help.
 */
enum error_code run_topic(const char *what, const struct command *topics, bool has_default, int argc, char **argv,
                          int *status, struct error *);


/* ---- process.c: being one of many processes ---------------------------------------------------------------------- */

/** First thing in main: streams, signals and environment as everything else expects them.
 * May start the program anew. */
void prepare_process(char **argv);

/** End main with this status.  A device of a launcher ends at once, without the exit handlers of libraries: one that
 *  dies there, after all its work, would end the job.  Others return.  After comm_close. */
int end_process(int status);

/** Of OpenBLAS's kernels those that fit this processor, if it has chosen much older ones; else NULL.  kernels.c */
const char *better_kernels(void);

/** Whether a launcher (mpiexec, srun) has started this process as one of several. */
bool under_launcher(void);

/** This process's rank as the launcher's environment tells it, before MPI is up; 0 without a launcher. */
int launcher_rank(void);

/** Tell the waiting launch_devices() which process is which device:
 * one line on stderr, which launch_devices() does not print. */
void announce_process(int rank, const char *place);
#define PROCESS_LINE "orrery-process "  /* how it begins */
/* how another begins: a process has ended without saying goodbye;
 * its signal, when, whether it lost its parent before */
#define LOST_LINE "orrery-lost "
enum { LINGER = 1 };                    /* seconds that a device goes on after it has said that it aborts */

/** Seconds without progress after which a job ends: what the environment says (ORRERY_WAIT_LIMIT),
 * else the usual ones. */
double wait_limit(double usual);

/** Let the environment say so, here and in every process that is started from here. */
void set_wait_limit(double seconds);

/** What --backend says becomes the usual backend of this process and of those that it starts; NULL: it stays as it is.
 *  @return OK, or ERR_USAGE naming the nearest. */
enum error_code set_backend(const char *name, struct error *);

/** Whether output goes to a person's terminal, also when mpiexec stands in between. */
bool on_terminal(void);

struct cluster;
struct comm;

/* What one device of a job does; asked: what its user asked for. */
typedef enum error_code device_fn(struct comm *world, const void *asked, struct error *);

/**
 * Be one device of a job from its beginning to its end: connect with the others, tell the launcher which device this
 * is, run, disconnect.  Collective over the processes of the job.  device.c
 * @param dtype    in which the device computes.
 * @param cluster  whose virtual time passes; NULL: none does.
 * @return what run returns, or why there is no device.
 */
enum error_code be_a_device(enum dtype dtype, const struct cluster *cluster, device_fn *run, const void *asked,
                            struct error *);

/* ---- launch.c: starting them ------------------------------------------------------------------------------------- */

/**
 * Run this program again, with the same words, on so many processes under mpiexec, and wait for it.
 *
 * Their output is passed on; what mpiexec itself prints is not.  A signal that stops this process stops all of them
 * first.  When the reader of the output is gone, or the signal was caught, this process ends by that signal.
 * @param[out] status  the devices' exit status.
 * @return OK if the devices have said themselves what went wrong; ERR_COMM if mpiexec cannot be started or a device
 *         died, which is named; ERR_FILE if the output cannot be written.
 */
enum error_code launch_devices(int devices, int argc, char **argv, int *status, struct error *);

/**
 * A file through which jobs hand over what they found: one a process, made by the first call.  It is removed when the
 * process ends, also if it is stopped or killed while a job runs.
 * @return its path, or NULL and ERR_FILE in err.
 */
const char *handover_file(struct error *err);

/* ---- lifeline.c: ending with those who have started us ----------------------------------------------------------- */

/** Tell processes that inherit a pipe's end which number it has, and which inode, since a device on another machine has
 *  something else under that number.  @param name  of the environment's variable. */
void tell_pipe(const char *name, int fd);

/** That end, or -1. */
int told_pipe(const char *name);

/** On Linux: this process is killed when its parent ends, also after an exec. */
void die_with_parent(void);

/** In a device, first of all: from now on it is killed when its launcher, mpiexec or the process
 * between them and it ends. */
void hold_lifeline(void);

/** In a device or its witness: whether MPICH's process that has started the device has ended. */
bool proxy_is_gone(void);

#endif
