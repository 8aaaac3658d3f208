/* report_tables.c -- the tables of `orrery train`: memory and messages, one line for all devices that are alike.
 * run/plan.c, report_end.c, run/session.c and report_json.c call these functions.  No function returns an error
 * code. */
#include "emulated_devices/run/report/report.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices that are alike -------------------------------------------------------------------------------------- */

enum { NUMBERS_MOST = 2 * TRAFFIC_KIND_COUNT > 8 ? 2 * TRAFFIC_KIND_COUNT : 8, SHOWN_RANKS = 40, SHOWN_PLACE = 120 };

/* A device's numbers, what tells printed ones apart, and its rank. */
struct device_numbers { uint64_t number[NUMBERS_MOST], printed[NUMBERS_MOST]; int rank; };

/* Devices whose printed numbers are equal, and that fill a part of the mesh: some coordinates on each axis, in every
 * combination. */
struct device_box { const struct device_numbers *like; char ranks[SHOWN_RANKS], place[SHOWN_PLACE]; };

struct box_list { const struct mesh *mesh; struct device_box *of; int count; };

static int by_numbers(const void *a, const void *b)
{
    const struct device_numbers *x = a, *y = b;
    for (int i = 0; i < NUMBERS_MOST; i++)
        if (x->printed[i] != y->printed[i]) return x->printed[i] < y->printed[i] ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_first_rank(const void *a, const void *b)
{
    const int x = ((const struct device_box *)a)->like->rank, y = ((const struct device_box *)b)->like->rank;
    return (x > y) - (x < y);
}

/* The coordinates of some devices on an axis, as marks. @return how many there are. */
static int mark_coordinates(const struct mesh *mesh, enum axis axis, const struct device_numbers *numbers, int n,
                            bool *marked)
{
    int count = 0;
    memset(marked, 0, sizeof *marked * (size_t)mesh->size[axis]);
    for (int i = 0; i < n; i++) {
        bool *mark = &marked[mesh_coordinate(mesh, numbers[i].rank, axis)];
        count += !*mark;
        *mark = true;
    }
    return count;
}

/* Text such as "pp=0", "tp=1-7", "dp=0,2-3". */
static int describe_coordinates(const struct mesh *mesh, enum axis axis, const bool *marked, char *text, size_t size)
{
    int used = snprintf(text, size, "%s=", axis_name(axis));
    for (int first = 0, last, n = 0; first < mesh->size[axis] && used < (int)size; first = last + 1) {
        last = first;
        if (!marked[first]) continue;
        while (last + 1 < mesh->size[axis] && marked[last + 1]) last++;
        used += snprintf(text + used, size - (size_t)used, "%s%d", n++ ? "," : "", first);
        if (last > first && used < (int)size) used += snprintf(text + used, size - (size_t)used, "-%d", last);
    }
    return used;
}

/* Ranks "3", "0-7", "0, 8, .."; places "pp=0 tp=1-7", or "pp=0 tp=0, all 256 dp" where the ranks do not say so. */
static void describe_box(struct device_box *box, const struct mesh *mesh, const struct device_numbers *numbers, int n,
                         bool *marked)
{
    const bool neighbours = numbers[n - 1].rank - numbers[0].rank == n - 1;
    int used = 0;
    box->like = numbers;
    box->place[0] = '\0';
    if (n == 1) snprintf(box->ranks, SHOWN_RANKS, "%d", numbers[0].rank);
    else if (neighbours) snprintf(box->ranks, SHOWN_RANKS, "%d-%d", numbers[0].rank, numbers[n - 1].rank);
    else snprintf(box->ranks, SHOWN_RANKS, "%d, %d%s", numbers[0].rank, numbers[1].rank, n > 2 ? ", .." : "");
    for (enum axis a = 0; a < AXIS_COUNT && used < SHOWN_PLACE - 2; a++) {
        if (mesh->size[a] == 1 || mark_coordinates(mesh, a, numbers, n, marked) == mesh->size[a]) continue;
        if (used) box->place[used++] = ' ';
        used += describe_coordinates(mesh, a, marked, box->place + used, (size_t)(SHOWN_PLACE - used));
    }
    for (enum axis a = 0; a < AXIS_COUNT && used < SHOWN_PLACE && !neighbours; a++)
        if (mesh->size[a] > 1 && mark_coordinates(mesh, a, numbers, n, marked) == mesh->size[a])
            used += snprintf(box->place + used, (size_t)(SHOWN_PLACE - used), "%sall %d %s", used ? ", " : "",
                             mesh->size[a], axis_name(a));
    if (box->place[0] == '\0') snprintf(box->place, SHOWN_PLACE, "%s", mesh->devices > 1 ? "all" : "the only device");
}

/* Add n devices whose printed numbers are equal, in order of rank.  Those that are no box are cut by their coordinates
 * on the first axis on which they differ. */
static void add_boxes(struct box_list *list, struct device_numbers *numbers, int n, bool *marked)
{
    const struct mesh *m = list->mesh;
    enum axis cut = AXIS_COUNT;
    int64_t combinations = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const int count = mark_coordinates(m, a, numbers, n, marked);
        if (count > 1 && cut == AXIS_COUNT) cut = a;
        combinations *= count;
    }
    if (combinations == n) {
        describe_box(&list->of[list->count++], m, numbers, n, marked);
        return;
    }
    for (int first = 0, end; first < n; first = end) {          /* ranks are in order of the first such axis */
        const int at = mesh_coordinate(m, numbers[first].rank, cut);
        for (end = first + 1; end < n && mesh_coordinate(m, numbers[end].rank, cut) == at; end++) continue;
        add_boxes(list, numbers + first, end - first, marked);
    }
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* A table: each column has bytes, or in the last ones bytes and pieces; a device's numbers are in this order. */
struct number_table {
    const char *what, *in;              /* "peak memory of each device", "and messages" */
    const char *const *names;
    int sizes, pairs;
    void (*fill)(const struct plan *, const struct device_report *, uint64_t *number);
};

static bool is_bytes(const struct number_table *table, int k)
{
    return k < table->sizes || (k - table->sizes) % 2 == 0;
}

static uint64_t most_bytes(const struct number_table *table, const struct device_numbers *numbers, int n)
{
    uint64_t most = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < table->sizes + 2 * table->pairs; k++)
            if (is_bytes(table, k) && numbers[i].number[k] > most) most = numbers[i].number[k];
    return most;
}

