/* cli.h -- what the subcommands of orrery share. */
#ifndef ORRERY_CLI_H
#define ORRERY_CLI_H

#include "ref/error.h"
#include "ref/io/options.h"
#include <stdbool.h>

/* A subcommand.  argv: all words, argv[0] the program, argv[1] the subcommand.  It prints its result itself and returns an
 * error for main to say.  *status, 0 at first, is the exit status if there is no error: that of launched processes, which
 * have said themselves what went wrong. */
typedef enum error_code command_fn(int argc, char **argv, int *status, struct error *);
struct command {
    const char *name, *description;
    command_fn *run;
};

command_fn command_train, command_list, command_bench;

/** Print a subcommand's usage and its table of options to stdout. */
void print_usage(const char *command, const char *usage, const char *what, const struct option *table);

/* ---- launch.c: being many processes ------------------------------------------------------------------------------ */

/** Whether a launcher (mpiexec, srun) has started this process as one of several. */
bool under_launcher(void);

/** This process's rank as the launcher's environment tells it, before MPI is up; 0 without a launcher. */
int launcher_rank(void);

/** How many processes the launcher has started, or 0 if it does not say. */
int launcher_size(void);

/**
 * Run this program again, with the same words, on so many processes under mpiexec, and wait for it.
 * @param[out] status  its exit status.  What mpiexec itself prints of a process that died is replaced by one line that
 *                     names the device.
 * @return OK, or ERR_COMM if mpiexec cannot be started.
 */
enum error_code launch(int devices, int argc, char **argv, int *status, struct error *);

/** Tell the waiting launch() who is who: a line on stderr for each process, which launch() keeps to itself. */
void announce_process(int rank, const char *place);

/** Threads for this process when `ranks` processes share the machine: cores / ranks, at least 1; sets OpenMP and OpenBLAS. */
int use_cores(int ranks);

/** Whether output goes to a person's terminal, also when mpiexec stands in between. */
bool on_terminal(void);

#endif
