/* collective.c -- the laws of a collective algorithm, judged on crews of 2 to 8 devices in one process.
 *
 * kinds.c lists law_kind_collective.  Every buffer has guards, every call has numbers whose result is exact, and the
 * clock counts rounds: on its cluster only the use of a port takes time, and always the same.  Errors are ERR_MEMORY.
 */
#include "emulated_devices/verify/plugins/collective_laws.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/verify/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct law collective_laws[] = {
    [VALUES] = { "values", "each element is the exact sum, or the element that was sent" },
    [REDUCTIONS] = { "reductions", "also for max, min, product and average" },
    [FORMATS] = { "formats", "also in fp64, bf16, fp16 and integers" },
    [BLOCKS] = { "blocks", "also with blocks of unequal lengths, and with empty ones" },
    [SIZES] = { "sizes", "also for long vectors, up to 2^24 elements" },
    [NANS] = { "nans", "a NaN of one member is in the result, and in no other element" },
    [GUARDS] = { "guards", "nothing is written outside `out`" },
    [KEPT_INPUT] = { "input", "`in` does not change where it is not `out`" },
    [REPEATS] = { "repeats", "80 calls of several kinds, one after another, give what the first gave" },
    [ALIKE] = { "alike", "all members of an all-reduce get the same bits" },
    [ROUNDING] = { "rounding", "a sum that rounds is within (P-1) u sum |x|" },
    [ORDER] = { "order", "numbers are added in the order that .order states" },
    [COSTS] = { "costs", "messages, bytes and additions are those that .cost states" },
    [STEPS] = { "steps", "the rounds of the longest path are those that .cost states" },
    [SCRATCH] = { "scratch", "scratch is given back, and is at most what .vectors states" },
    [ACCEPTS] = { "accepts", "a call that .refuses does not refuse is carried out, and its answer is always the same" },
    [TURNS] = { "turns", "where .turns says that members do the same, their costs are equal" },
    { NULL, NULL }
};

enum { PAD = 64, ROUNDS = 16, SMALL = 20011, CUT = 1 << 15 };
static const unsigned char PAD_BYTE = 0x5a, POISON_BYTE = 0xff;        /* bytes of 0xff are NaN in every format */

/* Only a message's use of a port takes time, and always the same. */
#define ONE_ROUND .gap = 1000000, .eager = ALWAYS_EAGER
static const struct cluster one_port = { .name = "one port", .levels = 1, .link = { { ONE_ROUND } } };
static const struct cluster in_nodes = { .name = "nodes", .levels = 2,
                                         .link = { { .devices = 2, ONE_ROUND }, { .reduces = true, ONE_ROUND } } };
/* Switches of this one add what all members send. */
static const struct cluster adding = { .name = "switch", .levels = 1, .link = { { .reduces = true, ONE_ROUND } } };

bool guarded_make(struct guarded *buffer, size_t bytes)
{
    *buffer = (struct guarded){ .memory = malloc(bytes + 2 * PAD), .bytes = bytes };
    if (buffer->memory == NULL) return false;
    buffer->data = buffer->memory + PAD;
    memset(buffer->memory, PAD_BYTE, bytes + 2 * PAD);
    memset(buffer->data, POISON_BYTE, bytes);
    return true;
}

static bool guarded_holds(struct guarded buffer)
{
    for (size_t i = 0; i < PAD; i++)
        if (buffer.memory[i] != PAD_BYTE || buffer.data[buffer.bytes + i] != PAD_BYTE) return false;
    return true;
}

struct call_text call_describe(const struct law_call *call, const char *name, bool in_place)
{
    struct call_text t;
    snprintf(t.text, sizeof t.text, "%s %s of %lld %s%s%s%s%s on %d devices, root %d%s",
             operation_name(call->operation), name, (long long)call->args.count, dtype_name(call->args.dtype),
             call->args.reduction ? ", " : "",
             call->args.reduction ? reduction_name(call->args.reduction) : "",
             call->args.counts ? ", unequal blocks" : "", call->args.exclusive ? ", exclusive" : "", call->P,
             call->args.root, in_place ? ", in place" : "");
    return t;
}

