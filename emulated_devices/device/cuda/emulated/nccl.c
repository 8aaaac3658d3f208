/* nccl.c -- NCCL for cuda-emulated: collectives between processes through a shared file, checked call by call.
 *
 * collectives/nccl.c calls these functions as it calls NVIDIA's.  A call is noted at once and goes on in
 * cudaStreamQuery.  Arguments that NCCL would refuse give its error; ranks that disagree end the process with one
 * line (exit status 3).
 */
#define _DEFAULT_SOURCE
#include <nccl.h>
#include "emulated_devices/device/reduction.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The function of cuda/emulated/memory.cpp tells a judge which memory was written. */
void emulated_product_writes(void *C, size_t pitch, size_t width, size_t rows);

/* ---- what is shared ---------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 18, RANKS_MOST = 64, CALLS_MOST = 1024, INITIAL_WAIT = 60 };

enum function { ALL_REDUCE, BROADCAST_, REDUCE_, ALL_GATHER, REDUCE_SCATTER_, SEND, RECEIVE };
static const char *const function_name[] = { "ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather",
                                             "ncclReduceScatter", "ncclSend", "ncclRecv" };

/* A call as its rank made it.  peer: a root, or the other rank of a send or a receive. */
struct said { enum function function; size_t count; ncclDataType_t type; ncclRedOp_t how; int peer; };

/* A box leads from one rank to another; a piece is in it while sent > taken. */
struct box { atomic_ullong sent, taken; struct said said; char piece[PIECE]; };

/* A piece of a vector is there at a time, of each rank.  Ranks meet when as many have arrived as are waited for. */
struct common {
    atomic_ullong arrived;
    atomic_int calls[RANKS_MOST];       /* collectives that a rank has begun */
    struct place { char host[64]; int gpu; } place[RANKS_MOST];
    struct said said[2][RANKS_MOST];    /* its last one, and the one before */
    char piece[RANKS_MOST][PIECE];
    struct box box[];                   /* [ranks from][ranks to] */
};

struct emulated_nccl { int ranks, rank, calls; unsigned long long awaited; struct common *common; };

/* A rank arrives once for each meeting; `awaited` grows by all ranks, so a meeting ends when the sum reaches it. */
static void nccl_arrive(struct emulated_nccl *nccl)
{
    nccl->awaited += (unsigned long long)nccl->ranks;
    atomic_fetch_add(&nccl->common->arrived, 1);
}

static bool all_arrived(const struct emulated_nccl *nccl)
{
    return atomic_load(&nccl->common->arrived) >= nccl->awaited;
}

