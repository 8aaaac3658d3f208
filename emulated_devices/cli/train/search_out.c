/* search_out.c -- writes the first plan of a search as a file of settings, which `orrery train --config` reads.
 * search.c calls searched_write().  Errors: ERR_FILE, ERR_MEMORY; the file has its name only when it is whole. */
#include "emulated_devices/cli/train/search_report.h"
#include "ref/io/output.h"
#include "ref/io/yaml.h"
#include <stdlib.h>
#include <string.h>

/* Settings as they are written: a flag whose value has not come yet is open. */
struct settings_writer { FILE *to; bool open; };

static void close_setting(struct settings_writer *writer)
{
    if (writer->open) fputs("true\n", writer->to);
    writer->open = false;
}

/* "--dp", then "2"; or "--dp=2"; or a switch, which is true. */
static void write_word(void *context, const char *word)
{
    struct settings_writer *const writer = context;
    if (strncmp(word, "--", 2) != 0) {
        yml_print_text(writer->to, word), fputc('\n', writer->to);
        writer->open = false;
        return;
    }
    close_setting(writer);
    const size_t name = strcspn(word + 2, "=");
    fprintf(writer->to, "%.*s: ", (int)name, word + 2);
    writer->open = word[2 + name] == '\0';
    if (!writer->open) yml_print_text(writer->to, word + 3 + name), fputc('\n', writer->to);
}

/* The words of a plan have no blanks in them. */
static void write_plan(struct settings_writer *writer, char *words)
{
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) write_word(writer, word);
    close_setting(writer);
}

enum error_code searched_write(const struct searched *searched, const char *path, struct error *err)
{
    char words[PLAN_WORDS], *text = NULL;
    size_t size = 0;
    struct settings_writer writer = { open_memstream(&text, &size), false };
    if (writer.to == NULL) return fail(err, ERR_MEMORY, "no memory for the settings of a plan");
    fprintf(writer.to, "# the first plan of orrery search\n");
    searched_each_common(searched, write_word, &writer);
    close_setting(&writer);
    searched_words(searched, searched->row[0], words);
    write_plan(&writer, words);
    const bool made = fclose(writer.to) == 0;
    const enum error_code e = made ? file_write_all(path, text, size, err)
        : fail(err, ERR_MEMORY, "no memory for the settings of a plan");
    free(text);
    return fail_about(err, e, "--out");
}
