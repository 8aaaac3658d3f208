/* report_check.c -- the comparison with the reference: the first failure, its place and size, then the worst of each
 * kind.  run/golden.c, report_end.c and report_json.c call these functions. */
#include "emulated_devices/run/report/report.h"
#include "ref/io/columns.h"
#include "ref/io/json.h"
#include "ref/io/pair.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

/* Without bounds a single element says most: where it is, both numbers, and how far they are apart. */
static void print_element(FILE *out, const struct comparison *comparison)
{
    const struct apart_element *const e = &comparison->first.element;
    if (!comparison->exact || comparison->first.of_file || comparison->number || !e->there) return;
    say(out, 12, "  element   [%lld, %lld]%s: %.9g, not %.9g; %.6g unit%s of the grid, 2^%d", (long long)e->row,
        (long long)e->column, strstr(comparison->first_kind, "activation") ? " of the device's part" : "", e->actual,
        e->truth, e->units, e->units == 1 || e->units == -1 ? "" : "s", e->unit);
}

/* Describe the failure in detail, to help find the wrong line of code. */
static void print_failure(FILE *out, const struct comparison *comparison, const struct plan *plan)
{
    const struct worst *f = &comparison->first;
    const struct evidence *on = &comparison->where.on;
    char text[160];
    const struct pair_text two = pair_text('e', 2, f->error, f->bound);
    fprintf(out, "\nfirst to differ, in order of execution: %s%s%s, step %lld\n",
            comparison->number ? "" : comparison->first_kind,
            comparison->number ? "" : " ", f->tensor, (long long)f->step);
    if (f->of_file)
        say(out, 12, "  device    none: the one-device run with exact sums is not what the golden file has");
    else if (!comparison->number)
        fprintf(out, "  device    %d (%s)\n", f->rank, mesh_describe(&plan->mesh, f->rank, text, sizeof text));
    if (comparison->expert[0] != comparison->expert[1])
        say(out, 12, "  it is     expert %d; the score of expert %d is larger by %s; rounding explains %s",
            comparison->expert[1], comparison->expert[0], two.first, two.second);
    else fprintf(out, "  error     %s, norm over norm; its bound is %s\n", two.first, two.second);
    print_element(out, comparison);
    if (!comparison->number && !f->of_file && plan->mesh.devices > 1)
        say(out, 12, "  wrong on  %s: %d of the %d devices that have it",
            diagnose_place(text, sizeof text, &plan->mesh, on), devices_count(&on->failing),
            devices_count(&on->holding));
    if (!f->of_file && diagnose_scale(text, sizeof text, &plan->mesh, plan->micros, on)[0])
        say(out, 12, "  it is     %s", text);
    if (comparison->before[0]) say(out, 12, "  before    the last right tensor is %s", comparison->before);
    if (comparison->from[0]) say(out, 12, "  made by   %s", comparison->from);
    fprintf(out, "  in all    %lld of %lld comparisons do not hold\n", (long long)comparison->wrong,
            (long long)comparison->compared);
}

static bool failed(const struct train_record *record) { return record->comparison.failed || record->encoders.code; }

static const char *report_check_verdict(char *text, size_t size, const struct train_record *record)
{
    if (record->comparison.failed && record->comparison.first.of_file)
        return "FAILED: one device does not compute what the golden file has.";
    if (failed(record)) return "FAILED: the plan does not compute what one device computes.";
    if (record->divergence.what) return "DIVERGED: no error was found in the plan, but the loss or norm is not finite.";
    if (!comparison_holds(&record->comparison)) {
        snprintf(text, size, "NOT ENOUGH: ");
        comparison_unjudged(text + strlen(text), size - strlen(text), &record->comparison, &record->options->plan);
        return text;
    }
    if (record->options->infers) return "OK: every activation and loss of every device is what one device computes.";
    if (record->options->plan.optimizer->forward_only)
        return "OK: both losses, the slope and every weight of every device are what one device computes.";
    if (record->comparison.exact) {
        snprintf(text, size, "OK: every activation, gradient%s of every device is what one device computes, compared "
                 "with ==, sums before they round%s.%s",
                 record->comparison.loss_rounds ? " and weight" : ", weight and loss",
                 record->comparison.loss_rounds ? "; so is the loss, but for the rounding of its routers' part" : "",
                 record->comparison.beside_file
                     ? " What one device computes is within the bounds of the golden file." : "");
        return text;
    }
    if (!data_quantises(&record->options->plan.data))
        return "OK: every activation, gradient, weight and loss of every device is what one device computes.";
    return "OK: every activation, gradient, weight and loss of every device is what one device computes with weights "
           "quantised alike; what quantising has done to gradients is within its proven bound, element by element.";
}

static void print_worst(struct columns *columns, const char *kind, const struct worst *worst)
{
    if (worst->tensor[0] == '\0') return;
    columns_add(columns, LEFT_ALIGNED, "%s", kind);
    if (worst->of_file) columns_add(columns, RIGHT_ALIGNED, "one");         /* the one-device run */
    else columns_add(columns, RIGHT_ALIGNED, "%d", worst->rank);
    columns_add(columns, RIGHT_ALIGNED, "%lld", (long long)worst->step);
    columns_add(columns, RIGHT_ALIGNED, "%.1e", worst->error);
    columns_add(columns, RIGHT_ALIGNED, "%.1e", worst->bound);
    columns_add(columns, LEFT_ALIGNED, "%s", worst->tensor);
    columns_end_row(columns);
}

