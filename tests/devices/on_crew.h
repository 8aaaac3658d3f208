/* on_crew.h -- tests of devices in one process: what each device of a crew does is one function.
 *
 *     static enum error_code send(struct comm *c, void *asked, struct error *e) { .. c->rank, c->device->clock .. }
 *     const struct crew_job j = { "count", F32, &cluster, send, &asked };
 *     crew_run(8, be_device, &j, &err);
 *
 * Tests in tests/devices/ call these functions.
 */
#ifndef TESTS_ON_CREW_H
#define TESTS_ON_CREW_H

#include "emulated_devices/comm/crew.h"
#include <stddef.h>

struct crew_job {
    const char *backend;
    enum dtype dtype;
    const struct cluster *cluster;      /* NULL: no virtual time passes */
    enum error_code (*work)(struct comm *, void *asked, struct error *);
    void *asked;                        /* the same for all devices: each writes to places of its own */
};

/* A function for crew_run and crew_run_folded. */
static inline enum error_code be_device(struct crew *crew, int rank, const void *job, struct error *e)
{
    const struct crew_job *j = job;
    struct device d;
    struct comm c;
    enum error_code code = device_open(&d, backend_find(j->backend), j->dtype, 0, e);
    if (code) return code;
    if (j->cluster) clock_restart(&d.clock, j->cluster, j->dtype);
    code = crew_join(&c, crew, rank, &d, e);
    if (!code) code = j->work(&c, j->asked, e), comm_close(&c);
    device_close(&d);
    return code;
}

#endif
