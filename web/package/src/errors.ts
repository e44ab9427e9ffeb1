import type { Code } from './generated.js';

/** Every failure: the core's code and its message, which names the thing and its numbers. */
export class LaminaError extends Error {
    readonly code: Code;

    constructor(code: Code, message: string) {
        super(message);
        this.name = 'LaminaError';
        this.code = code;
    }
}

/** What a worker posts instead of an error, which would lose its class on the way. */
export interface Failure {
    code: Code;
    message: string;
}

/** An error of any kind as a code: what the browser throws has none of its own. */
export function failureOf(problem: unknown): Failure {
    if (problem instanceof LaminaError) return { code: problem.code, message: problem.message };
    const name = problem instanceof Error ? problem.name : '', message = problem instanceof Error ? problem.message : String(problem);
    if (name === 'AbortError') return { code: 'LAM_E_CANCELLED', message };
    if (name === 'QuotaExceededError') return { code: 'LAM_E_NO_SPACE', message: `the browser's storage is full: ${message}` };
    if (name === 'NotFoundError') return { code: 'LAM_E_NOT_FOUND', message };
    if (name === 'NoModificationAllowedError') return { code: 'LAM_E_CONFLICT', message: `another tab uses the file: ${message}` };
    if (problem instanceof RangeError && /memory/i.test(message)) return { code: 'LAM_E_NO_MEMORY', message };
    return { code: 'LAM_E_IO', message: `${name || 'error'}: ${message}` };
}
