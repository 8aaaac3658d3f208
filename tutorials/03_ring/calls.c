#include "ring.h"
#include "worker/calls.h"

static void scatter(struct call *c) { ring_reduce_scatter(&c->group[0], c->buffer[0], c->number[0]); }
static void gather(struct call *c) { ring_all_gather(&c->group[0], c->buffer[0], c->number[0]); }
static void reduce(struct call *c) { ring_all_reduce(&c->group[0], c->buffer[0], c->number[0]); }

const struct callable callables[] = {
    { "ring_reduce_scatter", scatter }, { "ring_all_gather", gather }, { "ring_all_reduce", reduce }, { 0 }
};
