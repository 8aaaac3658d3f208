/* take_back.c -- gives a clock time back.  serve/engine_nano.c calls.  No function returns an error code. */
#include "emulated_devices/device/take_back.h"

static picoseconds earlier_of(picoseconds a, picoseconds b) { return a < b ? a : b; }

/* All that a port has moved has ended at a time, or before. */
static void end_port(struct port *port, picoseconds end)
{
    while (port->count > 0 && port->busy[port->count - 1].start >= end) port->count--;
    if (port->count > 0) port->busy[port->count - 1].end = earlier_of(port->busy[port->count - 1].end, end);
}

void clock_take_back(struct clock *clock, picoseconds earlier)
{
    picoseconds now = clock->now - earlier;
    if (clock->starts.pace > 0 && now < clock->starts.done) now = earlier_of(clock->starts.done, clock->now);
    clock->now = now, clock->received = earlier_of(clock->received, now);
    for (int s = 0; s < STREAMS; s++) clock->stream[s] = earlier_of(clock->stream[s], now);
    for (int lane = 0; lane < PORT_LANES; lane++) clock->paid[lane] = earlier_of(clock->paid[lane], now);
    for (int p = 0; p < CLUSTER_MOST_PORTS; p++) end_port(&clock->send[p], now), end_port(&clock->receive[p], now);
    clock->talks = 0;
}
