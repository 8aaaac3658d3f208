/* make_rates.c -- the learning rate of each step of `orrery golden make`: one, a schedule, or a list of a file.
 * ERR_USAGE names a flag that the schedule does not take; other errors are those of reading the file. */
#include "emulated_devices/cli/golden/make_options.h"
#include "ref/golden/rates_file.h"
#include "ref/optim/rates.h"

/* A list has what a schedule would say. */
static enum error_code check_alone(const struct make_options *options, struct error *err)
{
    const char *const other = options->lr >= 0           ? "--lr"
                              : options->schedule        ? "--lr-schedule"
                              : options->lr_decay        ? "--lr-decay"
                              : options->min_lr >= 0     ? "--min-lr"
                              : options->warmup >= 0     ? "--warmup"
                              : options->lr_steps        ? "--lr-steps"
                                                         : NULL;
    return other ? fail(err, ERR_USAGE, "%s: --lr-file has the rate of each step", other) : OK;
}

enum error_code golden_read_rates(struct make_options *options, double *rates, struct golden_request *request,
                                  struct error *err)
{
    int count = 0;
    if (options->lr_file == NULL) return OK;
    enum error_code e = check_alone(options, err);
    if (!e) e = fail_about(err, rates_read(options->lr_file, rates, &count, err), "--lr-file");
    if (!e && options->steps && options->steps != count)
        e = fail(err, ERR_USAGE, "--lr-file: has rates of %d step%s; --steps asks for %d", count, plural(count),
                 options->steps);
    options->steps = count, request->rates = rates;
    return e;
}

/* Without a schedule the rate stays after the warm-up. */
static enum error_code check_schedule(const struct make_options *options, struct error *err)
{
    if (options->schedule == NULL && (options->lr_decay || options->min_lr >= 0 || options->lr_steps))
        return fail(err, ERR_USAGE, "%s: needs --lr-schedule; without one the rate does not fall",
                    options->lr_decay ? "--lr-decay" : options->lr_steps ? "--lr-steps" : "--min-lr");
    if (options->lr_decay && !rate_decays(rate_schedule_named(options->schedule)))
        return fail(err, ERR_USAGE, "--lr-decay %d: is for --lr-schedule wsd, not %s", options->lr_decay,
                    options->schedule);
    return OK;
}

enum error_code golden_take_rates(struct golden_request *request, const struct make_options *options, int64_t steps,
                                  struct error *err)
{
    const int64_t end = options->lr_steps ? options->lr_steps : steps;
    const enum error_code e = check_schedule(options, err);
    for (int i = 0; i < request->optimizers && !e; i++) {
        struct hyperparameters *h = &request->hyper[i];
        h->schedule = options->schedule ? rate_schedule_named(options->schedule) : RATE_CONSTANT;
        h->steps = end;
        h->warmup = options->warmup >= 0 ? options->warmup : options->schedule ? end / 10 : 0;
        h->decay = options->lr_decay ? options->lr_decay : end / 5;
        h->min_lr = options->min_lr >= 0 ? options->min_lr : h->lr / 10;
    }
    return e;
}
