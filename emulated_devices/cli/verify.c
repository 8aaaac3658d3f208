/* verify.c -- `orrery verify`: runs jobs of 1, 2, .. N devices, one after another, and adds up their results.  main.c
 * calls command_verify().  Errors: ERR_CHECK if a case did not hold, ERR_USAGE for a part or range without cases,
 * ERR_FILE of the digests. */
#include "ref/machine/measure.h"
#include "ref/io/time_left.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/rl/cases.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code parse_part(struct verify_options *options, struct error *err)
{
    struct verify_part *p = &options->part;
    int used = 0;
    *p = (struct verify_part){ 1, 1 };
    if (options->part_text == NULL) return OK;
    const int read = sscanf(options->part_text, "%4d/%4d%n", &p->number, &p->of, &used);
    if (read == 2 && options->part_text[used] == '\0' && p->number >= 1 && p->number <= p->of) return OK;
    return fail(err, ERR_USAGE, "--part %s: must be K/N, two numbers with 1 <= K <= N, such as 1/4",
                options->part_text);
}

static enum error_code verify_parse(struct verify_options *options, int argc, char **argv, bool *help,
                                    struct error *err)
{
    const char *families[VERIFY_FAMILIES + 1] = { NULL };
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    const char *backend = NULL, *arithmetic = NULL;
    for (int i = 0; verify_family(i); i++) families[i] = verify_family(i);
    const struct option table[] = {
        { "WHAT", NULL, OPTION_CHOICE, &options->what, .choices = families, .help = "one family; default: all" },
        { "--only", "NAME", OPTION_STRING, &options->only,
          .help = "only cases of this scheme or algorithm, in its own family" },
        { "--devices", "N", OPTION_INT, &options->devices, .min = 1, .max = VERIFY_MOST_DEVICES,
          .help = "try all meshes of 1 to N devices" },
        { "--from", "N", OPTION_INT, &options->from, .min = 1, .max = VERIFY_MOST_DEVICES,
          .help = "try no meshes of fewer than N devices; with --devices N: of N devices only" },
        { "--part", "K/N", OPTION_STRING, &options->part_text,
          .help = "run every Nth case, from the Kth on: runs with K = 1 to N together try every case" },
        { "--arithmetic", "NAME", OPTION_CHOICE, &arithmetic, .choices = exact_rule_names + SUMS_EXACT,
          .help = "exact, exact2: only plans whose sums round once (docs/checking/exact.md); default: all" },
        CLUSTER_OPTION(options->cluster_name, "whose nodes collectives follow"),
        { "--backend", "NAME", OPTION_STRING, &backend,
          .help = "what executes operations; `orrery list backends` shows them; default: cpu" },
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { "--quiet", NULL, OPTION_SWITCH, &options->quiet, .help = "no text output" },
        { "--json", "FILE", OPTION_STRING, &options->json,
         .help = "every case as JSON; - for stdout, without text output" },
        { "--digests", "FILE", OPTION_STRING, &options->digests,
          .help = "a line for each case that trains, with hashes of its numbers, counters, memory and time: to compare "
                  "two builds on one machine" },
        { 0 }
    };
    const enum error_code e = parse_command(
        "verify", "[WHAT] [options]",
        "Run everything registered on every fitting mesh, and check it against one device.\n\n"
        "Schemes train three steps, in shapes in which nothing divides: every scheme on every mesh that\n"
        "splits its axis, and every pair of scheme, model, optimizer, format, recomputation, codes, tiles,\n"
        "offloading .. that go together, in at least one case. Every loss, gradient and weight of every\n"
        "device is held to its measured bound, in fp64 also to 1e-12, or where rounding alone may be more\n"
        "to 1e-9; messages, bytes, additions and peak memory equal their formulas. Plans that add in the\n"
        "same order end with the same bits, whatever the schedule and wherever numbers lie. Collectives\n"
        "are exact. Fields on the sphere, in tiles of every shape, are those of one device (spatial).\n"
        "Plans whose layers have different strategies are drawn, 84 for each number of devices (plans), and\n"
        "chains of meshes between which the state of a job moves, 40 for each (elastic).\n"
        "Rewards are learned by every rule, each answer, loss and gradient that of one device (rl).\n"
        "Planners by layers are held to all plans of 500 drawn tables (planners). Drawn requests are\n"
        "answered on every mesh by three models, and each token is that of one device (serving).\n"
        "`verify plugin FILE` holds the variants of a plug-in to the laws of their kinds.",
        argc - 2, argv + 2, table, help, err);
    set_wait_limit(limit);
    if (e || *help) return e;
    options->exact = exact_rule_named(arithmetic);
    if (options->from > options->devices)
        return fail(err, ERR_USAGE, "--from %d: there are no meshes of %d to %d devices; --devices %d would do",
                    options->from, options->from, options->devices, options->from);
    return parse_part(options, err) ? err->code : set_backend(backend, err);
}

/* Add a job's cases and counts from the file that it has written. */
static enum error_code add_job(cJSON *root, const char *path, struct verify_count *all, struct error *err)
{
    cJSON *job;
    int64_t passed = 0, cases = 0, refused = 0, invariants = 0;
    enum error_code e = json_read(path, &job, err);
    if (e) return e;
    e = json_int(job, path, "passed", 0, INT32_MAX, &passed, err);
    if (!e) e = json_int(job, path, "run", 0, INT32_MAX, &cases, err);
    if (!e) e = json_int(job, path, "refused", 0, INT32_MAX, &refused, err);
    if (!e) e = json_int(job, path, "invariants", 0, INT64_MAX, &invariants, err);
    all->invariants += invariants;
    all->passed += (int)passed, all->cases += (int)cases, all->refused += (int)refused;
    cJSON *list = cJSON_GetObjectItem(root, "cases"), *one;
    while (!e && (one = cJSON_DetachItemFromArray(cJSON_GetObjectItem(job, "cases"), 0)) != NULL)
        cJSON_AddItemToArray(list, one);
    cJSON_Delete(job);
    return e;
}

