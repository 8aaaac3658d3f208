#include "emulated_devices/verify/traffic.h"
#include <stdio.h>

enum { TEXT = 120 };

/* Of one level, or of all: level < 0. */
static const char *describe(char text[TEXT], const struct traffic *t, int level)
{
    const struct sent all = { t->messages_sent, t->bytes_sent }, s = level < 0 ? all : t->level[level];
    const int used = snprintf(text, TEXT, "%llu messages, %llu bytes", (unsigned long long)s.messages, (unsigned long long)s.bytes);
    if (level < 0) snprintf(text + used, (size_t)(TEXT - used), ", %llu additions", (unsigned long long)t->additions);
    return text;
}

struct ledgers { const struct ledger *counted, *expected, *predicted; };

static enum error_code check_one(const struct comm *c, struct ledgers l, enum traffic_kind kind, enum operation op, int level,
                                 struct error *err)
{
    const struct traffic *did = &l.counted->of[kind].of[op], *expected = &l.expected->of[kind].of[op];
    const struct traffic *predicted = &l.predicted->of[kind].of[op];
    char one[TEXT], two[TEXT], three[TEXT];
    if (traffic_equal(did, expected, level) && traffic_equal(did, predicted, level)) return OK;
    return fail(err, ERR_CHECK, "device %d, %s %s%s%s: counted %s; its calls expected %s; predicted were %s", c->rank, traffic_kind_name(kind),
                operation_name(op), level < 0 ? "" : " over links of level ", level < 0 ? "" : c->device->clock.cluster.link[level].level,
                describe(one, did, level), describe(two, expected, level), describe(three, predicted, level));
}

enum error_code traffic_check(const struct trainer *t, int64_t steps, struct error *err)
{
    struct ledger predicted;
    const struct ledgers all = { &t->comm->counted, &t->comm->expected, &predicted };
    enum error_code e = OK;
    trainer_predict(t, steps, &predicted);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS && !e; level++) e = check_one(t->comm, all, kind, op, level, err);
    return e;
}
