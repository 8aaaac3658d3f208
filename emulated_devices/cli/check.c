/* check.c -- `orrery check GOLDEN ACTUAL`: compares a program's tensors with a golden file.  main.c calls
 * command_check().  ERR_CHECK names the first wrong tensor, and ERR_USAGE a flag that does not fit; other errors are
 * those of reading files. */
#include "emulated_devices/cli/check_against.h"
#include "emulated_devices/cli/check_exact.h"
#include "emulated_devices/cli/check_first.h"
#include "emulated_devices/cli/check_found.h"
#include "emulated_devices/cli/check_operations.h"
#include "emulated_devices/cli/check_watch.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/installed.h"
#include "emulated_devices/draw/report/checked.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/file_kind.h"
#include "ref/io/output.h"
#include "ref/io/pair.h"
#include "ref/io/terminal.h"
#include "ref/optim/moments.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const formats[] = { "fp64", "fp32", "bf16", "fp16", NULL };

static enum error_code cli_check_parse(struct check_options *options, int argc, char **argv, struct error *err)
{
    const struct option table[] = {
        { "GOLDEN", NULL, OPTION_STRING, &options->golden, .required = true,
          .help = "a golden file; also the name of an installed one, as gpt2-tied; with --against it may be left "
                  "out" },
        { "ACTUAL", NULL, OPTION_STRING, &options->actual,
          .help = "a safetensors file with tensors of the same names, or a folder: of a dump that describes "
                  "itself (docs/checking/dumps.md), or of one file per rank" },
        { "--against", "B", OPTION_STRING, &options->against,
          .help = "compare ACTUAL with another dump B of the same program, and name the first tensor that differs by "
                  "more than rounding; without GOLDEN only the same bits are the same, and `check A B` says as "
                  "much" },
        { "--first", NULL, OPTION_SWITCH, &options->first,
          .help = "stop behind the first wrong tensor, and print that one alone" },
        { "--exact", NULL, OPTION_SWITCH, &options->exact,
          .help = "ACTUAL's sums do not round (--arithmetic exact): hold each operation to the bits that its own "
                  "inputs give (docs/checking/exact.md)" },
        { "--dtype", "NAME", OPTION_CHOICE, &options->dtype, .choices = formats,
          .help = "number format of the computation; default: the widest format in ACTUAL" },
        { "--sums", "NAME", OPTION_CHOICE, &options->sums, .choices = formats,
          .help = "number format in which products are summed; default: fp32, or fp64 with --dtype fp64" },
        { "--parts", "N", OPTION_INT, &options->parts, .min = 1, .max = 64,
          .help = "parts of a product that are stored and then added; default: as many as the mesh of the map "
                  "or dump has, for gradients of weights times its microbatches" },
        { "--fused", NULL, OPTION_SWITCH, &options->fused,
          .help = "hold each operation to one rounding: no step inside it stores its result" },
        { "--stored-norms", NULL, OPTION_SWITCH, &options->stored_norms,
          .help = "in 16 bits: accept norms that round the mean and the root of each row" },
        { "--stored-states", NULL, OPTION_SWITCH, &options->stored_states,
          .help = "in 16 bits: accept weights and moments that are kept in the format, without fp32 masters" },
        { "--map", "FILE", OPTION_STRING, &options->map,
          .help = "a JSON file that says how tensors are called and how they are cut (docs/checking/checking.md)" },
        { "--require", "KINDS", OPTION_STRING, &options->require,
          .help = "kinds of tensors that must be judged, with commas: loss, act, act-grad, grad, step; default: "
                  "more than loss" },
        { "--not-recorded", "PATTERNS", OPTION_STRING, &options->not_recorded,
          .help = "tensors that ACTUAL has not, with commas, as 'h.*.attn.rotated,*layers.3.*': they are then not "
                  "missing, and the verdict is about the others (docs/checking/partial.md)" },
        { "--as", "PROFILE", OPTION_STRING, &options->as,
          .help = "conventions of ACTUAL's steps and losses, PROFILE,LOSS,CONVENTION=VALUE,...: orrery "
                  "list profiles; a golden file by other conventions is refused" },
        { "--all", NULL, OPTION_SWITCH, &options->all, .help = "print a line for every tensor" },
        THREADS_OPTION,
        { "--json", "FILE", OPTION_STRING, &options->json,
          .help = "write all results as JSON; -: to standard output, and the report for people to standard error" },
        { "--page", "FILE", OPTION_STRING, &options->page,
          .help = "draw what was found on a page: the model in order of execution, and what is wrong first" },
        WATCH_OPTIONS(*options),
        { 0 }
    };
    return parse_command(
        "check", "GOLDEN ACTUAL [options], or [GOLDEN] A --against B, or A B",
        "Compare the tensors of another program with a golden file, and name the first wrong one.\n\n"
        "Each tensor is held to its own bound: what rounding in its format does to a one-device model.\n"
        "Each operation is held to one operation's rounding, computed from ACTUAL's own inputs.\n"
        "Each later pass is held to one pass's rounding, computed from ACTUAL's own weights before it.\n"
        "The exit status is 0 if all that ACTUAL has is right, 3 if something is\n"
        "wrong or cannot be judged, 1 if a file cannot be used.\n"
        "With --exact there are no bounds: bits are compared with ==.\n"
        "With --against it is 0 if both dumps are the same within rounding.",
        argc - 2, argv + 2, table, &options->help, err);
}

