/* A file of settings from anybody: what is accepted has each key once, becomes words that the command line's parser
 * takes, and is printed as a file that is read as the same.
 * tier: check
 */
#include "ref/io/settings.h"
#include "tests/fuzz/fuzz.h"

struct values {
    bool a_switch, a_bool;
    int number;
    uint64_t seed, bytes;
    double rate;
    const char *colour, *name, *file;
};

static const char *const colours[] = { "red", "green", "blue", NULL };

enum { OPTIONS = 10 };
static void make_table(struct option table[OPTIONS + 1], struct values *v)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING, .help = "All kinds" },
        { "--switch", NULL, OPTION_SWITCH, &v->a_switch, .help = "a switch" },
        { "--bool", "YES|NO", OPTION_BOOL, &v->a_bool, .help = "yes or no" },
        { "--int", "N", OPTION_INT, &v->number, .min = 1, .max = 4096, .help = "a whole number" },
        { "--seed", "N", OPTION_UINT64, &v->seed, .help = "a large whole number" },
        { "--rate", "RATE", OPTION_DOUBLE, &v->rate, .min = 0, .max = 1, .help = "a number" },
        { "--memory", "SIZE", OPTION_SIZE, &v->bytes, .help = "bytes" },
        { "--colour", "NAME", OPTION_CHOICE, &v->colour, .choices = colours, .help = "one of three" },
        { "--name", "NAME", OPTION_STRING, &v->name, .help = "any word" },
        { "--config", "FILE", OPTION_STRING, &v->file, .help = "this file" },
        { 0 }
    };
    memcpy(table, own, sizeof own);
}

/* Read the file as a command line that has nothing else. */
static enum error_code read_settings(const char *path, struct values *v, struct option table[OPTIONS + 1],
                                     struct settings_words *w, struct error *err)
{
    bool help;
    char flag[] = "--config", *words[] = { flag, (char *)(uintptr_t)path };
    *v = (struct values){ .number = 3, .rate = 0.5, .colour = "red" };
    make_table(table, v);
    const enum error_code e = settings_expand(w, "fuzz", table, table, 2, words, err);
    return e ? e : options_parse("fuzz", w->argc, w->argv, table, &help, err);
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static void must_be_same(const struct values *a, const struct values *b)
{
    must(a->a_switch == b->a_switch && a->a_bool == b->a_bool, "a switch is lost");
    must(a->number == b->number && a->seed == b->seed && a->bytes == b->bytes, "a whole number is lost");
    must(a->rate == b->rate, "%g becomes %g", a->rate, b->rate);
    must(same_text(a->colour, b->colour) && same_text(a->name, b->name), "a text is lost");
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct values first, second;
    struct option table[OPTIONS + 1];
    struct settings_words w, again;
    char *text = NULL;
    size_t bytes = 0;
    const enum error_code e = read_settings(as_file(data, size), &first, table, &w, &err);
    if (e != OK) must((e == ERR_USAGE || e == ERR_MEMORY) && err.text[0] != '\0', "refused without a word");
    else {
        FILE *f = open_memstream(&text, &bytes);
        must(f != NULL, "no memory");
        settings_print(f, table, w.argc, w.argv, true);
        fclose(f);
        struct option other[OPTIONS + 1];
        const enum error_code back =
            read_settings(as_file_named("printed", (const uint8_t *)text, bytes), &second, other, &again, &err);
        must(back == OK, "what was printed is refused: %s", err.text);
        must_be_same(&first, &second);
        settings_free(&again);
        free(text);
    }
    settings_free(&w);
}

FUZZ_TARGET("settings")
