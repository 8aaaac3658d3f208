/* recorder.c -- writes what a device remembers of its calls and steps.
 *
 * run/session.c and tests open and close; what moves messages calls in between.  ERR_FILE names the file.  No other
 * function fails.  After a crew's run has become void nothing is recorded.
 */
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/device.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

size_t record_bytes(const struct record_head *head)
{
    const size_t cells = (size_t)head->steps_room * head->size;
    return sizeof *head + head->size * sizeof(struct record_pair) + head->steps_room * sizeof(struct step_record)
           + cells * sizeof(struct record_cell) + head->calls_room * sizeof(struct call_record);
}

void record_place(struct recorder *recorder)
{
    const struct record_head *const h = recorder->head;
    recorder->pair = (struct record_pair *)(recorder->head + 1);
    recorder->step = (struct step_record *)(recorder->pair + h->size);
    recorder->cell = (struct record_cell *)(recorder->step + h->steps_room);
    recorder->call = (struct call_record *)(recorder->cell + (size_t)h->steps_room * h->size);
    recorder->bytes = record_bytes(h);
}

/* The memory is a file's, so all that is written is there when the process has gone. */
static enum error_code recorder_map(const char *folder, int rank, size_t bytes, void **at, struct error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/device-%05d.record", folder, rank);
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(errno));
    *at = ftruncate(file, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                             : MAP_FAILED;
    const int why = errno;
    close(file);
    return *at != MAP_FAILED ? OK : fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(why));
}

enum error_code recorder_open(struct recorder *recorder, const char *folder, int rank, int size, int steps,
                              struct error *err)
{
    const int most = RECORD_CELLS / size > 16 ? RECORD_CELLS / size : 16, asked = steps > 0 ? steps : RECORD_STEPS;
    const struct record_head head = { .magic = { 'O', 'R', 'R', 'Y', 'R', 'E', 'C', '1' }, .order = RECORD_ORDER,
                                      .version = RECORD_VERSION, .rank = (uint32_t)rank, .size = (uint32_t)size,
                                      .calls_room = RECORD_CALLS, .waits_for = -1,
                                      .steps_room = (uint32_t)(asked < most ? asked : most) };
    void *at = NULL;
    *recorder = (struct recorder){ .head = NULL };
    const enum error_code e = folder ? recorder_map(folder, rank, record_bytes(&head), &at, err) : OK;
    if (e) return e;
    if (folder == NULL) at = system_pages(record_bytes(&head), true);
    if (at == NULL) return fail(err, ERR_MEMORY, "device %d has no memory to record its calls", rank);
    recorder->head = at;
    *recorder->head = head;
    record_place(recorder);
    return OK;
}

void recorder_close(struct recorder *recorder)
{
    if (recorder == NULL || recorder->head == NULL) return;
    if (recorder->head->state == RECORD_RUNS) recorder->head->state = RECORD_ENDED;
    munmap(recorder->head, recorder->bytes);
    recorder->head = NULL;
}

