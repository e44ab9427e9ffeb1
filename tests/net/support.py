"""What the tests of pull and push share: a model of some 24 MB, a server of byte ranges with faults, a proxy that cuts connections."""
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PIECE = 4 << 20


# ---- a model ----

def write_model(folder, seed=1, layers=2, hidden=512, inner=2560):
    """A llama in BF16 with random weights as Hugging Face writes it, with the tokenizer of a golden model."""
    golden = os.path.join(ROOT, "tests", "golden", "llama-gqa")
    os.makedirs(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(golden, name), folder)
    config = json.load(open(os.path.join(golden, "config.json")))
    config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, torch_dtype="bfloat16")
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    shapes = {"lm_head.weight": [288, hidden], "model.embed_tokens.weight": [288, hidden], "model.norm.weight": [hidden]}
    for i in range(layers):
        block = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden], "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
                 "mlp.down_proj": [hidden, inner], "self_attn.q_proj": [hidden, hidden], "self_attn.o_proj": [hidden, hidden],
                 "self_attn.k_proj": [hidden // 2, hidden], "self_attn.v_proj": [hidden // 2, hidden]}
        shapes.update({"model.layers.%d.%s.weight" % (i, k): v for k, v in block.items()})
    header, at, rng = {}, 0, random.Random(seed)
    for name, shape in shapes.items():
        count = 1
        for n in shape:
            count *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    data = bytearray(rng.randbytes(at))
    data[1::2] = b"\x3c" * (at // 2)  # about 0.01
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def crc32c(data):
    """RFC 3720's, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Slm:
    """A .slm by docs/format.md alone: where its pieces are and what they hash to."""

    def __init__(self, data):
        self.data = data
        self.root = "sha256:" + data[88:120].hex()
        self.begin, self.bytes = struct.unpack_from("<QQ", data, 48)
        self.n_pieces = -(-self.bytes // PIECE)
        self.leaves = [data[128 + 32 * i:160 + 32 * i] for i in range(self.n_pieces)]

    def place(self, i):
        return self.begin + i * PIECE, min(self.begin + (i + 1) * PIECE, len(self.data))

    def good(self, other):
        """The pieces that other bytes hold as they must be."""
        return [i for i in range(self.n_pieces)
                if hashlib.sha256(b"\0" + other[slice(*self.place(i))]).digest() == self.leaves[i]]


# ---- servers ----

class RangeServer:
    """Serves files with ranges on a free port of this machine. A fault is a function (handler, path, data, first, last) that answers and returns
    True, or returns False for an answer as it should be."""

    def __init__(self, tls=None):
        self.files, self.faults, self.etags, self.requests = {}, {}, {}, []
        self.sent = 0
        self.on_bytes = None  # called with all bytes sent so far, before the next ones are
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that were killed
        self.port = self.server.server_address[1]
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https" if tls else "http"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path):
        return "%s://localhost:%d/%s" % (self.scheme, self.port, path)

    def add(self, path, data, fault=None):
        self.files[path], self.faults[path] = data, fault
        return self.url(path)

    def add_folder(self, folder, prefix=""):
        for base, _, names in os.walk(folder):
            for name in names:
                full = os.path.join(base, name)
                self.add(prefix + os.path.relpath(full, folder), open(full, "rb").read())

    def send(self, handler, status, headers, body):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in headers:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        for at in range(0, len(body), 16384):
            if self.on_bytes:
                self.on_bytes(self.sent)
            part = body[at:at + 16384]
            handler.wfile.write(part)
            with self.lock:
                self.sent += len(part)

    def answer(self, handler):
        path = handler.path.lstrip("/").split("?")[0]
        data = self.files.get(path)
        if data is None:
            return self.send(handler, 404, {}, b"no such file")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), len(data) - 1)) if asked else (0, len(data) - 1)
        with self.lock:
            self.requests.append((path, first, last))
        try:
            if self.faults[path] and self.faults[path](self, handler, data, first, last):
                return
            headers = {"ETag": self.etags.get(path, '"1"'), "Content-Type": "application/octet-stream"}
            if not asked:
                return self.send(handler, 200, headers, data)
            if first >= len(data):
                return self.send(handler, 416, {"Content-Range": "bytes */%d" % len(data)}, b"")
            headers["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(data))
            self.send(handler, 206, headers, data[first:last + 1])
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            handler.close_connection = True

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Cutter:
    """A proxy of TCP connections to a port that cuts one after a random number of bytes, most_cuts times in all. Counts what it passed on."""

    def __init__(self, port, every, most_cuts, seed=1, upload=False):
        self.target, self.every, self.left, self.upload = port, every, most_cuts, upload
        self.rng, self.cuts, self.down, self.up = random.Random(seed), 0, 0, 0
        self.lock = threading.Lock()
        self.until = self.next_cut()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def next_cut(self):
        return self.rng.uniform(0.1, 1.9) * self.every if self.left else float("inf")

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            for side in (client, server):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
            threading.Thread(target=self.pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, False), daemon=True).start()

    def count(self, n, up):
        """True if the connection is to be cut now."""
        with self.lock:
            if up:
                self.up += n
            else:
                self.down += n
            if up == self.upload:
                self.until -= n
                if self.until <= 0 and self.left:
                    self.left -= 1
                    self.cuts += 1
                    self.until = self.next_cut()
                    return True
        return False

    def pump(self, source, to, up):
        try:
            while True:
                part = source.recv(8192)
                if not part:
                    break
                to.sendall(part)
                if self.count(len(part), up):
                    break
        except OSError:
            pass
        for side in (source, to):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            side.close()

    def close(self):
        self.listener.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def wait_for_port(port, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nothing answers on port %d" % port)


# ---- running ----

class Lamina:
    """The program, with a store of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder
        self.store = os.path.join(folder, "store")
        self.environment = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8", "LAMINA_STORE": self.store,
                            "LAMINA_CACHE": os.path.join(folder, "cache"), "LAMINA_TRUST": os.path.join(folder, "trust")}
        os.makedirs(os.path.join(folder, "trust"), exist_ok=True)

    def start(self, *arguments, **environment):
        return subprocess.Popen([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                env=dict(self.environment, **environment), cwd=self.folder)

    def run(self, *arguments, **environment):
        """(status, standard output, standard error)"""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), err.decode()

    def json(self, *arguments, **environment):
        status, out, err = self.run(*arguments, "--json", **environment)
        assert out, err
        return json.loads(out)

    def ok(self, *arguments, **environment):
        status, out, err = self.run(*arguments, **environment)
        assert status == 0, (status, out, err)
        return out + err

    def error(self, *arguments, **environment):
        """(code name, message) of a command that must fail."""
        found = self.json(*arguments, **environment)
        assert "error" in found, found
        return found["error"]["name"], found["error"]["message"]

    def blobs(self):
        folder = os.path.join(self.store, "blobs", "sha256")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def partials(self):
        folder = os.path.join(self.store, "partial")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def names(self):
        path = os.path.join(self.store, "index.json")
        if not os.path.exists(path):
            return []
        return [m["annotations"]["org.opencontainers.image.ref.name"] for m in json.load(open(path))["manifests"]]

    def has(self, data):
        """Whether these very bytes are a blob."""
        path = os.path.join(self.store, "blobs", "sha256", hashlib.sha256(data).hexdigest())
        return os.path.exists(path) and open(path, "rb").read() == data

    def nothing_stored(self):
        return not self.blobs() and not self.names()


class Skipped(Exception):
    """This machine cannot show what the case is about."""


def run_tests(cases):
    """Runs functions with a folder each; prints what tools/run_tests.sh counts. The exit status. sys.argv: a build folder, and names of cases."""
    build, only, failed = os.path.abspath(sys.argv[1]), sys.argv[2:], 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on that it is ignored
    shared = tempfile.mkdtemp(prefix="lamina-net-")
    try:
        program = os.path.join(build, "lamina")
        for case in cases:
            if only and case.__name__ not in only:
                continue
            folder = os.path.join(shared, case.__name__)
            os.makedirs(folder)
            begun = time.monotonic()
            try:
                case(Lamina(program, folder), shared)
                print("[       OK ] %s (%.1f s)" % (case.__name__, time.monotonic() - begun))
            except Skipped as why:
                print("[  SKIPPED ] %s: %s" % (case.__name__, why))
            except Exception:
                failed += 1
                print("[  FAILED  ] %s" % case.__name__)
                traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    return 1 if failed else 0


_models = {}


def model(lamina, shared, name="big", **shape):
    """The bytes of a .slm, made once for all cases."""
    path = os.path.join(shared, name + ".slm")
    if name not in _models:
        write_model(os.path.join(shared, name), **shape)
        lamina.ok("import", os.path.join(shared, name), "-o", path, "-q")
        shutil.rmtree(os.path.join(shared, name))
        _models[name] = open(path, "rb").read()
    return _models[name]


def start_nginx(folder, www, port, shared):
    """Debian's nginx, serving the folder www on port; its own files lie in folder. What lies above them, shared, is made readable to it."""
    open(os.path.join(folder, "nginx.conf"), "w").write("""
daemon off; pid %(folder)s/nginx.pid; error_log stderr crit; worker_processes 1;
events {}
http {
    access_log off; default_type application/octet-stream; types { application/json json; }
    client_body_temp_path %(folder)s/t1; proxy_temp_path %(folder)s/t2; fastcgi_temp_path %(folder)s/t3; uwsgi_temp_path %(folder)s/t4; scgi_temp_path %(folder)s/t5;
    server { listen 127.0.0.1:%(port)d; root %(www)s; }
}
""" % {"folder": folder, "port": port, "www": www})
    for inner, _, _ in os.walk(shared):
        os.chmod(inner, 0o755)
    return subprocess.Popen(["/usr/sbin/nginx", "-c", os.path.join(folder, "nginx.conf"), "-e", "stderr"])
