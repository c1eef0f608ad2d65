package podpreset

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// setDefaults sets the defaults that the API server set in PodPresets (k8s.io/kubernetes
// v1.19 pkg/apis/settings/v1alpha1 SetObjectDefaults_PodPreset). API servers do not set them
// in custom resources. Without them, a preset would conflict with the pods that it changed,
// which have the defaults.
func setDefaults(spec *Spec) {
	for i := range spec.Env {
		if from := spec.Env[i].ValueFrom; from != nil {
			setDefaultsFieldRef(from.FieldRef)
		}
	}
	for i := range spec.Volumes {
		setDefaultsVolume(&spec.Volumes[i].VolumeSource)
	}
}

func setDefaultsFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		setDefault(&ref.APIVersion, "v1")
	}
}

// setDefault sets a value that is zero.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setDefaultPointer sets a pointer that is nil.
func setDefaultPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDefaultsVolume(v *corev1.VolumeSource) {
	if reflect.ValueOf(*v).IsZero() {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if s := v.HostPath; s != nil {
		setDefaultPointer(&s.Type, corev1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if s := v.ConfigMap; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if s := v.DownwardAPI; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		setDefaultsFiles(s.Items)
	}
	if s := v.Projected; s != nil {
		setDefaultsProjected(s)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		setDefaultPointer(&s.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	setDefaultsDisk(v)
}

func setDefaultsFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		setDefaultsFieldRef(files[i].FieldRef)
	}
}

func setDefaultsProjected(s *corev1.ProjectedVolumeSource) {
	setDefaultPointer(&s.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range s.Sources {
		if d := s.Sources[i].DownwardAPI; d != nil {
			setDefaultsFiles(d.Items)
		}
		if t := s.Sources[i].ServiceAccountToken; t != nil {
			setDefaultPointer(&t.ExpirationSeconds, 3600)
		}
	}
}

func setDefaultsDisk(v *corev1.VolumeSource) {
	if s := v.ISCSI; s != nil {
		setDefault(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		setDefault(&s.RBDPool, "rbd")
		setDefault(&s.RadosUser, "admin")
		setDefault(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.AzureDisk; s != nil {
		setDefaultPointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setDefaultPointer(&s.Kind, corev1.AzureSharedBlobDisk)
		setDefaultPointer(&s.FSType, "ext4")
		setDefaultPointer(&s.ReadOnly, false)
	}
	if s := v.ScaleIO; s != nil {
		setDefault(&s.StorageMode, "ThinProvisioned")
		setDefault(&s.FSType, "xfs")
	}
}
