"""lamina push, pull and seed with Debian's docker-registry, a registry that wants tokens, and nginx:  registry.py BUILD_FOLDER [CASE…]"""
import base64
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

from support import ROOT, Cutter, Lamina, RangeServer, Slm, free_port, model, run_tests, start_nginx, wait_for_port

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """docker-registry with a folder of its own on a free port."""

    def __init__(self, folder, auth=""):
        self.port = free_port()
        self.folder = os.path.join(folder, "registry")
        config = os.path.join(folder, "registry.yml")
        open(config, "w").write("""
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}, delete: {enabled: true}}
http: {addr: "127.0.0.1:%d", secret: "of a test"}
%s
""" % (self.folder, self.port, auth))
        self.process = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_port(self.port)

    def get(self, path, accept=MANIFEST):
        request = urllib.request.Request("http://127.0.0.1:%d/v2/%s" % (self.port, path), headers={"Accept": accept})
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20).read()

    def close(self):
        self.process.terminate()
        self.process.wait()


def fill_store(lamina, shared):
    """A base of 24 MB under the name big; the small model that ships here as small, with the composition poet on it."""
    path = os.path.join(shared, "big.slm")
    data = model(lamina, shared)
    lamina.ok("store", "add", path, "--name", "big")
    lamina.ok("store", "add", os.path.join(ROOT, "data", "stories260K-Q8_0.gguf"), "--name", "small")
    lamina.ok("store", "add", os.path.join(ROOT, "data", "adapters", "oz"), "-m", "small", "--name", "oz")
    lamina.ok("compose", "small", "-a", "oz=0.5", "-o", os.path.join(lamina.folder, "poet.json"), "-q")
    lamina.ok("store", "add", os.path.join(lamina.folder, "poet.json"), "--name", "poet")
    return data


def other(lamina, name="other"):
    """Another store of the same program."""
    folder = os.path.join(lamina.folder, name)
    os.makedirs(folder, exist_ok=True)
    return Lamina(lamina.program, folder)


def there_and_back(lamina, shared):
    data = fill_store(lamina, shared)
    registry = Registry(lamina.folder)
    try:
        to = "localhost:%d/team/big:v1" % registry.port
        pushed = lamina.json("push", "big", "oci://" + to)
        assert pushed["moved"] >= len(data) and pushed["had"] == 0, pushed
        # what the registry holds, as its own API tells it
        manifest = json.loads(registry.get("team/big/manifests/v1"))
        layer = manifest["layers"][0]
        assert layer["digest"] == "sha256:" + hashlib.sha256(data).hexdigest() and layer["size"] == len(data), layer
        assert layer["annotations"]["lamina.file_root"] == Slm(data).root, layer
        assert registry.get("team/big/blobs/" + layer["digest"]) == data
        again = lamina.json("push", "big", to)
        assert again["moved"] <= 4096 and again["had"] == again["blobs"], again
        reader = other(lamina)
        pulled = reader.json("pull", to)
        assert reader.has(data) and pulled["name"] == "team/big:v1" and pulled["digest"] == pushed["digest"] and pulled["trust"] == "first use", pulled
        assert pulled["moved"] <= len(data) + 4096, pulled
        assert reader.json("pull", to)["had"] == pulled["blobs"]
        assert reader.json("pull", "localhost:%d/team/big@%s" % (registry.port, pushed["digest"]), "--name", "pinned")["trust"] == "given"
        name, message = reader.error("pull", "localhost:%d/team/big:v1@sha256:%s" % (registry.port, "1" * 64))
        assert name == "LAM_E_ROOT" and pushed["digest"] in message, message
        assert reader.error("pull", "localhost:%d/team/big:none" % registry.port)[0] == "LAM_E_NOT_FOUND"
    finally:
        registry.close()


def a_composition_with_all_its_layers(lamina, shared):
    fill_store(lamina, shared)
    registry = Registry(lamina.folder)
    try:
        to = "localhost:%d/poet" % registry.port
        lamina.ok("push", "poet", to)
        reader = other(lamina)
        pulled = reader.json("pull", to)
        assert pulled["kind"] == "composition" and pulled["name"] == "poet", pulled
        ids = [x.json("run", "poet", "--raw", "-p", "Once", "-n", "5") for x in (lamina, reader)]
        assert ids[0]["composition_id"] == ids[1]["composition_id"] and ids[0]["text"] == ids[1]["text"], ids
        # a tag that was moved is refused, until it is said that it was meant
        lamina.ok("push", "big", to)
        name, message = reader.error("pull", to)
        assert name == "LAM_E_ROOT", message
        digest = lamina.json("push", "big", to)["digest"]
        assert reader.json("pull", to + ":latest@" + digest)["trust"] == "given"
        assert reader.json("pull", to)["trust"] == "known"
    finally:
        registry.close()


