/* terminal.h -- how wide a terminal is, and text that fits it.
 *
 * Nothing is folded in a file or a pipe: there a line is a line, for programs to read.
 *
 * All rooms that print sentences or pictures ask these functions for the width.  No function here can fail.  Files of
 * cli/, run/, draw/, ref/io/ and other rooms call these functions.
 */
#ifndef ORRERY_TERMINAL_H
#define ORRERY_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum { TERMINAL_LEAST = 40, TERMINAL_MOST = 200, PICTURE_MOST = 100 };

/** Where a process finds the columns of the terminal that its parent writes to, if pipes are in between; 0: none. */
#define TERMINAL_VARIABLE "ORRERY_TERMINAL"

/** The columns of the terminal behind a stream, TERMINAL_LEAST to TERMINAL_MOST; 0 if it is not a terminal. */
int terminal_columns(FILE *);

/** The columns that a picture may have: those of a terminal, but at most PICTURE_MOST; PICTURE_MOST in a file. */
int picture_columns(FILE *);

/** Whether a stream is a terminal that shows colours, and NO_COLOR does not forbid them. */
bool terminal_has_colours(FILE *);

/**
 * Print text and end the line.  On a terminal that is too narrow for one of its lines, all of it is folded anew.
 * @param left  columns before each line but the first; the cursor must be at column 0.
 * Line ends at the beginning and at the end of the text are blank lines, also where the rest is folded.
 */
void say(FILE *to, int left, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum news { GOOD_NEWS, BAD_NEWS };

/** As say, for a verdict such as "OK: all is equal": on a terminal the word before the colon is green or red, unless
 *  NO_COLOR is set.  */
void say_verdict(FILE *to, enum news, const char *text);

#endif
