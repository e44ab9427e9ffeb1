#include "compose/activation.h"

#include <stddef.h>

/* [state][event]: the state that follows, or NONE. */
#define NONE LAM_ACTIVATION_STATES
static const enum lam_activation_state transitions[LAM_ACTIVATION_STATES][LAM_ACTIVATION_EVENTS] = {
    /*                             begin                    done                     failed */
    [LAM_ACTIVATION_IDLE]     = {LAM_ACTIVATION_VALIDATE, NONE,                    NONE},
    [LAM_ACTIVATION_VALIDATE] = {NONE,                    LAM_ACTIVATION_RESERVE,  LAM_ACTIVATION_IDLE},
    [LAM_ACTIVATION_RESERVE]  = {NONE,                    LAM_ACTIVATION_STAGE,    LAM_ACTIVATION_IDLE},
    [LAM_ACTIVATION_STAGE]    = {NONE,                    LAM_ACTIVATION_VERIFY,   LAM_ACTIVATION_IDLE},
    [LAM_ACTIVATION_VERIFY]   = {NONE,                    LAM_ACTIVATION_COMMIT,   LAM_ACTIVATION_IDLE},
    [LAM_ACTIVATION_COMMIT]   = {NONE,                    LAM_ACTIVATION_IDLE,     LAM_ACTIVATION_IDLE},
};

static const char *const state_names[LAM_ACTIVATION_STATES] = {"idle", "validate", "reserve", "stage", "verify", "commit"};
static const char *const event_names[LAM_ACTIVATION_EVENTS] = {"begin", "done", "failed"};

const char *lam_activation_state_name(enum lam_activation_state state)
{
    return (unsigned)state < LAM_ACTIVATION_STATES ? state_names[state] : "?";
}

lam_code lam_activation_next(enum lam_activation_state *state, enum lam_activation_event event, lam_error *err)
{
    enum lam_activation_state next = NONE;
    if ((unsigned)*state < LAM_ACTIVATION_STATES && (unsigned)event < LAM_ACTIVATION_EVENTS) next = transitions[*state][event];
    if (next == NONE)
        return LAM_RAISE(err, LAM_E_CONFLICT, "activation: no \"%s\" in state %s",
                         (unsigned)event < LAM_ACTIVATION_EVENTS ? event_names[event] : "?", lam_activation_state_name(*state));
    *state = next;
    return LAM_OK;
}

static lam_code step(const struct lam_activation_steps *steps, enum lam_activation_state state, void *self, lam_error *err)
{
    lam_code (*const of_state[LAM_ACTIVATION_STATES])(void *, lam_error *) = {
        [LAM_ACTIVATION_VALIDATE] = steps->validate, [LAM_ACTIVATION_RESERVE] = steps->reserve, [LAM_ACTIVATION_STAGE] = steps->stage,
        [LAM_ACTIVATION_VERIFY] = steps->verify, [LAM_ACTIVATION_COMMIT] = steps->commit,
    };
    return of_state[state] ? of_state[state](self, err) : LAM_OK;
}

/* Undoes what was done before `failed`. */
static void go_back(const struct lam_activation_steps *steps, enum lam_activation_state failed, void *self)
{
    if (failed > LAM_ACTIVATION_STAGE && steps->unstage) steps->unstage(self);
    if (failed > LAM_ACTIVATION_RESERVE && steps->unreserve) steps->unreserve(self);
}

lam_code lam_activation_run(const struct lam_activation_steps *steps, void *self, enum lam_activation_state *state, lam_error *err)
{
    enum lam_activation_state own = LAM_ACTIVATION_IDLE, *at = state ? state : &own;
    LAM_TRY(lam_activation_next(at, LAM_ACTIVATION_BEGIN, err));
    lam_code code = LAM_OK;
    while (code == LAM_OK && *at != LAM_ACTIVATION_IDLE) {
        enum lam_activation_state now = *at;
        code = step(steps, now, self, err);
        if (code != LAM_OK) go_back(steps, now, self);
        lam_code moved = lam_activation_next(at, code == LAM_OK ? LAM_ACTIVATION_DONE : LAM_ACTIVATION_FAILED, code == LAM_OK ? err : NULL);
        if (code == LAM_OK) code = moved;
    }
    return code;
}
