/* spatial.c -- `orrery verify spatial`: every operation on every tiling of the devices; rank 0 prints.  job.c calls
 * verify_tiles().  A case that does not hold is counted, and is no error.  Errors: ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/verify/cases/spatial.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include <stdio.h>

/* The largest error of all devices, and what all send, on rank 0. */
static enum error_code of_all_devices(struct comm *world, struct spatial_outcome *outcome, struct error *err)
{
    struct { double error; uint64_t bytes; } own = { outcome->error, outcome->bytes },
        all[VERIFY_MOST_DEVICES] = { { 0 } };
    const enum error_code e = comm_bring(world, &own, sizeof own, all, err);
    for (int i = 0; i < world->size && world->rank == 0; i++) {
        if (!(all[i].error <= outcome->error)) outcome->error = all[i].error;
        if (i > 0) outcome->bytes += all[i].bytes;
    }
    return e;
}

static void record(struct job *job, const struct spatial_scheme *scheme, const struct tiling *tiling,
                   const struct spatial_outcome *outcome)
{
    static const char *const name[] = { "samples", "ensemble", "polar", "azimuth" };
    cJSON *to = verify_begin_case(job, scheme_kind_info(SPATIAL_SCHEME)->family, scheme->head.name, &outcome->verdict);
    cJSON *tiles = cJSON_AddObjectToObject(to, "tiling");
    for (int a = 0; a < TILE_AXES; a++) cJSON_AddNumberToObject(tiles, name[a], tiling->size[a]);
    json_add(to, "calls %d bytes_sent %g largest_error %g", outcome->calls, (double)outcome->bytes, outcome->error);
    if (!job->prints) return;
    printf("  %2d x %-2d x %-2d  %-22s %8.1e %6d %9llu  %s\n", tiling->size[ENSEMBLE], tiling->size[POLAR],
           tiling->size[AZIMUTH],
           scheme->head.name, outcome->error, outcome->calls, (unsigned long long)outcome->bytes, outcome->verdict.code
               ? "FAILED" : "ok");
    if (outcome->verdict.code) printf("      "), print_wrapped(stdout, 6, outcome->verdict.text);
    fflush(stdout);
}

static enum error_code run_case(struct job *job, const struct spatial_scheme *scheme, const int size[TILE_AXES],
                                struct error *err)
{
    struct tiling t;
    struct spatial_outcome o;
    enum error_code e = comm_agree(job->world, tiling_open(&t, job->world, size, err), err);
    if (e) return e;
    e = verify_tiling(&t, scheme, &o, err);
    if (!e) e = of_all_devices(job->world, &o, err);
    if (!e && job->speaks) record(job, scheme, &t, &o);
    tiling_close(&t);
    return e;
}

/* An ensemble is cut only for the score, which alone has members. */
enum error_code verify_tiles(struct job *job, struct error *err)
{
    const int P = job->world->size;
    const struct spatial_scheme *s;
    enum error_code e = OK;
    if (job->prints)
        printf("\n%d device%s, spatial\n  ensemble x polar x azimuth %18s  calls     bytes\n", P, plural(P), "error");
    for (int i = 0; (s = spatial_scheme_at(i)) != NULL; i++)
        for (int n = 1; n <= P && !e; n++)
            for (int h = 1; n * h <= P && !e; h++)
                if (P % (n * h) == 0 && (n == 1 || s->operation == SCORE) && verify_takes(job, s->head.name))
                    e = run_case(job, s, (const int[TILE_AXES]){ 1, n, h, P / (n * h) }, err);
    return e;
}
