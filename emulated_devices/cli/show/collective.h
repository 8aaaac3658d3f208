/* collective.h -- `orrery show OP ALGO`: a collective, step by step, from its actual messages. */
#ifndef ORRERY_SHOW_COLLECTIVE_H
#define ORRERY_SHOW_COLLECTIVE_H

#include "ref/error.h"

/**
 * Run the subcommand: starts the devices that it shows.
 * @param argc,argv    all words of the program; argv[2] is the operation.
 * @param[out] status  the devices' exit status.
 * @return as a command_fn.
 */
enum error_code show_collective(int argc, char **argv, int *status, struct error *);

#endif
