/* How a composition becomes the active one: IDLE → VALIDATE → RESERVE → STAGE → VERIFY → COMMIT → IDLE, or back to where it was. The
 * one transition table is in activation.c; the switch in memory (run/runtime.c) and the one on disk (store/switch.c) both go by it,
 * with steps of their own. */
#ifndef LAM_COMPOSE_ACTIVATION_H
#define LAM_COMPOSE_ACTIVATION_H

#include "base/error.h"

enum lam_activation_state {
    LAM_ACTIVATION_IDLE,
    LAM_ACTIVATION_VALIDATE, /* what is asked for is whole, known and fits; nothing grows with it yet */
    LAM_ACTIVATION_RESERVE,  /* the bytes it will take are set aside, or refused */
    LAM_ACTIVATION_STAGE,    /* it is made, in memory or files of its own */
    LAM_ACTIVATION_VERIFY,   /* what was made is what was asked for */
    LAM_ACTIVATION_COMMIT,   /* one store, or one rename, publishes it: no way back after that */
    LAM_ACTIVATION_STATES
};
enum lam_activation_event {
    LAM_ACTIVATION_BEGIN,
    LAM_ACTIVATION_DONE,     /* the state's step is done, all of it */
    LAM_ACTIVATION_FAILED,   /* it failed, and left nothing of its own behind */
    LAM_ACTIVATION_EVENTS
};

/* LAM_E_CONFLICT, with both named, for an event that the state does not have; *state is then as before. */
lam_code lam_activation_next(enum lam_activation_state *state, enum lam_activation_event event, lam_error *err);
const char *lam_activation_state_name(enum lam_activation_state state);

/* What each state does. A step does all of its work or, when it fails, none of it; NULL: nothing is to be done. */
struct lam_activation_steps {
    lam_code (*validate)(void *self, lam_error *err);
    lam_code (*reserve)(void *self, lam_error *err);
    lam_code (*stage)(void *self, lam_error *err);
    lam_code (*verify)(void *self, lam_error *err);
    lam_code (*commit)(void *self, lam_error *err);
    void (*unstage)(void *self);   /* undoes stage, when verify or commit failed */
    void (*unreserve)(void *self); /* undoes reserve, when a later step failed */
};

/* Goes through all states. *state (may be NULL, else IDLE at the call) tells others where it is. The first failure's code; everything
 * before is then undone, in reverse order, and the state is IDLE again. */
lam_code lam_activation_run(const struct lam_activation_steps *steps, void *self, enum lam_activation_state *state, lam_error *err);

#endif
