/* sbp.c -- what a few signatures make of an MLP or a model's block: every operation, and what must travel for it.
 * show.c calls show_sbp().  Errors: ERR_USAGE or ERR_PLAN for words that do not fit, ERR_CHECK if a trial is wrong;
 * ERR_MEMORY. */
#include "emulated_devices/cli/show/sbp_svg.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"
#include "emulated_devices/draw/svg.h"
#include "emulated_devices/model/sbp/sbp_graph.h"
#include "emulated_devices/schemes/sbp/graph_file.h"
#include "emulated_devices/schemes/sbp/trial.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/model/families/families.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COSTS = 1 << 28 };

/* Sums in another order, in fp64. */
#define TRIAL_BOUND 1e-12

struct drawing { const struct sbp_graph *graph; const struct assignment *assignment; int64_t elements; };

/* "3x2" or "4" */
static enum error_code read_mesh(const char *text, struct sbp_mesh *sbp_mesh, struct error *err)
{
    char end;
    *sbp_mesh = (struct sbp_mesh){ .axes = 2, .size = { 0 } };
    if (sscanf(text, "%dx%d%c", &sbp_mesh->size[0], &sbp_mesh->size[1], &end) != 2) {
        *sbp_mesh = (struct sbp_mesh){ .axes = 1, .size = { 0, 1 } };
        if (sscanf(text, "%d%c", &sbp_mesh->size[0], &end) != 1)
            return fail(err, ERR_USAGE, "--mesh %s: must be like 4 or 2x2", printable(text).text);
    }
    for (int k = 0; k < sbp_mesh->axes; k++)
        if (sbp_mesh->size[k] < 2 || sbp_mesh->size[k] > 64)
            return fail(err, ERR_USAGE, "--mesh %s: an axis has 2 to 64 devices", printable(text).text);
    return OK;
}

/* A step of a journey, as collectives are called. */
static const char *step_name(const struct sbp_mesh *sbp_mesh, const struct boxing *boxing,
                             const struct boxing_step *step)
{
    static const char *const name[] = {
        [SUM_AND_SPLIT] = "reduce-scatter", [SUM_ALL] = "all-reduce", [MAKE_PARTIAL] = "zeros"
    };
    const bool gathers = step->kind == REDISTRIBUTE && step->from.on[0].kind == SBP_S && step->to.on[0].kind == SBP_B;
    return step->kind != REDISTRIBUTE   ? name[step->kind] : boxing->elements == 0        ? "cut"
           : sbp_mesh->axes == 1 && gathers ? "all-gather" : sbp_mesh->axes == 1            ? "all-to-all"
                                     : "redistribute";
}

const char *sbp_journey_text(const struct sbp_mesh *sbp_mesh, const struct boxing *boxing, char *text, size_t size)
{
    char to[SBP_TEXT];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < boxing->steps && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s %s", i ? "," : "",
                                 step_name(sbp_mesh, boxing, &boxing->step[i]),
                                 signature_text(sbp_mesh, boxing->step[i].to, to));
    return text;
}

/* A row for each operand, and for each operation's result. */
static void sbp_add_to_document(const struct drawing *drawing, int op, bool result, int tensor, const char *kept,
                                const struct boxing *boxing)
{
    char to[SBP_TEXT];
    if (!document_table("operands")) return;
    cJSON *row = json_add(document_row(), "operation %d operator %s result %hhd tensor %s signature %s elements %g", op,
                          drawing->graph->op[op].operator->name, result, drawing->graph->tensor[tensor].name, kept,
                          boxing->steps > 0 ? (double)boxing->elements : 0);
    cJSON *steps = cJSON_AddArrayToObject(row, "journey");
    for (int i = 0; i < boxing->steps; i++) {
        cJSON *step = json_add(cJSON_CreateObject(), "by %s to %s",
                               step_name(&drawing->assignment->mesh, boxing, &boxing->step[i]),
                               signature_text(&drawing->assignment->mesh, boxing->step[i].to, to));
        cJSON_AddItemToArray(steps, step);
    }
}

