// The package as it is published: node build.mjs FOLDER_OF_MODULES OUT_FOLDER. Types come from tsc (web/web.mk).
import { build } from 'esbuild';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [modules, out] = process.argv.slice(2);
const common = { bundle: true, format: 'esm', target: 'es2022', minify: true, sourcemap: false, legalComments: 'none', logLevel: 'warning' };

mkdirSync(out, { recursive: true });
// The page's side stays readable and tree-shakeable; workers are programs of their own.
await build({ ...common, minify: false, entryPoints: ['src/index.ts'], outfile: join(out, 'index.js'), external: ['./worker.js', './thread.js'] });
await build({ ...common, entryPoints: ['src/worker.ts', 'src/thread.ts'], outdir: out });
for (const name of ['lamina', 'lamina-relaxed', 'lamina-threads', 'lamina-threads-relaxed']) cpSync(join(modules, `${name}.wasm`), join(out, `${name}.wasm`));

const { scripts, devDependencies, ...about } = JSON.parse(readFileSync('package.json'));
writeFileSync(join(out, 'package.json'), `${JSON.stringify(about, null, 4)}\n`);
cpSync('../../LICENSE', join(out, 'LICENSE'));
