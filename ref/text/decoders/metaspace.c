/* metaspace.c -- the decoder Metaspace: a sign becomes a blank; in the first text signs are left out, if the file puts
 * one before a text.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include "ref/text/utf8.h"
#include <string.h>

struct metaspace { char sign[UTF8_MOST + 1]; bool drops; };

/* The keys are those of the splitter. */
static enum error_code metaspace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *sign, *scheme;
    uint32_t c;
    bool prefix, cuts;
    enum error_code e = step_state(state, sizeof(struct metaspace), reading);
    struct metaspace *metaspace = *state;
    if (!e) e = step_keys(reading, object, "replacement add_prefix_space prepend_scheme split str_rep");
    if (!e) e = step_text(reading, object, "replacement", NULL, &sign);
    if (!e) e = step_flag(reading, object, "add_prefix_space", true, &prefix);
    if (!e) e = step_flag(reading, object, "split", true, &cuts);
    if (!e) e = step_text(reading, object, "prepend_scheme", prefix ? "always" : "never", &scheme);
    if (e) return e;
    if (*sign == '\0' || utf8_first(sign, strlen(sign), &c) != (int)strlen(sign))
        return step_wrong(reading, "replacement: must be one character");
    const bool never = strcmp(scheme, "never") == 0;
    if (!never && strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0)
        return step_wrong(reading, "prepend_scheme: is always, first or never");
    if (!prefix && !never) return step_wrong(reading, "add_prefix_space and prepend_scheme contradict");
    strcpy(metaspace->sign, sign);
    metaspace->drops = !never;
    return OK;
}

static enum error_code metaspace_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                       struct error *err)
{
    const struct metaspace *metaspace = state;
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        const char *blank = metaspace->drops && i == 0 ? "" : " ";
        e = text_buffer_replaced(&out->text, text, bytes, metaspace->sign, blank, err);
        if (!e) e = token_texts_end(out, err);
    }
    return e;
}

const struct decoder_kind decoder_metaspace = { { "Metaspace", metaspace_read, NULL }, metaspace_apply };
