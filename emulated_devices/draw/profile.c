/* profile.c -- describes a device's first step as JSON, and gathers all devices' profiles on rank 0.  run/session.c
 * calls; profile_gather must be called on all ranks together.  Without memory on any device all ranks get an error,
 * and ERR_MEMORY names that device.  Only rank 0 gets a profile; after an error nobody has a profile. */
#include "emulated_devices/draw/profile.h"
#include "emulated_devices/draw/gather.h"
#include "ref/io/json.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 64, MOST_POINTS = 240, MOST_PIECES = 2000 };

/* ---- on each device ---------------------------------------------------------------------------------------------- */

struct operation_sum { const char *name; int64_t count; picoseconds takes; double flops, bytes; };

static bool is_work(const struct span *span) { return span->row < STREAMS; }

static cJSON *add_list(cJSON *to)
{
    cJSON *list = cJSON_CreateArray();
    cJSON_AddItemToArray(to, list);
    return list;
}

static void add_number(cJSON *list, double x) { cJSON_AddItemToArray(list, cJSON_CreateNumber(x)); }

/* @return false: some operations are left out. */
static bool add_operations(cJSON *device, const struct trace *trace)
{
    struct operation_sum sum[MOST_NAMES];
    int n = 0;
    bool fits = true;
    for (size_t i = 0; i < trace->count; i++) {
        const struct span *s = &trace->span[i];
        int k = 0;
        if (!is_work(s)) continue;
        while (k < n && strcmp(sum[k].name, s->what.name) != 0) k++;
        fits = fits && k < MOST_NAMES;
        if (k == MOST_NAMES) continue;
        if (k == n) sum[n++] = (struct operation_sum){ .name = s->what.name };
        sum[k].count++, sum[k].takes += s->end - s->start, sum[k].flops += s->flops, sum[k].bytes += s->bytes;
    }
    cJSON *all = cJSON_AddArrayToObject(device, "operations");
    for (int k = 0; k < n; k++) {
        cJSON *one = add_list(all);
        cJSON_AddItemToArray(one, cJSON_CreateString(sum[k].name));
        add_number(one, (double)sum[k].count);
        add_number(one, (double)sum[k].takes);
        add_number(one, sum[k].flops);
        add_number(one, sum[k].bytes);
    }
    return fits;
}

/* Neighbours of the compute stream that belong to one pass of one microbatch are one piece.
 * @return false: pieces at the end are left out. */
static bool add_timeline(cJSON *device, const struct trace *trace)
{
    cJSON *all = cJSON_AddArrayToObject(device, "timeline");
    const struct span *last = NULL;
    cJSON *end = NULL;
    int pieces = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct span *s = &trace->span[i];
        if (s->row != COMPUTE || s->end == s->start) continue;
        const bool same = last && last->place.pass == s->place.pass && last->place.micro == s->place.micro &&
                          last->end == s->start;
        last = s;
        if (same) {
            cJSON_SetNumberValue(end, (double)s->end);
            continue;
        }
        if (pieces++ == MOST_PIECES) return false;
        cJSON *one = add_list(all);
        add_number(one, (double)s->start);
        add_number(one, (double)s->end);
        end = cJSON_GetArrayItem(one, 1);
        cJSON_AddItemToArray(one, cJSON_CreateString(s->place.pass ? s->place.pass : ""));
        add_number(one, s->place.pass ? s->place.micro : -1);
    }
    return true;
}

/* The fullest sample of each part of the time. */
static void add_memory(cJSON *device, const struct trace *trace, picoseconds end)
{
    const struct trace_memory *most[MOST_POINTS] = { NULL };
    cJSON *all = cJSON_AddArrayToObject(device, "memory");
    for (size_t i = 0; i < trace->memories; i++) {
        const struct trace_memory *m = &trace->memory[i];
        const int at = end > 0 ? (int)((double)m->at / (double)(end + 1) * MOST_POINTS) : 0;
        const int k = at < MOST_POINTS ? at : MOST_POINTS - 1;
        if (most[k] == NULL || m->use.total > most[k]->use.total) most[k] = m;
    }
    for (int k = 0; k < MOST_POINTS; k++) {
        if (most[k] == NULL) continue;
        cJSON *one = add_list(all);
        add_number(one, (double)most[k]->at);
        for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) add_number(one, (double)most[k]->use.tag[tag]);
    }
}

static void add_sent(cJSON *device, const struct trace *trace, int devices)
{
    cJSON *all = cJSON_AddArrayToObject(device, "sent");
    for (int peer = 0; peer < devices; peer++) {
        uint64_t messages = 0, bytes = 0;
        for (size_t i = 0; i < trace->count; i++) {
            const struct span *s = &trace->span[i];
            if (is_work(s) || (s->row - STREAMS) % 2 || !s->first || s->what.peer != peer) continue;
            messages++, bytes += s->what.bytes;
        }
        if (messages == 0) continue;
        cJSON *one = add_list(all);
        add_number(one, peer);
        add_number(one, (double)messages);
        add_number(one, (double)bytes);
    }
}

static picoseconds profile_end_of(const struct trace *trace)
{
    picoseconds end = 0;
    for (size_t i = 0; i < trace->count; i++)
        if (trace->span[i].end > end) end = trace->span[i].end;
    return end;
}

char *profile_describe(const struct trace *trace, int devices)
{
    cJSON *device = cJSON_CreateObject();
    const bool fits = add_operations(device, trace), drawn = add_timeline(device, trace);
    json_add(device, "whole %hhd", fits && drawn && !trace->full);
    add_memory(device, trace, profile_end_of(trace));
    add_sent(device, trace, devices);
    char *text = json_text(device, false);
    cJSON_Delete(device);
    return text;
}

/* ---- on rank 0 --------------------------------------------------------------------------------------------------- */

static enum error_code take_one(void *context, int rank, const struct gathered *gathered, struct error *err)
{
    cJSON *one, *all = context;
    (void)rank;
    gathered->text[gathered->length] = '\0';                          /* there is a byte for it */
    const enum error_code e = json_parse(gathered->text, gathered->length, "a device's profile", &one, err);
    if (!e) cJSON_AddItemToArray(all, one);
    return e;
}

enum error_code profile_gather(struct comm *comm, char *text, cJSON **profile, struct error *err)
{
    const struct clock *k = &comm->device->clock;
    const struct gathered own = { .text = text, .length = text ? strlen(text) : 0 };
    cJSON *root = json_add(cJSON_CreateObject(), "flop_rate %g memory_rate %g steps %d",
                           1e6 * (double)k->cluster.flop_rate[k->dtype], 1e6 * (double)k->cluster.memory_rate, 1);
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    enum error_code e = text && devices ? OK
        : fail(err, ERR_MEMORY, "no memory for the profile of device %d", comm->rank);
    e = comm_agree(comm, e, err);
    if (!e) e = gather_texts(comm, &own, take_one, devices, err);
    *profile = comm->rank == 0 && !e ? root : NULL;
    if (*profile == NULL) cJSON_Delete(root);
    return e;
}
