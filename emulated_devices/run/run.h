/* run.h -- a run of training or inference: what is asked for, and what came of it.  Files of run/, cli/train/ and
 * run/words/ call these functions. */
#ifndef ORRERY_RUN_H
#define ORRERY_RUN_H

#include "emulated_devices/device/disturb.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/run/live.h"
#include "emulated_devices/run/saving.h"
#include "emulated_devices/run/report/report_failures.h"
#include "emulated_devices/model/charged.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/train/data/data.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/verify/reference/compare.h"
#include "ref/io/yaml.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/settings.h"
#include <stdio.h>

struct plan_findings;
struct plan_more;
struct from;
struct weather_job;

/* This holds what a run is asked for: everything on the command line. */
struct train_options {
    struct plan plan;                   /* mesh, schemes, model, batch and optimizer */
    struct weather_job *weather;        /* of a model with fields on a globe, which has no plan; NULL: the model has
                                         * tokens; owned */
    bool infers;                        /* `orrery infer`: forward passes alone */
    const char *model_dir;              /* folder of initial weights; NULL: drawn from the seed */
    const char *pack;                   /* lengths of samples that are packed into sequences; NULL: none are */
    struct packing lengths;             /* of --pack in a plan, which has no text; empty in a run */
    const char *data, *eval_data, *tokenizer;   /* texts or tokens to train on; to validate with; a tokenizer.json or
                                         * its folder; NULL: not given */
    /* Values of the flags with these names; NULL: not given. */
    bool dump_passes;                   /* --dump-passes */
    bool dump_steps;                    /* --dump-steps */
    const char *check, *dump, *save, *resume, *json, *trace, *timeline, *owners_out, *log, *tensorboard, *save_load,
        *page, *record;
    struct disturbances disturbances;   /* of --disturb; none without */
    int page_steps;                     /* number of this run's steps on the page and in the film */
    bool film;                          /* --film */
    int live;                           /* the port of --live; LIVE_OFF: not given */
    int log_every, eval_every, save_every;      /* steps; 0: never */
    const char *elastic_file;           /* of --elastic; NULL: not given */
    const char *lose;                   /* of --lose; NULL: not given */
    int raise;                          /* --raise: percent by which clock rates can rise after a loss; 0: not */
    int survive;                        /* --survive: kills after which the run goes on; 0: none */
    struct surviving *surviving;        /* a device's part of such a run; NULL: this is none; its runner's */
    struct elastic *elastic;            /* what both say (elastic/elastic.h); NULL: the mesh does not change; owned */
    int64_t later_steps;                /* of the run on later meshes; 0: these are the last */
    bool sharded;                       /* --sharded: every device writes its own boxes of --save's checkpoint */
    bool save_async;                    /* --save-async: that checkpoint is written while training goes on */
    int keep;                           /* checkpoints of --save-every; 0: all */
    char resumed[4096];                 /* the checkpoint that --resume has found, where it is not the word itself */
    struct batch_plan batches;          /* of --batches; its sequences are NULL without */
    int *slots;                         /* [devices] of --slots; NULL without; owned */
    struct sections sections;           /* of --plan; none without */
    struct yaml *plan_file;             /* its text, to which names of schemes point; owned */
    struct affinity affinity;           /* of --affinity; empty without */
    struct expert_owners owners;        /* of --owners; empty without */
    const char *load_word;              /* as typed behind --load; NULL: routers choose, in plans the load is even */
    struct load load;                   /* likewise */
    struct cluster cluster;             /* for virtual time */
    int trace_steps;                    /* number of this run's steps in the trace */
    const char *trace_format;           /* chrome, chakra, goal */
    int64_t steps;                      /* steps that this run takes */
    int64_t lr_steps, lr_decay, warmup; /* of the learning rate; 0, 0 and -1: default */
    int sample;                         /* tokens of text to show at the end */
    uint64_t memory;                    /* budget of a device; 0: none */
    const char *memory_of;              /* of --memory-of: the framework whose memory a plan also says; NULL: none */
    uint64_t tokens;                    /* of a whole training that a plan is made for; 0: not asked for */
    struct failures_asked failures;     /* of --mtbf and the options beside it */
    bool isolate;                       /* every operation gets the reference's inputs */
    struct checkpoint saved;            /* of --resume, or of --model's folder: settings that are not given */
    bool override;                      /* continue although settings differ from the saved run */
    bool golden;                        /* check is the path of a golden file */
    int64_t golden_micros;              /* microbatches that its balance losses are of; 0: they are of none */
    bool paranoid;                      /* compare copies bit by bit */
    bool unfolded;                      /* of a plan: every device runs */
    bool dry_run;                       /* a step is planned, and nothing trained */
    bool help;                          /* there is nothing to do: help or settings have been shown */
    const char *command;                /* "train" */
    int argc;                           /* the words after it, as they were typed */
    char *const *argv;                  /* [argc] */
    struct from *from;                  /* what --from has become; NULL: it was not given; owned */
    struct settings_words words;          /* the same behind those of --from or --config */
    char *settings;                     /* what they set, as YAML; owned */
};

