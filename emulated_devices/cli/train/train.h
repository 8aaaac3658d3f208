/* train.h -- the parts of `orrery train`: options and reports.  cli/show/plan.c, cli/show/step.c and search.c call
 * these functions.  train.c parses and runs `orrery train` with them.  train_parse reports ERR_USAGE for a wrong
 * flag, ERR_PLAN for a plan that does not fit, and errors of a checkpoint. */
#ifndef ORRERY_TRAIN_TRAIN_H
#define ORRERY_TRAIN_TRAIN_H

#include "emulated_devices/cli/cli.h"

struct train_options;
struct plan_numbers;

/* A command with the options of `orrery train`, or most of them. */
struct run_kind {
    const char *command, *what;         /* as typed; its help */
    const char *const *without;         /* options of training that it does not have; ends with NULL */
    int steps;                          /* by default */
    const struct option *more;          /* options that it has besides; NULL: none */
    bool infers;                        /* forward passes alone */
    bool serves;                        /* of requests, not of batches */
    int batch, vocabulary;              /* by default; 0: the preset's */
    const char *model;                  /* by default; NULL: the first preset */
};
/* Options of `orrery plan` about failures (run/report/report_failures.h). */
#define OF_FAILURES "--mtbf", "--device-mtbf", "--restart", "--storage", "--checkpoint", "--checkpoint-every"

extern const struct run_kind run_train, run_infer, run_serve, run_rl, run_plan, run_show_data, run_show_memory,
    run_show_plan;

/** Read the command line, add a checkpoint's settings and then defaults, and check the plan.  The same on every device.
 *  Call train_options_free afterwards, also after a failure. */
enum error_code train_parse(struct train_options *, const struct run_kind *, int argc, char **argv, struct error *);

/** Read the same for devices at these places of the machine, by ranks; NULL: rank r is at place r.  The list outlives
 *  the options. */
enum error_code train_parse_at(struct train_options *, const struct run_kind *, int argc, char **argv,
                               const int *places, struct error *);
void train_options_free(struct train_options *);

/** Plan a step of a model with fields on a globe.  Local.  @return as weather_plan. */
enum error_code plan_fields(const struct train_options *, struct error *);

/** Plan a step with the words behind `orrery plan`, and print nothing.  @return as train_parse and plan_numbers_of. */
enum error_code train_plan_words(struct plan_numbers *, int words, const char *const word[], struct error *);

#endif
