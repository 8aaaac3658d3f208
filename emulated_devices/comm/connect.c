/* connect.c -- the beginning and the end of a transport: MPI itself, communicators, limits from the environment.
 *
 * comm.c calls; cli asks comm_library and comm_ends_at_exit.  Errors are ERR_COMM, and ERR_USAGE for a wrong
 * ORRERY_DIRECT, the same on all devices.
 */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/farewell.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/sharing.h"
#include "ref/machine/cores.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read a number from the environment; text that is no number of at least 0 counts as not given. */
static double environment(const char *name, double otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0') return otherwise;
    const double x = strtod(text, &end);
    return *end == '\0' && x >= 0 ? x : otherwise;
}

/* Make a communicator of all devices.  The call is collective, and yields the core while it waits. */
static bool duplicate(MPI_Comm *comm)
{
    MPI_Request request;
    /* it inherits the world's error handler */
    if (MPI_Comm_idup(MPI_COMM_WORLD, comm, &request) == MPI_SUCCESS && patience_meet(&request)) return true;
    *comm = MPI_COMM_NULL;
    return false;
}

static void free_communicators(struct transport *transport)
{
    MPI_Comm *const all[] = { &transport->heads, &transport->bodies, &transport->answers };
    for (int i = 0; i < 3; i++)
        if (*all[i] != MPI_COMM_NULL) MPI_Comm_free(all[i]);
}

/* Every device creates all communicators, even after a failure, because the others wait in each call. */
static enum error_code connect(struct comm *comm, struct transport *transport, struct error *err)
{
    bool made = duplicate(&transport->heads);
    made = duplicate(&transport->bodies) && made;
    if (clock_has_rendezvous(&comm->device->clock)) made = duplicate(&transport->answers) && made;
    return made ? OK : fail(err, ERR_COMM, "device %d: MPI could not make a communicator", comm->rank);
}

/* Agree as group_agree does, but with MPI's collective: there are no groups yet. */
static enum error_code agree_to_connect(const struct comm *comm, enum error_code local, struct error *err)
{
    /* The smallest rank that has failed is found first; then that rank broadcasts its error. */
    const int mine = local == OK ? comm->size : comm->rank;
    int first = comm->rank;
    struct { int code; struct error error; } said = { .code = local };
    MPI_Request request;
    if (local != OK) said.error = *err;
    bool told = MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request) == MPI_SUCCESS &&
                patience_meet(&request);
    if (told && first == comm->size) return OK;
    told = told && MPI_Ibcast(&said, sizeof said, MPI_BYTE, first, MPI_COMM_WORLD, &request) == MPI_SUCCESS &&
           patience_meet(&request);
    if (!told)
        return fail(err, ERR_COMM, "device %d could not agree with the others on whether all are connected",
                    comm->rank);
    return fail(err, (enum error_code)said.code, "%s", said.error.text);
}

/* MPI starts once in a process: in the first transport_begin, or earlier in code that is not ours.  A device of
 * `verify` opens a comm for each case beside its own: MPI ends with the last one. */
static struct {
    bool started_here;
    bool left;                          /* by a farewell: the manager knows that this process is done */
    int open;
} mpi;

/* Close one comm.  The last one ends MPI, if it was started here; on several hosts by a farewell first. */
static void finalize(bool hosts, double limit)
{
    mpi.open--;
    if (mpi.open > 0 || !mpi.started_here) return;
    mpi.left = hosts && farewell(MPI_COMM_WORLD, limit);
    if (!mpi.left) MPI_Finalize();
    mpi.started_here = false;
}

bool comm_uses_ucx(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    return MPI_Get_library_version(version, &length) == MPI_SUCCESS && strstr(version, "ch4:ucx") != NULL;
}

/* MPICH can be built with PMIx, as Ubuntu 24.04's is; then its library has loaded PMIx's. */
bool comm_speaks_pmix(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    void *const loaded = dlopen(NULL, RTLD_LAZY);
    const bool by_itself = loaded != NULL && dlsym(loaded, "PMIx_Init") != NULL;
    if (loaded != NULL) dlclose(loaded);
    return by_itself || (MPI_Get_library_version(version, &length) == MPI_SUCCESS &&
                         strstr(version, "Open MPI") != NULL);
}

bool comm_ends_at_exit(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, major, minor;
    if (mpi.left || MPI_Get_library_version(version, &length) != MPI_SUCCESS) return false;
    return sscanf(version, "MPICH Version: %d.%d", &major, &minor) == 2 && (major > 4 || (major == 4 && minor >= 2));
}

const char *comm_library(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "an MPI that does not say its name";
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    /* MPICH separates words by tabs */
    size_t n = 0;
    for (const char *at = version; *at && n + 1 < size; at++)
        if (*at != '\t' && (*at != ' ' || (n > 0 && text[n - 1] != ' '))) text[n++] = *at;
        else if (*at == '\t' && n > 0 && text[n - 1] != ' ') text[n++] = ' ';
    text[n] = '\0';
    return text;
}

