/* check.c -- judges lesson 11.  The student writes schedules.txt, five pipeline schedules as text.  No student's
 * code runs: the text is read by schedule_file.h, and time and memory are computed from its actions.  Hidden inputs
 * are other durations of forwards and backwards.  emulated_devices/course/judge.c runs each check in a process of its
 * own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 72 };

/* A task is a schedule of schedules.txt.  most: microbatches that device d may hold at once; most - d where 1F1B's
 * limit is asked for. */
struct task { const char *name, *choice; int devices, micros[2], most[2]; bool falls; };

enum what { GPIPE, ONE, SENT, ZERO, OWN };
static const struct task tasks[] = {
    [GPIPE] = { "gpipe", "GPIPE", 3, { 4, 5 }, { 4, 5 }, false },
    [ONE] = { "1f1b", "ONE", 4, { 6, 7 }, { 4, 4 }, true },
    [SENT] = { "messages", "SENT", 3, { 4, 5 }, { 3, 3 }, true },
    [ZERO] = { "zero-bubble", "ZERO", 3, { 5, 6 }, { 3, 3 }, false },
    [OWN] = { "own", "OWN", 4, { 6, 7 }, { 5, 6 }, false },
};

/* ---- one of them ------------------------------------------------------------------------------------------------- */

/* The variant of the course decides how many microbatches there are, and how much memory. */
static int micros(const struct judge *j, const struct task *t) { return t->micros[judge_choice(j, t->choice)]; }

static int most(const struct judge *j, const struct task *t, int device)
{
    return t->most[judge_choice(j, t->choice)] - (t->falls ? device : 0);
}

/* Draw the schedule that fails, into the message. */
static void draw(struct judge *j, const struct schedule *s, struct even_times each)
{
    struct timing t;
    char *text = NULL;
    size_t size = 0;
    /* A schedule that cannot be executed has no times, and is not drawn. */
    if (schedule_time_evenly(&t, s, each, NULL) != OK) return;
    FILE *f = open_memstream(&text, &size);
    if (f) {
        schedule_draw_text(f, s, &t, COLUMNS, false);
        fclose(f);
        snprintf(j->drawing, sizeof j->drawing, "%s", text);
    }
    free(text);
    timing_free(&t);
}

/* F, I and W take one unit of time, messages none. */
static const struct even_times UNITS = { 1, 1, 1, 0, 0 };

/* Whether the schedule is a pipeline of the right size.  Stage d must be on device d, and each microbatch must pass
 * all stages. */
static bool has_size(struct judge *j, const struct task *t, const struct schedule *s)
{
    const int P = t->devices, M = micros(j, t);
    /* All schedules have one chunk on each device, and one update after all microbatches. */
    if (s->devices != P || s->micros != M || s->chunks != 1 || s->stages != P || s->routes != 1 || s->update_every != M)
        return judge_fails(j, "%s: it has %d devices, %d microbatches, %d stages; it must have %d devices, each with a "
                           "stage, and %d microbatches", t->name, s->devices, s->micros, s->stages, P, M);
    for (int d = 0; d < P; d++)
        if (s->stage_of[d][0] != d)
            return judge_fails(j, "%s: device %d has stage %d; it must have stage %d", t->name, d, s->stage_of[d][0],
                               d);
    /* A microbatch that no device computes at a stage has no place. */
    for (int micro = 0; micro < M; micro++)
        for (int stage = 0; stage < P; stage++)
            if (place_of(s, micro, stage).device < 0)
                return judge_fails(j, "%s: microbatch %d skips stage %d; each must pass through all stages", t->name,
                                   micro, stage);
    return true;
}

/* A microbatch is held from its F until its last backward. */
static bool within_memory(struct judge *j, const struct task *t, const struct schedule *s)
{
    for (int d = 0; d < t->devices; d++)
        if (schedule_peak(s, d) > most(j, t, d))
            return judge_fails(j, "%s: device %d holds %d microbatches at once, and may hold %d", t->name, d,
                               schedule_peak(s, d), most(j, t, d));
    return true;
}

