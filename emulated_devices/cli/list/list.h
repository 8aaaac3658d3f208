/* list.h -- the parts of `orrery list`: everything that is registered, by the names that other commands take.
 *
 * A part is a row of list.c and a function that says its entries, one after another, with list_entry and list_field.
 * list.c runs a part for what was asked; manual/ asks for the names that a flag takes, to complete them in a shell.
 * The functions of entries.c print, or only collect; none of them fails.
 */
#ifndef ORRERY_CLI_LIST_H
#define ORRERY_CLI_LIST_H

#include "ref/io/figures.h"
#include <stdbool.h>

struct list_part {
    const char *name, *title;           /* "tensor"; the heading of its entries */
    const char *flag;                   /* that takes its names: "--tensor"; NULL: none */
    const char *axis;                   /* of the mesh, as another word for the part: "tp"; NULL: none */
    const char *topic;                  /* of `orrery show`, whose first word is a name of the part; NULL: none */
    void (*say)(void);                  /* says all entries */
    bool has_operations;                /* its groups are operations, which are flags and topics by themselves */
};

/* ---- for a part -------------------------------------------------------------------------------------------------- */

/** Say an entry's name and its description; its fields follow. */
void list_entry(const char *name, const char *description);

/** Say what is known of the entry: a line, folded. */
void list_field(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Say what only who asks for this entry by its name wants to know: where a number is from. */
void list_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Begin a group of entries: an operation's algorithms. */
void list_group(const char *name);

/** Whether the entry of this name was asked for, so that what takes seconds is worth its time. */
bool list_is_asked(const char *name);

/* ---- for list.c -------------------------------------------------------------------------------------------------- */

/* The list says as much as its caller wants. */
enum list_manner {
    LIST_SILENT,                        /* names are collected */
    LIST_NOTED,                         /* and a document gets the entries */
    LIST_BRIEF,                         /* and a line for each is printed */
    LIST_WHOLE                          /* or several, with the fields */
};
struct list_wanted {
    enum list_manner manner;            /**< Detail that the caller wants. */
    const char *name, *group;           /* entries of this name, of this group; NULL: all */
};

/* An entry that was said. */
struct list_name { char *name, *group; const struct list_part *part; };
struct list_names { struct list_name *row; int count, room; };  /* rows, and for how many there is memory */

/** Say a part as it is wanted.  @return how many entries were shown. */
int list_say(const struct list_part *, const struct list_wanted *);

/** All entries of all parts so far, each once for each time it was said.  Without memory some are missing. */
const struct list_names *list_names_said(void);
void list_names_forget(void);

/* ---- the parts --------------------------------------------------------------------------------------------------- */

void list_attention(void);
void list_backends(void);
void list_clashes(void);
void list_clusters(void);
void list_collectives(void);
void list_data(void);
void list_dtypes(void);
void list_experts(void);
void list_frameworks(void);
void list_kernel_sets(void);
void list_likes(void);
void list_memory(void);
void list_models(void);
void list_optimizers(void);
void list_planners(void);
void list_policies(void);
void list_profiles(void);
void list_routers(void);
void list_schedules(void);
void list_spatial(void);
void list_systems(void);
void list_tensor(void);

/* ---- for completion ---------------------------------------------------------------------------------------------- */

/**
 * The names that a flag, or the first word of a command, takes.
 * @param command  "train", "show schedule".
 * @param option   "--model"; or a word without dashes: the command's first.
 * @return names for list_free_names, which end with NULL; NULL: the option takes no registered names, or no memory.
 */
char **list_names_of(const char *command, const char *option);
void list_free_names(char **names);

#endif
