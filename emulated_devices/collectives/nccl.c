/* nccl: collectives by NVIDIA's library, from GPU to GPU without the host's memory.
 *
 * Source    NVIDIA, NCCL, https://docs.nvidia.com/deeplearning/nccl
 * Needs     --backend cuda, and a process for each device.  Where processes share a GPU, NCCL is told that each is a
 *           host of its own (NCCL_HOSTID), since it refuses two of one host; then it goes by sockets.
 * Idea      members meet at a token, a message without bytes to the next member; then NCCL does the rest.  All-to-all,
 *           gather and scatter are its sends and receives, in one group of calls.  Blocks of unequal lengths are a
 *           reduce or a broadcast each, in one group.
 * Cost      the token, and what the call states that this member gives (`gives`): the vector of an allreduce once, to
 *           the next member.  Counted is what NCCL is told.  Which of its algorithms NCCL takes, and what it sends
 *           then, nobody sees here.  No time is charged for more than the token; so `auto` never takes it.  Its
 *           additions are not counted.
 * Rounding  in an order that NCCL chooses; an average is a sum, divided once.  A NaN may get lost in a maximum.
 *
 * Groups with the same members share a communicator of NCCL, which their first call makes: member 0 tells the others
 * its name.  It lasts as long as the program.  What is in the host's memory is copied to the GPU for the call.  The
 * library is loaded when it is first asked for.  cuda-emulated has an NCCL of its own (device/cuda/emulated/nccl.c).
 *
 * Only a build with CUDA=1 has this file.  collective_run (registry.c) calls run_OP of the table at the end.  Errors
 * are ERR_DEVICE for the library, ERR_MEMORY and ERR_USAGE; after the token an error ends the job.
 */
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/device/cuda/operands.h"
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the library ------------------------------------------------------------------------------------------------- */

#define FUNCTIONS(X)                                                                                                   \
    X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclGetErrorString) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce)    \
    X(ncclBroadcast) X(ncclReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclSend) X(ncclRecv)

#define X(name) __typeof__(name) *name;
static struct { void *object; FUNCTIONS(X) } nccl;
#undef X