/* The law that a wrong element breaks: of a call's properties the rarest. */
static int law_of_values(const struct law_call *call)
{
    if (call->args.count > SMALL) return SIZES;
    if (call->args.counts) return BLOCKS;
    if (call->args.dtype != F32) return FORMATS;
    return call->args.reduction != SUM ? REDUCTIONS : VALUES;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* Fill in the input; one number lasts for a period of a long vector, so it is computed once. */
static void fill_input(const struct law_call *call, void *in)
{
    const int64_t n = call_in_length(call);
    if (call->operation == ALLTOALL) {
        for (int64_t i = 0; i < n; i++) call_put(call->args.dtype, in, i, call_input(call, i));
        return;
    }
    const size_t period = 61 * 35 * dtype_size(call->args.dtype), bytes = (size_t)n * dtype_size(call->args.dtype);
    for (int64_t i = 0; i < n && i < 61 * 35; i++) call_put(call->args.dtype, in, i, call_input(call, i));
    for (size_t at = period; at < bytes; at += period)
        memcpy((char *)in + at, in, bytes - at < period ? bytes - at : period);
}

/* Hold the output to the exact one, by == of numbers. */
static void judge_values(struct book *book, const struct law_call *call, const char *what, const void *out,
                         const void *want)
{
    const int64_t n = call_out_length(call);
    const size_t bytes = (size_t)n * dtype_size(call->args.dtype);
    int64_t at = -1;
    if (memcmp(out, want, bytes) != 0)
        for (int64_t i = 0; i < n && at < 0; i++)
            if (!(call_get(call->args.dtype, out, i) == call_get(call->args.dtype, want, i))) at = i;
    law_judge(book, law_of_values(call), at < 0, "%s: member %d has %.9g at %lld; it must be %.9g", what, call->rank,
              at < 0 ? 0 : call_get(call->args.dtype, out, at), (long long)at,
              at < 0 ? 0 : call_get(call->args.dtype, want, at));
}

/* In place: what `out` covers of `in` may change. */
static void judge_input(struct book *book, const struct law_call *call, const char *what, const unsigned char *before)
{
    const size_t each = dtype_size(call->args.dtype), n = (size_t)call_in_length(call) * each;
    const unsigned char *const in = call->args.in, *const out = call->args.out;
    const unsigned char *const end = out + (size_t)call_out_length(call) * each;
    size_t at = n;
    for (size_t i = 0; i < n && at == n; i++)
        if (in[i] != before[i] && !(in + i >= out && in + i < end)) at = i;
    law_judge(book, KEPT_INPUT, at == n, "%s: member %d changed element %zu of its input", what, call->rank, at / each);
}

static void judge_costs(const struct law_member *m, const struct law_call *call, const char *what,
                        const struct traffic *before)
{
    const struct algorithm *const a = m->crew->algorithm;
    const struct traffic *const now = &m->group->comm->counted.of[m->group->kind].of[a->operation],
                         *const expected = &m->group->comm->expected.of[m->group->kind].of[a->operation];
    const struct collective_cost want = collective_cost(a, call->rank, call->P, &call->args);
    const uint64_t messages = now->messages_sent - before->messages_sent, bytes = now->bytes_sent - before->bytes_sent,
                   additions = now->additions - before->additions;
    law_judge(m->crew->book, COSTS,
              messages == want.messages && bytes == want.bytes && additions == want.additions,
              "%s: member %d counted %llu messages, %llu bytes, %llu additions; .cost says %llu, %llu, %llu", what,
              call->rank, (unsigned long long)messages, (unsigned long long)bytes, (unsigned long long)additions,
              (unsigned long long)want.messages, (unsigned long long)want.bytes, (unsigned long long)want.additions);
    for (int level = 0; level < CLUSTER_LEVELS; level++)
        law_judge(m->crew->book, COSTS, traffic_equal(now, expected, level),
                  "%s: member %d sent other messages over level %d than its rehearsal", what, call->rank, level);
    law_judge(m->crew->book, ORDER, additions == 0 || a->order != ADDS_NOTHING,
              "%s: member %d counted %llu additions; .order says that it adds nothing", what, call->rank,
              (unsigned long long)additions);
}

/* An all-to-all in place may save its input; lists of messages are small. */
static void judge_scratch(const struct law_member *m, const struct law_call *call, const char *what, uint64_t held,
                          bool in_place)
{
    const struct algorithm *const a = m->crew->algorithm;
    const struct arena *const arena = &m->device->arena;
    const size_t each = dtype_size(call->args.dtype);
    int64_t longest = call->args.count;
    for (int r = 0; r < call->P; r++) {
        struct law_call other = *call;
        other.rank = r;
        if (call_in_length(&other) > longest) longest = call_in_length(&other);
        if (call_out_length(&other) > longest) longest = call_out_length(&other);
    }
    const uint64_t peak = arena->peak.total - held, lists = 4096 * (uint64_t)call->P,
                   vectors = a->vectors == A_VECTOR_EACH ? (uint64_t)call->P : a->vectors ? (uint64_t)a->vectors : 1,
                   most = (vectors + (in_place && call->operation == ALLTOALL)) * each * (uint64_t)longest;
    law_judge(m->crew->book, SCRATCH, arena->now.total == held, "%s: member %d kept %llu bytes of scratch", what,
              call->rank, (unsigned long long)(arena->now.total - held));
    law_judge(m->crew->book, SCRATCH, peak <= most + lists,
              "%s: member %d took %llu bytes of scratch; .vectors says at most %llu", what, call->rank,
              (unsigned long long)peak, (unsigned long long)most);
}

/* The rounds of all members are in the crew when its last member comes here. */
static void judge_steps(const struct law_member *m, const struct law_call *call, const char *what)
{
    const struct algorithm *const a = m->crew->algorithm;
    const struct collective *const c = &call->args;
    int64_t most = 0;
    uint64_t want = 0;
    for (int r = 0; r < call->P; r++) {
        const uint64_t steps = collective_cost(a, r, call->P, c).steps;
        want = steps > want ? steps : want;
        most = m->crew->saw[r].rounds > most ? m->crew->saw[r].rounds : most;
    }
    const bool regular = !a->by_nodes && (call->P & (call->P - 1)) == 0 && c->count % call->P == 0 && c->count > 0
        && c->counts == NULL;
    if (want == 0) {
        law_leave_out(m->crew->book, STEPS);
        return;
    }
    law_judge(m->crew->book, STEPS, regular ? (uint64_t)most == want : (uint64_t)most <= want,
              "%s: the longest path has %lld rounds; .cost says %llu steps", what, (long long)most,
              (unsigned long long)want);
}

static void judge_turns(const struct law_member *m, const struct law_call *call, const char *what)
{
    const struct algorithm *const a = m->crew->algorithm;
    if (a->turns == NULL || !a->turns(call->P, &call->args)) return;
    const struct collective_cost zero = collective_cost(a, 0, call->P, &call->args),
                                 own = collective_cost(a, call->rank, call->P, &call->args);
    law_judge(m->crew->book, TURNS,
              zero.messages == own.messages && zero.bytes == own.bytes && zero.additions == own.additions,
              "%s: members 0 and %d have other costs, but .turns says that they do the same", what, call->rank);
}

/* Where in and out lie: apart, or the smaller as this member's block of the larger. */
static void lay_out(struct law_call *call, struct guarded in, struct guarded out, bool in_place)
{
    const int64_t ni = call_in_length(call), no = call_out_length(call);
    const size_t each = dtype_size(call->args.dtype);
    const size_t place = in_place && call_has_blocks(call->operation)
        ? each * (size_t)call_block_start(call, call->rank) : 0;
    call->args.in = in.data, call->args.out = out.data;
    if (in_place && no >= ni && (no > 0 || ni == 0)) call->args.in = out.data + place;
    else if (in_place && ni > no && no > 0) call->args.out = in.data + place;
}

/* Judge all that one call shows.  @param[out] bits  of the output; may be NULL. */
static enum error_code run_one(const struct law_member *m, struct law_call call, bool in_place, uint64_t *bits,
                               struct error *err)
{
    const struct algorithm *const a = m->crew->algorithm;
    struct book *const book = m->crew->book;
    const size_t each = dtype_size(call.args.dtype);
    const size_t ni = each * (size_t)call_in_length(&call), no = each * (size_t)call_out_length(&call);
    struct guarded in, out, before = { 0 }, want = { 0 };
    call.args.nodes = group_nodes(m->group), call.args.segment = CUT;
    if (!guarded_make(&in, ni) || !guarded_make(&out, no) || !guarded_make(&before, ni) || !guarded_make(&want, no))
        return fail(err, ERR_MEMORY, "no memory for a call of %lld", (long long)call.args.count);
    lay_out(&call, in, out, in_place);
    fill_input(&call, (void *)(uintptr_t)call.args.in);
    fill_input(&call, before.data);
    call_write_output(&call, want.data);
    const struct call_text what = call_describe(&call, a->name, in_place);
    law_now(book, "%s", what.text);

    const struct traffic counted = m->group->comm->counted.of[m->group->kind].of[a->operation];
    const uint64_t held = m->device->arena.now.total;
    arena_reset_peak(&m->device->arena);
    clock_reset(&m->device->clock);
    const enum error_code e = collective_run(m->group, a->operation, a->name, &call.args, err);
    m->crew->saw[call.rank].rounds = m->device->clock.now / one_port.link[0].gap;
    law_judge(book, ACCEPTS, e == OK, "%s: member %d fails: %.200s", what.text, call.rank, e ? err->text : "");
    law_judge(book, GUARDS, guarded_holds(in) && guarded_holds(out), "%s: member %d wrote outside its buffers",
              what.text, call.rank);
    judge_input(book, &call, what.text, before.data);
    if (e == OK) {
        judge_values(book, &call, what.text, call.args.out, want.data);
        judge_costs(m, &call, what.text, &counted);
        judge_scratch(m, &call, what.text, held, in_place);
        judge_turns(m, &call, what.text);
    }
    if (bits) *bits = hash_bytes(HASH_START, call.args.out, no);
    free(in.memory), free(out.memory), free(before.memory), free(want.memory);
    m->crew->calls += call.rank == 0;
    comm_barrier(m->group->comm);                       /* all members have told their rounds */
    if (!in_place && call.rank == 0) judge_steps(m, &call, what.text);
    comm_barrier(m->group->comm);                       /* and may tell those of the next call */
    return OK;
}

bool member_accepts(const struct law_member *m, struct law_call *call)
{
    const struct algorithm *const a = m->crew->algorithm;
    call->args.nodes = group_nodes(m->group), call->args.segment = CUT;
    law_now(m->crew->book, "whether it refuses %s", call_describe(call, a->name, false).text);
    const char *const first = algorithm_refuses(a, call->P, &call->args);
    const bool empty = first != NULL && first[0] == '\0';
    const char *const second = algorithm_refuses(a, call->P, &call->args);
    law_judge(m->crew->book, ACCEPTS, !first == !second && !empty, "%s: .refuses %s",
              call_describe(call, a->name, false).text, empty ? "gives an empty text"
              : "answers differently the second time");
    return first == NULL;
}

static enum error_code run_both(const struct law_member *m, struct law_call call, struct error *err)
{
    if (!member_accepts(m, &call)) return OK;
    const enum error_code e = run_one(m, call, false, NULL, err);
    const bool apart = call.operation == ALLTOALL && call.args.counts;      /* blocks differ both ways */
    return e || apart ? e : run_one(m, call, true, NULL, err);
}

struct law_call member_call(const struct law_member *m, int64_t count, enum dtype dtype, enum reduction how)
{
    return (struct law_call){ m->crew->algorithm->operation, m->group->size, m->group->rank,
                              { .count = count, .dtype = dtype, .reduction = how } };
}

/* ---- the calls of a crew ----------------------------------------------------------------------------------------- */

/* Calls of several kinds in turns.  What a kind gave first, with right values or not, it must give again. */
static enum error_code run_repeats(const struct law_member *m, struct error *err)
{
    static const int64_t counts[] = { 257, 13, 1, 64, 1000 };
    enum { KINDS = sizeof counts / sizeof *counts };
    uint64_t first[KINDS] = { 0 }, now;
    const bool reduces = call_reduces(m->crew->algorithm->operation);
    enum error_code e = OK;
    for (int round = 0; round < ROUNDS && !e; round++)
        for (int k = 0; k < KINDS && !e; k++) {
            struct law_call call = member_call(m, counts[k], k == 3 ? F64 : F32, k == 2 && reduces ? MAX : SUM);
            if (!member_accepts(m, &call)) continue;
            e = run_one(m, call, (round + k) % 3 == 2, &now, err);
            if (round == 0) first[k] = now;
            law_judge(m->crew->book, REPEATS, now == first[k],
                      "%s: member %d got other numbers in round %d than in the first",
                      call_describe(&call, m->crew->algorithm->name, (round + k) % 3 == 2).text, call.rank, round + 1);
        }
    return e;
}

static enum error_code run_counts(const struct law_member *m, struct error *err)
{
    const int P = m->group->size;
    const int64_t counts[] = { 0, 1, P - 1, P, P + 1, 13, 8 * P, 257, SMALL };
    enum error_code e = OK;
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts) && !e; i++) {
        struct law_call call = member_call(m, counts[i], F32, SUM);
        call.args.root = call_has_root(call.operation) ? i % P : 0;
        e = run_both(m, call, err);
    }
    if (!e && m->crew->algorithm->operation == SCAN)
        for (int64_t n = 1; n < 9 && !e; n += 4) {
            struct law_call call = member_call(m, n, F32, SUM);
            call.args.exclusive = true;
            e = run_both(m, call, err);
        }
    return e;
}