/* Each pair of ranks has a box in each direction. */
static struct box *box_of(const struct emulated_nccl *nccl, int from, int to)
{
    return &nccl->common->box[from * nccl->ranks + to];
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static const struct { const char *name; enum dtype t; } format[] = {
    [ncclUint8] = { "uint8", U8 }, [ncclInt32] = { "int32", I32 }, [ncclInt64] = { "int64", I64 },
    [ncclFloat16] = { "float16", F16 }, [ncclFloat32] = { "float32", F32 }, [ncclFloat64] = { "float64", F64 },
    [ncclBfloat16] = { "bfloat16", BF16 },
};
static const struct { const char *name; enum reduction how; } adding[] = {
    [ncclSum] = { "sum", SUM }, [ncclProd] = { "prod", PRODUCT }, [ncclMax] = { "max", MAX },
    [ncclMin] = { "min", MIN },
};

static size_t nccl_bytes_of(ncclDataType_t t) { return dtype_size(format[t].t); }

/* ---- complaints -------------------------------------------------------------------------------------------------- */

struct words { char text[120]; };

/* The call in words, for complaints: function, count, format, sum, and root or other rank. */
static struct words words_of(const struct said *said)
{
    struct words w;
    const bool adds = said->function == ALL_REDUCE || said->function == REDUCE_ || said->function == REDUCE_SCATTER_;
    int n = snprintf(w.text, sizeof w.text, "%s of %zu %s", function_name[said->function], said->count,
                     format[said->type].name);
    if (adds) n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %s", adding[said->how].name);
    if (said->peer >= 0)
        snprintf(w.text + n, sizeof w.text - (size_t)n, said->function == SEND ? " to %d" : said->function == RECEIVE ?
                 " from %d" : ", root %d", said->peer);
    return w;
}

/* An error that NCCL would not report ends the process. */
__attribute__((format(printf, 1, 2), noreturn)) static void complain(const char *how, ...)
{
    va_list a;
    va_start(a, how);
    fputs("emulated NCCL: ", stderr);
    vfprintf(stderr, how, a);
    fputc('\n', stderr);
    va_end(a);
    fflush(NULL);
    _exit(3);
}

/* Collectives have to be equal in all of these on all ranks. */
static bool same_call(const struct said *a, const struct said *b)
{
    return a->function == b->function && a->count == b->count && a->type == b->type && a->how == b->how &&
           a->peer == b->peer;
}

/* The first rank that differs from rank 0 speaks. */
static void compare_calls(const struct emulated_nccl *nccl)
{
    const struct said *all = nccl->common->said[nccl->calls % 2];
    for (int r = 1; r < nccl->ranks; r++) {
        if (same_call(&all[0], &all[r])) continue;
        if (nccl->rank != r) sleep(5);             /* it ends the job */
        complain("call %d of a communicator: rank 0 calls %s; rank %d calls %s", nccl->calls, words_of(&all[0]).text, r,
                 words_of(&all[r]).text);
    }
}

/* ---- what has been called: it goes on whenever somebody asks whether it is done ---------------------------------- */

struct call {
    struct emulated_nccl *c;
    struct said said;
    const char *in;
    char *out;
    size_t at;                          /* elements that are done */
    int group;                          /* sends and receives of a group go on together */
    int part;                           /* of blocks: which one */
    int phase;                          /* not begun, compared, then of a piece: shown, taken */
    bool done;
};
enum { NOT_BEGUN, MEETS, BETWEEN, SHOWN, TAKEN };
static struct call calls[CALLS_MOST];
static int first, last, groups, depth;
static struct timespec moved;           /* when something last went on */

/* A collective shows its arguments to the other ranks, and meets them. */
static void nccl_begin(struct call *call)
{
    struct emulated_nccl *c = call->c;
    const int now = ++c->calls;
    /* Two places are enough: a rank is at most one call ahead of the others. */
    c->common->said[now % 2][c->rank] = call->said;
    atomic_store(&c->common->calls[c->rank], now);
    nccl_arrive(c);
    call->phase = MEETS;
}

/* The vector that each rank gives to a part, and where it goes: a reduction or a broadcast. */
static bool adds(const struct call *call)
{
    return call->said.function != BROADCAST_ && call->said.function != ALL_GATHER;
}

/* The rank whose block a part is; -1: every rank wants the sum. */
static int root_of(const struct call *call)
{
    const enum function f = call->said.function;
    return f == ALL_REDUCE ? -1 : f == ALL_GATHER || f == REDUCE_SCATTER_ ? call->part : call->said.peer;
}

/* The block of this part in what the rank gives, and its place in what it wants. */
static const char *given(const struct call *call)
{
    return call->in + (call->said.function == REDUCE_SCATTER_
                       ? (size_t)call->part * call->said.count * nccl_bytes_of(call->said.type) : 0);
}

static char *nccl_wanted(const struct call *call)
{
    return call->out + (call->said.function == ALL_GATHER
                        ? (size_t)call->part * call->said.count * nccl_bytes_of(call->said.type) : 0);
}

/* A sum adds the pieces in the order of ranks; a broadcast takes the root's. */
static void nccl_take(const struct call *call, char *into, size_t n)
{
    const struct common *m = call->c->common;
    const size_t bytes = n * nccl_bytes_of(call->said.type);
    memcpy(into, m->piece[adds(call) ? 0 : root_of(call)], bytes);
    for (int r = 1; adds(call) && r < call->c->ranks; r++)
        reduction_apply(adding[call->said.how].how, format[call->said.type].t, into, m->piece[r], (int64_t)n);
    emulated_product_writes(into, 0, bytes, 1);
}

/* One piece: shown by those that give, taken by those that want it.  @return whether it is over. */
static bool piece_over(struct call *call, size_t n)
{
    struct emulated_nccl *c = call->c;
    const size_t from = call->at * nccl_bytes_of(call->said.type), bytes = n * nccl_bytes_of(call->said.type);
    const int root = root_of(call);
    if (call->phase == BETWEEN) {
        /* In a broadcast only the root shows its piece. */
        if (adds(call) || c->rank == root) memcpy(c->common->piece[c->rank], given(call) + from, bytes);
        nccl_arrive(c);
        call->phase = SHOWN;
    }
    /* Nobody takes a piece before all have shown theirs, nor shows the next before all have taken it. */
    if (!all_arrived(c)) return false;
    if (call->phase == SHOWN) {
        /* In a reduction to a root only the root takes the sum. */
        if (!adds(call) || root < 0 || c->rank == root) nccl_take(call, nccl_wanted(call) + from, n);
        nccl_arrive(c);
        call->phase = TAKEN;
    }
    return all_arrived(c);
}

/* A collective goes on until it would have to wait; cudaStreamQuery calls it again. */
static void go_on_together(struct call *call)
{
    const enum function f = call->said.function;
    const size_t each = PIECE / nccl_bytes_of(call->said.type);
    const int parts = f == ALL_GATHER || f == REDUCE_SCATTER_ ? call->c->ranks : 1;
    if (call->phase == NOT_BEGUN) nccl_begin(call);
    if (!all_arrived(call->c)) return;
    if (call->phase == MEETS) compare_calls(call->c), call->phase = BETWEEN;
    for (; call->part < parts; call->part++, call->at = 0)
        for (; call->at < call->said.count; call->at += each, call->phase = BETWEEN)
            if (!piece_over(call, call->said.count - call->at < each ? call->said.count - call->at : each)) return;
    call->done = true;
}

/* A message, piece by piece; an empty one is a piece, too. */
static void go_on_with_message(struct call *call)
{
    struct emulated_nccl *c = call->c;
    const bool sends = call->said.function == SEND;
    struct box *b = sends ? box_of(c, c->rank, call->said.peer) : box_of(c, call->said.peer, c->rank);
    const size_t each = PIECE / nccl_bytes_of(call->said.type), left = call->said.count - call->at, n = left < each
        ? left : each;
    const size_t from = call->at * nccl_bytes_of(call->said.type), bytes = n * nccl_bytes_of(call->said.type);
    /* A box holds one piece: it is full for the receiver, or empty for the sender. */
    const bool full = atomic_load(&b->sent) > atomic_load(&b->taken);
    if (full == sends) return;
    if (sends) {
        b->said = call->said;
        memcpy(b->piece, call->in + from, bytes);
        atomic_fetch_add(&b->sent, 1);
    } else {
        if (b->said.count != call->said.count || b->said.type != call->said.type)
            complain("rank %d calls %s; rank %d calls %s", call->said.peer, words_of(&b->said).text, c->rank,
                     words_of(&call->said).text);
        memcpy(call->out + from, b->piece, bytes);
        emulated_product_writes(call->out + from, 0, bytes, 1);
        atomic_fetch_add(&b->taken, 1);
    }
    call->at += n;
    call->done = call->at == call->said.count;
}

static bool is_message(const struct call *call) { return call->said.function >= SEND; }

/* An earlier message of the group that has the same way comes first. */
static bool waits_its_turn(int i)
{
    for (int j = first; j < i; j++)
        /* Messages of the same way are matched in order. */
        if (!calls[j].done && calls[j].c == calls[i].c && calls[j].said.function == calls[i].said.function &&
            calls[j].said.peer == calls[i].said.peer)
            return true;
    return false;
}

/* The oldest call goes on first, and with it the other messages of its group. */
static void go_on(void)
{
    for (int i = first; i < last; i++) {
        const bool message = is_message(&calls[i]);
        /* Collectives run one at a time; messages of one group go on together. */
        if (i > first && (!message || calls[i].group != calls[first].group)) break;
        if (calls[i].done || (message && waits_its_turn(i))) continue;
        const struct call before = calls[i];
        if (message) go_on_with_message(&calls[i]);
        else go_on_together(&calls[i]);
        if (calls[i].at != before.at || calls[i].phase != before.phase || calls[i].done)
            clock_gettime(CLOCK_MONOTONIC, &moved);
        if (!message) break;
    }
    while (first < last && calls[first].done) first++;
}

/* After ORRERY_WAIT_LIMIT seconds (120) without any progress, this rank says for whom it waits. */
static void see_who_waits(void)
{
    const char *limit = getenv("ORRERY_WAIT_LIMIT");
    const struct call *k = &calls[first];
    struct timespec now;
    int behind = -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((double)(now.tv_sec - moved.tv_sec) <= (limit != NULL ? atof(limit) : 120)) return;
    for (int r = 0; r < k->c->ranks && !is_message(k); r++)
        if (atomic_load(&k->c->common->calls[r]) < k->c->calls) behind = r;
    if (behind >= 0)
        complain("rank %d waits in %s, its collective number %d; rank %d has begun only %d", k->c->rank,
                 words_of(&k->said).text, k->c->calls, behind, atomic_load(&k->c->common->calls[behind]));
    complain("rank %d waits in %s; rank %d does not come", k->c->rank, words_of(&k->said).text, k->said.peer);
}

/* The stream is done when all calls are; until then each question lets the calls go on. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    go_on();
    if (first < last) return see_who_waits(), cudaErrorNotReady;
    first = last = 0;
    return cudaSuccess;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* NCCL would crash or copy nonsense with memory of the host, so it is refused here. */
static void must_be_the_devices(const struct call *call, const void *p, const char *which)
{
    struct cudaPointerAttributes a;
    if (call->said.count == 0 || p == NULL) return;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess || a.type != cudaMemoryTypeDevice)
        complain("rank %d: %s: the %s is not the device's memory", call->c->rank, words_of(&call->said).text, which);
}

