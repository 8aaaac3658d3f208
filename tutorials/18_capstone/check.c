/* check.c -- judges lesson 18.  The student writes capstone.txt: flags of one run on 8 devices.  command.h runs
 * orrery plan and train in a cage with these flags.  The run must equal one device, keep within its memory, and be
 * fast.  emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/findings.h"
#include "ref/io/figures.h"

enum { DEVICES = 8 };

#define SETTING "--model small --batch 16 --cluster toy"

/* The variant BUDGET chooses the MiB that a device may use, and three limits of the step in microseconds. */
static const int budget[] = { 8, 6 };
enum tier { TWICE, TARGET, BEST };
static const int64_t most[][2] = { { 13100, 13100 }, { 11600, 12700 }, { 10700, 12000 } };

static const struct allowed_flag allowed[] = {
    { "--dp", false }, { "--tp", false }, { "--pp", false }, { "--cp", false }, { "--zero", false },
    { "--micro", false }, { "--tensor", false }, { "--attention", false }, { "--schedule", false },
    { "--chunks", false }, { "--recompute", false }, { "--prefetch", false }, { "--reshard-after-forward", false },
    { "--bucket", false }, { "--allreduce", false }, { "--reduce-scatter", false }, { "--allgather", false },
    { NULL, false }
};

/* Run `orrery NAME` with the student's flags; it must use 8 devices.  Nothing of a run can be hidden, so hidden
 * inputs are not tried again. */
static bool run(struct judge *j, const char *name, const char *words, struct command_report *r, struct findings *f)
{
    struct command c;
    *r = (struct command_report){ 0 };
    if (j->hidden || !command_take(j, "run", "mine", allowed, &c)) return false;
    if (!command_keeps_function(j, "mine", &c)) return false;
    command_add(&c, SETTING);
    command_add(&c, words);
    if (!command_run(j, name, &c, r)) return false;
    *f = findings_read(r->json);
    if (f->devices == DEVICES) return true;
    return judge_fails(j, "it uses %lld of %d devices; all are needed", (long long)f->devices, DEVICES);
}

/* Compare a step with real numbers: each activation, gradient and weight.  A plan comes before, so that a wrong
 * flag is named at once. */
static void check_equal(struct judge *j)
{
    struct command_report r;
    struct findings f;
    bool holds = false;
    const bool planned = run(j, "plan", "--memory 0", &r, &f);
    command_report_free(&r);
    if (planned && run(j, "train", "--steps 1 --check ref", &r, &f)) {
        /* The report says whether all tensors agree. */
        json_bool(cJSON_GetObjectItemCaseSensitive(r.json, "check"), "report", "holds", &holds, NULL);
        if (!holds) judge_fails(j, "not what one device computes: %s", r.said[0] ? r.said : "it was not compared");
    }
    command_report_free(&r);
}

/* Plan the run.  @return whether it is within its memory; its step is in *f. */
static bool plan(struct judge *j, struct findings *f)
{
    struct command_report r;
    const int has = budget[judge_choice(j, "BUDGET")];
    if (run(j, "plan", "--memory 0", &r, f) && f->peak > (int64_t)has << 20) {
        judge_fails(j, "a device needs %s, and may have %d MiB", size_format((uint64_t)f->peak).text, has);
        findings_explain(j, f);
    }
    command_report_free(&r);
    return !j->failed && !j->hidden;
}

static void check_memory(struct judge *j) { plan(j, &(struct findings){ 0 }); }

/* The limits of the three tiers are in `most`. */
static void check_time(struct judge *j)
{
    const enum tier tier = j->check->look;
    struct findings f;
    const int64_t limit = most[tier][judge_choice(j, "BUDGET")];
    if (!plan(j, &f) || f.step <= limit * 1000000) return;
    judge_fails(j, "a step takes %s; %s are asked for", picoseconds_exact(f.step).text,
                picoseconds_exact(limit * 1000000).text);
    findings_explain(j, &f);
}

extern const struct lesson lesson_18_capstone;
const struct lesson lesson_18_capstone = {
    .folder = "18_capstone", .title = "A run of your own on 8 devices", .file = "capstone.txt",
    .vary = { { "BUDGET", 2 } },
    .check = {
        { 1, "equal", "8 devices compute what one device computes", 4, { check_equal },
          { "Begin with a run that works: --dp 8.  Then change one flag at a time.",
            "The message is the program's own: orrery train with the same flags says it, too." } },
        { 1, "memory", "each device keeps within its memory", 4, { check_memory },
          { "Which part of the fullest device is largest?  Weights, states, activations each have their own remedy.",
            "More microbatches hold fewer activations at once; a pipeline cuts weights, gradients and states." } },
        { 1, "twice", "twice as fast as --dp 8", 4, { check_time, TWICE },
          { "Where does the time of --dp 8 go?  16 sequences, and all gradients between two nodes.",
            "What sends less than gradients?  The activations between two stages of a pipeline." } },
        { 1, "target", "a step in good time", 4, { check_time, TARGET },
          { "The bubble: more microbatches, or a schedule with less of it.",
            "orrery list schedules: some place two stages on each device." } },
        { 1, "best", "a step in still less time", 4, { check_time, BEST },
          { "How many stages?  Try 2, 4 and 8 with the same schedule, and what is left for dp or cp.",
            "zero-bubble schedules in the form of a V hold no more than 1f1b." } },
    },
};
