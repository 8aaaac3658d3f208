/* sort.c -- a stable qsort.  The C library of most Linux systems sorts by merging, so that equal entries keep their
 * order; emscripten's does not, and its lists of what takes equally long would be other ones.
 *
 * All rooms call qsort.  Without memory for a second list the program ends.
 */
#include <stdlib.h>
#include <string.h>

typedef int sort_order(const void *, const void *);

/* Merge the two sorted halves of a list through a second one of its size. */
static void sort_merge(char *list, size_t first, size_t count, size_t size, char *second, sort_order *order)
{
    char *left = list, *right = list + first * size, *to = second;
    char *const middle = right, *const end = list + count * size;
    while (left < middle && right < end) {
        char **const from = order(left, right) <= 0 ? &left : &right;
        memcpy(to, *from, size);
        *from += size, to += size;
    }
    memcpy(to, left, (size_t)(middle - left));
    memcpy(list, second, (size_t)(to - second) + (size_t)(middle - left));
}

static void sort_part(char *list, size_t count, size_t size, char *second, sort_order *order)
{
    const size_t first = count / 2;
    if (count < 2) return;
    sort_part(list, first, size, second, order);
    sort_part(list + first * size, count - first, size, second, order);
    sort_merge(list, first, count, size, second, order);
}

void qsort(void *list, size_t count, size_t size, sort_order *order)
{
    char *const second = count > 1 ? malloc(count * size) : NULL;
    if (count < 2) return;
    if (second == NULL) abort();
    sort_part(list, count, size, second, order);
    free(second);
}
