#include "format/role.h"

bool lam_role_is_matrix(enum lam_role role)
{
    switch (role) {
    case LAM_ROLE_EMBEDDING: case LAM_ROLE_OUTPUT: case LAM_ROLE_Q: case LAM_ROLE_K: case LAM_ROLE_V: case LAM_ROLE_O:
    case LAM_ROLE_GATE: case LAM_ROLE_UP: case LAM_ROLE_DOWN: return true;
    default: return false;
    }
}

enum lam_role lam_role_bias(enum lam_role matrix)
{
    switch (matrix) {
    case LAM_ROLE_Q: return LAM_ROLE_Q_BIAS;
    case LAM_ROLE_K: return LAM_ROLE_K_BIAS;
    case LAM_ROLE_V: return LAM_ROLE_V_BIAS;
    case LAM_ROLE_O: return LAM_ROLE_O_BIAS;
    case LAM_ROLE_GATE: return LAM_ROLE_GATE_BIAS;
    case LAM_ROLE_UP: return LAM_ROLE_UP_BIAS;
    case LAM_ROLE_DOWN: return LAM_ROLE_DOWN_BIAS;
    default: return (enum lam_role)0;
    }
}
