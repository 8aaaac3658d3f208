/* train.h -- the pieces of `orrery train`: what was asked for, how it is reported. */
#ifndef ORRERY_TRAIN_H
#define ORRERY_TRAIN_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/checkpoint.h"
#include "emulated_devices/verify/compare.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
#include <stdio.h>

/* Everything on the command line. */
struct train_options {
    struct plan plan;
    const char *model_dir;              /* weights to start from; NULL: drawn from the seed */
    const char *data, *check, *dump, *save, *resume, *json, *trace, *timeline;
    struct cluster cluster;             /* whose time the virtual clock tells */
    int trace_steps;                    /* of this run are in the trace */
    int64_t steps;
    int64_t lr_steps, warmup;           /* of the learning rate; 0 and -1: by default */
    int sample;                         /* bytes of text to show at the end */
    uint64_t memory;                    /* budget of a device; 0: none */
    bool isolate;                       /* every operation gets the reference's inputs */
    bool golden;                        /* check is the path of a golden file */
    bool paranoid;                      /* copies are compared bit by bit */
    bool help;
};

/** Read the command line, fill in defaults and check the plan.  The same on every device. */
enum error_code train_parse(struct train_options *, int argc, char **argv, struct error *);

/* What the command line says about the slow tier; NULL and 0: not given. */
struct offload_flags { const char *classes, *to; int slice, stride; };
enum { OFFLOAD_SLICE = 1 << 16 };       /* elements, unless the command line has another number */

enum error_code train_take_offload(struct data_request *, const struct offload_flags *, struct error *);

/** Take model, batch, steps and optimizer's numbers from the golden file that --check names.  The optimizer is chosen already. */
enum error_code train_take_golden(struct train_options *, struct error *);

/** Train the golden file's run, and hold all its tensors to the file.  Collective. */
enum error_code train_golden(struct comm *, const struct train_options *, struct error *);

/** The learning rate's course: up, and down until the last step, or until --lr-steps; counted from step 0 of a resumed run. */
void train_set_rates(struct hyperparameters *, const struct train_options *, int64_t first_step);

/* What one device tells at the end. */
struct device_report {
    int rank;
    uint64_t parameters;                /* elements held */
    struct arena_use peak;
    uint64_t messages[AXIS_COUNT], bytes[AXIS_COUNT];   /* sent, on groups along one axis */
    uint64_t messages_shared, bytes_shared;             /* sent to share losses and norm, among all */
    uint64_t resident;                  /* bytes of the process; 0 if the system does not tell */
    int64_t virtual_time;               /* picoseconds */
    bool exact;                         /* counted messages, bytes and additions equal the formulas on dp, tp and pp, and of what all share */
    struct model_state offloaded;       /* bytes on the slow tier */
    struct tier_traffic tier;           /* read from it and written to it */
    bool exact_tier;                    /* equal to their formulas */
    bool exact_memory;                  /* peaks of parameters, gradients, optimizer and activations equal theirs */
};

/* What a run leaves behind, on rank 0. */
struct train_record {
    const struct train_options *options;
    struct step_result *step;           /* [steps] */
    double *seconds;                    /* [steps] of the devices' step alone */
    int64_t first_step, steps;
    struct comparison comparison;
    const char *truth;                  /* what it was compared with, in words */
    struct device_report *device;       /* [devices] */
    double validation;                  /* loss on the validation text */
    uint64_t copies;                    /* elements that were compared with another device's (replicas.h) */
    int threads;
    FILE *out;                          /* where lines for a person go */
};

/* report.c: for a person, and for a program. */
FILE *report_stream(const struct train_options *);      /* the standard error while JSON goes to the standard output */
void report_start(const struct train_record *, const struct text *);
void report_step(const struct train_record *, int64_t i);
void report_memory(const struct train_record *);        /* the peaks of every device */
void report_copies(const struct train_record *);        /* what --paranoid has compared */
void report_end(const struct train_record *);
enum error_code report_json(const struct train_record *, const char *path, struct error *);

/* report_check.c: what was compared with the reference. */
void report_check(const struct train_record *);
void report_check_json(const struct train_record *, cJSON *root);

/** Collect every device's report on rank 0.  Collective. */
enum error_code collect_reports(struct trainer *, int64_t steps, struct device_report *all, struct error *);

/* sample.c: the trained model's loss on held-out text, and so many bytes of what it writes.  Collective; rank 0 has the loss
 * and prints the text. */
enum error_code print_sample(struct trainer *, const struct text *, int bytes, FILE *out, double *validation, struct error *);

#endif