/* Blocks of every length, empty ones, and all with one member. */
static enum error_code run_blocks(const struct law_member *m, struct error *err)
{
    int64_t counts[MOST_P], back[MOST_P];
    const int P = m->group->size;
    enum error_code e = OK;
    for (int kind = 0; kind < 4 && !e; kind++) {
        struct law_call call = member_call(m, (int64_t[]){ 9, 1, 8, 2000 }[kind], F32, SUM);
        if (call.operation != ALLTOALL && !call_has_blocks(call.operation)) return OK;
        call.args.counts = counts, call.args.root = call_has_root(call.operation) ? kind % P : 0;
        for (int b = 0; b < P; b++)
            counts[b] = kind == 3 ? (b == P / 2 ? 41 : 0) : (b * 5 + kind) % 4 * (kind == 2 ? 101 : 1);
        for (int b = 0; b < P && call.operation == ALLTOALL; b++)
            counts[b] = call_between(&call, call.rank, b), back[b] = call_between(&call, b, call.rank);
        if (call.operation == ALLTOALL) call.args.recvcounts = back;
        if (!member_accepts(m, &call)) law_leave_out(m->crew->book, BLOCKS);   /* its .refuses may want equal blocks */
        else e = run_both(m, call, err);
    }
    return e;
}

static enum error_code run_formats(const struct law_member *m, struct error *err)
{
    static const enum dtype formats[] = { F32, F64, BF16, F16, I32, I64, U8 };
    const bool reduces = call_reduces(m->crew->algorithm->operation);
    enum error_code e = OK;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (enum reduction how = 0; how < (reduces ? REDUCTION_COUNT : 1) && !e; how++) {
            e = run_both(m, member_call(m, m->group->size + 4, formats[f], how), err);
            if (!e && formats[f] != I64) e = run_both(m, member_call(m, 131, formats[f], how), err);
        }
    return e;
}

