/* lint.c -- which functions of a text are judged, with which numbers, and what is said of them (lint.h).
 * cli/lint.c calls lint_text().  A function is judged alone if no other of the file calls it.  Errors: ERR_FORMAT of a
 * text, ERR_MEMORY. */
#include "emulated_devices/course/lint/lint.h"
#include "emulated_devices/course/lint/match.h"
#include "emulated_devices/course/lint/runner.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 3 };                   /* numbers for parameters; 3: 1, the last device, 0 (execute.c) */

struct linter {
    struct program program;
    const struct call_rule **rule;      /* [names] */
    bool *talks;                        /* [functions] */
    struct lint_case *of;
    struct lint_report *report;
};

/* ---- which functions --------------------------------------------------------------------------------------------- */

/* A function talks if it sends, or calls one that does: until nothing more follows. */
static void find_talkers(struct linter *linter)
{
    const struct program *const program = &linter->program;
    for (bool grows = true; grows;) {
        grows = false;
        for (int i = 0; i < program->functions; i++)
            if (!linter->talks[i] && run_talks(linter->of, program->function[i].body)) linter->talks[i] = grows = true;
    }
}

static void mark_called(struct linter *linter)
{
    const struct program *const program = &linter->program;
    for (int i = 0; i < program->nodes; i++) {
        const struct node *const node = &program->node[i];
        if (node->kind != NODE_CALL || program->node[node->a].kind != NODE_NAME) continue;
        struct function *const function = program_find(program, program->node[node->a].name);
        if (function) function->is_called = true;
    }
}

