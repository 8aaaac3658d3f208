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

/* The numbers of a class of devices, what tells printed ones apart, and the class's number. */
struct device_numbers { uint64_t number[NUMBERS_MOST], printed[NUMBERS_MOST]; int class; };

/* Devices whose printed numbers are equal, and that fill a part of the mesh: some coordinates on each axis, in every
 * combination. */
struct device_box { const struct device_numbers *like; int first; char ranks[SHOWN_RANKS], place[SHOWN_PLACE]; };

/* marked: [the longest axis] coordinates of a box. */
struct box_list {
    const struct plan *plan;
    const struct folding *folding;
    struct device_box *of;
    int count;
    bool *marked;
};

static int by_numbers(const void *a, const void *b)
{
    const struct device_numbers *x = a, *y = b;
    for (int i = 0; i < NUMBERS_MOST; i++)
        if (x->printed[i] != y->printed[i]) return x->printed[i] < y->printed[i] ? -1 : 1;
    return (x->class > y->class) - (x->class < y->class);
}

static int by_first_rank(const void *a, const void *b)
{
    const int x = ((const struct device_box *)a)->first, y = ((const struct device_box *)b)->first;
    return (x > y) - (x < y);
}

/* The coordinate of a class on an axis, that of the device that ran. */
static int class_coordinate(const struct folding *folding, int class, enum axis axis)
{
    return mesh_coordinate(&folding->mesh, folding_first(folding, class), axis);
}

/* Mark the coordinates of classes of devices on an axis. @return how many of the axis's classes there are. */
static int mark_coordinates(const struct box_list *list, enum axis axis, const struct device_numbers *numbers, int n)
{
    const struct folding *f = list->folding;
    bool *marked = list->marked;
    int count = 0;
    memset(marked, 0, sizeof *marked * (size_t)f->mesh.size[axis]);
    for (int i = 0; i < n; i++) {
        bool *mark = &marked[class_coordinate(f, numbers[i].class, axis)];
        count += !*mark;
        *mark = true;
    }
    /* All devices of a class are where its first one is, modulo the classes of the axis. */
    for (int i = f->first ? 0 : f->every[axis]; i < f->mesh.size[axis]; i++)
        marked[i] = marked[f->first ? folding_stands_for(f, i) : i - f->every[axis]];
    return count;
}

/* Text such as "pp=0", "tp=1-7", "dp=0,2-3". */
static int describe_coordinates(const struct mesh *mesh, enum axis axis, const bool *marked, char *text, size_t size)
{
    enum { RANGES = 8 };
    int used = snprintf(text, size, "%s=", axis_name(axis));
    for (int first = 0, last, n = 0; first < mesh->size[axis] && used < (int)size; first = last + 1) {
        last = first;
        if (!marked[first]) continue;
        if (n == RANGES) return used + snprintf(text + used, size - (size_t)used, ",..");
        while (last + 1 < mesh->size[axis] && marked[last + 1]) last++;
        used += snprintf(text + used, size - (size_t)used, "%s%d", n++ ? "," : "", first);
        if (last > first && used < (int)size) used += snprintf(text + used, size - (size_t)used, "-%d", last);
    }
    return used;
}

/* The lowest and the highest rank of a box, and the rank after the lowest; the number of its devices is returned. */
static int box_ranks(const struct box_list *list, const struct device_numbers *numbers, int n, int *second, int *last)
{
    const struct folding *f = list->folding;
    const int first = folding_first(f, numbers[0].class);
    int step = f->mesh.devices;
    *last = folding_first(f, numbers[n - 1].class);
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        int next = 0;
        mark_coordinates(list, a, numbers, n);
        /* Along each axis the last device of the box is the last marked one. */
        for (int c = 0; c < f->mesh.size[a]; c++)
            if (list->marked[c]) *last = mesh_neighbour(&f->mesh, *last, a, c);
        for (next = mesh_coordinate(&f->mesh, first, a) + 1; next < f->mesh.size[a]; next++)
            if (list->marked[next]) break;
        const int by = next < f->mesh.size[a] ? mesh_neighbour(&f->mesh, first, a, next) - first : step;
        if (by < step) step = by;
    }
    *second = first + step;
    return n * folding_share(f);
}

/* With sections devices are on stages, not at coordinates: "stage 1", "stages 0-2". */
static void describe_stages(const struct box_list *list, struct device_box *box, const struct device_numbers *numbers,
                            int n)
{
    const int first = plan_place(list->plan, folding_first(list->folding, numbers[0].class)),
        last = plan_place(list->plan, folding_first(list->folding, numbers[n - 1].class));
    if (first == last) snprintf(box->place, SHOWN_PLACE, "stage %d", first);
    else snprintf(box->place, SHOWN_PLACE, "stages %d-%d", first, last);
}

