// What workers alone have; TypeScript's library for workers excludes its library for pages.
interface FileSystemSyncAccessHandle {
    read(into: ArrayBufferView, options?: { at?: number }): number;
    write(from: ArrayBufferView, options?: { at?: number }): number;
    getSize(): number;
    truncate(size: number): void;
    flush(): void;
    close(): void;
}

interface FileSystemFileHandle {
    createSyncAccessHandle(): Promise<FileSystemSyncAccessHandle>;
}

declare class FileReaderSync {
    readAsArrayBuffer(blob: Blob): ArrayBuffer;
}
