/* Chat templates: a sandboxed interpreter for the part of Jinja that chat templates use.
 *
 * The reference is Jinja2 3.1 as transformers sets it up: an immutable sandbox, trim_blocks, lstrip_blocks,
 * break and continue, the generation tag (its body is rendered as it stands), a tojson that doesn't escape HTML,
 * raise_exception and strftime_now. What differs, on purpose:
 *   - a lazy sequence (map, selectattr, range, dict.items ...) may be counted, indexed and turned into JSON;
 *     printing one is an error, where Jinja2 prints a memory address;
 *   - integers have 64 bits; one that doesn't fit is an error;
 *   - strings behind the filter safe escape the other side of a +, as in Jinja2, but lose that in methods and filters;
 *   - include, import, extends, block, do, autoescape, recursive loops and rarely used filters, tests and
 *     methods are errors that name them.
 * An unknown filter or test is an error only once it is reached, as in Jinja2. */
#ifndef LAM_TEXT_TEMPLATE_H
#define LAM_TEXT_TEMPLATE_H

#include "base/str.h"
#include "lamina/error.h"

#include <jansson.h>
#include <stddef.h>

struct lam_template;

/* Parse source[len], UTF-8. *out is owned by the caller, immutable, and may be rendered by several threads at once. */
lam_code lam_template_compile(const char *source, size_t len, struct lam_template **out, lam_error *err);

/* Render with the members of an object (messages, tools, bos_token, eos_token, add_generation_prompt ...) as
 * variables. They are borrowed for the call and unchanged. The member "strftime_now", an integer, is the local
 * time in seconds since 1970-01-01 00:00 that the function strftime_now shows; without it, a call of that
 * function is an error. The text is appended to *out; on an error *out keeps its old content. */
lam_code lam_template_render(const struct lam_template *t, const json_t *variables, struct lam_str *out,
                             lam_error *err);

void lam_template_free(struct lam_template *t);

#endif
