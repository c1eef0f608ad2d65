package defaults

import (
	"slices"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/api/resource"
)

// pods are the defaults of a Pod (core/v1 SetDefaults_Pod, SetObjectDefaults_Pod).
func pods() []rule {
	return slices.Concat([]rule{
		edit("spec", func(spec object) {
			if seconds, ok := spec["terminationGracePeriodSeconds"].(int64); ok && seconds < 0 {
				spec["terminationGracePeriodSeconds"] = int64(1)
			}
		}),
		edit("spec.containers[].resources", requestLimits),
		edit("spec.initContainers[].resources", requestLimits),
		set("spec", "enableServiceLinks", true),
		edit("spec", useHostPorts, is("hostNetwork", true)),
	}, under("spec", podSpec()))
}

// requestLimits requests what the limits of a container are, where it requests nothing.
func requestLimits(resources object) {
	limits, _ := resources["limits"].(object)
	if len(limits) == 0 {
		return
	}
	requests := part(resources, "requests")
	for name, limit := range limits {
		if _, ok := requests[name]; !ok {
			requests[name] = limit
		}
	}
}

// useHostPorts is defaultHostNetworkPorts.
func useHostPorts(spec object) {
	for _, list := range [...]string{"containers", "initContainers"} {
		for container := range objects(spec[list]) {
			for port := range objects(container["ports"]) {
				if number, host := port["containerPort"], port["hostPort"]; number != nil && (host == nil || host == int64(0)) {
					port["hostPort"] = number
				}
			}
		}
	}
}

// podSpec are the defaults of the spec of a Pod, also in a template (core/v1 SetDefaults_PodSpec,
// SetObjectDefaults_PodTemplate).
func podSpec() []rule {
	return slices.Concat([]rule{
		edit("", nameAccount),
		set("", "dnsPolicy", "ClusterFirst"),
		set("", "restartPolicy", "Always"),
		set("", "securityContext", object{}),
		set("", "terminationGracePeriodSeconds", 30),
		set("", "schedulerName", "default-scheduler"),
		edit("", roundUp("overhead")),
		edit("resources", roundUp("limits", "requests")),
	}, under("volumes[]", volume()), under("initContainers[]", container()), under("containers[]", container()),
		under("ephemeralContainers[]", container()))
}

// nameAccount keeps serviceAccount, the former name of serviceAccountName, in sync with it.
func nameAccount(spec object) {
	name, _ := spec["serviceAccountName"].(string)
	if name == "" {
		name, _ = spec["serviceAccount"].(string)
	}
	if name != "" {
		spec["serviceAccountName"], spec["serviceAccount"] = name, name
	}
}

// container are the defaults of a container (core/v1 SetDefaults_Container, SetDefaults_Probe,
// SetDefaults_HTTPGetAction, SetDefaults_ObjectFieldSelector).
func container() []rule {
	probe := []rule{
		set("", "timeoutSeconds", 1), set("", "periodSeconds", 10), set("", "successThreshold", 1), set("", "failureThreshold", 3),
		set("grpc", "service", ""),
	}
	httpGet := []rule{set("httpGet", "path", "/"), set("httpGet", "scheme", "HTTP")}
	return slices.Concat([]rule{
		compute("", "imagePullPolicy", pullPolicy("image")),
		set("", "terminationMessagePath", "/dev/termination-log"),
		set("", "terminationMessagePolicy", "File"),
		set("ports[]", "protocol", "TCP"),
		set("env[].valueFrom.fieldRef", "apiVersion", "v1"),
		set("env[].valueFrom.fileKeyRef", "optional", false, since(34)),
		edit("resources", roundUp("limits", "requests")),
	}, under("livenessProbe", probe, httpGet), under("readinessProbe", probe, httpGet), under("startupProbe", probe, httpGet),
		under("lifecycle.postStart", httpGet), under("lifecycle.preStop", httpGet))
}

// pullPolicy makes the pull policy for the image that a field names (pkg/util/parsers ParseImageName).
func pullPolicy(field string) func(in object) any {
	return func(in object) any {
		image, _ := in[field].(string)
		named, err := reference.ParseNormalizedNamed(image)
		if err != nil {
			return "IfNotPresent" // validation refuses the name
		}
		tagged, isTagged := named.(reference.Tagged)
		_, isDigested := named.(reference.Digested)
		if isTagged && tagged.Tag() == "latest" || !isTagged && !isDigested {
			return "Always"
		}
		return "IfNotPresent"
	}
}

// volume are the defaults of a volume of a Pod (core/v1 SetDefaults_Volume, SetDefaults_SecretVolumeSource and
// so on).
func volume() []rule {
	const mode = 0o644
	return slices.Concat([]rule{
		edit("", func(volume object) {
			if _, named := volume["name"]; len(volume) == 0 || len(volume) == 1 && named {
				volume["emptyDir"] = object{}
			}
		}),
		compute("image", "pullPolicy", pullPolicy("reference"), since(35)),
		set("secret", "defaultMode", mode), set("configMap", "defaultMode", mode),
		set("downwardAPI", "defaultMode", mode), set("projected", "defaultMode", mode),
		set("downwardAPI.items[].fieldRef", "apiVersion", "v1"),
		set("projected.sources[].downwardAPI.items[].fieldRef", "apiVersion", "v1"),
		set("projected.sources[].serviceAccountToken", "expirationSeconds", 3600),
	}, volumeSource(), under("ephemeral.volumeClaimTemplate.spec", claimSpec()))
}

// volumeSource are the defaults that volumes of Pods and PersistentVolumes have in common (core/v1
// SetDefaults_HostPathVolumeSource, SetObjectDefaults_PersistentVolume).
func volumeSource() []rule {
	return []rule{
		set("hostPath", "type", ""),
		set("iscsi", "iscsiInterface", "default"),
		set("rbd", "pool", "rbd"), set("rbd", "user", "admin"), set("rbd", "keyring", "/etc/ceph/keyring"),
		set("azureDisk", "cachingMode", "ReadWrite"), set("azureDisk", "fsType", "ext4"), set("azureDisk", "readOnly", false),
		set("azureDisk", "kind", "Shared"),
		set("scaleIO", "storageMode", "ThinProvisioned"), set("scaleIO", "fsType", "xfs"),
	}
}

// claimSpec are the defaults of the spec of a claim (core/v1 SetDefaults_PersistentVolumeClaimSpec).
func claimSpec() []rule {
	return []rule{set("", "volumeMode", "Filesystem"), edit("resources", roundUp("limits", "requests"))}
}

// roundUp rounds the quantities of resource lists up to thousandths (core/v1 SetDefaults_ResourceList).
func roundUp(lists ...string) func(in object) {
	return func(in object) {
		for _, list := range lists {
			quantities, _ := in[list].(object)
			for name, value := range quantities {
				text, _ := value.(string)
				quantity, err := resource.ParseQuantity(text)
				if err == nil && !quantity.RoundUp(resource.Milli) {
					quantities[name] = quantity.String()
				}
			}
		}
	}
}
