/* list.c -- `orrery list`: prints everything that is registered: schemes, models, optimizers, backends.  main.c calls
 * command_list().  Errors: ERR_USAGE for a name that is no list, ERR_FILE of the standard output. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/shared_words.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "emulated_devices/search/likes.h"
#include "emulated_devices/search/planner.h"
#include "emulated_devices/train/memory_of/profile.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/optim/conventions.h"
#include "ref/optim/loss_scale.h"
#include "ref/routers/router.h"
#include "ref/io/document.h"
#include "ref/io/terminal.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEFT = 23, MOST_NAMES = 400 };

/* This holds what of the list is wanted, and where it is. */
static struct {
    bool brief;                         /* a line for each entry */
    const char *only;                   /* entries of this name; NULL: all */
    bool silent;                        /* names are collected; nothing is printed */
    bool shown;                         /* of the entry in work */
    const char *part, *title, *group;   /* title and group: NULL if they are printed already */
    const char *name[MOST_NAMES];       /* of all entries so far */
    int names, found;
    cJSON *row, *fields;                /* of the entry, in the document of --json */
} now;

/* Titles are printed with the first entry below them. */
static void print_titles(void)
{
    if (now.title) printf("%s%s\n", now.found > 0 ? "\n" : "", now.title);
    if (now.group) printf("\n%s\n", now.group);
    now.title = now.group = NULL;
}

static void group(const char *name) { now.group = now.brief ? NULL : name; }

/* As much of a description as a line has room for. */
static void print_one_line(const char *name, const char *description)
{
    const int columns = terminal_columns(stdout), wide = (int)strlen(name) + 3,
              room = (columns > 0 ? columns : 100) - (wide > LEFT ? wide : LEFT);
    int n = (int)strlen(description);
    if (n <= room) printf("  %-20s %s\n", name, description);
    else {
        for (n = room - 3; n > 0 && description[n] != ' ';) n--;
        printf("  %-20s %.*s...\n", name, n > 0 ? n : room - 3, description);
    }
}

/* Print a name and its description; fields follow below. */
static void entry(const char *name, const char *description)
{
    if (now.names < MOST_NAMES) now.name[now.names++] = name;
    now.shown = !now.silent && (now.only == NULL || strcmp(now.only, name) == 0);
    now.row = now.fields = NULL;
    if (!now.shown) return;
    print_titles();
    now.found++;
    if (document_table("entries")) {
        now.row = document_row();
        json_add(now.row, "part %s name %s description %s", now.part, name, description);
        now.fields = cJSON_AddArrayToObject(now.row, "fields");
    }
    if (description[0] == '\0') printf("  %s\n", name);
    else if (now.brief) print_one_line(name, description);
    else {
        printf("  %-20s ", name);
        print_wrapped(stdout, LEFT, description);
    }
}

