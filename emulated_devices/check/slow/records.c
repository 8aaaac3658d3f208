/* records.c -- reads the files of --record, which may be of a run that goes on, was killed, or is damaged.
 * cli/diagnose.c and tests call.  ERR_FILE and ERR_FORMAT name the file. */
#include "emulated_devices/check/slow/records.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 26, ROOM_MOST = 1 << 20 };

static enum error_code is_none(const char *where, const char *why, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: is no record of a device: %s", printable_path(where).text, why);
}

/* Picoseconds of a step, so that those of a thousand steps can be added: 75 minutes. */
#define STEP_LONGEST (INT64_C(1) << 52)

static bool is_time(int64_t time) { return time >= 0 && time <= STEP_LONGEST; }

/* Whether sums of steps and of messages are those of steps. */
static bool has_times(const struct recorder *recorder)
{
    const struct record_head *const h = recorder->head;
    const size_t cells = (size_t)h->steps_room * h->size;
    bool right = true;
    for (uint32_t i = 0; i < h->steps_room; i++) {
        const struct step_record *const s = &recorder->step[i];
        right = right && is_time(s->worked) && is_time(s->usual) && is_time(s->in_calls);
    }
    for (size_t i = 0; i < cells; i++)
        right = right && is_time(recorder->cell[i].carried) && is_time(recorder->cell[i].usual);
    return right;
}

enum error_code records_check(const void *bytes, size_t count, const char *where, struct error *err)
{
    const struct record_head *const h = bytes;
    if (count < sizeof *h || memcmp(h->magic, RECORD_MAGIC, sizeof h->magic) != 0)
        return is_none(where, "it does not begin as one", err);
    if (h->order != RECORD_ORDER) return is_none(where, "another kind of processor has written it", err);
    if (h->version != RECORD_VERSION) return is_none(where, "another version of this program has written it", err);
    if (h->size < 1 || h->size > RECORD_MOST_DEVICES || h->rank >= h->size || h->calls_room < 1
        || h->calls_room > ROOM_MOST || h->steps_room < 1 || h->steps_room > ROOM_MOST
        || count != record_bytes(h)) return is_none(where, "its length is not the one that its head says", err);
    if (h->waits_for < -1 || h->waits_for >= (int32_t)h->size || h->state >= RECORD_STATES
        || h->waits_operation >= OPERATION_COUNT || h->waits_kind >= TRAFFIC_KIND_COUNT || h->step < 0)
        return is_none(where, "it waits for no device of the run", err);
    struct recorder r = { .head = (struct record_head *)(uintptr_t)bytes };
    record_place(&r);
    for (uint32_t i = 0; i < h->calls_room; i++)
        if (r.call[i].operation >= OPERATION_COUNT || r.call[i].kind >= TRAFFIC_KIND_COUNT)
            return is_none(where, "a call is of no operation", err);
    return has_times(&r) ? OK : is_none(where, "a step takes no time that a step can take", err);
}

static enum error_code read_one(struct recorder *recorder, const char *folder, int rank, struct error *err)
{
    char path[4200], *bytes = NULL;
    size_t count;
    snprintf(path, sizeof path, "%s/device-%05d.record", folder, rank);
    enum error_code e = file_read_all(path, FILE_LIMIT, &bytes, &count, err);
    if (!e) e = records_check(bytes, count, path, err);
    if (!e && ((struct record_head *)bytes)->rank != (uint32_t)rank) e = is_none(path, "it is another device's", err);
    if (e) {
        free(bytes);
        return e;
    }
    recorder->head = (struct record_head *)bytes;
    record_place(recorder);
    return OK;
}

enum error_code records_read(struct records *records, const char *folder, struct error *err)
{
    struct recorder first = { .head = NULL };
    *records = (struct records){ .size = 0 };
    enum error_code e = read_one(&first, folder, 0, err);
    if (e) return e;
    const int size = (int)first.head->size;
    records->of = calloc((size_t)size, sizeof *records->of);
    if (records->of == NULL) e = fail(err, ERR_MEMORY, "no memory for the records of %d devices", size);
    else records->size = 1, records->of[0] = first;
    for (int r = 1; r < size && !e; r++) {
        e = read_one(&records->of[r], folder, r, err);
        if (!e) records->size = r + 1;
        if (!e && records->of[r].head->size != (uint32_t)size)
            e = fail(err, ERR_FORMAT, "%s: devices 0 and %d are of runs of %d and %d devices",
                     printable_path(folder).text, r, size, (int)records->of[r].head->size);
    }
    if (records->of == NULL) free(first.head);
    if (e) records_close(records);
    return e;
}

void records_close(struct records *records)
{
    for (int r = 0; r < records->size; r++) free(records->of[r].head);
    free(records->of);
    *records = (struct records){ .size = 0 };
}

/* A device that is ahead has lost its oldest steps already, and one that is behind has not the newest ones. */
int records_steps(const struct records *records, uint64_t *first, uint64_t *end)
{
    *first = 0, *end = UINT64_MAX;
    for (int r = 0; r < records->size; r++) {
        const struct record_head *const h = records->of[r].head;
        /* The cells of the next step may be at work in the oldest entry. */
        const uint64_t kept = h->steps_room > 1 ? h->steps_room - 1 : 1;
        const uint64_t oldest = h->steps > kept ? h->steps - kept : 0;
        if (oldest > *first) *first = oldest;
        if (h->steps < *end) *end = h->steps;
    }
    return *end > *first ? (int)(*end - *first) : (*end = *first, 0);
}
