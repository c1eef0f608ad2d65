package noderestriction

import (
	"fmt"

	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// referenceOf returns what objects of the API a PodSpec refers to, in the words of the
// message; empty if none (k8s.io/kubernetes pkg/api/pod/util.go HasAPIObjectReference).
//
// Kubernetes v1.33 looks for fewer objects, with a message of its own for service accounts
// (plugin/pkg/admission/noderestriction/admission.go admitPodCreate).
func (p *plugin) referenceOf(spec codec.Value) (string, error) {
	// The API server sets both fields to the same value.
	if spec.Get("serviceAccountName").String() != "" || spec.Get("serviceAccount").String() != "" {
		if !p.version.AtLeast(1, 34) {
			return "a service account", nil
		}
		return "serviceaccounts", nil
	}
	volumes := spec.Get("volumes")
	if podspec.NamesSecret(spec) {
		return "secrets", nil
	}
	if configMapsInEnv(spec) || namesConfigMap(volumes) {
		return "configmaps", nil
	}
	if !p.version.AtLeast(1, 34) {
		return otherReferencesBefore134(spec), nil
	}
	if spec.Get("resourceClaims").Len() > 0 {
		return "resourceclaims", nil
	}
	for _, volume := range volumes.Elements() {
		if resource, err := volumeReference(volume); resource != "" || err != nil {
			return resource, err
		}
	}
	return "", nil
}

// otherReferencesBefore134 returns what Kubernetes v1.33 looks for after secrets and config maps.
func otherReferencesBefore134(spec codec.Value) string {
	for _, volume := range spec.Get("volumes").Elements() {
		for _, from := range volume.Get("projected", "sources").Elements() {
			if from.Get("clusterTrustBundle").IsSet() {
				return "clustertrustbundles"
			}
		}
	}
	for _, volume := range spec.Get("volumes").Elements() {
		if volume.Get("persistentVolumeClaim").IsSet() {
			return "persistentvolumeclaims"
		}
	}
	if spec.Get("resourceClaims").Len() > 0 {
		return "resourceclaims"
	}
	return ""
}

func isNamed(reference codec.Value) bool { return reference.Get("name").String() != "" }

// configMapsInEnv reports whether a container has environment variables from a
// ConfigMap.
func configMapsInEnv(spec codec.Value) bool {
	for container := range podspec.Containers(spec) {
		for _, from := range container.Get("envFrom").Elements() {
			if isNamed(from.Get("configMapRef")) {
				return true
			}
		}
		for _, variable := range container.Get("env").Elements() {
			if isNamed(variable.Get("valueFrom", "configMapKeyRef")) {
				return true
			}
		}
	}
	return false
}

func namesConfigMap(volumes codec.Value) bool {
	for _, volume := range volumes.Elements() {
		if projected := volume.Get("projected"); projected.IsSet() {
			if projectsConfigMap(projected) {
				return true
			}
		} else if isNamed(volume.Get("configMap")) {
			return true
		}
	}
	return false
}

func projectsConfigMap(projected codec.Value) bool {
	for _, from := range projected.Get("sources").Elements() {
		if isNamed(from.Get("configMap")) {
			return true
		}
	}
	return false
}

// localSources are the sources that refer to no objects of the API, except secrets.
var localSources = [...]string{
	"awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume", "flocker",
	"gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte",
	"rbd", "scaleIO", "storageos", "vsphereVolume",
}

// named is a source that refers to objects, and the name of these in messages.
type named struct{ source, resource string }

var volumeSources = [...]named{
	{"configMap", "configmaps (via configmap volumes)"},
	{"secret", "secrets (via secret volumes)"},
	{"csi", "csidrivers (via CSI volumes)"},
	{"glusterfs", "endpoints (via glusterFS volumes)"},
	{"persistentVolumeClaim", "persistentvolumeclaims"},
	{"ephemeral", "persistentvolumeclaims (via ephemeral volumes)"},
	{"azureFile", "secrets (via azureFile volumes)"},
}

var projectedSources = [...]named{
	{"configMap", "configmaps (via projected volumes)"},
	{"secret", "secrets (via projected volumes)"},
	{"serviceAccountToken", "serviceaccounts (via projected volumes)"},
	{"clusterTrustBundle", "clustertrustbundles"},
	{"podCertificate", "podcertificates"},
}

// volumeReference returns what objects a volume refers to; empty if none.
func volumeReference(volume codec.Value) (string, error) {
	for _, source := range localSources {
		if volume.Get(source).IsSet() {
			return "", nil
		}
	}
	for _, s := range volumeSources {
		if volume.Get(s.source).IsSet() {
			return s.resource, nil
		}
	}
	projected := volume.Get("projected")
	if !projected.IsSet() {
		return "", fmt.Errorf("unknown volume type for volume  %q", volume.Get("name").String())
	}
	for _, from := range projected.Get("sources").Elements() {
		for _, s := range projectedSources {
			if from.Get(s.source).IsSet() {
				return s.resource, nil
			}
		}
		if from.Get("downwardAPI").IsSet() {
			continue
		}
		return "", fmt.Errorf("unknown source for projected volume %q", volume.Get("name").String())
	}
	return "", nil
}
