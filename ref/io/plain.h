/* plain.h -- makes text from outside safe for a line on a terminal.
 *
 * output.c, ref/text/generate.c, search/layers/table_file.c and the printing of errors call this file.
 */
#ifndef ORRERY_PLAIN_H
#define ORRERY_PLAIN_H

/** Replace each byte of a control character (also of Unicode's), and each invalid byte of UTF-8, by '?'. */
void plain_text(char *text);

#endif
