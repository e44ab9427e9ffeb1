// Where models lie between visits: the origin's private file system, or nowhere (blobs in memory) with the reason.
// A file is whole if it has a note beside it; the note is written last and removed first.
import { HandleFile, PiecesFile, type FileNode } from './files.js';

const FOLDER = 'lamina';

export interface Stored {
    name: string;
    bytes: number;
    /** The address or file name that it came from. */
    source: string;
}

export interface Storage {
    readonly where: 'disk' | 'memory';
    /** A whole file for reading, or undefined. */
    find(name: string): Promise<FileNode | undefined>;
    /** A file for writing, with what an earlier visit left of it. It is not whole until finish. */
    edit(name: string): Promise<FileNode>;
    /** Closes the file and makes it whole. */
    finish(name: string, node: FileNode, source: string): Promise<void>;
    /** A file that is not whole after all. */
    doubt(name: string): Promise<void>;
    remove(name: string): Promise<void>;
    /** A short text beside a file that is not whole. */
    note(name: string): Promise<string | undefined>;
    setNote(name: string, text: string): Promise<void>;
    /** Bytes that may still be written; Infinity if the browser does not tell. */
    free(): Promise<number>;
}

const isMissing = (problem: unknown) => problem instanceof DOMException && problem.name === 'NotFoundError';
const filesOf = (name: string) => [`${name}.whole`, `${name}.note`, name];

async function readText(folder: FileSystemDirectoryHandle, name: string): Promise<string | undefined> {
    try {
        return await (await (await folder.getFileHandle(name)).getFile()).text();
    } catch (problem) {
        if (isMissing(problem)) return undefined;
        throw problem;
    }
}

async function drop(folder: FileSystemDirectoryHandle, name: string): Promise<void> {
    try {
        await folder.removeEntry(name);
    } catch (problem) {
        if (!isMissing(problem)) throw problem;
    }
}

async function namesIn(folder: FileSystemDirectoryHandle): Promise<string[]> {
    const names: string[] = [];
    for await (const name of folder.keys()) names.push(name);
    return names;
}

/** The models and adapters that this origin keeps on disk; none where there is no private file system. Works on the page's own thread. */
export async function stored(): Promise<Stored[]> {
    const out: Stored[] = [];
    if (!navigator.storage?.getDirectory) return out;
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
    for (const name of await namesIn(folder)) {
        const about = name.endsWith('.whole') ? await readText(folder, name) : undefined;
        if (about) out.push(JSON.parse(about) as Stored);
    }
    return out;
}

/** Removes what stored() names, or all that is kept, unfinished downloads too. Throws a DOMException for a file that is open just now. */
export async function forget(name?: string): Promise<void> {
    if (!navigator.storage?.getDirectory) return;
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
    for (const file of name === undefined ? await namesIn(folder) : filesOf(name)) await drop(folder, file);
}

export class DiskStorage implements Storage {
    readonly where = 'disk';

    private constructor(readonly folder: FileSystemDirectoryHandle) {}

    /** Throws what the browser throws where it has no such file system, or none with synchronous handles. */
    static async open(): Promise<DiskStorage> {
        if (!navigator.storage?.getDirectory) throw new Error('the page is no secure context, or the browser has no private file system');
        const root = await navigator.storage.getDirectory(), folder = await root.getDirectoryHandle(FOLDER, { create: true });
        const storage = new DiskStorage(folder), probe = `probe-${crypto.randomUUID()}`;
        (await storage.#handle(probe)).close();
        await storage.#drop(probe);
        return storage;
    }

    /** Another tab, or a worker that is just ending, may hold a file for a moment. */
    async #handle(name: string): Promise<HandleFile> {
        const file = await this.folder.getFileHandle(name, { create: true });
        for (let tries = 0; ; tries++) {
            try {
                return new HandleFile(await file.createSyncAccessHandle());
            } catch (problem) {
                if (!(problem instanceof DOMException && problem.name === 'NoModificationAllowedError') || tries === 20) throw problem;
                await new Promise((done) => setTimeout(done, 100));
            }
        }
    }

    #read = (name: string) => readText(this.folder, name);

    async #write(name: string, value: string): Promise<void> {
        const file = await this.#handle(name);
        file.truncate(0);
        file.write(new TextEncoder().encode(value), 0);
        file.flush();
        file.close();
    }

    #drop = (name: string) => drop(this.folder, name);

    async find(name: string): Promise<FileNode | undefined> {
        const whole = await this.#read(`${name}.whole`);
        if (!whole) return undefined;
        const node = await this.#handle(name);
        if (node.size === (JSON.parse(whole) as Stored).bytes) return node;
        node.close();
        return undefined;
    }

    async edit(name: string): Promise<FileNode> {
        await this.#drop(`${name}.whole`);
        return this.#handle(name);
    }

    async finish(name: string, node: FileNode, source: string): Promise<void> {
        const about: Stored = { name, bytes: node.size, source };
        node.flush();
        node.close();
        await this.#write(`${name}.whole`, JSON.stringify(about));
        await this.#drop(`${name}.note`);
    }

    doubt = (name: string) => this.#drop(`${name}.whole`);

    async remove(name: string): Promise<void> {
        for (const file of filesOf(name)) await this.#drop(file);
    }

    note = (name: string) => this.#read(`${name}.note`);
    setNote = (name: string, value: string) => this.#write(`${name}.note`, value);

    async free(): Promise<number> {
        const { quota, usage } = await navigator.storage.estimate();
        return quota === undefined ? Infinity : quota - (usage ?? 0);
    }
}

/** For this page's life only. */
export class MemoryStorage implements Storage {
    readonly where = 'memory';
    readonly #files = new Map<string, { node: FileNode; whole?: boolean; note?: string }>();

    async find(name: string): Promise<FileNode | undefined> {
        const file = this.#files.get(name);
        return file?.whole ? file.node : undefined;
    }

    async edit(name: string): Promise<FileNode> {
        const node = this.#files.get(name)?.node ?? new PiecesFile();
        this.#files.set(name, { node, note: this.#files.get(name)?.note });
        return node;
    }

    async finish(name: string, node: FileNode): Promise<void> {
        this.#files.set(name, { node, whole: true });
    }

    doubt = (name: string) => this.remove(name);

    async remove(name: string): Promise<void> {
        this.#files.delete(name);
    }

    async note(name: string): Promise<string | undefined> {
        return this.#files.get(name)?.note;
    }

    async setNote(name: string, note: string): Promise<void> {
        const file = this.#files.get(name);
        if (file) file.note = note;
    }

    async free(): Promise<number> {
        return Infinity;
    }
}
