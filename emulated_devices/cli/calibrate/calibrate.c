/* calibrate.c -- `orrery calibrate`: this machine as a cluster file, and how well its clock tells the time here.
 * cli/main.c calls command_calibrate().  ERR_USAGE is for flags that do not go together; other errors are those of a
 * job, and ERR_MEMORY. */
#include "emulated_devices/cli/calibrate/check.h"
#include "emulated_devices/cli/calibrate/stream.h"
#include "emulated_devices/comm/comm.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/busy.h"
#include "ref/machine/cores.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USUAL_ROUNDS = 60, QUICK_ROUNDS = 10, CHECK_ROUNDS = 3 };

struct asked {
    const char *out, *json, *dtype, *models, *cluster;
    int devices, rounds, steps, elements;
    bool quick, check, quiet, busy, stream;
    bool rounds_given, steps_given, devices_given, models_given, cluster_given, elements_given;
};

struct result { const struct calibration *m; const struct cluster *c; const struct misfit *far; };

/* ---- the report -------------------------------------------------------------------------------------------------- */

static double percent(double clock, double timed) { return 100 * (clock / timed - 1); }

static void name_of_volley(const struct volley *volley, char *text, size_t room)
{
    snprintf(text, room, "%d message%s of %s", volley->messages, plural(volley->messages),
             size_format(volley->bytes).text);
}

static void print_rows(const struct result *result)
{
    struct table t = table_start(NULL, 1, "what\tleast us\tmedian us\tclock us\terror %");
    for (int i = 0; i < result->m->works; i++) {
        const struct work *w = &result->m->work[i];
        const double clock = work_time(result->c, result->m->dtype, w);
        table_row(&t, "%s\t%.1f\t%.1f\t%.1f\t%+.1f", w->name, 1e6 * w->took.least, 1e6 * w->took.median, 1e6 * clock,
                  percent(clock, w->took.least));
    }
    for (int i = 0; i < result->m->volleys; i++) {
        const struct volley *v = &result->m->volley[i];
        const double clock = volley_time(&result->c->link[0], v);
        char what[80];
        name_of_volley(v, what, sizeof what);
        table_row(&t, "%s\t%.1f\t%.1f\t%.1f\t%+.1f", what, 1e6 * v->took.least, 1e6 * v->took.median, 1e6 * clock,
                  percent(clock, v->took.least));
    }
    table_end(&t);
}

/* How much longer than the least the median round took, over everything: the neighbours. */
static double noise(const struct calibration *calibration)
{
    double sum = 0;
    for (int i = 0; i < calibration->works; i++)
        sum += calibration->work[i].took.median / calibration->work[i].took.least;
    for (int i = 0; i < calibration->volleys; i++)
        sum += calibration->volley[i].took.median / calibration->volley[i].took.least;
    return sum / (calibration->works + calibration->volleys);
}

