/* record.c -- a growing list of numbers that holds events, and its way to rank 0. The drawings of attention,
 * collectives, dispatch and tensor record with it, and bring the records to rank 0.  attention_symbols.c,
 * collective_show.c, dispatch.c and tensor_symbols.c call these functions.  ERR_USAGE means that another number of
 * devices was started; ERR_MEMORY; other errors are those of messages. */
#include "emulated_devices/draw/record.h"
#include <stdio.h>
#include <stdlib.h>

void record_number(struct record *record, int64_t x)
{
    if (record->used == record->room) {
        /* The list doubles.  Without memory the number is lost, and `failed` is set. */
        const int64_t room = record->room > 0 ? 2 * record->room : 256;
        int64_t *number = realloc(record->number, sizeof *number * (size_t)room);
        record->failed = record->failed || number == NULL;
        if (number == NULL) return;
        record->number = number;
        record->room = room;
    }
    record->number[record->used++] = x;
}

void record_event(struct record *record, int what, picoseconds time, int64_t count)
{
    record_number(record, what);
    record_number(record, time);
    record_number(record, count);
}

enum error_code record_bring(struct comm *world, struct record *mine, struct record *all, struct error *err)
{
    struct exchange x = exchange_begin(world->everyone, CONTROL);
    enum error_code e = OK;
    /* The number of entries travels before the entries: rank 0 makes room for them. */
    if (world->rank > 0) {
        e = exchange_both(&x, 0, &mine->used, sizeof mine->used, -1, NULL, 0, err);
        return e ? e
                 : exchange_both(&x, 0, mine->number, sizeof *mine->number * (uint64_t)mine->used, -1, NULL, 0, err);
    }
    /* Rank 0's own record changes hands, so its memory is freed once. */
    all[0] = *mine;
    *mine = (struct record){ 0 };
    for (int r = 1; r < world->size && !e; r++) {
        e = exchange_both(&x, -1, NULL, 0, r, &all[r].used, sizeof all[r].used, err);
        if (!e && (all[r].number = malloc(sizeof *all[r].number * (size_t)(all[r].used + 1))) == NULL) {
            fprintf(stderr, "orrery: out of memory for what device %d has recorded\n", r);
            comm_abort(world, 1);       /* the others are already sending */
        }
        if (!e)
            e = exchange_both(&x, -1, NULL, 0, r, all[r].number, sizeof *all[r].number * (uint64_t)all[r].used, err);
    }
    return e;
}

enum error_code record_check(const struct record *record, struct error *err)
{
    return record->failed ? fail(err, ERR_MEMORY, "no memory for the record of what happened") : OK;
}

enum error_code record_check_devices(const struct comm *world, int devices, struct error *err)
{
    return world->size == devices ? OK
                                  : fail(err, ERR_USAGE, "show: the launcher started %d processes; --devices is %d",
                                         world->size, devices);
}

void records_free(struct record *all, int devices)
{
    for (int d = 0; d < devices; d++) free(all[d].number);
}
