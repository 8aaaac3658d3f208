/* attention_job.c -- starts the devices of a job of `orrery bench attention`, and reads what they counted.  ERR_CHECK
 * means that a device did not send what the cost function says; other errors are those of a job. */
#include "emulated_devices/bench/schemes/attention.h"
#include "ref/io/json.h"
#include <stdio.h>

static enum error_code read_rows(struct attention_rows *rows, const char *path, struct error *err)
{
    cJSON *job;
    const cJSON *row, *list;
    const char *name;
    enum error_code e = json_read(path, &job, err);
    if (e) return e;
    e = json_array(job, path, "rows", &list, err);
    if (!e) cJSON_ArrayForEach(row, list) {
        if (e || rows->used == BENCH_ATTENTION_SCHEMES) break;
        struct attention_row *r = &rows->row[rows->used++];
        e = json_string(row, path, "scheme", &name, err);
        if (!e) e = attention_scheme_find(&r->scheme, name, err);
        for (int i = 0; i < ATTENTION_COUNTS && !e; i++)
            e = json_double(row, path, attention_count_name[i], &r->count[i], err);
        if (!e) e = json_double(row, path, "median_seconds", &r->median, err);
    }
    cJSON_Delete(job);
    return e;
}

static enum error_code check_rows(const struct attention_rows *rows, int P, struct error *err)
{
    for (int i = 0; i < rows->used; i++)
        if (rows->row[i].count[COUNT_OTHER] > 0)
            return fail(err, ERR_CHECK, "%s on %d devices: one did not send what the cost function says",
                        rows->row[i].scheme->head.name, P);
    return OK;
}

enum error_code attention_job_run(struct attention_rows *rows, const struct attention_job *job, char *program,
                                  int *status, struct error *err)
{
    enum { NUMBERS = 10 };
    static const char *const flag[NUMBERS] = { "--batch", "--seq", "--heads", "--kv-heads", "--head-width", "--devices",
                                               "--node", "--runs", "--head-parallel", "--ring-window" };
    const int64_t value[NUMBERS] = { job->B, job->S, job->H, job->K, job->A, job->P, job->node, job->runs,
                                     job->split.heads, job->split.window };
    const char *words[2 * NUMBERS + 16] = { program, "bench", "attention" }, *path = handover_file(err);
    char number[NUMBERS][16];
    int n = 3;
    if (path == NULL) return err->code;
    for (int i = 0; i < NUMBERS; i++) {
        snprintf(number[i], sizeof number[i], "%d", (int)value[i]);
        if (i < 8 || value[i] > 0) words[n++] = flag[i], words[n++] = number[i];
    }
    const char *const rest[] = { "--dtype", dtype_name(job->dtype), "--cluster", job->cluster, "--json", path };
    for (int i = 0; i < 6; i++) words[n++] = rest[i];
    if (job->scheme) words[n++] = "--scheme", words[n++] = job->scheme;
    if (job->split.context_first) words[n++] = "--context-first";
    rows->used = 0;
    /* which does not write to them */
    enum error_code e = launch_devices(job->P, n, (char **)words, status, err);
    if (!e && *status == 0) e = read_rows(rows, path, err);
    return e || *status != 0 ? e : check_rows(rows, job->P, err);
}
