"""lamina pull by URL, against a server that does what servers do wrong:  pull.py BUILD_FOLDER [CASE…]"""
import gzip
import os
import subprocess
import sys
import time

from support import Cutter, PIECE, RangeServer, Skipped, Slm, crc32c, free_port, model, run_tests, start_nginx, wait_for_port


def pulls_every_byte(lamina, shared):
    data = model(lamina, shared)
    server = RangeServer()
    url = server.add("big.slm", data)
    found = lamina.json("pull", url)
    assert lamina.has(data) and lamina.names() == ["big"], found
    assert found["root"] == Slm(data).root and found["trust"] == "first use" and found["kind"] == "base", found
    assert found["moved"] <= len(data) + 128 and server.sent <= len(data) + 128
    assert any("trust on first use" in line for line in found["said"]), found
    assert "%s %s\n" % (Slm(data).root, url) in open(os.path.join(lamina.store, "known_roots")).read()
    again = lamina.json("pull", url, "--name", "again")
    assert again["trust"] == "known" and sorted(lamina.names()) == ["again", "big"], again


def several_sources_share_the_work(lamina, shared):
    data = model(lamina, shared)
    a, b = RangeServer(), RangeServer()
    lamina.ok("pull", a.add("m.slm", data) + "#" + Slm(data).root, "--source", b.add("m.slm", data))
    assert lamina.has(data) and a.sent > PIECE and b.sent > PIECE and a.sent + b.sent <= len(data) + 256


def given_root(lamina, shared):
    data = model(lamina, shared)
    server = RangeServer()
    url = server.add("m.slm", data)
    name, message = lamina.error("pull", url + "#sha256:" + "0" * 64)
    assert name == "LAM_E_ROOT" and Slm(data).root in message and "0" * 64 in message, message
    assert lamina.nothing_stored() and not lamina.partials() and server.sent == 128
    assert lamina.json("pull", url + "#" + Slm(data).root)["trust"] == "given" and lamina.has(data)
    assert lamina.error("pull", url + "#sha256:12")[0] == "LAM_E_ARGUMENT"


def another_root_later_is_refused(lamina, shared):
    data, other = model(lamina, shared), model(lamina, shared, "other", seed=2, layers=1)
    server = RangeServer()
    url = server.add("m.slm", data)
    lamina.ok("pull", url)
    server.add("m.slm", other)  # all of it is in order, but it is another model
    blobs = lamina.blobs()
    name, message = lamina.error("pull", url)
    assert name == "LAM_E_ROOT" and Slm(other).root in message, message
    assert lamina.blobs() == blobs and not lamina.partials()
    assert lamina.json("pull", url + "#" + Slm(other).root)["trust"] == "given" and lamina.has(other)
    assert lamina.json("pull", url)["trust"] == "known"


def cut_fifty_times(lamina, shared):
    data = model(lamina, shared)
    server = RangeServer()
    server.add("m.slm", data)
    proxy = Cutter(server.port, len(data) / 56, 50)
    found = lamina.json("pull", "http://localhost:%d/m.slm#%s" % (proxy.port, Slm(data).root))
    assert lamina.has(data), found
    assert proxy.cuts == 50, proxy.cuts
    assert proxy.down <= 1.02 * len(data), (proxy.down, len(data), proxy.down / len(data))
    print("             %d cuts, %.4f of the size came through the proxy" % (proxy.cuts, proxy.down / len(data)))


def killed(lamina, shared):
    """kill -9 at 1, 50, 99 % and at the last byte: nothing that was good is fetched again."""
    data = model(lamina, shared)
    slm = Slm(data)
    for at in (0.01, 0.5, 0.99, 1.0):
        server = RangeServer()
        url = server.add("m.slm", data) + "#" + slm.root
        limit = min(int(at * len(data)), len(data) - 16384)
        process = lamina.start("pull", url, "--connections", "1")

        def kill(sent):
            if sent >= limit and process.poll() is None:
                process.kill()
                process.wait()

        server.on_bytes = kill
        process.communicate(timeout=60)
        assert process.returncode == -9 and lamina.nothing_stored(), (at, process.returncode)
        partial = os.path.join(lamina.store, "partial", slm.root[7:] + ".slm")
        kept = open(partial, "rb").read() if os.path.exists(partial) else b""
        good = slm.good(kept) if len(kept) == len(data) else []
        assert len(good) >= int(at * len(data) - slm.begin) // PIECE - 2, (at, good)
        server.on_bytes, server.requests, server.sent = None, [], 0
        lamina.ok("pull", url)
        assert lamina.has(data) and not lamina.partials()
        for i in good:
            begin, end = slm.place(i)
            assert all(last < begin or first >= end for _, first, last in server.requests), (at, i, server.requests)
        assert server.sent <= len(data) - sum(slm.place(i)[1] - slm.place(i)[0] for i in good) + 256
        subprocess.run(["rm", "-rf", lamina.store], check=True)