class ResumingRegistry:
    """The part of a registry that takes uploads, of one blob, as the distribution specification has it: it keeps what it got when a connection
    breaks, and says how much that is."""

    def __init__(self):
        self.got, self.blobs, self.manifest = bytearray(), {}, None
        upload = threading.Lock()  # how far it came is told when what broke has been read to its end
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, **headers):
                self.send_response(status)
                for name, value in dict(headers, Content_Length=headers.get("Content_Length", 0)).items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()

            def body(self, into):
                left = int(self.headers.get("Content-Length", 0))
                while left:
                    part = self.rfile.read1(min(left, 8192))
                    if not part:
                        self.close_connection = True
                        return False
                    into += part
                    left -= len(part)
                return True

            def do_HEAD(self):
                digest = self.path.rsplit("/", 1)[1]
                found = outer.blobs.get(digest)
                self.reply(404 if found is None else 200, Content_Length=len(found or b""))

            def do_POST(self):
                outer.got = bytearray()
                self.reply(202, Location="/v2/big/blobs/uploads/1", Range="0-0")

            def do_GET(self):
                with upload:
                    self.reply(204, Location="/v2/big/blobs/uploads/1", Range="0-%d" % max(len(outer.got) - 1, 0))

            def do_PATCH(self):
                with upload:
                    if int(self.headers["Content-Range"].split("-")[0]) != len(outer.got):
                        self.close_connection = True
                        return self.reply(416, Range="0-%d" % max(len(outer.got) - 1, 0))
                    if self.body(outer.got):
                        self.reply(202, Location="/v2/big/blobs/uploads/1", Range="0-%d" % (len(outer.got) - 1))

            def do_PUT(self):
                rest = bytearray()
                if not self.body(rest):
                    return
                if "/manifests/" in self.path:
                    outer.manifest = bytes(rest)
                    return self.reply(201)
                digest = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)["digest"][0]
                if digest != "sha256:" + hashlib.sha256(outer.got).hexdigest():
                    return self.reply(400)
                outer.blobs[digest], outer.got = bytes(outer.got), bytearray()
                self.reply(201, Docker_Content_Digest=digest)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def push_cut_fifty_times(lamina, shared):
    """To a registry that takes broken uploads up, nothing goes twice."""
    data = fill_store(lamina, shared)
    registry = ResumingRegistry()
    proxy = Cutter(registry.port, len(data) / 56, 50, seed=5, upload=True)
    lamina.ok("push", "big", "localhost:%d/big" % proxy.port)
    assert registry.blobs["sha256:" + hashlib.sha256(data).hexdigest()] == data and registry.manifest
    assert proxy.cuts == 50, proxy.cuts
    print("             %d cuts, %.4f of the size went through the proxy" % (proxy.cuts, proxy.up / len(data)))
    assert proxy.up <= 1.02 * len(data), proxy.up / len(data)


def cut_fifty_times(lamina, shared):
    """docker-registry, both ways through a proxy that cuts connections. It forgets an upload that broke: what it has in the end counts."""
    data = fill_store(lamina, shared)
    registry = Registry(lamina.folder)
    try:
        up = Cutter(registry.port, len(data) / 56, 50, seed=5, upload=True)
        lamina.ok("push", "big", "localhost:%d/big" % up.port)
        assert registry.get("big/blobs/sha256:" + hashlib.sha256(data).hexdigest()) == data
        assert up.cuts == 50, up.cuts
        print("             push: %d cuts, %.4f of the size went through the proxy" % (up.cuts, up.up / len(data)))
        down = Cutter(registry.port, len(data) / 56, 50, seed=7)
        reader = other(lamina)
        reader.ok("pull", "localhost:%d/big" % down.port)
        assert reader.has(data) and down.cuts == 50, down.cuts
        print("             pull: %d cuts, %.4f of the size came through the proxy" % (down.cuts, down.down / len(data)))
        assert down.down <= 1.02 * len(data), down.down / len(data)
    finally:
        registry.close()


