/* sections_file.h -- the file of a plan with sections: what `--plan FILE` reads.
 *
 *     sections:
 *       - layers: 0-1
 *         devices: 0-2
 *         tp: 3
 *         tensor: 1d-sp
 *       - layers: 2-3
 *         devices: 3-4
 *         zero: 3
 *
 * YAML, or JSON, which YAML includes.  A plan that is written and read again is the same plan: sections_write() says
 * each value, also where a default would do.
 *
 * In place of a file the text itself can be given: it begins with "sections:".
 *
 * run/words/take_sections.c reads a file; who chooses sections writes one.  The functions are local and send nothing.
 */
#ifndef ORRERY_SECTIONS_FILE_H
#define ORRERY_SECTIONS_FILE_H

#include "emulated_devices/plan/sections.h"
#include "ref/io/yaml.h"
#include <stdio.h>

/** Whether these are sections themselves, and no name of a file. */
bool sections_are_text(const char *path);

/**
 * Read the sections of a file.  What a section does not say is as in the plan.
 * @param path       of the file, or the sections as a text.
 * @param[out] text  the file's text, to which the sections' names point; for yml_free after sections_free.
 * @return OK, for sections_free and plan_check; ERR_FILE, ERR_FORMAT naming file, line and key, ERR_PLAN or ERR_MEMORY,
 *         with nothing to free but the text.
 */
enum error_code sections_read(struct sections *, const struct plan *, const char *path, struct yaml **text,
                              struct error *);

/** Print a plan's sections as such a file. */
void sections_write(const struct plan *, FILE *to);

/** The layers, devices and axes of a plan's sections on one line, as `--plan` takes them.  @return text. */
const char *sections_words(const struct plan *, char *text, size_t size);

#endif
