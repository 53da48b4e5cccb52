"""What pods mount and read: ConfigMaps, Secrets, claims, as folders."""

import os
import shutil


class Stores:
    def __init__(self, folder, programs):
        self.folder, self.programs = folder, os.path.join(folder, "programs")
        os.makedirs(self.programs)
        for path in programs:
            os.chmod(shutil.copy(path, self.programs), 0o755)
        self.maps, self.secrets = {}, {}  # by name: bytes by key

    def claim(self, name):
        """Its folder, as a new volume is: root's."""
        path = os.path.join(self.folder, "claims", name)
        os.makedirs(path, mode=0o755, exist_ok=True)
        return path

    def volume(self, volume, pod_folder, group):
        """The folder that is mounted, given to the group as the kubelet does."""
        path = os.path.join(pod_folder, "volumes", volume["name"])
        if "persistentVolumeClaim" in volume:
            path = self.claim(volume["persistentVolumeClaim"]["claimName"])
        else:
            os.makedirs(path)
        if "configMap" in volume:
            self._write(path, self.maps[volume["configMap"]["name"]], 0o644)
        elif "secret" in volume:
            secret = volume["secret"]
            self._write(path, self.secrets[secret["secretName"]], secret.get("defaultMode", 0o644))
        elif os.stat(path).st_gid != group:  # OnRootMismatch
            os.chmod(path, 0o2777 if "emptyDir" in volume else 0o2775)
        for name, _, files in os.walk(path) if os.stat(path).st_gid != group else ():
            for entry in [name] + [os.path.join(name, file) for file in files]:
                os.chown(entry, -1, group)
        return path

    @staticmethod
    def _write(path, data, mode):
        for key, content in data.items():
            with open(os.path.join(path, key), "wb") as file:
                file.write(content)
            os.chmod(file.name, mode)