def passwords(lamina, shared):
    """docker-registry with a password file: from --user, and as docker login keeps it."""
    hashed = "$2b$05$QUGSL1okpgTCaZs5VSfTW.eZZKuJtGKZ3swgZblIUfyA66X4BUF4y"  # bcrypt, of "geheim"
    fill_store(lamina, shared)
    open(os.path.join(lamina.folder, "htpasswd"), "w").write("anna:%s\n" % hashed)
    registry = Registry(lamina.folder, "auth: {htpasswd: {realm: test, path: %s}}" % os.path.join(lamina.folder, "htpasswd"))
    try:
        to = "localhost:%d/small" % registry.port
        name, message = lamina.error("push", "small", to)
        assert name == "LAM_E_LOGIN" and "--user" in message, message
        assert lamina.error("push", "small", to, "--user", "anna:falsch")[0] == "LAM_E_LOGIN"
        lamina.ok("push", "small", to, "--user", "anna:geheim")
        reader = other(lamina)
        os.makedirs(os.path.join(reader.folder, ".docker"))
        login = base64.b64encode(b"anna:geheim").decode()
        json.dump({"auths": {"localhost:%d" % registry.port: {"auth": login}}}, open(os.path.join(reader.folder, ".docker", "config.json"), "w"))
        reader.ok("pull", to)
        assert reader.names() == ["small"]
    finally:
        registry.close()


class TokenRegistry(RangeServer):
    """Serves a store's blobs as a registry that wants a token, which its own token server gives to who is logged in."""

    def __init__(self, store, name, manifest):
        super().__init__()
        self.asked, self.token, self.lives = [], 0, 1000
        self.add_folder(os.path.join(store, "blobs", "sha256"), "v2/%s/blobs/sha256:" % name)
        text = open(os.path.join(store, "blobs", "sha256", manifest[7:]), "rb").read()
        self.add("v2/%s/manifests/latest" % name, text)

    def answer(self, handler):
        path = urllib.parse.urlparse(handler.path)
        if path.path == "/token":
            query = urllib.parse.parse_qs(path.query)
            self.asked.append(query)
            if handler.headers.get("Authorization") != "Basic " + base64.b64encode(b"anna:geheim").decode():
                return self.send(handler, 401, {}, b"{}")
            self.token, self.lives = self.token + 1, 3
            return self.send(handler, 200, {"Content-Type": "application/json"}, json.dumps({"token": "t.%d" % self.token}).encode())
        if handler.headers.get("Authorization") != "Bearer t.%d" % self.token or self.lives == 0:
            challenge = 'Bearer realm="%s",service="a registry",scope="repository:big:pull"' % self.url("token")
            return self.send(handler, 401, {"WWW-Authenticate": challenge}, b"")
        self.lives -= 1
        return super().answer(handler)


def tokens(lamina, shared):
    """The token that a challenge asks for is fetched with the login, and again when it does not do any more."""
    data = fill_store(lamina, shared)
    manifest = lamina.json("store", "list")
    digest = [e["digest"] for e in manifest["entries"] if e["name"] == "big"][0]
    server = TokenRegistry(lamina.store, "big", digest)
    reader = other(lamina)
    to = "localhost:%d/big" % server.port
    name, message = reader.error("pull", to)
    assert name == "LAM_E_LOGIN", message
    reader.ok("pull", to, "--user", "anna:geheim")
    assert reader.has(data)
    assert server.asked[-1] == {"service": ["a registry"], "scope": ["repository:big:pull"]}, server.asked[-1]
    assert len(server.asked) >= 3, len(server.asked)


