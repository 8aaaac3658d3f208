/* pair.h -- two numbers as text, with as many digits as it takes to tell them apart.
 *
 * Reports, verify/ and subcommands print numbers that should be equal with these functions.  No function returns an
 * error code.
 */
#ifndef ORRERY_PAIR_H
#define ORRERY_PAIR_H

/* Two numbers as texts, with the digits that tell them apart. */
struct pair_text { char first[32], second[32]; };

/**
 * Write two numbers, of which a reader compares one with the other.
 * @param format  'e' or 'g', as of printf.
 * @param digits  its precision, more where both texts would be the same though the numbers are not.
 */
struct pair_text pair_text(char format, int digits, double first, double second);

#endif
