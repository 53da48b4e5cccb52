"""Kubernetes' own schemas, of the package kubernetes-validate (tools/test_requirements.txt)."""

import glob
import os
import warnings

import kubernetes_validate


def newest():
    schemas = os.path.join(os.path.dirname(kubernetes_validate.__file__), "kubernetes-json-schema")
    numbers = [os.path.basename(path).split(".") for path in glob.glob(schemas + "/v*-strict")]
    return "1." + str(max(int(number[1]) for number in numbers))


def refusal(document, version):
    """Why the document is no valid one, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return error
    return None