/* ---- for a person ------------------------------------------------------------------------------------------------ */

struct numbers { char text[140]; };

static struct numbers numbers_of(const struct checked *checked)
{
    struct numbers n;                           /* a NaN without its sign */
    const struct pair_text two = pair_text('e', 2, fabs(checked->error), checked->bound),
                           ratio = pair_text('g', 3, fabs(checked_ratio(checked)), 1);
    snprintf(n.text, sizeof n.text, "error %s, bound %s, error/bound %s", two.first, two.second, ratio.first);
    return n;
}

/* In 16 bits bounds are wide, and the first tensor outside its own may be far behind the mistake. */
static void print_first_by_itself(FILE *out, const struct single_result *result, const char *where)
{
    char text[300];
    say(out, 2, "first to be wrong by itself, in order of execution: %s, %s", result->name, result->made_by);
    if (where[0]) say(out, 12, "  only on   %s", where);
    say(out, 12, "  it is     %s", single_describe(result, text, sizeof text));
}

static void print_first(FILE *out, const struct verdicts *verdicts, const struct actual *actual)
{
    const struct check_result *r = verdicts->whole;
    const struct checked *c = &r->all[r->first];
    char text[300];
    say(out, 2, "first to differ, in order of execution: %s %s", c->name, finding_words(c->finding));
    if (c->why[0]) say(out, 12, "  why       %s", c->why);
    if (c->finding == DIFFERS || c->finding == NOT_FINITE) {
        say(out, 12, "  numbers   %s", numbers_of(c).text);
        if (actual->ranks > 1)
            say(out, 12, "  wrong on  %s: %d of the %d ranks that have it",
                    diagnose_place(text, sizeof text, &actual->mesh, c->on), devices_count(&c->on->failing),
                    devices_count(&c->on->holding));
        if (c->micros[0]) say(out, 12, "  in time   %s", c->micros);
        if (verdicts->first_is[0]) say(out, 12, "  it is     %s", verdicts->first_is);
        if (c->copies[0]) say(out, 12, "  copies    %s", c->copies);
        if (verdicts->copy.name[0] && verdicts->copy_of == r->first)
            say(out, 12, "  by itself %s", single_describe(&verdicts->copy, text, sizeof text));
    }
    for (int i = r->first - 1; i >= 0; i--)
        if (r->all[i].finding == HOLDS) {
            say(out, 12, "  before    %s holds", r->all[i].name);
            break;
        }
}

static void print_counts(FILE *out, const struct check_result *result)
{
    for (int f = 0; f < FINDING_COUNT; f++)
        if (result->found[f]) fprintf(out, "  %5d  %s\n", result->found[f], finding_words((enum finding)f));
    int apart = 0;
    for (int i = 0; i < result->count; i++) apart += result->all[i].copies[0] && result->all[i].finding == HOLDS;
    if (apart) fprintf(out, "  %5d  of them with copies that differ within rounding\n", apart);
    if (result->extras) say(out, 9, "  %5d  not golden: %s%s", result->extras, result->extra[0],
                            result->extras > 1 ? ", ..." : "");
}