static void field(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void field(const char *fmt, ...)
{
    char text[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (now.fields) cJSON_AddItemToArray(now.fields, cJSON_CreateString(text));
    if (!now.shown || now.brief) return;
    printf("%*s", LEFT, "");
    print_wrapped(stdout, LEFT, text);
}

/* The algorithms that auto chooses on 8 devices, by bytes of the vector (for an all-to-all, of what one device
 * sends). */
static void describe_auto(enum operation op)
{
    enum { P = 8, SIZES = 5 };
    static const int64_t bytes[SIZES] = { 64, 16 << 10, 256 << 10, 4 << 20, 64 << 20 };
    const struct algorithm *last = NULL;
    struct cluster usual;
    if (cluster_find(&usual, CLUSTER_USUAL, NULL) != OK) return;
    char text[1000];
    int used = snprintf(text, sizeof text, "the least time; on %d devices of cluster %s:", P, usual.name);
    for (int i = 0; i < SIZES; i++) {
        const struct collective c = { .count = bytes[i] / 4 / (op == ALLTOALL ? P : 1), .dtype = F32 };
        const struct algorithm *a = algorithm_choose(op, P, &c, &usual);
        if (a == last) continue;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %s", last ? "," : "", a->name);
        if (op != BARRIER)
            used += snprintf(text + used, sizeof text - (size_t)used, " from %s", size_format((uint64_t)bytes[i]).text);
        last = a;
    }
    entry(ALGORITHM_AUTO, text);
}

/* To choose takes seconds: each algorithm is tried, with segments of several lengths. */
static void list_auto(enum operation op)
{
    const bool asked = now.only && strcmp(now.only, ALGORITHM_AUTO) == 0;
    if (asked) describe_auto(op);
    else entry(ALGORITHM_AUTO, "the least time; `orrery list auto` tries which algorithms that takes");
}

static void explain_auto(void)
{
    entry(ALGORITHM_AUTO, "for every operation: the algorithm that takes the least time on the cluster's links. "
                          "Up to 64 devices each one is tried without numbers; beyond, its cost function predicts "
                          "the time. Nothing is measured: docs/plans/virtual_clock.md");
}

static void list_collectives(void)
{
    explain_auto();
    for (int op = 0; op < OPERATION_COUNT; op++) {
        bool any = false;
        for (const struct algorithm *const *a = algorithms; *a; a++) {
            if ((*a)->operation != (enum operation)op) continue;
            if (!any) group(operation_name(op));
            entry((*a)->name, (*a)->description);
            field((*a)->needs ? "needs %s" : "%s", (*a)->needs ? (*a)->needs : "takes any group");
            field("cost %s", (*a)->cost_formula[0] ? (*a)->cost_formula : "not known");
            if ((*a)->order != ADDS_NOTHING) field("adds %s", adding_order_name((*a)->order));
            field("from %s", (*a)->source);
            any = true;
        }
        if (any) list_auto((enum operation)op);
    }
}

/* List a kind's schemes by their heads; more: prints fields of the kind's own type. */
static void list_schemes(enum scheme_kind kind, const char *memory, void (*more)(const struct scheme *))
{
    const struct scheme *s;
    for (int i = 0; (s = scheme_at(kind, i)) != NULL; i++) {
        entry(s->name, s->description);
        if (s->needs) field("needs %s", s->needs);
        if (s->volume) field("sends %s", s->volume);
        if (more) more(s);
        if (s->memory) field("%s %s", memory, s->memory);
        field("equals %s", equality_meaning(s->equality));
        for (const struct invariant *v = s->invariants; v && v->name; v++) field("holds %s", v->sentence);
        field("from %s", s->source);
    }
}

static void list_attention(void) { list_schemes(ATTENTION_SCHEME, "memory", NULL); }
static void list_experts(void) { list_schemes(EXPERT_SCHEME, "memory", NULL); }
static void list_spatial(void) { list_schemes(SPATIAL_SCHEME, "memory", NULL); }
static void list_tensor(void)
{
    (void)sbp_schemes_add(NULL);                                /* without memory they are missing */
    list_schemes(TENSOR_SCHEME, "memory", NULL);
}

/* Options of every scheme that shards something. */
static void list_quantising(void)
{
    entry("--quantize-weights",
          "int8 or int4: weights are gathered as codes, with one scale per --quantize-block elements; all devices, the "
          "owner included, compute with the dequantised values");
    field("sends bits/8 + 4/block bytes an element instead of the format's size");
    field("memory a master copy beside the optimizer's state, if weights are gathered after the step");
    field("from ZeRO++ (qwZ), arXiv:2306.10209; codes and scales are those of DeepSpeed 0.19.8");
    entry("--quantize-gradients", "int8 or int4: gradients are reduced by all-to-alls of codes, inside nodes and then "
                                  "between them; sums of fp16 are made in fp16, all others in fp32 or fp64");
    field("sends bits/8 + 4/block bytes an element; n/q of n elements leave a node of q devices");
    field("memory two buffers of codes of the unit that is being reduced");
    field("from ZeRO++ (qgZ), arXiv:2306.10209; codes and scales are those of DeepSpeed 0.19.8");
}

/* Options of every scheme. */
static void list_offload(void)
{
    entry("--offload WHAT", "optimizer state, gradients, weights or activations on a slow tier: the host's memory, or "
                            "one file per device (--offload-to)");
    field("moves weights: a read for each gather, a write a step, and without masters a read for the step; gradients: "
          "a write and a "
          "read a step, both once more for each further backward pass; optimizer state: a read and a write a step. n/P "
          "of each, on each device's own link");
    field("memory weights: two parts and the shards of two; gradients: one part and a shard; optimizer state: three "
          "slices (--offload-slice)");
    field("activations: what layers keep, but for the last two of a stage, leaves after forward and comes back before "
          "backward; moves each byte once each way a microbatch; memory two layers, and those that stay");
    field("experts: only a mixture's experts leave; the rest stays as its data scheme shards it, and is gathered over "
          "the network while experts come over the link to the host");
    field("--chosen-experts, in orrery infer: a read for each expert that a router has chosen, and for no other; "
          "memory the experts of a layer");
    field("--offload-stride K: the device steps every Kth slice, the host the others at the same time");
    field("from ZeRO-Infinity, arXiv:2104.07857; ZeRO-Offload, arXiv:2101.06840; Deep Optimizer States, "
          "arXiv:2410.21316; activations: ByteScale, arXiv:2502.21231; experts: MoESys, arXiv:2205.10034");
}

/* Options of schemes that gather weights before use. */
static void list_tiles(void)
{
    entry("--tiles T", "each matrix as T ranges of outputs, which are gathered, used, reduced and stepped one after "
                       "the other; for schemes that "
                       "gather weights before use, and for --offload weights; with tp of each device's piece");
    field("sends what the scheme sends, and gathers the output matrix and the matrices of recomputed layers once more");
    field("memory weights: two tiles, and the norms and biases of a layer or two; gradients: a tile, and the norms and "
          "biases of its layer");
    field("from ZeRO-Infinity, arXiv:2104.07857, section 5.1.3");
}

static void list_data(void)
{
    list_schemes(DATA_SCHEME, "memory", NULL);
    list_quantising();
    list_offload();
    list_tiles();
}

static void bubble(const struct scheme *scheme)
{
    field("bubble %s", ((const struct schedule_generator *)scheme)->bubble);
}

static void list_schedules(void) { list_schemes(PIPELINE_SCHEME, "holds", bubble); }

static void list_optimizers(void)
{
    for (const struct optimizer *const *o = optimizers; *o; o++) {
        entry((*o)->name, (*o)->description);
        if ((*o)->forward_only) field("two forward passes a step; keeps and sends no gradients");
        if ((*o)->memory) field("keeps %s", (*o)->memory);
        else field("keeps %d tensor%s for each parameter", (*o)->states, plural((*o)->states));
        field("from %s", (*o)->source);
    }
}

static void list_routers(void)
{
    for (const struct router *const *r = routers; *r; r++) {
        const struct router_rule *rule = &(*r)->rule;
        entry((*r)->name, (*r)->description);
        field("%s", (*r)->formula);
        if (rule->scale != 1) field("scale %g", rule->scale);
        if (rule->groups > 1)
            field("groups %lld, of which %lld are kept; with few experts fewer", (long long)rule->groups,
                  (long long)rule->kept);
        field("from %s", (*r)->source);
    }
}

static void list_models(void)
{
    for (const struct model_preset *m = model_presets; m->config.name[0]; m++) {
        const struct model_config *c = &m->config;
        entry(c->name, m->description);
        field("L=%lld H=%lld D=%lld F=%lld V=%lld S=%lld", (long long)c->L, (long long)c->H, (long long)c->D,
              (long long)c->F, (long long)c->V, (long long)c->S);
    }
}

static void list_links(const struct cluster *cluster)
{
    for (int l = 0; l < cluster->levels; l++) {
        const struct link *k = &cluster->link[l];
        char gap[96] = "", eager[96] = "", devices[32] = "";
        if (k->gap > 0)
            snprintf(gap, sizeof gap, ", each message occupies a port for %s more", picoseconds_exact(k->gap).text);
        if (k->eager != ALWAYS_EAGER)
            snprintf(eager, sizeof eager, ", above %s a message waits for its receiver", size_format(k->eager).text);
        if (k->devices > 0) snprintf(devices, sizeof devices, "; %d devices", k->devices);
        field("%-8s %s, %g GB/s%s%s%s%s", k->level, picoseconds_exact(k->latency).text, (double)k->rate * 1e-3, gap,
              eager, devices, k->reduces ? "; switches add" : "");
        field("from %s", k->source);
    }
}

static void list_device(const struct cluster *cluster)
{
    char text[400] = "";
    int used = 0;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (cluster->flop_rate[t] > 0)
            used += snprintf(text + used, sizeof text - (size_t)used, " %s %g TFLOP/s,", dtype_name(t),
                             (double)cluster->flop_rate[t] * 1e-6);
    if (cluster->memory_rate > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, " memory %g GB/s",
                         (double)cluster->memory_rate * 1e-3);
    if (cluster->memory > 0)
        snprintf(text + used, sizeof text - (size_t)used, "%s of %s", cluster->memory_rate > 0 ? "" : " memory",
                 memory_format(cluster->memory).text);
    field("device  %s%s", cluster->flop_rate[F32] == 0 ? " computing takes no time" : "", text);
}

static void list_kernels(const struct kernels *kernels)
{
    if (kernels->table != NULL)
        field("kernels of %s, by the table %s; `orrery list kernels`", kernels->set->name, kernels->table->name);
    if (kernels->source[0] == '\0') return;
    if (kernels->table != NULL)
        field("of the table's shares, computing reaches %g %%, memory %g %%", (double)kernels->products_scale / 10,
              (double)kernels->memory_scale / 10);
    else if (kernels->units == 0) field("kernels %s each", picoseconds_exact(kernels->launch).text);
    else
        field("kernels %lld units of %lld x %lld; %g %% of operations, half at depth %lld; %g %% of memory; %s each",
              (long long)kernels->units, (long long)kernels->tile_rows, (long long)kernels->tile_columns,
              (double)kernels->matrix_permille / 10, (long long)kernels->half_depth,
              (double)kernels->memory_permille / 10, picoseconds_exact(kernels->launch).text);
    field("from %s", kernels->source);
}

/* List what `orrery plan` replays. */
static void list_replayed(const struct cluster *cluster)
{
    for (int i = 0; i < cluster->shares; i++) {
        char text[300];
        field("shared   %s: %s", cluster->shared[i].name,
              shared_words(cluster, &cluster->shared[i], text, sizeof text));
        field("from %s", cluster->shared[i].source);
    }
    if (cluster->contention.compute_percent > 0) {
        field("computing takes %lld %% of its time beside messages", (long long)cluster->contention.compute_percent);
        field("from %s", cluster->contention.source);
    }
    for (int i = 0; i < cluster->overlap.collectives; i++)
        field("computing takes %lld %% of its time beside %s", (long long)cluster->overlap.collective[i].percent,
              cluster->overlap.collective[i].name);
    if (cluster->overlap.collectives > 0) field("from %s", cluster->overlap.source);
    if (cluster->no_progress) field("messages that wait for their receivers move only while neither device computes");
}

static void list_host(const struct cluster *cluster)
{
    const struct host *h = &cluster->host;
    if (h->source[0] == '\0') return;
    if (h->issue.source[0])
        field("host    starts a kernel in %s, a compiled one in %s; %s a step besides",
              picoseconds_exact(h->issue.kernel[ISSUE_EAGER]).text,
              picoseconds_exact(h->issue.kernel[ISSUE_COMPILED]).text, picoseconds_exact(h->issue.step).text),
            field("from %s", h->issue.source);
    field("host    copies %g GB/s, fp32 %g TFLOP/s, memory %g GB/s, drive %g GB/s; for each device",
          (double)cluster->copy_rate * 1e-3, (double)h->flop_rate[F32] * 1e-6, (double)h->memory_rate * 1e-3,
          (double)h->drive_rate * 1e-3);
    field("from %s", h->source);
}

static void list_costs(const struct cluster *cluster)
{
    const struct costs *c = &cluster->costs;
    if (c->watts > 0) field("draws   %lld W a device, at most", (long long)c->watts);
    if (c->cents > 0) field("costs   %.2f US dollars for an hour of a device", (double)c->cents / 100);
    if (c->source[0]) field("from %s", c->source);
}

static void list_clusters(void)
{
    struct cluster c;
    for (int i = 0; cluster_texts[i]; i++) {
        char text[600];
        if (cluster_parse(&c, cluster_texts[i], "a shipped cluster", NULL) != OK) continue;
        snprintf(text, sizeof text, "%s%s", c.description, strcmp(c.name, CLUSTER_USUAL) == 0 ? " (default)" : "");
        entry(c.name, text);
        list_device(&c);
        field("from %s", c.source);
        list_kernels(&c.kernels);
        list_host(&c);
        list_costs(&c);
        list_links(&c);
        list_replayed(&c);
    }
}

static void list_frameworks(void)
{
    for (int i = 0; frameworks[i]; i++) {
        const struct framework *f = frameworks[i];
        char text[200];
        snprintf(text, sizeof text, "%s %s", f->title, f->release);
        entry(f->name, text);
        field("from %s", f->source);
    }
}

/* A class of a table: its error if each point is left out, and where its numbers come from. */
static void list_table_class(const char *name, int points, double error, const struct table_class *class)
{
    field("%s: %d points, %.1f %% mean error of each if it is left out", name, points, 100 * error);
    field("  %s", class->source);
    if (class->assumed[0]) field("  assumed: %s", class->assumed);
}

static void list_table(const struct kernel_table *table)
{
    int attention = 0;
    for (int i = 0; i < table->series; i++) attention += table->attention[i].line.count;
    entry(table->name, table->description);
    list_table_class("products", table->products, table_error_of_products(table), &table->of_products);
    list_table_class("attention", attention, table_error_of_attention(table), &table->of_attention);
    list_table_class("memory", table->memory.count, table_error_of_memory(table), &table->of_memory);
    field("starts: %s each, %s in a graph of kernels; %s", picoseconds_exact(table->launch).text,
          picoseconds_exact(table->graph_launch).text, table->source);
}

static void list_kernel_sets(void)
{
    static struct kernel_table table;
    for (int i = 0; kernel_set_at(i) != NULL; i++) {
        const struct kernel_set *set = kernel_set_at(i);
        entry(set->name, set->description);
        field("attention: %s%s%s; kernels start %s", set->attention[0], set->attentions > 1 ? ", or else " : "",
              set->attention[1], set->graphs ? "in graphs" : "one by one");
        field("%s", set->source);
        field("assumed: %s", set->assumed);
    }
    for (int i = 0; kernel_table_texts[i] != NULL; i++)
        if (kernel_table_parse(&table, kernel_table_texts[i], "a shipped table", NULL) == OK) list_table(&table);
}

static void list_planners(void)
{
    for (int i = 0; planner_at(i); i++) {
        const struct planner *p = planner_at(i);
        entry(p->name, p->description);
        if (p->most > 0) field("plans the %d most promising; of its winner: %s", p->most, p->promise);
        else field("plans all; of its winner: %s", p->promise);
        field("from %s", p->source);
    }
}

static void list_memory(void)
{
    for (int i = 0; memory_profile_at(i); i++) {
        const struct memory_profile *p = memory_profile_at(i);
        entry(p->name, p->title);
        field("prints %s", p->prints);
        field("from %s", p->source);
    }
}

/* The lists of each framework, as options of `orrery search` that limit it likewise. */
static void list_likes(void)
{
    for (int i = 0; like_at(i); i++) {
        const struct like *l = like_at(i);
        char text[600];
        size_t used = 0;
        for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
            if (l->only[d])
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? " " : "",
                                         plan_space_flag(d), l->only[d]);
        entry(l->name, text);
        field("from %s", l->source);
    }
}

static void list_backends(void)
{
    for (int i = 0; backends[i] != NULL; i++) entry(backends[i]->name, backends[i]->description);
}

/* A row for each convention: its value in every profile. */
static void list_profiles(void)
{
    for (int p = 0; p < PROFILES; p++) entry(profile_names[p], profile_packages[p]);
    for (int i = 0; i < CONVENTIONS; i++) {
        const struct convention_row *r = &convention_rows[i];
        char text[300];
        int used = 0;
        for (int p = 0; p < PROFILES; p++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", p ? ", " : "", profile_names[p],
                             convention_value((enum convention)i, r->value[p]).text);
        group("");
        entry(r->name, r->what);
        field("%s", text);
        field("from %s", r->source);
    }
    group("Losses, by name: --as PROFILE,LOSS");
    for (const struct loss_name *loss = loss_names; loss->name; loss++) {
        entry(loss->name, loss->what);
        field("%s", loss->rows);
        field("as %s", loss->source);
    }
}

static void list_dtypes(void)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (dtype_unit(t) == 0) continue;
        char text[80];
        snprintf(text, sizeof text, "%zu bytes, unit roundoff %.3g", dtype_size(t), dtype_unit(t));
        entry(dtype_name(t), text);
        if (dtype_wide(t) != (enum dtype)t)
            field("sums, statistics, masters and optimizer state in fp32%s", dtype_is_scaled(t) ? "; loss scaled" : "");
    }
}