enum error_code recorder_clear(const char *folder, struct error *err)
{
    char path[4200];
    int number, end;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail(err, ERR_FILE, "%s: %s", printable_path(folder).text, strerror(errno));
    DIR *const all = opendir(folder);
    if (all == NULL) return fail(err, ERR_FILE, "%s: %s", printable_path(folder).text, strerror(errno));
    for (const struct dirent *one; (one = readdir(all)) != NULL;) {
        end = 0;
        if (sscanf(one->d_name, "device-%5d.record%n", &number, &end) != 1 || end == 0 || one->d_name[end]) continue;
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        unlink(path);
    }
    closedir(all);
    return OK;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* The recorder of a device that records now; NULL: none, or nothing that happens is true any more. */
static struct recorder *recorder_of(const struct comm *comm)
{
    return comm->recorder && comm->rehearsal == NULL && !comm_is_idle(comm) ? comm->recorder : NULL;
}

static struct record_cell *cells_now(const struct recorder *recorder)
{
    return recorder->cell + recorder->head->steps % recorder->head->steps_room * recorder->head->size;
}

/* The ring's count grows last: a reader beside the run never sees half of an entry as the newest one. */
static void recorder_end_step(struct recorder *recorder, const struct clock *clock)
{
    struct record_head *const h = recorder->head;
    struct step_record s = recorder->begun;
    if (h->step == 0) return;
    s.ends = clock->now, s.worked = clock->worked - s.worked, s.usual = clock->usual - s.usual;
    recorder->step[h->steps % h->steps_room] = s;
    h->steps++;
}

void recorder_step(const struct comm *comm, int64_t step)
{
    struct recorder *const r = recorder_of(comm);
    const struct clock *const clock = &comm->device->clock;
    if (r == NULL) return;
    recorder_end_step(r, clock);
    r->head->step = step;
    r->begun = (struct step_record){ .step = step, .begins = clock->now, .worked = clock->worked,
                                     .usual = clock->usual };
    memset(cells_now(r), 0, sizeof *r->cell * r->head->size);
}

static struct call_record *call_now(const struct recorder *recorder)
{
    return &recorder->call[recorder->head->calls % recorder->head->calls_room];
}

static void call_begin(struct recorder *recorder, const struct group *group, enum operation operation,
                       picoseconds start)
{
    *call_now(recorder) = (struct call_record){ .step = recorder->head->step, .start = start, .arrival = start,
                                                .end = -1, .peer = -1, .members = group->size, .axes = group->axes,
                                                .operation = (uint8_t)operation, .kind = (uint8_t)group->kind };
    recorder->head->open = 1;
}

static void call_end(struct recorder *recorder, picoseconds end)
{
    struct call_record *const call = call_now(recorder);
    call->end = end;
    recorder->begun.in_calls += end - call->start, recorder->begun.calls++;
    recorder->head->open = 0;
    recorder->head->calls++;
}

void recorder_begins(const struct comm *comm, const struct group *group, enum operation operation)
{
    struct recorder *const r = recorder_of(comm);
    if (r && r->depth++ == 0) call_begin(r, group, operation, comm->device->clock.now);
}

void recorder_ends(const struct comm *comm)
{
    struct recorder *const r = recorder_of(comm);
    if (r && --r->depth == 0) call_end(r, comm->device->clock.now);
}

void recorder_waits(const struct comm *comm, const struct exchange *exchange, int device, bool sending)
{
    struct recorder *const r = recorder_of(comm);
    if (r == NULL) return;
    struct record_head *const h = r->head;
    h->waits_operation = (uint8_t)exchange->operation, h->waits_kind = (uint8_t)exchange->group->kind;
    h->waits_axes = exchange->group->axes, h->waits_sending = sending, h->waits_for = device;
}

void recorder_goes_on(const struct comm *comm)
{
    struct recorder *const r = recorder_of(comm);
    if (r) r->head->waits_for = -1;
}

void recorder_arrived(const struct comm *comm, const struct exchange *exchange, int device,
                      const struct passage *passage, picoseconds since)
{
    struct recorder *const r = recorder_of(comm);
    const struct clock *const clock = &comm->device->clock;
    if (r == NULL || (uint32_t)device >= r->head->size) return;
    const picoseconds latency = clock->cluster.link[passage->level].latency;
    struct record_cell *const cell = &cells_now(r)[device];
    cell->carried += passage->carried - latency, cell->usual += clock_usual(clock, passage) - latency;
    cell->messages++, r->pair[device].received++;
    /* Outside a collective the message is a call of its own. */
    if (r->depth == 0) call_begin(r, exchange->group, exchange->operation, since);
    if (clock->received >= call_now(r)->arrival) call_now(r)->arrival = clock->received, call_now(r)->peer = device;
    if (r->depth == 0) call_end(r, clock->now);
}

void recorder_sends(const struct comm *comm, int device)
{
    struct recorder *const r = recorder_of(comm);
    if (r && (uint32_t)device < r->head->size) r->pair[device].sent++;
}

void recorder_hangs(const struct comm *comm)
{
    if (comm->recorder) comm->recorder->head->state = RECORD_HANGS;
}

/* ---- hanging ----------------------------------------------------------------------------------------------------- */

enum { NEVER_SENT = (1 << 17) - 1 };    /* the name of a message that nobody sends */

void comm_hang(struct comm *comm)
{
    char nothing;
    struct exchange x = exchange_named(comm->everyone, CONTROL, NEVER_SENT);
    /* The device does nothing from now on, so nothing is recorded. */
    comm->recorder = NULL;
    /* A process sleeps for ever.  A device of a crew leaves its core to the others. */
    while (comm->post == NULL) pause();
    const struct message m = message_receive(&x, (comm->rank + 1) % comm->size, &nothing, 1);
    message_wait(comm, m, NULL);
}