/* Read the schedule from the text.  @return false: the check has failed, and there is nothing to free. */
static bool take(struct judge *j, const struct task *t, struct schedule *s)
{
    struct error err = { OK, "" };
    if (schedule_read_named(s, j->text, t->name, j->lesson->file, &err) != OK) return judge_fails(j, "%s", err.text);
    if (has_size(j, t, s) && within_memory(j, t, s)) return true;
    draw(j, s, UNITS);
    schedule_free(s);
    return false;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* The schedule can be executed, and holds no more than it may. */
static void check_runs(struct judge *j)
{
    struct schedule s;
    if (take(j, &tasks[j->check->what], &s)) schedule_free(&s);
}

/* The span, from the first action to the last of any device, is at most `want`. */
static void check_span(struct judge *j, const struct task *t, struct even_times each, int64_t want, const char *formula)
{
    struct schedule s;
    struct timing timing;
    if (!take(j, t, &s)) return;
    if (schedule_time_evenly(&timing, &s, each, NULL) != OK) abort();
    if (timing.span > want) {
        judge_fails(j, "%s: with F %lld, I %lld, W %lld and %lld for a message it takes %lld, a bubble of %.1f %%; "
                    "%lld is asked for: %s", t->name, (long long)each.forward, (long long)each.backward_input,
                    (long long)each.backward_weight, (long long)each.communication, (long long)timing.span,
                    100 * timing.bubble, (long long)want, formula);
        draw(j, &s, each);
    }
    timing_free(&timing);
    schedule_free(&s);
}

/* All durations are 1 in open inputs.  Hidden inputs have others, with the same ratios unless the formula allows
 * any. */
static struct even_times draw_times(struct judge *j, bool any, struct even_times open)
{
    if (!j->hidden) return open;
    const int64_t unit = judge_draw(j, 2, 999);
    if (any) return (struct even_times){ unit, judge_draw(j, 1, 999), judge_draw(j, 1, 999), 0, 0 };
    return (struct even_times){ unit * open.forward, unit * open.backward_input, unit * open.backward_weight,
                                unit * open.communication, 0 };
}

/* The work of one microbatch on one device. */
static int64_t whole(struct even_times e) { return e.forward + e.backward_input + e.backward_weight; }

/* M microbatches and P - 1 of waiting, whatever order a device takes. */
static void check_flushed(struct judge *j)
{
    const struct task *t = &tasks[j->check->what];
    const struct even_times e = draw_times(j, true, UNITS);
    check_span(j, t, e, (micros(j, t) + t->devices - 1) * whole(e), "(M + P - 1) (F + I + W)");
}

/* I and W count as backwards, like B. */
static bool is_backward(enum action_kind kind)
{
    return kind == BACKWARD || kind == BACKWARD_INPUT || kind == BACKWARD_WEIGHT;
}

/* All forwards of a device come before its first backward. */
static bool has_forwards_first(const struct schedule *s, int device)
{
    bool backwards = false;
    for (int i = 0; i < s->count[device]; i++) {
        if (backwards && s->actions[device][i].kind == FORWARD) return false;
        backwards |= is_backward(s->actions[device][i].kind);
    }
    return true;
}

/* gpipe is the only schedule with a prescribed order of kinds. */
static void check_gpipe(struct judge *j)
{
    struct schedule s;
    if (!take(j, &tasks[GPIPE], &s)) return;
    for (int d = 0; d < s.devices && !j->failed; d++)
        if (!has_forwards_first(&s, d))
            judge_fails(j, "gpipe: device %d begins a backward before its last forward", d);
    if (j->failed) draw(j, &s, UNITS);
    schedule_free(&s);
}

/* Here sends and receives are written by the student, and not inferred. */
static void check_sent(struct judge *j)
{
    struct schedule s;
    if (!take(j, &tasks[SENT], &s)) return;
    if (!s.messages_given)
        judge_fails(j, "messages: it has no sends and receives; this part is to write them: sa0>1, ra0<0, ..");
    schedule_free(&s);
}

/* schedule_blocks lets each send wait until its receive begins, and reports the deadlock. */
static void check_blocking(struct judge *j)
{
    struct schedule s;
    struct error err = { OK, "" };
    if (!take(j, &tasks[SENT], &s)) return;
    if (schedule_blocks(&s, FROM_ONE, &err) != OK)
        judge_fails(j, "messages: it hangs if each send waits until its receive begins: %s", err.text);
    schedule_free(&s);
}

/* Compare with the bubble of zb-h1: (P - 1) (F + I - W), since W fills what B left idle. */
static void check_zero_time(struct judge *j)
{
    const struct task *t = &tasks[ZERO];
    const struct even_times e = draw_times(j, false, UNITS);
    check_span(j, t, e, micros(j, t) * whole(e) + (t->devices - 1) * e.forward,
               "M (F + I + W) + (P - 1) (F + I - W)");
}

/* ---- one's own --------------------------------------------------------------------------------------------------- */

/* These spans are in units of a forward.  zb-2p of Orrery finds the first with these times and this limit; the
 * second is possible. */
static const struct { int64_t found, possible; } of_own[] = { { 33, 32 }, { 36, 35 } };

enum look { AT_FOUND, AT_POSSIBLE };

/* W takes two units and a message one, so a W at the wrong time delays a neighbour. */
static void check_own_span(struct judge *j)
{
    const bool possible = j->check->look == AT_POSSIBLE;
    const int choice = judge_choice(j, "OWN");
    const struct even_times e = draw_times(j, false, (struct even_times){ 1, 1, 2, 1, 0 });
    check_span(j, &tasks[OWN], e, e.forward * (possible ? of_own[choice].possible : of_own[choice].found),
               possible ? "one unit less than zb-2p" : "as little as zb-2p");
}

extern const struct lesson lesson_11_schedules;
const struct lesson lesson_11_schedules = {
    .folder = "11_schedules", .title = "Pipeline schedules", .file = "schedules.txt",
    .vary = { { "GPIPE", 2 }, { "ONE", 2 }, { "SENT", 2 }, { "ZERO", 2 }, { "OWN", 2 } },
    .check = {
        { 1, "gpipe", "gpipe: all forwards, then all backwards", 2, { check_gpipe },
          { "Each device does each F and each B once; nothing has to be said about who waits for whom.",
            "A line for each device: device 0: F0 F1 .., then B0 B1 .." } },
        { 1, "gpipe-time", "gpipe: no longer than it must take", 2, { check_flushed, 0, GPIPE },
          { "In which order do the gradients arrive at a device?  Take them in the same order." } },
        { 2, "1f1b", "1f1b: device d holds at most 4 - d microbatches", 3, { check_runs, 0, ONE },
          { "A forward keeps its activations until the backward of the same microbatch.",
            "The last device can do B0 right after F0.  How many forwards has device 0 done when its gradient comes?",
            "Device d begins with 4 - d forwards; then a backward and a forward in turn." } },
        { 2, "1f1b-time", "1f1b: no longer than gpipe", 2, { check_flushed, 0, ONE },
          { "With fewer forwards at the beginning a device waits.  Begin with exactly 4 - d of them." } },
        { 3, "messages", "messages: all are there, device d holds at most 3 - d", 2, { check_sent },
          { "Each F but the last stage's is followed by sa, each F but the first stage's comes after ra; likewise B.",
            "sa0>1 on device 0 needs ra0<0 on device 1." } },
        { 3, "blocking", "messages: no deadlock if each send waits", 3, { check_blocking },
          { "Two neighbours must not both send first.  Where do device 0 and 1 send to each other?",
            "After F a device can first receive the gradient for its next B, and then send F's activations." } },
        { 3, "messages-time", "messages: no longer than gpipe", 1, { check_flushed, 0, SENT },
          { "One microbatch after the other needs no thought about messages, but takes long." } },
        { 4, "zero", "zero-bubble: a device holds at most 3 microbatches", 2, { check_runs, 0, ZERO },
          { "B is now I and W.  The activations are kept until W.",
            "Device 2 can wait with its first W until it has done three forwards, no longer." } },
        { 4, "zero-time", "zero-bubble: idle for (P-1) (F+I-W)", 4, { check_zero_time },
          { "The device before waits for I, not for W.  So I comes first, and W where the device would wait.",
            "1F1B with I in the place of B; device d does its first W after its I number P - 1 - d.",
            "At the end there are no forwards left: what fills the gaps between the last I?" } },
        { 5, "own", "own: a device holds no more than it may", 2, { check_runs, 0, OWN },
          { "Begin with zero-bubble of part 4, with another number of devices." } },
        { 5, "found", "own: as little time as zb-2p finds", 2, { check_own_span, AT_FOUND },
          { "How many forwards can a device do before its first gradient arrives?  Do as many as memory allows.",
            "After its last F device 0 still has to get that microbatch's gradient back, and to do I and W.  When must "
            "that F end, so that they end in time?  Work back from the end." } },
        { 5, "beyond", "own: a unit less", 2, { check_own_span, AT_POSSIBLE },
          { "When must device 0 do its last F, so that the I and W of that microbatch end in time?  Work back from the "
            "end.",
            "zb-2p does a W whenever a device would wait.  Here a W takes as long as two other actions.",
            "Where does a gradient arrive while a W is going on, so that the device before gets its own too late?",
            "On device 1, wait a unit for the next I instead of doing a W, and do that W later." } },
    },
};
