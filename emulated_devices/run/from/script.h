/* script.h -- reads a shell script that starts one program, or a bare text of arguments, as words.  Nothing is
 * executed: variables, arrays, defaults and sums of numbers are expanded, conditions on words are decided, and whatever
 * else a script does is refused by line.  megatron.c calls script_read. */
#ifndef ORRERY_RUN_SCRIPT_H
#define ORRERY_RUN_SCRIPT_H

#include "ref/io/yaml.h"

/**
 * Read the arguments of the one Python program that a script starts.
 *
 * A key is a word behind "--"; its value are the words up to the next key, with blanks between.  Arguments of the
 * launcher, before the program, have keys with "launcher." in front; "launcher.program" is the program itself.  A
 * variable without a value stays as it is written, "$1"; in a condition it is empty.  Assumptions about the machine
 * have keys "script.N".
 * @param[out] root  a mapping for yml_free; NULL on failure.
 * @return OK; ERR_FORMAT with the line: unterminated quotes, a command or an expansion that is no word of this subset,
 *         no program or two of them; ERR_MEMORY.
 */
enum error_code script_read(const char *text, size_t length, const char *where, struct yaml **root, struct error *);

#endif