static void print_report(const struct result *result)
{
    const struct calibration *m = result->m;
    const struct kernels *k = &result->c->kernels;
    const struct link *l = &result->c->link[0];
    const double rate = 1e6 * (double)result->c->flop_rate[m->dtype];
    say(stdout, 0, "%d device%s on %d core%s, %d thread%s each, %s; all work at once, the least of %d rounds",
        m->devices, plural(m->devices), m->cores, plural(m->cores), m->threads, plural(m->threads),
        dtype_name(m->dtype), m->rounds);
    if (m->devices > m->cores)
        say(stdout, 0, "the devices share the cores: times of work are of a whole core, multiplied by devices / cores");
    printf("\n");
    print_rows(result);
    say(stdout, 8, "\ndevice  %s in products, half of it at depth %lld, tiles of %lld x %lld",
        flop_rate_format(rate * (double)k->matrix_permille / 1000).text, (long long)k->half_depth,
        (long long)k->tile_rows, (long long)k->tile_columns);
    say(stdout, 8, "        %s in attention, half of it in heads of %lld; memory %s; %s a call",
        flop_rate_format(rate * (double)k->other_permille / 1000).text, (long long)k->other_half_depth,
        byte_rate_format(1e6 * (double)result->c->memory_rate).text, picoseconds_format((double)k->launch).text);
    if (m->volleys > 0)
        say(stdout, 8, "link    latency %s, gap %s, %s", picoseconds_format((double)l->latency).text,
            picoseconds_format((double)l->gap).text, byte_rate_format(1e6 * (double)l->rate).text);
    say(stdout, 8, "misfit  products %.1f %%, attention %.1f %%, other operations %.1f %%, messages %.1f %%",
        100 * result->far->kind[WORK_PRODUCT], 100 * result->far->kind[WORK_ATTENTION],
        100 * result->far->kind[WORK_MEMORY], 100 * result->far->volleys);
    say(stdout, 8, "noise   the median round took %.2f times the least", noise(m));
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void calibrate_add_row(cJSON *rows, const char *what, const char *kind, const struct rounds *took, double clock)
{
    json_add(json_row(rows), "what %s kind %s least_seconds %g median_seconds %g clock_seconds %g error_percent %g",
             what, kind, took->least, took->median, clock, percent(clock, took->least));
}

static enum error_code calibrate_write_json(const char *path, const struct result *result, struct error *err)
{
    static const char *const kind[] = { "product", "attention", "memory" };
    cJSON *root = document_start("orrery calibrate");
    const struct calibration *m = result->m;
    json_add(root, "devices %d cores %d threads %d rounds %d dtype %s noise %g", m->devices, m->cores, m->threads,
             m->rounds, dtype_name(m->dtype), noise(m));
    cJSON *rows = cJSON_AddArrayToObject(root, "measured");
    for (int i = 0; i < m->works; i++)
        calibrate_add_row(rows, m->work[i].name, kind[m->work[i].kind], &m->work[i].took,
                          work_time(result->c, m->dtype, &m->work[i]));
    for (int i = 0; i < m->volleys; i++) {
        char what[80];
        name_of_volley(&m->volley[i], what, sizeof what);
        calibrate_add_row(rows, what, "messages", &m->volley[i].took, volley_time(&result->c->link[0], &m->volley[i]));
    }
    cJSON *far = cJSON_AddObjectToObject(root, "misfit");
    for (enum work_kind k = 0; k <= WORK_MEMORY; k++) cJSON_AddNumberToObject(far, kind[k], result->far->kind[k]);
    json_add(far, "messages %g", result->far->volleys);
    cJSON_AddItemToObject(root, "cluster", cluster_document(result->c));
    return fail_about(err, json_finish(path, root, err), "--json");
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static const char *calibrate_now(char text[32])
{
    const time_t t = time(NULL);
    struct tm parts;
    strftime(text, 32, "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &parts));
    return text;
}

static enum error_code calibrate_tell(const struct asked *asked, const struct calibration *calibration,
                                      struct error *err)
{
    struct cluster c;
    struct misfit far;
    char when[32];
    const struct result r = { calibration, &c, &far };
    enum error_code e = calibration_fit(calibration, &c, &far, err);
    if (e) return e;
    cluster_describe(&c, calibration, calibrate_now(when));
    if (!asked->quiet) print_report(&r);
    if (asked->out) e = fail_about(err, cluster_write(asked->out, &c, err), "--out");
    if (!e && asked->out && !asked->quiet) say(stdout, 8, "written %s; orrery train --cluster reads it", asked->out);
    return !e && asked->json ? calibrate_write_json(asked->json, &r, err) : e;
}

static enum error_code calibrate_measure(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    struct calibration *m = calloc(1, sizeof *m);
    enum error_code e = comm_agree(world, m ? OK : fail(err, ERR_MEMORY, "no memory to measure"), err);
    if (!e) m->rounds = a->rounds, e = calibration_measure(world, m, err);
    if (!e && world->rank == 0) e = calibrate_tell(a, m, err);
    free(m);
    return comm_agree(world, e, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code calibrate_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "--devices", "N", OPTION_INT, &asked->devices, .min = 1, .max = CALIBRATE_MOST_DEVICES,
          .given = &asked->devices_given,
              .help = "for so many devices; default: as many as there are cores; with --check at most so many, 4" },
        { "--out", "FILE", OPTION_STRING, &asked->out, .help = "write a cluster file: --cluster FILE" },
        { "--dtype", "NAME", OPTION_CHOICE, &asked->dtype, .choices = number_formats, .help = "format of the tensors" },
        { "--rounds", "N", OPTION_INT, &asked->rounds, .min = 1, .max = CALIBRATE_MOST_ROUNDS,
         .given = &asked->rounds_given,
          .help = "everything is timed once a round, and the least counts; default: 60; with --check runs of each "
                  "mesh, 3" },
        { "--quick", NULL, OPTION_SWITCH, &asked->quick, .help = "10 rounds; with --check 1, and fewer steps" },
        { "--busy", NULL, OPTION_SWITCH, &asked->busy,
          .help = "measure also while others use the cores: every time is then too long" },
        THREADS_OPTION,
        { .kind = OPTION_HEADING, .help = "Hold the clock against this machine" },
        { "--check", NULL, OPTION_SWITCH, &asked->check,
          .help = "train on some meshes: virtual time beside the wall clock's, the error in per cent" },
        { "--model", "A,B", OPTION_STRING, &asked->models, .given = &asked->models_given,
         .help = "presets that are trained" },
        { "--cluster", "FILE", OPTION_STRING, &asked->cluster, .given = &asked->cluster_given,
          .help = "a file that --out has written; default: each number of devices is measured first" },
        { "--steps", "N", OPTION_INT, &asked->steps, .min = 2, .max = 1000, .given = &asked->steps_given,
          .help = "of each run; the first is to warm up" },
        { .kind = OPTION_HEADING, .help = "The memory of this machine" },
        { "--stream", NULL, OPTION_SWITCH, &asked->stream,
          .help = "STREAM's four loops with all cores, as loops and as tasks; --rounds, 10" },
        { "--elements", "N", OPTION_INT, &asked->elements, .min = 1, .max = 1 << 30, .given = &asked->elements_given,
          .help = "of each of its three arrays: more than the caches hold" },
        { .kind = OPTION_HEADING, .help = "Output" },
        { "--json", "FILE", OPTION_STRING, &asked->json, .help = "everything as JSON; - for stdout, and no table" },
        { "--quiet", NULL, OPTION_SWITCH, &asked->quiet, .help = "no table" },
        { 0 }
    };
    return parse_command(
        "calibrate", "[--out FILE] | --check | --stream",
        "Measure this machine as a cluster: matrix products of several sizes, attention, operations that mostly read\n"
        "and write, the start of a call, and messages between devices, on all devices at once. With more devices\n"
        "than cores these are shares of a core.", argc - 2, argv + 2, table, help, err);
}

static enum error_code calibrate_take(struct asked *asked, struct error *err)
{
    if (asked->check && asked->out) return fail(err, ERR_USAGE, "--out: a check writes no cluster file");
    if (!asked->check && (asked->models_given || asked->cluster_given || asked->steps_given))
        return fail(err, ERR_USAGE, "%s: only with --check",
                    asked->models_given ? "--model" : asked->cluster_given ? "--cluster" : "--steps");
    if (asked->stream && (asked->check || asked->out || asked->devices_given))
        return fail(err, ERR_USAGE, "--stream: is measured by itself, without %s",
                    asked->check ? "--check" : asked->out ? "--out" : "--devices");
    if (!asked->stream && asked->elements_given) return fail(err, ERR_USAGE, "--elements: only with --stream");
    if (asked->stream && !asked->rounds_given) asked->rounds = QUICK_ROUNDS, asked->rounds_given = true;
    if (!asked->devices_given) asked->devices = asked->check ? 4 : cores_usable();
    if (asked->devices > CALIBRATE_MOST_DEVICES) asked->devices = CALIBRATE_MOST_DEVICES;
    if (!asked->rounds_given)
        asked->rounds = asked->check ? (asked->quick ? 1 : CHECK_ROUNDS) : asked->quick ? QUICK_ROUNDS : USUAL_ROUNDS;
    if (asked->quick && !asked->steps_given) asked->steps = 5;
    asked->quiet = asked->quiet || (asked->json && strcmp(asked->json, "-") == 0);
    return OK;
}

/* On a machine with more to do than it has cores, all that is measured is too long by an unknown factor. */
static enum error_code calibrate_refuse_load(const struct asked *asked, struct error *err)
{
    const double load = busy_load();
    if (asked->busy || load <= busy_cores()) return OK;
    return fail(err, ERR_USAGE, "the machine's load is %.1f on %d core%s: what others run makes every measured time "
                "too long; wait until they are done, or measure all the same with --busy", load, busy_cores(),
                plural(busy_cores()));
}

enum error_code command_calibrate(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .dtype = "fp32", .models = "tiny,small,llama-small", .steps = 12, .elements = 1 << 23 };
    bool help;
    enum error_code e = calibrate_parse(&a, argc, argv, &help, err);
    if (e || help) return e;
    e = calibrate_take(&a, err);
    /* The devices that this process starts are themselves a load. */
    if (!e && !under_launcher()) e = calibrate_refuse_load(&a, err);
    if (e) return e;
    if (a.stream) return calibrate_stream(a.elements, a.rounds, a.json, a.quiet, err);
    if (a.check) {
        const struct steps_request r = { argv[0], a.models, a.cluster, a.dtype, a.devices, a.rounds, a.steps, a.quick };
        return calibrate_check(&r, a.json, a.quiet, err);
    }
    return under_launcher() ? be_a_device(dtype_by_name(a.dtype), NULL, calibrate_measure, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