static void print_journey(void *context, int op, int operand, int tensor, const struct boxing *boxing)
{
    struct drawing *d = context;
    const struct sbp_op *o = &d->graph->op[op];
    char kept[SBP_TEXT], journey[160];
    const bool result = operand == o->inputs;
    signature_text(&d->assignment->mesh, result ? d->assignment->rule[op].out : d->assignment->tensor[tensor], kept);
    sbp_add_to_document(d, op, result, tensor, kept, boxing);
    if (operand == 0) printf("%s\n", o->operator->name);
    printf("  %-3s %-17s %-12s", result ? "->" : "", d->graph->tensor[tensor].name, kept);
    if (boxing->steps > 0)
        printf("%9lld %s", (long long)boxing->elements,
               sbp_journey_text(&d->assignment->mesh, boxing, journey, sizeof journey));
    printf("\n");
    d->elements += boxing->elements;
}

/* @return OK, or ERR_CHECK if the journeys drawn, what each device sends and what was searched for do
 * not add up to the same. */
static enum error_code print_summary(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                                     int64_t drawn, bool within, struct error *err)
{
    const bool timed = assignment->mesh.cluster != NULL;
    const char *less = timed ? "take less time" : "send less";
    char what[120];
    snprintf(what, sizeof what, within ? "of the corners of the frontier of %s and kept the first that fits"
                              : assignment->exact ? "no other signatures %s"
                                  : "of those looked at, no other signatures %s",
             within ? (timed ? "time" : "sent") : less);
    const int devices = sbp_devices(&assignment->mesh);
    int64_t most = 0, all = 0;
    for (int d = 0; d < devices; d++) {
        const int64_t sent = assignment_sent(sbp_graph, assignment, d);
        most = sent > most ? sent : most;
        all += sent;
    }
    say(stdout, 0, "\n%lld elements are sent by all %d devices together, at most %lld by one, and %lld of all tensors "
        "kept by the fullest; %s", (long long)assignment->elements, devices, (long long)most,
        (long long)assignment->kept, what);
    if (timed)
        say(stdout, 0, "%s on %s for all operations and journeys one after another, in fp64",
            picoseconds_format((double)assignment->time).text, assignment->mesh.cluster->name);
    if (document_data()) {
        json_add(document_data(), "devices %d elements %g most_elements %g kept_elements %g", devices,
                 (double)assignment->elements, (double)most, (double)assignment->kept);
        if (timed) json_add(document_data(), "predicted_ps %g", (double)assignment->time);
        json_add(document_data(), "is_least %hhd", assignment->exact && !within);
    }
    if (drawn == assignment->elements && all == assignment->elements) return OK;
    return fail(
        err, ERR_CHECK,
        "show sbp: wrong: the devices send %lld elements and the journeys drawn %lld, where the assignment counts %lld",
        (long long)all, (long long)drawn, (long long)assignment->elements);
}

/* This holds what is asked of a graph beside its signatures. */
struct wishes {
    const char *strategy, *pins, *save, *layout, *by, *cluster, *svg;
    bool run, panels;
    int kept;
};

/* Real numbers on devices of this process: what was counted there must be what was predicted. */
static enum error_code show_run(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                                const struct cluster *cluster, struct error *err)
{
    struct sbp_trial t;
    const enum error_code e = sbp_trial(sbp_graph, assignment, cluster, &t, err);
    if (e) return e;
    say(stdout, 0, "\nrun in fp64 with random numbers on %d devices: %llu bytes sent in %llu messages, at most %llu "
        "held by a device; %s on %s; %d tensors compared with one device, the furthest by %.1e (%s)",
        sbp_devices(&assignment->mesh), (unsigned long long)t.bytes, (unsigned long long)t.messages,
        (unsigned long long)t.peak, picoseconds_format((double)t.time).text, cluster->name, t.compared, t.off,
        sbp_graph->tensor[t.farthest].name);
    if (document_data()) {
        json_add(cJSON_AddObjectToObject(document_data(), "run"), "bytes %g messages %g peak_bytes %g virtual_ps %g"
                 " compared %d error %g", (double)t.bytes, (double)t.messages, (double)t.peak, (double)t.time,
                 t.compared, t.off);
    }
    if (t.bytes != (uint64_t)assignment->elements * sizeof(double))
        return fail(err, ERR_CHECK, "show sbp: wrong: the devices have sent %llu bytes, where %lld elements are "
                    "counted", (unsigned long long)t.bytes, (long long)assignment->elements);
    return t.off <= TRIAL_BOUND ? OK : fail(err, ERR_CHECK, "show sbp: wrong: %s is off by %.1e of what one device has",
                                       sbp_graph->tensor[t.farthest].name, t.off);
}

