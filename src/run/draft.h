/* Speculative decoding: tokens that are guessed and computed together with the one that is certain. A guess decides no bit: each token is
 * drawn from its own logits, and what was guessed otherwise is forgotten. */
#ifndef LAM_RUN_DRAFT_H
#define LAM_RUN_DRAFT_H

#include "run/objects.h"

/* Guesses of what follows the history and then `next`: tokens[most], *n of them, by what followed the same last tokens before. */
void lam_draft_look_up(const struct lam_session *s, uint32_t next, uint32_t *tokens, size_t most, size_t *n);

/* The same by the bare base in a session of its own, with the draws that these tokens will be drawn by. */
lam_code lam_draft_base(struct lam_session *s, const lam_sampling *sampling, uint32_t next, uint32_t *tokens, size_t most, size_t *n,
                        lam_error *err);

/* True if `token` is what was guessed for the next place: it is appended, with its logits. */
bool lam_ahead_take(struct lam_session *s, uint32_t token);

/* Appends `token` and computes guesses[n] after it in the same pass, which are then ahead. What a guess leads to is no failure:
 * errors are those of lam_session_step for `token`. */
lam_code lam_ahead_step(struct lam_session *s, uint32_t token, const uint32_t *guesses, size_t n, lam_error *err);

#endif
