# SPDX-License-Identifier: Apache-2.0
"""Two machines for measurements: network namespaces that one cable connects. Needs root."""

import os
import signal
import subprocess
import sys


def run(*words):
    subprocess.run([str(word) for word in words], check=True)


class TwoMachines:
    """Gone at the end of `with`; the processes in them must be gone before."""

    HOSTS = ("10.79.0.1", "10.79.0.2")

    def __init__(self):
        self.names = [f"strata-{os.getpid()}-{i}" for i in range(2)]

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            run("ip", "-n", self.names[0], "link", "add", "eth0", "type", "veth",
                "peer", "name", "eth0", "netns", self.names[1])
            for name, host in zip(self.names, self.HOSTS):
                run("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def limit(self, mbit_per_s):
        """Each sends at most so much; 0: as much as the cable takes."""
        for name in self.names:
            subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
            if mbit_per_s > 0:
                run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                    f"{mbit_per_s}mbit", "burst", "256k", "latency", "100ms")

    def on(self, machine):
        """Begins a command line that runs on a machine."""
        return ["ip", "netns", "exec", self.names[machine]]