static enum error_code write_layout(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                                    const char *file, struct error *err)
{
    struct sbp_layout l;
    const enum error_code e = sbp_layout_of(&l, sbp_graph, &assignment->mesh, assignment->tensor, err);
    return e ? e : sbp_layout_write(&l, "found by orrery show sbp for a block; the vocabulary is cut", file, err);
}

static enum error_code show_graph(struct sbp_graph *sbp_graph, const struct wishes *wishes, struct sbp_mesh *sbp_mesh,
                                  struct error *err)
{
    struct cluster c;
    struct assignment *a = malloc(sizeof *a);
    if (a == NULL) return fail(err, ERR_MEMORY, "no memory for an assignment");
    enum error_code e = wishes->panels && !wishes->run ? fail(err, ERR_USAGE, "show sbp: --panels: is a way to --run")
                                             : cluster_find(&c, wishes->cluster, err);
    if (strcmp(wishes->by, "time") == 0) sbp_mesh->cluster = &c;
    if (!e) e = graph_strategy(sbp_graph, sbp_mesh, wishes->strategy, err);
    if (!e && wishes->pins) e = graph_read(sbp_graph, sbp_mesh, wishes->pins, err);
    if (!e)
        e = wishes->kept > 0 ? sbp_assign_within(sbp_graph, sbp_mesh, wishes->kept, MOST_COSTS, a, err)
                        : sbp_assign(sbp_graph, sbp_mesh, 0, MOST_COSTS, a, err);
    if (!e) {
        struct drawing d = { sbp_graph, a, 0 };
        printf("operation, signatures of its operands -> of its result; elements sent, and how\n\n");
        assignment_each(sbp_graph, a, print_journey, &d);
        e = print_summary(sbp_graph, a, d.elements, wishes->kept > 0, err);
    }
    a->panels = wishes->panels;
    if (!e && wishes->run) e = show_run(sbp_graph, a, &c, err);
    fflush(stdout);                     /* the file may be the standard output */
    if (!e && wishes->svg) e = svg_file(wishes->svg, sbp_svg, &(struct sbp_picture){ sbp_graph, a }, err);
    if (!e && wishes->layout) e = write_layout(sbp_graph, a, wishes->layout, err);
    if (!e && wishes->save) e = graph_write_pins(sbp_graph, a, wishes->save, err);
    free(a);
    return e;
}

enum { MOST_FAMILIES = 64 };

/* The shape of the first preset of a family; an MLP's is a GPT-2's. */
static enum error_code find_family(const char *name, struct model_config *config, struct error *err)
{
    const char *family = strcmp(name, "mlp") == 0 ? family_gpt2.name : name;
    const char *names[MOST_FAMILIES] = { "mlp" };
    int n = 1;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        *config = p->config;
        if (strcmp(config->family->name, family) == 0) return OK;
    }
    for (int f = 0; families[f] && n < MOST_FAMILIES; f++) names[n++] = families[f]->name;
    if (nearest_name(name, names, (size_t)n)) return fail_unknown_name(err, "show sbp", name, names, (size_t)n);
    return fail(err, ERR_USAGE, "show sbp %s: must be mlp or one of %s", printable(name).text, families_text().text);
}

struct sizes { int B, S, D, H, K, F; };

static enum error_code make_graph(struct sbp_graph *sbp_graph, const char *model, struct sizes sizes, bool tokens_split,
                                  struct error *err)
{
    struct model_config c;
    enum error_code e = find_family(model, &c, err);
    if (e) return e;
    c.S = sizes.S, c.D = sizes.D, c.H = sizes.H, c.K = sizes.K ? sizes.K : sizes.H, c.A = sizes.D / sizes.H,
        c.F = sizes.F;
    if (c.K != c.H && !family_allows(c.family, HAS_FEWER_KEYS))
        return fail(err, ERR_PLAN, "--kv-heads %d: a %s has as many key/value heads as heads", sizes.K, model);
    e = model_config_check(&c, err);
    if (e) return e;
    const struct node *table = strcmp(model, "mlp") == 0 ? sbp_mlp : model_program(&c)->block;
    return sbp_graph_of(sbp_graph, table, &c, sizes.B, sizes.S, tokens_split, err);
}