def useless_rest(lamina, shared):
    """What lies where the rest of an earlier pull would, and is none: the pull begins anew."""
    data, other = model(lamina, shared), model(lamina, shared, "other", seed=2, layers=1)
    server, slm = RangeServer(), Slm(data)
    forged = data[:88] + other[88:120] + data[120:]
    longer = other + bytes(max(0, len(data) - len(other)))
    partial = os.path.join(lamina.store, "partial", slm.root[7:] + ".slm")
    rests = {"zeros": bytes(len(data)), "short zeros": bytes(1000), "empty": b"", "less than a header": data[:50], "a head": data[:slm.begin],
             "a header and zeros": data[:128] + bytes(len(data) - 128), "garbage": os.urandom(len(data)), "another model": other,
             "another model of this length": longer[:len(data)], "another root": forged, "longer": data + bytes(1000)}
    for what, rest in rests.items():
        for pin in ("", "#" + slm.root):
            subprocess.run(["rm", "-rf", lamina.store], check=True)
            url = server.add("m.slm", data)
            os.makedirs(os.path.dirname(partial))
            open(partial, "wb").write(rest)
            lamina.ok("pull", url + pin)
            assert lamina.has(data) and not lamina.partials(), (what, pin)


def interrupted_by_ctrl_c(lamina, shared):
    data = model(lamina, shared)
    server = RangeServer()
    url = server.add("m.slm", data) + "#" + Slm(data).root
    process = lamina.start("pull", url, "--connections", "1")
    interrupted = []

    def interrupt(sent):
        if sent > len(data) // 2:
            if not interrupted:
                process.send_signal(2)  # a second one would end it at once
            interrupted.append(sent)
            time.sleep(0.1)

    server.on_bytes = interrupt
    out, err = process.communicate(timeout=30)
    server.on_bytes = None
    assert process.returncode == 130 and b"LAM_E_CANCELLED" in err, (process.returncode, err)
    assert lamina.nothing_stored()
    assert "going on" in lamina.ok("pull", url) and lamina.has(data)


def refused(lamina, shared, fault, code, root=True, **more):
    """A server with one fault: the code, nothing stored but a line of the audit, and no second try."""
    data = model(lamina, shared)
    server = RangeServer()
    url = server.add("m.slm", data, fault)
    server.etags.update(more.get("etags", {}))
    name, message = lamina.error("pull", url + ("#" + Slm(data).root if root else ""))
    assert name == code, (name, message)
    assert lamina.nothing_stored(), lamina.blobs()
    assert url in message, message
    last = lamina.json("store", "log")["lines"][-1]
    assert (last["op"], last["outcome"], last["name"], last["error"]["code"]) == ("pull", "failed", url, code), last
    return lamina, server


