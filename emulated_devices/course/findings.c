#include "emulated_devices/course/findings.h"
#include "ref/io/options.h"
#include <stdio.h>
#include <string.h>

static const char *const kinds[FINDINGS_KINDS] = { "weights", "gradients", "optimizer", "activations", "buffers" };
static const char *const links[FINDINGS_LINKS] = { "tensor", "attention", "data", "pipeline" };

static const cJSON *in(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }

static int64_t number(const cJSON *object, const char *key)
{
    int64_t n = 0;
    json_int(object, "report", key, 0, INT64_C(1) << 52, &n, NULL);
    return n;
}

struct findings findings_read(const cJSON *report)
{
    static const char *const axes[] = { "dp", "tp", "pp", "cp" };       /* ep counts devices of these once more */
    struct findings f = { .devices = 1, .step = number(report, "virtual_step_ps") };
    const cJSON *device, *fullest = NULL;
    for (int i = 0; i < 4; i++) f.devices *= number(in(report, "mesh"), axes[i]);
    cJSON_ArrayForEach(device, in(report, "devices")) {
        const int64_t peak = number(in(device, "peak_bytes"), "total");
        if (fullest == NULL || peak > f.peak) f.peak = peak, fullest = device;
    }
    for (int i = 0; i < FINDINGS_KINDS; i++) f.of[i] = number(in(fullest, "peak_bytes"), kinds[i]);
    for (int i = 0; i < FINDINGS_LINKS; i++) f.sent[i] = number(in(in(fullest, "sent"), links[i]), "bytes");
    f.computing = number(fullest, "virtual_computing_ps");
    return f;
}

/* "label kind size, kind size". */
static size_t list(char *to, size_t size, const char *label, const char *const *names, const int64_t *bytes, int count)
{
    size_t n = (size_t)snprintf(to, size, "%s", label);
    for (int i = 0; i < count; i++)
        n += (size_t)snprintf(to + n, size - n, "%s %s %s", i ? "," : "", names[i],
                              size_format((uint64_t)bytes[i]).text);
    return n + (size_t)snprintf(to + n, size - n, "\n");
}

void findings_explain(struct judge *j, const struct findings *f)
{
    char *to = j->drawing;
    size_t n = list(to, sizeof j->drawing, "the fullest device holds", kinds, f->of, FINDINGS_KINDS);
    n += list(to + n, sizeof j->drawing - n, "sends   ", links, f->sent, FINDINGS_LINKS);
    snprintf(to + n, sizeof j->drawing - n, "computes %.1f %% of %.4g ms; the rest it waits\n",
             f->step ? 100.0 * (double)f->computing / (double)f->step : 0, 1e-9 * (double)f->step);
}
