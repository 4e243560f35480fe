"""Checks rendered manifests: each object against the schema of its kind, and what objects say of each other.

    check.py CRD.yaml RENDERED.yaml...

Fields that a schema does not have are errors, as they are to the API server with --validate=strict.
"""

import sys
import urllib.parse

import jsonschema
import kubernetes_validate
import yaml

# The oldest release that has all fields (unhealthyPodEvictionPolicy), and the newest with schemas.
RELEASES = ["1.31", "1.37"]


def strict(schema):
    """The schema of a custom resource, in which fields that it does not name are errors."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


def custom_resource(path):
    with open(path) as file:
        crd = yaml.safe_load(file)["spec"]
    schemas = {}
    for version in crd["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        schemas[f'{crd["group"]}/{version["name"]}', crd["names"]["kind"]] = schema
    return schemas


def violations(item, custom):
    """What a schema rejects."""
    schema = custom.get((item["apiVersion"], item["kind"]))
    try:
        if schema is not None:
            jsonschema.validate(item, schema)
        else:
            for release in RELEASES:
                kubernetes_validate.validate(item, release, strict=True)
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        yield f"{where}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        yield error.message


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


class Manifests:
    """The objects of an overlay, and their pods."""

    def __init__(self, items):
        self.items = items
        self.pods = [item for item in items if item["kind"] in ("StatefulSet", "Deployment")]

    def of(self, kind):
        return [item for item in self.items if item["kind"] == kind]

    def selected(self, selector):
        return [pod for pod in self.pods if selects(selector, pod["spec"]["template"]["metadata"]["labels"])]

    def contradictions(self):
        """What no schema finds, as pairs of an object and an error."""
        for pod in self.pods:
            for error in self.of_pod(pod):
                yield pod, error
        for service in self.of("Service"):
            for error in self.of_service(service):
                yield service, error
        for config in self.of("ConfigMap"):
            endpoint = config["data"].get("OXTSDB_UID_ENDPOINT")
            # The component `tls` sets it for the embedded overlay, too, which does not use it.
            if endpoint and len(self.pods) > 1 and urllib.parse.urlparse(endpoint).netloc not in self.headless():
                yield config, f"there is no headless Service {endpoint}"
        for policy in self.of("NetworkPolicy") + self.of("PodDisruptionBudget"):
            selector = policy["spec"].get("podSelector") or policy["spec"]["selector"]
            pods = self.selected(selector["matchLabels"])
            if not pods:
                yield policy, "it selects no pod"
            listens = {number for pod in pods for number in ports(pod).values()}
            for rule in policy["spec"].get("ingress", []):
                for port in rule["ports"]:
                    if port["port"] not in listens:
                        yield policy, f'no pod listens on {port["port"]}'
                    admin = [ports(pod)["admin"] for pod in pods]
                    if port["port"] in admin and any("namespaceSelector" not in peer for peer in rule.get("from", [{}])):
                        yield policy, "the admin listener is for the namespace of monitoring only"
        for scaler in self.of("HorizontalPodAutoscaler"):
            target = scaler["spec"]["scaleTargetRef"]
            found = [pod for pod in self.of(target["kind"]) if pod["metadata"]["name"] == target["name"]]
            if len(found) != 1 or "replicas" in found[0]["spec"]:
                yield scaler, "its target has to exist, without `replicas`"
        for monitor in self.of("ServiceMonitor"):
            selector = monitor["spec"]["selector"]["matchLabels"]
            scraped = [
                service["spec"]["selector"]
                for service in self.of("Service")
                if selects(selector, service["metadata"]["labels"])
                and "admin" in [port["name"] for port in service["spec"]["ports"]]
            ]
            if monitor["spec"]["endpoints"][0]["port"] != "admin" or len(scraped) != len(self.pods):
                yield monitor, "each pod is scraped once, on port `admin` of one Service"

    def of_pod(self, pod):
        spec = pod["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        if len(self.selected(pod["spec"]["selector"]["matchLabels"])) != 1:
            yield "its selector has to select its own pods only"
        for source in container["envFrom"]:
            if source["configMapRef"]["name"] not in [config["metadata"]["name"] for config in self.of("ConfigMap")]:
                yield f'there is no ConfigMap {source["configMapRef"]["name"]}'
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container[probe]["httpGet"]["port"] not in ports(pod):
                yield f"{probe}: no such port"
        # What the Pod Security Standard `restricted` requires, and more.
        context, of_pod = container["securityContext"], spec["securityContext"]
        is_confined = (
            of_pod["runAsNonRoot"] is True
            and of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
            and context["allowPrivilegeEscalation"] is False
            and context["readOnlyRootFilesystem"] is True
            and context["capabilities"] == {"drop": ["ALL"]}
            and spec["automountServiceAccountToken"] is False
        )
        if not is_confined:
            yield "the pod has more rights than it needs"
        if pod["kind"] == "StatefulSet":
            governing = [s for s in self.of("Service") if s["metadata"]["name"] == pod["spec"]["serviceName"]]
            if [service["spec"].get("clusterIP") for service in governing] != ["None"]:
                yield f'there is no headless Service {pod["spec"]["serviceName"]}'

    def headless(self):
        """The ports of headless Services, each as NAME:PORT."""
        services = [service for service in self.of("Service") if service["spec"].get("clusterIP") == "None"]
        return [f'{service["metadata"]["name"]}:{port["port"]}' for service in services for port in service["spec"]["ports"]]

    def of_service(self, service):
        pods = self.selected(service["spec"]["selector"])
        if len(pods) != 1:
            yield f"it selects {len(pods)} kinds of pods"
        for port in service["spec"]["ports"]:
            for pod in pods:
                if ports(pod).get(port["targetPort"]) != port["port"]:
                    yield f'port {port["port"]} is not `{port["targetPort"]}` of the pods'


def ports(pod):
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def main():
    custom = custom_resource(sys.argv[1])
    errors = 0
    for path in sys.argv[2:]:
        with open(path) as file:
            items = [item for item in yaml.safe_load_all(file) if item]
        found = [(item, error) for item in items for error in violations(item, custom)]
        # Contradictions are only looked for among objects with valid fields.
        found = found or list(Manifests(items).contradictions())
        for item, error in found:
            print(f'{path}: {item["kind"]} {item["metadata"]["name"]}: {error}', file=sys.stderr)
        errors += len(found)
        print(f"{path}: {len(items)} objects, {len(found)} errors")
    sys.exit(1 if errors else 0)


main()
