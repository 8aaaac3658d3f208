/* manual.c -- `orrery manual`: collects every command's options, by asking each for its help.  cli/main.c calls
 * command_manual().  Errors: ERR_USAGE for a name that is no page, ERR_MEMORY. */
#include "emulated_devices/cli/manual/manual.h"
#include "emulated_devices/cli/list/list.h"
#include <stdlib.h>
#include <string.h>

/* ---- collecting -------------------------------------------------------------------------------------------------- */

static char *manual_copy(struct manual *manual, const char *text)
{
    if (text == NULL) return NULL;
    char *own = malloc(strlen(text) + 1);
    if (own == NULL) manual->failed = true;
    return own ? strcpy(own, text) : NULL;
}

static char **copy_choices(struct manual *manual, const char *const *choices)
{
    int n = 0;
    while (choices && choices[n]) n++;
    char **own = n > 0 ? calloc((size_t)n + 1, sizeof *own) : NULL;
    if (n > 0 && own == NULL) manual->failed = true;
    for (int i = 0; own && i < n; i++) own[i] = manual_copy(manual, choices[i]);
    return own;
}

/* The names that an option takes without being a choice of a few: a flag, or the first word of a command. */
static char **registered_names(const char *command, const struct option *option)
{
    return option->kind == OPTION_STRING ? list_names_of(command, option->name) : NULL;
}

static struct manual_command *add_command(struct manual *manual, const char *name)
{
    struct manual_command *more = realloc(manual->command, (size_t)(manual->commands + 1) * sizeof *more);
    if (more == NULL) {
        manual->failed = true;
        return NULL;
    }
    manual->command = more;
    manual->command[manual->commands] = (struct manual_command){ .name = manual_copy(manual, name) };
    return &manual->command[manual->commands++];
}

static void take_options(void *context, const char *usage, const char *what, const struct option *table)
{
    struct manual *m = context;
    struct manual_command *c = &m->command[m->commands - 1];
    int n = 0;
    while (table[n].kind != OPTION_END) n++;
    c->usage = manual_copy(m, usage), c->what = manual_copy(m, what);
    c->option = calloc((size_t)n + 1, sizeof *c->option);
    if (c->option == NULL) m->failed = true;
    for (int i = 0; i < n && c->option; i++) {
        char text[OPTION_TEXT];
        if (table[i].help == NULL) continue;
        option_describe(&table[i], text);
        c->option[c->options++] = (struct manual_option){
            .name = manual_copy(m, table[i].name), .argument = manual_copy(m, table[i].argument),
                .text = manual_copy(m, text),
            .kind = table[i].kind,
            .choices = table[i].choices ? copy_choices(m, table[i].choices) : registered_names(c->name, &table[i]),
        };
    }
}

static void manual_ask(struct manual *manual, const char *command, const char *topic, const struct command *c);

static void take_topics(void *context, const char *what, const struct command *topics)
{
    struct manual *m = context;
    const int parent = m->commands - 1;
    char command[40];
    snprintf(command, sizeof command, "%s", m->command[parent].name);
    m->command[parent].what = manual_copy(m, what);
    for (const struct command *t = topics; t->description; t++) {
        if (t->name == NULL) continue;
        m->command[parent].topics++;
        manual_ask(m, command, t->name, t);
    }
}

static struct help_listener listener_of(struct manual *manual)
{
    return (struct help_listener){ manual, take_options, take_topics };
}

static void manual_ask(struct manual *manual, const char *command, const char *topic, const struct command *c)
{
    char name[80], *words[] = { (char *)"orrery", (char *)command, topic ? (char *)topic : (char *)"--help",
                                topic ? (char *)"--help" : NULL, NULL };
    struct error err;
    int status = 0;
    snprintf(name, sizeof name, "%s%s%s", command, topic ? " " : "", topic ? topic : "");
    struct manual_command *own = add_command(manual, name);
    if (own == NULL) return;
    own->line = manual_copy(manual, c->description);
    const struct help_listener listener = listener_of(manual);
    listen_to_help(&listener);
    (void)c->run(topic ? 4 : 3, words, &status, &err);
}

static void collect(struct manual *manual)
{
    static const struct command make = { "make", "a golden file of any model, batch and profile", command_golden };
    for (const struct command *c = commands; c->description; c++) {
        if (c->name) manual_ask(manual, c->name, NULL, c);
        if (c->name == NULL || strcmp(c->name, "golden") != 0 || manual->failed) continue;
        manual->command[manual->commands - 1].topics = 1;
        manual_ask(manual, "golden", make.name, &make);
    }
    listen_to_help(NULL);
}

static void free_option(struct manual_option *option)
{
    for (int i = 0; option->choices && option->choices[i]; i++) free(option->choices[i]);
    free(option->choices), free(option->name), free(option->argument), free(option->text);
}

static void free_manual(struct manual *manual)
{
    for (int i = 0; i < manual->commands; i++) {
        struct manual_command *c = &manual->command[i];
        for (int k = 0; k < c->options; k++) free_option(&c->option[k]);
        free(c->option), free(c->name), free(c->line), free(c->usage), free(c->what);
    }
    free(manual->command);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

void manual_print_plain(FILE *to, const char *text, int most)
{
    for (; *text && most-- > 0; text++) fputc(strchr("'\"`$\\[]:\n", *text) ? ' ' : *text, to);
}

enum error_code command_manual(int argc, char **argv, int *status, struct error *err)
{
    static const char *const kinds[] = { "man", "bash", "zsh", "fish", NULL };
    static void (*const print[])(FILE *, const struct manual *) = { manual_print_page, manual_print_bash,
                                                                    manual_print_zsh, manual_print_fish };
    const char *kind = NULL;
    struct manual m = { 0 };
    bool help;
    (void)status;
    const struct option table[] = {
        { "KIND", NULL, OPTION_CHOICE, &kind, .choices = kinds, .required = true,
          .help = "the man page, or a shell's completion" },
        { 0 }
    };
    enum error_code e = parse_command(
        "manual", "KIND",
        "Print the man page, or what completes commands in a shell: all from the tables that commands parse.",
        argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    collect(&m);
    if (m.failed) e = fail(err, ERR_MEMORY, "no memory for the options of all commands");
    for (int k = 0; kinds[k] && !e; k++)
        if (strcmp(kinds[k], kind) == 0) print[k](stdout, &m);
    free_manual(&m);
    list_names_forget();
    return e;
}