/* Large calls: few, and the largest of two devices only. */
static enum error_code run_sizes(const struct law_member *m, struct error *err)
{
    const int64_t counts[] = { (1 << 17) + 3, (1 << 20) + 3, 1 << 24 };
    const int most = m->crew->book->is_short ? 1 : m->group->size > 2 ? 2 : 3;
    enum error_code e = OK;
    for (int i = 0; i < most && !e; i++) {
        struct law_call call = member_call(m, counts[i], i == 1 ? BF16 : F32, SUM);
        if (call.operation == ALLTOALL) call.args.count /= call.P;
        if (member_accepts(m, &call)) e = run_one(m, call, i == 0, NULL, err);
    }
    return e;
}

static enum error_code run_all(const struct law_member *m, struct error *err)
{
    const struct algorithm *const a = m->crew->algorithm;
    const bool few = m->crew->book->is_short && m->crew->P > 4;
    enum error_code e = m->crew->P <= 3 ? run_repeats(m, err) : OK;
    if (!e) e = run_counts(m, err);
    if (!e) e = run_blocks(m, err);
    if (!e && a->operation != BARRIER && !few && m->crew->P <= 5) e = run_formats(m, err);
    for (enum dtype t = F32; t <= F16 && !e; t++) {
        e = member_order(m, t, err);
        comm_barrier(m->group->comm);
        if (!e && m->group->rank == 0) member_judge_order(m, t);
        comm_barrier(m->group->comm);
    }
    if (!e) e = member_rounding(m, err);
    if (!e) e = member_nans(m, err);
    if (!e && a->operation != BARRIER && m->crew->P <= 3) e = run_sizes(m, err);
    return e;
}

