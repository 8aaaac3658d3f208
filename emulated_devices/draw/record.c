#include "emulated_devices/draw/record.h"
#include <stdio.h>
#include <stdlib.h>

void record_number(struct record *r, int64_t x)
{
    if (r->used == r->room) {
        const int64_t room = r->room > 0 ? 2 * r->room : 256;
        int64_t *number = realloc(r->number, sizeof *number * (size_t)room);
        r->failed = r->failed || number == NULL;
        if (number == NULL) return;
        r->number = number;
        r->room = room;
    }
    r->number[r->used++] = x;
}

void record_event(struct record *r, int what, picoseconds time, int64_t count)
{
    record_number(r, what);
    record_number(r, time);
    record_number(r, count);
}

enum error_code record_bring(struct comm *world, struct record *mine, struct record *all, struct error *err)
{
    struct exchange x = exchange_begin(world->everyone, CONTROL);
    enum error_code e = OK;
    if (world->rank > 0) {
        e = exchange_both(&x, 0, &mine->used, sizeof mine->used, -1, NULL, 0, err);
        return e ? e
                 : exchange_both(&x, 0, mine->number, sizeof *mine->number * (uint64_t)mine->used, -1, NULL, 0, err);
    }
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
