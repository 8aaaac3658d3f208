/* cluster_shared.c -- reads the links of a cluster that several devices share.
 *
 * cluster.c calls shared_read after it has read the levels of links, and shared_check for a mesh.  A wrong key or
 * value is ERR_FORMAT with one line, a mesh without a place ERR_PLAN.
 */
#include "emulated_devices/device/cluster_keys.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

/* A mesh has a link for each pair, so the number of links grows with the square of its devices. */
enum { SHARED_MOST_MESH = 256, SHARED_MOST_PATHS = 256 };

/* ---- which messages ---------------------------------------------------------------------------------------------- */

/* "torus": [4, 4, 2] */
static enum error_code shared_torus(struct shared_link *shared_link, const cJSON *link, const char *where,
                                    struct error *err)
{
    const cJSON *sizes;
    const enum error_code e = json_array(link, where, "torus", &sizes, err);
    if (e) return e;
    shared_link->kind = SHARED_TORUS;
    shared_link->dimensions = cJSON_GetArraySize(sizes);
    if (shared_link->dimensions < 1 || shared_link->dimensions > TORUS_MOST_DIMENSIONS)
        return fail(err, ERR_FORMAT, "%s: \"torus\" has %d dimensions; it must have 1 to %d", where,
                    shared_link->dimensions, TORUS_MOST_DIMENSIONS);
    for (int d = 0; d < shared_link->dimensions; d++) {
        int64_t size;
        if (!json_whole(cJSON_GetArrayItem(sizes, d), &size) || size < 1 || size > 1024)
            return fail(err, ERR_FORMAT, "%s: torus[%d] must be a whole number from 1 to 1024", where, d);
        shared_link->size[d] = (int)size;
    }
    return OK;
}

/* A shared link is a torus, or it says which messages of a unit use it. */
static enum error_code shared_kind(struct shared_link *shared_link, const cJSON *link, const char *where,
                                   struct error *err)
{
    static const char *const words[] = { "leaving", "inside", "pairs" };
    const char *word;
    /* A link with both, or with neither, could not be placed. */
    if (json_has(link, "torus") == json_has(link, "messages"))
        return fail(err, ERR_FORMAT, "%s: it must have either \"messages\" or \"torus\"", where);
    if (!json_has(link, "messages")) return shared_torus(shared_link, link, where, err);
    enum error_code e = json_string(link, where, "messages", &word, err);
    if (e) return e;
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (strcmp(word, words[i]) == 0) {
            shared_link->kind = (int[]){ SHARED_LEAVING, SHARED_INSIDE, SHARED_PAIRS }[i];
            return OK;
        }
    return fail(err, ERR_FORMAT, "%s: \"messages\" is '%s'; it must be leaving, inside or pairs", where,
                printable(word).text);
}

