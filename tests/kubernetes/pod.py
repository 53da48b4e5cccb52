"""A pod: one container, process 1 of namespaces of its own, in a root made of an image's folder."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

from network import RESOLV_CONF

# The image: programs in /usr/local/bin over this machine's /usr. `$R` is the root that is made.
ROOT = """
set -e
read_only() { mount --bind $1 $2; mount -o remount,bind,ro $2; }
mount -t tmpfs -o mode=755,size=16m tmpfs $R
mkdir -p $R/usr $R/etc/alternatives $R/proc $R/dev $R/tmp $R/var $R/run
for name in bin sbin lib lib64; do ln -s usr/$name $R/$name; done
read_only /usr $R/usr
read_only $PROGRAMS $R/usr/local/bin
read_only /etc/alternatives $R/etc/alternatives
cp /etc/ld.so.cache $R/etc
echo root:x:0:0:root:/root:/bin/sh > $R/etc/passwd
echo hosts: files dns > $R/etc/nsswitch.conf
printf '127.0.0.1 localhost\\n::1 localhost\\n%s %s\\n' $ADDRESS $NAME > $R/etc/hosts
printf '%s' "$RESOLV_CONF" > $R/etc/resolv.conf
hostname $NAME
mount -t proc proc $R/proc
mount -t tmpfs -o mode=755 tmpfs $R/dev
for name in null zero full random urandom; do
  touch $R/dev/$name
  mount --bind /dev/$name $R/dev/$name
done
mkdir $R/dev/shm
mount -t tmpfs -o mode=1777,size=64m tmpfs $R/dev/shm
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")


def expand(text, variables):
    """$(NAME) where there is such a variable; $$ stands for $."""
    def value(match):
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])
    return re.sub(r"\$\$|\$\(([^)]+)\)", value, text)


class Pod:
    """`stores` has what volumes and variables are of; `image` are the image's own variables;
    `haste` is a factor of the time that it has to end."""

    def __init__(self, name, document, stores, network, image, haste, host=None):
        self.name, self.spec, self.labels = name, document["spec"], document["metadata"]["labels"]
        self.container, = self.spec["containers"]
        self.host = host or self.spec.get("hostname", name)
        self.is_ready, self.is_disrupted = False, False
        self.ended, self.deadline = None, None  # when, and when it is killed
        self._stores, self._network, self._haste = stores, network, haste
        self._folder = os.path.join(stores.folder, "pods", name)
        self._root = self._folder + "/root"
        os.makedirs(self._root)
        self.link, self.address = network.add(name)
        variables = self._variables()
        self._environment = dict(image, PATH=PATH, HOSTNAME=self.host, **variables)
        words = self.container["command"] + self.container.get("args", [])
        inside = self._inside([expand(word, variables) for word in words])
        script = (ROOT + self._mounts() + "mount -o remount,ro $R\nexec chroot $R " +
                  shlex.join(inside))
        names = dict(os.environ, R=self._root, PROGRAMS=stores.programs, ADDRESS=self.address,
                     NAME=self.host, RESOLV_CONF=RESOLV_CONF)
        with open(self._folder + "/log", "wb") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, LAUNCH, script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=names)

    def _variables(self):
        variables = {}
        for entry in self.container.get("env", []):
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                path = source["fieldRef"]["fieldPath"]
                field = re.fullmatch(r"metadata\.labels\['([^']+)'\]", path)
                if not field:
                    raise ValueError(f"{self.name}: fieldPath {path} is not executed")
                value = self.labels[field[1]]
            elif "secretKeyRef" in source:
                key = source["secretKeyRef"]
                value = self._stores.secrets[key["name"]][key["key"]].decode().rstrip("\n")
            else:
                value = expand(entry.get("value", ""), variables)
            variables[entry["name"]] = value
        return variables

    def _mounts(self):
        script, volumes = "", {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            volume = volumes[mount["name"]]
            group = self.spec["securityContext"]["fsGroup"]
            source = shlex.quote(self._stores.volume(volume, self._folder, group))
            place = "$R" + shlex.quote(mount["mountPath"])
            is_read = mount.get("readOnly") or "configMap" in volume or "secret" in volume
            how = "read_only" if is_read else "mount --bind"
            script += f"mkdir -p {place}\n{how} {source} {place}\n"
        return script

    def _inside(self, words):
        """As the user, without a capability, or a way to get one."""
        security = self.spec["securityContext"]
        if security["runAsUser"] == 0:
            raise ValueError(f"{self.name}: runAsNonRoot, and runAsUser is 0")
        return ["setpriv", f"--reuid={security['runAsUser']}", f"--regid={security['runAsGroup']}",
                f"--groups={security['fsGroup']}", "--bounding-set=-all", "--inh-caps=-all",
                "--ambient-caps=-all", "--no-new-privs", "env", "-i", "-C",
                self.container.get("workingDir", "/var"),  # the image's
                *(f"{name}={value}" for name, value in self._environment.items()), *words]

    def pid(self):
        """Of process 1, as seen from here; None if there is none."""
        pid = self._process.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
                return int((file.read().split() or [0])[0]) or None
        except OSError:
            return None

    def is_started(self):
        """Whether its own command runs: what makes its root is root's."""
        try:
            return os.stat(f"/proc/{self.pid()}").st_uid != 0
        except OSError:
            return False

    def execute(self, words):
        """As `kubectl exec`: the exit code and what was said."""
        command = ["nsenter", "-t", str(self.pid()), "-m", "-n", "-p", "-u", "-i", "chroot",
                   self._root, *self._inside(words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.returncode, done.stdout

    def signal(self, number):
        if self.pid() is not None:
            os.kill(self.pid(), number)

    def delete(self):
        """SIGTERM, and SIGKILL when its time to end is over."""
        if self.deadline is None and self.ended is None:
            grace = self.spec["terminationGracePeriodSeconds"] * self._haste
            self.deadline = time.monotonic() + grace
            self.signal(signal.SIGTERM)

    def exit_code(self):
        """None while it runs; as a container runtime says it."""
        return self._process.poll()

    def tick(self):
        if self.ended is None and self.exit_code() is not None:
            self.ended, self.is_ready = time.monotonic(), False
            self._network.remove(self.name, self.link)
        elif self.deadline is not None and time.monotonic() > self.deadline:
            self.signal(signal.SIGKILL)

    def close(self):
        """At once."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self.tick()

    def said(self):
        with open(self._folder + "/log", encoding="utf-8", errors="replace") as file:
            return file.read()