def web_page_in_its_place(lamina, shared):
    def fault(server, handler, data, first, last):
        server.send(handler, 200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Welcome to our hotel</html>")
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_PAGE", root=False)
    assert not lamina.partials()


def whole_file_in_place_of_a_range(lamina, shared):
    def fault(server, handler, data, first, last):
        server.send(handler, 200, {"Content-Type": "application/octet-stream"}, data)
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_RANGE", root=False)
    assert not lamina.partials()


def wrong_range(lamina, shared):
    def fault(server, handler, data, first, last):
        if first < PIECE:
            return False
        server.send(handler, 206, {"Content-Range": "bytes %d-%d/%d" % (first - 1, last - 1, len(data))}, data[first - 1:last])
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_RANGE")


def range_without_saying_which(lamina, shared):
    def fault(server, handler, data, first, last):
        server.send(handler, 206, {"Content-Type": "multipart/byteranges; boundary=x"}, data[first:last + 1])
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_RANGE")


def changed_while_it_came(lamina, shared):
    seen = []

    def fault(server, handler, data, first, last):
        seen.append(first)
        server.etags["m.slm"] = '"%d"' % (len(seen) > 4)
        return False
    refused(lamina, shared, fault, "LAM_E_HTTP_CHANGED")


def shorter_file(lamina, shared):
    def fault(server, handler, data, first, last):
        if first < PIECE:
            return False
        short = len(data) - 100
        if first >= short:
            server.send(handler, 416, {"Content-Range": "bytes */%d" % short}, b"")
        else:
            server.send(handler, 206, {"ETag": '"1"', "Content-Range": "bytes %d-%d/%d" % (first, min(last, short - 1), short)}, data[first:min(last + 1, short)])
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_LENGTH")


def truncated_from_the_start(lamina, shared):
    data = model(lamina, shared)
    server = RangeServer()
    name, message = lamina.error("pull", server.add("m.slm", data[:-1000]))
    assert name == "LAM_E_HTTP_LENGTH" and str(len(data)) in message, message
    assert lamina.nothing_stored()
    assert lamina.error("pull", server.add("tiny.slm", data[:50]))[0] == "LAM_E_HTTP_LENGTH"
    assert lamina.error("pull", server.add("no.slm", b"GGUF" + bytes(1000)))[0] == "LAM_E_MAGIC"
    assert lamina.error("pull", server.url("absent.slm"))[0] == "LAM_E_NOT_FOUND"
    assert lamina.nothing_stored()


def compressed_on_its_way(lamina, shared):
    def fault(server, handler, data, first, last):
        body = gzip.compress(data[first:last + 1], 1)
        server.send(handler, 206, {"Content-Range": "bytes %d-%d/%d" % (first, last, len(data)), "Content-Encoding": "gzip"}, body)
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP_ENCODING", root=False)
    assert not lamina.partials()


def poisoned_piece(lamina, shared):
    """One of two sources sends one byte wrong in each piece: it is named, soon not asked any more, and everything is there."""
    data = model(lamina, shared)
    good, bad = RangeServer(), RangeServer()

    def fault(server, handler, data, first, last):
        if first < PIECE // 2:
            return False
        body = bytearray(data[first:last + 1])
        body[len(body) // 2] ^= 1
        server.send(handler, 206, {"Content-Range": "bytes %d-%d/%d" % (first, last, len(data)), "ETag": '"1"'}, bytes(body))
        return True
    url, wrong = good.add("m.slm", data), bad.add("m.slm", data, fault)
    found = lamina.json("pull", wrong + "#" + Slm(data).root, "--source", url)
    assert lamina.has(data), found
    said = [line for line in found["said"] if "LAM_E_DIGEST" in line]
    assert said and all(line.startswith(wrong) for line in said), found["said"]
    assert len(said) <= 3 + 4, said  # three faults, and what was under way by then
    assert any("not used any more" in line for line in said) == (len(said) >= 3), said
    # alone it is no source at all
    subprocess.run(["rm", "-rf", lamina.store], check=True)
    name, message = lamina.error("pull", wrong + "#" + Slm(data).root)
    assert name == "LAM_E_DIGEST" and wrong in message and lamina.nothing_stored(), message


def zero_tail(lamina, shared):
    """A source whose file ends in zeros, as one that was not written to its end."""
    data = model(lamina, shared)
    slm = Slm(data)
    begin = slm.place(slm.n_pieces - 2)[0] + PIECE // 2
    good, bad = RangeServer(), RangeServer()
    wrong = bad.add("m.slm", data[:begin] + bytes(len(data) - begin))
    found = lamina.json("pull", wrong + "#" + slm.root, "--source", good.add("m.slm", data))
    assert lamina.has(data), found
    assert all(line.startswith(wrong) and "zeros" in line for line in found["said"] if "LAM_E_DIGEST" in line), found["said"]
    subprocess.run(["rm", "-rf", lamina.store], check=True)
    assert lamina.error("pull", wrong + "#" + slm.root)[0] == "LAM_E_DIGEST" and lamina.nothing_stored()


def a_source_that_is_down(lamina, shared):
    data = model(lamina, shared)
    server, dead = RangeServer(), RangeServer()
    gone = dead.url("m.slm")
    dead.close()
    found = lamina.json("pull", gone + "#" + Slm(data).root, "--source", server.add("m.slm", data))
    assert lamina.has(data), found
    subprocess.run(["rm", "-rf", lamina.store], check=True)
    name, message = lamina.error("pull", gone)
    assert name == "LAM_E_NETWORK" and gone in message and lamina.nothing_stored(), message


def busy_server(lamina, shared):
    """503 now and then is no fault."""
    data = model(lamina, shared)
    count = []

    def fault(server, handler, data, first, last):
        count.append(first)
        if len(count) % 3:
            return False
        server.send(handler, 503, {}, b"busy")
        return True
    server = RangeServer()
    lamina.ok("pull", server.add("m.slm", data, fault) + "#" + Slm(data).root)
    assert lamina.has(data)


def broken_server(lamina, shared):
    """An error that does not pass."""
    def fault(server, handler, data, first, last):
        server.send(handler, 418, {}, b"")
        return True
    refused(lamina, shared, fault, "LAM_E_HTTP", root=False)


def hostile_head(lamina, shared):
    """A head that promises the right root and is not that head; one that claims to be enormous."""
    data, other = model(lamina, shared), model(lamina, shared, "other", seed=2, layers=1)
    server = RangeServer()
    forged = bytearray(other)
    forged[88:120] = data[88:120]
    forged[124:128] = crc32c(forged[:124]).to_bytes(4, "little")
    name, message = lamina.error("pull", server.add("m.slm", bytes(forged)) + "#" + Slm(data).root)
    assert name == "LAM_E_DIGEST" and lamina.nothing_stored() and not lamina.partials(), message
    url = server.add("good.slm", data)
    found = lamina.json("pull", server.url("m.slm") + "#" + Slm(data).root, "--source", url)
    assert lamina.has(data) and any(server.url("m.slm") in line for line in found["said"]), found


def no_room(lamina, shared):
    """A file system of 8 MB, said before the download starts."""
    small = os.path.join(lamina.folder, "small")
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], capture_output=True).returncode:
        raise Skipped("no file system of its own is to be had here")
    try:
        data = model(lamina, shared)
        server = RangeServer()
        name, message = lamina.error("pull", server.add("m.slm", data), LAMINA_STORE=os.path.join(small, "store"))
        assert name == "LAM_E_NO_SPACE" and str(len(data)) in message and "are free" in message, message
        assert server.sent <= Slm(data).begin + 128
        assert os.listdir(os.path.join(small, "store", "blobs", "sha256")) == []
    finally:
        subprocess.run(["umount", small], check=True)