static void check_print_all(FILE *out, const struct check_result *result, const struct singles *single)
{
    struct columns t = columns_start(out);
    do for (int i = 0; i < result->count; i++) {
        const struct checked *c = &result->all[i];
        const bool compared = c->finding == HOLDS || c->finding == DIFFERS;
        columns_add(&t, LEFT_ALIGNED, "%s", c->name);
        if (compared)
            columns_add(&t, LEFT_ALIGNED, "%s", numbers_of(c).text);
        else columns_add(&t, LEFT_ALIGNED, "%s", "");
        const struct single_result *by_itself = singles_find(single, c->name);
        if (c->finding != HOLDS) columns_add(&t, LEFT_ALIGNED, "%s", finding_words(c->finding));
        if (by_itself) columns_add(&t, LEFT_ALIGNED, "alone %s", operation_word(by_itself->verdict));
        columns_end_row(&t);
    } while (columns_again(&t));
}

/* The first wrong tensor; NULL: there is none. */
static const char *first_name(const struct verdicts *verdicts)
{
    const struct check_result *const r = verdicts->whole;
    return verdicts->first_by_itself ? verdicts->first_by_itself->name : r->first >= 0 ? r->all[r->first].name : NULL;
}

/* Steps are judged with the numbers that the golden file has, so a reader can hold them against the program's own. */
static void print_step_numbers(FILE *out, const struct golden *golden)
{
    char name[32];
    for (const char *at = golden_next_optimizer(golden, NULL, name); at; at = golden_next_optimizer(golden, at, name)) {
        const struct optimizer *optimizer;
        const struct hyperparameters h = golden_hyperparameters(golden, name);
        if (optimizer_find(&optimizer, name, NULL) != OK) continue;
        const struct moments_text moments = moments_format(optimizer, &h);
        if (moments.text[0])
            say(out, 8, "steps   %s, by the golden file: %s, weight decay %g, clip %g", name, moments.text,
                h.weight_decay, h.clip);
    }
}

void check_print(FILE *out, const struct check_options *options, const struct verdicts *verdicts,
                 const struct actual *actual)
{
    const struct check_result *r = verdicts->whole;
    const char *const first = first_name(verdicts);
    say(out, 8, "golden  %s", options->golden);
    say(out, 8, "actual  %s, %d file%s, computed in %s", options->actual, actual->files, plural(actual->files),
        dtype_name(verdicts->format));
    print_step_numbers(out, verdicts->golden);
    if (actual->program) say(out, 8, "program %s", printable(actual->program).text);
    if (actual->begins) say(out, 8, "begins  after step %lld, with its own weights and states",
                            (long long)actual->begins);
    if (actual->adapters.count)
        say(out, 8, "trains  %d low-rank adapter%s, and %d parameter%s whole; all other weights are frozen",
            actual->adapters.count, plural(actual->adapters.count), actual->adapters.trained,
            plural(actual->adapters.trained));
    fprintf(out, "\n");
    if (options->all) check_print_all(out, r, verdicts->single);
    if (verdicts->first_by_itself)
        print_first_by_itself(out, verdicts->first_by_itself,
                              verdicts->single->where[verdicts->first_by_itself - verdicts->single->all]);
    if (r->first >= 0) print_first(out, verdicts, actual);
    if (verdicts->first && first) {
        const struct single_result *const wrong = singles_find(verdicts->single, first);
        if (wrong && wrong->verdict == SINGLE_WRONG)
            operations_print_wrong(out, wrong, verdicts->single->where[wrong - verdicts->single->all]);
        check_first_print(out, first, verdicts->first);
        return;
    }
    if (r->worst >= 0)
        say(out, 2, "%s: %s, %s", r->first >= 0 ? "largest error/bound" : "nearest to its bound", r->all[r->worst].name,
            numbers_of(&r->all[r->worst]).text);
    fprintf(out, "\n");
    print_counts(out, r);
    fprintf(out, "\n");
    operations_print(out, verdicts->single, options->all);
    check_verdict_print(out, verdicts->verdict, &verdicts->kinds, first);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_checked(cJSON *list, const struct checked *checked, const struct single_result *by_itself,
                        const struct actual *actual)
{
    char text[160];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "tensor", checked->name);
    cJSON_AddBoolToObject(o, "fails", finding_fails(checked->finding));
    cJSON_AddStringToObject(o, "finding", finding_words(checked->finding));
    cJSON_AddStringToObject(o, "judged", judgement_words(judgement_of(checked, by_itself)));
    cJSON_AddNumberToObject(o, "bound", checked->bound);
    if (checked->why[0]) cJSON_AddStringToObject(o, "why", checked->why);
    if (checked->copies[0]) cJSON_AddStringToObject(o, "copies", checked->copies);
    if (checked->micros[0]) cJSON_AddStringToObject(o, "microbatches", checked->micros);
    if (!checked->compared || checked->finding == MISSHAPED) return;
    cJSON_AddNumberToObject(o, "error", checked->error);
    cJSON_AddNumberToObject(o, "ratio", checked_ratio(checked));
    cJSON_AddNumberToObject(o, "rank", checked->rank);
    if (!finding_fails(checked->finding)) return;
    cJSON_AddStringToObject(o, "wrong_on", diagnose_place(text, sizeof text, &actual->mesh, checked->on));
    cJSON_AddStringToObject(o, "scale", diagnose_scale(text, sizeof text, &actual->mesh, 1, checked->on));
}