enum error_code transport_begin(struct comm *comm, struct error *err)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized && MPI_Init(NULL, NULL) != MPI_SUCCESS) return fail(err, ERR_COMM, "MPI could not be started");
    mpi.started_here = mpi.started_here || !initialized;
    mpi.open++;
    /* Where MPI_Test finds an error, MPICH asks not the message's communicator but the world's. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->size);
    return OK;
}

/* An extension of MPICH and of Open MPI; NULL where MPI does not have it. */
int MPIX_Query_cuda_support(void) __attribute__((weak));

static bool mpi_knows_gpus(void) { return MPIX_Query_cuda_support != NULL && MPIX_Query_cuda_support() != 0; }

/* Whether MPI gets addresses of the device's memory.  All devices have the same environment and backend. */
static enum error_code choose_direct(const struct comm *comm, bool *direct, struct error *err)
{
    const char *asked = getenv("ORRERY_DIRECT");
    const bool possible = comm->device->backend->direct != NULL;
    *direct = false;
    if (asked == NULL || *asked == '\0' || strcmp(asked, "no") == 0) return OK;
    if (strcmp(asked, "auto") == 0) *direct = possible && mpi_knows_gpus();
    else if (strcmp(asked, "yes") != 0)
        return fail(err, ERR_USAGE, "--direct %.20s (ORRERY_DIRECT): must be yes, no or auto", asked);
    else if (!possible)
        return fail(err, ERR_USAGE, "--direct yes (ORRERY_DIRECT): MPI reads the memory of --backend %s anyway",
                    comm->device->backend->name);
    else *direct = true;
    return OK;
}

enum error_code transport_open(struct comm *comm, enum error_code local, struct error *err)
{
    struct transport made = {
        .heads = MPI_COMM_NULL, .bodies = MPI_COMM_NULL, .answers = MPI_COMM_NULL, .first_free = -1, .piece = 1u << 30
    };
    struct transport *t = malloc(sizeof *t);
    struct place *room = sharing_make(comm->size);
    if ((!near_make(&made.near, comm->rank, comm->size) || room == NULL) && t != NULL) free(t), t = NULL;
    if (t == NULL && local == OK) local = fail(err, ERR_COMM, "device %d has no memory for the transport", comm->rank);
    if (local == OK) local = choose_direct(comm, &made.direct, err);
    const enum error_code connected = connect(comm, &made, local == OK ? err : NULL);
    const enum error_code code = agree_to_connect(comm, local != OK ? local : connected, err);
    if (code != OK) {
        near_close(&made.near);
        free(room);
        free_communicators(&made);
        free(t);
        finalize(false, 0);
        return code;
    }
    /* From here on nothing can fail: each of these works without shared memory, too. */
    bells_open(&made.bells, made.heads);
    progress_open(&made.progress, made.heads, environment("ORRERY_WAIT_LIMIT", WAIT_LIMIT));
    near_open(&made.near, made.heads, !made.direct && environment("ORRERY_MAPPED", 1) != 0);
    const struct sharing sharing = sharing_find(room, cores_usable(), made.heads);
    free(room);
    comm->cores = sharing.cores;
    /* MPI's messages need looks of both sides, between which no bell rings */
    made.bells.crowd = made.near.devices == comm->size ? sharing.crowd : 1;
    made.synchronous = environment("ORRERY_SYNCHRONOUS", 0) != 0;
    made.delay = (uint64_t)(environment("ORRERY_DELAY", 0) * 1000);
    /* Each device has another seed, so delays differ from device to device. */
    made.random = 0x9e3779b97f4a7c15u * (uint64_t)(comm->rank + 1);
    *t = made;
    comm->transport = t;
    return OK;
}

/* Discard answers of failed exchanges, whose messages turned out not to need an answer. */
static void forget_answers(MPI_Comm answers)
{
    MPI_Message found;
    MPI_Request request;
    int64_t nothing;
    int there = 0;
    while (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, answers, &there, &found, MPI_STATUS_IGNORE) == MPI_SUCCESS && there)
        if (MPI_Imrecv(&nothing, (int)sizeof nothing, MPI_BYTE, &found, &request) != MPI_SUCCESS ||
            !patience_meet(&request))
            return;
}

void transport_close(struct comm *comm)
{
    struct transport *t = comm->transport;
    bells_close(&t->bells);
    progress_close(&t->progress);
    if (t->answers != MPI_COMM_NULL) forget_answers(t->answers);
    free_communicators(t);
    transport_free_slots(comm);
    letters_close(&t->letters);
    const bool elsewhere = t->near.elsewhere || farewell_has_hosts(comm->size);
    const double limit = t->progress.limit;
    near_close(&t->near);
    finalize(elsewhere, limit);
    free(t);
    comm->transport = NULL;
}

/* The launcher gets the end and this device's last message through different channels: without the pause it may see the
 * end first. */
void transport_abort(struct comm *comm, int exit_status)
{
    (void)comm;
    fflush(NULL);
    nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    MPI_Abort(MPI_COMM_WORLD, exit_status);
}
