/* planning.h -- plans of an attention scheme for given lengths, without devices: what tests of planners share.  Tests
 * of planners in tests/devices/ include this file.  A plan that cannot be made fails the test. */
#ifndef ORRERY_TEST_PLANNING_H
#define ORRERY_TEST_PLANNING_H

#include "emulated_devices/schemes/attention/attention.h"
#include "tests/devices/lengths.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct error err;

/* Keys are twice as wide as queries; a token costs as much as 384 pairs. */
static inline struct context_load load_of(const int64_t length[], int samples, int devices, int node)
{
    struct context_load l = { .length = length, .samples = samples, .devices = devices, .node = node,
                              .query_width = 1, .key_width = 2, .per_pair = 4, .per_token = 24 * 64 };
    for (int i = 0; i < samples; i++) l.tokens += length[i];
    return l;
}

static inline struct context_plan plan_by(const char *scheme, const struct context_load *l)
{
    const struct attention_scheme *s;
    struct context_plan p;
    assert_int_equal(attention_scheme_find(&s, scheme, &err), OK);
    if (s->plan(&p, l, &err) != OK) fail_msg("%s does not plan: %s", scheme, err.text);
    return p;
}

/* The tokens that a device has outside attention. */
static inline int64_t tokens_on(const struct context_plan *p, int device)
{
    struct intervals own = { 0 };
    context_plan_tokens(&own, p, device);
    const int64_t n = intervals_total(&own);
    intervals_free(&own);
    return n;
}

/* The busiest device, in pairs of attention, over the mean. */
static inline double imbalance(const struct context_plan *p)
{
    double most = 0, sum = 0;
    for (int d = 0; d < p->devices; d++) {
        const double pairs = context_device_pairs(p, d);
        most = fmax(most, pairs), sum += pairs;
    }
    return most * p->devices / sum;
}

#endif
