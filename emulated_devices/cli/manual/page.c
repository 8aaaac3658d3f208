/* page.c -- prints the man page of orrery in troff.  manual.c calls manual_print_page().  No function returns an
 * error code. */
#include "emulated_devices/cli/manual/manual.h"
#include "ref/version.h"
#include <ctype.h>
#include <string.h>

enum { FILLED = 72 };

/* A word of text.  What roff reads as its own is written so that it is printed. */
static int put_word(FILE *to, const char *word, int n, bool first)
{
    int used = 0;
    if (first && (*word == '.' || *word == '\'')) used += fprintf(to, "\\&");
    for (int i = 0; i < n; i++) {
        if (word[i] == '\\') used += fprintf(to, "\\e");
        else if (word[i] == '-') used += fprintf(to, "\\-");
        else fputc(word[i], to), used++;
    }
    return used;
}

/* Text as lines that are short enough for whoever reads the source. */
static void put_text(FILE *to, const char *text)
{
    int at = 0;
    while (*text) {
        const int n = (int)strcspn(text, " \n");
        if (n > 0) {
            if (at > 0 && at + 1 + n > FILLED) fputc('\n', to), at = 0;
            if (at > 0) fputc(' ', to), at++;
            at += put_word(to, text, n, at == 0);
        }
        text += n;
        text += strspn(text, " \n");
    }
    if (at > 0) fputc('\n', to);
}

static void put_bold(FILE *to, const char *text)
{
    fprintf(to, "\\fB");
    put_word(to, text, (int)strlen(text), false);
    fprintf(to, "\\fR");
}

static void put_option(FILE *to, const struct manual_option *option)
{
    fprintf(to, ".TP\n");
    put_bold(to, option->name);
    if (option->argument) {
        fprintf(to, " \\fI");
        put_word(to, option->argument, (int)strlen(option->argument), false);
        fprintf(to, "\\fR");
    }
    fprintf(to, "\n");
    put_text(to, option->text[0] ? option->text : "as its name says");
}

static void put_command(FILE *to, const struct manual_command *command)
{
    fprintf(to, ".SS \"orrery ");
    put_word(to, command->name, (int)strlen(command->name), false);
    fprintf(to, "\"\n");
    put_text(to, command->what ? command->what : command->line);
    for (int i = 0; i < command->options; i++) {
        const struct manual_option *o = &command->option[i];
        if (o->kind != OPTION_HEADING) put_option(to, o);
        else {
            fprintf(to, ".PP\n");
            put_text(to, o->text);
        }
    }
}

static void put_summary(FILE *to, const struct manual *manual)
{
    for (int i = 0; i < manual->commands; i++) {
        const struct manual_command *c = &manual->command[i];
        if (strchr(c->name, ' ')) continue;
        fprintf(to, ".TP\n");
        put_bold(to, c->name);
        fprintf(to, "\n");
        put_text(to, c->line);
    }
}

void manual_print_page(FILE *to, const struct manual *manual)
{
    fprintf(to, ".TH ORRERY 1 \"%s\" \"Orrery %s\"\n.SH NAME\norrery \\- a laptop\\-size model of a GPU cluster\n"
            ".SH SYNOPSIS\n.B orrery\n.I command\n.RI [ options ]\n.SH DESCRIPTION\n", ORRERY_DATE, ORRERY_VERSION);
    put_text(to, "Every device of the cluster is a process on this machine, and the numbers are real: data, tensor, "
             "pipeline, context and expert parallelism run on it, and each tensor of each device is compared with a "
             "run on one device.  `orrery COMMAND --help' has what follows, a command at a time.");
    fprintf(to, ".SH COMMANDS\n");
    put_summary(to, manual);
    fprintf(to, ".SH OPTIONS\n");
    put_text(to, "Every command takes --plugin FILE: variants of your own, a C file that is compiled, or a shared "
             "object.");
    for (int i = 0; i < manual->commands; i++) put_command(to, &manual->command[i]);
    fprintf(to, ".SH EXIT STATUS\n");
    put_text(to, "0 done, 1 failed while running, 2 wrong usage, 3 a check failed.");
    fprintf(to, ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\n");
    put_text(to, "If it is set and not empty, nothing is coloured.");
    fprintf(to, ".TP\n.B ORRERY_WAIT_LIMIT\n");
    put_text(to, "Seconds without progress after which a job ends.");
    fprintf(to, ".TP\n.B TMPDIR\n");
    put_text(to, "Where temporary files are, instead of the system's own folder.");
    fprintf(to, ".SH SEE ALSO\n.BR mpiexec (1)\n");
}