/* The buffers lie apart or in place: then the short one is this rank's block of the long one. */
static void must_not_overlap(const struct call *call)
{
    const enum function f = call->said.function;
    const size_t bytes = call->said.count * nccl_bytes_of(call->said.type), all = bytes * (size_t)call->c->ranks;
    const size_t in = f == REDUCE_SCATTER_ ? all : bytes, out = f == ALL_GATHER ? all : bytes;
    const size_t own = (size_t)call->c->rank * bytes;
    if (call->in == NULL || call->out == NULL || call->in + in <= call->out || call->out + out <= call->in) return;
    if (call->in + (f == REDUCE_SCATTER_ ? own : 0) == call->out + (f == ALL_GATHER ? own : 0)) return;
    complain("rank %d: %s: the buffers overlap, and are not in place", call->c->rank, words_of(&call->said).text);
}

/* Note a call.  A call has the number of its group; outside a group each call has its own. */
static ncclResult_t nccl_enter(enum function function, const void *in, void *out, size_t count, ncclDataType_t t,
                               ncclRedOp_t how, int peer, ncclComm_t c)
{
    /* The list of calls is emptied when all have ended. */
    if (c == NULL || last == CALLS_MOST || peer >= c->ranks || count > SIZE_MAX / 8) return ncclInvalidArgument;
    const struct call k = { .c = c, .said = { function, count, t, how, peer }, .in = in, .out = out, .group = groups };
    must_be_the_devices(&k, in, "send buffer");
    must_be_the_devices(&k, out, "receive buffer");
    must_not_overlap(&k);
    if (first == last) clock_gettime(CLOCK_MONOTONIC, &moved);
    calls[last++] = k;
    if (depth == 0) groups++;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) return ncclInvalidUsage;
    if (--depth == 0) groups++;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                           cudaStream_t stream)
{
    (void)stream;
    return nccl_enter(ALL_REDUCE, in, out, count, t, how, -1, c);
}

