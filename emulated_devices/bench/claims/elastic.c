/* elastic.c -- tasks with weights of their own, trained beside each other: samples a second of each device, when heavy
 * tasks get more devices, over those with one device a task.
 *
 * Source   elastic training of MoESys (SE-MoE), arXiv:2205.10034: tasks with batches of different sizes; a step ends
 *          when the last task's does, so a heavy task delays all others
 * Ours     a task is a run of its own: its model, its batch, its copies, which reduce gradients among themselves alone.
 *          Each is planned as `orrery plan` plans it.  plan/elastic.h gives devices to tasks
 *
 * quantities.c lists the function.  ERR_USAGE for words that are no tasks; errors of a plan are passed on.
 */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/plan/elastic.h"
#include "emulated_devices/run/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TASKS = 16, TASK_MOST_SAMPLES = 1 << 20 };
struct tasks { int count; int64_t batch[MOST_TASKS]; };

static enum error_code read_tasks(struct tasks *tasks, const char *list, struct error *err)
{
    for (const char *at = list;;) {
        char *end;
        const long long n = strtoll(at, &end, 10);
        if (tasks->count == MOST_TASKS || end == at || n < 1 || n > TASK_MOST_SAMPLES ||
            (*end != ',' && *end != '\0'))
            return fail(err, ERR_USAGE, "--tasks %s: up to %d sizes of batches with commas between", list, MOST_TASKS);
        tasks->batch[tasks->count++] = n;
        if (*end == '\0') return OK;
        at = end + 1;
    }
}

/* Seconds of a step of all tasks: of the last one that ends. */
static enum error_code elastic_step(const struct tasks *tasks, const int *replicas, const struct claim *own,
                               const struct claims_setting *setting, double *seconds, struct error *err)
{
    enum error_code e = OK;
    *seconds = 0;
    for (int t = 0; t < tasks->count && !e; t++) {
        struct plan_numbers numbers;
        const char *word[CLAIM_WORDS];
        char batch[24], dp[24];
        int n = 0;
        for (int i = 0; i < own->words; i++) word[n++] = own->word[i];
        snprintf(batch, sizeof batch, "%lld", (long long)tasks->batch[t]);
        snprintf(dp, sizeof dp, "%d", replicas[t]);
        word[n++] = "--batch", word[n++] = batch, word[n++] = "--dp", word[n++] = dp;
        e = setting->plan(&numbers, n, word, err);
        if (!e && numbers.speed.seconds > *seconds) *seconds = numbers.speed.seconds;
    }
    return e;
}

enum error_code quantity_elastic_tasks(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct tasks tasks = { 0 };
    struct claim own = *claim;
    int replicas[MOST_TASKS], one[MOST_TASKS];
    const int devices = atoi(claim_word(claim, "--on"));
    double even = 0, alone = 0;
    own.words = 0;
    for (int i = 0; i + 1 < claim->words; i += 2)
        if (strcmp(claim->word[i], "--tasks") != 0 && strcmp(claim->word[i], "--on") != 0)
            own.word[own.words++] = claim->word[i], own.word[own.words++] = claim->word[i + 1];
    if (setting->plan == NULL) return fail(err, ERR_USAGE, "claims of planned steps need a planner");
    if (own.words + 4 > CLAIM_WORDS) return fail(err, ERR_USAGE, "too many words for a task");
    enum error_code e = read_tasks(&tasks, claim_word(claim, "--tasks"), err);
    for (int t = 0; t < tasks.count; t++) one[t] = 1;
    if (!e) e = fail_about(err, elastic_replicas(tasks.batch, tasks.count, devices, replicas, err), "--on:");
    if (!e) e = elastic_step(&tasks, replicas, &own, setting, &even, err);
    if (!e) e = elastic_step(&tasks, one, &own, setting, &alone, err);
    /* Both steps have the same samples: their rates go by the seconds and the devices. */
    if (!e) claim->ours = alone * tasks.count / (even * devices);
    return e;
}
