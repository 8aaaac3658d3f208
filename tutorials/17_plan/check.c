/* check.c -- judges lesson 17.  The student writes plan.txt with three plans for 64 devices.  No student's code
 * runs: emulated_devices/course/command.h runs orrery plan with the student's flags in a cage, and findings.h
 * reads its JSON.  Times are milliseconds of the virtual step, memories GiB of the fullest device.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/findings.h"
#include "ref/io/figures.h"
#include <stdio.h>

enum { DEVICES = 64 };

/* This is a plan of plan.txt, with the memory that it may use, and two limits of its step, for both variants. */
struct task { const char *name, *choice, *flags; int memory[2], good[2], best[2]; };

#define GPT "--model megatron-18b --batch 64"
#define LLAMA "--model llama3-8b --seq 32768 --batch 8"

enum what { ROOMY, TIGHT, LONG };
static const struct task tasks[] = {
    [ROOMY] = { "roomy", "ROOM", GPT, { 40, 24 }, { 560, 560 }, { 410, 450 } },
    [TIGHT] = { "tight", "TIGHT", GPT, { 12, 9 }, { 700, 700 }, { 510, 630 } },
    [LONG] = { "long", "LONG", LLAMA, { 40, 22 }, { 600, 560 }, { 480, 480 } },
};

/* Flags that a student may choose; every other flag is a setting of the lesson. */
static const struct allowed_flag allowed[] = {
    { "--dp", false }, { "--tp", false }, { "--pp", false }, { "--cp", false }, { "--zero", false },
    { "--micro", false }, { "--tensor", false }, { "--attention", false }, { "--schedule", false },
    { "--chunks", false }, { "--recompute", false }, { "--prefetch", false }, { "--reshard-after-forward", false },
    { NULL, false }
};

/* Whether the plan uses 64 devices and fits.  Nothing of a plan can be hidden, so hidden inputs are not tried
 * again. */
static bool plan(struct judge *j, const struct task *t, struct findings *f)
{
    struct command c;
    struct command_report r;
    char words[200];
    const int memory = t->memory[judge_choice(j, t->choice)];
    if (j->hidden || !command_take(j, "plan", t->name, allowed, &c)) return false;
    /* A plan with a schedule of the text must not change what is computed. */
    if (!command_keeps_function(j, t->name, &c)) return false;
    snprintf(words, sizeof words, "%s --cluster h100-data-sheet --dtype bf16 --memory 0", t->flags);    /* seen here */
    command_add(&c, words);
    if (command_run(j, "plan", &c, &r)) {
        *f = findings_read(r.json);
        if (f->devices != DEVICES)
            judge_fails(j, "%s: it uses %lld of %d devices; all are needed", t->name, (long long)f->devices, DEVICES);
        else if (f->peak > (int64_t)memory << 30)
            judge_fails(j, "%s: a device needs %s, and may have %d GiB", t->name, size_format((uint64_t)f->peak).text,
                        memory);
        if (j->failed) findings_explain(j, f);
    }
    command_report_free(&r);
    return !j->failed;
}

enum look { AT_MEMORY, AT_GOOD, AT_BEST };

/* A good plan is faster than `good`, a better one than `best`. */
static void try_plan(struct judge *j)
{
    struct findings f;
    const struct task *t = &tasks[j->check->what];
    const int most = (j->check->look == AT_GOOD ? t->good : t->best)[judge_choice(j, t->choice)];
    if (!plan(j, t, &f) || j->check->look == AT_MEMORY || f.step <= most * INT64_C(1000000000)) return;
    judge_fails(j, "%s: a step takes %s; %d ms are asked for", t->name, picoseconds_exact(f.step).text, most);
    findings_explain(j, &f);
}

extern const struct lesson lesson_17_plan;
const struct lesson lesson_17_plan = {
    .folder = "17_plan", .title = "A plan for 64 devices", .file = "plan.txt",
    .vary = { { "ROOM", 2 }, { "TIGHT", 2 }, { "LONG", 2 } },
    .check = {
        { 1, "roomy", "roomy: 64 devices, and it fits", 2, { try_plan, AT_MEMORY, ROOMY },
          { "dp * tp * pp = 64.  What of a device's memory is weights, gradients, states, what activations?",
            "With 16 bytes for each of 18.4e9 parameters, into how many parts must they be cut at least?",
            "--zero 1 shares optimizer states over dp; --micro cuts the batch, and the activations with it." } },
        { 1, "roomy-good", "roomy: a step in good time", 2, { try_plan, AT_GOOD, ROOMY },
          { "Which of data, tensor and pipeline sends most?  Which of them stays inside a node of 8?",
            "A pipeline sends least.  Its price is the bubble: (pp - 1) of micro + pp - 1." } },
        { 1, "roomy-best", "roomy: a step in less time", 2, { try_plan, AT_BEST, ROOMY },
          { "Lesson 11: which schedules have a smaller bubble, and what do they hold?",
            "--tensor 1d-sp sends no more than 1d, and holds less.",
            "A larger pp and a smaller tp, as many microbatches as there are sequences, and zb-h1." } },
        { 2, "tight", "tight: it fits", 2, { try_plan, AT_MEMORY, TIGHT },
          { "Look at what the fullest device holds: which part is largest?  What cuts it?",
            "Activations: more microbatches, sequence parallelism, recomputation.  The rest: zero, tp, pp." } },
        { 2, "tight-good", "tight: a step in good time", 2, { try_plan, AT_GOOD, TIGHT },
          { "Recomputation costs a third of the time.  Is there another way?",
            "In a pipeline only some microbatches are held at once." } },
        { 2, "tight-best", "tight: a step in less time", 2, { try_plan, AT_BEST, TIGHT },
          { "zb-h1 holds more than 1f1b on the later devices.",
            "Try tp and pp with the same product, and count what is sent between nodes." } },
        { 3, "long", "long: it fits", 2, { try_plan, AT_MEMORY, LONG },
          { "There are only 8 sequences, so dp is at most 8.  What else can be cut?" } },
        { 3, "long-good", "long: a step in good time", 2, { try_plan, AT_GOOD, LONG },
          { "--cp cuts sequences, --tp heads and columns.  Try both." } },
        { 3, "long-best", "long: a step in less time", 2, { try_plan, AT_BEST, LONG },
          { "Which attention scheme sends less?  What fits into a node?",
            "Of the time that nobody computes, which messages are waited for?  Those between nodes are the slow ones.",
            "Copies send gradients at the end, when nothing is left to hide them.  What could be sent earlier?",
            "--zero 3 reduces each layer's gradients at once; --prefetch yes gathers the next weights meanwhile." } },
    },
};
