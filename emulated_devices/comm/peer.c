#include "emulated_devices/comm/peer.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/transport.h"
#include <limits.h>

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case F32: return MPI_FLOAT;
    case F64: return MPI_DOUBLE;
    case I32: return MPI_INT32_T;
    case I64: return MPI_INT64_T;
    case U8:  return MPI_UINT8_T;
    default:  return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(enum reduction how)
{
    switch (how) {
    case SUM: return MPI_SUM;
    case PRODUCT: return MPI_PROD;
    case MAX: return MPI_MAX;
    case MIN: return MPI_MIN;
    default: return MPI_OP_NULL;
    }
}

/* The arguments in MPI's form. */
struct arguments {
    const void *in;
    void *out;
    int n, own, root;                   /* elements of the vector and of this device's block; root */
    int length[PEER_MOST_DEVICES], first[PEER_MOST_DEVICES];
    MPI_Datatype t;
    MPI_Op op;
    MPI_Comm on;
};

static int blocking(enum operation operation, const struct arguments *p)
{
    switch (operation) {
    case BROADCAST: return MPI_Bcast(p->out, p->n, p->t, p->root, p->on);
    case REDUCE: return MPI_Reduce(p->in, p->out, p->n, p->t, p->op, p->root, p->on);
    case ALLREDUCE: return MPI_Allreduce(p->in, p->out, p->n, p->t, p->op, p->on);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER:
        return MPI_Reduce_scatter(p->in, p->out, p->length, p->t, p->op, p->on);
    case ALLGATHER: case SPARSE_ALLGATHER:
        return MPI_Allgatherv(p->in, p->own, p->t, p->out, p->length, p->first, p->t, p->on);
    case ALLTOALL: return MPI_Alltoall(p->in, p->n, p->t, p->out, p->n, p->t, p->on);
    case GATHER: return MPI_Gatherv(p->in, p->own, p->t, p->out, p->length, p->first, p->t, p->root, p->on);
    case SCATTER: return MPI_Scatterv(p->in, p->length, p->first, p->t, p->out, p->own, p->t, p->root, p->on);
    case BARRIER: return MPI_Barrier(p->on);
    case SCAN: return MPI_Scan(p->in, p->out, p->n, p->t, p->op, p->on);
    default: return MPI_ERR_OTHER;
    }
}

static int start(enum operation operation, const struct arguments *p, MPI_Request *r)
{
    switch (operation) {
    case BROADCAST: return MPI_Ibcast(p->out, p->n, p->t, p->root, p->on, r);
    case REDUCE: return MPI_Ireduce(p->in, p->out, p->n, p->t, p->op, p->root, p->on, r);
    case ALLREDUCE: return MPI_Iallreduce(p->in, p->out, p->n, p->t, p->op, p->on, r);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER:
        return MPI_Ireduce_scatter(p->in, p->out, p->length, p->t, p->op, p->on, r);
    case ALLGATHER: case SPARSE_ALLGATHER:
        return MPI_Iallgatherv(p->in, p->own, p->t, p->out, p->length, p->first, p->t, p->on, r);
    case ALLTOALL: return MPI_Ialltoall(p->in, p->n, p->t, p->out, p->n, p->t, p->on, r);
    case GATHER: return MPI_Igatherv(p->in, p->own, p->t, p->out, p->length, p->first, p->t, p->root, p->on, r);
    case SCATTER: return MPI_Iscatterv(p->in, p->length, p->first, p->t, p->out, p->own, p->t, p->root, p->on, r);
    case BARRIER: return MPI_Ibarrier(p->on, r);
    case SCAN: return MPI_Iscan(p->in, p->out, p->n, p->t, p->op, p->on, r);
    default: return MPI_ERR_OTHER;
    }
}

static int yielding(enum operation operation, const struct arguments *p)
{
    MPI_Request request;
    const int rc = start(operation, p, &request);
    if (rc != MPI_SUCCESS) return rc;
    return patience_settle(&request) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

enum error_code peer_run(struct comm *comm, enum peer_way way, enum operation operation, const struct peer_call *c,
                         struct error *err)
{
    const int P = comm->size, r = comm->rank;
    if (c->count > INT_MAX / (operation == ALLTOALL ? P : 1) || P > PEER_MOST_DEVICES ||
        op_of(c->reduction) == MPI_OP_NULL)
        return fail(err, ERR_USAGE, "MPI's %s does not take this call", operation_name(operation));
    struct arguments p = { .in = c->in, .out = c->out, .n = (int)c->count, .root = c->root, .t = type_of(c->dtype),
                           .op = op_of(c->reduction), .on = comm->transport->heads };
    /* The first n mod P blocks are one element longer, as in block_at. */
    for (int b = 0, at = 0; b < P; at += p.length[b], b++) {
        p.first[b] = at;
        p.length[b] = p.n / P + (b < p.n % P);
    }
    p.own = p.length[r];
    /* MPI separates the messages of collectives from all others of a communicator. */
    if (operation == BROADCAST && r == c->root) p.out = (void *)(uintptr_t)c->in;
    const int rc = way == PEER_BLOCKING ? blocking(operation, &p) : yielding(operation, &p);
    return rc == MPI_SUCCESS ? OK : fail(err, ERR_COMM, "MPI's %s failed on device %d", operation_name(operation), r);
}
