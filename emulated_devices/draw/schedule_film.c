/* schedule_film.c -- a timed schedule as a film: the passes of every device, messages between stages, and how many
 * microbatches' activations each device holds.
 *
 * cli/show/schedule.c calls schedule_film.  ERR_USAGE is for a schedule that is too large for a page; ERR_MEMORY.
 */
#include "emulated_devices/draw/page/film.h"
#include "emulated_devices/draw/schedule.h"
#include <stdio.h>

enum { TEXT = 160, STAGES_SAID = 8 };

/* The stages of a device: "stages 0, 7". */
static void describe_stages(const struct schedule *schedule, int device, char *text, size_t size)
{
    int used = snprintf(text, size, "stage%s", schedule->chunks > 1 ? "s" : "");
    for (int c = 0; c < schedule->chunks && c < STAGES_SAID && used < (int)size - 16; c++)
        if (schedule->stage_of[device][c] >= 0)
            used += snprintf(text + used, size - (size_t)used, "%s %d", c > 0 ? "," : "",
                             schedule->stage_of[device][c]);
    if (schedule->chunks > STAGES_SAID) snprintf(text + used, size - (size_t)used, ", ..");
}

/* The words of a pass for readers: what it computes, and what it waits for. */
static const char *pass_words(enum action_kind kind)
{
    switch (kind) {
    case FORWARD:         return "needs the stage before; its activations stay until the backward";
    case BACKWARD:        return "needs the gradient of the stage behind; frees the activations";
    case BACKWARD_INPUT:  return "gives the stage before its gradient; keeps what W needs";
    case BACKWARD_WEIGHT: return "nobody waits for it, so it fills gaps; frees the microbatch";
    default:              return "a step of the optimizer inside the schedule";
    }
}

/* Film a computation, with its chunk and stage as detail. */
static void film_action(struct film *film, const struct schedule *schedule, const struct timing *timing, int device,
                        int index, int lane)
{
    static const char *const name[] = { "forward", "backward", "backward for input", "backward for weights",
                                        "update" };
    const struct action a = schedule->actions[device][index];
    const int stage = schedule->stage_of[device][a.chunk];
    char text[TEXT];
    snprintf(text, sizeof text, "%s%d of stage %d", action_letter(a.kind), a.micro, stage);
    const int detail = film_detail(film, text);
    film_detail_row(film, detail, "pass", name[a.kind]);
    snprintf(text, sizeof text, "%d of %d on device %d", a.chunk, schedule->chunks, device);
    film_detail_row(film, detail, "chunk", text);
    film_detail_row(film, detail, "order", pass_words(a.kind));
    const int kind = film_kind(film, name[a.kind], action_letter(a.kind), FILM_COMPUTE);
    film_pass(film, (struct film_pass){ .device = device, .lane = lane, .kind = kind,
                                        .start = timing->start[device][index], .end = timing->end[device][index],
                                        .micro = a.micro, .layer = -2, .detail = detail });
}

/* Film a message from its send to its arrival. */
static void film_send(struct film *film, const struct schedule *schedule, const struct timing *timing, int device,
                      int index, int64_t communication)
{
    const struct action a = schedule->actions[device][index];
    const int kind = film_kind(film, a.kind == SEND_ACTIVATION ? "activation" : "gradient", action_letter(a.kind),
                               FILM_MESSAGE);
    const int64_t at = timing->end[device][index];
    film_message(film, (struct film_message){ .from = device, .to = a.peer, .kind = kind, .start = at,
                                              .end = at + communication });
}

/* Microbatches whose activations a device holds, from the start of a forward to the end of its backward or W. */
static void film_held(struct film *film, const struct schedule *schedule, const struct timing *timing, int device)
{
    struct film_memory held = { .device = device };
    film_memory(film, &held);
    for (int i = 0; i < schedule->count[device]; i++) {
        const enum action_kind kind = schedule->actions[device][i].kind;
        if (kind != FORWARD && kind != BACKWARD && kind != BACKWARD_WEIGHT) continue;
        held.at = kind == FORWARD ? timing->start[device][i] : timing->end[device][i];
        held.bytes[0] += kind == FORWARD ? 1 : -1;
        film_memory(film, &held);
    }
}

enum error_code schedule_film(struct film *film, const struct schedule *schedule, const struct timing *timing,
                              int64_t communication, struct error *err)
{
    char text[TEXT];
    int64_t actions = 0;
    for (int d = 0; d < schedule->devices; d++) actions += schedule->count[d];
    snprintf(text, sizeof text, "orrery show schedule %s --pp %d --micro %d", schedule->name, schedule->devices,
             schedule->micros);
    film_open(film, "schedule", "tick", text);
    if (schedule->devices > SCHEDULE_FILM_DEVICES || actions > SCHEDULE_FILM_ACTIONS)
        return fail(err, ERR_USAGE, "--page: %d devices with %lld actions; a page shows at most %d with %d",
                    schedule->devices, (long long)actions, SCHEDULE_FILM_DEVICES, SCHEDULE_FILM_ACTIONS);
    film_end(film, timing->makespan);
    film_memory_kind(film, schedule->chunks > 1 ? "stages' microbatches held" : "microbatches held");
    const int lane = film_lane(film, "compute");
    for (int d = 0; d < schedule->devices; d++) {
        describe_stages(schedule, d, text, sizeof text);
        film_device(film, (struct film_device){ .place = text, .has = text, .column = d % 16, .row = d / 16 });
    }
    for (int d = 0; d < schedule->devices && !film->failed; d++) {
        film_held(film, schedule, timing, d);
        for (int i = 0; i < schedule->count[d]; i++) {
            const enum action_kind kind = schedule->actions[d][i].kind;
            if (!action_is_message(kind)) film_action(film, schedule, timing, d, i, lane);
            else if (kind == SEND_ACTIVATION || kind == SEND_GRADIENT) film_send(film, schedule, timing, d, i,
                                                                                          communication);
        }
    }
    film_note(film, "bubble %.2f %%: the part of the time in which the busiest device waits; with fill and drain "
              "%.2f %%", 100 * timing->bubble, 100 * timing->idle);
    film_note(film, "A message takes %lld; its bytes are not known, since a schedule knows no model.",
              (long long)communication);
    return film->failed ? fail(err, ERR_MEMORY, "no memory for the film of a schedule") : OK;
}
