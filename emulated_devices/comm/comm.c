/* comm.c -- the world of devices, and agreement on errors.
 *
 * launch/ and tests close a comm here, which world.c or crew.c has opened.  Nothing in this file needs MPI.  Errors:
 * ERR_COMM, ERR_CHECK for a violated rule of messages, else what a device has reported.
 */
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The environment overrides the default. */
enum error_code streams_open(struct comm *comm, struct error *err)
{
    struct device *d = comm->device;
    const char *said = getenv("ORRERY_STREAMS");
    const enum error_code e = said != NULL && *said != '\0' ? flight_mode_parse(&d->streams, said, err) : OK;
    if (e || d->streams.when == FLIGHT_OFF) return e;
    struct flight *f = flight_open(d->streams, comm->rank, &d->arena);
    d->clock.flight = d->arena.flight = f;
    if (f == NULL) return fail(err, ERR_COMM, "device %d has no memory to follow what is in flight", comm->rank);
    return watch_open(comm, err);
}

/* Close in this order: the watch needs the flight, and the clock and the arena must forget the flight. */
void streams_close(struct comm *comm)
{
    struct device *d = comm->device;
    watch_close(comm);
    flight_settle(d->clock.flight);
    flight_close(d->clock.flight);
    d->clock.flight = d->arena.flight = NULL;
}

/* Nobody could report it later.  A job that has failed already ends with its own status. */
static void report_late(struct comm *comm, bool failed, const struct error *err)
{
    if (comm->rank != 0) return;                           /* which ends the job */
    fprintf(stderr, "orrery: %s\n", err->text);
    if (!failed) comm_abort(comm, error_exit_status(err->code));
}

void comm_close(struct comm *comm)
{
    const bool failed = comm->failed;
    struct error err;
    messages_have_ended(comm, "when the device disconnects");
    if (comm_agree(comm, OK, &err) != OK) report_late(comm, failed, &err);
    group_close(comm->everyone);
    free(comm->everyone);
    free(comm->contexts);
    streams_close(comm);
    comm->carrier->close(comm);
}

void comm_abort(struct comm *comm, int exit_status)
{
    comm->carrier->abort(comm, exit_status);
    abort();                                            /* it may return */
}

void comm_give_up(struct comm *comm, const struct error *err)
{
    struct error before;
    const bool knows_more = watch_verdict(comm, OK, &before) != OK;
    fprintf(stderr, "orrery: device %d: %s%s%s\n", comm->rank, err->text, knows_more ? "; before that, " : "",
            knows_more ? before.text : "");
    comm_abort(comm, error_exit_status(err->code));
}

/* ---- agreement: up a binomial tree to member 0, and down again --------------------------------------------------- */

struct verdict { int32_t member, code; };               /* the lowest member that failed; the group's size if none */

/* The result is the bit that joins a member to its parent: the lowest set bit, or the first beyond the group for
 * member 0. */
static int parent_bit(const struct group *group)
{
    int bit = 1;
    while (bit < group->size && !(group->rank & bit)) bit <<= 1;
    return bit;
}

/* Collect the worst verdict of this member's subtree from its children, then send it to the parent. */
static enum error_code gather_up(struct exchange *exchange, struct verdict *worst, struct error *err)
{
    const struct group *g = exchange->group;
    enum error_code code = OK;
    const int parent = parent_bit(g);
    for (int bit = 1; bit < parent && code == OK; bit <<= 1) {
        struct verdict other;
        if (g->rank + bit >= g->size) break;
        code = exchange_both(exchange, -1, NULL, 0, g->rank + bit, &other, sizeof other, err);
        if (code == OK && other.member < worst->member) *worst = other;
    }
    if (code == OK && g->rank != 0)
        code = exchange_both(exchange, g->rank - parent, worst, sizeof *worst, -1, NULL, 0, err);
    return code;
}

/* Receive member 0's bytes from the parent and pass them on to the children, the farthest child first. */
static enum error_code tell_down(struct exchange *exchange, void *data, uint64_t bytes, struct error *err)
{
    const struct group *g = exchange->group;
    enum error_code code = OK;
    const int parent = parent_bit(g);
    if (g->rank != 0) code = exchange_both(exchange, -1, NULL, 0, g->rank - parent, data, bytes, err);
    for (int bit = parent >> 1; bit > 0 && code == OK; bit >>= 1)
        if (g->rank + bit < g->size) code = exchange_both(exchange, g->rank + bit, data, bytes, -1, NULL, 0, err);
    return code;
}

/* After a failure: send its message to member 0, which sends it to all. */
static enum error_code tell_text(struct exchange *exchange, int from, char *text, uint64_t bytes, struct error *err)
{
    const int rank = exchange->group->rank;
    enum error_code code = OK;
    if (from != 0 && (rank == from || rank == 0))
        code = exchange_both(exchange, rank == from ? 0 : -1, text, bytes, rank == 0 ? from : -1, text, bytes, err);
    return code == OK ? tell_down(exchange, text, bytes, err) : code;
}

/* Memory is freed now, and messages are left. */
static void note_failure(struct comm *comm)
{
    comm->failed = true;
    watch_forgive(comm);
}

