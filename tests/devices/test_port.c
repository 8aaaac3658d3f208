/* A port: messages of one stream one after the other, those of several streams in equal parts, by hand; and whatever
 * the streams, the busy times of a port that is simulated unit by unit.
 * tier: check
 */
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/streams.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_MESSAGES = 5, NOT_PAID = 0 };
struct sent { int lane, from, takes, end; };
struct paid { int lane, at; };

/* Give a port some messages in the order of a program, and compare each end and what the port has paid by when. */
static void gives(const char *what, const struct sent *sent, const struct paid *due)
{
    struct port port = { 0 };
    picoseconds paid[PORT_LANES] = { 0 };
    for (int i = 0; i < MOST_MESSAGES && sent[i].takes > 0; i++) {
        const struct port_message message = { .lane = sent[i].lane, .from = sent[i].from, .takes = sent[i].takes };
        const picoseconds end = port_take(&port, &message, paid).end;
        if (end != sent[i].end)
            fail_msg("%s: message %d ends at %lld, want %d", what, i, (long long)end, sent[i].end);
    }
    for (int lane = 0; lane < PORT_LANES; lane++) {
        int want = NOT_PAID;
        for (int i = 0; i < 2; i++)
            if (due[i].at > 0 && due[i].lane == lane) want = due[i].at;
        if (paid[lane] != want)
            fail_msg("%s: stream %d has been paid at %lld, want %d", what, lane, (long long)paid[lane], want);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    gives("one stream", (struct sent[MOST_MESSAGES]){ { 1, 0, 100, 100 }, { 1, 20, 10, 110 } },
          (struct paid[2]){ { 0, 0 } });
    /* From 20 on each has half: the short one is done at 40.  The port owes the long one 10, and pays from 100 to
     * 110.  What the stream of the long one sends next is behind that. */
    gives("a short one", (struct sent[MOST_MESSAGES]){ { 1, 0, 100, 100 }, { 0, 20, 10, 40 }, { 1, 100, 10, 120 } },
          (struct paid[2]){ { 1, 110 } });
    /* Until 100 it has moved 40 of 80, and the port owes 40.  Then both have half until 180. */
    gives("as long as what is left", (struct sent[MOST_MESSAGES]){ { 1, 0, 100, 100 }, { 0, 20, 80, 180 } },
          (struct paid[2]){ { 1, 180 } });
    /* As before, and 20 more alone. */
    gives("longer than what is left", (struct sent[MOST_MESSAGES]){ { 1, 0, 100, 100 }, { 0, 20, 100, 200 } },
          (struct paid[2]){ { 1, 180 } });
    /* The gap from 50 to 60: the second has moved 20 until 50 and 5 in the gap, in which the port pays 5 of 20.  From
     * 60 on the remaining 5 take 10.  The port owes 15 and 5, and pays from 90 on. */
    gives("a gap", (struct sent[MOST_MESSAGES]){ { 1, 0, 50, 50 }, { 1, 60, 30, 90 }, { 0, 10, 30, 70 } },
          (struct paid[2]){ { 1, 110 } });
    /* The second shares with the first until 60; the third has a third of 30, and both others lack 10 together. */
    gives("three streams", (struct sent[MOST_MESSAGES]){ { 1, 0, 90, 90 }, { 0, 0, 30, 60 }, { 2, 0, 10, 30 } },
          (struct paid[2]){ { 1, 130 }, { 0, 130 } });
    /* Behind its own stream's message a message waits, though that one shares the port. */
    gives("behind its own", (struct sent[MOST_MESSAGES]){ { 1, 0, 100, 100 }, { 0, 0, 20, 40 }, { 0, 10, 5, 50 } },
          (struct paid[2]){ { 1, 125 } });
    /* Nothing has to pass at a port that is free, nor beside another stream's message. */
    gives("apart", (struct sent[MOST_MESSAGES]){ { 1, 0, 10, 10 }, { 0, 10, 10, 20 }, { 2, 30, 1, 31 } },
          (struct paid[2]){ { 0, 0 } });
}

/* A port that moves whole units, each of one message: which units are busy does not depend on who shares them. */
static void test_never_idle_and_never_twice(void **state)
{
    enum { UNITS = 6000, MESSAGES = 20 };
    static bool busy[UNITS];
    uint32_t random = 4711;
    (void)state;
    for (int lanes = 1; lanes <= PORT_LANES; lanes++) for (int round = 0; round < 20; round++) {
        struct port port = { 0 };
        picoseconds paid[PORT_LANES] = { 0 };
        memset(busy, 0, sizeof busy);
        for (int m = 0; m < MESSAGES; m++) {
            random = random * 1664525 + 1013904223;
            const int from = (int)(random >> 8) % 2000, takes = 1 + (int)(random >> 20) % 60;
            const int lane = (int)(random >> 14) % lanes;
            int at = from;
            for (int left = takes; left > 0; busy[at++] = true) left -= !busy[at];
            const struct port_message message = { .lane = lane, .from = from, .takes = takes };
            const picoseconds end = port_take(&port, &message, paid).end;
            if (end > at || end < from + takes || (lanes == 1 && end != at))
                fail_msg("%d streams, round %d: a message of %d from %d on ends at %lld; behind all others at %d",
                         lanes, round, takes, from, (long long)end, at);
        }
        int at = 0;
        for (int i = 0; i < port.count; i++)
            for (; at < port.busy[i].end; at++)
                if (busy[at] != (at >= port.busy[i].start))
                    fail_msg("%d streams, round %d: unit %d is %s", lanes, round, at, busy[at] ? "idle" : "busy");
        while (at < UNITS) if (busy[at++]) fail_msg("%d streams, round %d: unit %d is idle", lanes, round, at - 1);
    }
}

/* ---- a clock ----------------------------------------------------------------------------------------------------- */

/* A picosecond a byte, and no latency. */
static const struct cluster machine = { .name = "test", .levels = 1, .flop_rate = { [F32] = 1000000 },
                                        .link = { { .rate = 1000000, .eager = ALWAYS_EAGER } } };

static void takes_in(struct clock *clock, picoseconds stamp, uint64_t bytes)
{
    struct passage p = clock_post(clock, 1, 0, bytes);
    p.stamp = stamp;
    clock_receive(clock, &p);
}

/* Gradients of 100 come in until 100.  A message of 10 that a pipeline waits for comes at 20, and is there at 40; the
 * stream of the gradients is done at 110.  In line the message would be there at 110. */
static void test_a_stream_is_done_when_the_port_has_paid(void **state)
{
    struct clock clock;
    (void)state;
    clock_open(&clock, &machine, F32);
    clock_begin(&clock, COMMUNICATION);
    takes_in(&clock, 100, 100);
    assert_int_equal(clock.now, 100);
    clock_end(&clock);
    takes_in(&clock, 30, 10);
    assert_int_equal(clock.now, 40);
    clock_join(&clock, COMMUNICATION);
    assert_int_equal(clock.now, 110);
    clock_begin(&clock, COMMUNICATION);
    takes_in(&clock, 115, 10);
    assert_int_equal(clock.now, 120);
    clock_end(&clock);
}

/* A message that left at half the rate comes in as slowly, beside other messages or not.  The sender of 10 shares until
 * 20, as above.  A receiver whose port is free has the message at 20.  So has the other one, whose port shares too: the
 * message comes from 0 on, and half of the port is enough. */
static void test_a_shared_message_is_not_delayed_twice(void **state)
{
    struct clock from, to;
    (void)state;
    clock_open(&from, &machine, F32);
    clock_begin(&from, COMMUNICATION);
    clock_send(&from, 0, 1, 100);
    clock_end(&from);
    const struct passage sent = clock_send(&from, 0, 1, 10);
    assert_int_equal(sent.stamp, 20);
    assert_int_equal(sent.slowed, 10);
    for (int shares = 0; shares < 2; shares++) {
        clock_open(&to, &machine, F32);
        clock_begin(&to, COMMUNICATION);
        if (shares) takes_in(&to, 100, 100);
        clock_end(&to);
        struct passage p = clock_post(&to, 0, 1, 10);
        p.stamp = sent.stamp, p.slowed = sent.slowed;
        clock_receive(&to, &p);
        assert_int_equal(to.now, 20);
    }
}

/* A device that computes does not wait for its messages, so it owes nothing to a later collective. */
static void test_computing_does_not_wait_for_its_sends(void **state)
{
    struct clock clock;
    (void)state;
    clock_open(&clock, &machine, F32);
    assert_int_equal(clock_send(&clock, 0, 1, 100).stamp, 100);
    clock_begin(&clock, COMMUNICATION);
    assert_int_equal(clock_send(&clock, 0, 1, 10).stamp, 20);
    clock_end(&clock);
    assert_int_equal(clock.now, 0);
    assert_int_equal(clock.paid[COMPUTE], 110);
    assert_int_equal(clock_send(&clock, 0, 1, 10).stamp, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_never_idle_and_never_twice),
        cmocka_unit_test(test_a_stream_is_done_when_the_port_has_paid),
        cmocka_unit_test(test_a_shared_message_is_not_delayed_twice),
        cmocka_unit_test(test_computing_does_not_wait_for_its_sends),
    };
    return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
