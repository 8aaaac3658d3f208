/* counted.h -- what a device sends and holds in one step of a plan, by its counters.  test_buff.c,
 * test_context_tensor.c and test_parscale.c include this file.  An error fails the test. */
#ifndef TESTS_COUNTED_H
#define TESTS_COUNTED_H

#include "tests/devices/session.h"

struct counted { uint64_t sent[TRAFFIC_KIND_COUNT], peak[ARENA_TAG_COUNT]; };

static void count_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                       int32_t *within)
{
    const struct plan *p = context;
    (void)step, (void)within;
    for (int64_t i = 0; i < count * p->S; i++) ids[i] = labels[i] = (int32_t)((first + i) % p->model.V);
}

/* Train one step. */
static struct counted count(struct plan p)
{
    static struct session s;
    struct counted n;
    session_open(&s, &p, (struct batch_source){ count_fill, &p });
    session_step(&s);
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++) n.sent[k] = ledger_kind(&s.comm.counted, k).bytes_sent;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) n.peak[tag] = s.device.arena.peak.tag[tag];
    session_close(&s);
    return n;
}

/* What a third block adds. */
static inline struct counted count_block(struct plan p)
{
    p.model.L = 2;
    const struct counted two = count(p);
    p.model.L = 3;
    struct counted three = count(p);
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++) three.sent[k] -= two.sent[k];
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) three.peak[tag] -= two.peak[tag];
    return three;
}

#endif
