/* collectives.c -- `orrery bench collectives`: a job for each number of devices, one after the other.
 * cli/bench/bench.c calls bench_collectives_topic().  ERR_USAGE is for a list of algorithms or sizes that cannot be
 * read; other errors are those of a job. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/schemes/collectives_table.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words as typed. */
struct asked {
    const char *operation, *algorithms, *devices, *bytes, *cluster, *json;
    bool devices_given, quiet;
    int runs;
};

static enum error_code collectives_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    static const char *const operations[] = { "allreduce", "reduce-scatter", "allgather", "alltoall",
                                              "broadcast", "reduce",         "gather",    "scatter",
                                              "scan",      "barrier",
                                              "sparse-allgather", "sparse-reduce-scatter", NULL };
    const struct option table[] = {
        { "OP", NULL, OPTION_CHOICE, &asked->operation, .choices = operations, .help = "which collective" },
        { "--algo", "A,B", OPTION_STRING, &asked->algorithms, .help = "a list of algorithms, or all" },
        { "--devices", "N,N", OPTION_STRING, &asked->devices, .given = &asked->devices_given,
          .help = "a table for each number of devices" },
        { "--bytes", "LIST", OPTION_STRING, &asked->bytes,
          .help = "sizes of the vector: 4K,1M, or 8:4M for 8, 128, 2K and so on to 4M" },
        CLUSTER_OPTION(asked->cluster, "whose virtual times are shown"),
        { "--runs", "N", OPTION_INT, &asked->runs, .min = 1, .max = BENCH_MOST_RUNS,
          .help = "number of runs; median and least are shown" },
        THREADS_OPTION,
        { "--quiet", NULL, OPTION_SWITCH, &asked->quiet, .help = "no table" },
        { "--json", "FILE", OPTION_STRING, &asked->json, .help = "every row as JSON; - for stdout, without the table" },
        { 0 }
    };
    return parse_command(
        "bench collectives", "[OP] [options]",
        "Measure every algorithm of a collective beside MPI's own, in turn, in the same run.\n\n"
        "Bandwidths as in nccl-tests: algorithm (size / time) and bus bandwidth. Messages and bytes are the\n"
        "busiest device's; virtual time is that of the emulated cluster. MPI's own runs twice: as a blocking\n"
        "call, and non-blocking, yielding the CPU while it waits. The row `copies alone` is the limit: all devices\n"
        "at once copy in their own memory what has to reach each of them, with caches as cold as in a collective;\n"
        "`copies in step`: and they wait for each other after each time. Medians, and the least times.",
        argc - 3, argv + 3, table, help, err);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* The next word of a list, up to a separator.  @return whether there was one. */
static bool next_word(const char **list, char separator, char word[64])
{
    if (**list == '\0') return false;
    const char *end = strchr(*list, separator);
    const size_t length = end ? (size_t)(end - *list) : strlen(*list);
    snprintf(word, 64, "%.*s", (int)(length < 63 ? length : 63), *list);
    *list += length + (end != NULL);
    return true;
}

static enum error_code take_algorithms(struct bench_collectives *collectives, const char *list, struct error *err)
{
    char word[64];
    if (strcmp(list, "all") == 0) {
        for (int i = 0; algorithms[i] != NULL && collectives->algorithms < BENCH_ALGORITHMS; i++)
            if (algorithms[i]->operation == collectives->operation)
                collectives->algorithm[collectives->algorithms++] = algorithms[i];
        return OK;
    }
    for (const char *rest = list; next_word(&rest, ',', word);) {
        const struct algorithm *a = algorithm_find(collectives->operation, word);
        if (a == NULL && strcmp(word, ALGORITHM_AUTO) == 0)
            return fail(err, ERR_USAGE,
                        "--algo auto: name algorithms; the line under each table says which one auto takes");
        if (a == NULL) return algorithm_check(collectives->operation, "--algo", word, err);
        if (collectives->algorithms == BENCH_ALGORITHMS)
            return fail(err, ERR_USAGE, "--algo %s: at most %d", printable(list).text, BENCH_ALGORITHMS);
        collectives->algorithm[collectives->algorithms++] = a;
    }
    return collectives->algorithms > 0 ? OK : fail(err, ERR_USAGE, "--algo: names no algorithm");
}

static enum error_code wrong_bytes(const char *list, struct error *err)
{
    return fail(err, ERR_USAGE, "--bytes %s: must be sizes from 4 to 1G, such as 8:16M or 4K,64K",
                printable(list).text);
}

static bool take_size(struct bench_collectives *collectives, uint64_t bytes)
{
    if (bytes < 4 || bytes > 1u << 30 || collectives->sizes == BENCH_SIZES) return false;
    collectives->bytes[collectives->sizes++] = bytes;
    return true;
}