/* A buffer that a rank neither reads nor writes may have any address there. */
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    (void)stream;
    return nccl_enter(BROADCAST_, c != NULL && c->rank == root ? in : NULL, out, count, t, ncclSum, root, c);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t t, ncclRedOp_t how, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    (void)stream;
    return nccl_enter(REDUCE_, in, c != NULL && c->rank == root ? out : NULL, count, t, how, root, c);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t t, ncclComm_t c, cudaStream_t stream)
{
    (void)stream;
    return nccl_enter(ALL_GATHER, in, out, count, t, ncclSum, -1, c);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                               cudaStream_t stream)
{
    (void)stream;
    return nccl_enter(REDUCE_SCATTER_, in, out, count, t, how, -1, c);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t t, int to, ncclComm_t c, cudaStream_t stream)
{
    (void)stream;
    return to < 0 ? ncclInvalidArgument : nccl_enter(SEND, in, NULL, count, t, ncclSum, to, c);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t t, int from, ncclComm_t c, cudaStream_t stream)
{
    (void)stream;
    return from < 0 ? ncclInvalidArgument : nccl_enter(RECEIVE, NULL, out, count, t, ncclSum, from, c);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclSuccess ? "no error" : r == ncclSystemError ? "unhandled system error" :
           r == ncclInvalidUsage ? "invalid usage" : "invalid argument";
}