/* ---- settings.c: the settings that define a run, as texts: flags and facts ------------------------------------- */

/** @param step  steps done.  @return an object for cJSON_Delete, or NULL and ERR_MEMORY. */
cJSON *train_run(const struct train_options *, const struct train_data *, int64_t step, struct error *);

/** Take from a checkpoint every flag that defines the run and that the command line does not have.
 *  @return OK, or the error in a value. */
enum error_code train_take_saved(const struct checkpoint *, const struct option *table, int argc, char *const argv[],
                                 struct error *);

/** Take from a checkpoint the model's dropout, which config.json of most families has no place for.  What is no
 *  probability is left as it is: train_check_saved finds that it differs. */
void train_take_dropout(const struct checkpoint *, struct model_config *);

/**
 * Compare a resumed run with the saved one.
 * @param[out] differences  text with each difference, "--lr: saved 0.001, now 0.002"; empty if there is none.
 * @return OK, also with differences if the command line has --override; ERR_USAGE listing all of them.
 */
enum error_code train_check_saved(const struct train_options *, const struct train_data *, char *differences,
                                  size_t size, struct error *);

/** How many microbatches the balance losses of a saved run are of; 0: they are of none. */
int64_t train_saved_microbatches(const struct checkpoint *);

/** Whether the command line of a resumed run has another initial loss scale than the saved run: then the saved current
 *  scale is not used. */
bool train_changes_loss_scale(const struct train_options *);

/** Take model, batch, steps and the optimizer's numbers from the golden file of --check.  The optimizer must be set.
 *  @param chosen  whether the command line says it.  Else, if the file has no steps of it, it becomes the first whose
 *      steps the file has. */
enum error_code train_take_golden(struct train_options *, bool chosen, struct error *);

/** Train the golden file's run, and compare all its tensors with the file.  Collective over all devices. */
enum error_code train_golden(struct comm *, const struct train_options *, const struct train_data *, struct error *);

/** Set the learning rate's schedule: warm-up, then decay until the last step or --lr-steps; a resumed run counts from
 *  its original step 0. */
void train_set_rates(struct hyperparameters *, const struct train_options *, int64_t first_step);

/* The report of one device at the end. */
struct device_report {
    int rank;                           /* the device */
    uint64_t parameters;                /* elements held */
    struct arena_use peak;              /* largest use of each tag and of the total, in bytes */
    struct ledger counted;              /* sent and added up */
    uint64_t fingerprint;               /* this device's part of that of all weights (data.h) */
    uint64_t resident;                  /* bytes of the process; 0 if the system does not tell */
    picoseconds virtual_time, computing;        /* all of it; what its operations took */
    picoseconds held;                   /* that its compute stream has waited for the host to start kernels */
    double flops;                       /* that it was charged with */
    double processor;                   /* seconds of a processor in its process, of a median step */
    struct model_state offloaded;       /* bytes on the slow tier */
    uint64_t activations_away;          /* likewise, of all microbatches of the last step */
    struct tier_traffic tier;           /* read from it and written to it */
    struct drive_use drive;             /* requests of the host's cache of a drive, and what they moved */
    struct error wrong_traffic, wrong_memory;           /* a count that differs from its prediction (counts.h); code OK:
                                                         * none */
};

/* The first number of a run that is not finite. */
struct divergence {
    int64_t step;                       /* in which the number came up */
    const char *what;                   /* its name, "loss"; NULL: all are finite */
    double value;                       /* infinite, or no number */
    struct lost_sum lost;               /* as in struct step_result */
    int64_t lost_layer, lost_row;       /* likewise */
};

