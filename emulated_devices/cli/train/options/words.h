/* words.h -- what the command line of `orrery train` says, before it is understood; shared by options.c, which reads
 * it, by the tables options_*.c, and by take.c, which makes a plan of it. */
#ifndef ORRERY_TRAIN_WORDS_H
#define ORRERY_TRAIN_WORDS_H

#include "emulated_devices/cli/train/train.h"

/* Flags of data parallelism that are not stored in the request directly. */
struct data_flags {
    const char *scheme, *shards, *weights, *gradients;  /* --data-parallel, --shards, --quantize-weights, --quantize-
                                         * gradients; NULL: not given */
    int zero, block, local_steps;
    bool reshard, prefetch, block_given, momentum_given;
};

/* Flags of low-rank optimizers; 0, below 0: not given. */
struct low_rank_flags { int rank, refresh, history; double scale, damping; };

/* Values of flags that are not stored in struct train_options directly. */
struct train_words {
    const char *config;                 /* the file that was read before; NULL: none */
    bool print_config;                  /* show the settings instead of running */
    int argc;                           /* the words from which they were read */
    char *const *argv;                  /* [argc] */
    const char *attention, *dispatch, *affinity, *owners, *encoders, *batches, *model, *backend, *grad_dtype, *as,
                *balance_over;
                                        /* NULL: not given */
    const char *placement, *dtype, *cluster, *optimizer, *direct;
    int size[AXIS_COUNT];
    int batch, seq, micro, lr_steps, vocabulary;        /* 0: not given */
    int steps, warmup;                  /* warmup -1: not given */
    const char *rates;                  /* the schedule of the learning rate */
    int lr_decay;                       /* its last steps; 0: not given */
    double lr, min_lr, clip, decay, dropout, distance;          /* -1: not given */
    double limit;                       /* of waiting, in seconds */
    uint64_t bucket;                    /* bytes */
    bool untied, chunks_given;
    struct offload_flags offload;
    struct model_flags changed;
    struct data_flags data;
    struct low_rank_flags low_rank;
};

/* A table of options that is put together from parts. */
struct option_list { struct option of[OPTIONS_MOST + 1]; size_t count; };

/** Append options; those of the four parts below write to the two structs. */
void option_list_add(struct option_list *, const struct option *, size_t n);
void scheme_options(struct option_list *, struct train_options *, struct train_words *);
void data_options(struct option_list *, struct train_options *, struct train_words *);
void training_options(struct option_list *, struct train_options *, struct train_words *);
void output_options(struct option_list *, struct train_options *, struct train_words *);

/** Make a plan of what was read: add a checkpoint's settings and then defaults, and check it.
 *  @param table  of all options, to take a checkpoint's settings.  @return OK or the first problem. */
enum error_code train_take(struct train_options *, const struct run_kind *, struct train_words *,
                           const struct option *table, struct error *);

#endif
