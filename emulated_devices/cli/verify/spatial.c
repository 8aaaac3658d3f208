/* spatial.c -- `orrery verify spatial`: every operation on every tiling of the devices; rank 0 prints. */
#include "emulated_devices/verify/cases/spatial.h"
#include "emulated_devices/cli/verify/verify.h"
#include <stdio.h>

/* The largest error of all devices, and what all send, on rank 0. */
static enum error_code of_all_devices(struct comm *world, struct spatial_outcome *o, struct error *err)
{
    struct { double error; uint64_t bytes; } own = { o->error, o->bytes }, all[VERIFY_MOST_DEVICES] = { { 0 } };
    const enum error_code e = comm_bring(world, &own, sizeof own, all, err);
    for (int i = 0; i < world->size && world->rank == 0; i++) {
        if (!(all[i].error <= o->error)) o->error = all[i].error;
        if (i > 0) o->bytes += all[i].bytes;
    }
    return e;
}

static void record(struct job *j, const struct spatial_scheme *s, const struct tiling *t,
                   const struct spatial_outcome *o)
{
    static const char *const name[] = { "ensemble", "polar", "azimuth" };
    cJSON *to = verify_begin_case(j, scheme_kind_info(SPATIAL_SCHEME)->family, s->head.name, &o->verdict);
    cJSON *tiles = cJSON_AddObjectToObject(to, "tiling");
    for (int a = 0; a < TILE_AXES; a++) cJSON_AddNumberToObject(tiles, name[a], t->size[a]);
    cJSON_AddNumberToObject(to, "calls", o->calls);
    cJSON_AddNumberToObject(to, "bytes_sent", (double)o->bytes);
    cJSON_AddNumberToObject(to, "largest_error", o->error);
    if (!j->prints) return;
    printf("  %2d x %-2d x %-2d  %-22s %8.1e %6d %9llu  %s\n", t->size[ENSEMBLE], t->size[POLAR], t->size[AZIMUTH],
           s->head.name, o->error, o->calls, (unsigned long long)o->bytes, o->verdict.code ? "FAILED" : "ok");
    if (o->verdict.code) printf("      "), print_wrapped(stdout, 6, o->verdict.text);
    fflush(stdout);
}

static enum error_code run_case(struct job *j, const struct spatial_scheme *s, const int size[TILE_AXES],
                                struct error *err)
{
    struct tiling t;
    struct spatial_outcome o;
    enum error_code e = comm_agree(j->world, tiling_open(&t, j->world, size, err), err);
    if (e) return e;
    e = verify_tiling(&t, s, &o, err);
    if (!e) e = of_all_devices(j->world, &o, err);
    if (!e && j->speaks) record(j, s, &t, &o);
    tiling_close(&t);
    return e;
}

/* An ensemble is cut only for the score, which alone has members. */
enum error_code verify_tiles(struct job *j, struct error *err)
{
    const int P = j->world->size;
    const struct spatial_scheme *s;
    enum error_code e = OK;
    if (j->prints)
        printf("\n%d device%s, spatial\n  ensemble x polar x azimuth %18s  calls     bytes\n", P, plural(P), "error");
    for (int i = 0; (s = spatial_scheme_at(i)) != NULL; i++)
        for (int n = 1; n <= P && !e; n++)
            for (int h = 1; n * h <= P && !e; h++)
                if (P % (n * h) == 0 && (n == 1 || s->operation == SCORE) && verify_takes(j))
                    e = run_case(j, s, (const int[]){ n, h, P / (n * h) }, err);
    return e;
}
