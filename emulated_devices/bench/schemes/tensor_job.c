/* tensor_job.c -- starts the devices of jobs of `orrery bench tensor`, and reads what they counted.  Errors: ERR_COMM
 * if a device died, ERR_FILE or ERR_FORMAT of its results; ERR_MEMORY. */
#include "emulated_devices/bench/schemes/tensor.h"
#include "ref/io/json.h"
#include "ref/io/time_left.h"
#include "ref/machine/measure.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code run_job(const struct bench_tensor *tensor, const char *cluster, int P, char *program,
                               const char *path, int *status, struct error *err)
{
    enum { WORDS = 6 };
    char number[WORDS][16];
    const struct tensor_shape *const s = &tensor->shape;
    const int64_t value[WORDS] = { s->D, s->H, s->S, s->B, P, 1 };
    for (int i = 0; i < WORDS; i++) snprintf(number[i], sizeof number[i], "%d", (int)value[i]);
    const char *words[] = { program, "bench", "tensor", "--width", number[0], "--heads", number[1], "--seq", number[2],
                            "--batch", number[3], "--devices", number[4], "--runs", number[5], "--dtype",
                            dtype_name(tensor->dtype), "--cluster", cluster, "--json", path, NULL };
    /* which does not write to them */
    return launch_devices(P, (int)(sizeof words / sizeof *words) - 1, (char **)words, status, err);
}

struct tensor_row *tensor_row_of(const struct tensor_counted *all, int P, const char *scheme)
{
    for (int i = 0; i < all->used; i++)
        if (all->row[i].P == P && strcmp(all->row[i].scheme, scheme) == 0) return &all->row[i];
    return NULL;
}

static enum error_code take_row(struct tensor_counted *all, const cJSON *from, const char *path, struct error *err)
{
    const char *scheme;
    const struct tensor_scheme *known;
    int64_t P;
    enum error_code e = json_int(from, path, "devices", 1, BENCH_TENSOR_DEVICES, &P, err);
    if (!e) e = json_string(from, path, "scheme", &scheme, err);
    if (!e) e = tensor_scheme_find(&known, scheme, err);
    if (e) return e;
    struct tensor_row *r = tensor_row_of(all, (int)P, scheme);
    if (r == NULL) r = &all->row[all->used++];
    r->P = (int)P, r->scheme = known->head.name;
    for (int i = 0; i < TENSOR_COUNTS && !e; i++) e = json_double(from, path, tensor_count_name[i], &r->count[i], err);
    const cJSON *seconds = cJSON_GetObjectItem(from, "seconds");
    for (int i = 0; i < cJSON_GetArraySize(seconds) && r->runs < BENCH_TENSOR_RUNS; i++)
        r->seconds[r->runs++] = cJSON_GetArrayItem(seconds, i)->valuedouble;
    return e;
}

static enum error_code take_job(struct tensor_counted *all, const char *path, struct error *err)
{
    cJSON *job;
    const cJSON *row, *list;
    enum error_code e = json_read(path, &job, err);
    if (e) return e;
    e = json_array(job, path, "rows", &list, err);
    if (!e) cJSON_ArrayForEach(row, list)
        if (!e) e = take_row(all, row, path, err);
    cJSON_Delete(job);
    return e;
}

/* Run jobs of all sizes in turn, so that other load of the machine slows all of them. */
enum error_code tensor_jobs_run(struct tensor_counted *all, const struct bench_tensor *tensor, const char *cluster,
                                char *program, int *status, struct error *err)
{
    int schemes = 0, most = 0, done = 0;
    enum error_code e = OK;
    const char *path = handover_file(err);
    while (tensor_scheme_at(schemes)) schemes++;
    all->row = calloc((size_t)(schemes * tensor->sizes), sizeof *all->row);
    if (all->row == NULL) return fail(err, ERR_MEMORY, "no memory for the rows of %d schemes", schemes);
    if (path == NULL) return err->code;
    struct time_left line;
    time_left_begin(&line);
    for (int i = 0; i < tensor->sizes; i++) most += tensor->devices[i] <= tensor->run;
    for (int run = 0; run < tensor->runs && most > 0; run++)
        for (int i = 0; i < tensor->sizes && !e && *status == 0; i++) {
            if (tensor->devices[i] > tensor->run) continue;
            e = run_job(tensor, cluster, tensor->devices[i], program, path, status, err);
            if (!e && *status == 0) e = take_job(all, path, err);
            time_left_show(&line, (double)++done / (tensor->runs * most), "measuring", "");
        }
    time_left_end(&line);
    for (int i = 0; i < all->used; i++) all->row[i].median = measure_median(all->row[i].seconds, all->row[i].runs);
    return e;
}