/* Bytes as digits of their scale; what is not 0 is not printed as 0. */
static void round_numbers(struct device_numbers *numbers, const struct number_table *table,
                          const struct figure_scale *scale)
{
    const double digit = scale->per * pow(10, -scale->decimals);
    for (int k = 0; k < table->sizes + 2 * table->pairs; k++) {
        numbers->printed[k] = numbers->number[k];
        if (is_bytes(table, k) && numbers->number[k] > 0)
            numbers->printed[k] = 1 + (uint64_t)llround((double)numbers->number[k] / digit);
    }
}

static void print_row(struct columns *columns, const struct number_table *table, const struct device_box *box,
                      const struct figure_scale *scale)
{
    const uint64_t *number = box->like->number, *pair = number + table->sizes;
    columns_add(columns, RIGHT_ALIGNED, "%s", box->ranks);
    columns_add(columns, LEFT_ALIGNED, "%s", box->place);
    for (int k = 0; k < table->sizes; k++)
        columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(scale, (double)number[k]).text);
    for (int k = 0; k < table->pairs; k++)
        columns_add(columns, RIGHT_ALIGNED, "%s in %llu", scale_format(scale, (double)pair[2 * k]).text,
                    (unsigned long long)pair[2 * k + 1]);
    columns_end_row(columns);
}

static void print_boxes(FILE *out, const struct number_table *table, const struct box_list *list,
                        const struct figure_scale *scale)
{
    struct columns c = columns_start(out);
    c.keys = 2;
    fprintf(out, "\n%s, in %s%s\n", table->what, strcmp(scale->name, "B") == 0 ? "bytes" : scale->name, table->in);
    do {
        columns_add(&c, RIGHT_ALIGNED, "devices");
        columns_add(&c, LEFT_ALIGNED, "where");
        for (int k = 0; k < table->sizes + table->pairs; k++) columns_add(&c, RIGHT_ALIGNED, "%s", table->names[k]);
        columns_end_row(&c);
        for (int i = 0; i < list->count; i++) print_row(&c, table, &list->of[i], scale);
    } while (columns_again(&c));
}

