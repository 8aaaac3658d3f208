/* pages.c -- lesson 24: a cache in pages, and who computes next.  README.md
 * says what to do, pages.h what each function must return. */
#include "pages.h"

int64_t place_of(const int32_t *table, int B, int token)
{
/*SOLUTION*/
    return (int64_t)table[token / B] * B + token % B;
/*SKELETON
    // your code
    return 0;
*/
}

/*SOLUTION*/
static float score(const float *query, const float *key, int width)
{
    float sum = 0;
    for (int i = 0; i < width; i++) sum += query[i] * key[i];
    return sum / sqrtf((float)width);
}
/*SKELETON*/
void attend(const float *query, const float *cache, const int32_t *table, int B,
            int n, int width, float *out)
{
/*SOLUTION*/
    const int key = /*HALVES*/0/*|width*/, value = width - key;
    float most = -INFINITY, all = 0;
    for (int t = 0; t < n; t++) {
        const float *at = cache + 2 * width * place_of(table, B, t);
        most = fmaxf(most, score(query, at + key, width));
    }
    for (int i = 0; i < width; i++) out[i] = 0;
    for (int t = 0; t < n; t++) {
        const float *at = cache + 2 * width * place_of(table, B, t);
        const float weight = expf(score(query, at + key, width) - most);
        all += weight;
        for (int i = 0; i < width; i++) out[i] += weight * at[value + i];
    }
    for (int i = 0; i < width; i++) out[i] /= all;
/*SKELETON
    // your code: the largest score first; what does exp(300) give?
*/
}

/*SOLUTION*/
static int page_with(const int32_t *part, int from, const int32_t *tokens,
                     const int32_t *before, int C, int B)
{
    for (int p = 0; p < C; p++)
        if (before[p] == from
            && memcmp(tokens + p * B, part, (size_t)B * sizeof *part) == 0)
            return p;
    return -1;
}
/*SKELETON*/
int found_pages(const int32_t *prompt, int n, const int32_t *tokens,
                const int32_t *before, int C, int B, int32_t *table)
{
/*SOLUTION*/
    int found = 0, page = -1;
    while ((found + 1) * B <= n - 1) {
        page = page_with(prompt + found * B, page, tokens, before, C, B);
        if (page < 0) break;
        table[found++] = page;
    }
    return found;
/*SKELETON
    // your code: which page can stand behind the last one that was found?
    return 0;
*/
}

int release_pages(const int32_t *table, int pages, int32_t *users,
                  int32_t *vacant, int count)
{
/*SOLUTION*/
    for (int k = pages - 1; k >= 0; k--)
        if (--users[table[k]] == 0) vacant[count++] = table[k];
    return count;
/*SKELETON
    // your code
    return count;
*/
}

/*SOLUTION*/
static int at_most(int x, int most) { return x < most ? x : most; }
/*SKELETON*/
int plan_step(int n, const int32_t *length, int32_t *computed, int32_t *pages,
              int32_t *left, int B, int budget, int32_t *take)
{
/*SOLUTION*/
    for (int i = 0; i < n; i++) take[i] = 0;
    for (int i = 0; i < n; i++) {
        const int want = at_most(length[i] - computed[i], /*CHUNK*/8/*|6*/);
        const int tokens = at_most(want, budget);
        const int lacks = (computed[i] + tokens + B - 1) / B - pages[i];
        while (*left < lacks && n > i) {
            n--;
            *left += pages[n];
            pages[n] = computed[n] = 0;
        }
        if (n == i) break;
        if (lacks > 0) *left -= lacks, pages[i] += lacks;
        take[i] = tokens, budget -= tokens;
    }
    return n;
/*SKELETON
    // your code: sequences in turn; without pages, who is preempted?
    return n;
*/
}
