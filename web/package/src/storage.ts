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
    remove(name: string): Promise<void>;
    list(): Promise<Stored[]>;
    /** A short text beside a file that is not whole. */
    note(name: string): Promise<string | undefined>;
    setNote(name: string, text: string): Promise<void>;
    /** Bytes that may still be written; Infinity if the browser does not tell. */
    free(): Promise<number>;
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

    async #read(name: string): Promise<string | undefined> {
        try {
            return await (await (await this.folder.getFileHandle(name)).getFile()).text();
        } catch (problem) {
            if (problem instanceof DOMException && problem.name === 'NotFoundError') return undefined;
            throw problem;
        }
    }

    async #write(name: string, value: string): Promise<void> {
        const file = await this.#handle(name);
        file.truncate(0);
        file.write(new TextEncoder().encode(value), 0);
        file.flush();
        file.close();
    }

    async #drop(name: string): Promise<void> {
        try {
            await this.folder.removeEntry(name);
        } catch (problem) {
            if (!(problem instanceof DOMException && problem.name === 'NotFoundError')) throw problem;
        }
    }

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

    async remove(name: string): Promise<void> {
        for (const file of [`${name}.whole`, `${name}.note`, name]) await this.#drop(file);
    }

    async list(): Promise<Stored[]> {
        const out: Stored[] = [];
        for await (const name of this.folder.keys()) {
            const about = name.endsWith('.whole') ? await this.#read(name) : undefined;
            if (about) out.push(JSON.parse(about) as Stored);
        }
        return out;
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
    readonly #files = new Map<string, { node: FileNode; about?: Stored; note?: string }>();

    async find(name: string): Promise<FileNode | undefined> {
        const file = this.#files.get(name);
        return file?.about && file.node;
    }

    async edit(name: string): Promise<FileNode> {
        const node = this.#files.get(name)?.node ?? new PiecesFile();
        this.#files.set(name, { node, note: this.#files.get(name)?.note });
        return node;
    }

    async finish(name: string, node: FileNode, source: string): Promise<void> {
        this.#files.set(name, { node, about: { name, bytes: node.size, source } });
    }

    async remove(name: string): Promise<void> {
        this.#files.delete(name);
    }

    async list(): Promise<Stored[]> {
        return [...this.#files.values()].flatMap(({ about }) => about ?? []);
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
