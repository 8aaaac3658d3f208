/* findings.c -- reads what a student's command found, and explains it: memory, bytes sent, and waiting.  Lessons 17
 * and 18 call findings_read with the JSON of orrery plan.  A missing number is 0; nothing can fail. */
#include "emulated_devices/course/findings.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <string.h>

/* Three entries fit in a line of the drawing. */
enum { IN_A_LINE = 3 };

static const char *const kinds[FINDINGS_KINDS] = { "weights", "gradients", "optimizer", "activations", "buffers" };
static const char *const kind_keys[FINDINGS_KINDS] = { "parameters", "gradients", "optimizer", "activations",
                                                       "buffers" };
static const char *const links[FINDINGS_LINKS] = { "tensor", "attention", "data", "pipeline" };

/* This finds a member of an object, or NULL. */
static const cJSON *findings_in(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* This reads a whole number of an object; 0: it is not there. */
static int64_t findings_number(const cJSON *object, const char *key)
{
    int64_t n = 0;
    json_int(object, "report", key, 0, INT64_C(1) << 52, &n, NULL);
    return n;
}

/* The fullest device is found by its peak, and its parts are those of its peak. */
struct findings findings_read(const cJSON *report)
{
    static const char *const axes[] = { "dp", "tp", "pp", "cp" };       /* ep counts devices of these once more */
    struct findings f = { .devices = 1, .step = findings_number(report, "virtual_step_ps") };
    const cJSON *device, *fullest = NULL, *mean = findings_in(findings_in(report, "plan"), "mean_device_ps");
    for (int i = 0; i < 4; i++) f.devices *= findings_number(findings_in(report, "mesh"), axes[i]);
    cJSON_ArrayForEach(device, findings_in(report, "devices")) {
        const int64_t peak = findings_number(findings_in(device, "peak_bytes"), "total");
        if (fullest == NULL || peak > f.peak) f.peak = peak, fullest = device;
    }
    for (int i = 0; i < FINDINGS_KINDS; i++)
        f.of[i] = findings_number(findings_in(fullest, "peak_bytes"), kind_keys[i]);
    for (int i = 0; i < FINDINGS_LINKS; i++) {
        f.sent[i] = findings_number(findings_in(findings_in(fullest, "sent"), links[i]), "bytes");
        f.waiting[i] = findings_number(findings_in(mean, "waiting"), links[i]);
    }
    f.computing = findings_number(mean, "computing");
    return f;
}

/* This gives a part of all, in percent. */
static double percent(int64_t part, int64_t all) { return all ? 100.0 * (double)part / (double)all : 0; }

/* The separator before entry i of a list. */
static const char *findings_before(int i) { return i == 0 ? "" : i % IN_A_LINE ? ", " : ",\n            "; }

/* Append a list of names and bytes, broken into lines. */
static size_t list(char *to, size_t size, const char *label, const char *const *names, const int64_t *bytes, int count)
{
    size_t n = (size_t)snprintf(to, size, "  %-10s", label);
    for (int i = 0; i < count; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%s %s", findings_before(i), names[i],
                              size_format((uint64_t)bytes[i]).text);
    return n + (size_t)snprintf(to + n, size - n, "\n");
}

/* Explain a plan: what the fullest device holds, and what devices wait for. */
void findings_explain(struct judge *judge, const struct findings *findings)
{
    char *to = judge->drawing;
    const size_t size = sizeof judge->drawing;
    size_t n = (size_t)snprintf(to, size, "the fullest device\n");
    n += list(to + n, size - n, "holds", kinds, findings->of, FINDINGS_KINDS);
    n += list(to + n, size - n, "sends", links, findings->sent, FINDINGS_LINKS);
    n += (size_t)snprintf(to + n, size - n, "all devices, on average, of %s\n  %-10s%.1f %%\n  waits for ",
                          picoseconds_format((double)findings->step).text, "computes",
                          percent(findings->computing, findings->step));
    int64_t other = findings->step - findings->computing;
    for (int i = 0; i < FINDINGS_LINKS; i++) {
        n += (size_t)snprintf(to + n, size - n, "%s%s %.1f %%", findings_before(i), links[i],
                              percent(findings->waiting[i], findings->step));
        other -= findings->waiting[i];
    }
    snprintf(to + n, size - n, "%sall else %.1f %%\n", findings_before(FINDINGS_LINKS), percent(other, findings->step));
}
