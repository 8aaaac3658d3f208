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

static const char *missing_function(void)
{
#define X(name)                                                                                                        \
    *(void **)&nccl.name = dlsym(nccl.object, #name);                                                                  \
    if (nccl.name == NULL) return #name;
    FUNCTIONS(X)
#undef X
    return NULL;
}

static enum error_code load(enum operation op, struct error *err)
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

/* Member 0's name of the communicator, to all. */
static enum error_code share_name(struct group *g, ncclUniqueId *name, struct error *err)
{
    struct exchange x = exchange_begin(g, CONTROL);
    enum error_code code = OK;
    for (int r = 1; r < g->size && code == OK; r++) {
        if (g->rank == 0) code = message_wait(g->comm, message_send(&x, r, name, sizeof *name), err);
        if (g->rank == r) code = message_wait(g->comm, message_receive(&x, 0, name, sizeof *name), err);
    }
    return code;
}

/* Unless the user says which hosts there are. */
static void be_a_host(const struct comm *comm)
{
    char name[32];
    snprintf(name, sizeof name, "orrery-%d", comm->rank);
    setenv("NCCL_HOSTID", name, 0);
}

static enum error_code make(struct group *g, enum operation op, ncclComm_t *comm, struct error *err)
{
    const size_t bytes = sizeof *g->member * (size_t)g->size;
    int *member = malloc(bytes);
    ncclUniqueId name;
    enum error_code code = load(op, err);
    memset(&name, 0, sizeof name);
    if (code == OK && (makes == MADE_MOST || member == NULL))
        code = fail(err, ERR_MEMORY, "%s nccl: no room for more than %d groups", operation_name(op), makes);
    if (code == OK && g->rank == 0) code = said(nccl.ncclGetUniqueId(&name), op, err);
    code = group_agree(g, code, err);
    if (code == OK) code = share_name(g, &name, err);
    if (gpu_is_shared()) be_a_host(g->comm);
    if (code == OK) code = said(nccl.ncclCommInitRank(comm, g->size, name, g->rank), op, err);
    code = group_agree(g, code, err);
    if (code != OK) return free(member), code;
    memcpy(member, g->member, bytes);
    made[makes].size = g->size, made[makes].member = member, made[makes].comm = *comm;
    makes++;
    return OK;
}

static enum error_code comm_of(struct group *g, enum operation op, ncclComm_t *comm, struct error *err)
{
    for (int i = 0; i < makes; i++)
        if (made[i].size == g->size && memcmp(made[i].member, g->member, sizeof *g->member * (size_t)g->size) == 0)
            return *comm = made[i].comm, OK;
    return make(g, op, comm, err);
}

/* ---- the cost ---------------------------------------------------------------------------------------------------- */

/* Elements that member r gives to member d, by the arguments of the call. */
static int64_t gives(enum operation op, const struct collective *c, int r, int P, int d)
{
    const bool next = d == imod(r + 1, P);
    switch (op) {
    case ALLTOALL: return d != r ? given_to(c, d) : 0;
    case GATHER: return d == c->root && d != r ? block_length(c, P, r) : 0;
    case SCATTER: return r == c->root && d != r ? block_length(c, P, d) : 0;
    case REDUCE: return d == c->root && d != r ? c->count : 0;
    case BROADCAST: return next && r == c->root ? c->count : 0;
    case ALLREDUCE: return next ? c->count : 0;
    case REDUCE_SCATTER: return next ? block_total(c, P) - block_length(c, P, r) : 0;
    case ALLGATHER: return next ? block_length(c, P, r) : 0;
    default: return 0;
    }
}

static struct collective_cost cost(enum operation op, int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .messages = 1, .steps = 1 };        /* the token */
    for (int d = 0; d < P; d++)
        if (gives(op, c, r, P, d) > 0) cost_send(&cost, c, gives(op, c, r, P, d));
    return cost;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

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
static bool rehearsed(const struct call *k) { return k->x->group->comm->rehearsal != NULL; }
#define TELL(k, function, ...) (rehearsed(k) ? ncclSuccess : nccl.function(__VA_ARGS__))

static void count(const struct call *k, int to, size_t elements)
{
    struct group *g = k->x->group;
    const uint64_t bytes = bytes_of(&k->c, (int64_t)elements);
    if (bytes == 0) return;
    if (rehearsed(k)) traffic_send(g->comm->rehearsal, group_level(g, to), bytes, 1);
    else ledger_messages(&g->comm->counted, g, k->x->operation, to, bytes, 1);
}

static void *copy_of(struct call *k, const void *from, int64_t elements, struct error *err)
{
    void *room = exchange_scratch(k->x, bytes_of(&k->c, elements) + 1);
    if (room == NULL)                           /* the others wait already */
        (void)fail(err, ERR_MEMORY, "%s nccl: no memory for a copy on the GPU", operation_name(k->x->operation)),
        comm_give_up(k->x->group->comm, err);
    device_copy(k->x->group->comm->device, room, from, bytes_of(&k->c, elements));
    return room;
}

/* Both on the GPU.  A member sends and receives at once, so an all-to-all in place sends what was there before. */
static void copy_to_gpu(struct call *k, struct error *err)
{
    const enum operation op = k->x->operation;
    const bool works_in_out = op == ALLREDUCE || op == BROADCAST, in_place = k->c.in == k->c.out;
    if (k->in > 0 && !works_in_out && ((in_place && op == ALLTOALL) || !on_gpu(k->c.in)))
        k->c.in = k->in_room = copy_of(k, k->c.in, k->in, err);
    if (k->out > 0 && !on_gpu(k->c.out)) {
        k->host_out = k->c.out;
        k->c.out = k->out_room = copy_of(k, k->c.out, k->out, err);
    }
}

/* Until NCCL is done, MPI has to go on, too: the token of a member that has none yet may wait here to be sent.  MPI
 * goes on while somebody waits for a message, such as one to oneself. */
static enum error_code wait_for_nccl(const struct exchange *x, struct error *err)
{
    const char *said_limit = getenv("ORRERY_WAIT_LIMIT");
    const double usual = said_limit != NULL ? atof(said_limit) : WAIT_LIMIT, limit = 10 * usual;
    const time_t began = time(NULL);
    enum error_code code = OK;
    while (code == OK && cudaStreamQuery(NULL) == cudaErrorNotReady) {
        struct exchange self = exchange_named(x->group, CONTROL, 0);
        code = exchange_both(&self, x->group->rank, NULL, 0, x->group->rank, NULL, 0, err);
        if (difftime(time(NULL), began) > limit)
            return fail(err, ERR_COMM, "%s nccl: device %d has waited %g seconds for NCCL: another member does not "
                                       "come", operation_name(x->operation), x->group->comm->rank, limit);
    }
    return code;
}

static ncclResult_t all_blocks(struct call *, int P, int r);

/* Blocks of one vector, by members: whether one call does for all of them. */
static bool equal_blocks(const struct collective *c, int P) { return P * block_longest(c, P) == block_total(c, P); }

static ncclResult_t tell_allreduce(struct call *k, size_t n)
{
    k->passed_on += n;
    return TELL(k, ncclAllReduce, k->c.out, k->c.out, n, k->format, k->how, k->comm, NULL);
}

static ncclResult_t tell_broadcast(struct call *k, int r, const void *from, void *into, size_t n, int root)
{
    if (r == root) k->passed_on += n;
    return TELL(k, ncclBroadcast, from, into, n, k->format, root, k->comm, NULL);
}

static ncclResult_t tell_reduce(struct call *k, int r, const void *from, size_t n, int root)
{
    if (r != root && k->x->operation == REDUCE) count(k, root, n);
    if (r != root && k->x->operation != REDUCE) k->passed_on += n;
    return TELL(k, ncclReduce, from, k->c.out, n, k->format, k->how, root, k->comm, NULL);
}

static ncclResult_t tell_reduce_scatter(struct call *k, int P, size_t n)
{
    k->passed_on += (size_t)(P - 1) * n;
    return TELL(k, ncclReduceScatter, k->c.in, k->c.out, n, k->format, k->how, k->comm, NULL);
}

static ncclResult_t tell_allgather(struct call *k, size_t n)
{
    k->passed_on += n;
    return TELL(k, ncclAllGather, k->c.in, k->c.out, n, k->format, k->comm, NULL);
}

static ncclResult_t send(struct call *k, const void *from, int64_t n, int to)
{
    count(k, to, (size_t)n);
    return TELL(k, ncclSend, from, (size_t)n, k->format, to, k->comm, NULL);
}

static ncclResult_t receive(struct call *k, void *into, int64_t n, int from)
{
    return TELL(k, ncclRecv, into, (size_t)n, k->format, from, k->comm, NULL);
}

static ncclResult_t tell(struct call *k, int P, int r)
{
    const size_t n = (size_t)k->c.count;
    switch (k->x->operation) {
    case ALLREDUCE: return tell_allreduce(k, n);
    case BROADCAST: return tell_broadcast(k, r, k->c.out, k->c.out, n, k->c.root);
    case REDUCE: return tell_reduce(k, r, k->c.in, n, k->c.root);
    case REDUCE_SCATTER:
        if (equal_blocks(&k->c, P)) return tell_reduce_scatter(k, P, (size_t)k->out);
        break;
    case ALLGATHER:
        if (equal_blocks(&k->c, P)) return tell_allgather(k, (size_t)k->in);
        break;
    default: break;
    }
    return all_blocks(k, P, r);
}

/* What belongs to member b, in the order in which every member says it. */
static ncclResult_t one_block(struct call *k, int P, int r, int b)
{
    const struct collective *c = &k->c;
    const enum operation op = k->x->operation;
    const size_t n = op != ALLTOALL ? (size_t)block_length(c, P, b) : 0;
    ncclResult_t e = ncclSuccess;
    if (op == REDUCE_SCATTER) return tell_reduce(k, r, const_block(c, c->in, P, b), n, b);
    if (op == ALLGATHER) return tell_broadcast(k, r, c->in, block(c, c->out, P, b), n, b);
    if (b == r) return ncclSuccess;                     /* its own is copied */
    if (op == ALLTOALL) e = send(k, algorithm_given(c, b), given_to(c, b), b);
    if (op == ALLTOALL && e == ncclSuccess) e = receive(k, algorithm_taken(c, b), taken_from(c, b), b);
    if (op == GATHER && r == c->root) e = receive(k, block(c, c->out, P, b), block_length(c, P, b), b);
    if (op == GATHER && b == c->root) e = send(k, c->in, block_length(c, P, r), b);
    if (op == SCATTER && r == c->root) e = send(k, const_block(c, c->in, P, b), block_length(c, P, b), b);
    if (op == SCATTER && b == c->root) e = receive(k, c->out, block_length(c, P, r), b);
    return e;
}

static ncclResult_t all_blocks(struct call *k, int P, int r)
{
    ncclResult_t e = TELL(k, ncclGroupStart, );
    for (int b = 0; b < P && e == ncclSuccess; b++) e = one_block(k, P, r, b);
    const ncclResult_t ended = TELL(k, ncclGroupEnd, );
    return e == ncclSuccess ? ended : e;
}

static ncclResult_t tell_and_count(struct call *k, int P, int r)
{
    k->passed_on = 0;
    const ncclResult_t e = tell(k, P, r);
    count(k, imod(r + 1, P), k->passed_on);
    return e;
}

/* Nobody tells NCCL anything before all are there. */
static enum error_code meet(struct exchange *x, const struct collective *c, int P, int r, struct error *err)
{
    return exchange_both(x, imod(r + 1, P), c->out, 0, imod(r - 1, P), c->out, 0, err);
}

/* The block that a member keeps, where others are sent. */
static void keep_block(const struct call *k, int P, int r)
{
    const enum operation op = k->x->operation;
    const struct collective *c = &k->c;
    const int64_t n = op == GATHER || op == SCATTER ? block_length(c, P, r) : 0;
    if (op == ALLTOALL) keep_own(k->x, c);
    if (op == GATHER && r == c->root) copy_elements(k->x, c, block(c, c->out, P, r), c->in, n);
    if (op == SCATTER && r == c->root) copy_elements(k->x, c, c->out, const_block(c, c->in, P, r), n);
}

static bool has_a_sum(const struct call *k, int r)
{
    const enum operation op = k->x->operation;
    return op == ALLREDUCE || op == REDUCE_SCATTER || (op == REDUCE && r == k->c.root);
}

static enum error_code run(struct group *g, enum operation op, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, op);
    struct call k = { .x = &x, .c = *c, .format = formats[c->dtype], .how = reductions[c->reduction] };
    collective_extents(op, c, g->rank, g->size, &k.in, &k.out);
    if (rehearsed(&k)) return (void)tell_and_count(&k, g->size, g->rank), meet(&x, c, g->size, g->rank, err);
    if (g->comm->post != NULL)
        return fail(err, ERR_USAGE, "%s nccl: needs a process for each device", operation_name(op));
    enum error_code code = comm_of(g, op, &k.comm, err);
    if (code != OK) return code;
    copy_to_gpu(&k, err);
    keep_block(&k, g->size, g->rank);
    code = meet(&x, c, g->size, g->rank, err);
    if (code == OK) code = said(tell_and_count(&k, g->size, g->rank), op, err);
    if (code == OK) code = wait_for_nccl(&x, err);
    if (code != OK) comm_give_up(g->comm, err);         /* the others wait */
    if (has_a_sum(&k, g->rank)) reduce_finish(&x, c->reduction, c->dtype, k.c.out, k.out);
    if (k.host_out != NULL) device_copy(g->comm->device, k.host_out, k.c.out, bytes_of(c, k.out));
    if (k.out_room != NULL) exchange_release(&x, k.out_room);
    if (k.in_room != NULL) exchange_release(&x, k.in_room);
    return OK;
}

