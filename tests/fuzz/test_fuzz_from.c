/* A configuration of another framework from anybody: it is refused in one line, or each key of it has ended in some
 * way, and the translation can be printed, as text and as JSON.
 * tier: check
 */
#include "emulated_devices/run/from/from.h"
#include "tests/fuzz/fuzz.h"

enum { OWN = 6 };
static char *const own[OWN] = { (char *)"--model", (char *)"llama3-8b", (char *)"--dp", (char *)"8",
                                (char *)"--vocabulary", (char *)"32000" };

static void check_printed(const struct from *from)
{
    FILE *const f = fopen("/dev/null", "w");
    must(f != NULL, "no /dev/null");
    from_print(f, from);
    fclose(f);
    cJSON *const json = from_json(from);
    must(json != NULL, "no object of JSON");
    cJSON_Delete(json);
}

static void check_translation(const struct from *from)
{
    must(from->argc == from->words + from->own_argc, "%d words of %d and %d", from->argc, from->words, from->own_argc);
    for (int i = 0; i < from->rows; i++)
        for (const char *c = from->row[i].text; *c; c++)
            must((unsigned char)*c >= ' ' && *c != 0x7f, "a row has the sign %d", *c);
    for (int i = 0; i < from->words; i++)
        must(strncmp(from->word[i].text, "--", 2) == 0, "a word is %s", from->word[i].text);
    check_printed(from);
}

/* With words of the command line, and without. */
static void try_as(const char *word, const char *text, size_t size, int argc)
{
    struct error err = { 0 };
    struct from *from;
    const enum error_code e = from_text(&from, word, text, size, argc, own, &err);
    if (e == OK) check_translation(from);
    else must(err.text[0] != '\0' && strchr(err.text, '\n') == NULL && from == NULL, "refused without one line");
    from_free(from);
}

static void try(const uint8_t *data, size_t size)
{
    char word[64], *const text = as_text(data, size);
    try_as("fuzz", text, size, OWN);
    for (int i = 0; frameworks[i]; i++) {
        snprintf(word, sizeof word, "%s:fuzz", frameworks[i]->name);
        try_as(word, text, size, OWN);
        try_as(word, text, size, 0);
    }
    free(text);
}

FUZZ_TARGET("from")
