/* Tables of layers and strategies from anybody: what is read judges plans, is written, and reads back as the same. */
#include "emulated_devices/search/layers/layers.h"
#include "ref/error.h"
#include "tests/fuzz/fuzz.h"

/* A plan of one strategy in even stages, whatever its numbers. */
static void judge(const struct layer_table *table, int strategy)
{
    struct layer_plan plan;
    struct layer_verdict v;
    if (!layer_plan_evenly(table, table->strategy[strategy].devices, &plan)) return;
    for (int l = 0; l < table->layers; l++) plan.strategy[l] = strategy;
    if (!layer_plan_judge(table, &plan, &v)) return;
    must(v.time >= v.longest && v.longest >= 0 && v.hops >= 0, "a plan takes %lld ps", (long long)v.time);
    must(v.memory >= table->beside[layer_size_find(table, plan.devices[v.fullest])], "bytes of a stage are lost");
}

static void try(const uint8_t *data, size_t size)
{
    struct layer_table table, again;
    struct error err = { 0 };
    char path[5000];
    if (layer_table_read(&table, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (int s = 0; s < table.strategies; s++) judge(&table, s);
    snprintf(path, sizeof path, "%s/again", fuzz_place());
    must(layer_table_write(&table, path, &err) == OK, "not written: %s", err.text);
    must(layer_table_read(&again, path, &err) == OK, "not read again: %s", err.text);
    must(again.layers == table.layers && again.strategies == table.strategies && again.layouts == table.layouts,
         "another table is read");
    for (int i = 0; i < table.kinds * table.strategies; i++)
        must(again.cost[i].there == table.cost[i].there && again.cost[i].time == table.cost[i].time &&
             again.cost[i].state == table.cost[i].state, "cost %d is another", i);
    layer_table_free(&again), layer_table_free(&table);
}

FUZZ_TARGET("layers")
