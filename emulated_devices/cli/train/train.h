/* train.h -- the parts of `orrery train`: options and reports. */
#ifndef ORRERY_TRAIN_TRAIN_H
#define ORRERY_TRAIN_TRAIN_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/run/run.h"

/* A command with the options of `orrery train`, or most of them. */
struct run_kind {
    const char *command, *what;         /* as typed; its help */
    const char *const *without;         /* options of training that it does not have; ends with NULL */
    int steps;                          /* by default */
    const struct option *more;          /* options that it has besides; NULL: none */
    /* Change the options once model and mesh are read.  NULL: nothing.  @return OK or ERR_USAGE. */
    enum error_code (*take)(struct train_options *, struct error *);
};
extern const struct run_kind run_train, run_infer, run_plan, run_show_data, run_show_memory, run_show_plan;

/** Read the command line, add a checkpoint's settings and then defaults, and check the plan.  The same on every device.
 *  Call train_options_free afterwards, also after a failure. */
enum error_code train_parse(struct train_options *, const struct run_kind *, int argc, char **argv, struct error *);
void train_options_free(struct train_options *);

/** Say what `orrery plan` says of a step of a run, in this process.
 *  @return OK; ERR_CHECK if it does not fit; ERR_USAGE if it has batches that only a run knows. */
enum error_code train_plan(const struct train_options *, struct error *);

/* Options that change the model. */
struct model_flags {
    const char *router;                 /* rule of a mixture's router; NULL: the model's */
    double speed, top_p;                /* of its bias, -1: the rule's; of its choice, 0: the model's */
    double z_loss;                      /* coefficient of the routers' z loss; -1: the model's */
    int zero;                           /* experts without computation; 0: the model's */
    int shared;                         /* shared experts; -1: the model's */
    bool shared_gate;                   /* --shared-gate: a token weighs the shared experts' result itself */
    int streams, prefix;                /* parallel streams, tokens of a prefix; 0: the model's */
};

/** Change a model as its options say.  @return OK; ERR_USAGE if the model has nothing of the kind. */
enum error_code train_change_model(struct model_config *, const struct model_flags *, struct error *);

/* The flags of the slow tier; NULL and 0: not given. */
struct offload_flags { const char *classes, *to; int slice, stride; bool chosen; uint64_t cache; };
enum { OFFLOAD_SLICE = 1 << 16 };       /* elements, by default */

enum error_code train_take_offload(struct plan *, const struct offload_flags *, struct error *);

/* report.c, report_tables.c, report_end.c: text. */
void report_shape(const struct train_record *);         /* model, mesh and batch */
void report_start(const struct train_record *, const struct train_data *);
void report_step(const struct train_record *, int64_t i);
void report_evaluation(const struct train_record *, int64_t step, double loss);         /* on held-out text */
void report_memory(const struct train_record *);        /* the peaks of every device */
void report_traffic(const struct train_record *);       /* what every device has sent */
enum axis report_axis_of(enum traffic_kind);            /* over which a kind sends; AXIS_COUNT: over all */
void report_virtual_time(const struct train_record *);
double report_virtual_step(const struct train_record *);        /* picoseconds, of the slowest device */
double report_median(const struct train_record *, const double *seconds);       /* [steps], without the first */
double report_mean_sequences(const struct train_record *);      /* of a step */
uint64_t report_budget(const struct train_options *);   /* of a device: --memory, else its cluster's; 0: no limit */
void report_copies(const struct train_record *);        /* the result of --paranoid */
void report_end(const struct train_record *);

/* report_json.c: the whole report; with its steps, or without them for a log, which has them.  format: "orrery train".
 * NULL and ERR_MEMORY: no memory. */
cJSON *report_object(const struct train_record *, const char *format, bool steps, struct error *);
enum error_code report_json(const struct train_record *, const char *format, const char *path, struct error *);

/* report_check.c: the comparison with the reference. */
void report_check(const struct train_record *);
void report_check_json(const struct train_record *, cJSON *root);

/** Text and JSON as this folder prints and writes them. */
extern const struct run_listener run_reports;

#endif
