#include "emulated_devices/cli/show/planned.h"
#include <string.h>

enum { WORDS = 120 };

struct words { char *word[WORDS]; int count; };

static void add(struct words *w, const char *word)
{
    if (w->count < WORDS) w->word[w->count++] = (char *)(uintptr_t)word;
}

static bool has_one_of(int argc, char **argv, const char *const *names)
{
    for (; *names; names++)
        for (int i = 0; i < argc; i++)
            if (strcmp(argv[i], *names) == 0) return true;
    return false;
}

enum error_code planned_parse(struct planned *p, const struct run_kind *kind, const char *name_flag, int argc,
                              char **argv, struct error *err)
{
    static const char *const axes[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--help", "--config", NULL };
    static const char *const models[] = { "--model", "--help", "--config", NULL };
    static struct words w;
    int at = 3;
    *p = (struct planned){ .svg = NULL };
    w.count = 0;
    if (!has_one_of(argc, argv, axes)) add(&w, "--dp"), add(&w, "4");
    if (!has_one_of(argc, argv, models)) add(&w, "--model"), add(&w, "tiny");
    if (name_flag && at < argc && argv[at][0] != '-') add(&w, name_flag), add(&w, argv[at++]);
    for (; at < argc; at++) {
        if (strcmp(argv[at], "--svg") != 0) add(&w, argv[at]);
        else if (p->svg) return fail(err, ERR_USAGE, "--svg is given twice");
        else if (at + 1 == argc) return fail(err, ERR_USAGE, "--svg wants a FILE");
        else p->svg = argv[++at];
    }
    if (w.count == WORDS) return fail(err, ERR_USAGE, "%s: too many words", kind->command);
    return train_parse(&p->options, kind, w.count, w.word, err);
}
