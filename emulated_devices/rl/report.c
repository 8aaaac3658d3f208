/* report.c -- prints a run of reinforcement learning.  cli/train/rl.c calls.  Errors: ERR_CHECK of a difference from
 * one device, ERR_MEMORY. */
#include "emulated_devices/rl/report.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Lines of a run, at most; signs of a bar. */
enum { REPORT_LINES = 25, BAR = 25 };

void rl_report_open(struct rl_report *report, const struct rl_job *job)
{
    *report = (struct rl_report){ .job = job, .every = (job->iterations + REPORT_LINES - 1) / REPORT_LINES,
                                  .began = measure_now() };
}

static const char *mesh_text(const struct mesh *mesh, char *out, size_t size)
{
    int used = 0;
    out[0] = '\0';
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh->size[a] > 1)
            used += snprintf(out + used, size - (size_t)used, "%s%s %d", used ? ", " : "", axis_name((enum axis)a),
                             mesh->size[a]);
    return used ? out : "one device";
}

enum error_code rl_report_begin(struct rl_report *report, struct error *err)
{
    const struct rl_job *const job = report->job;
    char mesh[80], group[60] = "";
    (void)err;
    if (!job->rule->values) snprintf(group, sizeof group, ", %d to a prompt", job->group);
    say(stdout, 8, "policy  %s on %s; rule %s, %s", job->plan.model.name, mesh_text(&job->plan.mesh, mesh, sizeof mesh),
        job->rule->name, job->rule->title);
    say(stdout, 8, "task    sums of two numbers below %lld; %lld answers of an iteration%s, staleness %d",
        (long long)job->task.most, (long long)(job->plan.B * job->minibatches), group, job->staleness);
    printf("\n%9s %7s %6s %10s %9s %8s  reward\n", "iteration", "reward", "right", "loss", "norm", "mismatch");
    fflush(stdout);
    return OK;
}

void rl_report_step(void *context, int64_t iteration, const struct rl_step *step)
{
    struct rl_report *const report = context;
    char bar[BAR + 1], mismatch[16];
    const int64_t n = iteration + 1;
    if (n != 1 && n % report->every != 0 && n != report->job->iterations) return;
    const int filled = (int)(step->reward * BAR + 0.5);
    memset(bar, '#', (size_t)filled), bar[filled] = '\0';
    snprintf(mismatch, sizeof mismatch, isnan(step->mismatch) ? "-" : step->mismatch == 0 ? "0" : "%.1e",
             step->mismatch);
    printf("%9lld %7.3f %5.0f%% %10.4f %9.3g %8s  %s\n", (long long)n, step->reward, 100 * step->right, step->loss,
           step->norm, mismatch, bar);
    fflush(stdout);
}

/* ---- at the end -------------------------------------------------------------------------------------------------- */

static void add_steps(cJSON *data, const struct rl_record *record)
{
    cJSON *const list = cJSON_AddArrayToObject(data, "iterations");
    for (int64_t i = 0; i < record->iterations; i++) {
        const struct rl_step *const s = &record->step[i];
        cJSON *const row = json_row(list);
        json_add(row, "iteration %g version %g reward %g right %g tokens %g loss %g norm %g value_loss %g kl %g "
                 "clipped %g draw_ps %g train_ps %g move_ps %g", (double)i + 1, (double)s->version, s->reward, s->right,
                 s->tokens, s->loss, s->norm, s->value_loss, s->kl, s->clipped, (double)s->draw, (double)s->train,
                 (double)s->move);
        if (!isnan(s->mismatch)) json_add(row, "mismatch %g mean_mismatch %g", s->mismatch, s->mean_mismatch);
    }
}

static void report_add_run(const struct rl_report *report, const struct rl_record *record)
{
    const struct rl_job *const job = report->job;
    cJSON *const data = document_data();
    if (data == NULL) return;
    json_add(data, "rule %s model %s devices %d group %d staleness %d samples %g moves %g moved_bytes %g "
             "stayed_bytes %g", job->rule->name, job->plan.model.name, job->plan.mesh.devices, job->group,
             job->staleness, (double)record->samples, (double)record->moves.times, (double)record->moves.moved,
             (double)record->moves.stayed);
    add_steps(data, record);
    if (!record->checked) return;
    const struct serial *const s = &record->serial;
    json_add(cJSON_AddObjectToObject(data, "check"), "tokens %g right %g open %g wrong %g tensors %g "
             "log_probabilities %g farthest %g bound %g", (double)s->answers.tokens, (double)s->answers.right,
             (double)s->answers.open, (double)s->answers.wrong, (double)record->comparison.compared,
             (double)s->old.numbers, s->old.farthest, s->old.bound);
}

static void say_mismatch(const struct rl_record *record)
{
    double most = 0, sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < record->iterations; i++) {
        if (isnan(record->step[i].mismatch)) continue;
        most = fmax(most, record->step[i].mismatch), sum += record->step[i].mean_mismatch, n++;
    }
    if (n > 0)
        say(stdout, 10, "mismatch  of a token's log-probability, drawn against trained with the same weights: %.2g at "
            "most, %.2g on average", most, sum / (double)n);
}

static void say_moves(const struct rl_record *record)
{
    const struct weight_moves *const m = &record->moves;
    say(stdout, 10, "weights   moved %lld times from training to drawing: %s in %d messages, the fewest bytes there "
        "can be; %s stayed", (long long)m->times, size_format(m->moved).text, m->messages, size_format(m->stayed).text);
}

static void say_checked(const struct rl_record *record)
{
    const struct serial *const s = &record->serial;
    say(stdout, 10, "compared  %lld tokens with one device: %lld right, %lld that rounding leaves open; %lld "
        "log-probabilities, off by %.2g at most; %lld tensors of training", (long long)s->answers.tokens,
        (long long)s->answers.right, (long long)s->answers.open, (long long)(s->old.numbers + s->ref.numbers),
        fmax(s->old.farthest, s->ref.farthest), (long long)(record->comparison.compared + record->critic.compared));
    if (record->silent > 0)
        say(stdout, 10, "          %lld training step%s had equal rewards in all groups: what gradients are there is "
            "that of the distance, or rounding", (long long)record->silent, record->silent == 1 ? "" : "s");
}

enum error_code rl_report_end(struct rl_report *report, const struct rl_record *record, struct error *err)
{
    const struct rl_step *const last = &record->step[record->iterations - 1];
    const double seconds = measure_now() - report->began;
    printf("\n");
    say(stdout, 10, "reward    %.3f in iteration 1, %.3f in iteration %lld; %.0f%% of its answers are right; %.1f s",
        record->step[0].reward, last->reward, (long long)record->iterations, 100 * last->right, seconds);
    say_mismatch(record);
    say_moves(record);
    if (record->checked) say_checked(record);
    report_add_run(report, record);
    const enum error_code e = rl_verdict(record, &report->job->plan, err);
    if (!e && record->checked)
        say_verdict(stdout, GOOD_NEWS, "OK: tokens, losses, gradients and weights are those of one device.");
    return e;
}
