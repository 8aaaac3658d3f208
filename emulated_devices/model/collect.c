#include "emulated_devices/model/collect.h"
#include <stdlib.h>

static struct tensor tensor_of(const struct parameter *p, enum tensor_kind kind)
{
    return kind == KIND_WEIGHT ? p->w : kind == KIND_OLDER_WEIGHT ? p->older : kind == KIND_GRADIENT ? p->g : p->state[kind - KIND_STATE];
}

/* The sender has sent: a failure here is the end of the job. */
static void receive_and_visit(struct trainer *t, struct exchange *x, struct piece piece, void (*visit)(void *, const struct piece *),
                              void *context)
{
    struct error err;
    const int64_t n = layout_count(piece.layout);
    void *room = malloc((size_t)n * dtype_size(t->device->dtype) + 1);
    enum error_code e = room ? OK : fail(&err, ERR_MEMORY, "no memory to collect %s", piece.spec->name);
    piece.data = tensor_1d(room, t->device->dtype, n);
    if (!e) e = message_wait(t->comm, message_receive(x, piece.rank, room, tensor_bytes(piece.data)), &err);
    if (e) comm_give_up(t->comm, &err);
    visit(context, &piece);
    free(room);
}

static void send_own(struct trainer *t, struct exchange *x, struct tensor own)
{
    struct error err;
    if (message_wait(t->comm, message_send(x, 0, own.data, tensor_bytes(own)), &err)) comm_give_up(t->comm, &err);
}

enum error_code collect(struct trainer *t, int index, enum tensor_kind kind, void (*visit)(void *, const struct piece *), void *context,
                        struct error *err)
{
    const struct param_spec spec = model_param(&t->plan.model, index);
    const struct parameter *own = parameter_find(&t->parameters, index);
    struct exchange x = exchange_begin(&t->world, CONTROL);
    (void)err;
    if (t->comm->rank != 0 && own) send_own(t, &x, tensor_of(own, kind));
    for (int rank = 0; rank < t->comm->size && t->comm->rank == 0; rank++) {
        struct piece piece = { .rank = rank, .spec = &spec };
        if (!plan_holds(&t->plan, &t->schedule, rank, &spec, &piece.first)) continue;
        const struct layout layout = plan_layout(&t->plan, rank, &spec);
        piece.layout = &layout;
        if (rank == 0) {
            piece.data = tensor_of(own, kind);
            visit(context, &piece);
        } else receive_and_visit(t, &x, piece, visit, context);
    }
    return OK;
}

struct paste { const struct trainer *trainer; struct tensor whole; };

static void paste_piece(void *context, const struct piece *p)
{
    const struct paste *to = context;
    if (mesh_coordinate(&to->trainer->plan.mesh, p->rank, DP) != 0 || !p->first) return;
    layout_paste(p->layout, to->whole.data, p->data.data, dtype_size(to->whole.dtype));
}

enum error_code collect_whole(struct trainer *t, int index, enum tensor_kind kind, struct tensor whole, struct error *err)
{
    struct paste to = { t, whole };
    return collect(t, index, kind, paste_piece, &to, err);
}