/* ---- the table: they add themselves where they are linked -------------------------------------------------------- */

static const char *needs_cuda(int P, const struct collective *c)
{
    const char *backend = getenv("ORRERY_BACKEND");     /* device/device.h */
    (void)P, (void)c;
    return backend != NULL && strncmp(backend, "cuda", 4) == 0 ? NULL : "--backend cuda";
}

#define OPERATIONS_OF_NCCL(X)                                                                                          \
    X(BROADCAST, ADDS_NOTHING) X(ALLREDUCE, BY_POSITION) X(REDUCE, BY_POSITION) X(REDUCE_SCATTER, BY_POSITION)         \
    X(ALLGATHER, ADDS_NOTHING) X(ALLTOALL, ADDS_NOTHING) X(GATHER, ADDS_NOTHING) X(SCATTER, ADDS_NOTHING)

#define X(op, order)                                                                                                   \
    static enum error_code run_##op(struct group *g, const struct collective *c, struct error *err)                    \
    { return run(g, op, c, err); }                                                                                     \
    static struct collective_cost cost_##op(int r, int P, const struct collective *c) { return cost(op, r, P, c); }
OPERATIONS_OF_NCCL(X)
#undef X

#define X(op, order_)                                                                                                  \
    { .operation = op, .name = "nccl", .description = "NVIDIA's NCCL, from GPU to GPU",                                \
      .needs = "--backend cuda, a process for each device", .order = order_, .source = "NVIDIA, NCCL",       \
      .cost_formula = "", .refuses = needs_cuda, .run = run_##op, .cost = cost_##op },
static const struct algorithm all[] = { OPERATIONS_OF_NCCL(X) };
#undef X

__attribute__((constructor)) static void join_the_registry(void)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) (void)algorithm_add(&all[i], NULL);
}
