/* serve_plans.c -- reads and writes tables for a search of plans, and prints what it has found.  serve.c calls.  Errors
 * are those of tables and of plans_search. */
#include "emulated_devices/cli/train/serve_plans.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/plans/search.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

/* A device waits with this part of its watts: as in `orrery cluster`. */
enum { WAITS_PERCENT = 40, PLANS_SHOWN = 16 };

static enum plan_goal goal_by_word(const char *word)
{
    enum plan_goal goal = 0;
    while (goal < GOALS - 1 && strcmp(plan_goal_words[goal], word) != 0) goal++;
    return goal;
}

static void mesh_words(const struct serving_plan *plan, char *out, size_t size)
{
    const bool mesh = plan->attention.cells == 1 && plan->feedforward.cells == 1;
    if (mesh)
        snprintf(out, size, "--dp %d --tp %d --pp %d", plan->replicas, plan->attention.devices, plan->stages);
    else snprintf(out, size, "-");
}

static void print_outcomes(const struct plan_answer *answer)
{
    struct table t = table_start("plans", 1, "plan\treplicas\tstages\tattention\tfeed-forward\tGB a device\tblocks\t"
                                 "first token ms\tof a request ms\tall ms\ttokens/s\tjoules\tpreempted\tin the engine");
    const bool all = document_data() != NULL;
    for (int64_t i = 0; i < answer->outcomes && (all || i < PLANS_SHOWN); i++) {
        const struct plan_outcome *const o = &answer->outcome[i];
        const struct serving_plan *const p = &o->plan;
        char mesh[60], joules[30] = "-";
        mesh_words(p, mesh, sizeof mesh);
        if (o->joules > 0) snprintf(joules, sizeof joules, "%.5g", o->joules);
        table_row(&t, "%d\t%d\t%d\t%d x %d\t%d x %d\t%.3g\t%lld\t%.6g\t%.6g\t%.6g\t%.5g\t%s\t%lld\t%s", (int)i + 1,
                  p->replicas, p->stages, p->attention.cells, p->attention.devices, p->feedforward.cells,
                  p->feedforward.devices, o->memory / 1e9, (long long)o->blocks, 1e3 * o->first_token, 1e3 * o->latency,
                  1e3 * o->seconds, o->tokens_per_second, joules, (long long)o->preemptions, mesh);
    }
    table_end(&t);
    if (!all && answer->outcomes > PLANS_SHOWN)
        printf("and %lld more; --json has all\n", (long long)answer->outcomes - PLANS_SHOWN);
    if (answer->without_room + answer->too_long > 0)
        printf("%lld plans have no room for the weights, %lld none for the longest request\n",
               (long long)answer->without_room, (long long)answer->too_long);
}

static void print_fits(const struct plan_answer *answer)
{
    struct table t = table_start("fits", 1, "devices of a group\titerations\tfactor\trest us\tfloor us\t"
                                 "error %, mean\terror %, most");
    for (int i = 0; i < answer->fits; i++) {
        const struct plan_fit *const f = &answer->fit[i];
        table_row(&t, "%d\t%lld\t%.4f\t%.4g\t%.5g\t%.2f\t%.2f", f->devices, (long long)f->steps, f->calibration.factor,
                  1e6 * f->calibration.rest, 1e6 * f->calibration.floor, 100 * f->mean, 100 * f->most);
    }
    printf("\ntables beside the engine, whose first requests they are fitted to:\n");
    table_end(&t);
}

static double percent_off(double value, double of) { return of > 0 ? 100 * (value / of - 1) : 0; }

static void print_check(const struct plan_answer *answer)
{
    const struct plan_check *const c = &answer->check;
    char mesh[60];
    printf("\n");
    if (c->outcome < 0) {
        printf("none of these plans is a mesh of the engine\n");
        return;
    }
    const struct plan_outcome *const o = &answer->outcome[c->outcome];
    mesh_words(&o->plan, mesh, sizeof mesh);
    say(stdout, 8, "engine  plan %d, %s: of a request %s, all %s; the tables are %+.2f %% and %+.2f %% off",
        (int)c->outcome + 1, mesh, time_format(c->engine_latency).text, time_format(c->engine_seconds).text,
        percent_off(o->latency, c->engine_latency), percent_off(o->seconds, c->engine_seconds));
    say(stdout, 8, "        its iterations are %.2f %% off on average, %.2f %% at most", 100 * c->step_mean,
        100 * c->step_most);
    say(stdout, 8, "        %lld of %lld iterations have the same requests and tokens, with the engine's times",
        (long long)(c->iterations - c->differ), (long long)c->iterations);
    if (document_data())
        json_add(cJSON_AddObjectToObject(document_data(), "engine"), "plan %g latency %g seconds %g step_error %g"
                 " step_error_most %g iterations %g differ %g own_iterations %g", (double)c->outcome + 1,
                 c->engine_latency, c->engine_seconds, c->step_mean, c->step_most, (double)c->iterations,
                 (double)c->differ, (double)c->own_iterations);
}

enum error_code serve_plans(const struct plan *plan, const struct requests *requests,
                            const struct serving_limits *limits, const struct plan_words *words, struct error *err)
{
    struct time_profile profile = { 0 };
    struct plan_answer answer;
    struct plan_question question = {
        .base = plan, .requests = requests, .limits = *limits, .devices = plan->mesh.devices,
        .goal = goal_by_word(words->goal), .waits_percent = WAITS_PERCENT, .profile = &profile,
    };
    enum error_code e = words->profile == NULL ? OK
        : fail_about(err, profile_read(&profile, words->profile, words->gpu, plan->dtype, err), "--profile");
    if (!e) e = plans_search(&question, &answer, err);
    if (!e) {
        printf("plans   of %s, %s, on %d devices of %s; least %s first\n\n", plan->model.name,
               dtype_name(plan->dtype), question.devices, plan->cluster->name, words->goal);
        print_outcomes(&answer), print_fits(&answer), print_check(&answer);
        plan_answer_free(&answer);
    }
    if (!e && words->write_profile)
        e = fail_about(err, profile_write(&profile, words->write_profile, words->gpu ? words->gpu
                                          : plan->cluster->name, plan->dtype, err), "--write-profile");
    profile_free(&profile);
    return e;
}
