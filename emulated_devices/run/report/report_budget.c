/* report_budget.c -- time, energy and money of a whole training, from the virtual time of one step.
 *
 * `orrery plan --tokens T` asks for it (run/plan.c, report_json.c).  Steps are whole, so the last step may have more
 * tokens than are left.  The training runs without a break: no checkpoint, no failure, no validation is counted.
 * No function here can fail.
 */
#include "emulated_devices/run/report/report_budget.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <math.h>

enum { SECONDS_AN_HOUR = 3600, CENTS_A_DOLLAR = 100 };

struct budget {
    double steps, seconds, hours;       /* of the training; hours of all devices together */
    double watts, joules;               /* of all devices; 0: the cluster does not say what a device draws */
    double dollars;                     /* 0: the cluster does not say what a device costs */
};

static struct budget budget_of(const struct training *training)
{
    const struct costs *costs = &training->cluster->costs;
    struct budget b = { .watts = (double)training->devices * (double)costs->watts };
    b.steps = training->step_tokens > 0 ? ceil((double)training->tokens / training->step_tokens) : 0;
    b.seconds = b.steps * training->step_seconds;
    b.hours = b.seconds * training->devices / SECONDS_AN_HOUR;
    b.joules = b.watts * b.seconds;
    b.dollars = b.hours * (double)costs->cents / CENTS_A_DOLLAR;
    return b;
}

static void budget_costs_print(FILE *out, const struct training *training, const struct budget *budget)
{
    const struct cluster *c = training->cluster;
    if (budget->watts > 0)
        say(out, 8, "        with %s at most: %s, %lld W a device", energy_format(budget->joules).text,
            power_format(budget->watts).text, (long long)c->costs.watts);
    if (budget->dollars > 0)
        say(out, 8, "        for %s US dollars, %.2f for a device hour", count_format(budget->dollars).text,
            (double)c->costs.cents / CENTS_A_DOLLAR);
    if (!(budget->watts > 0) || !(budget->dollars > 0))
        say(out, 8, "        (cluster %s does not say what a device %s: \"costs\" in its file)", c->name,
            budget->watts > 0 ? "costs" : budget->dollars > 0 ? "draws" : "draws and costs");
}

void report_budget_print(FILE *out, const struct training *training)
{
    const struct budget b = budget_of(training);
    if (training->tokens == 0) return;
    say(out, 8, "tokens  %s (--tokens) are %s step%s of %s, each as long as this one",
        count_format((double)training->tokens).text, count_format(b.steps).text, b.steps == 1 ? "" : "s",
        count_format(training->step_tokens).text);
    if (!(b.seconds > 0)) {
        say(out, 8, "        in no time: nothing takes time on cluster %s", training->cluster->name);
        return;
    }
    say(out, 8, "        in %s without a break, %s device hours", time_format(b.seconds).text,
        count_format(b.hours).text);
    budget_costs_print(out, training, &b);
}

void report_budget_json(cJSON *root, const struct training *training)
{
    const struct budget b = budget_of(training);
    if (training->tokens == 0) return;
    cJSON *to = json_add(cJSON_AddObjectToObject(root, "training"),
                         "tokens %g steps %g tokens_per_step %g seconds %g device_hours %g",
                         (double)training->tokens, b.steps, training->step_tokens, b.seconds, b.hours);
    if (b.watts > 0) json_add(to, "joules %g", b.joules);
    if (training->cluster->costs.cents > 0) json_add(to, "us_dollars %g", b.dollars);
}
