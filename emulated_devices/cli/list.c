/* list.c -- `orrery list`: everything registered. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/plan.h"
#include <stdio.h>
#include <string.h>

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
