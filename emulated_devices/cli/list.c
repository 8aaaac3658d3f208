/* list.c -- `orrery list`: everything registered. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/plan.h"
#include <stdio.h>
#include <string.h>

/* What auto stands for on 8 devices, by the bytes of the vector; of an all-to-all, of what one device sends. */
static void list_auto(enum operation op)
{
    enum { P = 8, SIZES = 5 };
    static const int64_t bytes[SIZES] = { 64, 16 << 10, 256 << 10, 4 << 20, 64 << 20 };
    const struct algorithm *last = NULL;
    struct cluster usual;
    if (cluster_find(&usual, CLUSTER_USUAL, NULL) != OK) return;
    printf("  %-20s the least predicted time; on %d devices of cluster %s:", ALGORITHM_AUTO, P, usual.name);
    for (int i = 0; i < SIZES; i++) {
        const struct collective c = { .count = bytes[i] / 4 / (op == ALLTOALL ? P : 1), .dtype = F32 };
        const struct algorithm *a = algorithm_choose(op, P, &c, &usual);
        if (a != last && op != BARRIER) printf("%s %s from %s", last ? "," : "", a->name, size_format((uint64_t)bytes[i]).text);
        if (a != last && op == BARRIER) printf(" %s", a->name);
        last = a;
    }
    printf("\n");
}

static void list_collectives(void)
{
    for (int op = 0; op < OPERATION_COUNT; op++) {
        bool any = false;
        for (const struct algorithm *const *a = algorithms; *a; a++) {
            if ((*a)->operation != (enum operation)op) continue;
            if (!any) printf("\n%s\n", operation_name(op));
            printf("  %-20s %s\n%-23s cost %s\n%-23s from %s\n", (*a)->name, (*a)->description, "", (*a)->cost_formula, "", (*a)->source);
            any = true;
        }
        if (any) list_auto((enum operation)op);
    }
}

static void list_tensor(void)
{
    for (const struct tensor_scheme *const *s = tensor_schemes; *s; s++)
        printf("  %-20s %s\n%-23s sends %s\n%-23s memory %s\n%-23s from %s\n", (*s)->name, (*s)->description, "", (*s)->volume, "",
               (*s)->memory, "", (*s)->source);
}

static void list_data(void)
{
    for (const struct data_scheme *const *s = data_schemes; *s; s++)
        printf("  %-20s %s\n%-23s sends %s\n%-23s memory %s\n%-23s from %s\n", (*s)->name, (*s)->description, "", (*s)->volume, "",
               (*s)->memory, "", (*s)->source);
}

static void list_schedules(void)
{
    for (const struct schedule_generator *const *s = schedule_generators; *s; s++)
        printf("  %-20s %s\n%-23s needs %s; bubble %s; holds %s\n%-23s from %s\n", (*s)->name, (*s)->description, "", (*s)->needs,
               (*s)->bubble, (*s)->memory, "", (*s)->source);
}

static void list_optimizers(void)
{
    for (const struct optimizer *const *o = optimizers; *o; o++)
        printf("  %-20s %s\n%-23s keeps %d tensors for each parameter\n%-23s from %s\n", (*o)->name, (*o)->description, "", (*o)->states, "", (*o)->source);
}

static void list_models(void)
{
    for (const struct model_preset *m = model_presets; m->config.name[0]; m++)
        printf("  %-20s %s\n%-23s L=%lld H=%lld D=%lld F=%lld V=%lld S=%lld\n", m->config.name, m->description, "", (long long)m->config.L,
               (long long)m->config.H, (long long)m->config.D, (long long)m->config.F, (long long)m->config.V, (long long)m->config.S);
}

static void list_links(const struct cluster *c)
{
    for (int l = 0; l < c->levels; l++) {
        const struct link *k = &c->link[l];
        printf("%-23s %-8s %g us, %g GB/s", "", k->level, (double)k->latency * 1e-6, (double)k->rate * 1e-3);
        if (k->gap > 0) printf(", each message holds a port for %g us", (double)k->gap * 1e-6);
        if (k->eager != ALWAYS_EAGER) printf(", above %s a message waits for its receiver", size_format(k->eager).text);
        if (k->devices > 0) printf("; %d devices", k->devices);
        printf("\n%-23s from %s\n", "", k->source);
    }
}

static void list_clusters(void)
{
    struct cluster c;
    for (int i = 0; cluster_texts[i]; i++) {
        if (cluster_parse(&c, cluster_texts[i], "a shipped cluster", NULL) != OK) continue;
        printf("  %-20s %s%s\n%-23s device  %s", c.name, c.description, strcmp(c.name, CLUSTER_USUAL) == 0 ? " (the usual one)" : "", "", c.flop_rate[F32] == 0 ? " computing takes no time" : "");
        for (int t = 0; t < DTYPE_COUNT; t++) if (c.flop_rate[t] > 0) printf(" %s %g TFLOP/s,", dtype_name(t), (double)c.flop_rate[t] * 1e-6);
        if (c.memory_rate > 0) printf(" memory %g GB/s", (double)c.memory_rate * 1e-3);
        printf("\n%-23s from %s\n", "", c.source);
        list_links(&c);
    }
}

static void list_dtypes(void)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (dtype_unit(t) > 0) printf("  %-20s %zu bytes, unit roundoff %.3g\n", dtype_name(t), dtype_size(t), dtype_unit(t));
}

static const struct { const char *name, *title; void (*print)(void); } parts[] = {
    { "models", "Models (--model)", list_models },
    { "tensor", "Tensor parallelism, over tp (--tensor)", list_tensor },
    { "data", "Data parallelism, over dp (--data-parallel)", list_data },
    { "schedules", "Pipeline schedules, over pp (--schedule)", list_schedules },
    { "collectives", "Collectives (--allreduce)", list_collectives },
    { "optimizers", "Optimizers (--optimizer)", list_optimizers },
    { "clusters", "Clusters, whose time the virtual clock tells (--cluster)", list_clusters },
    { "dtypes", "Number formats (--dtype)", list_dtypes },
};
enum { PARTS = sizeof parts / sizeof *parts };

enum error_code command_list(int argc, char **argv, int *status, struct error *err)
{
    const char *what = NULL, *names[PARTS + 1] = { NULL };
    bool help;
    (void)status;
    for (int i = 0; i < PARTS; i++) names[i] = parts[i].name;
    const struct option table[] = {
        { "WHAT", NULL, OPTION_CHOICE, &what, .choices = names, .help = "one part of the list; default: all of it" },
        { 0 }
    };
    enum error_code e = options_parse("list", argc - 2, argv + 2, table, &help, err);
    if (e) return e;
    if (help) {
        print_usage("list", "[WHAT]", "Show everything registered, by the names that the other commands take.", table);
        return OK;
    }
    for (int i = 0; i < PARTS; i++) {
        if (what && strcmp(what, parts[i].name) != 0) continue;
        printf("%s%s\n", i > 0 && !what ? "\n" : "", parts[i].title);
        parts[i].print();
    }
    return OK;
}
