/* take_slots.c -- reads where devices are in the machine: an order of axes, or a list of places.
 * take.c calls train_take_slots().  Errors: ERR_USAGE, with the word that is wrong; ERR_MEMORY. */
#include "emulated_devices/run/words/words.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

static enum error_code slots_refuse(const char *slots, const char *why, struct error *err)
{
    return fail(err, ERR_USAGE, "--slots %.80s: %s", printable(slots).text, why);
}

/* ---- by axes ----------------------------------------------------------------------------------------------------- */

/* "dp,tp,pp": each axis once; those that are left out follow in the usual order, fastest first. */
static bool read_axes(const char *slots, enum axis order[AXIS_COUNT])
{
    bool taken[AXIS_COUNT] = { false };
    int n = 0;
    for (const char *at = slots; *at; ) {
        const size_t length = strcspn(at, ",");
        enum axis a = 0;
        while (a < AXIS_COUNT && (strlen(axis_name(a)) != length || strncmp(at, axis_name(a), length) != 0)) a++;
        if (a == AXIS_COUNT || taken[a] || n == AXIS_COUNT) return false;
        taken[a] = true, order[n++] = a;
        at += length;
        if (*at == ',' && *++at == '\0') return false;
    }
    for (int a = AXIS_COUNT - 1; a >= 0; a--)
        if (!taken[a]) order[n++] = (enum axis)a;
    return true;
}

static void place_by_axes(const struct mesh *mesh, const enum axis order[AXIS_COUNT], int *slot)
{
    for (int rank = 0; rank < mesh->devices; rank++) {
        int stride = 1;
        slot[rank] = 0;
        for (int i = 0; i < AXIS_COUNT; i++) {
            slot[rank] += mesh_coordinate(mesh, rank, order[i]) * stride;
            stride *= mesh->size[order[i]];
        }
    }
}

/* ---- by a list --------------------------------------------------------------------------------------------------- */

static bool slots_number(const char **at, int64_t *number)
{
    int digits = 0;
    for (*number = 0; **at >= '0' && **at <= '9' && digits < 8; (*at)++, digits++)
        *number = 10 * *number + **at - '0';
    return digits > 0 && digits < 8;
}

/* "4-7,0-3": the places of devices 0, 1, ..  @return what is wrong; NULL: nothing. */
static const char *read_list(const char *slots, int devices, int *slot, bool *taken)
{
    int n = 0;
    for (const char *at = slots; *at; ) {
        int64_t first, last;
        if (!slots_number(&at, &first)) return "must be axes such as dp,tp,pp, or places such as 4-7,0-3";
        last = first;
        if (*at == '-' && (at++, !slots_number(&at, &last))) return "a range has a last place, such as 4-7";
        if (last < first) return "a range goes up, such as 4-7";
        for (int64_t place = first; place <= last; place++) {
            if (place >= devices) return "a place is beyond the last device's";
            if (taken[place]) return "a place comes twice";
            taken[place] = true, slot[n++] = (int)place;
        }
        if (*at != '\0' && *at != ',') return "must be axes such as dp,tp,pp, or places such as 4-7,0-3";
        if (*at == ',' && *++at == '\0') return "ends with a comma";
    }
    return n == devices ? NULL : "there must be a place for each device";
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

enum error_code train_take_slots(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct plan *const plan = &options->plan;
    int devices = plan->mesh.devices;
    enum axis order[AXIS_COUNT];
    for (int i = 0; plan->sections && i < plan->sections->count; i++)
        devices = plan->sections->at[i].mesh.first + plan->sections->at[i].mesh.devices;
    const bool axes = read_axes(words->slots, order);
    if (axes && plan->sections)
        return slots_refuse(words->slots, "sections have no common axes; give places, such as 4-7,0-3", err);
    options->slots = calloc((size_t)devices + 1, sizeof *options->slots);
    bool *const taken = calloc((size_t)devices + 1, sizeof *taken);
    const char *wrong = NULL;
    if (options->slots && taken && axes) place_by_axes(&plan->mesh, order, options->slots);
    else if (options->slots && taken) wrong = read_list(words->slots, devices, options->slots, taken);
    const bool made = options->slots && taken;
    free(taken);
    if (!made) return fail(err, ERR_MEMORY, "no memory for the places of %d devices", devices);
    if (wrong) return slots_refuse(words->slots, wrong, err);
    options->cluster.slot = options->slots;
    return OK;
}
