"""The network of the pods: one bridge, an address for each pod, and names from dnsmasq."""

import os
import shlex
import signal
import subprocess

NODE = "10.77.0.1"  # of the bridge: where probes come from and dnsmasq answers
DOMAIN = "default.svc.cluster.local"
RESOLV_CONF = f"""nameserver {NODE}
search {DOMAIN} svc.cluster.local cluster.local
options ndots:5
"""


def run(line):
    """Raises if it fails, with what it said."""
    done = subprocess.run(shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{line}: exit code {done.returncode}: {done.stdout.strip()}")


class Network:
    """In the network namespace of this process, which has nothing else in it."""

    def __init__(self, folder):
        self._hosts, self._written, self._count = os.path.join(folder, "hosts"), "", 0
        for line in ("mount -t tmpfs tmpfs /run",  # ip netns keeps names there
                     "ip link set lo up", "ip link add br0 type bridge",
                     f"ip address add {NODE}/16 dev br0", "ip link set br0 up"):
            run(line)
        with open(self._hosts, "w", encoding="utf-8"):
            pass
        # It returns when the other process listens, which ends with these namespaces.
        run(f"dnsmasq --conf-file=/dev/null --no-hosts --no-resolv --user=root --local=/#/ "
            f"--listen-address={NODE} --bind-interfaces --addn-hosts={self._hosts} "
            f"--pid-file={folder}/dnsmasq.pid --log-facility={folder}/dnsmasq.log")
        with open(folder + "/dnsmasq.pid", encoding="utf-8") as file:
            self._dnsmasq = int(file.read())

    def add(self, name):
        """A namespace, its link, and an address that none has had before."""
        self._count += 1
        link = f"veth{self._count}"
        address = f"10.77.{1 + self._count // 250}.{1 + self._count % 250}"
        for line in (f"ip netns add {name}",
                     f"ip link add {link} type veth peer name eth0 netns {name}",
                     f"ip link set {link} master br0 up", f"ip -n {name} link set lo up",
                     f"ip -n {name} address add {address}/16 dev eth0",
                     f"ip -n {name} link set eth0 up"):
            run(line)
        return link, address

    @staticmethod
    def remove(name, link):
        run(f"ip link del {link}")
        run(f"ip netns del {name}")

    @staticmethod
    def set_link(link, is_up):
        """Cuts a pod off, without a word to anybody, or heals that."""
        run(f"ip link set {link} {'up' if is_up else 'down'}")

    def publish(self, names):
        """Names of the domain, as pairs with their addresses."""
        text = "".join(f"{address} {name}.{DOMAIN}\n" for address, name in sorted(names))
        if text == self._written:
            return
        with open(self._hosts, "w", encoding="utf-8") as file:
            file.write(text)
        self._written = text
        os.kill(self._dnsmasq, signal.SIGHUP)  # it reads the file again, and forgets
