/* held_tensors.c -- lists the tensors of a plan's fullest device at its peak.  cli/train/against.c calls.  ERR_CHECK
 * says that the list is not the peak; other errors are those of a dry run. */
#include "emulated_devices/run/report/held_tensors.h"
#include "emulated_devices/device/arena_list.h"
#include <stdlib.h>
#include <string.h>

enum { MARKS = 4096 };                  /* layers and microbatches with a mark of their own; the rest share the last */

/* Marks of the layers and microbatches of each name. */
struct held_marks { unsigned char layer[MARKS / 8], micro[MARKS / 8]; };

struct held_listing {
    struct held_tensors *list;
    struct held_marks *marks;           /* [HELD_MOST] */
    struct arena_lister lister;
    int rank;                           /* of the device */
};

static void held_name(const struct arena_piece *piece, char *name, size_t size)
{
    const struct doing *const d = &piece->doing;
    const bool layer = d->part && strcmp(d->part, "layer") == 0;
    const char *const weights = piece->tag == PARAMETERS ? "gathered for " : piece->tag == GRADIENTS ? "made in " : "";
    if (d->pass == NULL) snprintf(name, size, "kept between steps");
    else if (piece->tag == PARAMETERS || piece->tag == GRADIENTS)
        snprintf(name, size, "%s%s", weights, d->part ? d->part : d->pass);
    else if (d->part == NULL) snprintf(name, size, "%s", d->pass);
    else snprintf(name, size, "%s%s%s%s", layer ? "" : d->part, layer ? "" : ", ",
                  piece->tensor && piece->tag == BUFFERS ? "gradient of " : "",
                  piece->tensor ? piece->tensor : d->what ? d->what : "output");
}

static int mark(unsigned char *marks, int at)
{
    const int i = at < 0 ? 0 : at < MARKS ? at : MARKS - 1;
    const bool new = !(marks[i / 8] & 1u << i % 8);
    marks[i / 8] |= (unsigned char)(1u << i % 8);
    return new;
}

static void held_add(void *context, const struct arena_piece *piece)
{
    struct held_listing *const l = context;
    struct held_tensors *const list = l->list;
    const struct doing *const d = &piece->doing;
    char name[sizeof list->of[0].name];
    int i = 0;
    held_name(piece, name, sizeof name);
    while (i < list->count && (list->of[i].tag != piece->tag || strcmp(list->of[i].name, name) != 0)) i++;
    if (i == HELD_MOST) i--;
    struct held_tensor *const h = &list->of[i];
    if (i == list->count) {
        *h = (struct held_tensor){ .tag = piece->tag };
        strcpy(h->name, name);
        list->count++;
    }
    h->bytes += piece->bytes, h->count++;
    if (d->pass && d->micro >= 0) h->micros += mark(l->marks[i].micro, d->micro);
    if (d->part && strcmp(d->part, "layer") == 0) h->layers += mark(l->marks[i].layer, d->layer);
}

static enum error_code held_watch(struct trainer *trainer, void *context, struct error *err)
{
    struct held_listing *const l = context;
    (void)err;
    if (trainer->comm->rank != l->rank) return OK;
    /* A folding that proved inexact runs again: the list of the last run counts. */
    l->list->count = 0, l->lister.done = false;
    memset(l->marks, 0, HELD_MOST * sizeof *l->marks);
    l->lister.arena = &trainer->device->arena;
    arena_list(&l->lister);
    return OK;
}

static enum error_code held_seen(struct trainer *trainer, void *context, struct error *err)
{
    (void)trainer, (void)context, (void)err;
    return OK;
}

enum error_code held_tensors_of(struct held_tensors *list, const struct planned_step *planned, struct error *err)
{
    const struct train_options *const o = planned->record.options;
    const int fullest = planned->findings.fullest;
    const uint64_t peak = planned->findings.peak[fullest].use.total;
    struct held_listing l = { .list = list, .marks = calloc(HELD_MOST, sizeof *l.marks),
                              .rank = planned->record.device[fullest].rank };
    struct dry_run unread;
    uint64_t sum = 0;
    list->count = 0;
    if (l.marks == NULL) return fail(err, ERR_MEMORY, "no memory for a list of tensors");
    l.lister = (struct arena_lister){ .at = peak, .piece = held_add, .context = &l };
    struct plan p = o->plan;
    train_set_rates(&p.hyper, o, 0);
    const enum error_code e = dry_run(&p, o->steps, o->unfolded, NULL, held_watch, held_seen, &l, &unread, err);
    arena_list(NULL);
    free(l.marks);
    for (int i = 0; i < list->count; i++) sum += list->of[i].bytes;
    if (e || sum == peak) return e;
    return fail(err, ERR_CHECK, "device %d holds %llu bytes at its peak, and the listed tensors have %llu", l.rank,
                (unsigned long long)peak, (unsigned long long)sum);
}