/* Under each feature, those that it cannot be combined with. */
static void list_clashes(void)
{
    const struct clash *c, *before = NULL;
    for (int i = 0; (c = clash_at(i)) != NULL; before = c, i++) {
        char text[400];
        const bool first = before == NULL || before->one != c->one;
        clash_describe(c, text, sizeof text);
        if (first) entry(feature_name(c->one), "");
        field("%s", text);
    }
}

static const struct { const char *name, *title; void (*print)(void); } parts[] = {
    { "models", "Models (--model)", list_models },
    { "tensor", "Tensor parallelism, over tp (--tensor)", list_tensor },
    { "attention", "Context parallelism, over cp (--attention)", list_attention },
    { "dispatch", "Expert parallelism, over ep (--dispatch)", list_experts },
    { "routers", "Routers of mixtures of experts (--router)", list_routers },
    { "data", "Data parallelism, over dp (--data-parallel)", list_data },
    { "schedules", "Pipeline schedules, over pp (--schedule)", list_schedules },
    { "spatial", "Fields on the sphere, in tiles (orrery verify spatial)", list_spatial },
    { "collectives", "Collectives (--allreduce)", list_collectives },
    { "optimizers", "Optimizers (--optimizer)", list_optimizers },
    { "profiles", "Profiles, whose conventions a step has (--as), and the conventions", list_profiles },
    { "clusters", "Clusters for the virtual clock (--cluster)", list_clusters },
    { "kernels", "Kernels that programs run (--kernels-of), and tables of measured kernels", list_kernel_sets },
    { "planners", "Planners of orrery search (--planner)", list_planners },
    { "memory", "Memory profiles of orrery plan (--memory-of)", list_memory },
    { "frameworks", "Frameworks whose configurations orrery plan --from reads", list_frameworks },
    { "likes", "Frameworks whose schemes orrery search may be limited to (--like)", list_likes },
    { "backends", "Backends, which execute operations (--backend)", list_backends },
    { "dtypes", "Number formats (--dtype)", list_dtypes },
    { "clashes", "What cannot be combined", list_clashes },
};
enum { PARTS = sizeof parts / sizeof *parts };

