/* collective_judge.c -- checks every device's result and messages at the end of a collective.  collective_show.c
 * calls these functions.  ERR_CHECK names the devices whose result or messages are wrong; other errors are those of a
 * drawing. */
#include "emulated_devices/draw/collective/collective.h"
#include "ref/io/terminal.h"
#include <stdio.h>

enum { TEXT = 120 };

/* ---- on a device ------------------------------------------------------------------------------------------------- */

static int64_t judge_sum_of(int devices, int64_t place)
{
    int64_t sum = 0;
    for (int d = 0; d < devices; d++) sum += symbol(d, place);
    return sum;
}

static int owner(const struct collective *collective, int P, int64_t place)
{
    int b = 0;
    while (place >= block_start(collective->count, P, b + 1)) b++;
    return b;
}

/* Return what element i of device r's result must be. */
static int64_t judge_wanted(enum operation op, const struct collective *collective, int r, int P, int64_t i)
{
    const int64_t own = block_start(collective->count, P, r) + i;
    switch (op) {
    case BROADCAST: return symbol(collective->root, i);
    case SCATTER: return symbol(collective->root, own);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return judge_sum_of(P, own);
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER: return symbol(owner(collective, P, i), i);
    case ALLTOALL: return symbol((int)(i / collective->count), r * collective->count + i % collective->count);
    case SCAN: return judge_sum_of(r + 1, i);
    default: return judge_sum_of(P, i);
    }
}

struct show_verdict show_judge(enum operation op, const struct collective *collective, int r, int P)
{
    struct show_verdict v = { 0 };
    int64_t in;
    collective_extents(op, collective, r, P, &in, &v.elements);
    for (int64_t i = 0; i < v.elements; i++) {
        const int64_t got = ((const int64_t *)collective->out)[i], want = judge_wanted(op, collective, r, P, i);
        if (got == want) continue;
        if (v.wrong++ == 0) v.got = got, v.want = want;
    }
    return v;
}

/* ---- on rank 0 --------------------------------------------------------------------------------------------------- */

/* "x[3] of devices 0+0+2": the sum of element 3 of these devices' vectors. */
static const char *symbol_text(int64_t s, int P, char text[TEXT])
{
    int64_t sum = 0;
    const unsigned set = symbol_devices(s);
    int numbers = 0,
        used = snprintf(text, TEXT, "x[%lld] of device%s", (long long)symbol_place(s), set & (set - 1) ? "s" : "");
    for (int d = 0; d < P; d++)
        for (int n = symbol_times(s, d); n > 0; n--, sum += symbol(d, symbol_place(s)))
            used += snprintf(text + used, TEXT - (size_t)used, "%s%d", numbers++ > 0 ? "+" : " ", d);
    if (s == 0) return "nothing";
    if (sum != s) snprintf(text, TEXT, "%#llx, which no sum of the input is", (unsigned long long)s);
    return text;
}

static int judge_block_of(const struct show_trace *trace, int64_t place)
{
    return trace->algorithm->operation == ALLTOALL ? (int)(place / trace->call.count)
           : owner(&trace->call, trace->P, place);
}

/* "device 2 has in block b1 x[1] of devices 0+0+2; it must be x[1] of devices 0+1+2" */
static void describe_wrong(const struct show_trace *trace, int r, char *text, size_t size)
{
    const struct show_verdict *v = &trace->end[r].verdict;
    char got[TEXT], want[TEXT];
    snprintf(text, size, "device %d has in block b%d %s; it must be %s", r,
             judge_block_of(trace, symbol_place(v->want)),
             symbol_text(v->got, trace->P, got), symbol_text(v->want, trace->P, want));
}

static enum error_code judge_results(const struct show_trace *trace, struct error *err)
{
    const char *op = operation_name(trace->algorithm->operation);
    char text[3 * TEXT];
    int first = -1, devices = 0;
    for (int r = 0; r < trace->P; r++) {
        const struct show_verdict *v = &trace->end[r].verdict;
        if (v->wrong == 0) continue;
        describe_wrong(trace, r, text, sizeof text);
        snprintf(text + strlen(text), sizeof text - strlen(text), " (%lld of %lld elements)", (long long)v->wrong,
                 (long long)v->elements);
        say(stdout, 0, "RESULT WRONG: %s", text);
        if (devices++ == 0) first = r;
    }
    if (devices == 0) return OK;
    describe_wrong(trace, first, text, sizeof text);
    return fail(err, ERR_CHECK, "show %s %s: wrong on %d of %d devices: %s", op, trace->algorithm->name,
                devices, trace->P, text);
}

static enum error_code judge_traffic(const struct show_trace *trace, struct error *err)
{
    enum error_code e = OK;
    for (int r = 0; r < trace->P; r++) {
        const struct traffic *did = &trace->end[r].traffic;
        const struct collective_cost cost = collective_cost(trace->algorithm, r, trace->P, &trace->call);
        if (cost.messages == did->messages_sent && cost.bytes == did->bytes_sent && cost.additions == did->additions)
            continue;
        say(stdout, 0,
            "THE COST FUNCTION DIFFERS: device %d sent %llu messages and %llu bytes and added %llu; the cost "
               "function says %llu, %llu, %llu",
               r, (unsigned long long)did->messages_sent, (unsigned long long)did->bytes_sent,
               (unsigned long long)did->additions, (unsigned long long)cost.messages, (unsigned long long)cost.bytes,
               (unsigned long long)cost.additions);
        if (!e)
            e = fail(err, ERR_CHECK, "show %s %s: device %d did not send and add what the cost function says",
                     operation_name(trace->algorithm->operation), trace->algorithm->name, r);
    }
    if (!e) printf("every device sent and added what the algorithm's cost function says\n");
    return e;
}

enum error_code show_verdict_print(const struct show_trace *trace, struct error *err)
{
    /* a wrong result is more important */
    const enum error_code traffic = judge_traffic(trace, err), results = judge_results(trace, err);
    if (!results && trace->algorithm->operation != BARRIER) printf("every device has the expected result\n");
    return results ? results : traffic;
}
