/* schedule_file.h -- schedules in text files, written by users.
 *
 *     orrery schedule 1                  the first line; `#` starts a comment, empty lines are ignored
 *     name my-own
 *     devices 2
 *     micros 3
 *     chunks 1                           the most stages of a device
 *     place 0: 0                         device 0 holds stage 0 as chunk 0; `-` is a chunk that is not used
 *     place 1: 1
 *     device 0: F0 F1 B0 F2 B1 B2        the actions of device 0, in order; more lines for a device continue its list
 *     device 1: F0 B0 F1 B1 F2 I2 W2
 *
 * An action is a letter, a microbatch and, if a device holds several stages, `.` and a chunk: F0.1.
 * F forward, B whole backward, I backward for the input, W backward for the weights, U the optimizer's step.
 * Either no sends and receives are written: then each receive is inserted right before the action that needs it, and
 * each send right after the action whose result it sends.  Or all are written, with the peer: sa0>1 ra0<0 sg0>0 rg0<1
 * (send and receive activation, send and receive gradient).
 *
 * &B0 is beside the pass before it: both begin together, and B0 is computed while that waits for messages.  It can
 * follow an F, B or I that is itself not beside another one.
 *
 * If a stage has several copies, or microbatches skip stages, routes define which device computes each stage:
 *     routes 2
 *     route 0: 0.0 1.0                   stage 0 on device 0, chunk 0; stage 1 on device 1, chunk 0; `-` skips a stage
 *     route 1: 1.1 0.1
 *     takes 1: 1 3                       microbatches 1 and 3 take route 1; all others take route 0
 * Optimizer steps inside the schedule:
 *     update 4                           microbatches of a batch
 *     versions 2                         weight versions kept
 *
 * A file may have several schedules one after another, each with its first line and a name, and other text before the
 * first of them.  FILE:NAME takes one.  Files of schemes/, cli/, course/, draw/ and other rooms call these functions.
 */
#ifndef ORRERY_PIPELINE_SCHEDULE_FILE_H
#define ORRERY_PIPELINE_SCHEDULE_FILE_H

#include "emulated_devices/schemes/pipeline/schedule.h"

/**
 * Read a schedule and validate it.
 * @param file  the file's name, for messages.
 * @return OK; ERR_FORMAT: the message begins with FILE:LINE and says what was expected there; ERR_FILE; ERR_MEMORY.
 *         On failure nothing is left to free.
 */
enum error_code schedule_read(struct schedule *, FILE *from, const char *file, struct error *);

/**
 * Read one of the schedules of a text: that with a line `name NAME`.  Lines are counted from the text's beginning.
 * @param text  all of it; lines before the first "orrery schedule 1" are not looked at.
 * @param name  which one.
 * @param file  the text's name, for messages.
 * @return as schedule_read; ERR_FORMAT also if there is none of that name, or more than one.
 */
enum error_code schedule_read_named(struct schedule *, const char *text, const char *name, const char *file,
                                    struct error *);

/** Whether a schedule's name means a file: no schedule is registered under it, and it contains a '/' or a '.', or a
 *  file of that name exists.  FILE:NAME is one of the schedules of a file. */
bool schedule_is_file(const char *name);

/**
 * Make a registered schedule with schedule_make, or read one from a file with schedule_read.
 * @param request  a file's devices, micros and chunks must equal these; 0: any number.
 * @return OK, or the error of schedule_make or schedule_read; ERR_PLAN also for a file that does not fit.
 */
enum error_code schedule_by_name(struct schedule *, const char *name, const struct schedule_request *request,
                                 struct error *);

/** Write a schedule with its sends and receives; schedule_read reads the same schedule.  @return OK or ERR_FILE. */
enum error_code schedule_write(FILE *to, const struct schedule *, struct error *);

#endif