/* The results of a run, on rank 0. */
struct train_record {
    const struct train_options *options;        /* of the run */
    struct step_result *step;           /* [steps] */
    double *seconds;                    /* [steps] of the devices' step alone */
    double *processor;                  /* [steps] of processor time in this device's process; NULL: not measured */
    int64_t first_step, steps;          /* steps done before this run; steps that it has done */
    struct comparison comparison;       /* with the reference, or with a golden file */
    struct checkpoint_reading reading;  /* of a resumed run, from a sharded checkpoint */
    struct saves saves;                 /* of --save-async */
    const char *overridden;             /* differences from the resumed run, as text; empty: none */
    const char *truth;                  /* what it was compared with, as text */
    struct device_report *device;       /* [classes] each of devices that do the same (folded) */
    bool has_numbers;                   /* of the backend */
    picoseconds alone;                  /* virtual time of a step on one device; 0: there is no such step */
    uint64_t alone_kept;                /* bytes that this device would keep between steps */
    picoseconds replayed;               /* of all steps, replayed with all devices; 0: the cluster needs no replay */
    picoseconds unhindered;             /* the same, if computing and messages did not slow each other; 0: as it */
    double validation;                  /* loss on the validation text */
    struct error encoders;              /* OK, or ERR_CHECK: of what is not text, how it differs */
    uint64_t copies;                    /* elements compared with another device's (replicas.h) */
    struct divergence divergence;       /* `what` is NULL if all numbers are finite */
    int stopped;                        /* the signal that ended it before its last step; 0: none */
    cJSON *profile;                     /* of the first steps (profile.h); NULL: there is none */
    cJSON *film;                        /* of the first steps (draw/page/film.h); NULL: there is none */
    struct arithmetic arithmetic;       /* of the devices; threads 0: of a plan, which has no numbers */
    struct backend_calls calls;         /* of device 0 in the last step; zeros: the backend does not count them */
    struct dry_run folded;              /* which device's report stands for which; of a run each for itself */
    struct plan_findings *plan;         /* likewise (report/plan_report.h); NULL: of a run */
    FILE *out;                          /* for lines of text */
};

/* ---- plan.c: a step without its numbers ------------------------------------------------------------------------- */

/** Run a step of a plan dry on all its devices, and report memory, messages and virtual time.
 *  @param more  what is said besides (report/plan_report.h); NULL: nothing.
 *  @return OK; ERR_CHECK if a device needs more memory than it has. */
enum error_code plan_step(const struct train_options *, const struct plan_more *more, struct error *);

/** Say what `orrery plan` says of a step of a run, in this process.
 *  @return OK; ERR_CHECK if it does not fit; ERR_USAGE if it has batches that only a run knows. */
enum error_code train_plan(const struct train_options *, struct error *);

/** Where text of a run goes: the standard error if JSON goes to the standard output. */
FILE *run_stream(const struct train_options *);

/* ---- diverged.c -------------------------------------------------------------------------------------------------- */

/**
 * Whether a step has a loss, a norm or a slope that is not finite; the same on every device.  A step skipped by loss
 * scaling has not diverged, unless the scale cannot become smaller.
 * @param[out] divergence  set if it has.
 */
bool step_diverges(const struct optimizer *, int64_t step, const struct step_result *, struct divergence *divergence);

/** At the end of a run, on rank 0: set the record's divergence if the last loss, the loss on held-out text, or a tensor
 *  of the one-device run is not finite.  A divergence that is already set stays. */
void find_divergence(struct train_record *);

/** The line that says so.  @return ERR_DIVERGED. */
enum error_code fail_diverged(const struct train_record *, struct error *);

/** This device's report.  Local. */
struct device_report report_of_device(struct trainer *, int64_t steps);

/** The fingerprint of all weights: of the devices' parts together. */
uint64_t train_fingerprint(const struct train_record *);

/** Collect every device's report on rank 0.  Collective.
 *  @param processor  [steps] seconds of a processor in this device's process. */
enum error_code collect_reports(struct trainer *, int64_t steps, const double *processor, struct device_report *all,
                                struct error *);

/* sample.c: the trained model's loss on held-out text, and a sample of `bytes` bytes.  Collective over all devices;
 * rank 0 has the loss and prints the text. */
enum error_code print_sample(struct trainer *, const struct train_data *, int bytes, FILE *out, double *validation,
                             struct error *);

#endif
