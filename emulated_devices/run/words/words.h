/* words.h -- the command line of a run, before it is understood.  cli/train/options/ fills the words from its tables;
 * take.c makes a plan of them. */
#ifndef ORRERY_RUN_WORDS_H
#define ORRERY_RUN_WORDS_H

#include "emulated_devices/run/run.h"
#include "ref/optim/moments.h"

/* Options that change the model. */
struct model_flags {
    const char *router;                 /* rule of a mixture's router; NULL: the model's */
    double speed, top_p;                /* of its bias, -1: the rule's; of its choice, 0: the model's */
    double z_loss;                      /* coefficient of the routers' z loss; -1: the model's */
    int zero;                           /* experts without computation; 0: the model's */
    int shared;                         /* shared experts; -1: the model's */
    bool shared_gate;                   /* --shared-gate: a token weighs the shared experts' result itself */
    int streams, prefix;                /* parallel streams, tokens of a prefix; 0: the model's */
    int rank;                           /* of adapters; 0: there are none */
    double alpha;                       /* of adapters; 0: twice the rank */
    const char *adapted, *trained;      /* matrices with adapters; classes that train; NULL: not given */
};

/* The flags of the slow tier; NULL and 0: not given. */
struct offload_flags { const char *classes, *to; int slice, stride; bool chosen; uint64_t cache; };
enum { OFFLOAD_SLICE = 1 << 16 };       /* elements, by default */

/* Flags of data parallelism that are not stored in the request directly. */
struct data_flags {
    const char *scheme, *shards, *weights, *gradients;  /* --data-parallel, --shards, --quantize-weights, --quantize-
                                         * gradients; NULL: not given */
    int zero, block, local_steps;
    bool reshard, prefetch, block_given, momentum_given;
};

/* Flags of low-rank optimizers; 0, below 0: not given. */
struct low_rank_flags { int rank, refresh, history; double scale, damping; };

/* Flags of models with fields on a globe. */
struct field_flags {
    int polar, azimuth, ensemble;       /* devices along latitudes, longitudes and members */
    int members;                        /* of the ensemble; 0: not given */
    double fairness;                    /* of its score: 1 is fair, 0 that of the ensemble as a distribution */
    const char *convolution;            /* what local convolutions send */
};

/* Values of flags that are not stored in struct train_options directly. */
enum { MOST_VOCABULARY = 1 << 24 };      /* tokens of a preset */

struct train_words {
    const char *config, *from;          /* the file that was read before, of settings or of another framework; NULL:
                                         * none */
    bool print_config;                  /* show the settings instead of running */
    int argc;                           /* the words from which they were read */
    char *const *argv;                  /* [argc] */
    const char *attention, *dispatch, *affinity, *owners, *encoders, *clips, *batches, *model, *backend, *grad_dtype,
                *as, *arithmetic, *balance_over, *mask;
                                        /* NULL: not given */
    const char *placement, *dtype, *cluster, *optimizer, *direct;
    const char *slots;                  /* where ranks are in the machine; NULL: rank r is at r */
    const int *places;                  /* the same of devices that are left after a loss; NULL: as `slots` says */
    const char *plan;                   /* a file of sections; NULL: one mesh for all layers */
    const char *kernels;                /* whose kernels programs run; NULL: as the cluster says */
    const char *disturb;                /* of --disturb; NULL: nothing is disturbed */
    int size[AXIS_COUNT];               /**< Devices along each axis of the mesh. */
    int batch, seq, micro, lr_steps, vocabulary, pad_vocabulary;        /* 0: not given */
    int steps, warmup;                  /* warmup -1: not given */
    const char *rates;                  /* the schedule of the learning rate */
    int lr_decay;                       /* its last steps; 0: not given */
    double lr, min_lr, clip, decay, dropout, distance;          /* -1: not given */
    double limit;                       /* of waiting, in seconds */
    uint64_t bucket;                    /* bytes */
    bool untied, chunks_given;
    bool infers;                        /* `orrery infer`: forward passes alone */
    bool serves;                        /* `orrery serve`: likewise, of requests */
    struct offload_flags offload;       /**< Flags of the slow tier. */
    struct model_flags changed;         /**< Flags that change the model. */
    struct data_flags data;             /**< Flags of data parallelism. */
    struct low_rank_flags low_rank;     /**< Flags of low-rank optimizers. */
    struct field_flags fields;          /**< Flags of models with fields on a globe. */
    struct moment_flags moments;        /* --beta1, --beta2, --eps */
};

/** Make a plan of what was read: add a checkpoint's settings and then defaults, and check it.
 *  @param table  of all options, to take a checkpoint's settings.  @return OK or the first problem. */
enum error_code train_take(struct train_options *, struct train_words *, const struct option *table, struct error *);

/** Make options->weather, the job of a model with fields on a globe, of what was read.
 *  @param table  of all options, of which those of other models are refused.  @return OK or the first problem. */
enum error_code train_take_weather(struct train_options *, struct train_words *, const struct option *table,
                                   struct error *);

/** Refuse the options of such models where the model is none.  @return OK or ERR_USAGE. */
enum error_code train_refuse_fields(const struct train_words *, struct error *);

/* ---- shared by the files of this folder -------------------------------------------------------------------------- */

/** Change a model as its options say.  @return OK; ERR_USAGE if the model has nothing of the kind. */
enum error_code take_changes(struct model_config *, const struct model_flags *, struct error *);

/** Refuse --save-async where it cannot be.  The plan must be checked.  @return OK or ERR_USAGE with what is in its way;
 *  the errors of plan_schedule. */
enum error_code train_check_saving(const struct train_options *, struct error *);

/** Read --slots: the places of the devices.  The mesh must be made.  @return OK, ERR_USAGE or ERR_MEMORY. */
enum error_code train_take_slots(struct train_options *, const struct train_words *, struct error *);

/** Read the file of --plan, and give the plan its sections.  @return OK, ERR_FILE, ERR_FORMAT or ERR_USAGE. */
enum error_code train_take_sections(struct train_options *, const struct train_words *, struct error *);

/** Take what is kept where, and in which format.  @return OK or ERR_USAGE. */
enum error_code take_storage(struct train_options *, const struct train_words *, struct error *);

/** Take the backend and how long a device waits.  @return OK or ERR_USAGE. */
enum error_code take_backend(const struct train_options *, const struct train_words *, struct error *);

/** Take the numbers of the optimizer, whose usual ones the plan has.  @return OK or ERR_USAGE. */
enum error_code take_numbers(struct train_options *, const struct train_words *, struct error *);

#endif
