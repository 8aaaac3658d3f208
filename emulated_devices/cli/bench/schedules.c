/* schedules.c -- `orrery bench schedules`: published bubbles beside ours, and all schedules side by side.  bench.c
 * calls bench_schedules_topic().  Errors: ERR_USAGE of the words, ERR_PLAN for a schedule that does not fit, ERR_FILE
 * of the results. */
#include "emulated_devices/cli/bench/bench.h"
#include "ref/machine/measure.h"
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the paper's table ------------------------------------------------------------------------------------------- */

/* In units of the last printed digit. */
static int digits_apart(double ours, double published) { return (int)lround((ours - published) * 1e4); }

/* A row of the paper's table: the claims of a line of its file, from `first` on.  Interleaved schedules, too, are
 * executed here.  @param same  counts rates of the paper's formula that are equal to the last digit. */
static enum error_code add_setting(struct table *table, const struct claims *claims, int first, int *same,
                                   struct error *err)
{
    const struct claim *const claim = claims->claim;
    char row[400];
    int used = snprintf(row, sizeof row, "%.*s\t%s\t%s", (int)strcspn(claim[first].what, ","), claim[first].what,
                        claim_word(&claim[first], "--pp"), claim_word(&claim[first], "--micro"));
    for (int i = first; i < claims->count && claim[i].line == claim[first].line; i++) {
        struct published_setting setting;
        const char *schedule;
        bool formula;
        double rate;
        enum error_code e = claim_bubble(&claim[i], &setting, &schedule, &formula, err);
        if (!e) e = published_bubble(&setting, schedule, &rate, err);
        if (e) return e;
        const int apart = digits_apart(published_digits(rate), claim[i].published);
        used += snprintf(row + used, sizeof row - (size_t)used, "\t%.4f\t%.4f\t", claim[i].published, rate);
        if (formula || apart) used += snprintf(row + used, sizeof row - (size_t)used, "%+d", apart);
        *same += formula && digits_apart(published_digits(published_interleaved_formula(&setting)),
                                         claim[i].published) == 0;
    }
    table_row(table, "%s", row);
    return OK;
}

static enum error_code print_settings(const struct claims *claims, struct error *err)
{
    enum error_code e = OK;
    char head[400];
    int same = 0, settings = 0, used = snprintf(head, sizeof head, "model\tP\tM");
    say(stdout, 0, "Bubble rates of %s, and ours\n", claims->source);
    for (int i = 0; i < claims->count && claims->claim[i].line == claims->claim[0].line; i++)
        used += snprintf(head + used, sizeof head - (size_t)used, "\t%s\tours\tapart",
                         claim_word(&claims->claim[i], "--schedule"));
    struct table t = table_start("published", 3, head);
    for (int i = 0; i < claims->count && !e; i++)
        if (i == 0 || claims->claim[i].line != claims->claim[i - 1].line)
            e = add_setting(&t, claims, i, &same, err), settings++;
    table_end(&t);
    say(stdout, 0,
        "\nDifferences are in units of the last digit.  For interleaved schedules the paper has a formula with\n"
        "2vP-P-2 message delays, which gives %d of its %d rates to the last digit. An executed schedule has\n"
        "2(vP-1) of them; ours counts all.\n", same, settings);
    return e;
}

