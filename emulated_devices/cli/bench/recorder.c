/* recorder.c -- `orrery bench recorder`: what it costs that devices always record their calls (comm/recorder.h).
 * bench.c calls bench_recorder_topic().  Errors: ERR_USAGE of the words, and those of a step. */
#include "emulated_devices/bench/recorder_cost.h"
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include "ref/model/config.h"

enum { SEQUENCES = 8 };                 /* of a batch: two for each copy */

static enum error_code recorder_plan(struct plan *plan, const struct cluster *cluster, struct error *err)
{
    int64_t batch;
    *plan = case_plan(4, 2, 1);
    enum error_code e = model_config_preset(&plan->model, &batch, "tiny", err);
    plan->B = SEQUENCES, plan->S = plan->model.S, plan->dtype = F32, plan->cluster = cluster;
    return e ? e : plan_check(plan, err);
}

enum error_code bench_recorder_topic(int argc, char **argv, int *status, struct error *err)
{
    struct cluster cluster;
    struct plan plan;
    struct recorder_cost cost;
    int steps = 3;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--steps", "N", OPTION_INT, &steps, .min = 1, .max = 1000,
          .help = "steps of the smallest preset, on 8 devices" },
        { 0 }
    };
    enum error_code e = parse_command("bench recorder", "[options]",
                                      "What it costs that every device records its collectives and steps: the time of\n"
                                      "the functions on this machine, beside a step of the smallest preset on a mesh\n"
                                      "of 4 copies of 2 parts.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&cluster, CLUSTER_USUAL, err);
    if (!e) e = recorder_plan(&plan, &cluster, err);
    if (!e) e = recorder_cost(&cost, &plan, steps, err);
    if (e) return e;
    say(stdout, 0, "A call is recorded in %.0f ns, and each of its messages in %.0f ns.\nA step has %.0f calls and "
        "%.0f messages on a device, and takes it %s of a processor.\nRecording is %.3f %% of that.", cost.call,
        cost.message, cost.calls, cost.messages, time_format(cost.step / 1e9).text, cost.share);
    json_add(document_data(), "call_ns %g message_ns %g calls %g messages %g step_ns %g share_percent %g", cost.call,
             cost.message, cost.calls, cost.messages, cost.step, cost.share);
    return OK;
}
