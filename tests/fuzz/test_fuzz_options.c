/* A command line from anybody: one word a line, against a table with every kind of option; ranges hold for what is
 * accepted.
 * tier: check
 */
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WORDS = 64 };

static int split(char *text, char *words[MOST_WORDS])
{
    int n = 0;
    for (char *w = strtok(text, "\n"); w != NULL && n < MOST_WORDS; w = strtok(NULL, "\n")) words[n++] = w;
    return n;
}

static void try(const uint8_t *data, size_t size)
{
    static const char *const colours[] = { "red", "green", "blue", NULL };
    struct error err = { 0 };
    bool a_switch = false, a_bool = false, given = false, help = false;
    int a_int = 3;
    uint64_t seed = 1, bytes = 2;
    double rate = 0.5;
    const char *colour = "red", *name = NULL, *file = NULL;
    const struct option table[] = {
        { .kind = OPTION_HEADING, .help = "All kinds" },
        { "--switch", NULL, OPTION_SWITCH, &a_switch, .help = "a switch" },
        { "--bool", "YES|NO", OPTION_BOOL, &a_bool, .help = "yes or no" },
        { "--int", "N", OPTION_INT, &a_int, .min = 1, .max = 4096, .given = &given, .help = "a whole number" },
        { "--seed", "N", OPTION_UINT64, &seed, .help = "a large whole number" },
        { "--rate", "RATE", OPTION_DOUBLE, &rate, .min = 0, .max = 1, .help = "a number" },
        { "--memory", "SIZE", OPTION_SIZE, &bytes, .help = "bytes" },
        { "--colour", "NAME", OPTION_CHOICE, &colour, .choices = colours, .help = "one of three" },
        { "--name", "NAME", OPTION_STRING, &name, .help = "any word" },
        { "FILE", NULL, OPTION_STRING, &file, .help = "a place" },
        { 0 }
    };
    char *words[MOST_WORDS], *text = as_text(data, size);
    const int n = split(text, words);
    const enum error_code e = options_parse("fuzz", n, words, table, &help, &err);
    if (e != OK) must(e == ERR_USAGE && err.text[0] != '\0', "refused without a word");
    else if (!help) {
        must(a_int >= 1 && a_int <= 4096, "--int %d", a_int);
        must(rate >= 0 && rate <= 1, "--rate %g", rate);
        must(colour == colours[0] || colour == colours[1] || colour == colours[2], "--colour %s", colour);
        must(given || a_int == 3, "--int %d, which was not given", a_int);
    }
    if (n > 0 && size_parse(words[0], &bytes)) must(size_format(bytes).text[0] != '\0', "%s: no text for it", words[0]);
    free(text);
}

FUZZ_TARGET("options")