/* The worst of each kind, by error over bound. */
static void print_all_worst(FILE *out, const struct comparison *comparison)
{
    static const char *const heads[] = { "device", "step", "error", "bound" };
    struct columns t = columns_start(out);
    const struct worst *w;
    const char *name;
    t.keys = 1;
    do {
        columns_add(&t, LEFT_ALIGNED, "kind");
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) columns_add(&t, RIGHT_ALIGNED, "%s", heads[i]);
        columns_add(&t, LEFT_ALIGNED, "tensor");
        columns_end_row(&t);
        for (int i = 0; (w = comparison_kind(comparison, i, &name)) != NULL; i++) print_worst(&t, name, w);
    } while (columns_again(&t));
}

/* Choices of a mixture that rounding explains; any other is the first failure. */
static void print_choices(FILE *out, const struct comparison *comparison)
{
    if (comparison->choices_differ == 0 || comparison->choice.ratio > 1) return;
    say(out, 9, "\nrouting: %lld of %lld choices differ from the one-device run, each within the rounding of its "
        "logits (largest margin %.1e, bound %.1e)", (long long)comparison->choices_differ,
        (long long)comparison->choices, comparison->choice.error, comparison->choice.bound);
}

void report_check(const struct train_record *record)
{
    const struct comparison *c = &record->comparison;
    char text[500];
    if (c->failed) print_failure(record->out, c, &record->options->plan);
    if (c->diverged)
        say(record->out, 0, "the one-device run is not finite either; first, in order of execution: %s, step %lld",
            spread_name(text, sizeof text, &c->divergence), (long long)c->divergence.step);
    say(record->out, 0, "\nlargest differences from %s, norm over norm, of %lld tensors compared", record->truth,
        (long long)c->compared);
    print_all_worst(record->out, c);
    print_choices(record->out, c);
    if (c->exact && c->shown > 0)
        say(record->out, 9, "\nsums     %lld of %lld activations and their gradients were compared before they were "
            "rounded, too", (long long)c->unrounded, (long long)c->shown);
    fprintf(record->out, "\n");
    if (comparison_warning(text, sizeof text, c, &record->options->plan)[0]) say(record->out, 9, "warning: %s", text);
    if (c->failed && c->unjudged > 0)
        say(record->out, 0, "%s", comparison_unjudged(text, sizeof text, c, &record->options->plan));
    say_verdict(record->out, failed(record) || record->divergence.what || !comparison_holds(c) ? BAD_NEWS : GOOD_NEWS,
                report_check_verdict(text, sizeof text, record));
    fflush(record->out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *add_worst_ratio(cJSON *to, const char *name, const struct worst *worst)
{
    cJSON *o = worst_add(to, name, worst);
    json_add(o, "ratio %g", worst->ratio);
    return o;
}

static void add_first(cJSON *check, const struct comparison *comparison, const struct plan *plan)
{
    char text[160];
    cJSON *first = add_worst_ratio(check, "first", &comparison->first);
    json_add(first, "kind %s before %s wrong_on %s", comparison->first_kind, comparison->before,
             diagnose_place(text, sizeof text, &plan->mesh, &comparison->where.on));
    json_add(first, "scale %s", diagnose_scale(text, sizeof text, &plan->mesh, plan->micros, &comparison->where.on));
    if (comparison->exact && comparison->first.element.there) {
        const struct apart_element *const e = &comparison->first.element;
        json_add(first, "row %g column %g actual %g expected %g", (double)e->row, (double)e->column, e->actual,
                 e->truth);
        json_add(first, "units %g unit_exponent %d", e->units, e->unit);
    }
    cJSON *devices = cJSON_AddArrayToObject(first, "devices");
    for (int d = 0; d < plan->mesh.devices; d++)
        if (devices_have(&comparison->where.on.failing, d)) cJSON_AddItemToArray(devices, cJSON_CreateNumber(d));
}

void report_check_json(const struct train_record *record, cJSON *root)
{
    const struct comparison *c = &record->comparison;
    const struct worst *w;
    const char *name;
    cJSON *check = json_add(cJSON_AddObjectToObject(root, "check"), "holds %hhd compared %g wrong %g"
                            " cannot_be_judged %g warned %g", comparison_holds(c) && !c->diverged, (double)c->compared,
                            (double)c->wrong, (double)c->unjudged, (double)c->warned);
    if (c->unjudged > 0) json_add(add_worst_ratio(check, "first_unjudged", &c->open), "kind %s", c->open_kind);
    if (c->warned > 0) json_add(add_worst_ratio(check, "widest", &c->wide), "kind %s", c->wide_kind);
    for (int i = 0; (w = comparison_kind(c, i, &name)) != NULL; i++)
        add_worst_ratio(check, strcmp(name, "their gradients") == 0 ? "activation_gradients"
                               : strcmp(name, "as quantised") == 0  ? "as_quantised" : name, w);
    if (c->exact) json_add(check, "before_rounding %g", (double)c->unrounded);
    if (c->choices > 0) {
        cJSON *routing = add_worst_ratio(check, "routing", &c->choice);
        json_add(routing, "choices %g differ %g", (double)c->choices, (double)c->choices_differ);
    }
    if (c->failed) add_first(check, c, &record->options->plan);
    if (!c->diverged) return;
    json_add(cJSON_AddObjectToObject(check, "reference_diverged"), "step %g kind %s tensor %s",
             (double)c->divergence.step, c->divergence.kind, c->divergence.tensor);
}