static void print_table(const struct train_record *record, const struct number_table *table)
{
    const struct mesh *m = &record->options->plan.mesh;
    struct device_numbers *d = calloc((size_t)m->devices, sizeof *d);
    bool *marked = calloc((size_t)m->devices, sizeof *marked);
    struct box_list list = { m, calloc((size_t)m->devices, sizeof *list.of), 0 };
    if (d && marked && list.of) {
        for (int i = 0; i < m->devices; i++) {
            d[i].rank = i;
            table->fill(&record->options->plan, &record->device[i], d[i].number);
        }
        const struct figure_scale scale = size_scale(most_bytes(table, d, m->devices));
        for (int i = 0; i < m->devices; i++) round_numbers(&d[i], table, &scale);
        qsort(d, (size_t)m->devices, sizeof *d, by_numbers);
        for (int first = 0, end; first < m->devices; first = end) {
            for (end = first + 1; end < m->devices; end++)
                if (memcmp(d[first].printed, d[end].printed, sizeof d->printed) != 0) break;
            add_boxes(&list, d + first, end - first, marked);
        }
        qsort(list.of, (size_t)list.count, sizeof *list.of, by_first_rank);
        print_boxes(record->out, table, &list, &scale);
    } else fprintf(record->out, "\n%s: no memory for the table\n", table->what);
    free(d), free(marked), free(list.of);
}

/* ---- what they show ---------------------------------------------------------------------------------------------- */

static void fill_memory(const struct plan *plan, const struct device_report *report, uint64_t *number)
{
    (void)plan;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) number[tag] = report->peak.tag[tag];
    number[ARENA_TAG_COUNT] = report->peak.total;
}

static void fill_tier(const struct plan *plan, const struct device_report *report, uint64_t *number)
{
    const uint64_t all[] = { report->offloaded.weights, report->offloaded.gradients, report->offloaded.optimizer,
                            report->activations_away,
                             report->tier.bytes_read, report->tier.reads, report->tier.bytes_written,
                                 report->tier.writes };
    (void)plan;
    memcpy(number, all, sizeof all);
}

/* The axis over which each kind of scheme sends; encoders: over all. */
static const struct { enum traffic_kind kind; enum axis axis; const char *title; } kind_axis[] = {
    { TRAFFIC_PIPELINE, PP, "pipeline pp" },  { TRAFFIC_DATA, DP, "data dp" },
    { TRAFFIC_ATTENTION, CP, "attention cp" },
    { TRAFFIC_EXPERTS, EP, "experts ep" },    { TRAFFIC_TENSOR, TP, "tensor tp" },
    { TRAFFIC_ENCODERS, AXIS_COUNT, "encoders" },
};
enum { KINDS_WITH_AXIS = sizeof kind_axis / sizeof *kind_axis };

enum axis report_axis_of(enum traffic_kind kind)
{
    for (int i = 0; i < KINDS_WITH_AXIS; i++)
        if (kind_axis[i].kind == kind) return kind_axis[i].axis;
    return AXIS_COUNT;
}

/* Devices that share sequences have the same weights, whose gradients they add up; copies of experts may be on devices
 * that are no copies of all else. */
static bool sends_kind(const struct plan *plan, int i)
{
    const enum traffic_kind kind = kind_axis[i].kind;
    if (kind == TRAFFIC_EXPERTS) return plan_ep(plan) * plan_etp(plan) > 1;
    if (kind == TRAFFIC_ENCODERS) return plan->encoders.kinds > 0;
    return plan->mesh.size[kind_axis[i].axis] > 1 ||
           (kind == TRAFFIC_DATA
            && (plan->mesh.size[CP] > 1 || (plan_cuts_experts(plan) && plan_expert_copies(plan) > 1)));
}

static void fill_traffic(const struct plan *plan, const struct device_report *report, uint64_t *number)
{
    for (int i = 0; i < KINDS_WITH_AXIS; i++) {
        if (!sends_kind(plan, i)) continue;
        const struct traffic all = ledger_kind(&report->counted, kind_axis[i].kind);
        *number++ = all.bytes_sent, *number++ = all.messages_sent;
    }
}

void report_memory(const struct train_record *record)
{
    static const char *const memory[] = { "weights", "gradients", "optimizer", "activations", "buffers", "in all" };
    static const char *const tier[] = { "weights", "gradients", "optimizer", "activations", "read", "written" };
    print_table(record, &(struct number_table){ "peak memory of each device", "", memory, ARENA_TAG_COUNT + 1, 0,
                                           fill_memory });
    if (plan_has_tier(&record->options->plan))
        print_table(record, &(struct number_table){ "slow tier of each device: stored, read and written",
                                                   " and operations",
                                               tier, 4, 2, fill_tier });
}

void report_traffic(const struct train_record *record)
{
    const char *titles[KINDS_WITH_AXIS] = { NULL };
    int n = 0;
    if (record->options->plan.mesh.devices == 1) return;
    for (int i = 0; i < KINDS_WITH_AXIS; i++)
        if (sends_kind(&record->options->plan, i)) titles[n++] = kind_axis[i].title;
    print_table(record, &(struct number_table){ "sent by each device", " and messages", titles, 0, n, fill_traffic });
}