/* Ranks "3", "0-7", "0, 8, .."; places "pp=0 tp=1-7", or "pp=0 tp=0, all 256 dp" where the ranks do not say so. */
static void describe_box(const struct box_list *list, struct device_box *box, const struct device_numbers *numbers,
                         int n)
{
    const struct folding *f = list->folding;
    const struct mesh *mesh = &f->mesh;
    int used = 0, last, second;
    const int devices = box_ranks(list, numbers, n, &second, &last), first = folding_first(f, numbers[0].class);
    const bool neighbours = last - first == devices - 1;
    box->like = numbers, box->first = first;
    box->place[0] = '\0';
    if (devices == 1) snprintf(box->ranks, SHOWN_RANKS, "%d", first);
    else if (neighbours) snprintf(box->ranks, SHOWN_RANKS, "%d-%d", first, last);
    else snprintf(box->ranks, SHOWN_RANKS, "%d, %d%s", first, second, devices > 2 ? ", .." : "");
    if (list->plan->sections) {
        describe_stages(list, box, numbers, n);
        return;
    }
    for (enum axis a = 0; a < AXIS_COUNT && used < SHOWN_PLACE - 2; a++) {
        if (mesh->size[a] == 1 || mark_coordinates(list, a, numbers, n) == f->every[a]) continue;
        if (used) box->place[used++] = ' ';
        used += describe_coordinates(mesh, a, list->marked, box->place + used, (size_t)(SHOWN_PLACE - used));
    }
    for (enum axis a = 0; a < AXIS_COUNT && used < SHOWN_PLACE && !neighbours; a++)
        if (mesh->size[a] > 1 && mark_coordinates(list, a, numbers, n) == f->every[a])
            used += snprintf(box->place + used, (size_t)(SHOWN_PLACE - used), "%sall %d %s", used ? ", " : "",
                             mesh->size[a], axis_name(a));
    if (box->place[0] == '\0') snprintf(box->place, SHOWN_PLACE, "%s", mesh->devices > 1 ? "all" : "the only device");
}

/* Add n classes whose printed numbers are equal, in their order.  Those that are no box are cut by their coordinates
 * on the first axis on which they differ. */
static void add_boxes(struct box_list *list, const struct device_numbers *numbers, int n)
{
    enum axis cut = AXIS_COUNT;
    int64_t combinations = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const int count = mark_coordinates(list, a, numbers, n);
        if (count > 1 && cut == AXIS_COUNT) cut = a;
        combinations *= count;
    }
    if (combinations == n) {
        describe_box(list, &list->of[list->count++], numbers, n);
        return;
    }
    for (int first = 0, end; first < n; first = end) {          /* classes are in order of the first such axis */
        const int at = class_coordinate(list->folding, numbers[first].class, cut);
        for (end = first + 1; end < n; end++)
            if (class_coordinate(list->folding, numbers[end].class, cut) != at) break;
        add_boxes(list, numbers + first, end - first);
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
    const struct folding *f = &record->folded.folding;
    const int lives = folding_lives(f);
    struct device_numbers *d = calloc((size_t)lives, sizeof *d);
    struct box_list list = { &record->options->plan, f, calloc((size_t)lives, sizeof *list.of), 0,
                             calloc((size_t)f->mesh.devices, sizeof *list.marked) };
    if (d && list.marked && list.of) {
        for (int i = 0; i < lives; i++) {
            d[i].class = i;
            table->fill(&record->options->plan, &record->device[i], d[i].number);
        }
        const struct figure_scale scale = size_scale(most_bytes(table, d, lives));
        for (int i = 0; i < lives; i++) round_numbers(&d[i], table, &scale);
        qsort(d, (size_t)lives, sizeof *d, by_numbers);
        for (int first = 0, end; first < lives; first = end) {
            for (end = first + 1; end < lives; end++)
                if (memcmp(d[first].printed, d[end].printed, sizeof d->printed) != 0) break;
            add_boxes(&list, d + first, end - first);
        }
        qsort(list.of, (size_t)list.count, sizeof *list.of, by_first_rank);
        print_boxes(record->out, table, &list, &scale);
    } else fprintf(record->out, "\n%s: no memory for the table\n", table->what);
    free(d), free(list.marked), free(list.of);
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
    /* With sections: a kind that one of them sends; stages and sections send on the pipeline's. */
    for (int s = 0; plan->sections && s < plan->sections->count; s++)
        if (kind == TRAFFIC_PIPELINE || sends_kind(&plan->sections->at[s], i)) return true;
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