/* ---- a crew ------------------------------------------------------------------------------------------------------ */

/* The group has the members in reverse order: code that confuses ranks with members fails. */
static enum error_code be_law_member(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct laws_crew *const laws = (struct laws_crew *)(uintptr_t)asked;    /* members write what they saw */
    struct device d;
    struct comm c;
    struct group g;
    int ranks[MOST_P];
    enum error_code e = device_open(&d, backend_find("cpu"), F32, 0, err);
    if (e) return e;
    d.arena.poison = true;
    clock_restart(&d.clock, laws->cluster, F32);
    e = crew_join(&c, crew, rank, &d, err);
    if (!e) {
        crew_agree_by_messages(&c);                     /* a barrier is then one */
        for (int i = 0; i < laws->P; i++) ranks[i] = laws->P - 1 - i;
        e = group_of(&g, &c, ranks, laws->P, TRAFFIC_OTHER, 0, err);
        if (!e) {
            const struct law_member m = { laws, &g, &d };
            e = run_all(&m, err);
            group_close(&g);
        }
        comm_close(&c);
    }
    device_close(&d);
    return e;
}

/* Some laws say nothing of some operations. */
static void leave_out_laws(struct book *book, const struct algorithm *a)
{
    const enum operation op = a->operation;
    const bool blocks = op == ALLTOALL || call_has_blocks(op);
    const struct { int law; bool shown; } of[] = {
        { REDUCTIONS, call_reduces(op) }, { FORMATS, op != BARRIER }, { BLOCKS, blocks }, { SIZES, op != BARRIER },
        { NANS, op != BARRIER }, { ALIKE, op == ALLREDUCE }, { ROUNDING, op == ALLREDUCE }, { TURNS, a->turns != NULL },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!of[i].shown) law_leave_out(book, of[i].law);
}

