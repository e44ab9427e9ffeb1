#include "format/role.h"

#include <stdio.h>

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

const char *lam_part_name(enum lam_adapter_part part)
{
    static const char *const names[] = {
        [LAM_PART_A] = "lora_a", [LAM_PART_B] = "lora_b", [LAM_PART_BIAS] = "bias", [LAM_PART_MAGNITUDE] = "lora_magnitude",
        [LAM_PART_B_BIAS] = "lora_b_bias", [LAM_PART_IA3_OUTPUT] = "ia3_output", [LAM_PART_IA3_INPUT] = "ia3_input",
        [LAM_PART_STARTS] = "delta_starts", [LAM_PART_COLUMNS] = "delta_columns", [LAM_PART_VALUES] = "delta_values",
        [LAM_PART_DELTA] = "delta", [LAM_PART_WEIGHT] = "weight"};
    return names[part];
}

void lam_part_tensor(const char *module, enum lam_adapter_part part, char out[96])
{
    snprintf(out, 96, "%.80s.%s", module, lam_part_name(part));
}
