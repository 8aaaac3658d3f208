/* ledger.c -- names and sums of what is sent and added.  Everything that counts or predicts messages calls.  The
 * functions are pure but for the sums that they change.  No function returns an error code. */
#include "emulated_devices/comm/ledger.h"

const char *operation_name(enum operation op)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        OPERATIONS(X)
#undef X
    };
    return op < OPERATION_COUNT ? name[op] : "unknown operation";
}

const char *traffic_kind_name(enum traffic_kind kind)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        TRAFFIC_KINDS(X)
#undef X
    };
    return kind < TRAFFIC_KIND_COUNT ? name[kind] : "unknown kind";
}

void traffic_send(struct traffic *traffic, int level, uint64_t bytes, uint64_t times)
{
    traffic->messages_sent += times, traffic->bytes_sent += times * bytes;
    traffic->level[level].messages += times, traffic->level[level].bytes += times * bytes;
}

/* Unsigned numbers wrap round: times < 0 removes exactly what was entered. */
static void add_times(struct traffic *sum, const struct traffic *traffic, uint64_t times)
{
    sum->messages_sent += times * traffic->messages_sent, sum->bytes_sent += times * traffic->bytes_sent;
    sum->messages_received += times * traffic->messages_received,
        sum->bytes_received += times * traffic->bytes_received;
    sum->additions += times * traffic->additions;
    for (int l = 0; l < CLUSTER_LEVELS; l++) {
        sum->level[l].messages += times * traffic->level[l].messages;
        sum->level[l].bytes += times * traffic->level[l].bytes;
    }
}

void traffic_add(struct traffic *sum, const struct traffic *traffic) { add_times(sum, traffic, 1); }

void account_add(struct account *sum, struct account account, int64_t times)
{
    for (enum operation op = 0; op < OPERATION_COUNT; op++) add_times(&sum->of[op], &account.of[op], (uint64_t)times);
}

struct traffic account_total(const struct account *account)
{
    struct traffic sum = { 0 };
    for (enum operation op = 0; op < CONTROL; op++) traffic_add(&sum, &account->of[op]);
    return sum;
}

struct sent ledger_level(const struct ledger *ledger, int level)
{
    struct sent sum = { 0 };
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) {
        const struct traffic all = ledger_kind(ledger, kind);
        sum.messages += all.level[level].messages, sum.bytes += all.level[level].bytes;
    }
    return sum;
}

bool traffic_equal(const struct traffic *a, const struct traffic *b, int level)
{
    if (level >= 0)
        return a->level[level].messages == b->level[level].messages && a->level[level].bytes == b->level[level].bytes;
    return a->messages_sent == b->messages_sent && a->bytes_sent == b->bytes_sent && a->additions == b->additions;
}