static enum error_code take_range(struct bench_collectives *collectives, const char *list, struct error *err)
{
    enum { FACTOR = 16 };
    char word[64];
    uint64_t from, to;
    const char *rest = list;
    next_word(&rest, ':', word);
    if (!size_parse(word, &from) || !size_parse(rest, &to) || from < 4 || to < from) return wrong_bytes(list, err);
    for (uint64_t n = from; n < to; n *= FACTOR)
        if (!take_size(collectives, n)) return wrong_bytes(list, err);
    return take_size(collectives, to) ? OK : wrong_bytes(list, err);
}

static enum error_code take_bytes(struct bench_collectives *collectives, const char *list, struct error *err)
{
    char word[64];
    uint64_t n;
    if (strchr(list, ':')) return take_range(collectives, list, err);
    for (const char *rest = list; next_word(&rest, ',', word);)
        if (!size_parse(word, &n) || !take_size(collectives, n)) return wrong_bytes(list, err);
    return collectives->sizes > 0 ? OK : wrong_bytes(list, err);
}

static enum error_code collectives_take(struct collectives_job *job, const struct asked *asked, struct error *err)
{
    struct bench_collectives *b = &job->measures;
    *job = (struct collectives_job){ .measures.runs = asked->runs, .json = asked->json,
                                     .quiet = asked->quiet || (asked->json && strcmp(asked->json, "-") == 0) };
    while (strcmp(operation_name(b->operation), asked->operation) != 0) b->operation++;
    enum error_code e = cluster_find(&b->cluster, asked->cluster, err);
    if (!e) e = take_algorithms(b, asked->algorithms, err);
    if (!e) e = bench_devices(asked->devices, BENCH_MOST_DEVICES, BENCH_MOST_DEVICES, b->devices, &b->jobs, err);
    if (!e) e = take_bytes(b, asked->bytes, err);
    if (!e && b->operation == BARRIER) b->sizes = 1, b->bytes[0] = 4;       /* it has no vector */
    return e;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static enum error_code run_job(const struct asked *asked, bool quiet, int devices, char *program, const char *path,
                               int *status, struct error *err)
{
    char number[16], runs[16];
    snprintf(number, sizeof number, "%d", devices);
    snprintf(runs, sizeof runs, "%d", asked->runs);
    const char *words[] = { program, "bench", "collectives", asked->operation, "--algo", asked->algorithms,
                           "--devices", number,
                            "--bytes", asked->bytes, "--cluster", asked->cluster, "--runs", runs, "--json", path,
                            quiet ? "--quiet" : NULL, NULL };
    return launch_devices(devices, quiet ? 17 : 16, (char **)words, status, err);     /* which does not write to them */
}

/* Append a job's rows to the first job's document. */
static enum error_code add_job(cJSON **all, const char *path, struct error *err)
{
    cJSON *job, *row;
    const enum error_code e = json_read(path, &job, err);
    if (e) return e;
    if (*all == NULL) {
        *all = job;
        return OK;
    }
    while ((row = cJSON_DetachItemFromArray(cJSON_GetObjectItem(job, "rows"), 0)) != NULL)
        cJSON_AddItemToArray(cJSON_GetObjectItem(*all, "rows"), row);
    cJSON_Delete(job);
    return OK;
}

static enum error_code run_jobs(const struct collectives_job *job, const struct asked *asked,
                                char *program, int *status, struct error *err)
{
    const struct bench_collectives *b = &job->measures;
    const char *path = handover_file(err);              /* where each job leaves its rows */
    if (path == NULL) return err->code;
    enum error_code e = OK;
    cJSON *all = NULL;
    for (int i = 0; i < b->jobs && !e && *status == 0; i++) {
        e = run_job(asked, job->quiet, b->devices[i], program, path, status, err);
        if (!e && *status == 0) e = add_job(&all, path, err);
    }
    if (!e && *status == 0 && job->json) e = json_write(job->json, all, err);
    cJSON_Delete(all);
    return e;
}

enum error_code bench_collectives_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .operation = "allreduce", .algorithms = "all", .devices = "8", .bytes = "8:4M",
                       .cluster = BENCH_CLUSTER, .runs = 5 };
    struct collectives_job job;
    bool help;
    enum error_code e = collectives_parse(&a, argc, argv, &help, err);
    if (e || help) return e;
    e = collectives_take(&job, &a, err);
    if (e) return e;
    if (!a.devices_given && under_launcher()) job.measures.jobs = 0;        /* a launcher has decided */
    return under_launcher() ? be_a_device(F32, &job.measures.cluster, bench_collectives_device, &job, err)
                            : run_jobs(&job, &a, argv[0], status, err);
}
