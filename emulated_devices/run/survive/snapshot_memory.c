/* snapshot_memory.c -- memory that the launcher of a job makes, its devices map, and their deaths leave as it is.
 * again.c and surviving.c call.  Errors: ERR_MEMORY, ERR_USAGE and ERR_COMM, before anything is written. */
#include "emulated_devices/run/survive/snapshot_memory.h"
#include "emulated_devices/launch/machine.h"
#include "emulated_devices/verify/hash.h"
#include "ref/io/figures.h"
#include "ref/machine/measure.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE_VARIABLE "ORRERY_SNAPSHOTS"       /* path and token, told to devices */
enum { PAGE = 4096 };                   /* halves begin at one, so that no two devices write into the same */

static uint64_t rounded(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static uint64_t before_halves(int devices, int64_t steps)
{
    return rounded(sizeof(struct snapshot_front) + (uint64_t)devices * sizeof(struct snapshot_slot)
                   + (uint64_t)steps * sizeof(double));
}

uint64_t snapshot_memory_need(const uint64_t *bytes, int devices, int64_t steps)
{
    uint64_t all = before_halves(devices, steps);
    for (int d = 0; d < devices; d++) all += HALVES * rounded(bytes[d]);
    return all;
}

/* The places of the lists follow from the numbers in the front. */
static void find_lists(struct snapshot_memory *memory)
{
    memory->slot = (struct snapshot_slot *)(memory->front + 1);
    memory->loss = (double *)(memory->slot + memory->front->devices);
}

static void lay_out(struct snapshot_memory *memory, const uint64_t *bytes)
{
    struct snapshot_front *const front = memory->front;
    uint64_t at = before_halves(front->devices, front->steps);
    find_lists(memory);
    for (int d = 0; d < front->devices; d++) {
        struct snapshot_slot *const slot = &memory->slot[d];
        slot->at = at, slot->bytes = bytes[d];
        for (int h = 0; h < HALVES; h++) atomic_init(&slot->step[h], -1);
        at += HALVES * rounded(bytes[d]);
    }
}

/* All of it is taken now: a page that is not there later would kill the device that writes to it. */
static enum error_code take_pages(const struct snapshot_memory *memory, uint64_t need, struct error *err)
{
    const uint64_t left = machine_free_memory();
    if (need > left)
        return fail(err, ERR_MEMORY, "--survive: the snapshots need %s of memory; this machine has %s left",
                    size_format(need).text, size_format(left).text);
    const int why = memory->file < 0 ? errno : system_memory_take(memory->file, need);
    if (why)
        return fail(err, ERR_MEMORY, "--survive: the snapshots need %s of shared memory: %s", size_format(need).text,
                    strerror(why));
    return OK;
}

enum error_code snapshot_memory_make(struct snapshot_memory *memory, const uint64_t *bytes, int devices, int64_t first,
                                     int64_t steps, int most, struct error *err)
{
    const uint64_t need = snapshot_memory_need(bytes, devices, steps);
    char path[SYSTEM_PATH], place[SYSTEM_PATH + 32];
    *memory = (struct snapshot_memory){ .file = -1 };
    if (!system_memory_vanishes())
        return fail(err, ERR_USAGE, "--survive: shared memory stays on this system when its processes are killed; "
                    "--save-every and --resume auto go on from a checkpoint");
    memory->file = system_memory_make(path);
    const enum error_code e = take_pages(memory, need, err);
    if (e) return e;
    void *const at = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file, 0);
    if (at == MAP_FAILED)
        return fail(err, ERR_MEMORY, "--survive: the snapshots need %s of addresses: %s", size_format(need).text,
                    strerror(errno));
    memory->front = at;
    *memory->front = (struct snapshot_front){
        .token = (uint64_t)(measure_now() * 1e9) << 20 ^ (uint64_t)getpid(), .bytes = need, .devices = devices,
        .most = most, .first = first, .steps = steps, .from = -1 };
    lay_out(memory, bytes);
    snprintf(place, sizeof place, "%s %llu", path, (unsigned long long)memory->front->token);
    setenv(PLACE_VARIABLE, place, 1);
    return OK;
}

