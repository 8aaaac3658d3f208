/* peer.c -- translates a call of ours into one of MPI's collectives and runs it, blocking or yielding.  The only
 * caller is bench/schemes/collectives_device.c, to measure MPI beside the algorithms of collectives/.  ERR_USAGE
 * means that MPI has no such call, ERR_COMM that the call failed on this device. */
#include "emulated_devices/comm/peer.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/transport.h"
#include <limits.h>

/* This is MPI's name of a format; 16-bit formats have none. */
static MPI_Datatype type_of(enum dtype dtype)
{
    switch (dtype) {
    case F32: return MPI_FLOAT;
    case F64: return MPI_DOUBLE;
    case I32: return MPI_INT32_T;
    case I64: return MPI_INT64_T;
    case U8:  return MPI_UINT8_T;
    default:  return MPI_DATATYPE_NULL;
    }
}

/* This is MPI's name of a reduction; an average has none. */
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

/* These are the arguments in MPI's form. */
struct arguments {
    const void *in;
    void *out;
    int n, own, root;                   /* elements of the vector and of this device's block; root */
    int length[PEER_MOST_DEVICES], first[PEER_MOST_DEVICES];
    MPI_Datatype t;
    MPI_Op op;
    MPI_Comm on;
};

/* MPI's blocking form of an operation spins, so each device needs a core. */
static int blocking(enum operation operation, const struct arguments *arguments)
{
    switch (operation) {
    case BROADCAST: return MPI_Bcast(arguments->out, arguments->n, arguments->t, arguments->root, arguments->on);
    case REDUCE: return MPI_Reduce(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op,
                                   arguments->root, arguments->on);
    case ALLREDUCE: return MPI_Allreduce(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op,
                                         arguments->on);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER:
        return MPI_Reduce_scatter(arguments->in, arguments->out, arguments->length, arguments->t, arguments->op,
                                  arguments->on);
    case ALLGATHER: case SPARSE_ALLGATHER:
        return MPI_Allgatherv(arguments->in, arguments->own, arguments->t, arguments->out, arguments->length,
                              arguments->first, arguments->t, arguments->on);
    case ALLTOALL: return MPI_Alltoall(arguments->in, arguments->n, arguments->t, arguments->out, arguments->n,
                                       arguments->t, arguments->on);
    case GATHER: return MPI_Gatherv(arguments->in, arguments->own, arguments->t, arguments->out, arguments->length,
                                    arguments->first, arguments->t, arguments->root, arguments->on);
    case SCATTER: return MPI_Scatterv(arguments->in, arguments->length, arguments->first, arguments->t, arguments->out,
                                      arguments->own, arguments->t, arguments->root, arguments->on);
    case BARRIER: return MPI_Barrier(arguments->on);
    case SCAN: return MPI_Scan(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op, arguments->on);
    default: return MPI_ERR_OTHER;
    }
}

/* Start MPI's non-blocking form of an operation. */
static int peer_start(enum operation operation, const struct arguments *arguments, MPI_Request *r)
{
    switch (operation) {
    case BROADCAST: return MPI_Ibcast(arguments->out, arguments->n, arguments->t, arguments->root, arguments->on, r);
    case REDUCE: return MPI_Ireduce(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op,
                                    arguments->root, arguments->on, r);
    case ALLREDUCE: return MPI_Iallreduce(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op,
                                          arguments->on, r);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER:
        return MPI_Ireduce_scatter(arguments->in, arguments->out, arguments->length, arguments->t, arguments->op,
                                   arguments->on, r);
    case ALLGATHER: case SPARSE_ALLGATHER:
        return MPI_Iallgatherv(arguments->in, arguments->own, arguments->t, arguments->out, arguments->length,
                               arguments->first, arguments->t, arguments->on, r);
    case ALLTOALL: return MPI_Ialltoall(arguments->in, arguments->n, arguments->t, arguments->out, arguments->n,
                                        arguments->t, arguments->on, r);
    case GATHER: return MPI_Igatherv(arguments->in, arguments->own, arguments->t, arguments->out, arguments->length,
                                     arguments->first, arguments->t, arguments->root, arguments->on, r);
    case SCATTER: return MPI_Iscatterv(arguments->in, arguments->length, arguments->first, arguments->t, arguments->out,
                                       arguments->own, arguments->t, arguments->root, arguments->on, r);
    case BARRIER: return MPI_Ibarrier(arguments->on, r);
    case SCAN: return MPI_Iscan(arguments->in, arguments->out, arguments->n, arguments->t, arguments->op,
                                arguments->on, r);
    default: return MPI_ERR_OTHER;
    }
}

/* Start the operation, then test and yield until it is complete. */
static int yielding(enum operation operation, const struct arguments *arguments)
{
    MPI_Request request;
    const int rc = peer_start(operation, arguments, &request);
    if (rc != MPI_SUCCESS) return rc;
    return patience_settle(&request) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

enum error_code peer_run(struct comm *comm, enum peer_way way, enum operation operation,
                         const struct peer_call *peer_call, struct error *err)
{
    const int P = comm->size, r = comm->rank;
    if (peer_call->count > INT_MAX / (operation == ALLTOALL ? P : 1) || P > PEER_MOST_DEVICES ||
        op_of(peer_call->reduction) == MPI_OP_NULL || type_of(peer_call->dtype) == MPI_DATATYPE_NULL)
        return fail(err, ERR_USAGE, "MPI's %s does not take this call", operation_name(operation));
    struct arguments p = { .in = peer_call->in, .out = peer_call->out, .n = (int)peer_call->count,
                          .root = peer_call->root, .t = type_of(peer_call->dtype),
                           .op = op_of(peer_call->reduction), .on = comm->transport->heads };
    /* The first n mod P blocks are one element longer, as in block_at. */
    for (int b = 0, at = 0; b < P; at += p.length[b], b++) {
        p.first[b] = at;
        p.length[b] = p.n / P + (b < p.n % P);
    }
    p.own = p.length[r];
    /* MPI separates the messages of collectives from all others of a communicator. */
    if (operation == BROADCAST && r == peer_call->root) p.out = (void *)(uintptr_t)peer_call->in;
    const int rc = way == PEER_BLOCKING ? blocking(operation, &p) : yielding(operation, &p);
    return rc == MPI_SUCCESS ? OK : fail(err, ERR_COMM, "MPI's %s failed on device %d", operation_name(operation), r);
}