def tls(lamina, shared):
    """A certificate of a CA of our own is good with --cacert alone."""
    data = model(lamina, shared)
    f = lambda name: os.path.join(lamina.folder, name)
    def openssl(*a):
        subprocess.run(["openssl", *a], check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", f("ca.key"), "-out", f("ca.pem"), "-subj", "/CN=test CA")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f("server.key"), "-out", f("server.csr"), "-subj", "/CN=localhost")
    open(f("names"), "w").write("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", f("server.csr"), "-CA", f("ca.pem"), "-CAkey", f("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", f("names"), "-out", f("server.pem"))
    server = RangeServer(tls=(f("server.pem"), f("server.key")))
    url = server.add("m.slm", data) + "#" + Slm(data).root
    assert url.startswith("https://")
    name, message = lamina.error("pull", url)
    assert name == "LAM_E_TLS" and lamina.nothing_stored(), (name, message)
    lamina.ok("pull", url, "--cacert", f("ca.pem"))
    assert lamina.has(data)


def by_a_proxy(lamina, shared):
    """http_proxy is obeyed: the request goes to it, with the whole URL."""
    data = model(lamina, shared)
    server = RangeServer()
    server.files["http://model.example/m.slm"], server.faults["http://model.example/m.slm"] = data, None
    lamina.ok("pull", "http://model.example/m.slm#" + Slm(data).root, http_proxy="http://127.0.0.1:%d" % server.port)
    assert lamina.has(data)


def limited_rate(lamina, shared):
    data = model(lamina, shared, "other", seed=2, layers=1)
    server = RangeServer()
    begun = time.monotonic()
    lamina.ok("pull", server.add("m.slm", data), "--limit-rate", "%d" % (len(data) // 2))
    assert lamina.has(data) and time.monotonic() - begun > 1.0


def nginx(lamina, shared):
    """Debian's nginx as a server, with the connection cut fifty times on the way."""
    data = model(lamina, shared)
    port = free_port()
    www = os.path.join(lamina.folder, "www")
    os.mkdir(www)
    open(os.path.join(www, "m.slm"), "wb").write(data)
    server = start_nginx(lamina.folder, www, port, shared)
    try:
        wait_for_port(port)
        proxy = Cutter(port, len(data) / 56, 50, seed=3)
        lamina.ok("pull", "http://localhost:%d/m.slm#%s" % (proxy.port, Slm(data).root))
        assert lamina.has(data)
        assert proxy.cuts == 50 and proxy.down <= 1.02 * len(data), (proxy.cuts, proxy.down / len(data))
        print("             %d cuts, %.4f of the size came through the proxy" % (proxy.cuts, proxy.down / len(data)))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(run_tests([pulls_every_byte, several_sources_share_the_work, given_root, another_root_later_is_refused, cut_fifty_times, killed, useless_rest,
                        interrupted_by_ctrl_c, web_page_in_its_place, whole_file_in_place_of_a_range, wrong_range, range_without_saying_which,
                        changed_while_it_came, shorter_file, truncated_from_the_start, compressed_on_its_way, poisoned_piece, zero_tail,
                        a_source_that_is_down, busy_server, broken_server, hostile_head, no_room, tls, by_a_proxy, limited_rate, nginx]))