cJSON *check_document(const struct verdicts *verdicts, const struct actual *actual)
{
    const struct check_result *r = verdicts->whole;
    cJSON *root = document_start("orrery check");
    cJSON_AddBoolToObject(root, "holds", check_verdict_holds(verdicts->verdict));
    cJSON_AddStringToObject(root, "verdict", check_verdict_word(verdicts->verdict));
    cJSON_AddNumberToObject(root, "not_judged", checked_kinds_of(&verdicts->kinds, NOT_JUDGED));
    cJSON_AddNumberToObject(root, "declared_not_recorded", verdicts->kinds.declared);
    cJSON_AddStringToObject(root, "dtype", dtype_name(verdicts->format));
    if (actual->begins) cJSON_AddNumberToObject(root, "begins", (double)actual->begins);
    cJSON_AddNumberToObject(root, "adapters", actual->adapters.count);
    if (r->first >= 0) cJSON_AddStringToObject(root, "first", r->all[r->first].name);
    if (r->worst >= 0) cJSON_AddStringToObject(root, "worst", r->all[r->worst].name);
    cJSON *list = cJSON_AddArrayToObject(root, "tensors"), *extra = cJSON_AddArrayToObject(root, "extra");
    for (int i = 0; i < r->count; i++)
        add_checked(list, &r->all[i], singles_find(verdicts->single, r->all[i].name), actual);
    for (int i = 0; i < r->extras; i++) cJSON_AddItemToArray(extra, cJSON_CreateString(r->extra[i]));
    operations_json(root, verdicts->single);
    if (verdicts->first) check_first_json(root, first_name(verdicts), verdicts->first);
    return root;
}

