/* take_saving.c -- refuses --save-async where the state changes in the passes, or its engines have other work.
 * take.c calls train_check_saving(), after all else is known.  Errors: ERR_USAGE; those of a schedule. */
#include "emulated_devices/run/words/words.h"

static enum error_code refuse_versions(const struct plan *plan, struct error *err)
{
    struct schedule s;
    const enum error_code e = plan_schedule(plan, &s, err);
    if (e) return e;
    const int versions = s.weight_versions;
    schedule_free(&s);
    return versions > 1 ? fail(err, ERR_USAGE, "--save-async: not with --schedule %s: it keeps two versions of the "
                               "weights", plan->schedule) : OK;
}

enum error_code train_check_saving(const struct train_options *options, struct error *err)
{
    const struct plan *const p = &options->plan;
    if (!options->save_async) return OK;
    if (!options->sharded)
        return fail(err, ERR_USAGE, "--save-async: needs --sharded: every device copies its own part");
    if (!options->save_every)
        return fail(err, ERR_USAGE, "--save-async: needs --save-every N: no step follows the last one");
    const struct { bool given; const char *what, *why; } no[] = {
        { options->golden, "--check FILE", "a golden file's run ends with its save; use --check ref" },
        { plan_has_tier(p), "--offload", "the engines that copy the state and write it are in use" },
        { p->optimizer->forward_only, "--optimizer", "its passes move the weights" },
        { p->optimizer->low_rank, "--optimizer", "its directions change while gradients are reduced" },
        { p->updates > 1, "--schedule", "it steps the optimizer inside a step" },
    };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].given) return fail(err, ERR_USAGE, "--save-async: not with %s: %s", no[i].what, no[i].why);
    return refuse_versions(p, err);
}
