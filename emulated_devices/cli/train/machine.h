/* machine.h -- the machine of a search that names none: one that can hold the model.
 *
 * The usual cluster is for small models.  Who searches plans of a large one, and says neither --cluster nor --memory,
 * would read that nothing fits.  search.c calls these functions.
 */
#ifndef ORRERY_MACHINE_H
#define ORRERY_MACHINE_H

#include "emulated_devices/run/run.h"
#include "ref/error.h"

/* The command line that is taken in place of the given one. */
struct machine_words {
    char **argv;                        /* [argc]; NULL: the given one is taken.  To be freed when its options are */
    int argc;
    char why[320];                      /* which machine it is, and why; "": the usual one, or the one that was named */
};

/**
 * Choose the machine, if no word does and the usual one cannot hold the state of a step that was parsed.
 * @param devices  of the search.
 * @param argc, argv  the words after the command's name.
 * @return OK or ERR_MEMORY.
 */
enum error_code machine_choose(struct machine_words *, const struct train_options *, int devices, int argc, char **argv,
                               struct error *);

#endif
