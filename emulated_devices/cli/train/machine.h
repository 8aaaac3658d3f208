/* machine.h -- the machine of a search that names none: one that can hold the model.
 *
 * The usual cluster is for small models.  Who searches plans of a large one, and says neither --cluster nor --memory,
 * would read that nothing fits.  search.c and choose.c call these functions.
 */
#ifndef ORRERY_MACHINE_H
#define ORRERY_MACHINE_H

#include "emulated_devices/cli/train/train.h"

/* The command line that is taken in place of the given one. */
struct machine_words {
    char **argv;                        /* [argc]; NULL: the given one is taken.  To be freed when its options are */
    int argc;
    char why[320];                      /* which machine it is, and why; "": the usual one, or the one that was named */
};

/**
 * Parse the words of a command that searches plans.  If none of them names a machine, and the usual one cannot hold the
 * state of a step, they are parsed again for a larger machine, which is said in a line.
 * @param[out] words  begin as { .argv = NULL }.
 * @param kind  the command.
 * @param devices  where the command's option --devices is stored; 0: not given.
 * @param argc, argv  the words after the command's name.
 * @return OK; errors of the words; ERR_MEMORY.
 */
enum error_code machine_parse(struct machine_words *words, struct train_options *, const struct run_kind *kind,
                              const int *devices, int argc, char **argv, struct error *);

#endif
