/* ledgers.c -- compares the three accounts of what one device has sent, number by number.  Numbers must be equal:
 * ERR_CHECK names device, kind and all three.  counts.c and weather/run.c call ledgers_check. */
#include "emulated_devices/verify/reference/ledgers.h"
#include <stdio.h>

enum { TEXT = 120 };

/* Describe the messages of one level of links.  A negative level stands for all levels, with the additions. */
static const char *counts_describe(char text[TEXT], const struct traffic *traffic, int level)
{
    const struct sent all = { traffic->messages_sent, traffic->bytes_sent }, s = level < 0 ? all
        : traffic->level[level];
    const int used =
        snprintf(text, TEXT, "%llu messages, %llu bytes", (unsigned long long)s.messages, (unsigned long long)s.bytes);
    if (level < 0) snprintf(text + used, (size_t)(TEXT - used), ", %llu additions",
                            (unsigned long long)traffic->additions);
    return text;
}

/* These are a device's three accounts: messages that were sent, that calls expected, and that were predicted. */
struct ledgers { const struct ledger *counted, *expected, *predicted; };

/* Compare the three accounts for one kind of traffic, one operation and one level of links. */
static enum error_code check_one(const struct comm *comm, struct ledgers ledgers, enum traffic_kind kind,
                                 enum operation op, int level, struct error *err)
{
    const struct traffic *did = &ledgers.counted->of[kind].of[op], *expected = &ledgers.expected->of[kind].of[op];
    const struct traffic *predicted = &ledgers.predicted->of[kind].of[op];
    char one[TEXT], two[TEXT], three[TEXT];
    if (traffic_equal(did, expected, level) && traffic_equal(did, predicted, level)) return OK;
    return fail(err, ERR_CHECK, "device %d, %s %s%s%s: counted %s; its calls expected %s; predicted were %s",
                comm->rank, traffic_kind_name(kind), operation_name(op), level < 0 ? "" : " over links of level ",
                level < 0 ? "" : comm->device->clock.cluster.link[level].level, counts_describe(one, did, level),
                counts_describe(two, expected, level), counts_describe(three, predicted, level));
}

/* CONTROL messages belong to checks, not to the plan, so they are not compared. */
enum error_code ledgers_check(const struct comm *comm, const struct ledger *predicted, struct error *err)
{
    const struct ledgers all = { &comm->counted, &comm->expected, predicted };
    enum error_code e = OK;
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS && !e; level++)
                e = check_one(comm, all, kind, op, level, err);
    return e;
}