static enum error_code cli_check_write_json(const char *path, const struct verdicts *verdicts,
                                            const struct actual *actual, struct error *err)
{
    cJSON *root = check_document(verdicts, actual);
    enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* where: of struct singles. */
static enum error_code fail_by_itself(const struct single_result *result, const char *where, struct error *err)
{
    char text[300];
    return fail(err, ERR_CHECK, "%s is not what its own inputs give%s%s: %s", result->name,
                where[0] ? " on " : "", where, single_describe(result, text, sizeof text));
}

/* The wrong operation whose words the headline has: that of the tensor, or else the first with words; NULL: none. */
static const struct single_result *wrong_with_words(const struct singles *singles, const struct checked *checked)
{
    const struct single_result *const own = singles_find(singles, checked->name);
    const bool is_wrong = own && own->verdict == SINGLE_WRONG;
    if (checked->finding == NOT_FINITE || (is_wrong && own->mistake[0])) return is_wrong ? own : NULL;
    for (int i = 0; i < singles->count; i++)
        if (singles->all[i].verdict == SINGLE_WRONG && singles->all[i].mistake[0]) return &singles->all[i];
    return is_wrong ? own : NULL;
}

/* The first tensor that differs, and what is wrong with it, or with the operation that has made it wrong. */
static enum error_code fail_by_tensor(const struct singles *singles, const struct checked *checked, const char *why,
                                      struct error *err)
{
    char text[300];
    const struct single_result *const wrong = wrong_with_words(singles, checked);
    const char *const words = finding_words(checked->finding);
    if (wrong == NULL)
        return fail(err, ERR_CHECK, "%s %s%s%.250s", checked->name, words, why[0] ? ": " : "", why);
    single_describe(wrong, text, sizeof text);
    if (strcmp(wrong->name, checked->name) == 0) return fail(err, ERR_CHECK, "%s %s: %s", checked->name, words, text);
    return fail(err, ERR_CHECK, "%s %s; by itself %s is wrong first: %.200s", checked->name, words, wrong->name, text);
}

/* The first tensor that differs, where its copies do. */
static enum error_code fail_by_copies(const struct verdicts *verdicts, const struct actual *actual,
                                      const struct checked *checked, struct error *err)
{
    char text[300], place[160];
    const struct single_result *const wrong = wrong_with_words(verdicts->single, checked);
    /* Words say more than the place of a copy that nothing explains. */
    if (verdicts->copy.name[0] == 0 || (verdicts->copy.mistake[0] == 0 && wrong && wrong->mistake[0])) {
        snprintf(text, sizeof text, "and so do its copies: %.280s", checked->copies);
        return fail_by_tensor(verdicts->single, checked, text, err);
    }
    return fail(err, ERR_CHECK, "%s is not what its own inputs give on %s: %s", verdicts->copy.name,
                diagnose_place(place, sizeof place, &actual->mesh, verdicts->whole->all[verdicts->copy_of].on),
                single_describe(&verdicts->copy, text, sizeof text));
}

/* Say the first thing that is wrong. */
static enum error_code fail_by_first(const struct verdicts *verdicts, const struct actual *actual, struct error *err)
{
    const struct check_result *r = verdicts->whole;
    if (verdicts->first_by_itself)
        return fail_by_itself(verdicts->first_by_itself,
                              verdicts->single->where[verdicts->first_by_itself - verdicts->single->all], err);
    const struct checked *c = &r->all[r->first];
    if (c->finding == DIFFERS && c->apart) return fail_by_copies(verdicts, actual, c, err);
    if (c->finding == NOT_FINITE && c->on && actual->mesh.devices > 1) {
        char place[160];
        return fail(err, ERR_CHECK, "%s %s on %s", c->name, finding_words(c->finding),
                    diagnose_place(place, sizeof place, &actual->mesh, c->on));
    }
    /* Words about this tensor say more than those of an operation that computes with it later. */
    if ((c->finding == DIFFERS || c->finding == MISSING) && c->why[0])
        return fail(err, ERR_CHECK, "%s %s: %.250s", c->name, finding_words(c->finding), c->why);
    return fail_by_tensor(verdicts->single, c, c->why[0] ? c->why : verdicts->first_is, err);
}

enum error_code check_conclude(const struct verdicts *verdicts, const struct actual *actual, struct error *err)
{
    if (check_verdict_holds(verdicts->verdict)) return OK;
    return verdicts->verdict == CHECK_FAILED ? fail_by_first(verdicts, actual, err)
                                             : fail(err, ERR_CHECK, "%s", verdicts->lacking.text);
}

static enum error_code check_report(const struct check_options *options, const struct verdicts *verdicts,
                                    const struct actual *actual, struct error *err)
{
    check_print(options->json && strcmp(options->json, "-") == 0 ? stderr : stdout, options, verdicts, actual);
    enum error_code e = options->json
        ? fail_about(err, cli_check_write_json(options->json, verdicts, actual, err), "--json") : OK;
    if (!e) e = check_write_page(options, verdicts, actual, 0, err);
    return e ? e : check_conclude(verdicts, actual, err);
}

enum error_code check_write_page(const struct check_options *options, const struct verdicts *verdicts,
                                 const struct actual *actual, int64_t step, struct error *err)
{
    struct error why = { 0 };
    if (options->page == NULL) return OK;
    check_conclude(verdicts, actual, &why);
    const struct checked_page page = {
        .golden_path = options->golden, .actual_path = options->actual, .golden = verdicts->golden, .actual = actual,
        .whole = verdicts->whole, .single = verdicts->single, .step = step, .format = verdicts->format,
        .holds = check_verdict_holds(verdicts->verdict), .verdict = check_verdict_word(verdicts->verdict),
        .why = why.text,
        .first = first_name(verdicts)
    };
    return checked_page_write(options->page, &page, err);
}

static enum error_code check_compare(const struct check_options *options, const struct golden *golden,
                                     struct actual *actual, struct error *err)
{
    struct check_judged judged;
    struct verdicts v;
    enum error_code e = check_find(options, golden, actual, 0, &judged, &v, err);
    if (e) return e;
    e = check_report(options, &v, actual, err);
    check_judged_free(&judged);
    return e;
}

/* Compare ACTUAL with another dump. */
static enum error_code check_two(const struct check_options *options, const struct golden *golden,
                                 struct actual *actual, struct error *err)
{
    struct actual other;
    enum error_code e = fail_about(err, actual_open(&other, options->against, NULL, err), "--against");
    if (e) return e;
    const struct check_against two = {
        .golden = golden, .golden_path = options->golden, .path = { options->actual, options->against },
        .actual = { actual, &other }, .setting = { check_setting_of(options, golden, actual),
                                                   check_setting_of(options, golden, &other) },
        .required = options->required, .all = options->all, .json = options->json };
    e = check_against(&two, err);
    actual_close(&other);
    return e;
}

/* `check A B` with two dumps compares them, as `check A --against B` does. */
static void take_two_dumps(struct check_options *options)
{
    const bool are_dumps = options->against == NULL && options->actual && file_kind_of(options->golden) == FILE_DUMP &&
                           file_kind_of(options->actual) == FILE_DUMP;
    if (!are_dumps) return;
    options->against = options->actual, options->actual = NULL;
}

/* Without a golden file the only word is ACTUAL. */
static enum error_code check_words(struct check_options *options, struct error *err)
{
    take_two_dumps(options);
    if (options->exact) {
        const enum error_code e = check_exact_options(options, err);
        if (e) return e;
    }
    if (options->first && options->page)
        return fail(err, ERR_USAGE, "--first does not go with --page, which draws all tensors");
    if (options->against == NULL)
        return options->actual
                   ? OK : fail(err, ERR_USAGE, "check needs ACTUAL: a safetensors file, or a folder of them");
    if (options->page || options->watch)
        return fail(err, ERR_USAGE, "%s does not go with --against: it compares one dump with a golden file",
                    options->page ? "--page" : "--watch");
    if (options->not_recorded)
        return fail(err, ERR_USAGE, "--not-recorded does not go with --against, which compares what both dumps have");
    if (options->map) return fail(err, ERR_USAGE, "--map does not go with --against: both dumps describe themselves");
    if (options->first) return fail(err, ERR_USAGE, "--first does not go with --against, which names the first "
                                    "difference anyway");
    if (options->actual) return OK;
    options->actual = options->golden, options->golden = NULL;
    if (options->as || options->sums || options->parts || options->fused || options->stored_norms ||
        options->stored_states)
        return fail(err, ERR_USAGE, "--as, --sums, --parts, --fused, --stored-norms and --stored-states are for "
                    "operations that are recomputed: orrery check GOLDEN ACTUAL --against B");
    return OK;
}

/* A folder in place of the golden file is a dump, and the user may mean two of them. */
static enum error_code open_golden(struct golden *golden, const struct check_options *options, struct error *err)
{
    struct stat s;
    if (options->against == NULL && stat(options->golden, &s) == 0 && S_ISDIR(s.st_mode))
        return file_kind_refuse(fail(err, ERR_FILE, "GOLDEN %s: is a folder, a file was expected; for two dumps: "
                                     "orrery check GOLDEN A --against B", printable_path(options->golden).text),
                                options->golden, "a golden file", FILE_DUMP, err);
    return fail_about(err, golden_open(golden, options->golden, err), "GOLDEN");
}

static bool is_of_losses(enum convention c) { return (int)c >= LOSS_CONVENTION && (int)c < LOSS_CONVENTIONS_END; }

/* The losses and steps that a golden file has are by the conventions that it was made with. */
static enum error_code check_profile(const char *as, const struct golden *golden, struct error *err)
{
    struct conventions wanted = { 0 };
    const enum error_code e = as ? conventions_parse(&wanted, as, err) : OK;
    const char *const made = golden->as.text[0] ? golden->as.text : profile_names[AS_ORRERY];
    if (e || as == NULL) return e;
    for (enum convention c = 0; c < CONVENTIONS; c++) {
        /* A golden file has its own scope of balance losses where nobody names one (golden_take_conventions). */
        const bool named = c != BALANCE_OVER || conventions_say(as, BALANCE_OVER);
        if (named && convention(&wanted, c) != convention(&golden->as, c))
            return fail(err, ERR_USAGE, "--as %s: the golden file's %s are those of %s: %s is %s, not %s: make one "
                        "with `orrery golden make --as %s`", as, is_of_losses(c) ? "losses" : "steps", made,
                        convention_rows[c].name, convention_value(c, convention(&golden->as, c)).text,
                        convention_value(c, convention(&wanted, c)).text, as);
    }
    return OK;
}

/* Refuse what has no numbers of a pass: it opens, and nothing in it can be compared. */
static enum error_code refuse_actual(const char *path, struct error *err)
{
    const enum file_kind kind = file_kind_of(path);
    if (kind == FILE_GOLDEN || kind == FILE_PASS || kind == FILE_DUMP || kind == FILE_UNKNOWN) return OK;
    return file_kind_refuse(ERR_FORMAT, path, "what a program has computed", FILE_UNKNOWN, err);
}

/* Bounds of ordinary sums would call right numbers wrong, and let wrong ones pass. */
static enum error_code refuse_exact(struct error *err)
{
    return fail(err, ERR_FORMAT, "ACTUAL says that its sums do not round, so bounds say nothing: compare bits, orrery "
                "check --exact GOLDEN ACTUAL (docs/checking/exact.md)");
}

/* Open ACTUAL and check it.  golden: NULL: the model is not known. */
static enum error_code check_actual(const struct check_options *options, const struct golden *golden,
                                    struct error *err)
{
    struct actual actual;
    enum error_code e = options->map ? OK : refuse_actual(options->actual, err);
    if (!e) e = actual_open(&actual, options->actual, options->map, err);
    if (e) return fail_about(err, e, "ACTUAL");
    if (options->exact) e = check_exact(options, golden, &actual, err);
    else if (actual.exact && golden) e = refuse_exact(err);
    else e = options->against ? check_two(options, golden, &actual, err) : check_compare(options, golden, &actual, err);
    actual_close(&actual);
    return e;
}

enum error_code command_check(int argc, char **argv, int *status, struct error *err)
{
    struct check_options o = { .timeout = WATCH_TIMEOUT };
    struct golden golden;
    char room[4096];
    (void)status;
    enum error_code e = cli_check_parse(&o, argc, argv, err);
    if (e || o.help || launcher_rank() != 0) return e;          /* only rank 0 compares */
    e = check_words(&o, err);
    if (!e) e = check_watch_options(&o, err);
    if (!e) e = fail_about(err, checked_kinds_read(o.require, &o.required, err), "--require");
    if (!e && o.page) e = fail_about(err, output_probe(o.page, err), "--page");
    if (e) return e;
    if (o.golden == NULL) return check_actual(&o, NULL, err);
    o.golden = golden_path(o.golden, room, sizeof room);
    e = open_golden(&golden, &o, err);
    if (e) return e;
    e = check_profile(o.as, &golden, err);
    if (!e) e = o.watch ? check_watch(&o, &golden, err) : check_actual(&o, &golden, err);
    golden_close(&golden);
    return e;
}
