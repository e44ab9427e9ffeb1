#!/usr/bin/env python3
"""Runs a program on a terminal of its own, as a person would:  terminal PROGRAM ARGUMENTS… <STEPS

Steps, one a line:
    type TEXT      TEXT and Enter
    press C        Ctrl-C (C or D)
    see TEXT       wait until TEXT appears behind what was seen before
    do COMMAND     run by sh meanwhile
    end N          wait for the program's end with exit status N
Silent if all went well; else what the terminal showed since the last sight, and status 1. Escape sequences show as \\e.
"""
import os
import pty
import select
import signal
import subprocess
import sys
import time

PATIENCE = 10.0  # seconds for a sight


class Terminal:
    def __init__(self, arguments):
        self.screen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
            os.execvp(arguments[0], arguments)

    def read(self, seconds):
        """False at the end of the program's output."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                return False
            self.screen += got.decode("utf-8", "backslashreplace").replace("\x1b", "\\e").replace("\r\n", "\n")
            return bool(got)
        return True

    def see(self, text):
        limit = time.monotonic() + PATIENCE
        while text not in self.screen:
            if time.monotonic() > limit or not self.read(0.1):
                return False
        self.screen = self.screen[self.screen.index(text) + len(text):]
        return True

    def end(self):
        limit = time.monotonic() + PATIENCE
        while self.read(0.1):
            if time.monotonic() > limit:
                return None
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def step(terminal, verb, rest):
    """None, or what went wrong."""
    if verb == "type":
        os.write(terminal.fd, rest.encode() + b"\n")
    elif verb == "press":
        os.write(terminal.fd, {"C": b"\x03", "D": b"\x04"}[rest])
    elif verb == "do":
        subprocess.run(["sh", "-c", rest], check=True)
    elif verb == "see":
        return None if terminal.see(rest) else 'never saw "%s"' % rest
    elif verb == "end":
        status = terminal.end()
        return None if status == int(rest) else "ended with %s, not %s" % (status, rest)
    return None


def main():
    terminal = Terminal(sys.argv[1:])
    for line in sys.stdin.read().splitlines():
        verb, _, rest = line.partition(" ")
        wrong = step(terminal, verb, rest)
        if wrong:
            print("%s: %s; the terminal showed:\n%s" % (line, wrong, terminal.screen[:1000]))
            os.kill(terminal.pid, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
