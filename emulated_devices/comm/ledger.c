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

static void add(struct traffic *sum, const struct traffic *t)
{
    sum->messages_sent += t->messages_sent, sum->bytes_sent += t->bytes_sent;
    sum->messages_received += t->messages_received, sum->bytes_received += t->bytes_received;
    sum->additions += t->additions;
    for (int l = 0; l < CLUSTER_LEVELS; l++) {
        sum->level[l].messages += t->level[l].messages;
        sum->level[l].bytes += t->level[l].bytes;
    }
}

struct traffic ledger_kind(const struct ledger *l, enum traffic_kind kind)
{
    struct traffic sum = { 0 };
    for (enum operation op = 0; op < CONTROL; op++) add(&sum, &l->of[kind][op]);
    return sum;
}

struct sent ledger_level(const struct ledger *l, int level)
{
    struct sent sum = { 0 };
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) {
        const struct traffic all = ledger_kind(l, kind);
        sum.messages += all.level[level].messages, sum.bytes += all.level[level].bytes;
    }
    return sum;
}
