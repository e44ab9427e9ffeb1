export function relaxedSimdIsExact(): boolean;
