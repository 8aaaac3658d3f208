/* plan.c -- `orrery plan`: a training step of any mesh without its numbers, in this process.
 *
 * Every device runs as in `orrery train`, with the backend `count` and in a crew (comm/crew.h): messages, bytes, memory
 * and virtual time are the same, to the byte and the picosecond.
 */
#include "emulated_devices/cli/train/train.h"

/* Options of a run that has numbers, text and processes. */
#define OF_NUMBERS                                                                                  \
    "--data", "--eval-data", "--pack", "--sample", "--check", "--dump", "--isolate", "--paranoid",  \
    "--backend", "--direct", "--wait-limit", "--threads", "--save", "--save-every", "--keep",       \
    "--log", "--log-every", "--tensorboard", "--eval-every", "--owners-out", "--save-load",         \
    "--resume", "--override",                                                                       \
    "--lr", "--min-lr", "--warmup", "--lr-steps", "--lr-schedule", "--lr-decay",                    \
    "--weight-decay", "--seed", "--trace", "--trace-steps", "--trace-format", "--modalities",       \
    "--encoders", "--bridge-chunks", "--encoder-slack", "--dry-plan_run"

static const char *const of_numbers[] = { OF_NUMBERS, NULL };

/* A drawing is no report of a run: its JSON is that of every command. */
static const char *const of_reports[] = { OF_NUMBERS, "--json", NULL };

const struct run_kind run_plan = {
    .command = "plan", .without = of_numbers, .steps = 1,
    .what = "What a training step would take on a mesh of up to 16384 devices, without running it: memory,\n"
            "messages and virtual time of every device, and whether it fits.\n"
            "Takes the options of `orrery train` that say what is trained where. The numbers are those of a run,\n"
            "to the byte and the picosecond. Tokens of a mixture go to the experts that --load says, by default to\n"
            "all evenly; a run with the same --load sends them there, too.\n"
            "The exit status is 3 if a device needs more memory than --memory, or else its cluster's, allows.",
};

/* `orrery show data`, `memory` and `plan`: a plan that is drawn. */
#define SHOWS(topic, about)                                                                         \
    { .command = "show " topic, .without = of_reports, .steps = 1,                                      \
      .what = about "\nTakes the options of `orrery plan`, and --svg FILE.  Without any of a mesh it " \
                    "is --dp 4,\nwithout a model tiny." }

const struct run_kind run_show_data = SHOWS("data", "Draw who holds and sends what of weights, gradients and optimizer "
                                                    "state, pass by pass.\nA first word NAME is short for "
                                                    "--data-parallel NAME.");
const struct run_kind run_show_memory = SHOWS("memory", "Draw what the fullest device holds, pass by pass.");
const struct run_kind run_show_plan = SHOWS("plan", "Draw which device has which layers, heads, sequences, tokens and "
                                                    "experts.");

enum error_code command_plan(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    (void)status;
    enum error_code e = train_parse(&o, &run_plan, argc - 2, argv + 2, err);
    if (!e && !o.help && o.steps < 1) e = fail(err, ERR_USAGE, "--steps 0: a plan is of at least one step");
    if (!e && !o.help && launcher_rank() == 0) e = plan_step(&o, err);
    train_options_free(&o);
    return e;
}
