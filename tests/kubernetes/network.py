"""The network of the pods: one bridge, an address for each pod, and names from dnsmasq."""

import os
import signal
import subprocess
import time

NODE = "10.77.0.1"  # of the bridge: where probes come from and dnsmasq answers
DOMAIN = "default.svc.cluster.local"


def run(*command):
    """Runs it; raises if it fails, with what it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout.strip()}")
    return done.stdout


class Network:
    """In the network namespace of this process, which has nothing else in it."""

    def __init__(self, folder):
        self._hosts, self._written, self._count = os.path.join(folder, "hosts"), None, 0
        run("mount", "-t", "tmpfs", "tmpfs", "/run")  # ip netns keeps names there
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "address", "add", NODE + "/16", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        with open(self._hosts, "w", encoding="utf-8"):
            pass
        self._dnsmasq = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=root",
             "--pid-file=", f"--listen-address={NODE}", "--bind-interfaces", "--local=/#/",
             f"--addn-hosts={self._hosts}", f"--log-facility={folder}/dnsmasq.log"])
        while ":0035 " not in self._sockets():  # port 53
            if self._dnsmasq.poll() is not None:
                raise RuntimeError(f"dnsmasq has ended with {self._dnsmasq.returncode}")
            time.sleep(0.01)

    @staticmethod
    def _sockets():
        with open("/proc/net/udp", encoding="utf-8") as file:
            return file.read()

    def add(self, name):
        """A namespace with an address that none has had before; the address."""
        self._count += 1
        link, address = f"veth{self._count}", f"10.77.{1 + self._count // 250}.{1 + self._count % 250}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", link, "master", "br0", "up")
        for command in (("link", "set", "lo", "up"), ("address", "add", address + "/16", "dev", "eth0"), ("link", "set", "eth0", "up")):
            run("ip", "-n", name, *command)
        return link, address

    @staticmethod
    def remove(name, link):
        subprocess.run(["ip", "link", "del", link], stderr=subprocess.DEVNULL, check=False)
        run("ip", "netns", "del", name)

    @staticmethod
    def set_link(link, is_up):
        """Cuts a pod off, without a word to anybody, or heals that."""
        run("ip", "link", "set", link, "up" if is_up else "down")

    def publish(self, names):
        """Names of the domain, as pairs with their addresses."""
        text = "".join(f"{address} {name}.{DOMAIN}\n" for address, name in sorted(names))
        if text == self._written:
            return
        with open(self._hosts, "w", encoding="utf-8") as file:
            file.write(text)
        self._written = text
        if self._dnsmasq.poll() is not None:
            raise RuntimeError(f"dnsmasq has ended with {self._dnsmasq.returncode}")
        self._dnsmasq.send_signal(signal.SIGHUP)  # it reads the file again, and forgets what it knew

    @staticmethod
    def resolv_conf():
        """As of a pod with dnsPolicy ClusterFirst."""
        return f"nameserver {NODE}\nsearch {DOMAIN} svc.cluster.local cluster.local\noptions ndots:5\n"

    def close(self):
        self._dnsmasq.kill()
        self._dnsmasq.wait()