/* The name is that of the shared file, unique by process, time and count. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/orrery-nccl-%ld-%lld-%ld-%d", (long)getpid(), (long long)now.tv_sec,
             now.tv_nsec, made++);
    return ncclSuccess;
}

static const struct timespec pause_between = { .tv_nsec = 1000000 };

/* Rank 0 makes the file; the others wait until it is whole. */
static int nccl_open_file(const char *name, int rank, size_t bytes)
{
    if (rank == 0) {
        const int f = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (f >= 0 && ftruncate(f, (off_t)bytes) == 0) return f;
        return -1;
    }
    for (int tries = 0; tries < 1000 * INITIAL_WAIT; tries++, nanosleep(&pause_between, NULL)) {
        const int f = shm_open(name, O_RDWR, 0);
        if (f >= 0 && lseek(f, 0, SEEK_END) == (off_t)bytes) return f;
        if (f >= 0) close(f);
    }
    return -1;
}

/* The host that NCCL_HOSTID names and the GPU say where a rank is. */
static void take_place(struct place *place)
{
    const char *named = getenv("NCCL_HOSTID");
    snprintf(place->host, sizeof place->host, "%s", named != NULL ? named : "");
    if (cudaGetDevice(&place->gpu) != cudaSuccess) place->gpu = 0;
}

/* Two ranks of one host may not share a GPU, as in NVIDIA's library. */
static bool gpu_is_taken_twice(const struct common *common, int ranks)
{
    for (int r = 1; r < ranks; r++)
        for (int s = 0; s < r; s++)
            if (common->place[r].gpu == common->place[s].gpu
                && strcmp(common->place[r].host, common->place[s].host) == 0) return true;
    return false;
}

/* All ranks of a communicator call this function.  It returns when all have mapped the file, so that the file needs
 * no name. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    const size_t bytes = sizeof(struct common) + (size_t)ranks * (size_t)ranks * sizeof(struct box);
    if (ranks < 1 || ranks > RANKS_MOST || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    const int f = nccl_open_file(id.internal, rank, bytes);          /* zeros, and room is taken where it is written */
    struct common *m = f >= 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0) : MAP_FAILED;
    struct emulated_nccl *c = malloc(sizeof *c);
    if (f >= 0) close(f);
    if (m == MAP_FAILED || c == NULL) return free(c), ncclSystemError;
    *c = (struct emulated_nccl){ .ranks = ranks, .rank = rank, .common = m };
    /* Every rank writes its place before it meets the others, who then compare all. */
    take_place(&m->place[rank]);
    nccl_arrive(c);
    while (!all_arrived(c)) nanosleep(&pause_between, NULL);
    if (rank == 0) shm_unlink(id.internal);
    if (gpu_is_taken_twice(m, ranks)) return munmap(m, bytes), free(c), ncclInvalidUsage;
    *comm = c;
    return ncclSuccess;
}
