/* film_report.c -- takes a film out of a run's document, or makes one of the document's profile.  cli/page.c calls.
 * Errors: ERR_FORMAT of a document of another version or without both, ERR_MEMORY. */
#include "emulated_devices/draw/page/film_report.h"
#include "emulated_devices/draw/report/runs.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/version.h"
#include <stdio.h>
#include <string.h>

/* ---- a profile --------------------------------------------------------------------------------------------------- */

static const struct { const char *letter, *name; } passes[] = {
    { "F", "forward" }, { "B", "backward" }, { "I", "backward for inputs" }, { "W", "backward for weights" },
    { "", "optimizer and the rest" },
};
enum { PASSES = sizeof passes / sizeof *passes, MOST_DEVICES = 256, MOST_WORDS = 200 };
static const double most_time = 0x1p52;

static int report_kind(struct film *film, const char *letter)
{
    int i = 0;
    while (i < PASSES - 1 && (letter == NULL || strcmp(passes[i].letter, letter) != 0)) i++;
    return film_kind(film, passes[i].name, i < PASSES - 1 ? passes[i].letter : "U", FILM_COMPUTE);
}

static bool is_time(double x) { return x >= 0 && x <= most_time; }

static void report_passes(struct film *film, const cJSON *timeline, int device)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, timeline) {
        const double start = run_element(row, 0, -1), end = run_element(row, 1, -1), micro = run_element(row, 3, -1);
        const cJSON *const letter = cJSON_GetArrayItem(row, 2);
        if (!is_time(start) || !is_time(end) || end < start) continue;
        const int kind = report_kind(film, cJSON_IsString(letter) ? letter->valuestring : NULL);
        film_pass(film, (struct film_pass){ .device = device, .lane = film_lane(film, "compute"), .kind = kind,
                                            .start = (int64_t)start, .end = (int64_t)end, .layer = -2, .detail = -1,
                                            .micro = micro >= 0 && micro < 1e6 ? (int)micro : -1 });
    }
}

static void report_memory(struct film *film, const cJSON *memory, int device)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, memory) {
        const double at = run_element(row, 0, -1);
        struct film_memory m = { .device = device, .at = is_time(at) ? (int64_t)at : 0 };
        for (int k = 0; k < film->memory_kinds; k++) {
            const double bytes = run_element(row, k + 1, 0);
            m.bytes[k] = is_time(bytes) ? (int64_t)bytes : 0;
        }
        if (is_time(at)) film_memory(film, &m);
    }
}

/* "pp=0 tp=1", from what the report has of the device. */
static void report_place(char *place, size_t size, const cJSON *root, int device)
{
    static const char *const axes[] = { "pp", "dp", "cp", "ep", "tp" };
    const cJSON *const mesh = cJSON_GetObjectItemCaseSensitive(root, "mesh");
    const cJSON *const one = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "devices"), device);
    size_t used = 0;
    place[0] = '\0';
    for (size_t a = 0; a < sizeof axes / sizeof *axes && used < size; a++)
        if (run_number(mesh, axes[a], 1) > 1)
            used += (size_t)snprintf(place + used, size - used, "%s%s=%.0f", used ? " " : "", axes[a],
                                     run_number(one, axes[a], 0));
}

static void report_title(char *title, size_t size, const cJSON *root, const char *where)
{
    const cJSON *word, *const by = cJSON_GetObjectItemCaseSensitive(root, "written_by");
    size_t used = 0;
    int words = 0;
    title[0] = '\0';
    cJSON_ArrayForEach(word, cJSON_GetObjectItemCaseSensitive(by, "command"))
        if (cJSON_IsString(word) && used < size && words++ < MOST_WORDS)
            used += (size_t)snprintf(title + used, size - used, "%s%s", used ? " " : "", word->valuestring);
    if (used == 0) snprintf(title, size, "%s", where);
}

static enum error_code film_of_profile(struct film *film, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *const profile = cJSON_GetObjectItemCaseSensitive(root, "profile"), *one, *step;
    const cJSON *const devices = cJSON_GetObjectItemCaseSensitive(profile, "devices");
    static const char *const kinds[] = { "parameters", "gradients", "optimizer", "activations", "buffers" };
    char title[FILM_TEXT], place[64];
    int device = 0, cut = 0;
    if (!cJSON_IsArray(devices) || run_number(profile, "steps", 1) != 1)
        return fail(err, ERR_FORMAT, "%s: has neither a film (--film) nor a profile of one step",
                    printable_path(where).text);
    if (cJSON_GetArraySize(devices) > MOST_DEVICES)
        return fail(err, ERR_FORMAT, "%s: a profile of more than %d devices", printable_path(where).text, MOST_DEVICES);
    report_title(title, sizeof title, root, where);
    film_open(film, "run", "ps", title);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) film_memory_kind(film, kinds[k]);
    cJSON_ArrayForEach(one, devices) {
        report_place(place, sizeof place, root, device);
        film_device(film, (struct film_device){ .place = place, .row = device / 8, .column = device % 8 });
        report_passes(film, cJSON_GetObjectItemCaseSensitive(one, "timeline"), device);
        report_memory(film, cJSON_GetObjectItemCaseSensitive(one, "memory"), device);
        cut += cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(one, "whole"));
        device++;
    }
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(root, "steps"))
        if (run_number(step, "loss", -1) >= 0) film_loss(film, run_number(step, "loss", 0));
    film_note(film, "drawn from the profile of the first step, without layers, messages and checks: time of messages "
              "counts as idle; --film has them");
    if (cut > 0) film_note(film, "%d devices did more than their profile had room for: their end is missing", cut);
    return film->failed ? fail(err, ERR_MEMORY, "%s: no memory for its film", printable_path(where).text) : OK;
}

/* ---- any document ------------------------------------------------------------------------------------------------ */

enum error_code film_of_report(struct film *film, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *const inside = cJSON_GetObjectItemCaseSensitive(root, "film");
    *film = (struct film){ .kind = NULL };
    if (cJSON_IsObject(inside) || cJSON_IsNumber(inside)) {
        const enum error_code e = film_read(film, cJSON_IsObject(inside) ? inside : root, where, err);
        if (!e && strcmp(film->made_by, ORRERY_VERSION) != 0)
            film_note(film, "made by version %s of this program; this is %s", film->made_by, ORRERY_VERSION);
        return e;
    }
    const double version = run_number(root, "version", JSON_SCHEMA);
    if (version != JSON_SCHEMA)
        return fail(err, ERR_FORMAT, "%s: a document of version %g without a film; this program reads version %d",
                    printable_path(where).text, version, JSON_SCHEMA);
    return film_of_profile(film, root, where, err);
}
