/* text.h: what peers say of themselves. */
#ifndef PS_TEXT_H
#define PS_TEXT_H

#include <stddef.h>

/* A peer's text, fit for logs, terminals and JSON: what is no UTF-8, or controls a terminal, becomes '?', and
 * what does not fit into size bytes, terminator included, is cut off between two characters. */
void ps_text_copy(char *to, size_t size, const char *from);

#endif
