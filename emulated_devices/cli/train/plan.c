/* plan.c -- `orrery plan`: read the words, then run the step without its numbers, in this process.
 *
 * cli/main.c and browser/ call command_plan, through the list of cli/commands.h; bench/ and others call
 * train_plan_words.  Nothing in this file starts a process or needs MPI, so that a browser can run what is linked
 * with it.  Wrong words are ERR_USAGE or ERR_PLAN; a plan that does not fit is ERR_CHECK; other errors come from files
 * and memory.
 */
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/cli/train/choose.h"
#include "emulated_devices/cli/train/compare.h"
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/weather/run.h"
#include <stdlib.h>

/* The step of the plan, or what is asked of the plan instead. */
static enum error_code plan_answer(const struct train_options *options, struct error *err)
{
    if (plan_asked.against && plan_asked.zero_table)
        return fail(err, ERR_USAGE, "--against: is another question than --zero-table; ask one of them");
    if (plan_asked.against) return compare_against(options, plan_asked.against, err);
    return plan_asked.zero_table ? zero_table(options, err) : plan_step(options, NULL, err);
}

enum error_code plan_fields(const struct train_options *options, struct error *err)
{
    const struct weather_asked asked = { .job = options->weather, .cluster = &options->cluster,
                                         .steps = options->steps, .json = options->json,
                                         .memory = report_budget(options) };
    if (options->steps < 1) return fail(err, ERR_USAGE, "--steps 0: a plan is of at least one step");
    return weather_plan(&asked, err);
}

enum error_code command_plan(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    (void)status;
    if (choose_is_asked(argc - 2, argv + 2)) return choose_plan(argc - 2, argv + 2, err);
    enum error_code e = train_parse(&o, &run_plan, argc - 2, argv + 2, err);
    if (!e && o.weather) {
        e = !o.help && launcher_rank() == 0 ? plan_fields(&o, err) : OK;
        train_options_free(&o);
        return e;
    }
    if (!e && !o.help) e = choose_check(err);
    if (!e && !o.help && o.steps < 1) e = fail(err, ERR_USAGE, "--steps 0: a plan is of at least one step");
    if (!e && !o.help && launcher_rank() == 0) {
        if (o.from) from_print(run_stream(&o), o.from);
        e = plan_answer(&o, err);
    }
    train_options_free(&o);
    return e;
}

enum error_code train_plan_words(struct plan_numbers *numbers, int words, const char *const word[], struct error *err)
{
    struct train_options o;
    enum error_code e = train_parse(&o, &run_plan, words, (char **)(uintptr_t)word, err);
    if (!e && o.weather) e = fail(err, ERR_USAGE, "a published step is of a model of tokens");
    if (!e && (o.help || o.json || o.timeline || o.steps < 1))
        e = fail(err, ERR_USAGE, "a plan of a published step takes no --help, --json, --timeline or --steps 0");
    if (!e) e = plan_numbers_of(&o, numbers, err);
    train_options_free(&o);
    return e;
}