static void list_part(int i)
{
    now.part = parts[i].name, now.title = parts[i].title;
    parts[i].print();
    now.title = now.group = NULL;
}

/* Entries with a name, of all parts. */
static enum error_code list_named(const char *word, struct error *err)
{
    const char *known[MOST_NAMES + PARTS];
    int n = 0;
    now.only = word;
    for (int i = 0; i < PARTS; i++) list_part(i);
    if (now.found > 0) return OK;
    for (int i = 0; i < PARTS; i++) known[n++] = parts[i].name;
    for (int i = 0; i < now.names; i++) known[n++] = now.name[i];
    return fail_unknown_name(err, "WHAT", word, known, (size_t)n);
}

enum error_code command_list(int argc, char **argv, int *status, struct error *err)
{
    const char *what = NULL;
    bool help;
    (void)status;
    const struct option table[] = {
        { "WHAT", NULL, OPTION_STRING, &what,
          .help = "a part of the list, or the name of an entry, for all that is known of the entry. Parts: "
                  "models, tensor, attention, dispatch, routers, data, schedules, spatial, collectives, "
                  "optimizers, profiles, clusters, kernels, planners, memory, frameworks, backends, dtypes, clashes; "
                  "default: a line for each entry of all parts" },
        { 0 }
    };
    enum error_code e = parse_command(
        "list", "[WHAT]", "List everything registered, by the names that other commands take.",
        argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    now.brief = what == NULL;
    for (int i = 0; i < PARTS; i++)
        if (what == NULL || strcmp(what, parts[i].name) == 0) {
            list_part(i);
            if (what) return OK;
        }
    return what ? list_named(what, err) : OK;
}
