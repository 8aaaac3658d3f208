/* world.c -- connects the devices of a job by MPI.  comm.c has the rest of the world's life, which needs no MPI: crews
 * (crew.c) and devices that are alone do without this file.
 *
 * launch/ and tests call comm_open.  Errors: ERR_COMM where devices cannot be connected.
 */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/watch.h"
#include <stdlib.h>
#include <string.h>

/* Whether collectives compare their arguments: the environment decides, else the kind of build. */
static bool checks_calls(void)
{
    const char *said = getenv("ORRERY_CHECK_CALLS");
    if (said != NULL && *said != '\0') return strcmp(said, "0") != 0;
#ifdef NDEBUG
    return false;
#else
    return true;
#endif
}

enum error_code comm_open(struct comm *comm, struct device *device, struct error *err)
{
    static const struct carrier mpi = { .start = transport_start, .wait = transport_wait, .look = transport_look,
                                        .meet = transport_meet, .abort = transport_abort, .close = transport_close };
    *comm = (struct comm){ .device = device, .carrier = &mpi, .checks_calls = checks_calls() };
    enum error_code code = transport_begin(comm, err);
    if (code != OK) return code;
    comm->contexts = calloc((size_t)comm->size, sizeof *comm->contexts);
    comm->everyone = calloc(1, sizeof *comm->everyone);
    if (comm->contexts == NULL || comm->everyone == NULL || group_world(comm->everyone, comm, err) != OK)
        code = fail(err, ERR_COMM, "device %d has no memory to connect to %d others", comm->rank, comm->size - 1);
    if (code == OK) code = streams_open(comm, err);
    /* Every device calls transport_open, also after an error of its own: it agrees on one outcome for all. */
    code = transport_open(comm, code, err);
    if (code == OK) return OK;
    streams_close(comm);
    if (comm->everyone != NULL) group_close(comm->everyone);
    free(comm->everyone);
    free(comm->contexts);
    return code;
}
