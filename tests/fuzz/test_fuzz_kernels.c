/* A table of measured kernels, or a set of them, from anybody: each share of a table that is accepted is a share.
 * tier: check
 */
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include "tests/fuzz/fuzz.h"

static void try_table(const char *text)
{
    static struct kernel_table table;
    struct error err = { 0 };
    if (kernel_table_parse(&table, text, "fuzz", &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (double x = 1; x < 1e7; x *= 13) {
        const double product = table_product_share(&table, x, 4096, 7 * x), memory = table_memory_share(&table, x);
        const double attention = table_attention_share(&table, table.attention[0].kernels, true, 128, x, .5);
        must(product > 0 && product <= 1, "a product reaches %g of the rate", product);
        must(memory > 0 && memory <= 1, "a copy reaches %g of the rate", memory);
        must(attention >= 0 && attention < 1e9, "attention reaches %g of the rate", attention);
    }
}

static void try_set(const char *text)
{
    static struct kernel_set set;
    struct error err = { 0 };
    if (kernel_set_parse(&set, text, "fuzz", &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    const struct set_cost cost = kernel_set_cost(&set, "add");
    must(set.attentions >= 1 && set.attentions <= SET_MOST_ATTENTION, "%d kernels of attention", set.attentions);
    must(cost.percent >= 0 && cost.kernels >= 0, "an operation goes back in time");
}

static void try(const uint8_t *data, size_t size)
{
    char *text = as_text(data, size);
    try_table(text);
    try_set(text);
    free(text);
}

FUZZ_TARGET("kernels")
