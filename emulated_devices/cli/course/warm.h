/* warm.h -- warm-ups and lessons one after another, in a loop with keys.  learn.c calls these functions.  Errors are
 * those of the folder and of the lessons' texts; no answer of a student is one. */
#ifndef ORRERY_CLI_WARM_H
#define ORRERY_CLI_WARM_H

#include "emulated_devices/cli/course/course.h"

/** Whether a word names a warm-up: "03.2", "ring.2", "03.next". */
bool warm_is_named(const char *word);

/** Tries a lesson's file, as `orrery learn NN` does.  @param hint  shows one more. */
typedef enum error_code warm_lesson(struct folder *, const struct lesson *, bool hint, struct error *);

/** Ask one warm-up, until it is answered or the input ends.
 *  @param[out] status  0: it is answered; else that of a check. */
enum error_code warm_ask(struct folder *, const char *word, bool hint, int *status, struct error *);

/** Begin where the student is, and go on until the input ends, or with the key q. */
enum error_code warm_loop(struct folder *, warm_lesson *, struct error *);

/** Print all warm-ups and lessons, and which are done. */
enum error_code warm_list(const struct folder *, struct error *);

#endif