static enum error_code run_job(const struct verify_options *options, int devices, char *program, const char *path,
                               int *status, struct error *err)
{
    const char *words[15] = { program, "verify", "--json", path, "--cluster", options->cluster_name };
    int n = 6;
    if (options->what) words[n++] = options->what;
    if (options->only) words[n++] = "--only", words[n++] = options->only;
    if (options->part_text) words[n++] = "--part", words[n++] = options->part_text;
    if (options->quiet) words[n++] = "--quiet";
    if (options->exact) words[n++] = "--arithmetic", words[n++] = exact_rule_names[options->exact];
    return launch_devices(devices, n, (char **)words, status, err);     /* which does not write to them */
}

static enum error_code file_empty(const char *path, struct error *err)
{
    FILE *f = fopen(path, "w");
    if (f == NULL || fclose(f) != 0) return fail(err, ERR_FILE, "%s: cannot be written", path);
    return OK;
}

static bool file_is_empty(const char *path)
{
    FILE *f = fopen(path, "r");
    const bool empty = f == NULL || fgetc(f) == EOF;
    if (f) fclose(f);
    return empty;
}

/* On a terminal, between the lines of two jobs.  A job has about as many cases as devices that share its time. */
static void say_time_left(const struct verify_options *options, int devices, double gone)
{
    const double before = options->from * (options->from - 1.0), done = devices * (devices - 1.0) - before,
                 all = options->devices * (options->devices + 1.0) - before;
    const struct time_left_text left = time_left_of(gone, done / all);
    if (options->quiet || !on_terminal() || left.text[0] == '\0') return;
    printf("\n%d of %d numbers of devices: %.0f s, about %s\n", devices - options->from,
           options->devices - options->from + 1, gone, left.text);
    fflush(stdout);
}

/* @param[out] status  of a job that could not run, and has said why; else 0. */
static enum error_code run_jobs(const struct verify_options *options, char *program, const char *path, cJSON *root,
                                struct verify_count *all, int *status, struct error *err)
{
    enum error_code e = OK;
    *status = 0;
    const double began = measure_now();
    for (int devices = options->from; devices <= options->devices && !e; devices++) {
        say_time_left(options, devices, measure_now() - began);
        e = file_empty(path, err);      /* of the job before */
        if (!e) e = run_job(options, devices, program, path, status, err);
        if (!e && *status != 0 && (*status != error_exit_status(ERR_CHECK) || file_is_empty(path))) return OK;
        *status = 0;                    /* what did not hold is in the file */
        if (!e) e = add_job(root, path, all, err);
    }
    return e;
}

static enum error_code verify_report(const struct verify_options *options, cJSON *root, struct verify_count all,
                                     double seconds, struct error *err)
{
    if (!options->quiet) {
        printf("\n");
        verify_print_count(all);
        printf("    (%.0f s)\n", seconds);
        fflush(stdout);
    }
    if (options->only && all.cases == 0)
        return fail(err, ERR_USAGE, "--only %s: no case of %s on %d to %d devices has it; `orrery list` shows names",
                    printable(options->only).text, options->what ? options->what : "any family", options->from,
                    options->devices);
    json_add(root, "run %d passed %d refused %d invariants %g", all.cases, all.passed, all.refused,
             (double)all.invariants);
    enum error_code e = options->json ? json_write(options->json, root, err) : OK;
    if (!e && options->digests) e = verify_write_digests(options->digests, cJSON_GetObjectItem(root, "cases"), err);
    if (e || all.passed == all.cases) return e;
    return fail(err, ERR_CHECK, "%d of %d cases did not hold", all.cases - all.passed, all.cases);
}

static enum error_code verify_all(const struct verify_options *options, char *program, int *status, struct error *err)
{
    struct verify_count all = { 0 };
    const double start = measure_now();
    const char *path = handover_file(err);
    if (path == NULL) return err->code;
    cJSON *root = json_add(document_start("orrery verify"), "what %s devices %d", options->what ? options->what : "all",
                           options->devices);
    cJSON_AddArrayToObject(root, "cases");
    enum error_code e = run_jobs(options, program, path, root, &all, status, err);
    if (!e && *status == 0) e = verify_report(options, root, all, measure_now() - start, err);
    cJSON_Delete(root);
    return e;
}

enum error_code command_verify(int argc, char **argv, int *status, struct error *err)
{
    /* its cluster has the smallest nodes */
    static const struct verify_above rl = { "rl", rl_verify };
    struct verify_options o = { .from = 1, .devices = 8, .cluster_name = "a100-ethernet" };
    bool help;
    if (argc > 2 && strcmp(argv[2], "plugin") == 0) return verify_plugin(argc, argv, err);
    verify_add_family(&rl);
    enum error_code e = verify_parse(&o, argc, argv, &help, err);
    o.quiet = o.quiet || (o.json && strcmp(o.json, "-") == 0);
    if (!e && !help && o.digests) e = fail_about(err, output_probe(o.digests, err), "--digests");
    if (!e && !help) e = cluster_find(&o.cluster, o.cluster_name, err);
    if (e || help) return e;
    setenv("ORRERY_STREAMS", "random:1", 0);            /* for every device of every case */
    if (under_launcher()) return be_a_device(F64, &o.cluster, verify_device, &o, err);
    return verify_all(&o, argv[0], status, err);
}
