/* gather.c -- brings one text after another to rank 0, so that rank 0 holds only two at a time.  The callers are
 * simulators.c, trace_file.c and draw/profile.c.  Errors are agreed on after each text.  The only error of its own is
 * ERR_MEMORY. */
#include "emulated_devices/draw/gather.h"
#include <stdlib.h>
#include <string.h>

/* Bring the text of one device to rank 0.  Collective. */
static enum error_code gather_bring(struct comm *comm, int rank, const struct gathered *own, struct gathered *got,
                                    struct error *err)
{
    /* The head travels first: rank 0 needs the length for its memory. */
    struct { uint64_t length, full; } head = { own->length, own->full };
    enum error_code e = OK;
    *got = (struct gathered){ .text = NULL };
    /* Rank 0's own text needs no message, but a copy: the visitor's text is freed like all others. */
    if (rank == 0) {
        if (comm->rank != 0) return OK;
        *got = *own;
        return (got->text = malloc(own->length + 1)) ? (memcpy(got->text, own->text, own->length), OK)
                                                     : fail(err, ERR_MEMORY, "no memory for a text");
    }
    struct exchange x = exchange_begin(comm->everyone, CONTROL);
    if (comm->rank == rank) e = exchange_both(&x, 0, &head, sizeof head, -1, NULL, 0, err);
    if (comm->rank == 0) e = exchange_both(&x, -1, NULL, 0, rank, &head, sizeof head, err);
    if (comm->rank == 0 && !e && (got->text = malloc(head.length + 1)) == NULL)
        e = fail(err, ERR_MEMORY, "no memory for %llu bytes of device %d's text", (unsigned long long)head.length,
                 rank);
    e = comm_agree(comm, e, err);
    if (e) return e;
    if (comm->rank == rank) e = exchange_both(&x, 0, own->text, own->length, -1, NULL, 0, err);
    if (comm->rank != 0) return e;
    got->length = head.length;
    got->full = head.full != 0;
    return exchange_both(&x, -1, NULL, 0, rank, got->text, head.length, err);
}

enum error_code gather_texts(struct comm *comm, const struct gathered *own, gather_fn *visit, void *context,
                             struct error *err)
{
    enum error_code e = OK;
    for (int rank = 0; rank < comm->size && !e; rank++) {
        struct gathered got;
        e = gather_bring(comm, rank, own, &got, err);
        if (!e && comm->rank == 0) e = visit(context, rank, &got, err);
        free(got.text);
        e = comm_agree(comm, e, err);
    }
    return e;
}
