/* dispatch_planned.c -- plans steps under expert schemes that adapt, and gives their times beside the claims of papers.
 * cli/bench/schemes/dispatch.c calls on device 0 when all devices have counted.  Errors are those of a plan. */
#include "emulated_devices/cli/bench/schemes/dispatch_planned.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/plan.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

enum { PLANNED_WORDS = 32, SCHEME_WORDS = 5 };

/* A plan's scheme, as typed; and what a paper says of it against another row. */
struct planned_scheme {
    const char *word[SCHEME_WORDS];     /* NULL: no more */
    const char *claim;                  /* NULL: none */
    int than;                           /* the row that it is compared with */
};

static const struct planned_scheme schemes[PLANNED_SCHEMES] = {
    { { "alltoall" }, NULL, 0 },
    { { "fssdp", "--copies", "1" }, "Hecate, arXiv:2502.02581: up to 3.54", 0 },
    { { "fssdp", "--copies", "2" }, "Hecate, arXiv:2502.02581: up to 3.54", 0 },
    { { "fssdp", "--copies", "2", "--copy-again" }, "Hecate, arXiv:2502.02581: re-materialised", 0 },
    { { "tutel", "--degree", "1", "--row-parts", "1" }, NULL, 0 },
    { { "tutel", "--degree", "1" }, "Tutel, arXiv:2206.03382: adaptive pipelining", 4 },
};

/* Two steps: the first has no loads of earlier ones.  The plan's time is that of the last. */
static enum error_code plan_scheme(double *seconds, const struct planned_scheme *scheme, struct error *err)
{
    const char *word[PLANNED_WORDS] = {
        "--model", "mixtral-tiny", "--dp", "4", "--ep", "4", "--batch", "16", "--seq", "64", "--memory", "0",
        "--steps", "2", "--load", "zipf:1.5", "--cluster", CLUSTER_USUAL, "--dispatch",
    };
    struct plan_numbers numbers;
    int words = 0;
    while (word[words]) words++;
    for (int i = 0; i < SCHEME_WORDS && scheme->word[i]; i++) word[words++] = scheme->word[i];
    const enum error_code e = train_plan_words(&numbers, words, word, err);
    if (!e) *seconds = numbers.speed.seconds;
    return e;
}

static void name_scheme(const struct planned_scheme *scheme, char *text, size_t room)
{
    int used = 0;
    for (int i = 0; i < SCHEME_WORDS && scheme->word[i]; i++)
        used += snprintf(text + used, room - (size_t)used, "%s%s", i ? " " : "", scheme->word[i]);
}

enum error_code dispatch_planned_measure(struct dispatch_planned *planned, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < PLANNED_SCHEMES && !e; i++) e = plan_scheme(&planned->seconds[i], &schemes[i], err);
    return e;
}

/* How many times as fast a row's step is as that of the row that its claim compares it with. */
static double times_as_fast(const struct dispatch_planned *planned, int row)
{
    return planned->seconds[schemes[row].than] / planned->seconds[row];
}

void dispatch_planned_print(const struct dispatch_planned *planned)
{
    say(stdout, 0, "\nA whole step of mixtral-tiny on 4 devices of %s, 16 sequences of 64 tokens,\n"
        "--load zipf:1.5, as `orrery plan` has it: virtual time, and what papers say.\n", CLUSTER_USUAL);
    struct table to = table_start(NULL, 2, "scheme\t\tms\ttimes as fast\t\tsource");
    for (int i = 0; i < PLANNED_SCHEMES; i++) {
        char name[64];
        const double times = times_as_fast(planned, i);
        name_scheme(&schemes[i], name, sizeof name);
        if (schemes[i].claim)
            table_row(&to, "%s\t\t%.3f\t%.3f\t%s\t%s", name, planned->seconds[i] * 1e3, times,
                      times > 1 ? "yes" : "NO", schemes[i].claim);
        else table_row(&to, "%s\t\t%.3f\t\t\t", name, planned->seconds[i] * 1e3);
    }
    table_end(&to);
}

void dispatch_planned_json(const struct dispatch_planned *planned, cJSON *root)
{
    cJSON *rows = cJSON_AddArrayToObject(root, "planned");
    for (int i = 0; i < PLANNED_SCHEMES; i++) {
        char name[64], than[64];
        name_scheme(&schemes[i], name, sizeof name), name_scheme(&schemes[schemes[i].than], than, sizeof than);
        cJSON *row = json_add(json_row(rows), "scheme %s seconds %g", name, planned->seconds[i]);
        if (schemes[i].claim)
            json_add(row, "than %s times_as_fast %g source %s", than, times_as_fast(planned, i), schemes[i].claim);
    }
}
