/* vocabulary.c -- a table of the names of tokens.  The files that vocabulary.h names call it.  Errors are ERR_FORMAT
 * and ERR_MEMORY. */
#include "ref/text/vocabulary.h"
#include "ref/text/hash.h"
#include "ref/text/text_buffer.h"
#include <stdlib.h>
#include <string.h>

/* A name in the store. */
struct token_name { size_t at; uint32_t bytes; bool used; };

struct vocabulary {
    int32_t room, count;                /* ids are below `room`; how many are used */
    struct token_name *name;            /* [room] */
    int32_t *by_name;                   /* [slots] ids, or -1 */
    uint32_t slots;                     /* a power of two, at least twice `room`, so that searches are short */
    struct text_buffer store;           /* all names */
};

struct vocabulary *vocabulary_open(int32_t tokens)
{
    struct vocabulary *v = calloc(1, sizeof *v);
    if (v == NULL) return NULL;
    for (v->slots = 64; v->slots < 2 * (uint32_t)tokens; v->slots *= 2) { }
    v->room = tokens;
    v->name = calloc((size_t)tokens + 1, sizeof *v->name);
    v->by_name = malloc(v->slots * sizeof *v->by_name);
    if (!v->name || !v->by_name) return vocabulary_close(v), NULL;
    memset(v->by_name, -1, v->slots * sizeof *v->by_name);
    return v;
}

void vocabulary_close(struct vocabulary *vocabulary)
{
    if (vocabulary == NULL) return;
    free(vocabulary->name), free(vocabulary->by_name);
    text_buffer_free(&vocabulary->store);
    free(vocabulary);
}

/* The slot of a name, or the empty one where it would be. */
static int32_t *vocabulary_slot(const struct vocabulary *vocabulary, const char *name, size_t bytes)
{
    uint32_t i = hash_text(name, bytes) & (vocabulary->slots - 1);
    /* With open addressing the next slot is tried, until the name or an empty one is found. */
    for (; vocabulary->by_name[i] >= 0; i = (i + 1) & (vocabulary->slots - 1)) {
        const struct token_name n = vocabulary->name[vocabulary->by_name[i]];
        if (n.bytes == bytes && (bytes == 0 || memcmp(vocabulary->store.text + n.at, name, bytes) == 0)) break;
    }
    return &vocabulary->by_name[i];
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *name, size_t bytes)
{
    return *vocabulary_slot(vocabulary, name, bytes);
}

const char *vocabulary_name(const struct vocabulary *vocabulary, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= vocabulary->room || !vocabulary->name[id].used) return NULL;
    *bytes = vocabulary->name[id].bytes;
    return *bytes ? vocabulary->store.text + vocabulary->name[id].at : "";
}

int32_t vocabulary_room(const struct vocabulary *vocabulary) { return vocabulary->room; }

int32_t vocabulary_count(const struct vocabulary *vocabulary) { return vocabulary->count; }

/* A name and an id belong to each other: neither may come twice. */
enum error_code vocabulary_add(struct vocabulary *vocabulary, const char *name, size_t bytes, int32_t id,
                               struct error *err)
{
    int32_t *slot = vocabulary_slot(vocabulary, name, bytes);
    if (*slot >= 0 || vocabulary->name[id].used)
        return fail(err, ERR_FORMAT, "token %.*s, %d: two tokens have this name, or this number", (int)bytes, name,
                    (int)id);
    const size_t at = vocabulary->store.bytes;
    const enum error_code e = text_buffer_add(&vocabulary->store, name, bytes, err);
    if (e) return e;
    vocabulary->name[id] = (struct token_name){ at, (uint32_t)bytes, true };
    vocabulary->count++;
    /* The name is in the store, and its hash leads to the id. */
    *slot = id;
    return OK;
}

/* The largest id decides the size of the tables, so ids are read twice. */
enum error_code vocabulary_read(struct vocabulary **out, const struct step_reading *reading, const cJSON *object)
{
    const cJSON *one, *vocab = cJSON_GetObjectItemCaseSensitive(object, "vocab");
    int64_t id, most = -1;
    *out = NULL;
    if (!cJSON_IsObject(vocab)) return step_wrong(reading, "vocab: must be an object of names and numbers");
    cJSON_ArrayForEach(one, vocab) {
        if (!json_whole(one, &id) || id < 0 || id >= TOKENS_MOST)
            return fail(reading->err, ERR_FORMAT, "%s: model: vocab: %s: must be a number from 0 to %d", reading->path,
                        one->string, TOKENS_MOST - 1);
        most = id > most ? id : most;
    }
    struct vocabulary *vocabulary = vocabulary_open((int32_t)most + 1);
    if (vocabulary == NULL) return step_no_memory(reading);
    cJSON_ArrayForEach(one, vocab) {
        (void)json_whole(one, &id);
        const enum error_code e = vocabulary_add(vocabulary, one->string, strlen(one->string), (int32_t)id,
                                                 reading->err);
        if (e) return vocabulary_close(vocabulary), fail_about(reading->err, e, reading->path);
    }
    *out = vocabulary;
    return OK;
}