/* A function of the file that only its own functions call is judged where they call it, with the numbers they give. */
static bool is_judged(const struct linter *linter, int at)
{
    const struct function *const function = &linter->program.function[at];
    return linter->talks[at] && !(function->is_called && function->is_static);
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static struct lint_finding *lint_add(struct lint_finding *list, int *count, const char *kind, const char *function)
{
    if (*count >= LINT_MOST) return NULL;
    struct lint_finding *const finding = &list[(*count)++];
    *finding = (struct lint_finding){ .line = -1, .other_line = -1, .device = -1 };
    snprintf(finding->kind, sizeof finding->kind, "%s", kind);
    snprintf(finding->function, sizeof finding->function, "%s", function);
    return finding;
}

static void lint_say(struct linter *linter, const char *function, const struct mismatch *found)
{
    struct lint_report *const report = linter->report;
    for (int i = 0; i < report->findings; i++)
        if (report->finding[i].line == found->line && strcmp(report->finding[i].kind, found->kind) == 0) return;
    struct lint_finding *const to = lint_add(report->finding, &report->findings, found->kind, function);
    if (to == NULL) return;
    to->line = found->line, to->other_line = found->other_line, to->devices = linter->of->size;
    to->device = found->device;
    snprintf(to->text, sizeof to->text, "%s", found->text);
}

/* Note what is not judged, once for each line. */
static void lint_note(struct linter *linter, const char *function, int line, const char *why, int name)
{
    struct lint_report *const report = linter->report;
    for (int i = 0; i < report->notes; i++)
        if (report->note[i].line == line && strcmp(report->note[i].function, function) == 0) return;
    struct lint_finding *const to = lint_add(report->note, &report->notes, "note", function);
    if (to == NULL) return;
    const char *const at = strstr(why, "%s");
    to->line = line, to->devices = linter->of->size;
    if (at == NULL) snprintf(to->text, sizeof to->text, "%s", why);
    else
        snprintf(to->text, sizeof to->text, "%.*s%s%s", (int)(at - why), why,
                 names_text(&linter->program.names, name), at + 2);
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* The groups that a split makes: of one color, in the order of keys and then of ranks.  @return false: it is not
 * known, because not all came to it. */
static bool resolve_split(struct lint_case *of)
{
    struct split *const split = &of->split[of->splits];
    for (int d = 0; d < of->size; d++)
        if (!of->trace[d].at_split) return false;
    for (int d = 0; d < of->size; d++) {
        int member[DEVICES_MOST], size = 0;
        const struct lint_group *const parent = &of->group[split->parent[d]];
        for (int i = 0; i < parent->size; i++) {
            const int other = parent->member[i];
            if (split->parent[other] != split->parent[d] || split->color[other] != split->color[d]) continue;
            int at = size++;
            for (; at > 0 && split->key[member[at - 1]] > split->key[other]; at--) member[at] = member[at - 1];
            member[at] = other;
        }
        split->group[d] = split->color[d] == INT32_MIN ? UNKNOWN
            : lint_group_number(of, member, size, 1000 + of->splits);
    }
    of->splits++;
    return true;
}

enum outcome { OUTCOME_CLEAN, OUTCOME_LOST, OUTCOME_FOUND, OUTCOME_NO_MEMORY };

static void early_mismatch(const struct linter *linter, struct mismatch *found)
{
    const struct early *const early = &linter->of->early[0];
    *found = (struct mismatch){ .kind = early->kind,
                                .line = early->line, .other_line = -1, .device = early->device, .other = -1 };
    snprintf(found->text, sizeof found->text, "device %d calls %s with %lld of %d devices: %s", early->device,
             names_text(&linter->program.names, early->call), (long long)early->number, linter->of->size, early->why);
}

static enum outcome judge_case(struct linter *linter, const struct function *function, struct mismatch *found)
{
    struct lint_case *const of = linter->of;
    of->splits = 0;
    do {
        of->groups = of->earlies = 0;
        struct lint_group world = { .size = of->size };
        for (int d = 0; d < of->size; d++) world.member[d] = d;
        /* Groups of splits that are known keep their numbers: they are made again in the same order. */
        of->group[of->groups++] = world;
        const int known = of->splits;
        of->splits = 0;
        for (int i = 0; i < known; i++) {
            for (int d = 0; d < of->size; d++) of->trace[d].at_split = true;
            resolve_split(of);
        }
        for (int d = 0; d < of->size; d++) lint_run(of, function, d);
    } while (of->splits < SPLITS_MOST && resolve_split(of));
    if (!match_traces(of, found)) return OUTCOME_NO_MEMORY;
    if (found->kind == NULL && of->earlies > 0) early_mismatch(linter, found);
    if (found->kind) return OUTCOME_FOUND;
    for (int d = 0; d < of->size; d++)
        if (of->trace[d].is_lost) return OUTCOME_LOST;
    return OUTCOME_CLEAN;
}

/* Judge a function on so many devices, with each sample; of two ways that a condition may go, one that is right is
 * enough: which way it goes is not known.  @return false without memory. */
static bool judge_size(struct linter *linter, const struct function *function, bool *judged)
{
    const char *const name = names_text(&linter->program.names, function->name);
    struct lint_case *const of = linter->of;
    for (int sample = 0; sample < SAMPLES; sample++) {
        struct mismatch found[2];
        enum outcome outcome[2];
        for (int choice = 0; choice < 2; choice++) {
            of->sample = sample, of->choice = choice == 1;
            of->groups = 1, of->group[0].size = of->size;
            if (lint_refuses(of, function)) return true;
            outcome[choice] = judge_case(linter, function, &found[choice]);
            if (outcome[choice] == OUTCOME_NO_MEMORY) return false;
            const struct trace *trace = NULL;
            for (int d = of->size - 1; d >= 0; d--)
                if (of->trace[d].is_lost) trace = &of->trace[d];
            if (outcome[choice] != OUTCOME_LOST || trace == NULL) continue;
            *judged = false;
            lint_note(linter, name, trace->lost_line, trace->lost_why, trace->lost_name);
        }
        if (outcome[0] == OUTCOME_FOUND && outcome[1] == OUTCOME_FOUND) return lint_say(linter, name, &found[0]), true;
    }
    return true;
}

static enum error_code lint_judge_all(struct linter *linter, const int *devices, int sizes, struct error *err)
{
    const struct program *const program = &linter->program;
    for (int i = 0; i < program->functions; i++) {
        const struct function *const function = &program->function[i];
        if (function->failed)
            lint_note(linter, names_text(&program->names, function->name), function->failed,
                      "this line is not understood, so the function is not judged", -1);
        if (!is_judged(linter, i)) continue;
        bool judged = true;
        const int before = linter->report->findings;
        linter->report->functions++;
        for (int k = 0; k < sizes && linter->report->findings == before; k++) {
            linter->of->size = devices[k];
            if (!judge_size(linter, function, &judged)) return fail(err, ERR_MEMORY, "no memory for what devices send");
        }
        linter->report->judged += judged;
    }
    return OK;
}

enum error_code lint_text(const char *text, size_t length, const int *devices, int sizes, struct lint_report *report,
                          struct error *err)
{
    struct linter linter = { .report = report };
    enum error_code e = OK;
    report->findings = report->notes = report->functions = report->judged = 0;
    if (memchr(text, 0, length)) return fail(err, ERR_FORMAT, "it has a NUL, and so is no text");
    bool fits = program_read(&linter.program, text, length);
    if (fits && linter.program.words.too_long)
        e = fail(err, ERR_FORMAT, "it has more than %d words, with its macros put in", WORDS_MOST);
    if (fits && !e) {
        linter.of = calloc(1, sizeof *linter.of);
        linter.rule = calloc((size_t)linter.program.names.count + 1, sizeof *linter.rule);
        linter.talks = calloc((size_t)linter.program.functions + 1, sizeof *linter.talks);
        fits = linter.of && linter.rule && linter.talks;
    }
    if (fits && !e) {
        linter.of->program = &linter.program, linter.of->rule = linter.rule, linter.of->talks = linter.talks;
        linter.of->is_lesson = true;
        for (int i = 0; i < linter.program.names.count; i++) {
            const char *const name = linter.program.names.text[i];
            linter.rule[i] = call_rule_find(name);
            if (strcmp(name, "exchange_begin") == 0 || strncmp(name, "MPI_", 4) == 0) linter.of->is_lesson = false;
        }
        find_talkers(&linter), mark_called(&linter);
        e = lint_judge_all(&linter, devices, sizes, err);
    }
    if (!fits) e = fail(err, ERR_MEMORY, "no memory for its words");
    if (linter.of)
        for (int d = 0; d < DEVICES_MOST; d++) free(linter.of->trace[d].event);
    free(linter.of), free(linter.rule), free(linter.talks);
    program_free(&linter.program);
    return e;
}

enum error_code lint_file(const char *path, int from, int most, struct lint_report *report, struct error *err)
{
    char *text = NULL;
    size_t length;
    int devices[LINT_SIZES], sizes = 0;
    for (int d = from; d <= most && sizes < LINT_SIZES; d++) devices[sizes++] = d;
    enum error_code e = file_read_all(path, LINT_FILE, &text, &length, err);
    if (e) return e;
    e = lint_text(text, length, devices, sizes, report, err);
    const struct error why = *err;
    free(text);
    return e ? fail(err, e, "%s: %s", printable_path(path).text, why.text) : OK;
}

const char *lint_line(char *text, size_t size, const char *file, const struct lint_finding *finding)
{
    snprintf(text, size, "%s:%d: %s: %s (%s, %d devices)", printable_path(file).text, finding->line, finding->kind,
             finding->text, finding->function, finding->devices);
    return text;
}
