/* plain.h -- text from anybody, made fit for a line on a terminal. */
#ifndef ORRERY_PLAIN_H
#define ORRERY_PLAIN_H

/** Put '?' in place of each byte that a terminal would obey (control characters, those of Unicode
 * too) or that is not UTF-8. */
void plain_text(char *text);

#endif
