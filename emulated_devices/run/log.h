/* log.h -- a run's steps, written while it runs: lines of JSON or CSV (--log), events for TensorBoard (--tensorboard).
 *
 * Each line is written at once.  A resumed run goes on in the same file: what it has of later steps, and of a last line
 * that is not whole, is taken out first.  between.c, golden.c, session.c and run/words/take.c call these functions.
 */
#ifndef ORRERY_TRAIN_LOG_H
#define ORRERY_TRAIN_LOG_H

#include "emulated_devices/run/run.h"
#include "ref/io/tfevents.h"

struct run_log {
    const struct train_record *record;  /* where the numbers of each line come from */
    int fd;                             /* of --log; -1: none */
    bool csv;                           /* the log has comma-separated values; else a line of JSON for each step */
    struct tfevents events;             /* its fd is -1 without --tensorboard */
};

/** Check the name of --log: it ends with .jsonl or .csv.  @return OK or ERR_USAGE. */
enum error_code run_log_check(const char *path, struct error *);

/** Open what the options ask for, after first_step steps.  Local, on rank 0.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code run_log_open(struct run_log *, const struct train_record *, struct error *);

/** The step with this number in the run, if --log-every or an evaluation says so.
 *  @param validation  loss on held-out text; NAN: it was not evaluated. */
enum error_code run_log_step(struct run_log *, int64_t i, double validation, struct error *);

/** A checkpoint was written. */
enum error_code run_log_saved(struct run_log *, int64_t step, const char *path, struct error *);

/** The run has ended: "done", or why it has not come to its last step. */
enum error_code run_log_end(struct run_log *, struct error *);

void run_log_close(struct run_log *);

#endif