enum error_code group_agree(struct group *group, enum error_code local, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    struct verdict worst = { .member = local == OK ? group->size : group->rank, .code = local };
    struct error said = { .code = OK };

    if (group->size == 1 && local != OK) note_failure(group->comm);
    if (group->size == 1) return local;
    if (group->comm->carrier && group->comm->carrier->agree) return group->comm->carrier->agree(group, local, err);
    struct error broken = { .code = OK };
    enum error_code code = gather_up(&x, &worst, &broken);
    if (code == OK) code = tell_down(&x, &worst, sizeof worst, &broken);
    if (code == OK && worst.member == group->size) return OK;

    note_failure(group->comm);
    /* Only the failed member has the text of its error; it travels to member 0 and from there to all. */
    if (worst.member == group->rank && err != NULL) said = *err;
    if (code == OK) code = tell_text(&x, worst.member, said.text, sizeof said.text, &broken);
    if (code != OK) comm_give_up(group->comm, &broken);
    return fail(err, (enum error_code)worst.code, "%s", said.text);
}

enum error_code group_same(struct group *group, const void *own, uint64_t bytes, const char *what, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    char first[64];
    assert(bytes <= sizeof first);
    memcpy(first, own, (size_t)bytes);
    /* All members get member 0's bytes; each compares its own, then all agree. */
    enum error_code e = tell_down(&x, first, bytes, err);
    if (!e && memcmp(first, own, (size_t)bytes) != 0)
        e = fail(err, ERR_PLAN, "%s of device %d is not that of device %d", what, group->member[group->rank],
                 group->member[0]);
    return group_agree(group, e, err);
}

/* Also report a buffer that was reused too early: no call could return this error. */
static enum error_code with_streams(struct comm *comm, enum error_code local, struct error *err)
{
    local = watch_verdict(comm, local, err);
    const char *trouble = flight_trouble(comm->device->clock.flight);
    return local != OK || trouble[0] == '\0' ? local : fail(err, ERR_CHECK, "device %d: %s", comm->rank, trouble);
}

enum error_code comm_agree(struct comm *comm, enum error_code local, struct error *err)
{
    local = with_streams(comm, local, err);
    return group_agree(comm->everyone, local, err);
}

void comm_barrier(struct comm *comm)
{
    struct error err;
    if (group_agree(comm->everyone, OK, &err) != OK) comm_give_up(comm, &err);
}

enum error_code comm_bring(struct comm *comm, const void *own, uint64_t bytes, void *all, struct error *err)
{
    struct exchange x = exchange_begin(comm->everyone, CONTROL);
    enum error_code e = OK;
    if (comm->rank != 0) return exchange_both(&x, 0, own, bytes, -1, NULL, 0, err);
    /* Rank 0 receives rank after rank, straight into each rank's place. */
    memcpy(all, own, (size_t)bytes);
    for (int r = 1; r < comm->size && !e; r++)
        e = exchange_both(&x, -1, NULL, 0, r, (char *)all + (uint64_t)r * bytes, bytes, err);
    return e;
}

enum error_code comm_tell(struct comm *comm, void *all, uint64_t bytes, struct error *err)
{
    struct exchange x = exchange_begin(comm->everyone, CONTROL);
    enum error_code e = OK;
    if (comm->rank != 0) return exchange_both(&x, -1, NULL, 0, 0, all, bytes, err);
    for (int r = 1; r < comm->size && !e; r++) e = exchange_both(&x, r, all, bytes, -1, NULL, 0, err);
    return e;
}

enum error_code comm_outline(struct comm *comm, struct device *device, int rank, int size, struct error *err)
{
    *comm =
        (struct comm){ .device = device, .rank = rank, .size = size,
                      .contexts = calloc((size_t)size, sizeof *comm->contexts) };
    return comm->contexts ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d devices", size);
}

void comm_outline_close(struct comm *comm)
{
    free(comm->contexts);
    comm->contexts = NULL;
}

enum error_code comm_alone(struct comm *comm, struct device *device, struct error *err)
{
    enum error_code e = comm_outline(comm, device, 0, 1, err);
    if (e) return e;
    comm->everyone = calloc(1, sizeof *comm->everyone);
    e = comm->everyone ? group_world(comm->everyone, comm, err)
        : fail(err, ERR_MEMORY, "no memory for a group of one device");
    if (!e) return OK;
    free(comm->everyone);
    comm_outline_close(comm);
    return e;
}

/* Pairs of devices count the groups that they have made together, so a device that makes no group on the part counts
 * none with those that do, and the list goes on for both comms. */
enum error_code comm_part(struct comm *part, struct comm *whole, int devices, const int *process, struct error *err)
{
    *part = *whole;
    part->size = devices, part->process = process;
    for (int r = 0; r < devices && process; r++)
        if (process[r] == whole->rank) part->rank = r;
    part->counted = part->expected = (struct ledger){ 0 };
    part->everyone = calloc(1, sizeof *part->everyone);
    if (part->everyone == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", devices);
    const enum error_code e = group_world(part->everyone, part, err);
    if (e) free(part->everyone);
    return e;
}

void comm_part_close(struct comm *part, struct comm *whole)
{
    group_close(part->everyone);
    free(part->everyone);
    whole->failed = whole->failed || part->failed;
}

void comm_alone_close(struct comm *comm)
{
    group_close(comm->everyone);
    free(comm->everyone);
    comm_outline_close(comm);
}