def lying_registry(lamina, shared):
    """A registry whose manifest is not what its digest says, or whose blob is another one."""
    fill_store(lamina, shared)
    digest = [e["digest"] for e in lamina.json("store", "list")["entries"] if e["name"] == "small"][0]
    text = open(os.path.join(lamina.store, "blobs", "sha256", digest[7:])).read()
    server = RangeServer()
    server.add_folder(os.path.join(lamina.store, "blobs", "sha256"), "v2/small/blobs/sha256:")
    server.add("v2/small/manifests/" + digest, text.replace("lamina.base_digest", "lamina.xbase_digest").encode())
    reader = other(lamina)
    name, message = reader.error("pull", "localhost:%d/small@%s" % (server.port, digest))
    assert name == "LAM_E_DIGEST" and reader.nothing_stored(), message
    # another base_digest than the file has: all hashes are right, and what it claims to be is not
    layer = json.loads(text)["layers"][0]
    meaning = layer["annotations"]["lamina.base_digest"]
    server.add("v2/small/manifests/latest", text.replace(meaning, "sha256:" + "2" * 64).encode())
    name, message = reader.error("pull", "localhost:%d/small" % server.port)
    assert name in ("LAM_E_WRONG_BASE", "LAM_E_DIGEST") and not reader.names(), message
    assert not os.path.exists(os.path.join(reader.store, "known_roots")), open(os.path.join(reader.store, "known_roots")).read()
    reader.ok("store", "gc")
    assert reader.nothing_stored(), reader.blobs()
    # a login that nobody has
    server.add("v2/odd/manifests/latest", b"", lambda s, h, d, a, b: s.send(h, 401, {"WWW-Authenticate": "Negotiate"}, d) or True)
    assert reader.error("pull", "localhost:%d/odd" % server.port)[0] == "LAM_E_REGISTRY"
    # a challenge that no memory is to be taken for
    long = {"WWW-Authenticate": 'Bearer realm="http://localhost/' + "x" * 5000000 + '"'}
    server.add("v2/long/manifests/latest", b"", lambda s, h, d, a, b: s.send(h, 401, long, d) or True)
    name, message = reader.error("pull", "localhost:%d/long" % server.port)
    assert name == "LAM_E_HTTP" and "too long" in message, (name, message)
    # a page where a manifest should be, and nonsense
    server.add("v2/page/manifests/latest", b"<html>", lambda s, h, d, a, b: s.send(h, 200, {"Content-Type": "text/html"}, d) or True)
    assert reader.error("pull", "localhost:%d/page" % server.port)[0] == "LAM_E_HTTP_PAGE"
    server.add("v2/nonsense/manifests/latest", b"{}")
    assert reader.error("pull", "localhost:%d/nonsense" % server.port)[0] == "LAM_E_STORE_ARTIFACT"
    assert not reader.names()


def seed(lamina, shared):
    """A seed on a web server: listed, pulled, signed, trusted; a replaced one is refused."""
    fill_store(lamina, shared)
    www = os.path.join(lamina.folder, "www")
    lamina.ok("receipt", "keygen", "me", "-q")
    lamina.ok("seed", "small", "poet", "-o", www)
    server = RangeServer()
    server.add_folder(www, "s/")
    url = server.url("s/")
    reader = other(lamina)
    listed = reader.json("pull", url, "--list")
    assert listed["default"] == "small" and sorted(listed["models"]) == ["poet", "small"] and listed["standing"] == "unsigned", listed
    pulled = reader.json("pull", url)
    assert pulled["name"] == "small" and pulled["trust"] == "first use", pulled
    poet = reader.json("pull", url, "poet")
    assert poet["kind"] == "composition" and poet["had"] >= 1, poet
    # the same seed with another model under the same name, everything in it consistent
    evil = os.path.join(lamina.folder, "evil")
    thief = other(lamina, "thief")
    thief.ok("store", "add", os.path.join(shared, "big.slm"), "--name", "small")
    thief.ok("seed", "small", "-o", evil)
    server.files.clear()
    server.add_folder(evil, "s/")
    blobs = reader.blobs()
    name, message = reader.error("pull", url)
    assert name == "LAM_E_ROOT" and reader.blobs() == blobs, message
    # to who pins it, it is refused at first sight
    fresh = other(lamina, "fresh")
    for pin in (pulled["digest"], [l for l in json.load(open(os.path.join(www, "seed.json")))["statement"]["models"]["small"]["files"] if "file_root" in l][0]["file_root"]):
        assert fresh.error("pull", url + "#" + pin)[0] == "LAM_E_ROOT" and fresh.nothing_stored()
    # signed by a key of the trust list: good, and what it says outranks what was seen before
    shutil.rmtree(www)
    lamina.ok("seed", "small", "poet", "-o", www, "--key", os.path.join(lamina.folder, "me-private.pem"))
    server.files.clear()
    server.add_folder(www, "s/")
    shutil.copy(os.path.join(lamina.folder, "me.pem"), os.path.join(fresh.folder, "trust"))
    assert fresh.json("pull", url, "--list")["standing"] == "signed by me"
    assert fresh.json("pull", url)["trust"] == "signed"
    # a signed index that was changed
    index = open(os.path.join(www, "seed.json"), "rb").read()
    server.add("s/seed.json", index.replace(b'"default":"small"', b'"default":"poet"'))
    assert fresh.error("pull", url)[0] == "LAM_E_DIGEST"
    statement = json.loads(index)
    statement["statement"]["default"] = "poet"
    text = json.dumps(statement["statement"], separators=(",", ":"), sort_keys=True).encode()
    statement["digest"] = "sha256:" + hashlib.sha256(text).hexdigest()
    server.add("s/seed.json", json.dumps(statement).encode())
    assert fresh.error("pull", url)[0] == "LAM_E_SIGNATURE"
    assert lamina.error("pull", url, "nobody")[0] in ("LAM_E_SIGNATURE", "LAM_E_NOT_FOUND")