static enum error_code judge_collective(struct book *book, const struct plugin_item *item, struct error *err)
{
    static const int sizes[] = { 2, 3, 4, 5, 7, 8 };
    const struct algorithm *const a = item->algorithm;
    const struct cluster *const clusters[] = { &one_port, a->by_nodes ? &in_nodes : NULL, &adding };
    struct laws_crew crew = { .book = book, .algorithm = a };
    enum error_code e = OK;
    for (int k = 0; k < 3 && !e; k++) {
        if (clusters[k] == NULL || (k == 2 && crew.calls > 0)) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !e; i++) {
            crew.cluster = clusters[k], crew.P = sizes[i];
            memset(crew.saw, 0, sizeof crew.saw);
            e = crew_run(crew.P, be_law_member, &crew, err);
        }
    }
    law_judge(book, ACCEPTS, crew.calls > 0, "%s %s: .refuses refuses every call", operation_name(a->operation),
              a->name);
    leave_out_laws(book, a);
    return e;
}

static bool is_collective(const struct plugin_item *item) { return item->algorithm != NULL; }

static void name_collective(const struct plugin_item *item, char name[LAW_NAME])
{
    const struct algorithm *const a = item->algorithm;
    snprintf(name, LAW_NAME, "%s %s", a->operation < OPERATION_COUNT ? operation_name(a->operation) : "operation ?",
             a->name ? a->name : "without a name");
}

static bool built_in_collective(int place, struct plugin_item *item)
{
    *item = (struct plugin_item){ .algorithm = algorithms[place] };
    return algorithms[place] != NULL;
}

const struct law_kind law_kind_collective = {
    .name = "collective", .laws = collective_laws, .overruns = GUARDS, .is = is_collective, .names = name_collective,
    .built_in = built_in_collective, .judge = judge_collective,
};
