"""What pods mount and read: ConfigMaps, Secrets, claims, as folders."""

import os
import shutil


class Stores:
    def __init__(self, folder, programs):
        self.folder, self.programs = folder, os.path.join(folder, "programs")
        os.makedirs(self.programs)
        for path in programs:
            target = shutil.copy(path, self.programs)
            os.chmod(target, 0o755)
        self._maps, self._secrets = {}, {}

    def add_map(self, name, data):
        self._maps[name] = {key: text.encode() for key, text in data.items()}

    def add_secret(self, name, data):
        self._secrets[name] = data

    def secret(self, name):
        return self._secrets[name]

    def claim(self, name):
        """Its folder, as a new volume is: root's."""
        path = os.path.join(self.folder, "claims", name)
        os.makedirs(path, mode=0o755, exist_ok=True)
        return path

    def volume(self, volume, pod_folder, group):
        """The folder that is mounted, given to the group as the kubelet does."""
        path = os.path.join(pod_folder, "volumes", volume["name"])
        if "configMap" in volume:
            return self._files(path, self._maps[volume["configMap"]["name"]], 0o644, group)
        if "secret" in volume:
            return self._files(path, self._secrets[volume["secret"]["secretName"]], volume["secret"].get("defaultMode", 0o644), group)
        if "persistentVolumeClaim" in volume:
            path = self.claim(volume["persistentVolumeClaim"]["claimName"])
        else:
            os.makedirs(path)
            os.chmod(path, 0o777)
        status = os.stat(path)
        if status.st_gid != group or not status.st_mode & 0o2000:  # OnRootMismatch
            for name, _, files in os.walk(path):
                for entry in [name] + [os.path.join(name, file) for file in files]:
                    os.chown(entry, -1, group)
                    os.chmod(entry, os.stat(entry).st_mode | (0o2070 if entry == name else 0o060))
        return path

    @staticmethod
    def _files(path, data, mode, group):
        os.makedirs(path)
        for key, content in data.items():
            with open(os.path.join(path, key), "wb") as file:
                file.write(content)
            os.chown(file.name, 0, group)
            os.chmod(file.name, mode)
        return path