/* The name of a model has neither. */
static bool is_file(const char *model) { return strpbrk(model, "./") != NULL; }

enum error_code show_sbp(int argc, char **argv, int *status, struct error *err)
{
    const char *model = "mlp", *mesh = "2";
    static const char *const by[] = { "sent", "time", NULL };
    struct wishes w = { .strategy = "free", .by = by[0], .cluster = "a100-ethernet" };
    struct sizes z = { .B = 8, .S = 16, .D = 64, .H = 8, .F = 256 };
    bool help;
    (void)status;
    const struct option table[] = {
        { "MODEL|FILE", NULL, OPTION_STRING, &model,
          .help = "mlp, or the block of a family: gpt2, llama, qwen2, gptj; each with its backward pass; or a file "
                  "with a graph of your own: docs/parallelism/signatures.md" },
        { "--mesh", "P|PxQ", OPTION_STRING, &mesh, .help = "devices, in one axis or two" },
        { "--as", "NAME", OPTION_STRING, &w.strategy,
          .help = "dp, 1d, sp, 2d: the signatures of that scheme; free: search all" },
        { "--pins", "FILE", OPTION_STRING, &w.pins,
          .help = "more signatures that tensors must have, as lines of text" },
        { "--by", "WHAT", OPTION_CHOICE, &w.by, .choices = by,
          .help = "the least of what: elements sent, or time on --cluster, of operations and journeys one after "
                  "another, in fp64" },
        { "--kept", "N", OPTION_INT, &w.kept, .min = 0, .max = INT32_MAX,
          .help = "elements of all tensors together that a device may keep; 0: any" },
        { "--save", "FILE", OPTION_STRING, &w.save, .help = "write the signatures found, for --pins" },
        { "--layout", "FILE", OPTION_STRING, &w.layout,
          .help = "write those of a block for `orrery train --tensor sbp:FILE`" },
        SVG_OPTION(w.svg),
        { "--run", NULL, OPTION_SWITCH, &w.run,
          .help = "carry it out with random numbers, and compare every tensor with one device" },
        { "--panels", NULL, OPTION_SWITCH, &w.panels,
          .help = "with --run, on two axes: products by SUMMA, a panel of both factors after the other" },
        CLUSTER_OPTION(w.cluster, "whose virtual time --run shows, and --by time takes"),
        { "--batch", "B", OPTION_INT, &z.B, .min = 1, .max = 1 << 20, .help = "sequences" },
        { "--seq", "S", OPTION_INT, &z.S, .min = 1, .max = 1 << 20, .help = "tokens of each" },
        { "--width", "D", OPTION_INT, &z.D, .min = 1, .max = 1 << 20, .help = "model width" },
        { "--heads", "H", OPTION_INT, &z.H, .min = 1, .max = 1 << 10, .help = "attention heads; D must be a multiple" },
        { "--kv-heads", "K", OPTION_INT, &z.K, .min = 0, .max = 1 << 10,
          .help = "key/value heads of a llama; H must be a multiple; 0: H" },
        { "--ff", "F", OPTION_INT, &z.F, .min = 1, .max = 1 << 20, .help = "feed-forward width" },
        { 0 }
    };
    enum error_code e = parse_command(
        "show sbp", "[MODEL|FILE] [options]",
        "Show the split, broadcast and partial-sum signatures of a parallel graph, and their transfers.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    struct sbp_mesh m;
    struct sbp_graph g;
    e = read_mesh(mesh, &m, err);
    if (!e && is_file(model)) g = (struct sbp_graph){ 0 }, e = graph_read(&g, &m, model, err);
    else if (!e) e = make_graph(&g, model, z, strcmp(w.strategy, "sp") == 0, err);
    return e ? e : show_graph(&g, &w, &m, err);
}
