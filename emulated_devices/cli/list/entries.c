/* entries.c -- says the entries of a part: prints them as they are wanted, notes them for a document, and keeps their
 * names.  list.c says which; the parts call list_entry and list_field.  Nothing here fails: without memory a name is
 * missing. */
#include "emulated_devices/cli/list/list.h"
#include "ref/io/options.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 23, USUAL_COLUMNS = 100 };        /* where descriptions begin; a pipe's width */

/* The part in work, and what of the part is wanted. */
static struct {
    const struct list_part *part;
    struct list_wanted wanted;
    struct list_names said;             /* of all parts so far */
    const char *group;                  /* in work; NULL: none */
    bool title, heading;                /* that of the part, and of the group, is not yet printed */
    bool shown;                         /* the entry in work is wanted */
    bool first;                         /* nothing was printed before */
    int found;                          /* entries that were shown */
    cJSON *fields;                      /* of the entry, in the document of --json */
} now = { .first = true };

const struct list_names *list_names_said(void) { return &now.said; }

void list_names_forget(void)
{
    for (int i = 0; i < now.said.count; i++) free(now.said.row[i].name), free(now.said.row[i].group);
    free(now.said.row);
    now.said = (struct list_names){ 0 };
}

static char *list_copy(const char *text)
{
    char *own = text ? malloc(strlen(text) + 1) : NULL;
    return own ? strcpy(own, text) : NULL;
}

static void keep_name(const char *name)
{
    struct list_names *said = &now.said;
    if (said->count == said->room) {
        const int room = said->room ? 2 * said->room : 256;
        struct list_name *more = realloc(said->row, (size_t)room * sizeof *more);
        if (more == NULL) return;
        said->row = more, said->room = room;
    }
    char *own = list_copy(name);
    if (own) said->row[said->count++] = (struct list_name){ own, list_copy(now.group), now.part };
}

int list_say(const struct list_part *part, const struct list_wanted *wanted)
{
    now.part = part, now.wanted = *wanted, now.title = true, now.group = NULL, now.found = 0;
    part->say();
    return now.found;
}

bool list_is_asked(const char *name) { return now.wanted.name && strcmp(now.wanted.name, name) == 0; }

void list_group(const char *name) { now.group = name, now.heading = true; }

/* Titles are printed with the first entry below them.  A line for each entry has no room for groups, except where names
 * mean nothing without their operation. */
static void print_titles(void)
{
    if (now.title) printf("%s%s\n", now.first ? "" : "\n", now.part->title);
    if (now.group && now.heading && (now.wanted.manner == LIST_WHOLE || now.part->has_operations))
        printf("\n%s\n", now.group);
    now.title = now.heading = now.first = false;
}

/* As much of a description as a line has room for. */
static void print_one_line(const char *name, const char *description)
{
    const int columns = terminal_columns(stdout), wide = (int)strlen(name) + 3,
              room = (columns > 0 ? columns : USUAL_COLUMNS) - (wide > LEFT ? wide : LEFT);
    int n = (int)strlen(description);
    if (n <= room) printf("  %-20s %s\n", name, description);
    else {
        for (n = room - 3; n > 0 && description[n] != ' ';) n--;
        printf("  %-20s %.*s...\n", name, n > 0 ? n : room - 3, description);
    }
}

static void note_in_document(const char *name, const char *description)
{
    if (!document_table("entries")) return;
    cJSON *row = document_row();
    json_add(row, "part %s name %s description %s", now.part->name, name, description);
    if (now.group && now.part->has_operations) json_add(row, "operation %s", now.group);
    now.fields = cJSON_AddArrayToObject(row, "fields");
}

void list_entry(const char *name, const char *description)
{
    const struct list_wanted *wanted = &now.wanted;
    keep_name(name);
    now.fields = NULL;
    now.shown = wanted->manner != LIST_SILENT && (wanted->name == NULL || strcmp(wanted->name, name) == 0) &&
                (wanted->group == NULL || (now.group && strcmp(wanted->group, now.group) == 0));
    if (!now.shown) return;
    now.found++;
    note_in_document(name, description);
    if (wanted->manner == LIST_NOTED) return;
    print_titles();
    if (description[0] == '\0') printf("  %s\n", name);
    else if (wanted->manner == LIST_BRIEF) print_one_line(name, description);
    else {
        printf("  %-20s ", name);
        print_wrapped(stdout, LEFT, description);
    }
}

static void say_field(const char *format, va_list args, bool print)
{
    char text[1000];
    vsnprintf(text, sizeof text, format, args);
    if (now.fields) cJSON_AddItemToArray(now.fields, cJSON_CreateString(text));
    if (!print || !now.shown || now.wanted.manner != LIST_WHOLE) return;
    printf("%*s", LEFT, "");
    print_wrapped(stdout, LEFT, text);
}

void list_field(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_field(format, args, true);
    va_end(args);
}

void list_detail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_field(format, args, now.wanted.name != NULL);
    va_end(args);
}
