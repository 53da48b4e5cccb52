"""A pod: one container, process 1 of namespaces of its own, in a root made of an image's folder."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

from network import Network

# The image: programs in /usr/local/bin over this machine's /usr. `$R` is the root that is made.
ROOT = """
set -e
mount -t tmpfs -o mode=755,size=16m tmpfs $R
mkdir -p $R/usr $R/etc/alternatives $R/proc $R/dev $R/tmp $R/var $R/run
for name in bin sbin lib lib64; do ln -s usr/$name $R/$name; done
mount --bind /usr $R/usr
mount --bind $PROGRAMS $R/usr/local/bin
mount -o remount,bind,ro $R/usr/local/bin
mount -o remount,bind,ro $R/usr
mount --bind /etc/alternatives $R/etc/alternatives
mount -o remount,bind,ro $R/etc/alternatives
cp /etc/ld.so.cache $R/etc
echo root:x:0:0:root:/root:/bin/sh > $R/etc/passwd
echo hosts: files dns > $R/etc/nsswitch.conf
printf '127.0.0.1 localhost\\n::1 localhost\\n%s %s\\n' $ADDRESS $NAME > $R/etc/hosts
cp $RESOLV_CONF $R/etc/resolv.conf
hostname $NAME
mount -t proc proc $R/proc
mount -t tmpfs -o mode=755 tmpfs $R/dev
for name in null zero full random urandom; do touch $R/dev/$name; mount --bind /dev/$name $R/dev/$name; done
mkdir $R/dev/shm
mount -t tmpfs -o mode=1777,size=64m tmpfs $R/dev/shm
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def expand(text, variables):
    """$(NAME) where there is such a variable; $$ stands for $."""
    def value(match):
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])
    return re.sub(r"\$\$|\$\(([^)]+)\)", value, text)


class Pod:
    """`stores` has what volumes and variables are of; `image_environment` is the image's own."""

    def __init__(self, name, document, stores, network, image_environment, host=None):
        self.name, self.document, self.labels = name, document, document["metadata"]["labels"]
        self.spec = document["spec"]
        self.container, = self.spec["containers"]
        self.host = host or self.spec.get("hostname", name)
        self.is_ready, self.is_disrupted, self.is_counted, self.deadline = False, False, False, None
        self._network, self._stores = network, stores
        self.folder = os.path.join(stores.folder, "pods", name)
        os.makedirs(self.folder + "/root")
        self.link, self.address = network.add(name)
        self.variables = self._variables()
        self.log = os.path.join(self.folder, "log")
        environment = dict(image_environment, PATH=PATH, HOSTNAME=self.host, **self.variables)
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(self._command(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started = time.monotonic()
        self.ended = None  # when

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
                value = self._stores.secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]].decode().rstrip("\n")
            else:
                value = expand(entry.get("value", ""), variables)
            variables[entry["name"]] = value
        return variables

    def _user(self):
        """Without a capability, or a way to get one."""
        security = self.spec["securityContext"]
        if security["runAsUser"] == 0:
            raise ValueError(f"{self.name}: runAsNonRoot, and runAsUser is 0")
        return ["setpriv", f"--reuid={security['runAsUser']}", f"--regid={security['runAsGroup']}", f"--groups={security['fsGroup']}",
                "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]

    def _command(self, environment):
        root, group = os.path.join(self.folder, "root"), self.spec["securityContext"]["fsGroup"]
        resolv_conf = os.path.join(self.folder, "resolv.conf")
        with open(resolv_conf, "w", encoding="utf-8") as file:
            file.write(self._network.resolv_conf())
        script = ROOT
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            volume = volumes[mount["name"]]
            source = shlex.quote(self._stores.volume(volume, self.folder, group))
            place = "$R" + shlex.quote(mount["mountPath"])
            script += f"mkdir -p {place}\nmount --bind {source} {place}\n"
            if mount.get("readOnly") or "configMap" in volume or "secret" in volume:
                script += f"mount -o remount,bind,ro {place}\n"
        self.environment = environment
        words = self.container["command"] + self.container.get("args", [])
        words = [expand(word, self.variables) for word in words]
        script += "mount -o remount,ro $R\nexec chroot $R " + shlex.join(self._inside(words)) + "\n"
        variables = dict(R=root, PROGRAMS=self._stores.programs, ADDRESS=self.address, NAME=self.host, RESOLV_CONF=resolv_conf)
        head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py"), f"/run/netns/{self.name}",
                head + script]

    def _inside(self, words):
        return [*self._user(), "env", "-i", *(f"{name}={value}" for name, value in self.environment.items()), *words]

    def pid(self):
        """Of process 1, as seen from here; None if there is none."""
        try:
            with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="utf-8") as file:
                children = file.read().split()
            return int(children[0]) if children else None
        except OSError:
            return None

    def is_started(self):
        """Whether its own command runs: what makes its root is root's."""
        try:
            return os.stat(f"/proc/{self.pid()}").st_uid == self.spec["securityContext"]["runAsUser"]
        except OSError:
            return False

    def launcher(self):
        """Of the process that made its namespaces, with which they end."""
        return self._process.pid

    def execute(self, words):
        """As `kubectl exec`: the exit code and what was said."""
        command = ["nsenter", "-t", str(self.pid()), "-m", "-n", "-p", "-u", "-i", "chroot", os.path.join(self.folder, "root")]
        done = subprocess.run(command + self._inside(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def signal(self, number):
        pid = self.pid()
        if pid is not None:
            os.kill(pid, number)

    def delete(self):
        """SIGTERM, and SIGKILL when its time to end is over."""
        if self.deadline is None and self.ended is None:
            self.deadline = time.monotonic() + self.spec["terminationGracePeriodSeconds"]
            self.signal(signal.SIGTERM)

    def exit_code(self):
        """None while it runs; as a container runtime says it."""
        return self._process.poll()

    def tick(self):
        if self.ended is not None:
            return
        if self.exit_code() is not None:
            self.ended, self.is_ready = time.monotonic(), False
            Network.remove(self.name, self.link)
        elif self.deadline is not None and time.monotonic() > self.deadline:
            self.signal(signal.SIGKILL)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()
