/* document.h -- what a command prints, for programs: `--json FILE` of every command that has no document of its own.
 *
 *     { "format": "orrery show schedule", "version": 1, "orrery": "0.9", "words": ["show", "schedule", "gpipe"],
 *       "status": 0, "tables": { "schedules": [ { "schedule": "gpipe", "chunks": 1, .. }, .. ] },
 *       "data": { .. }, "text": [ "the lines that it prints", .. ] }
 *
 * A process has one standard output, and so one document.  While it is open, the standard output goes into a file;
 * document_close puts its lines into the document, and prints them unless FILE is "-".  docs/using/json.md has the keys
 * of each format.
 *
 * Subcommands open and close the document; table.c and others put rows and data into it.
 */
#ifndef ORRERY_DOCUMENT_H
#define ORRERY_DOCUMENT_H

#include "ref/error.h"
#include <stdbool.h>

struct cJSON;

/** A document of a format: an object that begins with its name, JSON_SCHEMA and the version of the program. */
struct cJSON *document_start(const char *format);

/**
 * Open the document of this process; the standard output is kept from now on.
 * @param command  "show schedule": the format is "orrery show schedule".
 * @param path     of the file that document_close writes; "-" is the standard output; NULL: there is no document.
 * @param quiet    what is printed is not shown; verdicts are (say_verdict).
 * @return OK, or ERR_FILE if output cannot be kept.
 */
enum error_code document_open(const char *command, int argc, char *const argv[], const char *path, bool quiet,
                              struct error *);

/** Show what was kept, and write the document, if one is open.  @param status  the exit status of the program.
 *  @return OK; ERR_FILE or ERR_MEMORY. */
enum error_code document_close(int status, struct error *);

/** Give the standard output back, as if no document had been asked for. */
void document_leave(void);

/** Leave the document as document_leave does, if processes that are started now run the document's command: one of
 * them writes the document. @param command  the word after "orrery". */
void document_leave_to(const char *command);

/** The object "data", for what is no table; NULL: no document is open. */
struct cJSON *document_data(void);

/** Begin a table with this name; a second one of the name continues it.  @return whether a document is open. */
bool document_table(const char *name);
/** Begin a row of the table.  @return its object. */
struct cJSON *document_row(void);
/** A cell of the row: a number if all of its text is one, else the text.
 *  @param title  of the column: the key; of a title that the row has already, with the title before it. */
void document_cell(const char *title, const char *value);

/** With --quiet: print a verdict where the standard output was before. */
void document_verdict(const char *line);

/** Whether what is printed now is kept and not shown. */
bool document_is_quiet(void);

#endif
