"""Every field that may be in the manifests, and what is done with it: the one table of that.

A line is a path, perhaps `= VALUE | VALUE` (others are refused), and for what is only looked at,
behind `:`, why. `**` stands for all below.
"""

import re

CONTAINER = """
name
image
command[]
args[]
env[].name
env[].value
env[].valueFrom.fieldRef.fieldPath
env[].valueFrom.secretKeyRef.name
env[].valueFrom.secretKeyRef.key
ports[].name
ports[].containerPort
PROBE.grpc.port
PROBE.grpc.service
PROBE.periodSeconds
PROBE.timeoutSeconds
PROBE.failureThreshold
securityContext.allowPrivilegeEscalation = False
securityContext.readOnlyRootFilesystem = True
securityContext.capabilities.drop[] = ALL
volumeMounts[].name
volumeMounts[].mountPath
volumeMounts[].readOnly
"""

POD = """
restartPolicy = Never
terminationGracePeriodSeconds
enableServiceLinks = False
automountServiceAccountToken = False
hostname
subdomain
securityContext.runAsNonRoot = True
securityContext.runAsUser
securityContext.runAsGroup
securityContext.fsGroup
securityContext.fsGroupChangePolicy = OnRootMismatch
volumes[].name
volumes[].configMap.name
volumes[].secret.secretName
volumes[].secret.defaultMode
volumes[].persistentVolumeClaim.claimName
volumes[].persistentVolumeClaim.readOnly
volumes[].emptyDir
"""

JOB = """
completionMode = Indexed
completions
parallelism
backoffLimit
backoffLimitPerIndex
maxFailedIndexes
podReplacementPolicy = Failed
podFailurePolicy.rules[].action = FailJob | FailIndex | Ignore
podFailurePolicy.rules[].onExitCodes.containerName
podFailurePolicy.rules[].onExitCodes.operator = In
podFailurePolicy.rules[].onExitCodes.values[]
podFailurePolicy.rules[].onPodConditions[].type = DisruptionTarget
podFailurePolicy.rules[].onPodConditions[].status = True
template.metadata.labels.**
"""

OTHERS = """
ConfigMap immutable = True
ConfigMap data.**
Service spec.clusterIP = None
Service spec.publishNotReadyAddresses = True
Service spec.selector.**
Service spec.ports[].name
Service spec.ports[].port
Service spec.ports[].targetPort
"""

# Looked at by schemas (strict_test) alone.
LOOKED_AT_CONTAINER = """
resources.** : there is no scheduler, and no limit on memory
"""

LOOKED_AT_POD = """
priorityClassName : there is no scheduler
topologySpreadConstraints[].** : there is one node
securityContext.seccompProfile.type = RuntimeDefault : it is of the container runtime
activeDeadlineSeconds : of the pod for copying, which is ended before
"""

LOOKED_AT_JOB = """
ttlSecondsAfterFinished : nothing waits for a day
"""

LOOKED_AT = """
* metadata.annotations.** : nobody reads them
NetworkPolicy spec.** : the bridge carries all
PodDisruptionBudget spec.** : nobody drains a node
PersistentVolumeClaim spec.** : a claim is a folder
"""

COMMON = """
* apiVersion
* kind
* metadata.name
* metadata.labels.**
"""

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def _lines(kind, text, prefix):
    for line in text.strip().splitlines():
        for name in PROBES if line.startswith("PROBE") else ("",):
            yield f"{kind} {prefix}{line.replace('PROBE', name, 1)}"


def _table(container, pod, job, others):
    lines = others.strip().splitlines()
    for kind, prefix in (("Job", "spec.template.spec."), ("Pod", "spec.")):
        lines += _lines(kind, pod, prefix)
        lines += _lines(kind, container, prefix + "containers[].")
    lines += _lines("Job", job, "spec.")
    return lines


EXECUTED = _table(CONTAINER, POD, JOB, COMMON + OTHERS.strip())
ONLY_LOOKED_AT = _table(LOOKED_AT_CONTAINER, LOOKED_AT_POD, LOOKED_AT_JOB, LOOKED_AT)


def _rules():
    for line in EXECUTED + ONLY_LOOKED_AT:
        kind, rest = line.split(" ", 1)
        rest = rest.split(" : ")[0]
        path, _, values = rest.partition(" = ")
        pattern = re.escape(path).replace(r"\[\]", r"\[\]").replace(r"\.\*\*", r"(?:\..*)?")
        yield kind, re.compile(pattern), [value.strip() for value in values.split("|")] if values else None


RULES = list(_rules())


def _leaves(node, path=""):
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list) and node:
        for value in node:
            yield from _leaves(value, path + "[]")
    else:
        yield path, node


def refusals(document):
    """What is in the document and is neither executed nor in the table, a sentence each."""
    kind, name = document["kind"], document["metadata"]["name"]
    for path, value in _leaves(document):
        found = [values for k, pattern, values in RULES if k in (kind, "*") and pattern.fullmatch(path)]
        if not found:
            yield f"{kind} {name}: {path} is neither executed nor in the table of what is only looked at"
        elif found[0] is not None and str(value) not in found[0]:
            yield f"{kind} {name}: {path}: found {value}, and only {' or '.join(found[0])} is executed"


def table():
    """What is not executed, in Markdown."""
    rows = ["| field | why it is not executed |", "|---|---|"]
    for line in ONLY_LOOKED_AT:
        if line.startswith("Pod ") and not line.startswith("Pod spec.activeDeadline"):
            continue  # as of a Job's pods
        if line.startswith("Job spec.template.spec.activeDeadline"):
            continue
        what, why = line.split(" : ")
        what = what.partition(" = ")[0].replace("* ", "").replace("[].**", "").replace(".**", "")
        rows.append(f"| {what.replace('spec.template.spec', 'pods').replace('pods.containers[]', 'containers')} | {why} |")
    return "\n".join(rows)
