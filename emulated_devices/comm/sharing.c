/* sharing.c -- counts the devices that share cores with this one and divides the cores.  The caller is connect.c; an
 * error of MPI leaves one core to each device. */
#include "emulated_devices/comm/sharing.h"
#include "emulated_devices/comm/patience.h"
#include "ref/machine/cores.h"
#include "ref/machine/system.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    char machine[SYSTEM_NAME];          /* the same for all processes of a machine, and in containers on it */
    struct cores on;
};

/* Some systems draw a number when they start, which containers see, too; elsewhere machines have names. */
static void find_machine(char name[SYSTEM_NAME])
{
    if (!system_boot(name)) gethostname(name, SYSTEM_NAME - 1);
}

/* Whether two devices may run on a common core of one machine. */
static bool sharing_meet(const struct place *a, const struct place *b)
{
    if (memcmp(a->machine, b->machine, sizeof a->machine) != 0) return false;
    for (size_t i = 0; i < sizeof a->on.bound / sizeof *a->on.bound; i++)
        if (a->on.bound[i] & b->on.bound[i]) return true;
    return false;
}

/* How many of the devices share cores with this one. */
static int count_meetings(const struct place *all, int size, int rank)
{
    int n = 0;
    for (int i = 0; i < size; i++) n += sharing_meet(&all[i], &all[rank]);
    return n;
}

struct place *sharing_make(int devices) { return malloc((size_t)devices * sizeof(struct place)); }

struct sharing sharing_find(struct place *room, int usable, MPI_Comm comm)
{
    struct sharing s = { .cores = 1, .crowd = 1 };
    struct place own = { .on = { { 0 } } };
    MPI_Request request;
    int rank, size, least = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    find_machine(own.machine);
    cores_bound(&own.on);
    if (MPI_Iallgather(&own, sizeof own, MPI_BYTE, room, sizeof own, MPI_BYTE, comm, &request) == MPI_SUCCESS &&
        patience_meet(&request)) {
        /* Devices that may run on the same cores divide the usable ones among them. */
        const int devices = count_meetings(room, size, rank);
        s.crowd = (devices + usable - 1) / usable;
        least = usable / devices;
    }
    if (MPI_Iallreduce(&least, &s.cores, 1, MPI_INT, MPI_MIN, comm, &request) != MPI_SUCCESS ||
        !patience_meet(&request) || s.cores < 1) s.cores = 1;
    return s;
}