/* Another machine may have a file at this path: its token is another one. */
static void map_told(struct snapshot_memory *memory)
{
    const char *const told = getenv(PLACE_VARIABLE);
    char path[SYSTEM_PATH];
    unsigned long long token;
    struct stat st;
    if (told == NULL || sscanf(told, "%63s %llu", path, &token) != 2) return;
    const int file = system_memory_join(path);
    if (file < 0) return;
    const bool large = fstat(file, &st) == 0 && st.st_size >= (off_t)sizeof *memory->front;
    void *const at = large ? mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (at == MAP_FAILED) return;
    memory->front = at;
    if (memory->front->token == token && memory->front->bytes == (uint64_t)st.st_size) return;
    munmap(at, (size_t)st.st_size);
    memory->front = NULL;
}

enum error_code snapshot_memory_join(struct snapshot_memory *memory, int devices, struct error *err)
{
    *memory = (struct snapshot_memory){ .file = -1 };
    map_told(memory);
    if (memory->front && memory->front->devices == devices) {
        find_lists(memory);
        return OK;
    }
    snapshot_memory_close(memory);
    return fail(err, ERR_COMM, "--survive: the memory of the process that has started the devices cannot be reached "
                "from here: all devices must be on one machine");
}

void snapshot_memory_close(struct snapshot_memory *memory)
{
    if (memory->front) munmap(memory->front, memory->front->bytes);
    if (memory->file >= 0) close(memory->file), unsetenv(PLACE_VARIABLE);
    *memory = (struct snapshot_memory){ .file = -1 };
}

static char *half_of(const struct snapshot_memory *memory, int device, int half)
{
    const struct snapshot_slot *const slot = &memory->slot[device];
    return (char *)memory->front + slot->at + (uint64_t)half * rounded(slot->bytes);
}

static int half_with(const struct snapshot_memory *memory, int device, int64_t step)
{
    for (int h = 0; h < HALVES; h++)
        if (atomic_load(&memory->slot[device].step[h]) == step) return h;
    return -1;
}

/* The half that does not count, or has the older step. */
static int older_half(const struct snapshot_memory *memory, int device)
{
    const struct snapshot_slot *const slot = &memory->slot[device];
    return atomic_load(&slot->step[0]) <= atomic_load(&slot->step[1]) ? 0 : 1;
}

char *snapshot_memory_begin(struct snapshot_memory *memory, int device, int64_t step)
{
    if (half_with(memory, device, step) >= 0) return NULL;
    const int half = older_half(memory, device);
    atomic_store(&memory->slot[device].step[half], -1);
    return half_of(memory, device, half);
}

void snapshot_memory_commit(struct snapshot_memory *memory, int device, int64_t step)
{
    struct snapshot_slot *const slot = &memory->slot[device];
    const int half = older_half(memory, device);
    slot->sum[half] = hash_bytes(HASH_START, half_of(memory, device, half), slot->bytes);
    atomic_store(&slot->step[half], step);
}

const char *snapshot_memory_find(const struct snapshot_memory *memory, int device, int64_t step)
{
    const int half = half_with(memory, device, step);
    return half < 0 ? NULL : half_of(memory, device, half);
}

void snapshot_memory_keep(struct snapshot_memory *memory, int64_t step)
{
    for (int d = 0; d < memory->front->devices; d++)
        for (int h = 0; h < HALVES; h++)
            if (atomic_load(&memory->slot[d].step[h]) != step) atomic_store(&memory->slot[d].step[h], -1);
}

/* A process may write anywhere before a fault kills it. */
static bool is_sound(const struct snapshot_memory *memory, int device, int64_t step)
{
    const struct snapshot_slot *const slot = &memory->slot[device];
    const int half = half_with(memory, device, step);
    return half >= 0 && hash_bytes(HASH_START, half_of(memory, device, half), slot->bytes) == slot->sum[half];
}

static bool all_have(const struct snapshot_memory *memory, int64_t step)
{
    bool all = step >= 0;
    for (int d = 0; d < memory->front->devices && all; d++) all = is_sound(memory, d, step);
    return all;
}

int64_t snapshot_memory_latest(const struct snapshot_memory *memory)
{
    int64_t latest = -1;
    for (int h = 0; h < HALVES; h++) {
        const int64_t step = atomic_load(&memory->slot[0].step[h]);
        if (step > latest && all_have(memory, step)) latest = step;
    }
    return latest;
}