/* "level": the messages of one level alone, such as those between nodes. */
static enum error_code shared_level(struct shared_link *shared_link, const struct cluster *cluster, const cJSON *link,
                                    const char *where, struct error *err)
{
    const char *word, *names[CLUSTER_LEVELS];
    if (!json_has(link, "level")) return OK;
    const enum error_code e = json_string(link, where, "level", &word, err);
    if (e) return e;
    for (int l = 0; l < cluster->levels; l++) {
        names[l] = cluster->link[l].level;
        if (strcmp(word, names[l]) == 0) shared_link->of_level = l + 1;
    }
    if (shared_link->of_level > 0) return OK;
    const char *meant = nearest_name(word, names, (size_t)cluster->levels);
    return fail(err, ERR_FORMAT, "%s: \"level\" is '%s'; no level of \"links\" has this name%s%s%s", where,
                printable(word).text, meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

/* A unit of `devices` ranks, or every stride-th of them. */
static enum error_code shared_members(struct shared_link *shared_link, const cJSON *link, const char *where,
                                      struct error *err)
{
    int64_t devices = 0, stride = 1;
    enum error_code e = json_int(link, where, "devices", 1, 1 << 20, &devices, err);
    if (!e && json_has(link, "stride")) e = json_int(link, where, "stride", 1, 1 << 20, &stride, err);
    if (e) return e;
    shared_link->devices = (int)devices, shared_link->stride = (int)stride;
    if (devices % stride != 0)
        return fail(err, ERR_FORMAT, "%s: \"devices\" is %d; it must be a multiple of the \"stride\", %d", where,
                    shared_link->devices, shared_link->stride);
    if (shared_link->kind == SHARED_PAIRS && devices / stride > SHARED_MOST_MESH)
        return fail(err, ERR_FORMAT, "%s: a link for each pair of %d devices; a mesh may have at most %d", where,
                    (int)(devices / stride), SHARED_MOST_MESH);
    return OK;
}

/* "paths": a unit has several links beside each other, and a message takes one of them. */
static enum error_code shared_paths(struct shared_link *shared_link, const cJSON *link, const char *where,
                                    struct error *err)
{
    int64_t paths = 1;
    const char *by = "hash";
    if (json_has(link, "path_by") && !json_has(link, "paths"))
        return fail(err, ERR_FORMAT, "%s: \"path_by\" says how a path is chosen, but no \"paths\" how many there are",
                    where);
    if (!json_has(link, "paths")) return OK;
    enum error_code e = json_int(link, where, "paths", 1, SHARED_MOST_PATHS, &paths, err);
    if (!e && json_has(link, "path_by")) e = json_string(link, where, "path_by", &by, err);
    if (e) return e;
    shared_link->paths = (int)paths, shared_link->by_receiver = strcmp(by, "receiver") == 0;
    if (!shared_link->by_receiver && strcmp(by, "hash") != 0)
        return fail(err, ERR_FORMAT, "%s: \"path_by\" is '%s'; it must be hash or receiver", where,
                    printable(by).text);
    return OK;
}

/* Keys that mean nothing for the kind of a link would be ignored. */
static enum error_code shared_fit(const struct shared_link *shared_link, const cJSON *link, const char *where,
                                  struct error *err)
{
    static const struct { const char *key; bool of[SHARED_KINDS]; } only[] = {
        { "stride", { [SHARED_LEAVING] = true, [SHARED_INSIDE] = true, [SHARED_PAIRS] = true } },
        { "paths", { [SHARED_LEAVING] = true } },
        { "entering_MB_per_second", { [SHARED_LEAVING] = true } },
        { "half_duplex", { [SHARED_LEAVING] = true, [SHARED_PAIRS] = true, [SHARED_TORUS] = true } },
    };
    static const char *const name[] = { "messages that are leaving", "messages that are inside", "pairs", "a torus" };
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (json_has(link, only[i].key) && !only[i].of[shared_link->kind])
            return fail(err, ERR_FORMAT, "%s: a link of %s has no \"%s\"", where, name[shared_link->kind],
                        only[i].key);
    if (shared_link->half_duplex && shared_link->entering > 0)
        return fail(err, ERR_FORMAT, "%s: \"half_duplex\" is one rate for both directions; "
                    "\"entering_MB_per_second\" is a second one", where);
    return OK;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int64_t torus_places(const struct shared_link *shared_link)
{
    int64_t places = shared_link->devices;
    for (int d = 0; d < shared_link->dimensions; d++) places *= shared_link->size[d];
    return places;
}

/* A torus inside the units of a level has a place for each of their devices: there are as many tori as units. */
static enum error_code torus_fit(const struct shared_link *shared_link, const struct cluster *cluster,
                                 const char *where, struct error *err)
{
    if (shared_link->kind != SHARED_TORUS || shared_link->of_level == 0) return OK;
    const struct link *level = &cluster->link[shared_link->of_level - 1];
    if (level->devices == 0 || torus_places(shared_link) == level->devices) return OK;
    return fail(err, ERR_FORMAT, "%s: \"torus\" has places for %lld devices; a %s has %d", where,
                (long long)torus_places(shared_link), level->level, level->devices);
}

/* The rates of a link in both directions, and what passing it takes besides. */
static enum error_code shared_rates(struct shared_link *shared_link, const cJSON *link, const char *where,
                                    struct error *err)
{
    int64_t hop = 0;
    enum error_code e = json_int(link, where, "MB_per_second", 1, MOST_RATE, &shared_link->rate, err);
    if (!e && json_has(link, "entering_MB_per_second"))
        e = json_int(link, where, "entering_MB_per_second", 1, MOST_RATE, &shared_link->entering, err);
    if (!e && json_has(link, "half_duplex")) e = json_bool(link, where, "half_duplex", &shared_link->half_duplex, err);
    if (!e) e = read_number(link, where, "hop_ns", MOST_NS, 0, &hop, err);
    shared_link->hop = hop * 1000;
    return e;
}

static enum error_code shared_read_link(struct shared_link *shared_link, const struct cluster *cluster,
                                        const cJSON *link, const char *where, struct error *err)
{
    static const char *const known[] = { "name", "messages", "torus", "level", "devices", "stride", "paths", "path_by",
                                         "MB_per_second", "entering_MB_per_second", "half_duplex", "hop_ns", "source",
                                         NULL };
    if (!cJSON_IsObject(link)) return fail(err, ERR_FORMAT, "%s is not an object", where);
    enum error_code e = refuse_unknown(link, where, known, err);
    if (!e) e = read_name(link, where, "name", shared_link->name, sizeof shared_link->name, err);
    if (!e) e = shared_kind(shared_link, link, where, err);
    if (!e) e = shared_level(shared_link, cluster, link, where, err);
    if (!e) e = shared_members(shared_link, link, where, err);
    if (!e) e = shared_paths(shared_link, link, where, err);
    if (!e) e = shared_rates(shared_link, link, where, err);
    if (!e) e = shared_fit(shared_link, link, where, err);
    if (!e) e = torus_fit(shared_link, cluster, where, err);
    return e ? e : read_text(link, where, "source", shared_link->source, sizeof shared_link->source, err);
}

/* All shared links, and whether messages share them fairly or one after another. */
enum error_code shared_read(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *list;
    char inside[200];
    const char *turns = "fair";
    if (json_has(root, "sharing") && !json_has(root, "shared"))
        return fail(err, ERR_FORMAT, "%s: \"sharing\" says how links are shared, but no \"shared\" says which", where);
    if (!json_has(root, "shared")) return OK;
    enum error_code e = json_array(root, where, "shared", &list, err);
    if (!e && json_has(root, "sharing")) e = json_string(root, where, "sharing", &turns, err);
    if (e) return e;
    /* "fair" is the usual way; "in order" lets the first message have the link alone. */
    cluster->in_order = strcmp(turns, "in order") == 0;
    if (!cluster->in_order && strcmp(turns, "fair") != 0)
        return fail(err, ERR_FORMAT, "%s: \"sharing\" is '%s'; it must be fair or in order", where,
                    printable(turns).text);
    cluster->shares = cJSON_GetArraySize(list);
    if (cluster->shares < 1 || cluster->shares > CLUSTER_MOST_SHARED)
        return fail(err, ERR_FORMAT, "%s: \"shared\" has %d links; it must have 1 to %d", where, cluster->shares,
                    CLUSTER_MOST_SHARED);
    for (int i = 0; i < cluster->shares && !e; i++) {
        snprintf(inside, sizeof inside, "%s: shared[%d]", where, i);
        e = shared_read_link(&cluster->shared[i], cluster, cJSON_GetArrayItem(list, i), inside, err);
    }
    return e;
}

/* A torus has places for a whole number of devices, and none beyond, unless each unit of a level has its own. */
enum error_code shared_check(const struct cluster *cluster, int devices, struct error *err)
{
    for (int i = 0; i < cluster->shares; i++) {
        const struct shared_link *s = &cluster->shared[i];
        const bool repeats = s->of_level > 0 && cluster->link[s->of_level - 1].devices > 0;
        if (s->kind == SHARED_TORUS && !repeats && devices > torus_places(s))
            return fail(err, ERR_PLAN, "--cluster %s: its torus %s has places for %lld devices; the mesh has %d",
                        cluster->name, s->name, (long long)torus_places(s), devices);
    }
    return OK;
}
