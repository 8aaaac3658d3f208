/* token_ids.c -- keeps a list of tokens that doubles when it is full.  token_ids.h names the callers; a bool says
 * whether there was memory. */
#include "ref/text/token_ids.h"
#include <stdlib.h>
#include <string.h>

enum { TOKEN_IDS_FIRST_ROOM = 256 };

static bool token_ids_reserve(struct token_ids *token_ids, int64_t more)
{
    int64_t room = token_ids->room ? token_ids->room : TOKEN_IDS_FIRST_ROOM;
    if (token_ids->count + more <= token_ids->room) return true;
    while (room < token_ids->count + more) room *= 2;
    int32_t *id = realloc(token_ids->id, (size_t)room * sizeof *id);
    if (id == NULL) return false;
    token_ids->id = id, token_ids->room = room;
    return true;
}

bool token_ids_add(struct token_ids *token_ids, int32_t id)
{
    if (token_ids->count == token_ids->room && !token_ids_reserve(token_ids, 1)) return false;
    token_ids->id[token_ids->count++] = id;
    return true;
}

bool token_ids_append(struct token_ids *token_ids, const int32_t *id, int64_t count)
{
    if (count == 0) return true;
    if (token_ids->count + count > token_ids->room && !token_ids_reserve(token_ids, count)) return false;
    memcpy(token_ids->id + token_ids->count, id, (size_t)count * sizeof *id);
    token_ids->count += count;
    return true;
}

void token_ids_free(struct token_ids *token_ids)
{
    free(token_ids->id);
    *token_ids = (struct token_ids){ 0 };
}
