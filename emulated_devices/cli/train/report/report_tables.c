/* report_tables.c -- the tables of `orrery train`: memory and messages, one line for neighbours that are alike. */
#include "emulated_devices/cli/train/train.h"
#include "ref/io/columns.h"
#include <stdio.h>
#include <string.h>

static bool same_memory(const struct device_report *a, const struct device_report *b)
{
    return a->parameters == b->parameters && memcmp(&a->peak, &b->peak, sizeof a->peak) == 0;
}

static bool same_tier(const struct device_report *a, const struct device_report *b)
{
    return memcmp(&a->offloaded, &b->offloaded, sizeof a->offloaded) == 0 &&
           a->activations_away == b->activations_away &&
           memcmp(&a->tier, &b->tier, sizeof a->tier) == 0;
}

static bool same_traffic(const struct device_report *a, const struct device_report *b)
{
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++) {
        const struct traffic one = ledger_kind(&a->counted, kind), other = ledger_kind(&b->counted, kind);
        if (one.messages_sent != other.messages_sent || one.bytes_sent != other.bytes_sent) return false;
    }
    return true;
}

/* Print the coordinates that devices first .. last have in common. */
static void print_place(struct columns *t, const struct mesh *m, int first, int last)
{
    char place[64] = "";
    int used = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        bool shared = m->size[a] > 1;
        for (int d = first; d <= last; d++) shared = shared && mesh_coordinate(m, d, a) == mesh_coordinate(m, first, a);
        if (shared)
            used += snprintf(place + used, sizeof place - (size_t)used, "%s%s=%d", used ? " " : "", axis_name(a),
                             mesh_coordinate(m, first, a));
    }
    if (first == last) columns_add(t, RIGHT_ALIGNED, "%d", first);
    else columns_add(t, RIGHT_ALIGNED, "%d-%d", first, last);
    columns_add(t, LEFT_ALIGNED, "%s", used ? place : m->devices > 1 ? "all" : "the only device");
}

static void head(struct columns *t, const char *const *names)
{
    columns_add(t, RIGHT_ALIGNED, "devices");
    columns_add(t, LEFT_ALIGNED, "where");
    for (; *names; names++) columns_add(t, RIGHT_ALIGNED, "%s", *names);
    columns_end_row(t);
}

static void size(struct columns *t, uint64_t bytes) { columns_add(t, RIGHT_ALIGNED, "%s", size_format(bytes).text); }

static void size_in(struct columns *t, uint64_t bytes, uint64_t pieces)
{
    columns_add(t, RIGHT_ALIGNED, "%s in %llu", size_format(bytes).text, (unsigned long long)pieces);
}

/* A table with a row for each range of devices with equal values. */
static void print_ranges(const struct train_record *r, const char *const *names,
                         bool (*same)(const struct device_report *, const struct device_report *),
                         void (*row)(struct columns *, const struct plan *, const struct device_report *))
{
    const struct mesh *m = &r->options->plan.mesh;
    struct columns t = columns_start(r->out);
    t.keys = 2;
    do {
        head(&t, names);
        for (int first = 0, last; first < m->devices; first = last + 1) {
            for (last = first; last + 1 < m->devices && same(&r->device[first], &r->device[last + 1]); last++) continue;
            print_place(&t, m, first, last);
            row(&t, &r->options->plan, &r->device[first]);
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

static void memory_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    (void)p;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) size(t, x->peak.tag[tag]);
    size(t, x->peak.total);
}

static void tier_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    (void)p;
    size(t, x->offloaded.weights);
    size(t, x->offloaded.gradients);
    size(t, x->offloaded.optimizer);
    size(t, x->activations_away);
    size_in(t, x->tier.bytes_read, x->tier.reads);
    size_in(t, x->tier.bytes_written, x->tier.writes);
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
static bool sends_kind(const struct plan *p, int i)
{
    const enum traffic_kind kind = kind_axis[i].kind;
    if (kind == TRAFFIC_EXPERTS) return plan_ep(p) * plan_etp(p) > 1;
    if (kind == TRAFFIC_ENCODERS) return p->encoders.kinds > 0;
    return p->mesh.size[kind_axis[i].axis] > 1 ||
           (kind == TRAFFIC_DATA && (p->mesh.size[CP] > 1 || (plan_cuts_experts(p) && plan_expert_copies(p) > 1)));
}

static void traffic_row(struct columns *t, const struct plan *p, const struct device_report *x)
{
    for (int i = 0; i < KINDS_WITH_AXIS; i++) {
        if (!sends_kind(p, i)) continue;
        const struct traffic all = ledger_kind(&x->counted, kind_axis[i].kind);
        size_in(t, all.bytes_sent, all.messages_sent);
    }
}

void report_memory(const struct train_record *r)
{
    static const char *const memory[] = { "weights",     "gradients", "optimizer",
                                          "activations", "buffers",   "in all", NULL };
    static const char *const tier[] = { "weights", "gradients", "optimizer", "activations", "read", "written", NULL };
    fprintf(r->out, "\npeak memory of each device, in bytes\n");
    print_ranges(r, memory, same_memory, memory_row);
    if (!plan_has_tier(&r->options->plan)) return;
    fprintf(r->out, "\nslow tier of each device: stored, read and written, in bytes and operations\n");
    print_ranges(r, tier, same_tier, tier_row);
}

void report_traffic(const struct train_record *r)
{
    const struct mesh *m = &r->options->plan.mesh;
    const char *titles[KINDS_WITH_AXIS + 1] = { NULL };
    int n = 0;
    if (m->devices == 1) return;
    for (int i = 0; i < KINDS_WITH_AXIS; i++)
        if (sends_kind(&r->options->plan, i)) titles[n++] = kind_axis[i].title;
    fprintf(r->out, "\nsent by each device, in bytes and messages\n");
    print_ranges(r, titles, same_traffic, traffic_row);
}
