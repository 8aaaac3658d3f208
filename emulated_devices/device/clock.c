#include "emulated_devices/device/clock.h"
#include <math.h>

const struct machine machine_default = {
    .name = "h100",
    .source = "NVIDIA H100 SXM data sheet: dense bf16, HBM3, NVLink 4 in one direction; the latency is assumed",
    .flops_per_second = 989e12,
    .memory_bytes_per_second = 3.35e12,
    .latency = 2 * 1000 * 1000,
    .link_bytes_per_second = 450e9,
};

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }

static picoseconds on_the_port(const struct clock *c, uint64_t bytes)
{
    return c->machine->gap + (picoseconds)ceil((double)bytes / c->machine->link_bytes_per_second * 1e12);
}

void clock_open(struct clock *c, const struct machine *m)
{
    *c = (struct clock){ .machine = m };
}

void clock_compute(struct clock *c, struct op_cost cost)
{
    const double arithmetic = cost.flops / c->machine->flops_per_second;
    const double memory = cost.bytes / c->machine->memory_bytes_per_second;
    c->now += (picoseconds)ceil((arithmetic > memory ? arithmetic : memory) * 1e12);
    c->flops += cost.flops;
}

/* The stream does not wait for the port: sends are asynchronous. */
picoseconds clock_send(struct clock *c, uint64_t bytes)
{
    c->send_free = later(c->now, c->send_free) + on_the_port(c, bytes);
    return c->send_free + c->machine->latency;
}

/* Alone, a message has been coming in while it was sent, and is complete at its stamp.  After another one it is complete
 * no sooner than the port can take it in: many senders to one device share its port. */
void clock_receive(struct clock *c, picoseconds stamp, uint64_t bytes)
{
    c->receive_free = later(stamp, c->receive_free + on_the_port(c, bytes));
    c->now = later(c->now, c->receive_free);
}