static enum error_code print_published(struct error *err)
{
    struct claims claims;
    enum error_code e = claims_find(&claims, "zero-bubble", NULL, err);
    if (!e) e = print_settings(&claims, err);
    claims_free(&claims);
    return e;
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

static enum error_code print_formulas(struct error *err)
{
    enum error_code e = OK;
    say(stdout, 0, "Idle time of a device as published, and ours: P=8, M=32; B = I + W; F&B, a forward and a\n"
        "backward that DualPipe does side by side, counts as one action, as long as both\n");
    struct table t = table_start("formulas", 2, "schedule\tformula\tF\tI\tW\tpublished\tours\tsource");
    for (const struct published_formula *f = published_formulas; f->schedule && !e; f++) {
        const struct published_case unequal = { 8, 32, f->chunks, 6, 8, 4 }, equal = { 8, 32, f->chunks, 6, 6, 6 },
                                    c = f->equal_times ? equal : unequal;
        int64_t ours;
        e = published_idle(f, c, &ours, err);
        if (!e)
            table_row(&t, "%s\t%s\t%d\t%d\t%d\t%s%lld\t%lld\t%s", f->schedule, f->formula, (int)c.F, (int)c.I,
                      (int)c.W, f->at_most ? "<= " : "", (long long)f->idle(c), (long long)ours, f->source);
    }
    table_end(&t);
    printf("\n");
    return e;
}

/* ---- how long it takes to make them ------------------------------------------------------------------------------ */

enum { LARGE_P = 64, LARGE_M = 512, SEARCH_P = 32, SEARCH_M = 256 };

static enum error_code make_and_prove(const char *name, int P, int M, double *seconds, struct error *err)
{
    struct schedule s;
    const double start = measure_now();
    enum error_code e = schedule_make(&s, name, &(struct schedule_request){ .devices = P, .micros = M }, err);
    if (e) return e;
    e = schedule_validate(&s, err);
    *seconds = measure_now() - start;
    schedule_free(&s);
    return e;
}

static enum error_code print_making(struct error *err)
{
    enum error_code e = OK;
    double most = 0, one;
    printf("Seconds to make a schedule and to prove that it runs\n\n");
    struct table t = table_start("making", 1, "schedule\tP\tM\tseconds");
    for (int i = 0; schedule_generator_at(i) && !e; i++) {
        const char *name = schedule_generator_at(i)->head.name;
        const bool search = strcmp(name, "zb-1p") == 0 || strcmp(name, "zb-2p") == 0;
        e = make_and_prove(name, LARGE_P, LARGE_M, &one, err);
        if (!e && one > most) most = one;
        if (!e) table_row(&t, "%s\t%d\t%d\t%.3f", name, LARGE_P, LARGE_M, one);
        if (!e && search) e = make_and_prove(name, SEARCH_P, SEARCH_M, &one, err);
        if (!e && search) table_row(&t, "%s\t%d\t%d\t%.3f", name, SEARCH_P, SEARCH_M, one);
    }
    table_end(&t);
    if (!e) printf("\n  the longest of P=%d M=%d: %.3f\n\n", LARGE_P, LARGE_M, most);
    return e;
}

/* ---- all schedules, the same work -------------------------------------------------------------------------------- */

struct wanted { int pp, micro; uint64_t forward, backward_input, backward_weight, communication; };

/* A chunk has 1/chunks of a device's layers.  All times are multiplied by chunks: a chunk then takes a device's time,
 * and a message chunks times as long. */
static enum error_code time_schedule(const struct schedule *schedule, const struct wanted *wanted,
                                     struct timing *timing, struct error *err)
{
    const struct even_times each = { (int64_t)wanted->forward, (int64_t)wanted->backward_input,
                                    (int64_t)wanted->backward_weight,
                                     (int64_t)wanted->communication * (schedule->stages / schedule->devices), 0 };
    return schedule_time_evenly(timing, schedule, each, err);
}

static void add_schedule(struct table *to, const struct schedule *schedule, const struct timing *timing)
{
    int peak = 0;
    for (int d = 0; d < schedule->devices; d++)
        peak = schedule_peak(schedule, d) > peak ? schedule_peak(schedule, d) : peak;
    /* stages of the model on a device, copies not counted twice */
    const double share = (double)schedule->stages / schedule->devices;
    table_row(to, "%s\t%d\t%.2f\t%.4g\t%.4g\t%lld\t%s", schedule->name, schedule->chunks, 100 * timing->bubble,
              (double)timing->span / share, peak / share, (long long)schedule_messages(schedule),
              schedule_adds_in_order(schedule) ? "yes" : "no");
}

static enum error_code schedules_print_all(const struct wanted *wanted, struct error *err)
{
    say(stdout, 0,
        "All schedules: %d devices, %d microbatches; all layers of a device take F %llu, I %llu, W %llu; a message "
        "%llu\n", wanted->pp, wanted->micro, (unsigned long long)wanted->forward,
        (unsigned long long)wanted->backward_input,
           (unsigned long long)wanted->backward_weight, (unsigned long long)wanted->communication);
    struct table table = table_start("schedules", 1, "schedule\tchunks\tbubble %\ttime\tmemory\tmessages"
                                                     "\tadds in order");
    for (int i = 0; schedule_generator_at(i); i++) {
        struct schedule s;
        struct timing t;
        struct error why;
        const struct schedule_request q = { .devices = wanted->pp, .micros = wanted->micro,
                                            .chunks = schedule_generator_at(i)->chunks ? 0 : 2,
                                            .forward = (int64_t)wanted->forward,
                                            .backward_input = (int64_t)wanted->backward_input,
                                            .backward_weight = (int64_t)wanted->backward_weight,
                                            .communication = (int64_t)wanted->communication };
        enum error_code e = schedule_make(&s, schedule_generator_at(i)->head.name, &q, &why);
        if (e == ERR_PLAN)
            table_row(&table, "%s\t\t\t\t\t\tneeds %s", schedule_generator_at(i)->head.name,
                      schedule_generator_at(i)->head.needs);
        if (e == ERR_PLAN) continue;
        if (e) return fail(err, e, "%s", why.text);
        e = time_schedule(&s, wanted, &t, err);
        if (!e) add_schedule(&table, &s, &t), timing_free(&t);
        schedule_free(&s);
        if (e) return e;
    }
    table_end(&table);
    say(stdout, 0, "\nMemory: microbatches whose activations the fullest device holds at once, for all its layers.");
    return OK;
}

enum error_code bench_schedules_topic(int argc, char **argv, int *status, struct error *err)
{
    static const double LONGEST = 1e9;
    struct wanted w = { .pp = 4, .micro = 8, .forward = 1, .backward_input = 1, .backward_weight = 1 };
    bool help;
    (void)status;
    const struct option table[] = {
        { .kind = OPTION_HEADING, .help = "The second table: all schedules doing the same work" },
        { "--pp", "P", OPTION_INT, &w.pp, .min = 1, .max = 256, .help = "devices" },
        { "--micro", "M", OPTION_INT, &w.micro, .min = 1, .max = 4096, .help = "microbatches" },
        { "--F", "T", OPTION_UINT64, &w.forward, .min = 0, .max = LONGEST, .help = "time of a forward, in any unit" },
        { "--I", "T", OPTION_UINT64, &w.backward_input, .min = 0, .max = LONGEST,
          .help = "time of a backward for the input" },
        { "--W", "T", OPTION_UINT64, &w.backward_weight, .min = 0, .max = LONGEST,
          .help = "time of a backward for the weights" },
        { "--comm", "T", OPTION_UINT64, &w.communication, .min = 0, .max = LONGEST,
          .help = "time of a message, from send to arrival" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench schedules", "[options]", "Compare bubble rates with published ones, then all schedules with each other.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = print_published(err);
    if (!e) e = print_formulas(err);
    if (!e) e = print_making(err);
    return e ? e : schedules_print_all(&w, err);
}
