/* terminal.c -- finds how wide a terminal is, folds text to its width, and colours verdicts.
 *
 * All commands that print call this file.  No function here can fail: without a terminal nothing is folded.  Files of
 * cli/, run/, draw/, ref/io/ and other rooms call these functions.
 */
#define _DEFAULT_SOURCE
#include "ref/io/terminal.h"
#include "ref/io/document.h"
#include "ref/io/options.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { UNKNOWN = 80, SENTENCE = 4000 };

static int terminal_columns_of(int fd)
{
    struct winsize size;
    if (!isatty(fd)) return 0;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : UNKNOWN;
}

/* TERMINAL_VARIABLE tells the width where the standard output is kept for a document. */
int terminal_columns(FILE *to)
{
    const int fd = to == NULL ? -1 : fileno(to);
    const char *told = fd == STDOUT_FILENO ? getenv(TERMINAL_VARIABLE) : NULL;
    const int n = told ? atoi(told) : fd < 0 ? 0 : terminal_columns_of(fd);
    if (n <= 0) return 0;
    return n < TERMINAL_LEAST ? TERMINAL_LEAST : n > TERMINAL_MOST ? TERMINAL_MOST : n;
}

int picture_columns(FILE *to)
{
    const int columns = terminal_columns(to);
    return columns > 0 && columns < PICTURE_MOST ? columns : PICTURE_MOST;
}

static int widest_line(const char *text)
{
    int widest = 0;
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if ((int)n > widest) widest = (int)n;
    }
    return widest;
}

/* A text that is too wide is printed as one paragraph, folded at blanks after its title, between its blank lines. */
void say(FILE *to, int left, const char *format, ...)
{
    char whole[SENTENCE], *text = whole;
    va_list args;
    va_start(args, format);
    vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    const int columns = terminal_columns(to);
    if (columns == 0 || widest_line(text) <= columns) {
        fprintf(to, "%s\n", text);
        return;
    }
    for (; *text == '\n'; text++) fputc('\n', to);
    size_t end = strlen(text);
    const bool blank = end > 0 && text[end - 1] == '\n';
    while (end > 0 && text[end - 1] == '\n') text[--end] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    /* The text's title stands left of it, so no line is folded there. */
    fprintf(to, "%.*s", left, text);
    print_wrapped_at(to, left, columns, text + left);
    if (blank) fputc('\n', to);
}

/* See no-color.org: any value of NO_COLOR but an empty one. */
bool terminal_has_colours(FILE *to)
{
    const char *off = getenv("NO_COLOR"), *kind = getenv("TERM");
    return terminal_columns(to) > 0 && (off == NULL || *off == '\0') && (kind == NULL || strcmp(kind, "dumb") != 0);
}

/* The word before the colon is coloured; a document that is quiet shows verdicts nevertheless. */
void say_verdict(FILE *to, enum news news, const char *text)
{
    const int word = (int)strcspn(text, ":"), columns = terminal_columns(to);
    if (document_is_quiet()) document_verdict(text);
    if (columns == 0 || text[word] == '\0') {
        say(to, 0, "%s", text);
        return;
    }
    const char *on = news == GOOD_NEWS ? "\033[32m" : "\033[1;31m";
    fprintf(to, terminal_has_colours(to) ? "%s%.*s\033[0m: " : "%.0s%.*s: ", on, word, text);
    print_wrapped_at(to, word + 2, columns, text + word + 2);
}
