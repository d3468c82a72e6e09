/* text.h: text from peers, and lists of words. */
#ifndef PS_TEXT_H
#define PS_TEXT_H

#include <stddef.h>

/* Makes a peer's text safe for logs, terminals and JSON: invalid UTF-8 and control characters become '?'. A
 * text that does not fit into size bytes, including the terminator, is cut between two characters. */
void ps_text_copy(char *to, size_t size, const char *from);

/* Adds a word at the end of the list in text, behind `between` unless it is the first. What does not fit into
 * size bytes is cut. */
void ps_text_join(char *text, size_t size, const char *between, const char *word);

#endif
