/* make_options.h -- the words of `orrery golden make`, which make.c reads and make_rates.c takes a part of. */
#ifndef ORRERY_CLI_MAKE_OPTIONS_H
#define ORRERY_CLI_MAKE_OPTIONS_H

#include "emulated_devices/cli/golden/golden.h"
#include "ref/golden/make.h"
#include "ref/optim/moments.h"

/* A number below 0, a number of 0 where at least 1 is asked for, or NULL: it is not given. */
struct make_options {
    const char *model, *batch, *text, *out, *optimizers, *kept, *as, *schedule, *lr_file, *pack;
    int steps, sequences, tokens, micros, warmup, lr_steps, lr_decay;
    double lr, min_lr, weight_decay, clip, dropout;
    struct moment_flags moments;        /**< Values of --beta1, --beta2 and --eps. */
    uint64_t seed;                      /**< Seed of preset weights, of dropout and of drawn batches. */
    bool cover;                         /**< Draw tokens and labels that show many kinds of mistakes. */
};

/** Read the rates of --lr-file into request->rates, before the batches; there are as many steps.
 *  @param[out] rates  [GOLDEN_MOST_STEPS] memory for them.
 *  @return OK; ERR_USAGE: options that exclude each other; as rates_read. */
enum error_code golden_read_rates(struct make_options *, double *rates, struct golden_request *, struct error *);

/** Give every optimizer of the request the schedule of its rate over these steps.  @return OK or ERR_USAGE. */
enum error_code golden_take_rates(struct golden_request *, const struct make_options *, int64_t steps, struct error *);

#endif
