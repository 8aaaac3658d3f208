/* golden.c -- `orrery golden`: compares the one-device model with golden files, and measures their bounds.
 * cli/main.c calls command_golden().  Errors: ERR_CHECK names the first wrong tensor, ERR_FILE a folder without
 * golden files; ERR_MEMORY. */
#include "emulated_devices/cli/golden/golden.h"
#include "emulated_devices/cli/installed.h"
#include "ref/golden/bounds.h"
#include "ref/io/terminal.h"
#include "ref/numeric/distance.h"
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXACT 1e-12                     /* relative, in fp64 */
#define CLEAN 0.5                       /* the share of a stored bound that an undisturbed run may use */
enum { FIRST_CLEAN_SEED = 1000 };       /* seeds from this one on were not used to measure the bounds */

struct golden_options {
    const char *where;
    bool measure, one;                  /* one: PATH is a file, whose batch is described */
    int runs;
};

static enum error_code golden_parse(struct golden_options *options, int argc, char **argv, bool *help,
                                    struct error *err)
{
    const struct option table[] = {
        { "PATH", NULL, OPTION_STRING, &options->where,
         .help = "a golden file, or a folder of FAMILY-SHAPE.safetensors" },
        { "--measure", NULL, OPTION_SWITCH, &options->measure,
         .help = "measure the bounds and write them beside the files" },
        { "--runs", "N", OPTION_INT, &options->runs, .min = 0, .max = 1000000,
          .help = "also make N correct runs of each file, with random rounding errors, in fp32, bf16 and fp16; count "
                  "the false alarms" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command(
        "golden", "[PATH] [options]\n       orrery golden make --out FILE [options], which has its own --help",
        "Compare the one-device model with golden files: in fp64 within 1e-12, in fp32, bf16 and fp16 within\n"
        "half the bound stored beside each tensor; files of `orrery golden make` within the stored bounds, in\n"
        "all formats. Shown are the largest error/bound and its tensor; in fp64 also how many tensors have\n"
        "the file's bits, which another machine need not give. Of one file also what its batch cannot show.",
        argc - 2, argv + 2, table, help, err);
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

struct worst { double ratio; const char *name; };

/* The truth and bounds for a run, for tensors computed with the truth's expert choices.  In the first pass these are
 * all tensors, because runs follow the truth's choices. */
struct held { const struct replay *truth; double *bound; };

static bool is_held(const struct held *held, const struct replay *replay, int i)
{
    return isfinite(held->bound[i]) && replay->record[i].route == held->truth->record[i].route;
}

/* The largest error/bound of a run; NaN is larger than all. */
static enum error_code golden_compare(const struct replay *replay, const struct held *held, struct worst *out,
                                      struct error *err)
{
    const double *bound = held->bound;
    enum error_code e = OK;
    *out = (struct worst){ 0, "nothing" };
    for (int i = 0; i < replay->records && !e; i++) {
        struct tensor want = tensor_none;
        struct apart a;
        e = replay_compare(replay, i, &a, &want, err);
        free(want.data);
        if (!e && is_held(held, replay, i) && exceeds(a.relative / bound[i], out->ratio))
            *out = (struct worst){ a.relative / bound[i], replay->record[i].name };
    }
    return e;
}

/* The first tensor, in order of execution, whose error exceeds this share of its bound. */
static enum error_code first_wrong(const struct replay *replay, const struct held *held, double share,
                                   struct error *err)
{
    const double *bound = held->bound;
    for (int i = 0; i < replay->records; i++) {
        struct tensor want = tensor_none;
        struct apart a;
        enum error_code e = replay_compare(replay, i, &a, &want, err);
        if (!e && is_held(held, replay, i) && !(a.relative <= share * bound[i]))
            e = fail(err, ERR_CHECK,
                     "%s: in %s the first wrong tensor is %s: relative error %.3g, allowed %.3g; element (%lld,%lld) "
                     "is %.17g, golden %.17g",
                     printable_path(replay->golden->file.path).text, dtype_name(replay->model.ops->dtype),
                     replay->record[i].name,
                     a.relative, share * bound[i], (long long)(a.worst / tensor_cols(want)),
                     (long long)(a.worst % tensor_cols(want)), tensor_get(replay->record[i].values, a.worst),
                     tensor_get(want, a.worst));
        free(want.data);
        if (e) return e;
    }
    return OK;
}

/* Set the bounds of a run in its format: the stored ones; 1e-12 in fp64, unless the file is of somebody's own choice,
 * where Adam may make a step of rounding noise. */
static enum error_code golden_allowed(const struct replay *plain, double bound[], struct error *err)
{
    if (plain->model.ops->dtype != F64 || golden_is_own(plain->golden))
        return bounds_read(plain, plain->model.ops->dtype, bound, err);
    for (int i = 0; i < plain->records; i++) bound[i] = EXACT;
    return OK;
}

enum { NAME_SIZE = 64 };
static int name_width = 4;              /* of the first column: the longest of all files' names */
enum { FORMAT_WIDTH = 7 };              /* of the second, with blanks */

/* Count the failures of clean runs, whose disturbance is only that of another order of sums. */
static enum error_code count_alarms(const struct golden *golden, enum dtype dtype, const struct held *held, int runs,
                                    struct error *err)
{
    struct worst most = { 0, "nothing" };
    char name[RECORD_NAME] = "nothing";
    int alarms = 0;
    for (int i = 0; i < runs; i++) {
        struct replay r;
        struct worst w;
        const struct perturbation disturb = bound_clean(dtype, FIRST_CLEAN_SEED + (uint64_t)i);
        enum error_code e = replay_following(&r, held->truth, dtype, &disturb, err);
        if (e) return e;
        e = golden_compare(&r, held, &w, err);
        if (exceeds(w.ratio, most.ratio)) {
            most = w;
            snprintf(name, sizeof name, "%s", w.name);
        }
        alarms += !(w.ratio <= 1);
        replay_free(&r);
        if (e) return e;
    }
    if (runs > 0)
        say(stdout, name_width + FORMAT_WIDTH, "%-*s clean  %d alarms in %d runs; at most %.2g, %s", name_width, "",
            alarms, runs, most.ratio, name);
    return alarms ? fail(err, ERR_CHECK, "%s: %d of %d correct runs raised an alarm",
                         printable_path(golden->file.path).text, alarms, runs)
                  : OK;
}

/* Whether a record has the file's bits. */
static enum error_code same_bits(const struct replay *replay, int i, int *same, struct error *err)
{
    struct tensor want = tensor_none;
    struct apart a;
    enum error_code e = replay_compare(replay, i, &a, &want, err);
    *same += !e && memcmp(want.data, replay->record[i].values.data, tensor_bytes(want)) == 0;
    free(want.data);
    return e;
}

/* The number of records in fp64 that have the file's bits. */
static enum error_code count_same(const struct replay *replay, int *same, struct error *err)
{
    enum error_code e = OK;
    *same = -1;
    if (replay->model.ops->dtype != F64) return OK;
    *same = 0;
    for (int i = 0; i < replay->records && !e; i++) e = same_bits(replay, i, same, err);
    return e;
}

/* If there are tensors in which this format could hide any error, their number is printed.
 * same: -1, or tensors that have the file's bits. */
static void print_line(const char *name, const struct replay *replay, const struct held *held,
                       const struct worst *worst, int same)
{
    int open = 0;
    for (int i = 0; i < replay->records; i++) open += !bound_decides(held->bound[i]);
    char bits[64] = "", hidden[64] = "";
    if (same >= 0) snprintf(bits, sizeof bits, "; %d of %d have the file's bits", same, replay->records);
    if (open) snprintf(hidden, sizeof hidden, "; %d without a bound below 1", open);
    say(stdout, name_width + FORMAT_WIDTH, "%-*s %-5s %5d tensors  %-8.2g %s%s%s", name_width, name,
        dtype_name(replay->model.ops->dtype), replay->records, worst->ratio, worst->name, bits, hidden);
}

static enum error_code check_format(const struct replay *truth, const char *name, enum dtype dtype, int runs,
                                    struct error *err)
{
    const struct golden *g = truth->golden;
    struct replay plain;
    struct worst w;
    int same = -1;
    enum error_code e = replay_following(&plain, truth, dtype, NULL, err);
    if (e) return e;
    const struct held h = { truth, calloc((size_t)plain.records + 1, sizeof *h.bound) };
    e = h.bound ? golden_allowed(&plain, h.bound, err)
        : fail(err, ERR_MEMORY, "no memory for %d bounds", plain.records);
    if (!e) e = replay_covers(&plain, err);
    if (!e) e = golden_compare(&plain, &h, &w, err);
    if (!e) e = count_same(&plain, &same, err);
    if (!e) print_line(name, &plain, &h, &w, same);
    if (!e) e = first_wrong(&plain, &h, dtype == F64 || golden_is_own(g) ? 1 : CLEAN, err);
    if (!e && dtype != F64) e = count_alarms(g, dtype, &h, runs, err);
    free(h.bound);
    replay_free(&plain);
    return e;
}

/* "gpt2-tied" of "golden/gpt2-tied.safetensors". */
static void short_name(char name[NAME_SIZE], const char *path)
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    snprintf(name, NAME_SIZE, "%.*s", (int)strcspn(from, "."), from);
}

static enum error_code golden_golden_measure(const struct golden *golden, struct error *err)
{
    struct time_left line;
    const struct bounds_watch watch = { golden_show_twin, &line };
    time_left_begin(&line);
    const enum error_code e = bounds_write(golden, &watch, err);
    time_left_end(&line);
    return e;
}

static enum error_code do_file(const char *path, const struct golden_options *options, struct error *err)
{
    struct golden g;
    struct replay truth;
    char name[NAME_SIZE];
    short_name(name, path);
    enum error_code e = golden_open(&g, path, err);
    if (e) return e;
    if (options->measure) e = golden_golden_measure(&g, err);
    if (!e) e = replay_run(&truth, &g, F64, NULL, err);
    if (!e) {
        static const enum dtype sharpest_first[] = { F64, F32, BF16, F16 };
        for (int f = 0; f < BOUND_FORMATS && !e; f++)
            e = check_format(&truth, name, sharpest_first[f], options->runs, err);
        if (!e && options->one) golden_show_gaps(&truth);
        replay_free(&truth);
    }
    golden_close(&g);
    fflush(stdout);
    return e;
}

enum error_code command_golden(int argc, char **argv, int *status, struct error *err)
{
    struct golden_options o = { .where = "golden" };
    char pattern[4096], room[4000];
    glob_t found;
    struct stat st;
    bool help;
    if (argc > 2 && strcmp(argv[2], "make") == 0) return golden_make_command(argc, argv, status, err);
    enum error_code e = golden_parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    o.where = golden_path(o.where, room, sizeof room);
    o.one = stat(o.where, &st) == 0 && !S_ISDIR(st.st_mode);
    snprintf(pattern, sizeof pattern, o.one ? "%s" : "%s/*-*.safetensors", o.where);
    if (glob(pattern, 0, NULL, &found) != 0)
        return fail(err, ERR_FILE, "%s: there are no golden models (FAMILY-SHAPE.safetensors) in this folder",
                    printable_path(o.where).text);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[NAME_SIZE];
        short_name(name, found.gl_pathv[i]);
        if ((int)strlen(name) > name_width) name_width = (int)strlen(name);
    }
    printf("%-*s %-5s %13s  %-8s\n", name_width, "file", "", "", "error/bound, largest");
    for (size_t i = 0; i < found.gl_pathc && !e; i++) e = do_file(found.gl_pathv[i], &o, err);
    globfree(&found);
    return e;
}