/* The name of the first function that the library lacks, or NULL.  The pointers of those before are set. */
static const char *missing_function(void)
{
#define X(name)                                                                                                        \
    *(void **)&nccl.name = dlsym(nccl.object, #name);                                                                  \
    if (nccl.name == NULL) return #name;
    FUNCTIONS(X)
#undef X
    return NULL;
}

/* Load the library once in this process.  After an error nothing stays loaded, so that a later call tries again. */
static enum error_code nccl_load(enum operation op, struct error *err)
{
#ifdef CUDA_EMULATED
    static const char *const file = NULL;               /* the program itself */
#else
    static const char *const file = "libnccl.so.2";
#endif
    if (nccl.object != NULL) return OK;
    nccl.object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (nccl.object == NULL) return fail(err, ERR_DEVICE, "%s nccl: %s", operation_name(op), dlerror());
    const char *missing = missing_function();
    if (missing == NULL) return OK;
    dlclose(nccl.object);
    nccl.object = NULL;
    return fail(err, ERR_DEVICE, "%s nccl: the library has no %s", operation_name(op), missing);
}

/* An error of NCCL as an error of this program.  Its text names the usual cause of an invalid use. */
static enum error_code said(ncclResult_t r, enum operation op, struct error *err)
{
    if (r == ncclSuccess) return OK;
    return fail(err, ERR_DEVICE, "%s nccl: %s%s", operation_name(op), nccl.ncclGetErrorString(r),
                r == ncclInvalidUsage ? "; two processes of a host have the same GPU" : "");
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

enum { MADE_MOST = 64 };
static struct { int size, *member; ncclComm_t comm; } made[MADE_MOST];
static int makes;

/* Member 0 tells all others its name of the communicator.  Every member has to call this. */
static enum error_code share_name(struct group *group, ncclUniqueId *name, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    enum error_code code = OK;
    for (int r = 1; r < group->size && code == OK; r++) {
        if (group->rank == 0) code = message_wait(group->comm, message_send(&x, r, name, sizeof *name), err);
        if (group->rank == r) code = message_wait(group->comm, message_receive(&x, 0, name, sizeof *name), err);
    }
    return code;
}

/* Each process calls itself a host of its own, unless the user has set NCCL_HOSTID. */
static void be_a_host(const struct comm *comm)
{
    char name[32];
    snprintf(name, sizeof name, "orrery-%d", comm->rank);
    setenv("NCCL_HOSTID", name, 0);
}

/* Make the communicator of a group.  All its members call this together.  Members agree twice: a member that fails
 * alone would leave the others waiting inside NCCL. */
static enum error_code nccl_make(struct group *group, enum operation op, ncclComm_t *comm, struct error *err)
{
    const size_t bytes = sizeof *group->process * (size_t)group->size;
    int *member = malloc(bytes);
    ncclUniqueId name;
    enum error_code code = nccl_load(op, err);
    memset(&name, 0, sizeof name);
    /* The table's places are never given back, so a program with more groups gets an error. */
    if (code == OK && (makes == MADE_MOST || member == NULL))
        code = fail(err, ERR_MEMORY, "%s nccl: no room for more than %d groups", operation_name(op), makes);
    /* Only member 0 makes the name; the others get a copy. */
    if (code == OK && group->rank == 0) code = said(nccl.ncclGetUniqueId(&name), op, err);
    code = group_agree(group, code, err);
    if (code == OK) code = share_name(group, &name, err);
    /* The name of a host has to stand in the environment before the communicator is made. */
    if (gpu_is_shared()) be_a_host(group->comm);
    if (code == OK) code = said(nccl.ncclCommInitRank(comm, group->size, name, group->rank), op, err);
    code = group_agree(group, code, err);
    if (code != OK) return free(member), code;
    memcpy(member, group->process, bytes);
    made[makes].size = group->size, made[makes].member = member, made[makes].comm = *comm;
    makes++;
    return OK;
}

/* The communicator of a group: that of an earlier group with equal members, or a new one. */
static enum error_code comm_of(struct group *group, enum operation op, ncclComm_t *comm, struct error *err)
{
    for (int i = 0; i < makes; i++)
        if (made[i].size == group->size
            && memcmp(made[i].member, group->process, sizeof *group->process * (size_t)group->size) == 0)
            return *comm = made[i].comm, OK;
    return nccl_make(group, op, comm, err);
}

/* ---- the cost ---------------------------------------------------------------------------------------------------- */

/* Elements that member r gives to member d, by the arguments of the call. */
static int64_t gives(enum operation op, const struct collective *collective, int r, int P, int d)
{
    const bool next = d == imod(r + 1, P);
    switch (op) {
    case ALLTOALL: return d != r ? given_to(collective, d) : 0;
    case GATHER: return d == collective->root && d != r ? block_length(collective, P, r) : 0;
    case SCATTER: return r == collective->root && d != r ? block_length(collective, P, d) : 0;
    case REDUCE: return d == collective->root && d != r ? collective->count : 0;
    case BROADCAST: return next && r == collective->root ? collective->count : 0;
    case ALLREDUCE: return next ? collective->count : 0;
    case REDUCE_SCATTER: return next ? block_total(collective, P) - block_length(collective, P, r) : 0;
    case ALLGATHER: return next ? block_length(collective, P, r) : 0;
    default: return 0;
    }
}

/* The cost is what one_block and the tell_ functions count, so that the ledgers of both agree. */
static struct collective_cost nccl_cost(enum operation op, int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .messages = 1, .steps = 1 };        /* the token */
    for (int d = 0; d < P; d++)
        if (gives(op, collective, r, P, d) > 0) cost_send(&cost, collective, gives(op, collective, r, P, d));
    return cost;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* These tables translate the program's formats and reductions.  reduce_finish divides an average, so NCCL only adds. */
static const ncclDataType_t formats[DTYPE_COUNT] = {
    [F32] = ncclFloat32, [F64] = ncclFloat64, [F16] = ncclFloat16, [BF16] = ncclBfloat16, [I32] = ncclInt32,
    [I64] = ncclInt64, [U8] = ncclUint8,
};
static const ncclRedOp_t reductions[] = { [SUM] = ncclSum, [AVERAGE] = ncclSum, [PRODUCT] = ncclProd, [MAX] = ncclMax,
                                          [MIN] = ncclMin };

/* A call on its way: with what is in the host's memory copied to the GPU's. */
struct call {
    struct exchange *x;
    struct collective c;                /* in and out are the GPU's */
    void *host_out;                     /* where the result belongs, if out is a copy; else NULL */
    void *in_room, *out_room;           /* copies; NULL: there is none */
    int64_t in, out;                    /* elements of this member */
    ncclComm_t comm;
    ncclDataType_t format;
    ncclRedOp_t how;
    size_t passed_on;                   /* elements that this member gives to no one in particular */
};

/* In a rehearsal NCCL is told nothing. */
static bool rehearsed(const struct call *call) { return call->x->group->comm->rehearsal != NULL; }
#define TELL(k, function, ...) (rehearsed(k) ? ncclSuccess : nccl.function(__VA_ARGS__))

/* Count elements sent to a member: into the rehearsal if this is one, else into the ledger. */
static void nccl_count(const struct call *call, int to, size_t elements)
{
    struct group *g = call->x->group;
    const uint64_t bytes = bytes_of(&call->c, (int64_t)elements);
    if (bytes == 0) return;
    if (rehearsed(call)) traffic_send(g->comm->rehearsal, group_level(g, to), bytes, 1);
    else ledger_messages(&g->comm->counted, g, call->x->operation, to, bytes, 1);
}

/* A copy in the GPU's memory of what a member sends or gets.  Without memory the job ends. */
static void *copy_of(struct call *call, const void *from, int64_t elements, struct error *err)
{
    void *room = exchange_scratch(call->x, bytes_of(&call->c, elements) + 1);
    if (room == NULL)                           /* the others wait already */
        (void)fail(err, ERR_MEMORY, "%s nccl: no memory for a copy on the GPU", operation_name(call->x->operation)),
        comm_give_up(call->x->group->comm, err);
    device_copy(call->x->group->comm->device, room, from, bytes_of(&call->c, elements));
    return room;
}

/* Afterwards in and out are on the GPU.  A member sends and receives at once, so an all-to-all in place sends a
 * copy. */
static void copy_to_gpu(struct call *call, struct error *err)
{
    const enum operation op = call->x->operation;
    const bool works_in_out = op == ALLREDUCE || op == BROADCAST, in_place = call->c.in == call->c.out;
    if (call->in > 0 && !works_in_out && ((in_place && op == ALLTOALL) || !on_gpu(call->c.in)))
        call->c.in = call->in_room = copy_of(call, call->c.in, call->in, err);
    if (call->out > 0 && !on_gpu(call->c.out)) {
        call->host_out = call->c.out;
        call->c.out = call->out_room = copy_of(call, call->c.out, call->out, err);
    }
}

/* Until NCCL is done, MPI has to go on, too: the token of a member that has none yet may wait here to be sent.  MPI
 * goes on while somebody waits for a message, such as one to oneself. */
static enum error_code wait_for_nccl(const struct exchange *exchange, struct error *err)
{
    const char *said_limit = getenv("ORRERY_WAIT_LIMIT");
    const double usual = said_limit != NULL ? atof(said_limit) : WAIT_LIMIT, limit = 10 * usual;
    const time_t began = time(NULL);
    enum error_code code = OK;
    while (code == OK && cudaStreamQuery(NULL) == cudaErrorNotReady) {
        struct exchange self = exchange_named(exchange->group, CONTROL, 0);
        code = exchange_both(&self, exchange->group->rank, NULL, 0, exchange->group->rank, NULL, 0, err);
        if (difftime(time(NULL), began) > limit)
            return fail(err, ERR_COMM, "%s nccl: device %d has waited %g seconds for NCCL: another member does not "
                                       "come", operation_name(exchange->operation), exchange->group->comm->rank, limit);
    }
    return code;
}

static ncclResult_t all_blocks(struct call *, int P, int r);

/* Blocks of one vector, by members: whether one call does for all of them. */
static bool equal_blocks(const struct collective *collective, int P)
{
    return P * block_longest(collective, P) == block_total(collective, P);
}

static ncclResult_t tell_allreduce(struct call *call, size_t n)
{
    call->passed_on += n;
    return TELL(call, ncclAllReduce, call->c.out, call->c.out, n, call->format, call->how, call->comm, NULL);
}

static ncclResult_t tell_broadcast(struct call *call, int r, const void *from, void *into, size_t n, int root)
{
    if (r == root) call->passed_on += n;
    return TELL(call, ncclBroadcast, from, into, n, call->format, root, call->comm, NULL);
}

static ncclResult_t tell_reduce(struct call *call, int r, const void *from, size_t n, int root)
{
    if (r != root && call->x->operation == REDUCE) nccl_count(call, root, n);
    if (r != root && call->x->operation != REDUCE) call->passed_on += n;
    return TELL(call, ncclReduce, from, call->c.out, n, call->format, call->how, root, call->comm, NULL);
}

static ncclResult_t tell_reduce_scatter(struct call *call, int P, size_t n)
{
    call->passed_on += (size_t)(P - 1) * n;
    return TELL(call, ncclReduceScatter, call->c.in, call->c.out, n, call->format, call->how, call->comm, NULL);
}

static ncclResult_t tell_allgather(struct call *call, size_t n)
{
    call->passed_on += n;
    return TELL(call, ncclAllGather, call->c.in, call->c.out, n, call->format, call->comm, NULL);
}

static ncclResult_t send(struct call *call, const void *from, int64_t n, int to)
{
    nccl_count(call, to, (size_t)n);
    return TELL(call, ncclSend, from, (size_t)n, call->format, to, call->comm, NULL);
}

static ncclResult_t nccl_receive(struct call *call, void *into, int64_t n, int from)
{
    return TELL(call, ncclRecv, into, (size_t)n, call->format, from, call->comm, NULL);
}

/* Tell NCCL the whole call at once where NCCL has a function for the call; else one block after another. */
static ncclResult_t nccl_tell(struct call *call, int P, int r)
{
    const size_t n = (size_t)call->c.count;
    switch (call->x->operation) {
    case ALLREDUCE: return tell_allreduce(call, n);
    case BROADCAST: return tell_broadcast(call, r, call->c.out, call->c.out, n, call->c.root);
    case REDUCE: return tell_reduce(call, r, call->c.in, n, call->c.root);
    case REDUCE_SCATTER:
        if (equal_blocks(&call->c, P)) return tell_reduce_scatter(call, P, (size_t)call->out);
        break;
    case ALLGATHER:
        if (equal_blocks(&call->c, P)) return tell_allgather(call, (size_t)call->in);
        break;
    default: break;
    }
    return all_blocks(call, P, r);
}

/* Tell NCCL what belongs to member b.  Every member goes through b in the same order, so that the calls match. */
static ncclResult_t one_block(struct call *call, int P, int r, int b)
{
    const struct collective *c = &call->c;
    const enum operation op = call->x->operation;
    const size_t n = op != ALLTOALL ? (size_t)block_length(c, P, b) : 0;
    ncclResult_t e = ncclSuccess;
    if (op == REDUCE_SCATTER) return tell_reduce(call, r, const_block(c, c->in, P, b), n, b);
    if (op == ALLGATHER) return tell_broadcast(call, r, c->in, block(c, c->out, P, b), n, b);
    if (b == r) return ncclSuccess;                     /* its own is copied */
    if (op == ALLTOALL) e = send(call, algorithm_given(c, b), given_to(c, b), b);
    if (op == ALLTOALL && e == ncclSuccess) e = nccl_receive(call, algorithm_taken(c, b), taken_from(c, b), b);
    if (op == GATHER && r == c->root) e = nccl_receive(call, block(c, c->out, P, b), block_length(c, P, b), b);
    if (op == GATHER && b == c->root) e = send(call, c->in, block_length(c, P, r), b);
    if (op == SCATTER && r == c->root) e = send(call, const_block(c, c->in, P, b), block_length(c, P, b), b);
    if (op == SCATTER && b == c->root) e = nccl_receive(call, c->out, block_length(c, P, r), b);
    return e;
}

/* All calls between ncclGroupStart and ncclGroupEnd run together, so sends and receives need no order. */
static ncclResult_t all_blocks(struct call *call, int P, int r)
{
    ncclResult_t e = TELL(call, ncclGroupStart, );
    for (int b = 0; b < P && e == ncclSuccess; b++) e = one_block(call, P, r, b);
    const ncclResult_t ended = TELL(call, ncclGroupEnd, );
    return e == ncclSuccess ? ended : e;
}

/* Elements that this member gives to no one in particular are counted as sent to the next member, as `gives` does. */
static ncclResult_t tell_and_count(struct call *call, int P, int r)
{
    call->passed_on = 0;
    const ncclResult_t e = nccl_tell(call, P, r);
    nccl_count(call, imod(r + 1, P), call->passed_on);
    return e;
}

/* Member r sends an empty message to r + 1 and waits for that of r - 1.  Nobody tells NCCL anything before. */
static enum error_code nccl_meet(struct exchange *exchange, const struct collective *collective, int P, int r,
                                 struct error *err)
{
    return exchange_both(exchange, imod(r + 1, P), collective->out, 0, imod(r - 1, P), collective->out, 0, err);
}

/* A member's block for itself is copied, since NCCL sends only the blocks for others. */
static void keep_block(const struct call *call, int P, int r)
{
    const enum operation op = call->x->operation;
    const struct collective *c = &call->c;
    const int64_t n = op == GATHER || op == SCATTER ? block_length(c, P, r) : 0;
    if (op == ALLTOALL) keep_own(call->x, c);
    if (op == GATHER && r == c->root) copy_elements(call->x, c, block(c, c->out, P, r), c->in, n);
    if (op == SCATTER && r == c->root) copy_elements(call->x, c, c->out, const_block(c, c->in, P, r), n);
}

/* Whether this member holds a sum at the end, which an average still has to divide. */
static bool has_a_sum(const struct call *call, int r)
{
    const enum operation op = call->x->operation;
    return op == ALLREDUCE || op == REDUCE_SCATTER || (op == REDUCE && r == call->c.root);
}

/* Run a collective on this member; all members of the group call this function.  The order is: communicator, copies,
 * token, NCCL, division of an average, copy back to the host. */
static enum error_code nccl_run(struct group *group, enum operation op, const struct collective *collective,
                                struct error *err)
{
    struct exchange x = exchange_begin(group, op);
    struct call k = { .x = &x, .c = *collective, .format = formats[collective->dtype],
                     .how = reductions[collective->reduction] };
    collective_extents(op, collective, group->rank, group->size, &k.in, &k.out);
    if (rehearsed(&k)) return (void)tell_and_count(&k, group->size, group->rank),
        nccl_meet(&x, collective, group->size, group->rank, err);
    /* A crew's devices are threads of one process, which NCCL cannot tell apart. */
    if (group->comm->post != NULL)
        return fail(err, ERR_USAGE, "%s nccl: needs a process for each device", operation_name(op));
    enum error_code code = comm_of(group, op, &k.comm, err);
    if (code != OK) return code;
    copy_to_gpu(&k, err);
    keep_block(&k, group->size, group->rank);
    code = nccl_meet(&x, collective, group->size, group->rank, err);
    if (code == OK) code = said(tell_and_count(&k, group->size, group->rank), op, err);
    if (code == OK) code = wait_for_nccl(&x, err);
    if (code != OK) comm_give_up(group->comm, err);         /* the others wait */
    if (has_a_sum(&k, group->rank)) reduce_finish(&x, collective->reduction, collective->dtype, k.c.out, k.out);
    if (k.host_out != NULL) device_copy(group->comm->device, k.host_out, k.c.out, bytes_of(collective, k.out));
    if (k.out_room != NULL) exchange_release(&x, k.out_room);
    if (k.in_room != NULL) exchange_release(&x, k.in_room);
    return OK;
}

/* ---- the table: they add themselves where they are linked -------------------------------------------------------- */

/* Say whether this backend can run NCCL.  NULL means that it can. */
static const char *needs_cuda(int P, const struct collective *collective)
{
    const char *backend = getenv("ORRERY_BACKEND");     /* device/device.h */
    (void)P, (void)collective;
    return backend != NULL && strncmp(backend, "cuda", 4) == 0 ? NULL : "--backend cuda";
}

#define OPERATIONS_OF_NCCL(X)                                                                                          \
    X(BROADCAST, ADDS_NOTHING) X(ALLREDUCE, BY_POSITION) X(REDUCE, BY_POSITION) X(REDUCE_SCATTER, BY_POSITION)         \
    X(ALLGATHER, ADDS_NOTHING) X(ALLTOALL, ADDS_NOTHING) X(GATHER, ADDS_NOTHING) X(SCATTER, ADDS_NOTHING)

#define X(op, order)                                                                                                   \
    static enum error_code run_##op(struct group *g, const struct collective *c, struct error *err)                    \
    { return nccl_run(g, op, c, err); }                                                                                \
    static struct collective_cost cost_##op(int r, int P, const struct collective *c) { return nccl_cost(op, r, P, c); }
OPERATIONS_OF_NCCL(X)
#undef X

#define X(op, order_)                                                                                                  \
    { .operation = op, .name = "nccl", .description = "NVIDIA's NCCL, from GPU to GPU",                                \
      .needs = "--backend cuda, a process for each device", .order = order_, .source = "NVIDIA, NCCL",       \
      .cost_formula = "", .refuses = needs_cuda, .run = run_##op, .cost = cost_##op },
static const struct algorithm all[] = { OPERATIONS_OF_NCCL(X) };
#undef X

/* These algorithms join the list before main, so that every device has them in the same order. */
__attribute__((constructor)) static void join_the_registry(void)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) (void)algorithm_add(&all[i], NULL);
}
