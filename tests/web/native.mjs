// What the native program says: the files that pages load, and the digests that they must come to.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const GOLDEN = 'tests/golden';
const MODELS = { // the base of each folder of tests/golden/methods
    'llama-gqa': 'llama-gqa', 'gemma3-swa': 'gemma3-swa', 'llama-k': 'llama-k/llama-k-kmix.gguf', 'qwen2-tied': 'qwen2-tied/qwen2-tied-f16.gguf',
    'qwen3-wide': 'qwen3-wide',
};

export class Native {
    constructor(build, folder) {
        this.program = join(build, 'lamina');
        this.folder = folder;
    }

    run(...parameters) {
        return execFileSync(this.program, parameters, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 26 });
    }

    // The digests of `lamina logits`, one a position.
    logits(base, tokens, adapters = []) {
        const { logits, composition_id } = JSON.parse(this.run('logits', base, '--token-ids', tokens.join(), '--json', ...adapters.flatMap((a) => ['-a', a])));
        return { digests: logits.map(({ digest }) => digest), id: composition_id };
    }

    root(file) {
        return /sha256:[0-9a-f]{64}/.exec(this.run('verify', file))[0];
    }
}

// A fixed sequence of n tokens below `below`.
export function tokens(n, below) {
    const out = [];
    for (let i = 0, x = 7; i < n; i++) out.push((x = (x * 75 + 74) % 65537) % below);
    return out;
}

// The files of a folder as the page's `files` takes them: name to path below /files.
function folderSource(folder, at) {
    return { files: Object.fromEntries(readdirSync(folder).map((name) => [name, `/files/${at}/${name}`])) };
}

const invocation = (folder) => JSON.parse(readFileSync(join(folder, 'adapter_config.json'))).alora_invocation_tokens;

// Every base of tests/golden/methods with every adapter there: { title, base (a source), adapter, tokens, once, digests, id }.
export function methodCases(native) {
    const cases = [];
    for (const [model, where] of Object.entries(MODELS)) {
        const path = join(GOLDEN, where), at = `golden/${where}`, isFolder = !where.endsWith('.gguf');
        mkdirSync(join(native.folder, 'golden', model), { recursive: true });
        const slm = join(native.folder, `${model}.slm`);
        native.run('import', path, '-o', slm, '-q');
        const list = tokens(16, 200);
        if (isFolder) {
            for (const name of ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json', 'tokenizer.model'])
                if (existsSync(join(path, name))) cpSync(join(path, name), join(native.folder, at, name));
        } else cpSync(path, join(native.folder, at));
        const base = isFolder ? folderSource(join(native.folder, at), at) : `/files/${at}`;
        cases.push({ title: `${model}, base`, model, base, tokens: list, ...native.logits(slm, list) });
        const methods = join(GOLDEN, 'methods', model);
        for (const name of readdirSync(methods).filter((name) => !name.startsWith('tuned') && !name.endsWith('.f32'))) {
            const isSlm = name.endsWith('.slm'), once = name.startsWith('alora'), to = `methods/${model}/${name}`;
            let from = join(methods, name);
            mkdirSync(join(native.folder, 'methods', model), { recursive: true });
            if (isSlm) {
                native.run('import', from, '-m', slm, '-o', join(native.folder, to), '-q'); // bound to this base
                from = join(native.folder, to);
            } else cpSync(from, join(native.folder, to), { recursive: true });
            const input = once ? [...tokens(9, 200), ...invocation(from), ...tokens(5, 200)] : list;
            const { digests, id } = native.logits(slm, input, [from]);
            const adapter = isSlm ? `/files/${to}` : folderSource(from, to);
            cases.push({ title: `${model}, ${name}`, model, base, adapter, tokens: input, once, digests: once ? digests.slice(-1) : digests, id });
        }
    }
    return cases;
}