def first_launch(lamina, shared):
    """An empty store: the seed's default is fetched once; an installed model wins; without network the model that ships is taken."""
    fill_store(lamina, shared)
    www = os.path.join(lamina.folder, "www")
    lamina.ok("seed", "poet", "-o", www)
    server = RangeServer()
    server.add_folder(www)
    reader = other(lamina)
    ask = ("run", "--raw", "-p", "Once", "-n", "3")
    status, out, err = reader.run(*ask, LAMINA_SEED_URL=server.url(""))
    assert status == 0 and "fetching the default of" in err and reader.names() == ["poet"], (status, out, err)
    expected = lamina.json("run", "poet", "--raw", "-p", "Once", "-n", "3")
    assert reader.json(*ask)["composition_id"] == expected["composition_id"]
    requests = len(server.requests)
    reader.ok(*ask, LAMINA_SEED_URL=server.url(""))
    assert len(server.requests) == requests
    # installed, not active: it wins over the network
    installed = other(lamina, "installed")
    installed.ok("store", "add", os.path.join(ROOT, "tests", "golden", "qwen2-tied"), "--name", "mine")
    status, out, err = installed.run(*ask, LAMINA_SEED_URL=server.url(""))
    assert status == 0 and "mine" in err and len(server.requests) == requests, err
    # no network: what ships here, and it is said why
    server.close()
    alone = other(lamina, "alone")
    status, out, err = alone.run(*ask, LAMINA_SEED_URL=server.url(""))
    assert status == 0 and "LAM_E_NETWORK" in err and "ships with Lamina" in err and out, (status, err)
    assert alone.run(*ask)[2].count("fetching") == 0


def fsck_fetches_bad_pieces_alone(lamina, shared):
    data = model(lamina, shared)
    slm = Slm(data)
    server = RangeServer()
    lamina.ok("pull", server.add("m.slm", data))
    path = os.path.join(lamina.store, "blobs", "sha256", hashlib.sha256(data).hexdigest())
    damaged = bytearray(data)
    damaged[slm.place(2)[0] + 12345] ^= 4
    os.chmod(path, 0o644)
    open(path, "wb").write(damaged)
    os.chmod(path, 0o444)
    server.requests, server.sent = [], 0
    assert lamina.run("store", "fsck")[0] == 1 and server.sent == 0
    lamina.run("store", "fsck", "--repair")
    begin, end = slm.place(2)
    assert lamina.has(data)
    assert server.requests and all(begin <= first and last < end for _, first, last in server.requests), server.requests
    assert lamina.run("store", "fsck")[0] == 0, lamina.run("store", "fsck")


def nginx_seed(lamina, shared):
    """A signed seed of Debian's nginx through a proxy that cuts."""
    data = fill_store(lamina, shared)
    www, port = os.path.join(lamina.folder, "www"), free_port()
    lamina.ok("seed", "big", "-o", www)
    server = start_nginx(lamina.folder, www, port, shared)
    try:
        wait_for_port(port)
        proxy = Cutter(port, len(data) / 20, 15, seed=9)
        reader = other(lamina)
        reader.ok("pull", "http://localhost:%d/" % proxy.port)
        assert reader.has(data) and proxy.down <= 1.02 * len(data), proxy.down / len(data)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(run_tests([there_and_back, a_composition_with_all_its_layers, push_cut_fifty_times, cut_fifty_times, passwords, tokens, lying_registry, seed, first_launch,
                        fsck_fetches_bad_pieces_alone, nginx_seed]))
