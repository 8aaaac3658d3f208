/* arrivals.h -- the files of a dump that a running program writes into a folder, step by step.
 *
 * Serial.  A file belongs to one step, which the names of its tensors say, and to one rank, which its metadata says.
 * Writers give a file its name, NAME.safetensors, when it is whole (docs/checking/dumps.md); files with other names are
 * not opened.  A step is there when each rank of the mesh has a file of it.  A rank writes its steps in order, so a
 * step is gone if a rank has a later step and not this one.
 *
 * The first step of a resumed program is the step after "begins", which each of its files says.
 *
 * A file is opened when it is first seen, so it can be read after the program has deleted it.  Of the step before only
 * weights and states are kept: the next step begins with them.
 * emulated_devices/cli/check_watch.c looks again and again, and judges the steps that are there.
 */
#ifndef ORRERY_ARRIVALS_H
#define ORRERY_ARRIVALS_H

#include "emulated_devices/check/dump/actual.h"
#include "ref/golden/golden.h"

/* With this name in the folder the program says that no more files come. */
#define ARRIVALS_END "done"

/* The system tells files of one name apart by these numbers. */
struct arrival_identity { uint64_t device, number; int64_t bytes, seconds, nanoseconds; };

struct arrival {
    char *name;                         /* in the folder */
    struct arrival_identity identity;   /**< Numbers by which the system knows the file. */
    struct actual_opened file;          /**< Opened file, if `open`. */
    bool open;                          /* else it cannot be used, or is not needed any more */
    int64_t step;                       /* `begins`: only weights before the first */
    int64_t begins;                     /* the step after which its program was resumed; 0: the start */
    int rank, ranks;                    /* of the mesh that the file names */
};

struct arrivals {
    const char *folder;                 /**< Path of the folder. */
    const struct golden *golden;        /**< Golden file, which names the tensors. */
    int64_t last;                       /* the last step that is wanted */
    int64_t begins;                     /* the step after which the program was resumed; 0: the start */
    bool begun;                         /* a file has said so */
    int64_t passed;                     /* steps up to this one are judged, or given up, or were before it began */
    struct arrival **all;               /* [count] by name */
    int count, open, most_open;
    bool there, ended, crowded;         /* the folder exists; ARRIVALS_END does; more files than may be open at once */
    int unusable, late;                 /* files that cannot be used; that came after their step was judged */
    struct arrival_identity seen;       /* the folder, when it was last read */
    int same;                           /* looks since then */
    void (*tell)(void *context, const char *line);      /* called with a line about a file that is not used */
    void *context;                      /**< First argument of `tell`. */
};

/** Begin.  Nothing is read; the folder need not exist yet.  @return OK; ERR_FILE if `folder` is something else. */
enum error_code arrivals_open(struct arrivals *, const struct golden *, const char *folder, int64_t last,
                              struct error *);
void arrivals_close(struct arrivals *);

/**
 * Look into the folder once.
 * @return OK; ERR_FILE if the folder cannot be read; ERR_MEMORY.  A file that cannot be used is told, not an error.
 */
enum error_code arrivals_look(struct arrivals *, struct error *);

enum arrival_state { ARRIVAL_WAITS, ARRIVAL_IS_THERE, ARRIVAL_IS_GONE };

/** Say whether the step after `passed` is there, may still come, or will not. */
enum arrival_state arrivals_next(const struct arrivals *);

/** The first rank without a file of a step, and how many ranks there are; 0 ranks: nobody has a file of any step. */
int arrivals_lacking(const struct arrivals *, int64_t step, int *ranks);

/** Make ACTUAL of the step after `passed`, and of what it begins with.  End it with actual_leave, before
 *  arrivals_pass.  @return as actual_enter. */
enum error_code arrivals_enter(const struct arrivals *, struct actual *, struct error *);

/** The step after `passed` is judged or given up: keep what the next one begins with. */
void arrivals_pass(struct arrivals *);

#endif
