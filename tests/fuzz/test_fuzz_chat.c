/* A chat template from anybody: one that is accepted makes a text of bounded length, or refuses the messages with a
 * word.
 * tier: check
 */
#include "emulated_devices/serve/http/chat.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    static const char chat[] = "[{\"role\":\"system\",\"content\":\" a \"},{\"role\":\"user\",\"content\":\"b\\nc\"}]";
    struct error err = { .text = "" };
    struct chat_template *t;
    char *const text = as_text(data, size), *out = NULL;
    size_t bytes = 0;
    enum error_code e = chat_template_open(&t, text, "fuzz", "<s>", "</s>", &err);
    free(text);
    must(e == OK || (t == NULL && err.text[0]), "refused without a word");
    if (e) return;
    cJSON *const messages = cJSON_Parse(chat);
    e = chat_render(t, messages, &out, &bytes, &err);
    must(e ? out == NULL && err.text[0] != '\0' : out != NULL && bytes <= CHAT_TEXT_BYTES && strlen(out) == bytes,
         "a text of %zu bytes", bytes);
    free(out);
    cJSON_Delete(messages);
    chat_template_close(t);
}

FUZZ_TARGET("chat")
